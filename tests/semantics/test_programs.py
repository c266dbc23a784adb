"""Longer random programs compute the same on all devices as on one."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.programs.collectives import RANDOM, random_module
from support.semantics.checks import (
    agree,
    functions_of,
    results_on_all_devices,
    results_on_one_device,
)

from collir.dialects.machine import mesh_of
from collir.ir.verification import verify


@pytest.mark.turns
@given(rng=RANDOM, steps=st.integers(3, 12))
@settings(max_examples=27)
def test_random_programs_compute_what_they_mean(rng: random.Random, steps: int) -> None:
    module = random_module(rng, functions=2, steps=steps, weights=0.4, models=rng.random() < 0.3)
    verify(module)
    for function in functions_of(module):
        results = results_on_all_devices(module, function, seed=1)
        expected = results_on_one_device(function, seed=1)
        assert agree(results, expected, mesh_of(function).devices)
