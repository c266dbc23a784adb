"""The meaning of operations that look through windows, in numpy, position by position."""

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from collir.dialects.operation import DistOp
from collir.semantics.reference.arrays import Function, as_wide, distinct
from collir.semantics.reference.collectives import Array


def _windows(
    op: DistOp, x: Any, window: Sequence[int], outside: float
) -> list[tuple[tuple[int, ...], Any]]:
    """Return for each position in a window the elements there, of all windows."""
    stride, padding = op.sizes("stride"), op.sizes("padding")
    amounts = [(0, 0), *((p, p) for p in padding), (0, 0)]
    padded: Any = np.pad(x, amounts, constant_values=outside) if any(padding) else x
    cuts = _cuts(window, stride, padded.shape)
    return [(offset, padded[cut]) for offset, cut in cuts]


def _cuts(
    window: Sequence[int], stride: Sequence[int], padded: Sequence[int]
) -> list[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """Return for each position in a window the slices of an array with the elements there."""
    cuts: list[tuple[tuple[int, ...], tuple[slice, ...]]] = []
    for offset in np.ndindex(*window):
        cut = (
            slice(at, padded[d] - width + at + 1, step)
            for d, (at, width, step) in enumerate(zip(offset, window, stride, strict=True), 1)
        )
        cuts.append((offset, (slice(None), *cut)))
    return cuts


def _added_to_windows(
    op: DistOp,
    g: Any,
    window: Sequence[int],
    shape: Sequence[int],
    term: Callable[[tuple[int, ...]], Any],
) -> Any:
    """Return zeros of a shape with terms added, one for each position in a window.

    Args:
        term: a function of the position to what is added to the elements there, of all windows.
    """
    padding = op.sizes("padding")
    sizes = [n + 2 * p for n, p in zip(shape[1:-1], padding, strict=True)]
    total: Any = np.zeros((shape[0], *sizes, shape[-1]), g.dtype)
    for offset, cut in _cuts(window, op.sizes("stride"), total.shape):
        total[cut] = total[cut] + term(offset)
    inner = (slice(p, p + n) for p, n in zip(padding, shape[1:-1], strict=True))
    return total[(slice(None), *inner)]


def _conv(op: DistOp, arrays: Sequence[Array]) -> Array:
    x: Any
    w: Any
    x, w = map(as_wide, arrays)
    spatial = [f"s{d}" for d in range(x.ndim - 2)]
    indices = [["n", *spatial, "c"], ["c", "f"]]
    total: Any = None
    for offset, part in _windows(op, x, w.shape[:-2], 0):
        term = _product(indices, ["n", *spatial, "f"], [part, w[offset]])
        total = term if total is None else total + term
    return total.astype(arrays[0].dtype)


def _product(indices: list[list[str]], result: list[str], arrays: Sequence[Any]) -> Any:
    """Return a sum of products of two arrays."""
    number = {index: n for n, index in enumerate(distinct(indices))}
    pairs: list[Any] = []
    for part, array in zip(indices, arrays, strict=True):
        pairs += [array, [number[index] for index in part]]
    return np.einsum(*pairs, [number[index] for index in result])


def _conv_transpose(op: DistOp, arrays: Sequence[Array]) -> Array:
    g: Any
    w: Any
    g, w = map(as_wide, arrays)
    shape, spatial = op.layout("to").shape, [f"s{d}" for d in range(g.ndim - 2)]
    indices, result = [["n", *spatial, "f"], ["c", "f"]], ["n", *spatial, "c"]
    total = _added_to_windows(
        op,
        g,
        w.shape[:-2],
        (g.shape[0], *shape[1:-1], w.shape[-2]),
        lambda offset: _product(indices, result, [g, w[offset]]),
    )
    return total.astype(arrays[0].dtype)


def _conv_filter(op: DistOp, arrays: Sequence[Array]) -> Array:
    x: Any
    g: Any
    x, g = map(as_wide, arrays)
    window, spatial = op.layout("to").shape[:-2], [f"s{d}" for d in range(x.ndim - 2)]
    indices = [["n", *spatial, "c"], ["n", *spatial, "f"]]
    rows = [_product(indices, ["c", "f"], [part, g]) for _, part in _windows(op, x, window, 0)]
    stacked: Any = np.concatenate([row.reshape((1, *row.shape)) for row in rows])
    return stacked.reshape((*window, x.shape[-1], g.shape[-1])).astype(arrays[0].dtype)


def _first_largest(parts: dict[tuple[int, ...], Any]) -> dict[tuple[int, ...], Any]:
    """Return for each position in a window where its element is the first of the largest."""
    largest: Any = reduce(np.maximum, parts.values())
    taken: Any = np.zeros(largest.shape, bool)
    first: dict[tuple[int, ...], Any] = {}
    for offset, part in parts.items():
        first[offset] = (part == largest) & ~taken
        taken = taken | first[offset]
    return first


def _max_pool_transpose(op: DistOp, arrays: Sequence[Array]) -> Array:
    g: Any
    x: Any
    g, x = arrays
    parts = dict(_windows(op, x, op.sizes("window"), _lowest(x.dtype)))
    first = _first_largest(parts)
    wide: Any = as_wide(g)

    def term(offset: tuple[int, ...]) -> Any:
        chosen: Any = np.where(first[offset], wide, 0)  # infinity times 0 is not 0
        return chosen.astype(wide.dtype)

    total: Any = _added_to_windows(op, wide, op.sizes("window"), x.shape, term)
    return total.astype(g.dtype)


def _avg_pool_transpose(op: DistOp, arrays: Sequence[Array]) -> Array:
    g, window, to = as_wide(arrays[0]), op.sizes("window"), op.layout("to").shape
    part = g / g.dtype.type(math.prod(window))
    shape = (g.shape[0], *to[1:-1], g.shape[-1])
    total = _added_to_windows(op, g, window, shape, lambda offset: part)
    return total.astype(arrays[0].dtype)


def _lowest(dtype: Any) -> float:
    return np.iinfo(dtype).min if np.dtype(dtype).kind == "i" else -np.inf


def _max_pool(op: DistOp, arrays: Sequence[Array]) -> Array:
    (x,) = arrays
    parts = [part for _, part in _windows(op, x, op.sizes("window"), _lowest(x.dtype))]
    return reduce(np.maximum, parts)


def _avg_pool(op: DistOp, arrays: Sequence[Array]) -> Array:
    x, window = as_wide(arrays[0]), op.sizes("window")
    total: Any = reduce(np.add, (part for _, part in _windows(op, x, window, 0)))
    return (total / total.dtype.type(math.prod(window))).astype(arrays[0].dtype)


WINDOWS: dict[str, Function] = {
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "conv_filter": _conv_filter,
    "max_pool": _max_pool,
    "max_pool_transpose": _max_pool_transpose,
    "avg_pool_transpose": _avg_pool_transpose,
    "avg_pool": _avg_pool,
}
"""The functions, by the names of the operations."""
