"""The meaning of the operations of models on plain arrays, in numpy.

They are written from the definitions, without index structures: these are what runs on devices
check. Intervals go through numpy's functions as arrays do.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collir.dialects.operation import DistOp
from collir.semantics.reference.buffers import NUMPY
from collir.semantics.reference.collectives import Array
from collir.semantics.reference.intervals import Intervals

Function = Callable[[DistOp, Sequence[Array]], Array]
"""A function of a step and the arrays of its operands."""


def _einsum(op: DistOp, arrays: Sequence[Array]) -> Array:
    """Return the sum of products, in float32 for shorter types."""
    left, right = op.word("equation").split("->")
    indices = [part.split() for part in left.split(",")]
    if any(isinstance(array, Intervals) for array in arrays):
        return _by_terms(indices, right.split(), arrays)
    number = {index: n for n, index in enumerate(_distinct(indices))}
    dtype = arrays[0].dtype
    wide = np.float32 if dtype.itemsize < 4 and dtype.kind != "i" else dtype
    pairs: list[Any] = []
    for part, array in zip(indices, arrays, strict=True):
        pairs += [array.astype(wide), [number[index] for index in part]]
    out: Any = np.einsum(*pairs, [number[index] for index in right.split()], optimize="greedy")
    return np.asarray(out).astype(dtype)


def _distinct(indices: Sequence[Sequence[str]]) -> list[str]:
    """Return the indices of all operands, each once."""
    return list(dict.fromkeys(index for part in indices for index in part))


def _by_terms(indices: list[list[str]], result: list[str], arrays: Sequence[Array]) -> Any:
    """Return the sum of products term by term, by numpy's multiply and add alone."""
    every = _distinct([result, *indices])
    product: Any = None
    for over, array in zip(indices, arrays, strict=True):
        order = sorted(range(len(over)), key=lambda n, over=over: every.index(over[n]))
        moved: Any = np.transpose(array, order)
        sizes = dict(zip(sorted(over, key=every.index), moved.shape, strict=True))
        aligned = moved.reshape(tuple(sizes.get(index, 1) for index in every))
        product = aligned if product is None else product * aligned
    return _folded(np.add, product, range(len(result), len(every)))


def _folded(function: Callable[..., Any], x: Any, dims: Sequence[int], keep: bool = False) -> Any:
    """Return the elements over dimensions, combined one by one by a function of two."""
    for dim in sorted(dims, reverse=True):
        before = (slice(None),) * dim
        folded = reduce(function, (x[(*before, n)] for n in range(x.shape[dim])))
        shape = folded.shape
        x = folded.reshape((*shape[:dim], 1, *shape[dim:])) if keep else folded
    return x


def _sum(op: DistOp, arrays: Sequence[Array]) -> Array:
    (x,), keep = arrays, "keepdims" in op.properties
    if isinstance(x, Intervals):
        return _folded(np.add, x, op.sizes("dims"), keep)
    return np.asarray(np.sum(x, axis=op.sizes("dims"), keepdims=keep, dtype=x.dtype))


def _extreme(function: Callable[..., Any], op: DistOp, arrays: Sequence[Array]) -> Array:
    """Return the extreme element over dimensions, by a function of two elements."""
    return _folded(function, arrays[0], op.sizes("dims"), "keepdims" in op.properties)


def _map(function: Callable[..., Any]) -> Function:
    """Return an elementwise operation as numpy's function, computed in float32 at least."""

    def run(op: DistOp, arrays: Sequence[Array]) -> Array:
        dtype = arrays[0].dtype
        plain = not isinstance(arrays[0], Intervals)
        widened = plain and dtype.itemsize <= 2 and dtype.kind != "i"
        with np.errstate(all="ignore"):
            out = function(*(x.astype(np.float32) if widened else x for x in arrays))
        return out if out.dtype.kind == "b" else out.astype(dtype)

    return run


def _rsqrt(x: Any) -> Any:
    return 1 / np.sqrt(x)


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _silu(x: Any) -> Any:
    return x / (1 + np.exp(-x))


