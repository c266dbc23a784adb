"""Other shapes of the same elements, parts and joins of them, and elements at places."""

import math
from collections.abc import Sequence
from typing import Any

from collir.importing.models.graph import ModelNode
from collir.importing.models.jax_rows.maps import Operand, as_torch
from collir.importing.models.jax_rows.table import jax_row
from collir.importing.models.lines import GIVEN, SIZES, Lines, LineValue, type_text
from collir.importing.models.rows.selections import take
from collir.importing.models.rows.table import NotHere, dtype_of, shape_of, value_of


@jax_row("reshape", "squeeze", "expand_dims")
def _view(e: Lines, node: ModelNode, x: LineValue, **_: object) -> LineValue:
    return e.view(x, shape_of(node))


@jax_row("broadcast_in_dim")
def _broadcast(
    e: Lines, node: ModelNode, x: Operand, *, broadcast_dimensions: Sequence[int], **_: object
) -> LineValue:
    shape, x = shape_of(node), value_of(e, x, dtype_of(node))
    places = dict(zip(broadcast_dimensions, x.shape, strict=True))
    return e.expand(e.view(x, [places.get(d, 1) for d in range(len(shape))]), shape)


@jax_row("transpose")
def _transpose(e: Lines, node: ModelNode, x: LineValue, *, permutation: Sequence[int]) -> LineValue:
    return e.transpose(x, permutation)


@jax_row("tile")
def _tile(
    e: Lines, node: ModelNode, x: LineValue, *, reps: Sequence[int], **_: object
) -> LineValue:
    made = as_torch("repeat")(e, node, x, list(reps))
    assert isinstance(made, LineValue)
    return made


@jax_row("rev")
def _rev(e: Lines, node: ModelNode, x: LineValue, *, dimensions: Sequence[int]) -> LineValue:
    made = as_torch("flip")(e, node, x, list(dimensions))
    assert isinstance(made, LineValue)
    return made


@jax_row("slice")
def _slice(
    e: Lines, node: ModelNode, x: LineValue, *, start_indices: Sequence[int],
    strides: Sequence[int] | None = None, **_: object,
) -> LineValue:  # fmt: skip
    for dim, (start, size) in enumerate(zip(start_indices, shape_of(node), strict=True)):
        x = e.strided(x, dim, start, strides[dim] if strides else 1, size)
    return x


@jax_row("concatenate")
def _concatenate(e: Lines, node: ModelNode, *parts: LineValue, dimension: int) -> LineValue:
    return e.concat([x for x in parts if math.prod(x.shape)], dimension)


@jax_row("stack")
def _stack(e: Lines, node: ModelNode, *parts: Operand, axis: int = 0, **_: object) -> LineValue:
    shape, dtype = shape_of(node), dtype_of(node)
    one = (*shape[:axis], 1, *shape[axis + 1 :])
    return e.concat([e.view(value_of(e, x, dtype), one) for x in parts], axis)


@jax_row("split")
def _split(
    e: Lines, node: ModelNode, x: LineValue, *, sizes: Sequence[int], axis: int
) -> tuple[LineValue, ...]:
    starts = [sum(sizes[:n]) for n in range(len(sizes))]
    return tuple(e.cut(x, axis, at, size) for at, size in zip(starts, sizes, strict=True))


@jax_row("pad")
def _pad(
    e: Lines, node: ModelNode, x: LineValue, value: Operand, *,
    padding_config: Sequence[tuple[int, int, int]],
) -> LineValue:  # fmt: skip
    if isinstance(value, LineValue):
        raise NotHere("with a value that is computed")
    for dim, (low, high, inner) in enumerate(padding_config):
        if inner:
            x = spread(e, x, dim, inner + 1, value)
        x = e.pad(x, dim, min(low, 0), min(high, 0))
        x = e.pad(x, dim, max(low, 0), max(high, 0), value)
    return x


