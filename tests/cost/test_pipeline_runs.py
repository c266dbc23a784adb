"""Runs of pipelines: against a simulation by events, and the closed forms of the literature."""

import random
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cost.pipeline_events import random_graph, random_schedule, simulated
from support.programs.collectives import RANDOM

from collir.cost.programs.pipelines import (
    KeptActivations,
    PipelineRun,
    held_activations,
    run_pipeline,
)
from collir.layout.pipelines.rules import RULES
from collir.layout.pipelines.schedule import Schedule, problems
from collir.layout.pipelines.tasks import Task, TaskGraph, parse_task


def run(
    name: str, places: int, microbatches: int, chunks: int | None = None, **seconds: float
) -> PipelineRun:
    """Run a rule where each task of a kind takes the given time; W are tasks if they have one."""
    rule, splits = RULES[name], "W" in seconds
    graph = rule.graph(places, chunks, splits)
    schedule = rule.schedule(places, microbatches, chunks, splits)
    return run_pipeline(schedule, graph, {part: seconds[part[0]] for part in graph.places})


def peaks(run: PipelineRun) -> list[float]:
    return [run.peak(place) for place in range(run.schedule.places)]


def inner_bubbles(run: PipelineRun) -> tuple[float, ...]:
    """Return the seconds that each place is idle between its first and its last task."""
    rows = zip(run.starts, run.ends, run.busy, strict=True)
    return tuple(ends[-1] - starts[0] - busy if starts else 0.0 for starts, ends, busy in rows)


# --- against a simulation -----------------------------------------------------------------------


@given(RANDOM, st.integers(1, 4), st.integers(1, 6), st.integers(1, 6))
def test_equal_to_a_simulation(
    rng: random.Random, places: int, chunks: int, microbatches: int
) -> None:
    graph = random_graph(rng, places, chunks)
    schedule = random_schedule(rng, graph, microbatches)
    assert not problems(schedule, graph)
    durations = {part: rng.choice([0, 1, 2, 3, 7]) for part in graph.places}
    sends = {edge: rng.choice([0, 1, 5]) for edge in graph.edges if rng.random() < 0.8}
    times = simulated(schedule, graph, durations, sends)
    pipeline = run_pipeline(schedule, graph, durations, sends)
    for order, starts, ends in zip(schedule.orders, pipeline.starts, pipeline.ends, strict=True):
        assert list(zip(starts, ends, strict=True)) == [times[task] for task in order]
    assert pipeline.time == max(end for _, end in times.values())
    for place, order in enumerate(schedule.orders):
        compare_held(pipeline, place, order, graph, times)
        work = sum(durations[task.part] for task in order)
        assert pipeline.busy[place] == work
        assert pipeline.bubbles[place] == pipeline.time - work


def compare_held(
    pipeline: PipelineRun,
    place: int,
    order: tuple[Task, ...],
    graph: TaskGraph,
    times: dict[Task, tuple[int, int]],
) -> None:
    """Count what is kept behind each task from the sets of tasks that have begun or ended."""
    kept = {chunk: KeptActivations(3 + chunk, 1 + chunk) for _, chunk in graph.places}
    moments, amounts = pipeline.held(place, kept)
    assert moments.tolist() == [moment for task in order for moment in times[task]]
    for index, _ in enumerate(order):
        begun, ended = set(order[: index + 1]), set(order[:index])
        for done, amount in ((ended, amounts[2 * index]), (begun, amounts[2 * index + 1])):
            assert amount == sum(
                held_of(task, done, kept[task.chunk], graph) for task in begun if task.kind == "F"
            )
    assert pipeline.peak(place, kept) == amounts.max(initial=0)


def held_of(task: Task, done: set[Task], kept: KeptActivations, graph: TaskGraph) -> float:
    """Return what is kept of a microbatch whose F has begun, when some tasks have ended."""
    backward, weights = task._replace(kind="B"), task._replace(kind="W")
    if backward not in done:
        return kept.until_backward
    return 0 if weights.part not in graph.places or weights in done else kept.until_weights


def test_deadlocks_are_errors() -> None:
    orders = ("B0.0 F0.0", "F1.0 B1.0")
    schedule = Schedule(tuple(tuple(map(parse_task, order.split())) for order in orders), 1, False)
    graph = RULES["1f1b"].graph(2)
    with pytest.raises(ValueError, match="the schedule deadlocks: B0"):
        run_pipeline(schedule, graph, dict.fromkeys(graph.places, 1.0))


def test_what_is_kept_without_later_tasks() -> None:
    """Without B it is kept until W, and without both until the end of F."""
    orders = [[parse_task(text) for text in ("F0.0", "F1.0", "W1.0")]]
    kept = {0: KeptActivations(5, 1), 1: KeptActivations(7, 2)}
    assert held_activations(orders, 0, kept).tolist() == [5, 0, 7, 7, 7, 0]


# --- closed forms -------------------------------------------------------------------------------

SIZES = [(p, k) for p in (1, 2, 3, 4, 6, 8, 13) for k in (2 * p, 2 * p + 1, 3 * p, 5 * p + 2)]

TIMES = st.tuples(*[st.integers(1, 50)] * 3)


@given(st.sampled_from(SIZES), TIMES)
def test_gpipe_with_any_times(size: tuple[int, int], seconds: tuple[int, int, int]) -> None:
    (places, count), (forward, backward, weights) = size, seconds
    whole = run("gpipe", *size, F=forward, B=backward + weights)
    assert whole.time == (count + places - 1) * (forward + backward + weights)
    assert peaks(whole) == [count] * places