def _gelu(x: Any) -> Any:
    """Return the approximation by Hendrycks and Gimpel (arXiv 1606.08415), as in GPT-2."""
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def _where(op: DistOp, arrays: Sequence[Array]) -> Array:
    condition, x, y = arrays
    if not any(isinstance(array, Intervals) for array in arrays):
        return np.where(condition, x, y)
    truth, one, other = (_as_intervals(array) for array in arrays)
    lows, highs = (one.low, other.low), (one.high, other.high)
    low = np.where(truth.low > 0, lows[0], np.where(truth.high <= 0, lows[1], np.minimum(*lows)))
    high = np.where(
        truth.low > 0, highs[0], np.where(truth.high <= 0, highs[1], np.maximum(*highs))
    )
    chosen: Any = Intervals(low, high, one.dtype)
    return chosen


def _as_intervals(array: Any) -> Intervals:
    return array if isinstance(array, Intervals) else Intervals.of(array)


def _normalised(
    function: Callable[[Any], Any] | None, op: DistOp, arrays: Sequence[Array]
) -> Array:
    """Return the softmax over dimensions, or without a function its logarithm."""
    (x,) = arrays
    dims = op.sizes("dims")
    if isinstance(x, Intervals):
        terms: Any = np.exp(x)
        total = _folded(np.add, terms, dims, keep=True)
        return terms / total if function else x - np.log(total)
    wide: Any = x.astype(np.float32) if x.dtype.itemsize < 4 else x
    with np.errstate(all="ignore"):
        shifted = wide - np.max(wide, axis=dims, keepdims=True)
        logarithm = shifted - np.log(np.sum(np.exp(shifted), axis=dims, keepdims=True))
        return np.asarray(function(logarithm) if function else logarithm).astype(x.dtype)


def _relu(x: Any) -> Any:
    return np.maximum(x, 0)


def _constant(op: DistOp, arrays: Sequence[Array]) -> Array:
    to = op.layout("to")
    return np.full(to.shape, op.number("value"), NUMPY[to.dtype])


def _iota(op: DistOp, arrays: Sequence[Array]) -> Array:
    to, dim = op.layout("to"), op.integer("dim")
    return np.indices(to.shape)[dim].astype(NUMPY[to.dtype])


def broadcast(x: Array, shape: Sequence[int]) -> Array:
    """Return an array repeated along new dimensions in front and along those of size 1."""
    for dim in range(len(shape)):
        if dim < len(shape) - x.ndim:
            x = x.reshape((*(1,) * (len(shape) - x.ndim), *x.shape))
        if x.shape[dim] != shape[dim]:
            x = np.concatenate([x] * shape[dim], axis=dim)
    return x.copy()


def _broadcast_to(op: DistOp, arrays: Sequence[Array]) -> Array:
    return broadcast(arrays[0], op.layout("to").shape)


# --- means and normalisations -------------------------------------------------------------------


def _wide(x: Any) -> Any:
    """Return an array in which sums of short floats are computed."""
    return x.astype(np.float32) if x.dtype.kind != "i" and x.dtype.itemsize < 4 else x


def _mean_over(x: Any, dims: Sequence[int], keep: bool = True) -> Any:
    total = _folded(np.add, x, dims, keep)
    return total / total.dtype.type(math.prod(x.shape[dim] for dim in dims))


def _mean(op: DistOp, arrays: Sequence[Array]) -> Array:
    (x,) = arrays
    mean = _mean_over(_wide(x), op.sizes("dims"), "keepdims" in op.properties)
    return mean.astype(x.dtype)


def _scaled_by(op: DistOp, x: Any, squares: Any, *others: Array) -> Array:
    """Return an array over the root of its mean square, times a gain, plus a bias if there is
    one."""
    dims = op.sizes("dims")
    order = sorted(range(len(dims)), key=dims.__getitem__)
    aligned = [
        np.transpose(other, order).reshape(
            tuple(size if dim in dims else 1 for dim, size in enumerate(x.shape))
        )
        for other in map(_wide, others)
    ]
    y: Any = x / np.sqrt(squares + squares.dtype.type(op.number("eps"))) * aligned[0]
    return y + aligned[1] if len(aligned) > 1 else y


def _layer_norm(op: DistOp, arrays: Sequence[Array]) -> Array:
    x = _wide(arrays[0])
    centred = x - _mean_over(x, op.sizes("dims"))
    squares = _mean_over(centred * centred, op.sizes("dims"))
    return _scaled_by(op, centred, squares, *arrays[1:]).astype(arrays[0].dtype)


