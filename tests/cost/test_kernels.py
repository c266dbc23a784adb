"""Fused kernels and the memory by role, against plain counts on random programs."""

import random

import pytest
from hypothesis import given, settings
from model_programs import Kernel, Program, kernel_bytes, kernels, random_program, run
from programs import RANDOM
from seeds import fresh

import collir
from collir.cost.programs.simulate import simulate
from collir.cost.programs.simulation import LocalStep, Simulation

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
    return sum(isinstance(kernel, Kernel) and len(kernel.steps) > 1 for kernel in listed)


def check_memory(program: Program) -> bool:
    """Check the memory of a program; return whether its peak is in a loop."""
    simulation = simulated(program.text())
    size, name, uses = run(program).peak()
    peak = simulation.peak_on(0)
    assert simulation.peak == peak.size == size
    assert {str(use): held for use, held in peak.uses.items() if held} == uses
    body, place = simulation, peak
    while place.step is not None and place.step >= 0 and (loop := body.steps[place.step].loop):
        if loop.peak.step is None:  # the whole loop is as full
            return True
        body, place = loop.body, loop.peak
    if place.step is not None and place.step >= 0:
        assert body.steps[place.step].result == name
    return body is not simulation


@settings(max_examples=25, deadline=None)
@given(rng=RANDOM)
def test_kernels_and_memory_are_those_of_plain_counts(rng: random.Random) -> None:
    program = random_program(rng)
    check_kernels(program)
    check_memory(program)


def test_random_programs_have_all_that_is_counted() -> None:
    programs = [random_program(fresh("kernels", number)) for number in range(25)]
    assert sum(map(check_kernels, programs)) > 12
    assert sum(map(check_memory, programs)) > 0