def spread(e: Lines, x: LineValue, dim: int, stride: int, value: float = 0) -> LineValue:
    """Return a value whose elements along a dimension stand apart, with others between them."""
    size = x.shape[dim]
    if stride == 1 or size == 1:
        return x
    apart = e.view(x, (*x.shape[: dim + 1], 1, *x.shape[dim + 1 :]))
    wide = e.pad(apart, dim + 1, 0, stride - 1, value)
    flat = e.view(wide, (*x.shape[:dim], size * stride, *x.shape[dim + 1 :]))
    return e.cut(flat, dim, 0, (size - 1) * stride + 1)


@jax_row("iota")
def _iota(e: Lines, node: ModelNode, *, dimension: int, **_: object) -> LineValue:
    shape, dtype = shape_of(node), dtype_of(node)
    size = shape[dimension]
    own = "i32" if dtype[0] not in "iu" else dtype
    x = e.cast(positions(e, size, own), dtype)
    return e.expand(e.view(x, [size if d == dimension else 1 for d in range(len(shape))]), shape)


def positions(e: Lines, size: int, dtype: str) -> LineValue:
    """Return the numbers from 0 to below a size, of a dtype of integers."""
    return e.step(f"iota dim 0 to {dtype}[{size}]", (size,), dtype, "positions")


@jax_row("sharding_constraint")
def _constrained(e: Lines, node: ModelNode, x: LineValue, *, axes: Sequence[str]) -> LineValue:
    """The value, laid out; a function that any mesh may call has no axes."""
    x = e.whole(x)
    if e.is_generic:
        return x
    sizes = [f"{n}{a}" for n, a in zip(x.shape, axes, strict=True)]
    return e.step(f"redistribute %{x.name} to {type_text(sizes, x.dtype)}", x.shape, x.dtype)


@jax_row("shift")
def _shifted(
    e: Lines, node: ModelNode, x: LineValue, *, spec: Sequence[tuple[str, ...] | None], axis: str,
    by: int,
    is_open: bool,
) -> LineValue:  # fmt: skip
    """The blocks along an axis of a mesh, each from a neighbour: a function of its own, whose types
    say where they are."""
    x = e.whole(x)
    sizes = [f"{n}@{own[0]}" if own else str(n) for n, own in zip(x.shape, spec, strict=True)]
    type, step = type_text(sizes, x.dtype), f"shift %x over {axis} by {by}{' open' * is_open}"
    text = f"{SIZES}(%x: {type}) -> {type} on @m {{\n  %y = {step}\n  return %y\n}}"
    name = e.called_as(text, f"shift_{axis}")
    return e.step(f"call @{name}{GIVEN}(%{x.name})", x.shape, x.dtype)


# --- parts at places that are computed ------------------------------------------------------------


def _start(e: Lines, start: Operand, size: int, room: int) -> LineValue:
    """Return where a part begins, moved so that it is inside."""
    at = value_of(e, start, start.dtype if isinstance(start, LineValue) else "i32")
    least = e.map("maximum {}", at, e.number(0, at.dtype))
    return e.map("minimum {}", least, e.number(room - size, at.dtype))


@jax_row("dynamic_slice")
def _dynamic_slice(
    e: Lines, node: ModelNode, x: LineValue, *starts: Operand, slice_sizes: Sequence[int]
) -> LineValue:
    for dim, (start, size) in enumerate(zip(starts, slice_sizes, strict=True)):
        room = x.shape[dim]
        if size == room:
            continue
        if not isinstance(start, LineValue):
            x = e.cut(x, dim, min(max(int(start), 0), room - size), size)
            continue
        at = _start(e, start, size, room)
        places = e.map("add {}", e.view(at, (1,)), positions(e, size, at.dtype))
        x = take(e, x, places, dim)
    return x


@jax_row("dynamic_update_slice")
def _dynamic_update(
    e: Lines, node: ModelNode, x: LineValue, part: LineValue, *starts: Operand
) -> LineValue:
    """Put the elements of a part in their places in the whole."""
    inside: LineValue | None = None
    rank = len(x.shape)
    for dim, (start, size) in enumerate(zip(starts, part.shape, strict=True)):
        room = x.shape[dim]
        if size == room:
            continue
        at = _start(e, start, size, room)
        places = e.map("sub {}", positions(e, room, at.dtype), e.view(at, (1,)))
        low = e.map("greater_equal {}", places, e.number(0, at.dtype), dtype="bool")
        high = e.map("less {}", places, e.number(size, at.dtype), dtype="bool")
        own = e.map("where {}", low, high, e.number(0, "bool"))
        own = e.view(own, [room if d == dim else 1 for d in range(rank)])
        inside = own if inside is None else e.map("where {}", inside, own, e.number(0, "bool"))
        part = take(e, part, places, dim)  # which is 0 at places that it does not have
    return part if inside is None else e.map("where {}", inside, part, x)


