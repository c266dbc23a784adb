"""The meaning of operations that select, by the size of elements or by integers, in numpy.

Selections by integers also work on a block of the dimension from some position on.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from collir.dialects.operation import DistOp
from collir.semantics.reference.arrays import Function, as_wide, folded
from collir.semantics.reference.buffers import NUMPY
from collir.semantics.reference.collectives import Array


def _descending(x: Any, dim: int) -> Any:
    """Return the positions of elements, the largest first and of equal ones the first."""
    reverse = np.argsort(np.flip(x, dim), axis=dim, kind="stable")
    return np.flip(x.shape[dim] - 1 - reverse, dim)


def _positions(op: DistOp, x: Any, count: int) -> Any:
    """Return the positions of the largest elements of a dimension, the largest first."""
    dim = op.integer("dim")
    return _descending(x, dim)[_first(dim, count)].astype(np.int32)


def _first(dim: int, count: int) -> tuple[slice, ...]:
    return (*(slice(None),) * dim, slice(0, count))


def _wide_integers(x: Any) -> Any:
    """Return an array in int64, so that no position wraps around."""
    return np.asarray(x, np.int64)


def _argmax(op: DistOp, arrays: Sequence[Array]) -> Array:
    dim = op.integer("dim")
    found = _positions(op, arrays[0], 1)
    return found.reshape((*found.shape[:dim], *found.shape[dim + 1 :]))


def _top_k_indices(op: DistOp, arrays: Sequence[Array]) -> Array:
    return _positions(op, arrays[0], op.integer("k"))


def _top_k(op: DistOp, arrays: Sequence[Array]) -> Array:
    x: Any
    (x,), dim = arrays, op.integer("dim")
    return np.take_along_axis(x, _descending(x, dim), dim)[_first(dim, op.integer("k"))]


def take(table: Any, chosen: Any, dim: int, begin: int = 0) -> Any:
    """Return the slices of a dimension at some positions, of a block that begins at one of them;
    others are 0."""
    table = np.concatenate([table, np.zeros_like(table[_first(dim, 1)])], axis=dim)
    last: int = table.shape[dim] - 1
    at: Any = _wide_integers(chosen)
    inside: Any = np.where((at >= begin) & (at < begin + last), at - begin, last)
    return table[(*(slice(None),) * dim, inside)]


def take_transpose(g: Any, chosen: Any, dim: int, begin: int, end: int) -> Any:
    """Return the sum of slices at each position of a block of a dimension."""
    at = _wide_integers(chosen)
    wide = as_wide(g)
    flat = wide.reshape((*g.shape[:dim], math.prod(chosen.shape), *g.shape[dim + chosen.ndim :]))
    zero = np.zeros_like(flat[_first(dim, 1)])
    rows: list[Any] = []
    for position in range(begin, end):
        row = zero
        for n in np.flatnonzero(np.ravel(at) == position):
            row = row + flat[(*(slice(None),) * dim, slice(n, n + 1))]
        rows.append(row)
    total: Any = np.concatenate(rows, axis=dim)
    return total.astype(g.dtype)


def take_along(x: Any, chosen: Any, dim: int, begin: int = 0) -> Any:
    """Return the elements of a dimension at positions of their own for each row, of a block that
    begins at one of them; others are 0."""
    at = _wide_integers(chosen) - begin
    inside: Any = (at >= 0) & (at < x.shape[dim])
    found: Any = np.take_along_axis(x, np.where(inside, at, 0), dim)
    found[np.logical_not(inside)] = 0
    return found


def take_along_transpose(g: Any, chosen: Any, dim: int, begin: int, end: int) -> Any:
    """Return the sum of elements at each position of a block of a dimension."""
    at, wide = _wide_integers(chosen), as_wide(g)
    zero = np.zeros_like(wide)
    rows = [
        folded(np.add, np.where(at == position, wide, zero), [dim], keep=True)
        for position in range(begin, end)
    ]
    total: Any = np.concatenate(rows, axis=dim)
    return total.astype(g.dtype)


def grouped_matmul(x: Any, w: Any, groups: Any, transposed: bool, begin: int = 0) -> Any:
    """Return the product of each row with the matrix of its group, of a block of matrices that
    begins at one of them; others are 0."""
    rows = as_wide(x).reshape(-1, x.shape[-1])
    matrices: Any = np.swapaxes(as_wide(w), 1, 2) if transposed else as_wide(w)
    at = _wide_integers(groups).reshape(-1) - begin
    out: Any = np.zeros((len(rows), matrices.shape[2]), rows.dtype)
    for group, matrix in enumerate(matrices):
        out[at == group] = rows[at == group] @ matrix
    return out.reshape(*x.shape[:-1], -1).astype(x.dtype)


def grouped_matmul_transpose(x: Any, g: Any, groups: Any, begin: int, end: int) -> Any:
    """Return the sum over rows of each group of the products of their elements, of a block of
    groups."""
    at = _wide_integers(groups).reshape(-1)
    left, right = (as_wide(rows).reshape(-1, rows.shape[-1]) for rows in (x, g))
    sums: Any = [left[at == group].T @ right[at == group] for group in range(begin, end)]
    return np.stack(sums).astype(x.dtype)


def one_hot(chosen: Any, begin: int, end: int, dtype: Any) -> Any:
    """Return the positions of a block that integers name, as ones."""
    return (_wide_integers(chosen)[..., None] == np.arange(begin, end)).astype(dtype)


def _take(op: DistOp, arrays: Sequence[Array]) -> Array:
    return take(arrays[0], arrays[1], op.integer("dim"))


def _take_transpose(op: DistOp, arrays: Sequence[Array]) -> Array:
    dim = op.integer("dim")
    return take_transpose(arrays[0], arrays[1], dim, 0, op.layout("to").shape[dim])


def _take_along_dim(op: DistOp, arrays: Sequence[Array]) -> Array:
    return take_along(arrays[0], arrays[1], op.integer("dim"))


def _take_along_dim_transpose(op: DistOp, arrays: Sequence[Array]) -> Array:
    dim = op.integer("dim")
    return take_along_transpose(arrays[0], arrays[1], dim, 0, op.layout("to").shape[dim])


def _grouped_matmul(op: DistOp, arrays: Sequence[Array]) -> Array:
    return grouped_matmul(arrays[0], arrays[1], arrays[2], transposed="transposed" in op.properties)


def _grouped_matmul_transpose(op: DistOp, arrays: Sequence[Array]) -> Array:
    return grouped_matmul_transpose(arrays[0], arrays[1], arrays[2], 0, op.layout("to").shape[0])


def _one_hot(op: DistOp, arrays: Sequence[Array]) -> Array:
    to = op.layout("to")
    return one_hot(arrays[0], 0, to.shape[-1], NUMPY[to.dtype])


def _cross_entropy(op: DistOp, arrays: Sequence[Array]) -> Array:
    x: Any
    (x, labels), dim = arrays, op.integer("dim")
    wide = as_wide(x)
    shifted = wide - np.max(wide, axis=dim, keepdims=True)
    with np.errstate(all="ignore"):
        logarithm = np.log(folded(np.add, np.exp(shifted), [dim], keep=True))
    at: Any = _wide_integers(labels)
    losses, size = logarithm - shifted, int(x.shape[dim])
    padded = np.concatenate([losses, np.zeros_like(losses[_first(dim, 1)])], axis=dim)
    inside: Any = np.expand_dims(np.where((at >= 0) & (at < size), at, size), dim)
    position: list[Any] = [*np.indices(inside.shape, sparse=True)]
    position[dim] = inside
    return padded[tuple(position)].reshape(labels.shape).astype(x.dtype)


SELECTIONS: dict[str, Function] = {
    "argmax": _argmax,
    "top_k": _top_k,
    "top_k_indices": _top_k_indices,
    "take": _take,
    "take_transpose": _take_transpose,
    "take_along_dim": _take_along_dim,
    "take_along_dim_transpose": _take_along_dim_transpose,
    "one_hot": _one_hot,
    "grouped_matmul": _grouped_matmul,
    "grouped_matmul_transpose": _grouped_matmul_transpose,
    "cross_entropy": _cross_entropy,
}
"""The functions of whole tensors, by the names of the operations."""
