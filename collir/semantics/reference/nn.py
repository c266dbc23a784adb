"""The meaning of the operations of models on plain arrays, in numpy.

They are written from the definitions, without index structures: these are what runs on devices
check.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from scipy.special import erf  # pyright: ignore

from collir.dialects.operation import DistOp
from collir.layout.operation_table import OperationTable
from collir.semantics.reference import draws
from collir.semantics.reference.arrays import Function, as_wide, distinct, folded
from collir.semantics.reference.buffers import NUMPY
from collir.semantics.reference.collectives import Array
from collir.semantics.reference.selections import SELECTIONS
from collir.semantics.reference.windows import WINDOWS


def _einsum(op: DistOp, arrays: Sequence[Array]) -> Array:
    """Return the sum of products, in float32 for shorter types."""
    left, right = op.word("equation").split("->")
    indices = [part.split() for part in left.split(",")]
    number = {index: n for n, index in enumerate(distinct(indices))}
    pairs: list[Any] = []
    for part, array in zip(indices, arrays, strict=True):
        pairs += [as_wide(array), [number[index] for index in part]]
    out: Any = np.einsum(*pairs, [number[index] for index in right.split()], optimize="greedy")
    return np.asarray(out).astype(arrays[0].dtype)


def _sum(op: DistOp, arrays: Sequence[Array]) -> Array:
    (x,), keep = arrays, "keepdims" in op.properties
    wide = as_wide(x)
    total: Any = np.sum(wide, axis=op.sizes("dims"), keepdims=keep, dtype=wide.dtype)
    return np.asarray(total).astype(x.dtype)


def _extreme(function: Callable[..., Any], op: DistOp, arrays: Sequence[Array]) -> Array:
    """Return the extreme element over dimensions, by a function of two elements."""
    return folded(function, arrays[0], op.sizes("dims"), "keepdims" in op.properties)


def elementwise(function: Callable[..., Any]) -> Function:
    """Return an elementwise operation as numpy's function, computed in float32 at least."""

    def run(op: DistOp, arrays: Sequence[Array]) -> Array:
        dtype = arrays[0].dtype
        widened = dtype.itemsize <= 2 and dtype.kind != "i"
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
    return np.where(*arrays)


def _normalised(
    function: Callable[[Any], Any] | None, op: DistOp, arrays: Sequence[Array]
) -> Array:
    """Return the softmax over dimensions, or without a function its logarithm."""
    (x,) = arrays
    dims = op.sizes("dims")
    wide = as_wide(x)
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


def _uniform(op: DistOp, arrays: Sequence[Array]) -> Array:
    (seed,), to = arrays, op.layout("to")
    return draws.uniform(seed, to.shape, to.dtype, NUMPY[to.dtype])


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


def _mean_over(x: Any, dims: Sequence[int], keep: bool = True) -> Any:
    total = folded(np.add, x, dims, keep)
    return total / total.dtype.type(math.prod(x.shape[dim] for dim in dims))


def _mean(op: DistOp, arrays: Sequence[Array]) -> Array:
    (x,) = arrays
    mean = _mean_over(as_wide(x), op.sizes("dims"), "keepdims" in op.properties)
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
        for other in map(as_wide, others)
    ]
    y: Any = x / np.sqrt(squares + squares.dtype.type(op.number("eps"))) * aligned[0]
    return y + aligned[1] if len(aligned) > 1 else y


def _layer_norm(op: DistOp, arrays: Sequence[Array]) -> Array:
    x = as_wide(arrays[0])
    centred = x - _mean_over(x, op.sizes("dims"))
    squares = _mean_over(centred * centred, op.sizes("dims"))
    return _scaled_by(op, centred, squares, *arrays[1:]).astype(arrays[0].dtype)


def _rms_norm(op: DistOp, arrays: Sequence[Array]) -> Array:
    x = as_wide(arrays[0])
    squares = _mean_over(x * x, op.sizes("dims"))
    return _scaled_by(op, x, squares, *arrays[1:]).astype(arrays[0].dtype)


def _cumsum(op: DistOp, arrays: Sequence[Array]) -> Array:
    x, before = as_wide(arrays[0]), (slice(None),) * op.integer("dim")
    rows = [x[(*before, slice(n, n + 1))] for n in range(x.shape[op.integer("dim")])]
    step = -1 if "reverse" in op.properties else 1
    total: Any = None
    sums: list[Any] = []
    for row in rows[::step]:
        total = row if total is None else total + row
        sums.append(total)
    out: Any = np.concatenate(sums[::step], axis=op.integer("dim"))
    return out.astype(arrays[0].dtype)


def _linear_scan(op: DistOp, arrays: Sequence[Array]) -> Array:
    dim = op.integer("dim")
    rows: Any = [np.moveaxis(as_wide(array), dim, 0) for array in arrays]
    out: Any = np.empty_like(rows[0])
    state: Any = np.zeros_like(rows[0][0])
    steps = range(len(out))
    for n in reversed(steps) if "reverse" in op.properties else steps:
        out[n] = state = rows[0][n] + rows[1][n] * state
    return np.moveaxis(out, 0, dim).astype(arrays[0].dtype)


FUNCTIONS: OperationTable[Function] = OperationTable(
    "FUNCTIONS",
    __name__,
    {
        **SELECTIONS,
        **WINDOWS,
        "einsum": _einsum,
        "neg": elementwise(np.negative),
        "stop_gradient": elementwise(np.positive),
        "mul": elementwise(np.multiply),
        "sub": elementwise(np.subtract),
        "div": elementwise(np.divide),
        "maximum": elementwise(np.maximum),
        "minimum": elementwise(np.minimum),
        "greater": elementwise(np.greater),
        "greater_equal": elementwise(np.greater_equal),
        "less": elementwise(np.less),
        "less_equal": elementwise(np.less_equal),
        "equal": elementwise(np.equal),
        "not_equal": elementwise(np.not_equal),
        "where": _where,
        "sin": elementwise(np.sin),
        "cos": elementwise(np.cos),
        "silu": elementwise(_silu),
        "gelu": elementwise(_gelu),
        "exp": elementwise(np.exp),
        "log": elementwise(np.log),
        "sqrt": elementwise(np.sqrt),
        "rsqrt": elementwise(_rsqrt),
        "tanh": elementwise(np.tanh),
        "erf": elementwise(erf),
        "sigmoid": elementwise(_sigmoid),
        "relu": elementwise(_relu),
        "sum": _sum,
        "max": partial(_extreme, np.maximum),
        "min": partial(_extreme, np.minimum),
        "softmax": partial(_normalised, np.exp),
        "log_softmax": partial(_normalised, None),
        "mean": _mean,
        "layer_norm": _layer_norm,
        "rms_norm": _rms_norm,
        "cumsum": _cumsum,
        "linear_scan": _linear_scan,
        "constant": _constant,
        "iota": _iota,
        "uniform": _uniform,
        "broadcast_to": _broadcast_to,
    },
    row="its function of arrays of numpy",
)
"""The function of every operation on whole tensors, by its name."""
