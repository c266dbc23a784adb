"""What the executor's collectives compute where numpy alone would not."""

import ml_dtypes
import numpy as np

from collir.layout import Reduction
from collir.semantics.reference.collectives import combine


def test_an_average_is_divided_by_the_number_of_parts() -> None:
    """bf16 has no 257: the division is in f32."""
    parts = [np.array([256 if part == 0 else 0], ml_dtypes.bfloat16) for part in range(257)]
    assert float(combine(parts, Reduction.AVG)[0]) == float(ml_dtypes.bfloat16(256 / 257)) < 1
