"""Collectives by their definition, on the buffers of all devices.

A value is a list with one entry per rank: an array, or None if the device holds nothing. A group in
which no device holds data does not take part. A group in which only some devices do is an error.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collir.layout import Dim, DistType, Mesh, Reduction
from collir.semantics.reference.devices import (
    block_of,
    coordinate,
    groups,
    index_in,
    interval,
    slices_of,
)

Array = NDArray[Any]
Buffers = list[Array | None]


class ExecutionError(RuntimeError):
    """A step that cannot be carried out on the buffers of its operands."""


def combine(parts: Sequence[Array], reduction: Reduction) -> Array:
    """Return the reduction of equally shaped arrays, in order, in their dtype."""
    total = parts[0]
    for part in parts[1:]:
        match reduction:
            case Reduction.SUM | Reduction.AVG:
                total = total + part
            case Reduction.PROD:
                total = total * part
            case Reduction.MAX:
                total = np.maximum(total, part)
            case Reduction.MIN:
                total = np.minimum(total, part)
    if reduction is Reduction.AVG:
        # Divide in a wider dtype: bf16 cannot hold the number 257.
        wide = np.float64 if total.dtype == np.float64 else np.float32
        total = (total.astype(wide) / wide(len(parts))).astype(total.dtype)
    return total


def _each_group(
    mesh: Mesh,
    xs: Buffers,
    axes: Sequence[str],
    step: Callable[[list[Array], list[int]], list[Array | None]],
) -> Buffers:
    """Apply ``step`` to every group with data: it maps the buffers of ranks to new ones."""
    out: Buffers = [None] * len(xs)
    for group in groups(mesh, axes):
        held = [xs[rank] for rank in group]
        parts = [part for part in held if part is not None]
        if not parts:
            continue
        if len(parts) < len(held):
            raise ExecutionError(f"only some of the ranks {group} hold data")
        for rank, new in zip(group, step(parts, group), strict=True):
            out[rank] = new
    return out


def _from_root(
    mesh: Mesh,
    xs: Buffers,
    axes: Sequence[str],
    root: int,
    step: Callable[[Array, list[int]], list[Array | None]],
) -> Buffers:
    """Apply ``step`` to every group: it maps the root's buffer to those of ranks."""
    out: Buffers = [None] * len(xs)
    for group in groups(mesh, axes):
        others = [rank for index, rank in enumerate(group) if index != root]
        if any(xs[rank] is not None for rank in others):
            raise ExecutionError(f"ranks {others} are not roots, but hold data")
        buffer = xs[group[root]]
        if buffer is not None:
            for rank, new in zip(group, step(buffer, group), strict=True):
                out[rank] = new
    return out


def all_reduce(mesh: Mesh, xs: Buffers, axes: Sequence[str], reduction: Reduction) -> Buffers:
    """Return the reduction on every device of the group."""
    return _each_group(mesh, xs, axes, lambda parts, _: [combine(parts, reduction)] * len(parts))


def reduce(mesh: Mesh, xs: Buffers, axes: Sequence[str], reduction: Reduction) -> Buffers:
    """Return the reduction on the first device of the group, and nothing on the others."""
    return _each_group(
        mesh, xs, axes, lambda parts, _: [combine(parts, reduction)] + [None] * (len(parts) - 1)
    )


def reduce_scatter(
    mesh: Mesh,
    xs: Buffers,
    axes: Sequence[str],
    dim: int,
    reduction: Reduction,
    held: Sequence[str] = (),
) -> Buffers:
    """Return the i-th block of the reduction on the i-th device of the group.

    Args:
        held: the sub-axes that cut the dimension before.
    """

    def step(parts: list[Array], group: list[int]) -> list[Array | None]:
        return blocks(combine(parts, reduction), len(parts), dim, _cuts(mesh, group, held, axes))

    return _each_group(mesh, xs, axes, step)


def all_gather(mesh: Mesh, xs: Buffers, axes: Sequence[str], dim: int) -> Buffers:
    """Return the concatenation of all buffers, in the order of the group, on every device."""
    return _each_group(
        mesh, xs, axes, lambda parts, _: [np.concatenate(parts, axis=dim)] * len(parts)
    )


def gather(mesh: Mesh, xs: Buffers, axes: Sequence[str], dim: int) -> Buffers:
    """Return the concatenation of all buffers on the first device of the group."""
    return _each_group(
        mesh,
        xs,
        axes,
        lambda parts, _: [np.concatenate(parts, axis=dim), *([None] * (len(parts) - 1))],
    )


