"""The meaning of the operations of models on plain arrays, in numpy.

They are written from the definitions, without index structures: these are what runs on devices
check. Intervals go through numpy's functions as arrays do.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

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
    "constant": _constant,
    "iota": _iota,
    "broadcast_to": _broadcast_to,
}
"""The function of every operation on whole tensors, by its name."""
