"""Quantities: exact both ways."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collir.syntax.units import Quantity, plain

positive = st.floats(min_value=1e-30, max_value=1e30, allow_nan=False, allow_subnormal=False)


@pytest.mark.parametrize("kind", list(Quantity))
@given(value=positive)
def test_what_is_printed_reads_back_as_the_same_double(kind: Quantity, value: float) -> None:
    number, unit = kind.format(value).split(" ")
    assert kind.parse(number, unit) == value


@pytest.mark.parametrize(
    ("kind", "number", "unit", "value", "shown"),
    [
        (Quantity.BANDWIDTH, "8", "GB/s", 8e9, "8 GB/s"),
        (Quantity.BANDWIDTH, "100", "Gbit/s", 12.5e9, "12.5 GB/s"),
        (Quantity.BANDWIDTH, "100", "Gb/s", 12.5e9, "12.5 GB/s"),
        (Quantity.BANDWIDTH, "1", "GiB/s", 2.0**30, "1.073741824 GB/s"),
        (Quantity.TIME, "20", "us", 2e-5, "20 us"),
        (Quantity.TIME, "0", "s", 0.0, "0 s"),
        (Quantity.TIME, "0.7", "us", 7e-7, "700 ns"),
        (Quantity.BYTES, "40", "GiB", 40 * 2.0**30, "40 GiB"),
        (Quantity.BYTES, "40", "GB", 4e10, "40 GB"),
        (Quantity.COMPUTE, "19.5", "TFLOP/s", 1.95e13, "19.5 TFLOP/s"),
    ],
)
def test_examples(kind: Quantity, number: str, unit: str, value: float, shown: str) -> None:
    assert kind.parse(number, unit) == value
    assert kind.format(value) == shown


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (2.0, "2"),
        (1.5, "1.5"),
        (1e22, "1" + 22 * "0"),
        (1e23, "1E+23"),
        (2.0**60, "1.152921504606847E+18"),
    ],
)
def test_an_integer_that_no_double_is_keeps_its_exponent(number: float, text: str) -> None:
    assert plain(Decimal(repr(number))) == text
    assert float(text) == number