def _rms_norm(op: DistOp, arrays: Sequence[Array]) -> Array:
    x = _wide(arrays[0])
    squares = _mean_over(x * x, op.sizes("dims"))
    return _scaled_by(op, x, squares, *arrays[1:]).astype(arrays[0].dtype)


def _cumsum(op: DistOp, arrays: Sequence[Array]) -> Array:
    x, before = _wide(arrays[0]), (slice(None),) * op.integer("dim")
    rows = [x[(*before, slice(n, n + 1))] for n in range(x.shape[op.integer("dim")])]
    step = -1 if "reverse" in op.properties else 1
    total: Any = None
    sums: list[Any] = []
    for row in rows[::step]:
        total = row if total is None else total + row
        sums.append(total)
    out: Any = np.concatenate(sums[::step], axis=op.integer("dim"))
    return out.astype(arrays[0].dtype)


# --- selections ---------------------------------------------------------------------------------


def _unknown(shape: tuple[int, ...], dtype: Any, low: float, high: float) -> Any:
    """Return intervals of which only the ends are known."""
    return Intervals(np.full(shape, low), np.full(shape, high), np.dtype(dtype))


def _integers(x: Any) -> NDArray[np.int64] | None:
    """Return an array of integers, or None if some of its intervals are wider."""
    if not isinstance(x, Intervals):
        return np.asarray(x, np.int64)
    return x.low.astype(np.int64) if np.array_equal(x.low, x.high) else None


def _descending(x: Any, dim: int) -> Any:
    """Return the positions of elements, the largest first and of equal ones the first."""
    reverse = np.argsort(np.flip(x, dim), axis=dim, kind="stable")
    return np.flip(x.shape[dim] - 1 - reverse, dim)


def _positions(op: DistOp, x: Any, count: int) -> Any:
    """Return the positions of the largest elements of a dimension, the largest first."""
    dim = op.integer("dim")
    shape = (*x.shape[:dim], count, *x.shape[dim + 1 :])
    if isinstance(x, Intervals):
        if not np.array_equal(x.low, x.high):
            return _unknown(shape, np.int32, 0, x.shape[dim] - 1)
        return Intervals.of(_descending(x.low, dim)[_first(dim, count)].astype(np.int32))
    return _descending(x, dim)[_first(dim, count)].astype(np.int32)


def _first(dim: int, count: int) -> tuple[slice, ...]:
    return (*(slice(None),) * dim, slice(0, count))


def _argmax(op: DistOp, arrays: Sequence[Array]) -> Array:
    dim = op.integer("dim")
    found = _positions(op, arrays[0], 1)
    return found.reshape((*found.shape[:dim], *found.shape[dim + 1 :]))


def _top_k_indices(op: DistOp, arrays: Sequence[Array]) -> Array:
    return _positions(op, arrays[0], op.integer("k"))


def _top_k(op: DistOp, arrays: Sequence[Array]) -> Array:
    x: Any
    (x,), dim = arrays, op.integer("dim")
    if isinstance(x, Intervals):  # the k-th largest is between the k-th largest ends
        low, high = (
            np.take_along_axis(side, _descending(side, dim), dim)[_first(dim, op.integer("k"))]
            for side in (x.low, x.high)
        )
        known: Any = Intervals(low, low if np.array_equal(low, high) else high, x.dtype)
        return known
    return np.take_along_axis(x, _descending(x, dim), dim)[_first(dim, op.integer("k"))]


def take(table: Any, chosen: Any, dim: int, begin: int = 0) -> Any:
    """Return the slices of a dimension at some positions, of a block that begins at one of them;
    others are 0."""
    table = np.concatenate([table, np.zeros_like(table[_first(dim, 1)])], axis=dim)
    last, at = table.shape[dim] - 1, _integers(chosen)
    shape = (*table.shape[:dim], *chosen.shape, *table.shape[dim + 1 :])
    if at is None:
        return _unknown(shape, table.dtype, -np.inf, np.inf)
    inside = np.where((at >= begin) & (at < begin + last), at - begin, last)
    return table[(*(slice(None),) * dim, inside)]


