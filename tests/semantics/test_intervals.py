"""Intervals of numpy's functions hold the values of all numbers in their operands."""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from programs import RANDOM

from collir.semantics.reference.intervals import Intervals

ONE: list[Any] = [np.positive, np.negative, np.exp, np.log, np.sqrt, np.tanh, np.sin, np.cos]
COMPARISONS: list[Any] = [
    np.greater,
    np.greater_equal,
    np.less,
    np.less_equal,
    np.equal,
    np.not_equal,
]
TWO: list[Any] = [
    *(np.add, np.subtract, np.multiply, np.true_divide, np.maximum, np.minimum),
    *COMPARISONS,
]


@given(rng=RANDOM)
@settings(max_examples=36)
def test_an_interval_holds_the_values_inside(rng: random.Random) -> None:
    function = rng.choice([*ONE, *TWO])
    count = 2 if function in TWO else 1
    lows = [np.array([rng.choice([0.0, 1.0, -3.0, rng.uniform(-9, 9)])]) for _ in range(count)]
    highs = [x + rng.choice([0.0, 0.1, 1.0, 3.0, 7.0, 1e9]) * rng.random() for x in lows]
    pairs = zip(lows, highs, strict=True)
    result: Any = function(*(Intervals(x, y, np.dtype(np.float64)) for x, y in pairs))
    for part in np.linspace(0, 1, 9):
        with np.errstate(all="ignore"):
            value = function(*(x + part * (y - x) for x, y in zip(lows, highs, strict=True)))
        if np.isfinite(value).all():
            assert (result.low <= value).all() and (value <= result.high).all()


@pytest.mark.parametrize("function", [np.sin, np.cos])
def test_the_sine_of_an_interval_is_no_wider_than_needed(function: Any) -> None:
    low, width = np.linspace(-10, 10, 101), 0.25
    result: Any = function(Intervals(low, low + width, np.dtype(np.float64)))
    every = np.array([function(low + part * width) for part in np.linspace(0, 1, 200)])
    assert np.abs(result.low - every.min(axis=0)).max() < 1e-5
    assert np.abs(result.high - every.max(axis=0)).max() < 1e-5
