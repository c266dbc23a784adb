"""Collectives by their definition, on the buffers of all devices.

A value is a list with one entry per rank: an array, or None where the device holds nothing. Who
takes part follows from that alone: a group that holds nothing is left out, one that holds
something in part is an error.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collir.layout import DistType, Mesh, Reduction
from collir.semantics.reference.devices import block_of, coordinate, groups

Array = NDArray[Any]
Buffers = list[Array | None]


class ExecutionError(RuntimeError):
    """A step that cannot be carried out on the buffers as they are."""


def combine(parts: Sequence[Array], reduction: Reduction) -> Array:
    """The reduction of equally shaped arrays, in order, in their dtype."""
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
        # Not by the number in the dtype: bf16 has no 257.
        wide = np.float64 if total.dtype == np.float64 else np.float32
        total = (total.astype(wide) / wide(len(parts))).astype(total.dtype)
    return total


def _each_group(
    mesh: Mesh, xs: Buffers, axes: Sequence[str], step: Callable[[list[Array]], list[Array | None]]
) -> Buffers:
    """``step`` maps the buffers of a group to its new ones, for every group that holds any."""
    out: Buffers = [None] * len(xs)
    for group in groups(mesh, axes):
        held = [xs[rank] for rank in group]
        parts = [part for part in held if part is not None]
        if not parts:
            continue
        if len(parts) < len(held):
            raise ExecutionError(f"only some of the ranks {group} hold data")
        for rank, new in zip(group, step(parts), strict=True):
            out[rank] = new
    return out


def _from_root(
    mesh: Mesh, xs: Buffers, axes: Sequence[str], step: Callable[[Array, int], list[Array | None]]
) -> Buffers:
    """``step`` maps the buffer of a group's first rank and the group's size to the new buffers."""
    out: Buffers = [None] * len(xs)
    for group in groups(mesh, axes):
        if any(xs[rank] is not None for rank in group[1:]):
            raise ExecutionError(f"ranks {group[1:]} are not roots, but hold data")
        root = xs[group[0]]
        if root is not None:
            for rank, new in zip(group, step(root, len(group)), strict=True):
                out[rank] = new
    return out


def all_reduce(mesh: Mesh, xs: Buffers, axes: Sequence[str], reduction: Reduction) -> Buffers:
    """Everybody gets the reduction."""
    return _each_group(mesh, xs, axes, lambda parts: [combine(parts, reduction)] * len(parts))


def reduce(mesh: Mesh, xs: Buffers, axes: Sequence[str], reduction: Reduction) -> Buffers:
    """The first of the group gets the reduction, the others are left with nothing."""
    return _each_group(
        mesh, xs, axes, lambda parts: [combine(parts, reduction)] + [None] * (len(parts) - 1)
    )


def reduce_scatter(
    mesh: Mesh, xs: Buffers, axes: Sequence[str], dim: int, reduction: Reduction
) -> Buffers:
    """The i-th of the group gets the i-th block of the reduction."""
    return _each_group(
        mesh, xs, axes, lambda parts: blocks(combine(parts, reduction), len(parts), dim)
    )


def all_gather(mesh: Mesh, xs: Buffers, axes: Sequence[str], dim: int) -> Buffers:
    """Everybody gets the concatenation of all buffers, in the order of the group."""
    return _each_group(mesh, xs, axes, lambda parts: [np.concatenate(parts, axis=dim)] * len(parts))


def gather(mesh: Mesh, xs: Buffers, axes: Sequence[str], dim: int) -> Buffers:
    """The first of the group gets the concatenation of all buffers."""
    return _each_group(
        mesh,
        xs,
        axes,
        lambda parts: [np.concatenate(parts, axis=dim), *([None] * (len(parts) - 1))],
    )


def broadcast(mesh: Mesh, xs: Buffers, axes: Sequence[str]) -> Buffers:
    """Everybody gets what the first of the group holds."""
    return _from_root(mesh, xs, axes, lambda root, size: [root] * size)


def scatter(mesh: Mesh, xs: Buffers, axes: Sequence[str], dim: int) -> Buffers:
    """The i-th of the group gets the i-th block of what the first one holds."""
    return _from_root(mesh, xs, axes, lambda root, size: blocks(root, size, dim))


def all_to_all(mesh: Mesh, xs: Buffers, axes: Sequence[str], source: int, target: int) -> Buffers:
    """The i-th of the group gets the i-th block along ``target`` of everybody, concatenated along
    ``source``."""

    def step(parts: list[Array]) -> list[Array | None]:
        cut = [np.split(part, len(parts), axis=target) for part in parts]
        return [
            np.concatenate([pieces[i] for pieces in cut], axis=source) for i in range(len(parts))
        ]

    return _each_group(mesh, xs, axes, step)


def permute(mesh: Mesh, xs: Buffers, source: DistType, target: DistType) -> Buffers:
    """Every device gets the block that ``target`` wants there, from one that holds it.

    Nothing crosses the sub-axes on which the value is partial or at root.
    """
    fixed = sorted(source.partial | source.root)

    def key(rank: int, x: DistType) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return block_of(mesh, rank, x.dims), tuple(coordinate(mesh, rank, a) for a in fixed)

    holders = {key(rank, source): rank for rank in reversed(range(mesh.devices))}
    return [xs[holders[key(rank, target)]] for rank in range(mesh.devices)]


def redistribute(mesh: Mesh, xs: Buffers, source: DistType, target: DistType) -> Buffers:
    """Every device gets what ``target`` wants there, out of the whole tensor put together.

    Where both are partial there is a tensor for every coordinate.
    """
    kept = mesh.ordered(source.partial & target.partial)
    reduced = mesh.ordered(source.partial - target.partial)
    wholes: dict[int, Array] = {}
    for parts in groups(mesh, [axis for axis in mesh.by_name if axis not in kept]):
        held = [rank for rank in parts if xs[rank] is not None]
        terms: dict[tuple[int, ...], dict[tuple[int, ...], Array]] = {}
        for rank in held:
            block = block_of(mesh, rank, source.dims)
            term = tuple(coordinate(mesh, rank, axis) for axis in reduced)
            x = xs[rank]
            if x is not None:
                terms.setdefault(block, {}).setdefault(term, x)
        if not terms:
            continue
        first = next(iter(next(iter(terms.values())).values()))
        whole = np.zeros_like(first, shape=source.shape)
        for block, found in terms.items():
            listed = [found[term] for term in sorted(found)]
            one = combine(listed, source.reduction) if source.reduction and reduced else listed[0]
            whole[_window(block, one.shape)] = one
        wholes |= dict.fromkeys(parts, whole)
    out: Buffers = [None] * len(xs)
    for rank, whole in wholes.items():
        if any(coordinate(mesh, rank, axis) for axis in target.root):
            continue
        shape = target.local_shape(mesh)
        out[rank] = whole[_window(block_of(mesh, rank, target.dims), shape)].copy()
    new = mesh.ordered(target.partial - source.partial)
    return mask(mesh, out, new, target.reduction) if new and target.reduction else out


def _window(block: Sequence[int], shape: Sequence[int]) -> tuple[slice, ...]:
    """Where a block of a shape lies."""
    each = zip(block, shape, strict=True)
    return tuple(slice(index * size, (index + 1) * size) for index, size in each)


def slice_blocks(mesh: Mesh, xs: Buffers, axes: Sequence[str], dim: int) -> Buffers:
    """Every device keeps the block of its index in the group."""
    out: Buffers = [None] * len(xs)
    for group in groups(mesh, axes):
        for index, rank in enumerate(group):
            x = xs[rank]
            out[rank] = None if x is None else blocks(x, len(group), dim)[index]
    return out


def keep_root(mesh: Mesh, xs: Buffers, axes: Sequence[str]) -> Buffers:
    """All but the first of the group drop their buffer."""
    roots = {group[0] for group in groups(mesh, axes)}
    return [x if rank in roots else None for rank, x in enumerate(xs)]


def mask(mesh: Mesh, xs: Buffers, axes: Sequence[str], reduction: Reduction) -> Buffers:
    """All but the first of the group take the identity of the reduction."""
    fill = np.zeros_like if reduction is Reduction.SUM else np.ones_like
    roots = {group[0] for group in groups(mesh, axes)}
    return [x if x is None or rank in roots else fill(x) for rank, x in enumerate(xs)]


def blocks(x: Array, count: int, dim: int) -> list[Array | None]:
    """Equal blocks of an array along a dimension.

    Raises:
        ExecutionError: the dimension does not divide.
    """
    if x.shape[dim] % count:
        raise ExecutionError(f"{x.shape[dim]} does not divide into {count} blocks")
    return list(np.split(x, count, axis=dim))
