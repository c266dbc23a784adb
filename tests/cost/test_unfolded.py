"""The steps that ranks run one by one take the time of the simulation, and fit together."""

import random
from collections import defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from hypothesis import given, settings
from support.programs.collectives import RANDOM, random_module
from support.programs.pipelines import named_options, random_pipeline
from xdsl.dialects.builtin import ModuleOp

import collir
from collir.cost.model import CostModel
from collir.cost.programs import unfolded
from collir.cost.programs.communicators import members
from collir.cost.programs.simulate import (
    functions_that_run,
    simulate_function,
)
from collir.cost.programs.simulation import Simulation
from collir.cost.programs.unfolded import ActivityRole, RankActivity, RankPrograms, UnfoldedError
from collir.dialects.machine import meshes_remembered
from collir.ir.diagnostics import DiagnosticError

EXAMPLES = Path(__file__).parents[2] / "examples"


def programs_of(module: ModuleOp) -> list[RankPrograms]:
    with meshes_remembered():
        return [RankPrograms(simulate_function(f, CostModel())) for f in functions_that_run(module)]


def partners(programs: RankPrograms, rank: int, part: RankActivity) -> object:
    """Return what the parts of a step that start together have in common."""
    if part.role is ActivityRole.COLLECTIVE:
        return part.serial, members(part.collective, rank)
    targets, sources = programs.peers(part.collective, rank)
    ends = (rank, *targets) if part.role is ActivityRole.SEND else (*sources, rank)
    return part.serial, "message", ends


def replayed(programs: RankPrograms) -> float:
    """Return the time of all ranks if nothing shares a port: a longest chain of their parts."""
    event_of: dict[tuple[int, int], object] = {}
    needed: dict[object, set[tuple[int, int]]] = defaultdict(set)
    seconds: dict[object, float] = {}
    for rank in range(programs.ranks):
        for number, part in enumerate(programs.parts(rank)):
            local = part.role is ActivityRole.LOCAL
            event = (rank, number) if local else partners(programs, rank, part)
            event_of[rank, number], seconds[event] = event, part.seconds
            needed[event].update((rank, n) for n in (*part.data, *part.control))
    graph = {event: {event_of[x] for x in before} for event, before in needed.items()}
    ends: dict[object, float] = {}
    for event in TopologicalSorter(graph).static_order():  # raises where ranks wait for each other
        ends[event] = max((ends[x] for x in graph[event]), default=0.0) + seconds[event]
    return max(ends.values(), default=0.0)


def check(programs: RankPrograms) -> None:
    simulation = programs.simulation
    for rank in range(programs.ranks):
        for number, part in enumerate(programs.parts(rank)):
            assert all(n < number for n in (*part.data, *part.control))
            assert not {*part.data} & {*part.control}
            if part.role is ActivityRole.COLLECTIVE:
                assert rank in members(part.collective, rank)
    time = replayed(programs)
    assert time <= simulation.timeline.time * (1 + 1e-9), (time, simulation.timeline.time)
    if is_alone(simulation):
        assert time == pytest.approx(simulation.timeline.time, rel=1e-9), "alone"


def is_alone(simulation: Simulation) -> bool:
    """Return whether all ranks wait for each step, in loops too, and send no listed messages."""
    if simulation.overlaps or len(simulation.places) > 1:
        return False
    if any(step.sent and step.sent.collective.listed for step in simulation.program):
        return False
    return all(step.loop is None or is_alone(step.loop.body) for step in simulation.program)


@given(rng=RANDOM)
@settings(max_examples=30)
def test_ranks_take_the_time_of_the_simulation(rng: random.Random) -> None:
    module = random_module(rng, functions=2, steps=8, models=rng.random() < 0.3, weights=0.2)
    try:
        made = programs_of(module)
    except DiagnosticError:  # a mesh that is on no levels
        return
    for programs in made:
        check(programs)


@given(rng=RANDOM)
@settings(max_examples=6)
def test_pipelines_are_their_tasks_and_messages(rng: random.Random) -> None:
    text, options, _ = random_pipeline(rng)
    module = collir.parse(text)
    try:
        collir.run_passes(module, f"pipeline{{{options} {rng.choice([*named_options()])}}}")
    except DiagnosticError:  # a schedule that does not fit the places
        return
    for programs in programs_of(module):
        check(programs)


def test_steps_of_roots_are_those_of_their_ranks() -> None:
    """What only coordinate 0 holds, only coordinate 0 computes."""
    [programs] = programs_of(
        collir.parse("""
machine @c { device { memory = 1 GB @ 1 GB/s } level gpu[2] { port = 8 GB/s, latency = 3 us } }
mesh @m on @c { data = gpu:2 }
func @f(%x: f32[64] partial(sum: data)) -> f32[64] on @m {
  %r = reduce %x over data
  %s = scale %r by 2.0
  %b = broadcast %s over data
  return %b
}
""")
    )
    kinds = [[part.step.kind for part in programs.parts(rank)] for rank in (0, 1)]
    assert kinds == [["reduce", "scale", "broadcast"], ["reduce", "broadcast"]]


def test_too_many_steps_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    [programs] = programs_of(collir.parse(EXAMPLES / "stages.coll"))
    programs.check()
    monkeypatch.setattr(unfolded, "MOST", 20)  # 17 on each of 8 ranks
    with pytest.raises(UnfoldedError):
        programs.check()
    monkeypatch.setattr(unfolded, "MOST", 10)
    [programs] = programs_of(collir.parse(EXAMPLES / "stages.coll"))
    with pytest.raises(UnfoldedError):
        programs.parts(0)