def take_transpose(g: Any, chosen: Any, dim: int, begin: int, end: int) -> Any:
    """Return the sum of slices at each position of a block of a dimension."""
    at = _integers(chosen)
    flat = g.reshape((*g.shape[:dim], math.prod(chosen.shape), *g.shape[dim + chosen.ndim :]))
    shape = (*flat.shape[:dim], 1, *flat.shape[dim + 1 :])
    if at is None:
        return _unknown((*shape[:dim], end - begin, *shape[dim + 1 :]), g.dtype, -np.inf, np.inf)
    zero = np.zeros_like(flat[_first(dim, 1)])
    rows: list[Any] = []
    for position in range(begin, end):
        row = zero
        for n in np.flatnonzero(np.ravel(at) == position):
            row = row + flat[(*(slice(None),) * dim, slice(n, n + 1))]
        rows.append(row)
    return np.concatenate(rows, axis=dim)


def one_hot(chosen: Any, begin: int, end: int, dtype: Any) -> Any:
    """Return where positions of a block are those that integers name."""
    at = _integers(chosen)
    if at is None:
        return _unknown((*chosen.shape, end - begin), dtype, 0, 1)
    found = (at[..., None] == np.arange(begin, end)).astype(dtype)
    return Intervals.of(found) if isinstance(chosen, Intervals) else found


def _take(op: DistOp, arrays: Sequence[Array]) -> Array:
    return take(arrays[0], arrays[1], op.integer("dim"))


def _take_transpose(op: DistOp, arrays: Sequence[Array]) -> Array:
    dim = op.integer("dim")
    return take_transpose(arrays[0], arrays[1], dim, 0, op.layout("to").shape[dim])


def _one_hot(op: DistOp, arrays: Sequence[Array]) -> Array:
    to = op.layout("to")
    return one_hot(arrays[0], 0, to.shape[-1], NUMPY[to.dtype])


def _cross_entropy(op: DistOp, arrays: Sequence[Array]) -> Array:
    x: Any
    (x, labels), dim = arrays, op.integer("dim")
    wide = _wide(x)
    plain = not isinstance(x, Intervals)
    shifted = wide - np.max(wide, axis=dim, keepdims=True) if plain else wide
    with np.errstate(all="ignore"):
        logarithm = np.log(_folded(np.add, np.exp(shifted), [dim], keep=True))
    at = _integers(labels)
    if at is None:
        return _unknown(labels.shape, x.dtype, -np.inf, np.inf)
    losses, size = logarithm - shifted, x.shape[dim]
    padded = np.concatenate([losses, np.zeros_like(losses[_first(dim, 1)])], axis=dim)
    inside = np.expand_dims(np.where((at >= 0) & (at < size), at, size), dim)
    position: list[Any] = [*np.indices(inside.shape, sparse=True)]
    position[dim] = inside
    return padded[tuple(position)].reshape(labels.shape).astype(x.dtype)


# --- windows ------------------------------------------------------------------------------------


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
    zeros = np.zeros((shape[0], *sizes, shape[-1]), g.dtype)
    total: Any = Intervals.of(zeros) if isinstance(g, Intervals) else zeros
    for offset, cut in _cuts(window, op.sizes("stride"), total.shape):
        total[cut] = total[cut] + term(offset)
    inner = (slice(p, p + n) for p, n in zip(padding, shape[1:-1], strict=True))
    return total[(slice(None), *inner)]


def _conv(op: DistOp, arrays: Sequence[Array]) -> Array:
    x: Any
    w: Any
    x, w = map(_wide, arrays)
    spatial = [f"s{d}" for d in range(x.ndim - 2)]
    indices = [["n", *spatial, "c"], ["c", "f"]]
    total: Any = None
    for offset, part in _windows(op, x, w.shape[:-2], 0):
        term = _product(indices, ["n", *spatial, "f"], [part, w[offset]])
        total = term if total is None else total + term
    return total.astype(arrays[0].dtype)