# --- gathers and scatters -------------------------------------------------------------------------


def _dims(x: Any) -> list[int]:
    return [int(k) for k in x]


def _number(e: Lines, places: LineValue, columns: Sequence[int], sizes: Sequence[int]) -> LineValue:
    """Return places in several dimensions, which are columns of a value, as numbers in all."""
    last, number = len(places.shape) - 1, None
    for column, size in zip(columns, sizes, strict=True):
        own = e.view(e.cut(places, last, column, 1), places.shape[:-1])
        number = own if number is None else e.map("add {}", _times(e, number, size), own)
    assert number is not None
    return number


def _times(e: Lines, x: LineValue, factor: int) -> LineValue:
    return e.map("mul {}", x, e.number(factor, x.dtype))


@jax_row("gather")
def _gather(
    e: Lines, node: ModelNode, x: LineValue, places: LineValue, *, dimension_numbers: Any,
    slice_sizes: Sequence[int], **_: object,
) -> LineValue:  # fmt: skip
    """Whole slices at places: of some dimensions that are numbered together, or of one in a stack.

    The slices of other operands begin at places, and are taken by all the places in them.
    """
    shape, d = shape_of(node), dimension_numbers
    named, batching = _dims(d.start_index_map), _dims(d.operand_batching_dims)
    rank = len(x.shape)
    others = [k for k in range(rank) if k not in named and k not in batching]
    if any(slice_sizes[k] != x.shape[k] for k in others):
        raise NotHere("of parts of dimensions that have no place")
    wide = [k for k in named if slice_sizes[k] != 1 or k not in d.collapsed_slice_dims]
    if batching:
        return _batched_gather(e, node, x, places, d, slice_sizes)
    if wide:
        return _windows(e, node, x, places, d, slice_sizes)
    offset = _dims(d.offset_dims)
    order = [*named, *others]
    table = e.transpose(e.whole(x), order)
    sizes = [x.shape[k] for k in named]
    rest = [x.shape[k] for k in others]
    table = e.view(table, (math.prod(sizes), *rest))
    columns = range(len(named))
    made = take(e, table, _number(e, places, columns, sizes), 0)
    free = [k for k in range(len(shape)) if k not in offset]
    return _placed(e, made, [*free, *offset], shape)


def _placed(e: Lines, x: LineValue, places: Sequence[int], shape: Sequence[int]) -> LineValue:
    """Return a value with each dimension at its place."""
    return e.view(e.transpose(x, [places.index(k) for k in range(len(places))]), shape)


def _windows(
    e: Lines, node: ModelNode, x: LineValue, places: LineValue, d: Any, slice_sizes: Sequence[int]
) -> LineValue:
    """Return parts that begin at places; with several places, each has a dimension of them."""
    outer, last = places.shape[:-1], len(places.shape) - 1
    count, named = math.prod(outer), _dims(d.start_index_map)
    if len(named) > 1 and count > 1:
        raise NotHere("of parts in several dimensions")
    for column, dim in enumerate(named):
        start = e.view(e.cut(places, last, column, 1), (count, 1))
        at = _start(e, start, slice_sizes[dim], x.shape[dim])
        at = e.map("add {}", at, positions(e, slice_sizes[dim], at.dtype))
        x = take(e, x, e.view(at, (count * slice_sizes[dim],)), dim)
    kept = [k for k in range(len(x.shape)) if k not in d.collapsed_slice_dims]
    if count == 1:
        return e.view(x, shape_of(node))
    [dim] = named
    parts = (*x.shape[:dim], *outer, slice_sizes[dim], *x.shape[dim + 1 :])
    made = e.view(x, parts)
    ahead = [*range(dim, dim + len(outer)), *range(dim), *range(dim + len(outer), len(parts))]
    made = e.transpose(made, ahead)
    made = e.view(made, (*outer, *(slice_sizes[k] if k == dim else x.shape[k] for k in kept)))
    shape, offset = shape_of(node), _dims(d.offset_dims)
    free = [k for k in range(len(shape)) if k not in offset]
    return _placed(e, made, [*free, *offset], shape)