def broadcast(mesh: Mesh, xs: Buffers, axes: Sequence[str], root: int = 0) -> Buffers:
    """Return the buffer of the device of number ``root`` of the group on every device."""
    return _from_root(mesh, xs, axes, root, lambda x, group: [x] * len(group))


def scatter(
    mesh: Mesh,
    xs: Buffers,
    axes: Sequence[str],
    dim: int,
    root: int = 0,
    held: Sequence[str] = (),
) -> Buffers:
    """Return the i-th block of the buffer of device ``root`` on the i-th device of the group."""

    def step(x: Array, group: list[int]) -> list[Array | None]:
        return blocks(x, len(group), dim, _cuts(mesh, group, held, axes))

    return _from_root(mesh, xs, axes, root, step)


def all_to_all(
    mesh: Mesh,
    xs: Buffers,
    axes: Sequence[str],
    source: int,
    target: int,
    held: Sequence[str] = (),
) -> Buffers:
    """Return, on the i-th device of the group, the i-th blocks along ``target`` of all devices,
    concatenated along ``source``."""

    def step(parts: list[Array], group: list[int]) -> list[Array | None]:
        at = _cuts(mesh, group, held, axes)
        cut = [blocks(part, len(parts), target, at) for part in parts]
        return [
            np.concatenate([piece for pieces in cut if (piece := pieces[i]) is not None], source)
            for i in range(len(parts))
        ]

    return _each_group(mesh, xs, axes, step)


def send(mesh: Mesh, xs: Buffers, axes: Sequence[str], sender: int, receiver: int) -> Buffers:
    """Return the buffer of device ``sender`` of each group on device ``receiver`` only."""

    def step(x: Array, group: list[int]) -> list[Array | None]:
        return [x if index == receiver else None for index in range(len(group))]

    return _from_root(mesh, xs, axes, sender, step)


def shift(mesh: Mesh, xs: Buffers, axes: Sequence[str], distance: int, is_open: bool) -> Buffers:
    """Return on the i-th device of each group the buffer of device ``i - distance``.

    Devices are counted along a ring, or along a line that begins with zeros.
    """

    def step(parts: list[Array], group: list[int]) -> list[Array | None]:
        count, moved = len(parts), list[Array | None]()
        for index in range(count):
            source = index - distance
            lost = is_open and not 0 <= source < count
            moved.append(np.zeros_like(parts[index]) if lost else parts[source % count].copy())
        return moved

    return _each_group(mesh, xs, axes, step)


def permute(mesh: Mesh, xs: Buffers, source: DistType, target: DistType) -> Buffers:
    """Return the block that ``target`` assigns to each device, copied from a device that holds it.

    Data does not cross sub-axes on which the value is partial or held at one coordinate.
    """
    fixed = sorted(source.partial | source.placed)

    def key(rank: int, x: DistType) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return block_of(mesh, rank, x.dims), tuple(coordinate(mesh, rank, a) for a in fixed)

    holders = {key(rank, source): rank for rank in reversed(range(mesh.devices))}
    return [xs[holders[key(rank, target)]] for rank in range(mesh.devices)]


def redistribute(mesh: Mesh, xs: Buffers, source: DistType, target: DistType) -> Buffers:
    """Return the block that ``target`` assigns to each device, cut from the assembled tensor.

    Sub-axes on which both types are partial have a tensor for every coordinate.
    """
    kept = mesh.ordered(source.partial & target.partial)
    tensors: dict[int, Array] = {}
    for ranks in groups(mesh, [axis for axis in mesh.by_name if axis not in kept]):
        tensor = _assembled(mesh, xs, source, ranks, mesh.ordered(source.partial - target.partial))
        if tensor is not None:
            tensors |= dict.fromkeys(ranks, tensor)
    out: Buffers = [None] * len(xs)
    for rank, tensor in tensors.items():
        if any(coordinate(mesh, rank, axis) != at for axis, at in target.place):
            continue
        out[rank] = tensor[slices_of(mesh, rank, target.dims)].copy()
    new = mesh.ordered(target.partial - source.partial)
    return mask(mesh, out, new, target.reduction) if new and target.reduction else out


