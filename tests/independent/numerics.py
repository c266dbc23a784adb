"""The values of operations on whole arrays.

Floating-point numbers count as real numbers: arrays of them are ``np.longdouble``, or complex for
a derivative along a direction. Integers wrap around.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from .mesh import FLOATS
from .rules import Case

type_of: dict[str, Any] = {
    **dict.fromkeys(FLOATS, np.longdouble),
    "i8": np.int8,
    "i32": np.int32,
    "i64": np.int64,
    "bool": np.bool_,
}
Array = np.ndarray[Any, Any]


def converted(x: Array, dtype: str) -> Array:
    """Return a cast; from one floating-point type to another it changes nothing."""
    if dtype == "bool":
        return x != 0
    if dtype in FLOATS:
        return x if x.dtype.kind in "fc" else x.astype(np.longdouble)
    return np.trunc(x.real).astype(np.int64).astype(type_of[dtype])


def number(value: float, dtype: str) -> Any:
    """Return a constant of an element type."""
    return type_of[dtype](value if dtype in FLOATS else int(value))


def identity(reduction: str, dtype: str) -> Any:
    """Return what a mask leaves on all coordinates but the first."""
    return number({"sum": 0, "prod": 1}[reduction], dtype)


def added(terms: Sequence[Array]) -> Array:
    return reduce(lambda a, b: a + b, terms)


def largest(x: Array, y: Array) -> Array:
    """Return the larger element; NaN if either is."""
    return np.where((x.real >= y.real) | np.isnan(x.real), x, y)


def smallest(x: Array, y: Array) -> Array:
    return np.where((x.real <= y.real) | np.isnan(x.real), x, y)


def reduced(reduction: str, terms: Sequence[Array]) -> Array:
    """Return a reduction of several arrays, element by element."""
    fold: dict[str, Callable[[Array, Array], Array]] = {
        "sum": lambda a, b: a + b,
        "avg": lambda a, b: a + b,
        "prod": lambda a, b: a * b,
        "max": largest,
        "min": smallest,
    }
    total = reduce(fold[reduction], terms)
    return total / len(terms) if reduction == "avg" else total


# Functions of every element

SQRT_2_PI = math.sqrt(2 / math.pi)
ONE: dict[str, Callable[[Array], Array]] = {
    "neg": lambda x: -x,
    "relu": lambda x: np.where(x.real > 0, x, np.zeros_like(x)),
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "tanh": np.tanh,
    "erf": np.vectorize(math.erf, otypes=[float]),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "sin": np.sin,
    "cos": np.cos,
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: x * (1 + np.tanh(SQRT_2_PI * (x + 0.044715 * x * x * x))) / 2,
    "stop_gradient": lambda x: x.real + 0 if x.dtype.kind == "c" else x,
}
TWO: dict[str, Callable[[Array, Array], Array]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "maximum": largest,
    "minimum": smallest,
    "greater": lambda x, y: x.real > y.real,
    "greater_equal": lambda x, y: x.real >= y.real,
    "less": lambda x, y: x.real < y.real,
    "less_equal": lambda x, y: x.real <= y.real,
    "equal": lambda x, y: x.real == y.real,
    "not_equal": lambda x, y: x.real != y.real,
}


# Reductions


def folded(x: Array, axes: Sequence[int], best: Callable[[Array, Array], Array]) -> Array:
    """Return the best element over axes, which stay with size 1."""
    for axis in axes:
        rows = [np.take(x, [i], axis) for i in range(x.shape[axis])]
        x = reduce(best, rows)
    return x


def reduction(c: Case, xs: list[Array]) -> Array:
    x = xs[0]
    axes = c.integers("dims")
    if c.step.op in ("max", "min"):
        made = folded(x, axes, largest if c.step.op == "max" else smallest)
    else:
        made = x.sum(axis=tuple(axes), keepdims=True, dtype=x.dtype)
        if c.step.op == "mean":
            made = made / math.prod(x.shape[axis] for axis in axes)
    return made if "keepdims" in c.step.clauses else np.squeeze(made, tuple(axes))


def shifted_exp(x: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """Return x less its maximum, and the sum of its exponentials."""
    moved = x - x.real.max(axis=axes, keepdims=True)
    return moved, np.exp(moved).sum(axis=axes, keepdims=True)


def softmax(c: Case, xs: list[Array]) -> Array:
    x = xs[0]
    moved, total = shifted_exp(x, tuple(c.integers("dims")))
    return np.exp(moved) / total if c.step.op == "softmax" else moved - np.log(total)


def norm(c: Case, xs: list[Array]) -> Array:
    x, *more = xs
    dims = c.integers("dims")
    axes, eps = tuple(dims), c.number("eps")

    def aligned(y: Array) -> Array:
        order = np.argsort(dims)
        return np.expand_dims(
            np.transpose(y, order), tuple(d for d in range(x.ndim) if d not in dims)
        )

    if c.step.op == "layer_norm":
        x = x - x.mean(axis=axes, keepdims=True)
    made = x / np.sqrt((x * x).mean(axis=axes, keepdims=True) + eps) * aligned(more[0])
    return made + aligned(more[1]) if len(more) > 1 else made


def ordered(c: Case, x: Array) -> Array:
    """Return the positions of a dimension, that of the largest element first."""
    return np.argsort(-x.real.astype(np.longdouble), axis=c.dim(), kind="stable").astype(np.int32)


def top(c: Case, xs: list[Array]) -> Array:
    x = xs[0]
    picked = np.take(ordered(c, x), range(c.integer("k")), c.dim())
    return picked if c.step.op == "top_k_indices" else np.take_along_axis(x, picked, c.dim())


def linear_scan(c: Case, xs: list[Array]) -> Array:
    x, factor = (np.moveaxis(array, c.dim(), -1) for array in xs)
    made = np.zeros(x.shape, np.result_type(x, factor))
    count = x.shape[-1]
    order = range(count - 1, -1, -1) if "reverse" in c.step.clauses else range(count)
    last = None
    for n in order:
        made[..., n] = x[..., n] if last is None else x[..., n] + factor[..., n] * made[..., last]
        last = n
    return np.moveaxis(made, -1, c.dim())


def cumsum(c: Case, xs: list[Array]) -> Array:
    x = xs[0]
    if "reverse" in c.step.clauses:
        return np.flip(np.cumsum(np.flip(x, c.dim()), c.dim(), dtype=x.dtype), c.dim())
    return np.cumsum(x, c.dim(), dtype=x.dtype)


def cross_entropy(c: Case, xs: list[Array]) -> Array:
    (x, labels), dim = xs, c.dim()
    moved, total = shifted_exp(x, (dim,))
    valid = (labels >= 0) & (labels < x.shape[dim])
    index = np.expand_dims(np.where(valid, labels, 0), dim).astype(np.int64)
    loss = np.log(total) - np.take_along_axis(moved, index, dim)
    return np.where(valid, np.squeeze(loss, dim), 0)


def einsum(c: Case, arrays: list[Array]) -> Array:
    left, _, right = c.step.clauses["text"].partition("->")
    names = sorted({*left.replace(",", " ").split()})
    letter = {name: chr(97 + i) for i, name in enumerate(names)}

    def letters(text: str) -> str:
        return "".join(letter[name] for name in text.split())

    text = ",".join(map(letters, left.split(","))) + "->" + letters(right)
    return np.einsum(text, *arrays)


# Positions: ``low`` is where the block of the dimension begins


def take(x: Array, positions: Array, dim: int, low: int) -> Array:
    local = positions.astype(np.int64) - low
    valid = (local >= 0) & (local < x.shape[dim])
    picked = np.take(x, np.where(valid, local, 0), dim)
    shape = (1,) * dim + valid.shape + (1,) * (x.ndim - dim - 1)
    return np.where(valid.reshape(shape), picked, np.zeros_like(picked))


def take_transpose(x: Array, positions: Array, dim: int, low: int, size: int) -> Array:
    rank = positions.ndim
    rows = x.reshape(*x.shape[:dim], -1, *x.shape[dim + rank :])
    made = np.zeros((*x.shape[:dim], size, *x.shape[dim + rank :]), x.dtype)
    for i, position in enumerate(positions.reshape(-1).astype(np.int64) - low):
        if 0 <= position < size:
            there = (slice(None),) * dim
            made[(*there, int(position))] += rows[(*there, i)]
    return made


def take_along(x: Array, positions: Array, dim: int, low: int) -> Array:
    made = np.zeros(positions.shape, x.dtype)
    for place in np.ndindex(*positions.shape):
        at = int(positions[place]) - low
        if 0 <= at < x.shape[dim]:
            made[place] = x[(*place[:dim], at, *place[dim + 1 :])]
    return made


def take_along_transpose(x: Array, positions: Array, dim: int, low: int, size: int) -> Array:
    made = np.zeros((*x.shape[:dim], size, *x.shape[dim + 1 :]), x.dtype)
    for place in np.ndindex(*positions.shape):
        at = int(positions[place]) - low
        if 0 <= at < size:
            made[(*place[:dim], at, *place[dim + 1 :])] += x[place]
    return made


def grouped_matmul(c: Case, x: Array, w: Array, groups: Array, low: int) -> Array:
    if "transposed" in c.step.clauses:
        w = np.moveaxis(w, 1, 2)
    made = np.zeros((*x.shape[:-1], w.shape[2]), np.result_type(x, w))
    for place in np.ndindex(*groups.shape):
        group = int(groups[place]) - low
        if 0 <= group < w.shape[0]:
            made[place] = x[place] @ w[group]
    return made


def grouped_matmul_transpose(x: Array, y: Array, groups: Array, low: int, size: int) -> Array:
    made = np.zeros((size, x.shape[-1], y.shape[-1]), np.result_type(x, y))
    for place in np.ndindex(*groups.shape):
        group = int(groups[place]) - low
        if 0 <= group < size:
            made[group] += np.multiply.outer(x[place], y[place])
    return made


def uniform(seed: int, shape: Sequence[int], block: Sequence[slice]) -> Array:
    """Return numbers by a seed and the position in the whole tensor: a hash, as good as another."""
    position = np.arange(math.prod(shape), dtype=np.uint64).reshape(shape)[tuple(block)]
    with np.errstate(over="ignore"):
        z = position * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed % 2**32) + np.uint64(1)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((z >> np.uint64(40)).astype(np.longdouble)) / 2**24


# Windows: element ``o`` of the result sees elements ``o * stride + w - padding``


class Windows:
    """The windows of a step over an image."""

    def __init__(self, c: Case, window: Sequence[int], outer: Sequence[int]) -> None:
        self.window, self.outer = window, outer
        self.stride, self.padding = c.integers("stride"), c.integers("padding")

    def padded(self, x: Array, value: Any = 0) -> Array:
        rows = [
            (0, 0),
            *((p, p + s) for p, s in zip(self.padding, self.stride, strict=True)),
            (0, 0),
        ]
        return np.pad(x, rows, constant_values=value)

    def cut(self, padded: Array, shape: Sequence[int]) -> Array:
        inner = [slice(p, p + n) for p, n in zip(self.padding, shape[1:-1], strict=True)]
        return padded[(slice(None), *inner)]

    def places(self) -> list[tuple[tuple[int, ...], tuple[slice, ...]]]:
        """Return each position in the window, and the elements of a padded image that it is on."""
        found: list[tuple[tuple[int, ...], tuple[slice, ...]]] = []
        for w in itertools.product(*map(range, self.window)):
            rows = zip(w, self.outer, self.stride, strict=True)
            found.append((w, (slice(None), *(slice(i, i + n * s - s + 1, s) for i, n, s in rows))))
        return found


def conv(c: Case, xs: list[Array]) -> Array:
    x, kernel = xs
    stride, padding = c.integers("stride"), c.integers("padding")
    rows = zip(x.shape[1:-1], kernel.shape[:-2], stride, padding, strict=True)
    outer = [(n + 2 * p - w) // s + 1 for n, w, s, p in rows]
    windows = Windows(c, kernel.shape[:-2], outer)
    padded = windows.padded(x)
    return added([padded[there] @ kernel[w] for w, there in windows.places()])


def conv_transpose(c: Case, g: Array, kernel: Array, shape: Sequence[int]) -> Array:
    windows = Windows(c, kernel.shape[:-2], g.shape[1:-1])
    made = windows.padded(np.zeros(shape, np.result_type(g, kernel)))
    for w, there in windows.places():
        made[there] += g @ kernel[w].T
    return windows.cut(made, shape)


def conv_filter(c: Case, x: Array, g: Array, shape: Sequence[int]) -> Array:
    windows = Windows(c, shape[:-2], g.shape[1:-1])
    padded, made = windows.padded(x), np.zeros(shape, np.result_type(x, g))
    axes = list(range(g.ndim - 1))
    for w, there in windows.places():
        made[w] = np.tensordot(padded[there], g, (axes, axes))
    return made


def pooled(c: Case, x: Array) -> tuple[Windows, list[Array], tuple[int, ...]]:
    window = c.integers("window")
    rows = zip(x.shape[1:-1], window, c.integers("stride"), c.integers("padding"), strict=True)
    outer = tuple((n + 2 * p - w) // s + 1 for n, w, s, p in rows)
    windows = Windows(c, window, outer)
    lowest = 0 if c.step.op == "avg_pool" else -np.inf
    if x.dtype.kind == "i":
        lowest = np.iinfo(x.dtype).min
    padded = windows.padded(x, lowest)
    return windows, [padded[there] for _, there in windows.places()], outer


def max_pool_transpose(c: Case, xs: list[Array]) -> Array:
    g, x = xs
    windows, seen, _ = pooled(c, x)
    first = np.argmax(np.stack([part.real for part in seen]), axis=0)
    made = windows.padded(np.zeros(x.shape, g.dtype))
    for i, (_, there) in enumerate(windows.places()):
        made[there] += np.where(first == i, g, 0)
    return windows.cut(made, x.shape)


def avg_pool_transpose(c: Case, g: Array, shape: Sequence[int]) -> Array:
    window = c.integers("window")
    windows = Windows(c, window, g.shape[1:-1])
    made = windows.padded(np.zeros(shape, g.dtype))
    for _, there in windows.places():
        made[there] += g / math.prod(window)
    return windows.cut(made, shape)


def elementwise(c: Case, xs: list[Array]) -> Array:
    return ONE[c.step.op](xs[0]) if len(xs) == 1 else TWO[c.step.op](*xs)


def avg_pool(c: Case, xs: list[Array]) -> Array:
    return added(pooled(c, xs[0])[1]) / math.prod(c.integers("window"))


LOCAL: dict[str, Callable[[Case, list[Array]], Array]] = {
    **dict.fromkeys((*ONE, *TWO), elementwise),
    **dict.fromkeys(("sum", "mean", "max", "min"), reduction),
    **dict.fromkeys(("softmax", "log_softmax"), softmax),
    **dict.fromkeys(("layer_norm", "rms_norm"), norm),
    **dict.fromkeys(("top_k", "top_k_indices"), top),
    "where": lambda c, xs: np.where(xs[0], xs[1], xs[2]),
    "argmax": lambda c, xs: np.take(ordered(c, xs[0]), 0, c.dim()),
    "cumsum": cumsum,
    "linear_scan": linear_scan,
    "cross_entropy": cross_entropy,
    "einsum": einsum,
    "conv": conv,
    "max_pool": lambda c, xs: reduce(largest, pooled(c, xs[0])[1]),
    "avg_pool": avg_pool,
    "max_pool_transpose": max_pool_transpose,
    "scale": lambda c, xs: xs[0] * number(c.number("by"), c.x.dtype),
    "cast": lambda c, xs: converted(xs[0], c.step.clauses["to"]),
    "concat": lambda c, xs: np.concatenate(xs, c.dim()),
    "transpose": lambda c, xs: np.transpose(xs[0], c.integers("order")),
    "compute": lambda c, xs: xs[0],
    "barrier": lambda c, xs: xs[0],
}
"""The operations that look at nothing but their operands."""


def padded(c: Case, x: Array) -> Array:
    dim, low, high = c.dim(), c.integer("low", 0), c.integer("high", 0)
    x = np.take(x, range(max(-low, 0), x.shape[dim] + min(high, 0)), dim)
    rows = [(0, 0)] * x.ndim
    rows[dim] = max(low, 0), max(high, 0)
    if rows[dim] == (0, 0):
        return x
    return np.pad(x, rows, constant_values=number(c.number("value", 0.0), c.x.dtype))


def positions(block: slice) -> Array:
    return np.array(range(block.start, block.stop), np.int64)


def shaped(
    c: Case, arrays: list[Array], shape: Sequence[int], block: Sequence[slice]
) -> Array | None:
    """Return what an operation with the shape of its result in its text computes.

    shape: that of the result on this device; block: where it lies in the whole tensor.
    """
    op = c.step.op
    if op in ("split", "merge", "reshape"):
        return arrays[0].reshape(shape)
    if op == "broadcast_to":
        return np.broadcast_to(arrays[0], shape)
    if op == "constant":
        return np.full(shape, number(c.number("value"), c.target.dtype))
    if op == "iota":
        dim = c.integer("dim")
        row = positions(block[dim]).reshape([-1 if d == dim else 1 for d in range(len(shape))])
        return converted(np.broadcast_to(row, shape), c.target.dtype)
    if op == "uniform":
        return uniform(int(arrays[0]), c.target.shape, block)
    if op == "one_hot":
        row = positions(block[-1])
        return converted(np.expand_dims(arrays[0], -1) == row, c.target.dtype)
    if op == "take_transpose":
        dim = c.integer("dim")
        return take_transpose(arrays[0], arrays[1], dim, block[dim].start, shape[dim])
    if op == "take_along_dim_transpose":
        dim = c.integer("dim")
        return take_along_transpose(arrays[0], arrays[1], dim, block[dim].start, shape[dim])
    if op == "grouped_matmul_transpose":
        x, y, groups = arrays
        return grouped_matmul_transpose(x, y, groups, block[0].start, shape[0])
    if op == "conv_transpose":
        return conv_transpose(c, arrays[0], arrays[1], shape)
    if op == "conv_filter":
        return conv_filter(c, arrays[0], arrays[1], shape)
    if op == "avg_pool_transpose":
        return avg_pool_transpose(c, arrays[0], shape)
    return None


def local(
    c: Case, arrays: list[Array], shape: Sequence[int], block: Sequence[slice], low: int
) -> Array | None:
    """Return what a step without communication computes on one device; None: it communicates.

    low: where the block of the operand that is chosen from begins, along the dimension of which.
    """
    if c.step.op == "take_along_dim":
        return take_along(arrays[0], arrays[1], c.dim(), low)
    if c.step.op == "grouped_matmul":
        x, w, groups = arrays
        return grouped_matmul(c, x, w, groups, low)
    if c.step.op == "take":
        return take(arrays[0], arrays[1], c.dim(), low)
    if c.step.op == "pad":
        return padded(c, arrays[0])
    if c.step.op in LOCAL:
        return np.asarray(LOCAL[c.step.op](c, arrays))
    return shaped(c, arrays, shape, block)
