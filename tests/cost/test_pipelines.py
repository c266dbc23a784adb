"""Tests of simulated pipelines against the closed forms of the literature and the evaluator."""

import random

import pytest
from hypothesis import given, settings
from support.programs.collectives import RANDOM
from support.programs.timed_pipelines import written

import collir
from collir.cost.programs.pipelines import run_pipeline
from collir.cost.programs.simulation import Simulation
from collir.cost.programs.stages import stages_of
from collir.layout.pipelines.rules import RULES


def simulated(text: str) -> Simulation:
    """Return the simulation of the function with the pipeline."""
    [simulation] = collir.simulate(collir.parse(text))
    return simulation


NAMES = [name for name in RULES if name != "dualpipe"]


@pytest.mark.turns
@pytest.mark.parametrize("name", RULES)
@settings(max_examples=3)
@given(rng=RANDOM)
def test_any_times(name: str, rng: random.Random) -> None:
    """With free sends, a simulation takes the time of the evaluator, whatever tasks take."""
    rule, places = RULES[name], rng.choice([2, 4])
    microbatches = places * rng.randint(2, 6) * rule.directions
    graph = rule.graph(places)
    durations = {part: rng.uniform(1e-3, 1.0) for part in graph.places}
    count = rule.iterations(microbatches)
    simulation = simulated(written(graph, durations, count, name))
    run = run_pipeline(rule.schedule(places, microbatches), graph, durations)
    assert simulation.time == pytest.approx(run.time, rel=1e-6)
    [pipeline] = stages_of(simulation)
    for place, stage in enumerate(pipeline.stages):
        assert stage.idle == pytest.approx(run.bubbles[place], rel=1e-4, abs=1e-6)
        assert stage.in_flight == run.peak(place)


BUBBLES = {"gpipe": 3, "1f1b": 3, "interleaved": 3 / 2, "zb-h1": 1, "zb-v": 1 / 2}
"""The bubble for each place but one, in F, where F = B = W; of zb-v that until the last place
starts, as there is none between tasks."""


@pytest.mark.turns
@pytest.mark.parametrize("name", BUBBLES)
@pytest.mark.parametrize("places", [2, 4, 8])
def test_closed_forms(name: str, places: int) -> None:
    """The bubble is that of the literature where F = B = W = 1 ms, and B and W may be one task."""
    rule = RULES[name]
    graph = rule.graph(places)
    each = 1e-3 / max(1, len(rule.chunk_places(places)) // places)
    whole = {"F": each, "B": each if rule.splits[0] else 2 * each, "W": each}
    simulation = simulated(
        written(graph, {part: whole[part[0]] for part in graph.places}, 2 * places, name)
    )
    [pipeline] = stages_of(simulation)
    bubble = BUBBLES[name] * (places - 1) * 1e-3
    assert pipeline.stages[0].idle == pytest.approx(bubble, abs=1e-6)


@settings(max_examples=5)
@given(rng=RANDOM)
def test_sends_take_time(rng: random.Random) -> None:
    """Sends of 4 MB take 1 ms; places that wait for them wait no less than the evaluator says."""
    name = rng.choice(NAMES)
    rule, places = RULES[name], 4
    graph = rule.graph(places)
    durations = {part: rng.uniform(1e-3, 4e-3) for part in graph.places}
    text = written(graph, durations, 8, name, port="4 GB/s", size=1_000_000)
    sends = {edge: 1e-3 for edge in graph.edges if graph.places[edge[0]] != graph.places[edge[1]]}
    run = run_pipeline(rule.schedule(places, 8), graph, durations, sends)
    simulation = simulated(text)
    assert simulation.time >= run.time * (1 - 1e-6)
    assert simulation.time <= run.time + sum(sends.values()) * 8


def test_memory_in_flight() -> None:
    """A place keeps what F has made until B: 1f1b keeps P - s of it, and gpipe all."""
    rule, places, size = RULES["1f1b"], 4, 1_000_000
    graph = rule.graph(places)
    durations = dict.fromkeys(graph.places, 1e-3)
    for name, kept in (("1f1b", [4, 3, 2, 1]), ("gpipe", [8, 8, 8, 8])):
        simulation = simulated(written(graph, durations, 8, name, size=size))
        [pipeline] = stages_of(simulation)
        assert [stage.in_flight for stage in pipeline.stages] == kept
        inputs = 8 * 4 * size
        bytes_of = 4 * size
        first = pipeline.stages[0].memory
        assert first >= 2 * inputs + kept[0] * bytes_of
        assert first <= 2 * inputs + (kept[0] + 3) * bytes_of
