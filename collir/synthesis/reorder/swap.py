"""Where a step that changes a layout and a local one may change places.

Types say of every value which tensor the devices hold together, and how. A step that changes a
layout leaves that tensor alone; a local one does the same to it wherever its operand is. So the two
may change places if both are well typed there, and lead to the same type. What types do not see is
rounding, and integers that wrap around: where a reduction is passed, ``exact`` has the rest.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import IntegerAttr, i64

from collir.dialects.tensor import DistTensorType
from collir.layout import DistType, DType, Reduction
from collir.layout.steps import ArgumentKind, Arguments
from collir.synthesis.reorder.prices import Form, Prices


def exact(mover: Form, local: Form, x: DistType, ahead: bool) -> bool:
    """Whether a local step may pass one that changes a layout, where types let it.

    Args:
        mover: what changes the layout.
        local: the other.
        x: what the first of the two takes.
        ahead: whether the local step is to come first.
    """
    return not mover.kind.reduces or HOPS[local.kind.name].exact(x, local.arguments, ahead)


# Sums are of floats that round, or of integers that wrap around alike wherever they are scaled.


def _always(x: DistType, arguments: Arguments, ahead: bool) -> bool:
    return True


def _cast(x: DistType, arguments: Arguments, ahead: bool) -> bool:
    """Sums are not cast elsewhere: a wider type is what they were to be added in, or not."""
    # What is too small for an integer, and not the largest, would be an unspecified one.
    to_float = DType(str(arguments["dtype"])).is_float
    return _selects(x) and (to_float or not x.dtype.is_float)


def _scale(x: DistType, arguments: Arguments, ahead: bool) -> bool:
    if _selects(x):  # which integers that wrap around do not keep
        return x.dtype.is_float
    factor = arguments["factor"]
    assert isinstance(factor, float)
    if x.dtype.short_range and abs(factor) != 1:
        # A larger term may overflow, and so may a sum that is not smaller yet; a smaller term
        # may underflow where the sum does not.
        return not ahead and abs(factor) > 1
    return x.reduction is not Reduction.PROD


def _pad(x: DistType, arguments: Arguments, ahead: bool) -> bool:
    return x.reduction is not Reduction.AVG or arguments["value"] == 0  # others round


def _selects(x: DistType) -> bool:
    return x.reduction in (Reduction.MAX, Reduction.MIN)


def before(
    prices: Prices, mover: Form, local: Form, x: DistType, passed: DistType
) -> tuple[Form, DistType] | None:
    """A mover behind a local step in front of it: its form there, and what it gives.

    Args:
        prices: the types.
        mover: on what the local step gives.
        local: on ``x``.
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
    prices: Prices, mover: Form, local: Form, x: DistType, passed: DistType
) -> tuple[Form, DistType] | None:
    """A mover in front of a local step behind it: its form there, and what it takes.

    Args:
        prices: the types.
        mover: on ``x``.
        local: on what the mover gives.
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


def _on_dims(prices: Prices, mover: Form, to: DistType | None, rank: int) -> Iterator[Form]:
    """A mover with other dimensions, its own first; a permute with the layout that it leads to."""
    properties = mover.properties
    if "to" in properties:
        if to is not None:
            yield prices.form(mover.op, {**properties, "to": DistTensorType(to)})
        return
    names = [one.name for one in mover.kind.parameters if one.kind is ArgumentKind.INTEGER]
    yield mover
    for dims in _tuples(len(names), rank):
        each = zip(names, dims, strict=True)
        form = prices.form(
            mover.op, {**properties, **{name: IntegerAttr(dim, i64) for name, dim in each}}
        )
        if form is not mover:
            yield form


def _tuples(count: int, rank: int) -> Iterator[tuple[int, ...]]:
    if count == 1:
        yield from ((dim,) for dim in range(rank))
    elif count == 2:
        yield from ((one, two) for one in range(rank) for two in range(rank) if one != two)


def _moved_to(local: Form, x: DistType, passed: DistType) -> DistType | None:
    """The layout that a local step would have to take, to give another; None: not known."""
    return HOPS[local.kind.name].moved_to(x, passed, local.arguments)


def _elementwise(x: DistType, passed: DistType, arguments: Arguments) -> DistType:
    return replace(x, dims=passed.dims)


def _transposed(x: DistType, passed: DistType, arguments: Arguments) -> DistType:
    order = arguments["order"]
    assert isinstance(order, tuple)
    return replace(x, dims=tuple(passed.dims[order.index(i)] for i in range(len(x.dims))))


def _not_known(x: DistType, passed: DistType, arguments: Arguments) -> None:
    return None


@dataclass(frozen=True)
class Hop:
    """A local step on one value, where it may change places with one that changes a layout.

    Attributes:
        exact: whether it computes the same before a reduction and behind it, given what the first
            of the two takes, its arguments, and whether it is to come first.
        moved_to: the layout that it has to take to give another, for a permute that comes first
            then; None: not known.
    """

    exact: Callable[[DistType, Arguments, bool], bool]
    moved_to: Callable[[DistType, DistType, Arguments], DistType | None]


HOPS: dict[str, Hop] = {
    "cast": Hop(_cast, _elementwise),
    "scale": Hop(_scale, _elementwise),
    "transpose": Hop(_always, _transposed),
    "split": Hop(_always, _not_known),
    "merge": Hop(_always, _not_known),
    "reshape": Hop(_always, _not_known),
    "pad": Hop(_pad, _not_known),
}
"""The local steps on one value that change more than its layout, by name."""
