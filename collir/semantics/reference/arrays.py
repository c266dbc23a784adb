"""Functions of arrays, for the meaning of operations of models."""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from collir.dialects.operation import DistOp
from collir.semantics.reference.collectives import Array

Function = Callable[[DistOp, Sequence[Array]], Array]
"""A function of a step and the arrays of its operands."""


def distinct(indices: Sequence[Sequence[str]]) -> list[str]:
    """Return the indices of all operands, each once."""
    return list(dict.fromkeys(index for part in indices for index in part))


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
