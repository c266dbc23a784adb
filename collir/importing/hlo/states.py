"""The states of the values of a program: the array and the block of it that each device has."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy.typing as npt

Table = npt.NDArray[Any]
"""Numbers of each device: an array with a dimension for the devices in front."""


class NotTyped(Exception):
    """Why it is not known what a value is a block of."""


@dataclass(frozen=True)
class Along:
    """The layout of a dimension on the devices.

    Attributes:
        size: the size of a block.
        axes: the pieces of the mesh that it is divided over, the most significant first; None if
            all its elements are equal, so that it may be divided over any.
    """

    size: int
    axes: tuple[int, ...] | None = ()

    @property
    def pieces(self) -> tuple[int, ...]:
        """The pieces that it is divided over, if that matters."""
        return self.axes or ()


@dataclass(frozen=True)
class ValueState:
    """The state of a value.

    Attributes:
        partial: the pieces over which the blocks of devices have to be reduced.
        kind: the kind of this reduction.
        stacked: the pieces along which it is a stack. Each device has one element of the stack,
            such as the first row of its block. A divided dimension may be seen as a stack, too.
        shift: the pieces of the number of each device that was subtracted from places.
        number: the number that all elements are, if it is known.
        table: the elements on each device, of small arrays of integers.
        is_hidden: whether it is a number for each device that the text leaves out.
    """

    dims: tuple[Along, ...] = ()
    partial: frozenset[int] = frozenset()
    kind: str = "sum"
    stacked: frozenset[int] = frozenset()
    shift: tuple[int, ...] = ()
    number: float | None = None
    table: Table | None = None
    is_hidden: bool = False

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of a block."""
        return tuple(x.size for x in self.dims)

    @property
    def axes(self) -> frozenset[int]:
        """All pieces that dimensions are divided over."""
        return frozenset(n for x in self.dims for n in x.pieces)

    def with_dims(self, dims: Sequence[Along]) -> "ValueState":
        """Return it with other dimensions.

        Raises:
            NotTyped: a piece would divide two of them, or one in which the value is partial.
        """
        used = [n for x in dims for n in x.pieces]
        if len(used) > len(set(used)) or (self.partial | self.stacked).intersection(used):
            raise NotTyped("it would be divided over one axis twice")
        return replace(self, dims=tuple(dims), table=None)


def uniform(sizes: Sequence[int], number: float | None = None) -> ValueState:
    """Return an array whose elements are equal."""
    return ValueState(tuple(Along(n, None) for n in sizes), number=number)


def whole(sizes: Sequence[int]) -> ValueState:
    """Return an array that every device has."""
    return ValueState(tuple(Along(n) for n in sizes))


def of_table(table: Table, sizes: Sequence[int], varying: frozenset[int]) -> ValueState:
    """Return an array of integers that are known on each device.

    Args:
        varying: the pieces by which they differ.
    """
    dims = [Along(n, None if (table == table.take([0], d)).all() else ())
            for d, n in enumerate(sizes, 1)]  # fmt: skip
    number = float(table.flat[0]) if (table == table.flat[0]).all() else None
    return ValueState(tuple(dims), stacked=varying, number=number, table=table)


def as_stack(x: ValueState, pieces: Sequence[int]) -> ValueState:
    """Return it as a stack along pieces that divide it: each device has its block."""
    dims = [Along(d.size, tuple(n for n in d.pieces if n not in pieces) if d.axes else d.axes)
            for d in x.dims]  # fmt: skip
    shared = x.axes.intersection(pieces)
    for d in x.dims:
        inner = d.pieces[len(d.pieces) - len(shared.intersection(d.pieces)) :]
        if frozenset(inner) != shared.intersection(d.pieces):
            raise NotTyped("a dimension is divided over other axes inside of these")
    return replace(x, dims=tuple(dims), stacked=x.stacked | shared, table=None)


def joined(states: Sequence[ValueState]) -> ValueState:
    """Return how the results of a function of elements lie.

    Raises:
        NotTyped: the operands lie in different ways.
    """
    states = _divided(states)
    dims: list[Along] = []
    for d, own in enumerate(zip(*(x.dims for x in states), strict=True)):
        known = {x.axes for x in own if x.axes is not None}
        if len(known) > 1:
            raise NotTyped(f"its operands are divided in different ways in dimension {d}")
        dims.append(Along(own[0].size, known.pop() if known else None))
    return ValueState(stacked=frozenset[int]().union(*(x.stacked for x in states))).with_dims(dims)


def _divided(states: Sequence[ValueState]) -> list[ValueState]:
    """Return stacks as divided in the dimension in which another operand is divided so."""
    made = list(states)
    for d in range(len(states[0].dims)):
        wanted = {x.dims[d].axes for x in made if x.dims[d].axes}
        if not wanted:
            continue
        wished = Along(0, min(wanted, key=lambda axes: (len(axes or ()), axes)))
        made = [divided(x, d, wished) for x in made]
    return made


