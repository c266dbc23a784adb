"""Tests of overlap: the times of collectives beside computations, which never get longer."""

import random

import pytest
from hypothesis import given, settings
from support.programs.collectives import RANDOM, random_module

import collir
from collir.cost.programs.simulate import simulate
from collir.cost.programs.simulation import Simulation
from collir.dialects.operation import DistOp
from collir.ir.functions import functions_of
from collir.synthesis.scheduling.ordering import work_of

MACHINE = """\
machine @c {{
  device {{ compute f32 = 1 TFLOP/s; memory = {memory} @ 1 TB/s }}
  level node[2] {{ port = 8 GB/s, latency = 20 us }}
  level gpu[4]  {{ port = 270 GB/s, latency = 3 us }}
}}
mesh @m on @c {{ data = node:2, model = gpu:4 }}
"""


def overlapped(body: str, memory: str = "1 GB") -> Simulation:
    """Return the simulation of a function after the pass."""
    module = collir.parse(MACHINE.format(memory=memory) + body)
    collir.run_passes(module, "overlap")
    [simulation] = simulate(module)
    return simulation


BACKWARD = """\
func @f(%x: f32[4194304] partial(sum: data), %y: f32[4194304] partial(sum: data))
    -> (f32[4194304], f32[4194304]) on @m {
  %a = compute %x flops 1e10
  %b = all_reduce %a over data
  %c = compute %y, %x flops 1e10
  %d = all_reduce %c over data
  return %b, %d
}
"""


def test_a_gradient_is_reduced_while_the_next_is_computed() -> None:
    simulation = overlapped(BACKWARD)
    assert simulation.time == pytest.approx(20e-3 + simulation.steps[-1].task.time)


def test_levels_work_beside_each_other() -> None:
    """Check two all_reduces over different levels, without computation."""
    simulation = overlapped("""\
func @f(%x: f32[4194304] partial(sum: data), %y: f32[4194304] partial(sum: model))
    -> (f32[4194304], f32[4194304]) on @m {
  %a = all_reduce %x over data
  %b = all_reduce %y over model
  return %a, %b
}
""")
    assert simulation.time < sum(step.task.time for step in simulation.steps) * 0.999


@pytest.mark.parametrize("elements", [20_000_000, 4_500_000])
def test_what_is_computed_soon_and_sent_for_long_comes_first(elements: int) -> None:
    """Johnson's rule: the second gradient is sent, for 40 or 9 ms, while the first is computed."""
    found = overlapped(
        """\
func @f(%x: f32[2000000] partial(sum: data), %y: f32[ELEMENTS] partial(sum: data))
    -> (f32[2000000], f32[ELEMENTS]) on @m {
  %a = compute %x flops 4.5e10
  %b = all_reduce %a over data
  %c = compute %y flops 1e9
  %d = all_reduce %c over data
  return %b, %d
}
""".replace("ELEMENTS", str(elements))
    )
    assert found.time == pytest.approx(50.1e-3, rel=0.01)


def test_what_does_not_fit_into_memory_stays() -> None:
    """Check that a weight is not gathered ahead if a device cannot hold two layers at once."""
    body = """\
func @f(%h: f32[1024], %v: f32[4194304@data], %w: f32[4194304@data]) -> f32[1024] on @m {
  %a = all_gather %v over data dim 0
  %b = compute %h, %a flops 4e9
  %c = all_gather %w over data dim 0
  %d = compute %b, %c flops 4e9
  return %d
}
"""
    assert overlapped(body, memory="40 MB").peak <= 40e6
    assert overlapped(body).peak > 40e6


@pytest.mark.turns
@given(rng=RANDOM)
@settings(max_examples=14)
def test_it_takes_what_was_planned_and_never_longer(rng: random.Random) -> None:
    module = random_module(rng, functions=1, steps=10, weights=0.3, nested=False)
    try:
        [before] = simulate(module)
        planned = work_of(functions_of(module)[0], before.model)
        collir.run_passes(module, "overlap")
        [after] = simulate(module)
    except collir.DiagnosticError:
        return
    assert after.time <= before.time * (1 + 1e-9)
    assert after.bound <= after.time * (1 + 1e-9)
    best, order = planned.best()
    assert sorted(order) == list(range(len(planned.ops)))
    assert planned.time(order) == best <= planned.time(range(len(planned.ops))) * 1.002
    is_async = any("async" in op.properties for op in module.walk() if isinstance(op, DistOp))
    if is_async and len(after.places) == 1:  # plans are of one class of devices
        assert after.time == pytest.approx(best, rel=1e-9)


def test_a_part_of_a_function_is_not_refused_for_what_ends_before_it_does() -> None:
    """Behind the loop, each value ends when it is gathered: the function fits, and these steps
    alone would not, which hold their arguments throughout."""
    big = "f32[16777216]"
    names = "abcd"
    carried = ", ".join(f"%{x}1 = %{x}" for x in names)
    body = f"""\
func @f(%h: f32[1024]) -> (f32[1024], {", ".join([big] * 4)}) on @m {{
{"".join(f"  %{x} = constant value 0.0 to f32[16777216@model]" + chr(10) for x in names)}\
  %a2, %b2, %c2, %d2 = repeat 2 carry({carried}) {{
{"".join(f"    %{x}3 = scale %{x}1 by 2" + chr(10) for x in names)}\
    yield %a3, %b3, %c3, %d3
  }}
{"".join(f"  %{x}4 = all_gather %{x}2 over model dim 0" + chr(10) for x in names)}\
  %e = compute %h flops 1e10
  return %e, %a4, %b4, %c4, %d4
}}
"""
    simulation = overlapped(body, memory="310 MB")
    assert simulation.peak <= 310e6
    assert any(not step.task.waited for step in simulation.program if step.kind == "all_gather")
