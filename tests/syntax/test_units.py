"""Quantities are printed and read exactly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collir.syntax.units import Quantity

positive = st.floats(min_value=1e-30, max_value=1e30, allow_nan=False, allow_subnormal=False)


@pytest.mark.parametrize("kind", list(Quantity))
@given(value=positive)
def test_what_is_printed_reads_back_as_the_same_double(kind: Quantity, value: float) -> None:
    number, unit = kind.format(value).split(" ")
    assert kind.parse(number, unit) == value
