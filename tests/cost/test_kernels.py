"""Fused kernels and the memory by role, against plain counts on random programs."""

import random

import pytest
from hypothesis import given, settings
from support.harness.seeds import fresh
from support.programs.collectives import RANDOM
from support.programs.model_programs import (
    Kernel,
    Program,
    kernel_bytes,
    kernels,
    random_program,
    run,
)

import collir
from collir.cost.programs.critical import time_shares
from collir.cost.programs.local_steps import LocalStep
from collir.cost.programs.simulate import simulate
from collir.cost.programs.simulation import Simulation

LAUNCH = 500.0


def simulated(text: str) -> Simulation:
    [simulation] = simulate(collir.parse(text))
    return simulation


def check_kernels(program: Program) -> int:
    """Check the kernels of a program, and return the number of those of several steps."""
    simulation = simulated(program.text())
    forms = {n: form for n, (form, _) in program.arguments.items()}
    forms |= {step.name: step.form for step in program.steps}
    listed = kernels(program.steps, [name for name, _ in program.returned])
    assert len(listed) == len(simulation.program)
    for expected, step in zip(listed, simulation.program, strict=True):
        if not isinstance(expected, Kernel):
            assert step.loop and step.result == expected.name
            inner = {s.name: s.form for s in expected.body}
            inner |= {f"c_{expected.name}": "wide", f"w_{expected.name}": "weight"}
            alone = kernels(expected.body, expected.yields)
            seconds = sum(
                LAUNCH + kernel_bytes(kernel, inner)
                for kernel in alone
                if isinstance(kernel, Kernel) and kernel.last.op != "all_reduce"
            )
            local = [s for s in step.loop.body.program if isinstance(s.does, LocalStep)]
            assert sum(s.task.time for s in local) == pytest.approx(seconds)
            continue
        assert step.result == expected.last.name
        if isinstance(step.does, LocalStep):
            assert step.task.time == pytest.approx(LAUNCH + kernel_bytes(expected, forms))
            assert {*step.does.inside} == {s.name for s in expected.steps[:-1]}
    shares = time_shares(simulation)
    assert sum(share.time for share in shares) == pytest.approx(simulation.time)
    assert {share.cause for share in shares} <= {"launch", "memory", "local", "transfer", "latency"}
    return sum(isinstance(kernel, Kernel) and len(kernel.steps) > 1 for kernel in listed)


def check_memory(program: Program) -> bool:
    """Check the memory of a program; return whether its peak is in a loop."""
    simulation = simulated(program.text())
    size, name, uses = run(program).peak()
    peak = simulation.peak_on(0)
    assert simulation.peak == peak.size == size
    assert {str(use): held for use, held in peak.uses.items() if held} == uses
    series = [(time, sum(held.values())) for time, held in simulation.memory_by_use]
    assert series == simulation.memory
    body, place = simulation, peak
    while place.step is not None and place.step >= 0 and (loop := body.steps[place.step].loop):
        if loop.peak.step is None:  # the whole loop is as full
            return True
        body, place = loop.body, loop.peak
    if place.step is not None and place.step >= 0:
        assert body.steps[place.step].result == name
    return body is not simulation


@settings(max_examples=15, deadline=None)
@given(rng=RANDOM)
def test_kernels_and_memory_are_those_of_plain_counts(rng: random.Random) -> None:
    program = random_program(rng)
    check_kernels(program)
    check_memory(program)


def test_random_programs_have_all_that_is_counted() -> None:
    programs = [random_program(fresh("kernels", number)) for number in range(25)]
    assert sum(map(check_kernels, programs)) > 3
    assert sum(map(check_memory, programs)) > 0


IN_PLACE = """
machine @box {
  device { compute f32 = 1e18 FLOP/s; memory = 1 TB @ 1 B/s }
  level gpu[2] { port = 1 GB/s, latency = 1 us }
}
mesh @m on @box { data = gpu:2 }

func @f(%x: f32[8@data, 6], %s: f32[8@data, 6] state)
    -> (f32[8@data, 6], f32[8@data, 6] state) on @m {
  %v = sum %s dims [1] keepdims
  %a = sub %x, %v
  %b = maximum %a, %s
  %y = softmax %s dims [1]
  %new = maximum %s, %b
  return %y, %new
}
"""


def test_a_state_is_overwritten_by_a_kernel_that_repeats_another_operand() -> None:
    simulation = simulated(IN_PLACE)
    held = simulation.memory_by_use[-1][1]
    assert {str(use): size for use, size in held.items()}["optimiser state"] == 4 * 4 * 6


CONSTANTS = """
machine @box {
  device { compute f32 = 1e18 FLOP/s; memory = 1 TB @ 1 B/s; launch = 500 s }
  level gpu[2] { port = 1 GB/s, latency = 1 us }
}
mesh @m on @box { data = 2 }

func @f(%x: f32[8@data, 6]) -> (f32[8@data, 6], f32[8@data, 6], f32[8@data, 6]) on @m {
  %one = constant value 1 to f32[6]
  %i = iota dim 0 to i32[6]
  %c = cast %i to f32
  %a = mul %x, %one
  %s = softmax %a dims [1]
  %b = mul %s, %c
  %k = constant value 2 to f32[8@data, 6]
  %t = softmax %k dims [1]
  %wide = broadcast_to %one to f32[8@data, 6]
  return %b, %t, %wide
}
"""


def test_constants_are_made_again_where_maps_read_them() -> None:
    """Those of a softmax, and results, are written; maps read their other operand alone."""
    simulation = simulated(CONSTANTS)
    times = {step.result: step.task.time - LAUNCH for step in simulation.program}
    size = 4.0 * 4 * 6
    assert times == {
        "a": 2 * size,
        "s": 2 * size,
        "b": 2 * size,
        "k": size,
        "t": 2 * size,
        "wide": size,
    }
    assert simulation.peak == 4 * size  # %x and %b, then %k and %t, or %t and %wide
