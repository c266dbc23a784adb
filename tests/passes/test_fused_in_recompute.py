"""A kernel that is computed again stays a kernel, and its reverse is one too."""

from typing import Any

import numpy as np
import pytest
from support.semantics.differentiated import inputs_of, on_all_devices

import collir
from collir.cost.programs.local_steps import LocalStep
from collir.cost.programs.simulation import Simulation
from collir.ir.functions import functions_of

PROGRAM = """
machine @box {
  device { compute f32 = 10 TFLOP/s; memory = 80 GB @ 1 TB/s }
  level gpu[2] { port = 300 GB/s, latency = 3 us }
}
mesh @m on @box { data = gpu:2 }

func @attention(%q: f32[2@data, 512, 16], %k: f32[2@data, 512, 16]) -> f32[2@data, 512, 16] on @m {
  %scores = einsum "b q d, b k d -> b q k" %q, %k
  %query = iota dim 0 to i32[512, 512]
  %key = iota dim 1 to i32[512, 512]
  %seen = less_equal %key, %query
  %low = constant value -1e30 to f32[]
  %masked = where %seen, %scores, %low
  %weights = softmax %masked dims [2]
  %y = einsum "b q k, b k d -> b q d" %weights, %k
  return %y
}

func @layer(%x: f32[2@data, 512, 16], %w: f32[16, 16]) -> f32[2@data, 512, 16] on @m {
  %q = einsum "b s d, d e -> b s e" %x, %w
  %a = tanh %x
  %o = call @attention(%q, %a) fused
  %p = einsum "b s d, d e -> b s e" %o, %w
  %z = add %x, %p
  return %z
}

func @loss(%x: f32[2@data, 512, 16], %w: f32[4, 16, 16]) -> f32[] on @m {
  %y = repeat 4 carry(%h = %x) slice(%v = %w) LOOP{
    %z = call @layer(%h, %v) CALL
    yield %z
  }
  %t = sum %y dims [0, 1, 2]
  %l = all_reduce %t over data
  return %l
}

func @step(%x: f32[2@data, 512, 16], %w: f32[4, 16, 16]) -> (f32[], f32[4, 16, 16]) on @m {
  %l, %g = gradient @loss(%x, %w) wrt %w
  return %l, %g
}
"""

SCORES = 512 * 512 * 4
"""The bytes of the scores of a sequence."""


def local_steps(simulation: Simulation) -> list[LocalStep]:
    steps: list[LocalStep] = []
    for step in simulation.program:
        if step.loop is not None:
            steps += local_steps(step.loop.body)
        elif isinstance(step.does, LocalStep):
            steps.append(step.does)
    return steps


@pytest.mark.parametrize("loop, call", [("recompute ", ""), ("", "recompute"), ("", "")])
def test_no_scores_are_in_memory(loop: str, call: str) -> None:
    text = PROGRAM.replace("LOOP", loop).replace("CALL", call)
    simulation = next(s for s in collir.simulate(collir.parse(text)) if s.name == "step")
    steps = local_steps(simulation)
    kernels = [step for step in steps if len(step.inside) > 3 and step.inner]
    again = bool(loop or call)
    assert len(kernels) == (3 if again else 2)  # forward, again for what follows, and the reverse
    assert all(step.size < SCORES for step in steps)
    assert simulation.peak < SCORES + sum(4 * n for n in (4 * 16 * 16, 12 * 512 * 16))


@pytest.mark.parametrize("loop, call", [("recompute ", ""), ("", "recompute")])
def test_what_is_computed_again_changes_nothing(loop: str, call: str) -> None:
    plain = PROGRAM.replace("LOOP", "").replace("CALL", "").replace(" fused", "")
    again = PROGRAM.replace("LOOP", loop).replace("CALL", call)
    small = [text.replace("512", "6") for text in (plain, again)]
    results = [step_of(text) for text in small]
    for x, y in zip(*results, strict=True):
        assert np.allclose(x, y, rtol=1e-4, atol=1e-5)


def step_of(text: str) -> list[Any]:
    """Return the loss and the gradient of a step, on the first device."""
    module = collir.run_passes(collir.parse(text), "differentiate")
    function = functions_of(module)[-1]
    return on_all_devices(module, function, inputs_of(function, 5))
