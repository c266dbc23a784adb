"""The executor's collectives where plain numpy would round."""

import ml_dtypes
import numpy as np

from collir.layout import Reduction
from collir.semantics.reference.collectives import combine


def test_an_average_is_divided_by_the_number_of_parts() -> None:
    """The division is in f32, as bf16 cannot hold 257."""
    parts = [np.array([256 if part == 0 else 0], ml_dtypes.bfloat16) for part in range(257)]
    assert float(combine(parts, Reduction.AVG)[0]) == float(ml_dtypes.bfloat16(256 / 257)) < 1