@given(st.sampled_from(SIZES), TIMES)
def test_1f1b_with_any_times(size: tuple[int, int], seconds: tuple[int, int, int]) -> None:
    (places, count), (forward, backward, weights) = size, seconds
    step = forward + backward + weights
    whole = run("1f1b", *size, F=forward, B=backward + weights)
    assert whole.time == (count + places - 1) * step
    assert peaks(whole) == [min(count, places - place) for place in range(places)]
    split = run("1f1b", *size, F=forward, B=backward, W=weights)
    assert split.time == count * step + (places - 1) * (forward + backward)
    assert peaks(split) == peaks(whole)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("chunks", [1, 2, 3, 5])
def test_interleaved(size: tuple[int, int], chunks: int) -> None:
    places, count = size[0], size[1] // size[0] * size[0]
    whole = run("interleaved", places, count, chunks, F=1, B=2)  # of a chunk: 1 / v of a stage
    assert whole.time == count * 3 * chunks + (places - 1) * 3
    assert peaks(whole)[0] == places * chunks + places - 1


@given(st.sampled_from(SIZES), TIMES)
def test_zero_bubble(size: tuple[int, int], times: tuple[int, int, int]) -> None:
    """The bubbles are those of the table wherever W takes no longer than F and B."""
    places, _ = size
    weights, forward, backward = min(times), times[0], times[1]
    first = run("zb-h1", *size, F=forward, B=backward, W=weights)
    assert first.bubbles == ((places - 1) * (forward + backward - weights),) * places
    assert peaks(first) == [places] * places
    second = run("zb-h2", *size, F=forward, B=backward, W=weights)
    assert max(inner_bubbles(second)) == (places - 1) * (forward + backward - 2 * weights)
    assert peaks(second)[0] == 2 * places - 1


@pytest.mark.parametrize("size", SIZES)
def test_zb_h2_without_a_bubble(size: tuple[int, int]) -> None:
    places, count = size
    second = run("zb-h2", *size, F=1, B=1, W=1)
    assert inner_bubbles(second) == (0,) * places
    assert second.time == 3 * count + places - 1


@pytest.mark.parametrize("size", SIZES)
def test_zb_v(size: tuple[int, int]) -> None:
    """Tasks of a chunk take half as long as those of a stage, and keep half as much."""
    places, count = size
    both = run("zb-v", *size, F=1, B=1, W=1)
    assert inner_bubbles(both) == (0,) * places
    assert both.time == 6 * count + places - 1
    assert peaks(both) == [2 * places] * places


@pytest.mark.parametrize("places", [2, 4, 8, 12])
@pytest.mark.parametrize("pairs", [0, 1, 5])
def test_dualpipe(places: int, pairs: int) -> None:
    """Results of F are sent before the B beside it: the bubble is less than where they overlap."""
    count = 2 * (places + pairs)
    both = run("dualpipe", places, count, F=1, B=1, W=1)
    assert both.time == 3 * count + places / 2 - 1
    assert peaks(both) == [places + 1] * places


@pytest.mark.parametrize("places", [2, 4, 8, 12])
@pytest.mark.parametrize("pairs", [0, 1, 5])
def test_dualpipe_with_overlap(places: int, pairs: int) -> None:
    """Where an F and a B beside it are one block FB, the bubble is that of DeepSeek's report.

    A B whose W follows is B' = B + W; blocks take as long as their tasks one after the other.
    """
    schedule = RULES["dualpipe"].schedule(places, 2 * (places + pairs))
    orders = [blocks_of(schedule, place) for place in range(places)]
    overlapped, backward, weights = 3, 2, 1
    bubble = (places / 2 - 1) * (overlapped + backward - 3 * weights)
    assert block_time(orders, RULES["dualpipe"].graph(places)) == 3 * 2 * (places + pairs) + bubble


def blocks_of(schedule: Schedule, place: int) -> list[list[Task]]:
    """Return the tasks of a place of DualPipe in blocks, those that overlap in one."""
    order, inner = schedule.orders[place], abs(schedule.places - 1 - 2 * place) // 2
    outer = schedule.places // 2 - inner - 1
    alone = 2 * inner + 2 * (outer + 1) + 3 * inner
    pairs = schedule.microbatches - schedule.places + outer + 1
    first = [1] if inner == 0 else []  # the first pair of the middle places does not overlap
    sizes = [1] * alone + (first + [2 if first else 3] + [3] * (2 * pairs - 1)) + [2, 3] * inner
    blocks: list[list[Task]] = []
    tasks = iter(order)
    for size in sizes:
        blocks.append(list(islice(tasks, size)))
    for task in tasks:
        whole = blocks[-1] == [task._replace(kind="B")] and task.kind == "W"
        blocks[-1:] = [[*blocks[-1], task]] if whole else [blocks[-1], [task]]
    return blocks


def block_time(orders: list[list[list[Task]]], graph: TaskGraph) -> float:
    """Return the time of blocks whose results are there when a block ends; a task takes 1 s."""
    ended: dict[Task, float] = {}
    clocks, left = [0.0] * len(orders), [iter(order) for order in orders]
    heads = [next(blocks, None) for blocks in left]
    while any(heads):
        for place, block in enumerate(heads):
            needed = {
                Task(*part, task.microbatch)
                for task in block or ()
                for part in graph.needs[task.part]
            } - set(block or ())
            if block and needed <= ended.keys():
                start = max([clocks[place], *(ended[task] for task in needed)])
                clocks[place] = start + len(block)
                ended |= dict.fromkeys(block, clocks[place])
                heads[place] = next(left[place], None)
    return max(clocks)


def test_many_tasks() -> None:
    graph = RULES["dualpipe"].graph(64)
    schedule = RULES["dualpipe"].schedule(64, 512)
    assert sum(map(len, schedule.orders)) == 98_304
    seconds = {part: float(n) for n, part in enumerate(graph.places, 1)}
    assert np.isfinite(run_pipeline(schedule, graph, seconds).time)