def _product(indices: list[list[str]], result: list[str], arrays: Sequence[Any]) -> Any:
    """Return a sum of products of two arrays."""
    if any(isinstance(array, Intervals) for array in arrays):
        return _by_terms(indices, result, arrays)
    number = {index: n for n, index in enumerate(_distinct(indices))}
    pairs: list[Any] = []
    for part, array in zip(indices, arrays, strict=True):
        pairs += [array, [number[index] for index in part]]
    return np.einsum(*pairs, [number[index] for index in result])


def _conv_transpose(op: DistOp, arrays: Sequence[Array]) -> Array:
    g: Any
    w: Any
    g, w = map(_wide, arrays)
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
    x, g = map(_wide, arrays)
    window, spatial = op.layout("to").shape[:-2], [f"s{d}" for d in range(x.ndim - 2)]
    indices = [["n", *spatial, "c"], ["n", *spatial, "f"]]
    rows = [_product(indices, ["c", "f"], [part, g]) for _, part in _windows(op, x, window, 0)]
    stacked: Any = np.concatenate([row.reshape((1, *row.shape)) for row in rows])
    return stacked.reshape((*window, x.shape[-1], g.shape[-1])).astype(arrays[0].dtype)


def _max_pool_transpose(op: DistOp, arrays: Sequence[Array]) -> Array:
    g: Any
    x: Any
    g, x = arrays
    if isinstance(x, Intervals):
        if not np.array_equal(x.low, x.high):
            return _unknown(x.shape, g.dtype, -np.inf, np.inf)
        x = x.low
    parts = dict(_windows(op, x, op.sizes("window"), _lowest(x.dtype)))
    largest: Any = reduce(np.maximum, parts.values())
    taken: Any = np.zeros(largest.shape, bool)
    first: dict[tuple[int, ...], Any] = {}
    for offset, part in parts.items():
        first[offset] = (part == largest) & ~taken
        taken = taken | first[offset]
    return _added_to_windows(
        op, g, op.sizes("window"), x.shape, lambda offset: g * first[offset].astype(g.dtype)
    )


def _avg_pool_transpose(op: DistOp, arrays: Sequence[Array]) -> Array:
    g, window, to = _wide(arrays[0]), op.sizes("window"), op.layout("to").shape
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
    x, window = _wide(arrays[0]), op.sizes("window")
    total: Any = reduce(np.add, (part for _, part in _windows(op, x, window, 0)))
    return (total / total.dtype.type(math.prod(window))).astype(arrays[0].dtype)


FUNCTIONS: dict[str, Function] = {
    "einsum": _einsum,
    "neg": _map(np.negative),
    "stop_gradient": _map(np.positive),
    "mul": _map(np.multiply),
    "sub": _map(np.subtract),
    "div": _map(np.divide),
    "maximum": _map(np.maximum),
    "minimum": _map(np.minimum),
    "greater": _map(np.greater),
    "greater_equal": _map(np.greater_equal),
    "less": _map(np.less),
    "less_equal": _map(np.less_equal),
    "equal": _map(np.equal),
    "not_equal": _map(np.not_equal),
    "where": _where,
    "sin": _map(np.sin),
    "cos": _map(np.cos),
    "silu": _map(_silu),
    "gelu": _map(_gelu),
    "exp": _map(np.exp),
    "log": _map(np.log),
    "sqrt": _map(np.sqrt),
    "rsqrt": _map(_rsqrt),
    "tanh": _map(np.tanh),
    "sigmoid": _map(_sigmoid),
    "relu": _map(_relu),
    "sum": _sum,
    "max": partial(_extreme, np.maximum),
    "min": partial(_extreme, np.minimum),
    "softmax": partial(_normalised, np.exp),
    "log_softmax": partial(_normalised, None),
    "mean": _mean,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "cumsum": _cumsum,
    "argmax": _argmax,
    "top_k": _top_k,
    "top_k_indices": _top_k_indices,
    "take": _take,
    "take_transpose": _take_transpose,
    "one_hot": _one_hot,
    "cross_entropy": _cross_entropy,
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "conv_filter": _conv_filter,
    "max_pool": _max_pool,
    "max_pool_transpose": _max_pool_transpose,
    "avg_pool_transpose": _avg_pool_transpose,
    "avg_pool": _avg_pool,
    "constant": _constant,
    "iota": _iota,
    "broadcast_to": _broadcast_to,
}
"""The function of every operation on whole tensors, by its name."""
