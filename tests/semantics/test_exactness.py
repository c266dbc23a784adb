"""Functions that are exact are recognised, and give the same bits in any order."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from support.programs.collectives import RANDOM, random_module
from support.semantics.checks import functions_of, results_on_all_devices, results_on_one_device

from collir.semantics.reference.exactness import exact
from collir.syntax.reader import read

HEAD = """
machine @c {
  level node[8] { port = 1 GB/s, latency = 1 us }
  level gpu[8]  { port = 1 GB/s, latency = 1 us }
}
mesh @m on @c { data = node:8 * gpu:8 }
"""


def is_exact(types: str, steps: str) -> bool:
    """Return whether a function of one argument is exact on 64 devices."""
    argument, result = types.split(" -> ")
    text = f"{HEAD}func @f(%x: {argument}) -> {result} on @m {{ {steps} return %y }}"
    (function,) = functions_of(read(text))
    return exact(function)


@pytest.mark.parametrize(
    ("types", "steps", "expected"),
    [
        ("f32[8] partial(sum: data) -> f32[8]", "%y = all_reduce %x over data", True),
        ("bf16[8] partial(avg: data.gpu) -> bf16[8]", "%y = all_reduce %x over data.gpu", True),
        ("bf16[8] partial(avg: data) -> bf16[8]", "%y = all_reduce %x over data", False),
        ("i8[8] partial(sum: data) -> i8[8]", "%y = all_reduce %x over data", True),
        ("f32[8] -> f32[8]", "%y = scale %x by 0.5", True),
        ("f32[8] -> f32[8]", "%y = scale %x by 0.1", False),
        ("f16[8] -> f16[8]", "%y = scale %x by 4096", True),
        ("i32[8] -> f32[8]", "%a = scale %x by 3 %b = cast %a to f32 %y = scale %b by 0.1", False),
        ("f32[8] -> i32[8]", "%a = scale %x by 0.7 %y = cast %a to i32", False),
        ("f32[8] -> f32[10]", "%y = pad %x dim 0 high 2 value 0.1", False),
        ("f64[8] -> bf16[8]", "%y = cast %x to bf16", True),
    ],
)
def test_examples(types: str, steps: str, expected: bool) -> None:
    assert is_exact(types, steps) == expected


def test_a_deep_program_has_an_answer() -> None:
    """Squares of squares have twice as many digits each: none is computed behind a rounding."""
    squares = " ".join(f"%x{n + 1} = mul %x{n}, %x{n}" for n in range(60))
    steps = f"%x0 = add %x, %x {squares} %y = add %x60, %x0"
    assert not is_exact("f32[8] -> f32[8]", steps)


@pytest.mark.turns
@given(rng=RANDOM)
@settings(max_examples=27)
def test_an_exact_program_gives_the_same_bits_on_all_devices_as_on_one(rng: random.Random) -> None:
    module = random_module(rng, functions=2, steps=8, weights=0.2, models=rng.random() < 0.3)
    for function in functions_of(module):
        if exact(function):
            results = results_on_all_devices(module, function, seed=3)
            expected = results_on_one_device(function, seed=3)
            for pair in zip(results, expected, strict=True):
                assert np.array_equal(*pair)
