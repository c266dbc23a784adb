"""The pairs of a step that changes a layout and a local step that may change places.

The type of a value says which tensor the devices hold together, and how. A step that changes a
layout leaves that tensor as it is; a local step does the same to it wherever its operand is. So the
two may change places if both are well typed there, and lead to the same type. Types do not see
rounding, nor integers that wrap around: where a reduction is passed, ``exact`` decides.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import permutations

from xdsl.dialects.builtin import IntegerAttr, i64

from collir.dialects.tensor import DistTensorType
from collir.layout import Dim, DistType, DType, Reduction
from collir.layout.operation_table import OperationTable
from collir.layout.steps import ArgumentKind, Arguments
from collir.synthesis.reorder.prices import Form, StepPrices


def exact(mover: Form, local: Form, x: DistType, ahead: bool) -> bool:
    """Return whether a local step may pass a step that changes a layout, where types let it.

    Args:
        mover: the step that changes the layout.
        local: the local step.
        x: the operand type of the first of the two.
        ahead: whether the local step is moved to the front.
    """
    return not mover.kind.reduces or HOPS[local.kind.name](x, local.arguments, ahead)


# Sums are of floats, which round, or of integers, which wrap around alike wherever they are scaled.


def _always(x: DistType, arguments: Arguments, ahead: bool) -> bool:
    return True


def _cast(x: DistType, arguments: Arguments, ahead: bool) -> bool:
    """Return whether a cast may pass a reduction.

    It passes no sum: the type in which terms are added is the choice of the program.
    """
    # A float that no integer can hold is cast to an unspecified one, which may be the largest.
    to_float = DType(str(arguments["dtype"])).is_float
    return _selects(x) and (to_float or not x.dtype.is_float)


def _scale(x: DistType, arguments: Arguments, ahead: bool) -> bool:
    if _selects(x):  # integers that wrap around do not keep their order
        return x.dtype.is_float
    factor = arguments["factor"]
    assert isinstance(factor, int | float)  # an integer with its formula, as in `scale %x by batch`
    if x.dtype.short_range and abs(factor) != 1:
        # A larger term may overflow, and so may a sum that is not smaller yet; a smaller term
        # may underflow where the sum does not.
        return not ahead and abs(factor) > 1
    return x.reduction is not Reduction.PROD


def _pad(x: DistType, arguments: Arguments, ahead: bool) -> bool:
    # An average of other values rounds.
    return x.reduction is not Reduction.AVG or arguments["value"] == 0


def _selects(x: DistType) -> bool:
    return x.reduction in (Reduction.MAX, Reduction.MIN)


def before(
    prices: StepPrices, mover: Form, local: Form, x: DistType, passed: DistType
) -> tuple[Form, DistType] | None:
    """Return the form of a mover in front of the local step it follows, and its result type.

    Args:
        prices: the types of steps.
        mover: the mover, on the result of the local step.
        local: the local step, on ``x``.
        x: the type that both start from.
        passed: the type that both end at.
    """
    for form in _on_dims(prices, mover, _moved_to(local, x, passed), len(x.dims)):
        between = prices.type(form, x)
        if between is None or prices.type(local, between) != passed:
            continue
        if exact(form, local, x, ahead=False):
            return form, between
    return None


def after(
    prices: StepPrices, mover: Form, local: Form, x: DistType, passed: DistType
) -> tuple[Form, DistType] | None:
    """Return the form of a mover behind the local step it precedes, and its operand type.

    Args:
        prices: the types of steps.
        mover: the mover, on ``x``.
        local: the local step, on the result of the mover.
        x: the type that both start from.
        passed: the type that both end at.
    """
    between = prices.type(local, x)
    if between is None or not exact(mover, local, x, ahead=True):
        return None
    for form in _on_dims(prices, mover, passed, len(between.dims)):
        if prices.type(form, between) == passed:
            return form, between
    return None


def _on_dims(prices: StepPrices, mover: Form, to: DistType | None, rank: int) -> Iterator[Form]:
    """Yield a mover with all dimensions, its own first; a permute with the layout it leads to."""
    properties = mover.properties
    if "to" in properties:
        if to is not None:
            yield prices.form(mover.op, {**properties, "to": DistTensorType(to)})
        return
    names = [p.name for p in mover.kind.parameters if p.kind is ArgumentKind.INTEGER]
    yield mover
    for dims in _tuples(len(names), rank):
        named = {name: IntegerAttr(dim, i64) for name, dim in zip(names, dims, strict=True)}
        form = prices.form(mover.op, {**properties, **named})
        if form is not mover:
            yield form


def _tuples(count: int, rank: int) -> Iterator[tuple[int, ...]]:
    if count == 1:
        yield from ((dim,) for dim in range(rank))
    elif count == 2:
        yield from permutations(range(rank), 2)


def _moved_to(local: Form, x: DistType, passed: DistType) -> DistType | None:
    """Return the layout that a local step needs for a given result, so that a permute can come
    first; None: not known."""
    structure = local.kind.indices([x], local.arguments)
    if structure is None or structure.regrouped:
        return None
    axes = {index: dim.axes for index, dim in zip(structure.result, passed.dims, strict=True)}
    dims = (
        Dim(dim.size, axes.get(index, ()))
        for index, dim in zip(structure.operands[0], x.dims, strict=True)
    )
    return replace(x, dims=tuple(dims))


HOPS: OperationTable[Callable[[DistType, Arguments, bool], bool]] = OperationTable(
    "HOPS",
    __name__,
    {
        "cast": _cast,
        "scale": _scale,
        "transpose": _always,
        "split": _always,
        "merge": _always,
        "reshape": _always,
        "pad": _pad,
    },
    row="a function: whether it may change places with a reduction",
)
"""For the local steps on one value that change more than its layout, by name: whether one computes
the same before a reduction and behind it, given the operand type of the first of the two, the
arguments of the local step, and whether it is moved to the front."""
