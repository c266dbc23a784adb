"""Meshes, layouts and the buffers of devices, by the language reference alone."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

DTYPES: dict[str, Any] = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "i8": np.int8,
    "i32": np.int32,
    "i64": np.int64,
    "bool": np.bool_,
}


@dataclass(frozen=True)
class Mesh:
    """A mesh.

    Attributes:
        axes: the sub-axes and their sizes, the most significant digit of a rank first.
        weights: the weights of some of them.
    """

    name: str
    text: str
    axes: dict[str, int]
    weights: dict[str, list[int]] = field(default_factory=dict)

    @property
    def devices(self) -> int:
        return math.prod(self.axes.values())

    def coordinates(self, rank: int) -> dict[str, int]:
        """Return the digits of a rank."""
        digits: dict[str, int] = {}
        for axis, size in reversed(self.axes.items()):
            rank, digits[axis] = divmod(rank, size)
        return digits

    def parts(self, axis: str) -> list[int]:
        """Return how many units each coordinate holds."""
        return self.weights.get(axis, [1] * self.axes[axis])


def _mesh(name: str, levels: str, axes: str, digits: dict[str, int], **weights: Any) -> Mesh:
    port = "{ port = 1 GB/s, latency = 1 us }"
    shown = " ".join(f"level {level} {port}" for level in levels.split())
    text = f"machine @c_{name} {{ {shown} }}\nmesh @{name} on @c_{name} {{ {axes} }}\n"
    return Mesh(name, text, digits, weights)


MESHES = [
    _mesh("one", "gpu[1]", "a = gpu:1", {"a": 1}),
    _mesh("two", "gpu[2]", "a = gpu:2", {"a": 2}),
    _mesh("pair", "gpu[4]", "a = gpu:2, b = gpu:2", {"a": 2, "b": 2}),
    _mesh("four", "gpu[4]", "a = gpu:4", {"a": 4}),
    _mesh("three", "gpu[3]", "a = gpu:3", {"a": 3}),
    _mesh("deep", "node[2] gpu[2]", "a = node:2 * gpu:2", {"a.node": 2, "a.gpu": 2}),
    _mesh("crossed", "node[2] gpu[2]", "a = gpu:2, b = node:2", {"b": 2, "a": 2}),
    _mesh("unlike", "gpu[2]", "a = gpu:2 weights [3, 1]", {"a": 2}, a=[3, 1]),
    _mesh("ragged", "gpu[4]", "a = gpu:2 weights [2, 1], b = gpu:2", {"a": 2, "b": 2}, a=[2, 1]),
]


@dataclass
class Layout:
    """The type of a value, in the words of the reference."""

    dtype: str
    shape: list[int]
    shards: list[tuple[str, ...]]
    partial: tuple[str, ...] = ()
    reduction: str = "sum"
    place: dict[str, int] = field(default_factory=dict)

    def text(self) -> str:
        dims = ", ".join(
            f"{size}@({', '.join(axes)})" if axes else str(size)
            for size, axes in zip(self.shape, self.shards, strict=True)
        )
        words = [f"{self.dtype}[{dims}]"]
        if self.partial:
            words.append(f"partial({self.reduction}: {', '.join(self.partial)})")
        if self.place:
            words.append(f"at({', '.join(f'{axis} = {n}' for axis, n in self.place.items())})")
        return " ".join(words)


def block(mesh: Mesh, layout: Layout, at: dict[str, int]) -> tuple[slice, ...]:
    """Return the part of the whole that a device holds."""
    slices: list[slice] = []
    for size, axes in zip(layout.shape, layout.shards, strict=True):
        begin, length = 0, size
        for axis in axes:
            parts = mesh.parts(axis)
            unit, rest = divmod(length, sum(parts))
            assert rest == 0
            begin, length = begin + unit * sum(parts[: at[axis]]), unit * parts[at[axis]]
        slices.append(slice(begin, begin + length))
    return tuple(slices)


REDUCE: dict[str, Callable[[NDArray[Any]], Any]] = {
    "sum": lambda xs: np.sum(xs, axis=0, dtype=xs.dtype),
    "avg": lambda xs: np.mean(xs, axis=0),
    "prod": lambda xs: np.prod(xs, axis=0, dtype=xs.dtype),
    "max": lambda xs: np.max(xs, axis=0),
    "min": lambda xs: np.min(xs, axis=0),
}


def wide(x: Any) -> Any:
    """Return floats in f64, and anything else as it is."""
    return x if x.dtype.kind in "ib" else x.astype(np.float64)


def distributed(mesh: Mesh, layout: Layout, draw: Any) -> tuple[Any, list[Any], float]:
    """Return a random whole (in f64 if it has floats), the buffers of the devices, and the largest
    magnitude of a part.

    Args:
        draw: a function that returns a random array of the whole shape and dtype.
    """
    coordinates = list(product(*(range(mesh.axes[axis]) for axis in layout.partial)))
    parts = [draw() for _ in coordinates]
    whole = (
        REDUCE[layout.reduction](np.stack([wide(x) for x in parts]))
        if layout.partial
        else wide(parts[0])
    )
    buffers: list[Any] = []
    for rank in range(mesh.devices):
        at = mesh.coordinates(rank)
        if any(at[axis] != n for axis, n in layout.place.items()):
            buffers.append(None)
            continue
        mine = parts[coordinates.index(tuple(at[axis] for axis in layout.partial))]
        buffers.append(np.array(mine[block(mesh, layout, at)]))
    large = [abs(wide(x)[np.isfinite(wide(x))]).max(initial=0) for x in parts]
    return whole, buffers, float(sum(large))


def joined(mesh: Mesh, layout: Layout, buffers: list[Any]) -> tuple[Any, str]:
    """Return the whole that buffers stand for, and what is wrong with them."""
    whole = np.zeros(layout.shape, np.float64 if layout.dtype[0] in "fb" else np.int64)
    seen: dict[Any, Any] = {}
    for rank, buffer in enumerate(buffers):
        at = mesh.coordinates(rank)
        if any(at[axis] != n for axis, n in layout.place.items()):
            if buffer is not None:
                return whole, f"rank {rank} holds data and is not at the place"
            continue
        where = block(mesh, layout, at)
        key = (tuple((s.start, s.stop) for s in where), tuple(at[axis] for axis in layout.partial))
        due = tuple(s.stop - s.start for s in where)
        if buffer is None or buffer.shape != due or buffer.dtype != DTYPES[layout.dtype]:
            got = None if buffer is None else (buffer.dtype, buffer.shape)
            return whole, f"rank {rank} holds {got}, not {layout.dtype}{due}"
        if key not in seen:
            seen[key] = wide(buffer)
            whole[where] += seen[key]
        elif not np.array_equal(seen[key], wide(buffer), equal_nan=buffer.dtype.kind not in "ib"):
            return whole, f"rank {rank} holds another copy"
    return whole, ""


def random_shards(
    rng: random.Random, mesh: Mesh, indices: list[str], blocked: set[str]
) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """Return the sub-axes over which indices are sharded, and the sub-axes that are left."""
    shards: dict[str, tuple[str, ...]] = {}
    left: list[str] = []
    free = [index for index in indices if index not in blocked and index != "1"]
    for axis in rng.sample(list(mesh.axes), len(mesh.axes)):
        if free and rng.random() < 0.65:
            index = rng.choice(free)
            shards[index] = (*shards.get(index, ()), axis)
        else:
            left.append(axis)
    return shards, left