def divided(x: ValueState, dim: int, other: Along) -> ValueState:
    """Return a value with a dimension divided like another one, if it can be seen so.

    A stack can be seen as divided in the dimension. The pieces that divide a dimension can be seen
    as dividing a dimension of size 1 in front of it, which is another shape of the same array.
    """
    own, axes = x.dims[dim], other.pieces
    if own.axes is not None and own.axes != other.axes and other.axes is not None:
        x = _from_behind(_to_behind(x, dim, axes), dim, axes)
        own = x.dims[dim]
    if x.is_hidden and axes and not own.axes:
        return replace(x, dims=(*x.dims[:dim], Along(own.size, axes), *x.dims[dim + 1 :]))
    outer = axes[: len(axes) - len(own.pieces)]
    if (*outer, *own.pieces) != axes or not outer or not x.stacked.issuperset(outer):
        return x
    dims = (*x.dims[:dim], Along(own.size, axes), *x.dims[dim + 1 :])
    return replace(x, dims=dims, stacked=x.stacked - set(outer), table=None)


def _from_behind(x: ValueState, dim: int, axes: tuple[int, ...]) -> ValueState:
    """Return a value with more pieces of a dimension of size 1, moved from the next dimension."""
    own, behind = x.dims[dim], x.dims[dim + 1].pieces if dim + 1 < len(x.dims) else ()
    count = len(axes) - len(own.pieces)
    if own.size != 1 or count <= 0 or (*own.pieces, *behind[:count]) != axes:
        return x
    next_ = Along(x.dims[dim + 1].size, behind[count:])
    return replace(x, dims=(*x.dims[:dim], Along(1, axes), next_, *x.dims[dim + 2 :]))


def _to_behind(x: ValueState, dim: int, axes: tuple[int, ...]) -> ValueState:
    """Return it with more or less pieces of a dimension behind one of size 1."""
    own, front = x.dims[dim].pieces, x.dims[dim - 1] if dim else Along(0)
    whole = (*front.pieces, *own)
    if front.size != 1 or front.axes is None or not axes or whole[len(whole) - len(axes) :] != axes:
        return x
    moved = Along(1, whole[: len(whole) - len(axes)])
    return replace(x, dims=(*x.dims[: dim - 1], moved, Along(x.dims[dim].size, axes),
                            *x.dims[dim + 1 :]))  # fmt: skip


def stack_of(x: ValueState) -> ValueState:
    """Return a stack of each device's value, whatever array that belongs to."""
    whole_ = as_stack(x, sorted(x.axes))
    return replace(whole_, partial=frozenset(), stacked=whole_.stacked | x.partial, table=None)


class _Merged(Exception):
    """A divided dimension that is merged behind another one; it has the pieces that divide it."""

    def __init__(self, pieces: Sequence[int]):
        super().__init__()
        self.pieces = pieces


def reshaped(x: ValueState, sizes: Sequence[int]) -> ValueState:
    """Return an array with other dimensions, whose elements stay in order.

    Raises:
        NotTyped: blocks would not be blocks any more.
    """
    if all(d.axes is None for d in x.dims) and x.dims:
        return replace(x, dims=tuple(Along(n, None) for n in sizes), table=_view(x, sizes))
    gone = [n for d in x.dims if d.size == 1 and 1 not in sizes for n in d.pieces]
    x = as_stack(x, gone) if gone else x
    try:
        return replace(x.with_dims(_regrouped(x, sizes)), table=_view(x, sizes))
    except _Merged as merged:
        x = as_stack(x, merged.pieces)
        return x.with_dims(_regrouped(x, sizes))


def _regrouped(x: ValueState, sizes: Sequence[int]) -> list[Along]:
    """Return the dimensions of a reshape."""
    made: list[Along] = []
    before, after = list(x.dims), list(sizes)
    while before or after:
        left: list[Along] = [before.pop(0)] if before else []
        right: list[int] = [after.pop(0)] if after else []
        while math.prod(d.size for d in left) != math.prod(right):
            if math.prod(d.size for d in left) < math.prod(right) and before:
                left.append(before.pop(0))
            elif after:
                right.append(after.pop(0))
            else:
                raise NotTyped("it is reshaped to another number of elements")
        made += _group(left, right)
    return made


def _view(x: ValueState, sizes: Sequence[int]) -> Table | None:
    return None if x.table is None else x.table.reshape(len(x.table), *sizes)


def _group(left: Sequence[Along], right: Sequence[int]) -> list[Along]:
    """Return the dimensions that some become together: a division goes to the first of them."""
    if not right:
        if left_over := [n for x in left for n in x.pieces]:
            raise _Merged(left_over)
        return []
    if len(left) == len(right) == 1:
        return [Along(right[0], left[0].axes)]
    if left and all(x.axes is None or (x.size == 1 and not x.axes) for x in left):
        return [Along(size, None) for size in right]
    first = next((n for n, x in enumerate(left) if x.size != 1), len(left) - 1)
    if behind := [n for x in left[first + 1 :] for n in x.pieces]:
        raise _Merged(behind)
    divided = tuple(n for x in left[: first + 1] for n in x.pieces)
    place = next((n for n, size in enumerate(right) if size != 1), 0)
    return [Along(size, divided if n == place else ()) for n, size in enumerate(right)]


def added(x: ValueState, pieces: frozenset[int], kind: str) -> ValueState:
    """Return it as partial over more pieces.

    Raises:
        NotTyped: it is partial in another way.
    """
    if not pieces:
        return x
    if x.partial and x.kind != kind:
        raise NotTyped(f"it is partial by {x.kind} and by {kind}")
    if pieces & (x.axes | x.partial | x.stacked):
        raise NotTyped("it is partial over an axis that divides it")
    return replace(x, partial=x.partial | pieces, kind=kind, table=None)
