"""Where a step that changes a layout and a local one may change places.

Types say of every value which tensor the devices hold together, and how. A step that changes a
layout leaves that tensor alone; a local one does the same to it wherever its operand is. So the two
may change places if both are well typed there, and lead to the same type. What types do not see is
rounding, and integers that wrap around: where a reduction is passed, ``exact`` has the rest.
"""

from collections.abc import Iterator
from dataclasses import replace

from xdsl.dialects.builtin import IntegerAttr, StringAttr, i64

from collir.dialects import coll
from collir.dialects.coll import DistTensorType, SizesAttr
from collir.dialects.machine import NumberAttr
from collir.layout import DistType, DType, Reduction
from collir.synthesis.commuting_prices import Form, Prices

LOCAL = (
    coll.CastOp,
    coll.ScaleOp,
    coll.TransposeOp,
    coll.SplitOp,
    coll.MergeOp,
    coll.ReshapeOp,
    coll.PadOp,
)
"""The local operations on one value that change more than its layout."""


def exact(mover: Form, local: Form, x: DistType, ahead: bool) -> bool:
    """Whether a local step may pass one that changes a layout, where types let it.

    Sums are of floats that round, or of integers that wrap around alike wherever they are scaled.
    They are not cast elsewhere: a wider type is what they were to be added in, or not.

    Args:
        mover: what changes the layout.
        local: the other.
        x: what the first of the two takes.
        ahead: whether the local step is to come first.
    """
    if not issubclass(mover.kind, coll.REDUCING):
        return True
    selects = x.reduction in (Reduction.MAX, Reduction.MIN)
    if local.kind is coll.CastOp:
        name = local.properties["dtype"]
        assert isinstance(name, StringAttr)
        # What is too small for an integer, and not the largest, would be an unspecified one.
        return selects and (DType(name.data).is_float or not x.dtype.is_float)
    if local.kind is coll.ScaleOp:
        if selects:  # which integers that wrap around do not keep
            return x.dtype.is_float
        factor = local.properties["factor"]
        assert isinstance(factor, NumberAttr)
        if x.dtype is DType.F16:  # beyond whose largest number a sum is soon
            return abs(factor.data) <= 1 if ahead else abs(factor.data) >= 1
        return x.reduction is not Reduction.PROD
    if local.kind is coll.PadOp and x.reduction is Reduction.AVG:
        value = local.properties["value"]
        assert isinstance(value, NumberAttr)
        return value.data == 0  # others round
    return True


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
    if mover.kind is coll.PermuteOp:
        if to is not None:
            yield prices.form(mover.kind, {**properties, "to": DistTensorType(to)})
        return
    names = [name for name in ("dim", "source", "target") if name in properties]
    yield mover
    for dims in _tuples(len(names), rank):
        each = zip(names, dims, strict=True)
        form = prices.form(
            mover.kind, {**properties, **{name: IntegerAttr(dim, i64) for name, dim in each}}
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
    if local.kind in (coll.CastOp, coll.ScaleOp):
        return replace(x, dims=passed.dims)
    if local.kind is coll.TransposeOp:
        order = local.properties["order"]
        assert isinstance(order, SizesAttr)
        return replace(x, dims=tuple(passed.dims[order.data.index(i)] for i in range(len(x.dims))))
    return None