def _batched_gather(
    e: Lines, node: ModelNode, x: LineValue, places: LineValue, d: Any, slice_sizes: Sequence[int]
) -> LineValue:
    """Return parts of one dimension at places that are others for each part of a stack."""
    sliced = [k for k in _dims(d.start_index_map) if slice_sizes[k] < x.shape[k]]
    if len(sliced) > 1:
        raise NotHere("of several dimensions, in a stack")
    dim = sliced[0] if sliced else _dims(d.start_index_map)[0]
    shape, offset, count = shape_of(node), _dims(d.offset_dims), slice_sizes[dim]
    batch, stacked = _dims(d.operand_batching_dims), _dims(d.start_indices_batching_dims)
    rest = [k for k in range(len(x.shape)) if k != dim and k not in batch]
    table = e.transpose(e.whole(x), [*batch, dim, *rest])
    last = len(places.shape) - 1
    own = [k for k in range(last) if k not in stacked]
    at = e.cut(places, last, _dims(d.start_index_map).index(dim), 1)
    at = e.transpose(e.whole(at), [*stacked, *own, last])
    if dim not in d.collapsed_slice_dims:
        at = e.map("add {}", _start(e, at, count, x.shape[dim]), positions(e, count, at.dtype))
    front, outer = [x.shape[k] for k in batch], [places.shape[k] for k in own]
    more = [x.shape[k] for k in rest]
    at = e.view(at, (*front, math.prod(outer) * count, *(1 for _ in more)))
    at = e.whole(e.expand(at, (*front, math.prod(outer) * count, *more)))
    made = e.step(
        f"take_along_dim %{table.name}, %{at.name} dim {len(front)}", at.shape, table.dtype
    )
    kept = [k for k in (dim, *rest) if k not in d.collapsed_slice_dims]
    made = e.view(made, (*front, *outer, *(slice_sizes[k] for k in kept)))
    free = [k for k in range(len(shape)) if k not in offset]
    order = [offset[sorted(kept).index(k)] for k in kept]
    return _placed(e, made, [*(free[k] for k in stacked), *(free[k] for k in own), *order], shape)


@jax_row("scatter-add", "scatter_add", "scatter", "scatter-mul", "scatter_mul")
def _scatter(
    e: Lines, node: ModelNode, x: LineValue, places: LineValue, updates: Operand, *,
    dimension_numbers: Any,
    **_: object,
) -> LineValue:  # fmt: skip
    """Put whole slices in their places: add them, or replace the slices there."""
    d, is_sum, is_product = dimension_numbers, "add" in node.op, "mul" in node.op
    if is_product and math.prod(places.shape[:-1]) != 1:
        raise NotHere("at several places")
    updates = value_of(e, updates, x.dtype)
    named, batch = _dims(d.scatter_dims_to_operand_dims), _dims(d.operand_batching_dims)
    windows, rank = _dims(d.update_window_dims), len(x.shape)
    others = [k for k in range(rank) if k not in d.inserted_window_dims and k not in batch]
    sizes = [updates.shape[k] for k in windows]
    if any(n != x.shape[k] for n, k in zip(sizes, others, strict=True)) or set(named) & set(others):
        return _part(e, node, x, places, updates, d, others)
    free = [k for k in range(len(updates.shape)) if k not in windows]
    if batch:
        if len(named) != 1:
            raise NotHere("of several dimensions, in a stack")
        return _batched_scatter(e, x, places, updates, d, is_sum)
    front = e.transpose(e.whole(x), [*named, *others])
    rows, rest = [x.shape[k] for k in named], [x.shape[k] for k in others]
    flat = (math.prod(rows), *rest)
    values = e.whole(e.transpose(e.whole(updates), [*free, *windows]))
    number = e.whole(_number(e, places, range(len(named)), rows))
    made = _brought(e, values, number, flat)
    own = e.view(front, flat)
    if is_sum:
        made = e.map("add {}", own, made)
    else:
        ones = e.whole(e.number(1, "f32", (*number.shape, *(1 for _ in rest))))
        is_updated = _brought(e, ones, number, (flat[0], *(1 for _ in rest)))
        made = e.map("mul {}", own, made) if is_product else made
        made = _chosen(e, is_updated, made, own)
    back = [*named, *others]
    return e.transpose(e.view(made, front.shape), [back.index(k) for k in range(rank)])


