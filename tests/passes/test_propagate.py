"""Functions whose layouts were chosen compute what they did, where their types say."""

import random

import numpy as np
from auto import random_auto
from checks import functions_of
from differentiated import inputs_of, on_all_devices, on_one_device
from hypothesis import given, settings
from programs import RANDOM

from collir.dialects.tensor import dist_type
from collir.ir.auto import is_auto
from collir.ir.verification import verify
from collir.semantics.validation.validate import Outcome, compare_modules
from collir.synthesis.propagation.propagate import propagate


@settings(max_examples=24)
@given(RANDOM)
def test_the_meaning_stays(rng: random.Random) -> None:
    module = random_auto(rng)
    if module is None:
        return
    (function,) = functions_of(module)
    verify(module)
    tensors = inputs_of(function, 0)
    expected = on_one_device(function, tensors)
    written = [dist_type(argument) for argument in function.args]
    before = module.clone()
    propagate(module)
    verify(module)
    for comparison in compare_modules(before, module):
        assert comparison.verdict.outcome is not Outcome.DIFFERENT
    assert not is_auto(function)
    for before, argument in zip(written, function.args, strict=True):
        assert not before.axes or dist_type(argument) == before
    actual = on_all_devices(module, function, tensors)
    for x, y in zip(actual, expected, strict=True):
        assert x.shape == y.shape
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9)