def _assembled(
    mesh: Mesh, xs: Buffers, source: DistType, ranks: Sequence[int], reduced: Sequence[str]
) -> Array | None:
    """Return the tensor that the buffers of ranks stand for, reduced over sub-axes; None if the
    ranks hold nothing."""
    blocks_of: dict[tuple[int, ...], dict[tuple[int, ...], Array]] = {}
    places: dict[tuple[int, ...], tuple[slice, ...]] = {}
    for rank in ranks:
        x = xs[rank]
        if x is not None:
            block = block_of(mesh, rank, source.dims)
            places[block] = slices_of(mesh, rank, source.dims)
            part = tuple(coordinate(mesh, rank, axis) for axis in reduced)
            blocks_of.setdefault(block, {}).setdefault(part, x)
    if not blocks_of:
        return None
    first = next(iter(next(iter(blocks_of.values())).values()))
    tensor = np.zeros_like(first, shape=source.shape)
    for block, parts in blocks_of.items():
        ordered = [parts[part] for part in sorted(parts)]
        total = combine(ordered, source.reduction) if source.reduction and reduced else ordered[0]
        tensor[places[block]] = total
    return tensor


def slice_blocks(
    mesh: Mesh, xs: Buffers, axes: Sequence[str], dim: int, held: Sequence[str] = ()
) -> Buffers:
    """Return, on every device, the block of its own buffer with its index in the group."""
    out: Buffers = [None] * len(xs)
    for group in groups(mesh, axes):
        cut = _cuts(mesh, group, held, axes)
        for index, rank in enumerate(group):
            x = xs[rank]
            out[rank] = None if x is None else blocks(x, len(group), dim, cut)[index]
    return out


def keep_root(mesh: Mesh, xs: Buffers, axes: Sequence[str]) -> Buffers:
    """Return the buffers of the first devices of all groups, and nothing elsewhere."""
    roots = {group[0] for group in groups(mesh, axes)}
    return [x if rank in roots else None for rank, x in enumerate(xs)]


def keep(mesh: Mesh, xs: Buffers, at: Mapping[str, int]) -> Buffers:
    """Return the buffers of the devices with these coordinates, and nothing elsewhere."""
    return [
        x if all(coordinate(mesh, rank, axis) == n for axis, n in at.items()) else None
        for rank, x in enumerate(xs)
    ]


def assemble(mesh: Mesh, operands: Sequence[Buffers], axes: Sequence[str]) -> Buffers:
    """Return on the i-th device of each group its buffer of the i-th operand."""
    out: Buffers = []
    for rank in range(mesh.devices):
        own = index_in(mesh, rank, axes)
        for index, xs in enumerate(operands):
            if index != own and xs[rank] is not None:
                raise ExecutionError(f"rank {rank} holds piece {index}, not only piece {own}")
        out.append(operands[own][rank])
    return out


def mask(mesh: Mesh, xs: Buffers, axes: Sequence[str], reduction: Reduction) -> Buffers:
    """Return the identity of the reduction on all but the first device of each group."""
    fill = np.zeros_like if reduction is Reduction.SUM else np.ones_like
    roots = {group[0] for group in groups(mesh, axes)}
    return [x if x is None or rank in roots else fill(x) for rank, x in enumerate(xs)]


def _cuts(
    mesh: Mesh, group: Sequence[int], held: Sequence[str], axes: Sequence[str]
) -> list[int] | None:
    """Return where the blocks of a group end, in units of which the last end is a whole number;
    None if they are equal.

    Args:
        held: the sub-axes that cut the dimension before.
        axes: the sub-axes of the group.
    """
    weighted = [axis for axis in mesh.axes if axis.weights]
    if not any(mesh.by_name[name].axis == axis.name for name in axes for axis in weighted):
        return None
    size = math.prod(sum(axis.weights or ()) for axis in weighted) * mesh.devices
    ends = [interval(mesh, rank, Dim(size, (*held, *axes)))[1] for rank in group]
    begin = interval(mesh, group[0], Dim(size, (*held, *axes)))[0]
    return [end - begin for end in ends]


def blocks(x: Array, count: int, dim: int, ends: Sequence[int] | None = None) -> list[Array | None]:
    """Return the blocks of an array along a dimension.

    Args:
        ends: where the blocks end, in units of which the last end is a whole number; None if the
            blocks are equal.

    Raises:
        ExecutionError: the dimension does not divide.
    """
    size = x.shape[dim]
    ends = range(1, count + 1) if ends is None else ends
    if any(size * end % ends[-1] for end in ends):
        raise ExecutionError(f"{size} does not divide into {count} blocks")
    return list(np.split(x, [size * end // ends[-1] for end in ends[:-1]], axis=dim))
