"""Functions of arrays of numbers or of intervals, for the meaning of operations of models."""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collir.dialects.operation import DistOp
from collir.semantics.reference.collectives import Array
from collir.semantics.reference.intervals import Intervals

Function = Callable[[DistOp, Sequence[Array]], Array]
"""A function of a step and the arrays of its operands."""


def distinct(indices: Sequence[Sequence[str]]) -> list[str]:
    """Return the indices of all operands, each once."""
    return list(dict.fromkeys(index for part in indices for index in part))


def by_terms(indices: list[list[str]], result: list[str], arrays: Sequence[Array]) -> Any:
    """Return the sum of products term by term, by numpy's multiply and add alone."""
    every = distinct([result, *indices])
    product: Any = None
    for over, array in zip(indices, arrays, strict=True):
        order = sorted(range(len(over)), key=lambda n, over=over: every.index(over[n]))
        moved: Any = np.transpose(array, order)
        sizes = dict(zip(sorted(over, key=every.index), moved.shape, strict=True))
        aligned = moved.reshape(tuple(sizes.get(index, 1) for index in every))
        product = aligned if product is None else product * aligned
    return folded(np.add, product, range(len(result), len(every)))


def folded(function: Callable[..., Any], x: Any, dims: Sequence[int], keep: bool = False) -> Any:
    """Return the elements over dimensions, combined one by one by a function of two."""
    for dim in sorted(dims, reverse=True):
        before = (slice(None),) * dim
        folded = reduce(function, (x[(*before, n)] for n in range(x.shape[dim])))
        shape = folded.shape
        x = folded.reshape((*shape[:dim], 1, *shape[dim:])) if keep else folded
    return x


def as_wide(x: Any) -> Any:
    """Return an array in which sums of short floats are computed."""
    return x.astype(np.float32) if x.dtype.kind != "i" and x.dtype.itemsize < 4 else x


def unknown(shape: tuple[int, ...], dtype: Any, low: float, high: float) -> Any:
    """Return intervals of which only the ends are known."""
    return Intervals(np.full(shape, low), np.full(shape, high), np.dtype(dtype))


def integers(x: Any) -> NDArray[np.int64] | None:
    """Return an array of integers, or None if some of its intervals are wider."""
    if not isinstance(x, Intervals):
        return np.asarray(x, np.int64)
    return x.low.astype(np.int64) if np.array_equal(x.low, x.high) else None