def _chosen(e: Lines, found: LineValue, made: LineValue, own: LineValue) -> LineValue:
    is_found = e.map("greater {}", found, e.number(0, found.dtype), dtype="bool")
    return e.map("where {}", is_found, made, own)


def _brought(e: Lines, values: LineValue, places: LineValue, shape: Sequence[int]) -> LineValue:
    """Return zeros, with values added at places of the first dimension."""
    text = f"take_transpose %{values.name}, %{places.name} dim 0 to"
    return e.step(f"{text} {type_text(shape, values.dtype)}", shape, values.dtype)


def _part(
    e: Lines,
    node: ModelNode,
    x: LineValue,
    places: LineValue,
    updates: LineValue,
    d: Any,
    others: Sequence[int],
) -> LineValue:
    """Return a value with one part that begins at a place."""
    if math.prod(places.shape[:-1]) != 1 or d.operand_batching_dims or "mul" in node.op:
        raise NotHere("of parts at several places")
    named = _dims(d.scatter_dims_to_operand_dims)
    kept = dict(zip(others, (updates.shape[k] for k in _dims(d.update_window_dims)), strict=True))
    part = e.view(updates, [kept.get(k, 1) for k in range(len(x.shape))])
    flat = e.view(places, (len(named),))
    starts: list[Operand] = [0] * len(x.shape)
    for column, dim in enumerate(named):
        starts[dim] = e.view(e.cut(flat, 0, column, 1), ())
    if "add" not in node.op:
        return _dynamic_update(e, node, x, part, *starts)
    zeros = e.whole(e.number(0, x.dtype, x.shape))
    return e.map("add {}", x, _dynamic_update(e, node, zeros, part, *starts))


def _batched_scatter(
    e: Lines, x: LineValue, places: LineValue, updates: LineValue, d: Any, is_sum: bool
) -> LineValue:
    """Return elements that are brought to places of one dimension, in each part of a stack."""
    [dim] = _dims(d.scatter_dims_to_operand_dims)
    batch, stacked = _dims(d.operand_batching_dims), _dims(d.scatter_indices_batching_dims)
    windows = _dims(d.update_window_dims)
    rest = [k for k in range(len(x.shape)) if k != dim and k not in batch]
    free = [k for k in range(len(updates.shape)) if k not in windows]
    own = [k for k in range(len(places.shape) - 1) if k not in stacked]
    front, more = [x.shape[k] for k in batch], [x.shape[k] for k in rest]
    count = math.prod(places.shape[k] for k in own)
    at = e.transpose(e.whole(places), [*stacked, *own, len(places.shape) - 1])
    at = e.view(at, (*front, count, *(1 for _ in more)))
    at = e.whole(e.expand(at, (*front, count, *more)))
    order = [*(free[k] for k in stacked), *(free[k] for k in own), *windows]
    values = e.whole(e.view(e.transpose(e.whole(updates), order), at.shape))
    whole = (*front, x.shape[dim], *more)
    back = [*batch, dim, *rest]
    made = _along(e, values, at, len(front), whole)
    first = e.transpose(e.whole(x), back)
    if is_sum:
        made = e.map("add {}", first, made)
    else:
        ones = e.whole(e.number(1, "f32", at.shape))
        made = _chosen(e, _along(e, ones, at, len(front), whole), made, first)
    return e.transpose(made, [back.index(k) for k in range(len(back))])


def _along(e: Lines, values: LineValue, at: LineValue, dim: int, shape: Sequence[int]) -> LineValue:
    text = f"take_along_dim_transpose %{values.name}, %{at.name} dim {dim} to"
    return e.step(f"{text} {type_text(shape, values.dtype)}", shape, values.dtype)
