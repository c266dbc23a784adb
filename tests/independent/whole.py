"""Carry out each step on whole tensors, as on one device: most collectives do nothing."""

from typing import Any

import numpy as np

from .mesh import Mesh, Type
from .numerics import Array, local
from .rules import Case


class Whole:
    """Tensors that are not distributed."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh

    def row(self, value: Array, i: int) -> Array:
        """Return row ``i`` of dimension 0."""
        return value[i]

    def stack(self, rows: list[Array]) -> Array:
        """Return values along a new dimension 0."""
        return np.stack(rows)

    def step(self, c: Case, y: Type, values: list[Array]) -> Array:
        """Return the result of a step, whose type is ``y``."""
        op = c.step.op
        if op in ("part", "shift", "assemble", "terms"):
            return MOVING[op](self.mesh, c, *values)
        made = local(c, values, y.shape, [slice(0, n) for n in y.shape], 0)
        return values[0] if made is None else made


def coordinates(mesh: Mesh, c: Case, x: Array, dim: int) -> Array:
    """Return the tensor with a dimension cut in three: sub-axes in front, of the step, and rest."""
    before = mesh.count(c.x.shards[dim]) // mesh.count(c.axes)
    return x.reshape(*x.shape[:dim], before, mesh.count(c.axes), -1, *x.shape[dim + 1 :])


def part(mesh: Mesh, c: Case, x: Array) -> Array:
    dim = c.dim()
    blocks = pieces(mesh, c.x.shape[dim], c.x.shards[dim], c.axes, c.integer("at"))
    return np.concatenate([np.take(x, range(*block), dim) for block in blocks], dim)


def pieces(
    mesh: Mesh, size: int, subs: tuple[str, ...], axes: tuple[str, ...], at: int
) -> list[tuple[int, int]]:
    """Return where the blocks of a coordinate begin and end in a dimension, in order."""
    others, own = subs[: len(subs) - len(axes)], mesh.coordinates(axes, at)
    rows = [{**own, **mesh.coordinates(others, i)} for i in range(mesh.count(others))]
    return [mesh.block(size, subs, row) for row in rows]


def shift(mesh: Mesh, c: Case, x: Array) -> Array:
    n = len(c.axes)
    [dim] = [d for d, subs in enumerate(c.x.shards) if subs[len(subs) - n :] == c.axes]
    cut, by = coordinates(mesh, c, x, dim), c.integer("by")
    made = np.roll(cut, by, dim + 1)
    if "open" in c.step.clauses:
        made = made.copy()
        lost = slice(0, by) if by > 0 else slice(made.shape[dim + 1] + by, None)
        made[(slice(None),) * (dim + 1) + (lost,)] = 0
    return made.reshape(x.shape)


def assemble(mesh: Mesh, c: Case, *parts: Array) -> Array:
    dim, subs = c.dim(), c.x.shards[c.dim()] + c.axes
    size = sum(x.shape[dim] for x in parts)
    blocks: dict[int, Array] = {}
    for at, x in enumerate(parts):
        done = 0
        for low, high in pieces(mesh, size, subs, c.axes, at):
            blocks[low] = np.take(x, range(done, done + high - low), dim)
            done += high - low
    return np.concatenate([blocks[low] for low in sorted(blocks)], dim)


def terms(mesh: Mesh, c: Case, x: Array) -> Array:
    rest = x if c.x.reduction == "avg" else np.zeros_like(x)
    return np.stack([x, *[rest] * (mesh.count(c.axes) - 1)], c.integer("dim"))


MOVING: dict[str, Any] = {"part": part, "shift": shift, "assemble": assemble, "terms": terms}
"""The steps that do something on one device, too."""
