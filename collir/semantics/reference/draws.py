"""Random numbers by position: what ``uniform`` means, in numpy.

Each element is a hash of the seed and of its position in every dimension, so that any block of a
tensor can be drawn alone. The hash is the last step of MurmurHash3 (A. Appleby, public domain),
once for the seed and once for each dimension.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

BITS = {"bf16": 8, "f16": 11, "f32": 24, "f64": 32}
"""The random bits of a number in [0, 1), by its dtype: as many as are exact, and at most 32."""


def mixed(x: Any) -> Any:
    """Return 32 bits that each depend on all bits of a number, for an array of uint32."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
    return x ^ (x >> np.uint32(16))


def uniform(seed: Any, shape: Sequence[int], dtype: str, array_dtype: Any) -> Any:
    """Return numbers in [0, 1) that depend on an integer of 32 bits and on their positions."""
    drawn = mixed(np.asarray(seed).astype(np.int64).astype(np.uint32).reshape((1,) * len(shape)))
    for dim, size in enumerate(shape):
        position = np.arange(size, dtype=np.uint32).reshape((-1,) + (1,) * (len(shape) - dim - 1))
        drawn = mixed((drawn ^ position) * np.uint32(0x9E3779B1) + np.uint32(dim))
    bits = BITS[dtype]
    numbers = (drawn >> np.uint32(32 - bits)).astype(np.float64) * 2.0**-bits
    return np.broadcast_to(numbers, shape).astype(array_dtype)
