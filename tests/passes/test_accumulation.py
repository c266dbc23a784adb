"""Sums over iterations that stay partial until a loop ends are the sums of one device."""

import random
from collections.abc import Callable

import numpy as np
from hypothesis import given, settings
from support.programs.collectives import RANDOM
from support.semantics.checks import functions_of
from support.semantics.differentiated import inputs_of, on_all_devices, on_one_device
from xdsl.dialects.builtin import ModuleOp

import collir
from collir.dialects.nested import RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.verification import verify
from collir.semantics.validation.validate import Outcome, compare_modules
from collir.synthesis.propagation.propagate import PropagationRules, make_explicit, propagate

HEAD = """
machine @box { level gpu[4] { port = 100 GB/s, latency = 3 us } }
mesh @m on @box { data = gpu:2, model = gpu:2 }
"""

ADDED = ("add {sum}, {new}", "add {new}, {sum}", "sub {sum}, {new}", "sub {new}, {sum}")
"""Ways to add to a sum."""

LINEAR = ("scale {0} by 0.5", "mul {0}, %k", "neg {0}")
"""What may happen to a part of a sum."""

OTHER = ("exp {0}", "add {0}, %k", "relu {0}")
"""What needs the whole sum."""


def random_sum(rng: random.Random, result: str = "4, 4") -> tuple[str, bool]:
    """Return a function that adds up products over the iterations of a loop, with a layout of the
    sum, and whether it can reduce them behind it."""
    lines: list[str] = []
    once = True

    def changed(value: str, name: str) -> str:
        nonlocal once
        linear = rng.random() < 0.8
        once = once and linear
        return step(rng.choice(LINEAR if linear else OTHER).format(value), name)

    def step(text: str, name: str) -> str:
        lines.append(f"    %{name} = {text}")
        return f"%{name}"

    total, is_used = "%sum", rng.random() < 0.2
    if rng.random() < 0.5:
        total = changed(total, "old")
    for number in range(rng.randint(1, 2)):
        new = step('einsum "b i, b j -> i j" %x, %x', f"product{number}")
        if rng.random() < 0.6:
            new = changed(new, f"changed{number}")
        total = step(rng.choice(ADDED).format(sum=total, new=new), f"total{number}")
    norm = step(f"sum {total if is_used else '%x'} dims [0, 1]", "norm")
    axes = rng.choice(["data", "model", "(data, model)"])
    start = rng.choice(["%start", "%zero"]) if "@" not in result else "%zero"
    text = f"""{HEAD}
func @f(%x: f64[3, 8@{axes}, 4], %start: f64[4, 4], %k: f64[4, 4])
    -> (f64[{result}], f64[3]) on @m auto {{
  %zero = constant value 0 to f64[4, 4]
  %y, %norms = repeat 3 carry(%sum = {start}) slice(%x = %x) with(%k = %k) {{
{chr(10).join(lines)}
    yield {total}, {norm}
  }}
  return %y, %norms
}}
"""
    return text, once and not is_used


def reductions(module: ModuleOp) -> int:
    """Return how often matrices are sent."""
    return sum(
        loop.times if isinstance(loop := op.parent_op(), RepeatOp) else 1
        for op in module.walk()
        if isinstance(op, DistOp) and op.kind.sends and len(dist_type(op.result).dims) == 2
    )


@settings(max_examples=15)
@given(RANDOM)
def test_the_sum_stays(rng: random.Random) -> None:
    text, once = random_sum(rng)
    module = collir.parse(text)
    check(module, make_explicit)
    assert (reductions(module) == 1) == once


@settings(max_examples=15)
@given(RANDOM)
def test_the_sum_stays_whole(rng: random.Random) -> None:
    text, once = random_sum(rng, rng.choice(["4@data, 4", "4, 4@data", "4@model, 4@data"]))
    module = collir.parse(text)
    check(module, lambda x: propagate(x, PropagationRules(reduce_once=True)))
    inside = [op for op in module.walk() if isinstance(op.parent_op(), RepeatOp)]
    reduced = [op for op in inside if isinstance(op, DistOp) and op.kind.reduces]
    is_reduced = any(len(dist_type(op.result).dims) == 2 for op in reduced)
    assert not (once and is_reduced) or ", %k\n" in text  # blocks of %k need those of the sum


def check(module: ModuleOp, change: Callable[[ModuleOp], None]) -> None:
    """Check that a change of a module computes the same, on one device and on all."""
    (function,) = functions_of(module)
    tensors = inputs_of(function, 0)
    expected = on_one_device(function, tensors)
    before = module.clone()
    change(module)
    verify(module)
    for comparison in compare_modules(before, module):
        assert comparison.verdict.outcome is not Outcome.DIFFERENT
    for x, y in zip(on_all_devices(module, function, tensors), expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9)
