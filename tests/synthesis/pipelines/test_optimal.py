"""The best schedules: against all schedules of tiny works, and all rules of larger ones."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from support.cost.pipeline_events import random_graph
from support.programs.collectives import RANDOM

from collir.cost.programs.pipelines import KeptActivations
from collir.layout.pipelines.rules import RULES
from collir.layout.pipelines.schedule import problems
from collir.layout.pipelines.tasks import chain_graph
from collir.search import check
from collir.synthesis.pipelines import improve, optimal
from collir.synthesis.pipelines.candidates import candidates
from collir.synthesis.pipelines.improve import improved_schedule
from collir.synthesis.pipelines.optimal import BestSchedule, NoScheduleError, best_schedule
from collir.synthesis.pipelines.problem import SLACK, SchedulingProblem
from collir.synthesis.pipelines.work import PipelineWork


def random_work(rng: random.Random, tasks: int) -> PipelineWork:
    """Return a work of some tasks with small whole times, and memory that may be short."""
    while True:
        graph = random_graph(rng, rng.randint(1, 3), rng.randint(1, 3))
        microbatches = rng.randint(1, 4)
        if len(graph.places) * microbatches <= tasks:
            break
    durations = {part: float(rng.randint(1, 4)) for part in graph.places}
    sends = {edge: float(rng.choice([0, 0, 1, 3])) for edge in graph.edges}
    chunks = {chunk for _, chunk in graph.places}
    kept = {
        c: KeptActivations(rng.randint(1, 4), rng.randint(0, 5))
        for c in chunks
        if rng.random() < 0.7
    }
    places = max(graph.places.values()) + 1
    memory = [float(rng.randint(3, 12)) for _ in range(places)] if rng.random() < 0.7 else None
    return PipelineWork(graph, microbatches, durations, sends, kept, memory)


def least_time(work: PipelineWork) -> float | None:
    """Return the least time of all orders in which each task starts as early as it can."""
    parts = list(work.graph.places)
    best: float | None = None
    seen: set[object] = set()

    def visit(ends: dict[object, float], clocks: list[float], held: list[float]) -> None:
        nonlocal best
        state = (frozenset(ends.items()), tuple(clocks))
        if state in seen:
            return
        seen.add(state)
        if len(ends) == len(parts) * work.microbatches:
            best = max(clocks) if best is None else min(best, max(clocks))
        for part in parts:
            microbatch = sum((part, m) in ends for m in range(work.microbatches))
            needed = [(n, microbatch) for n in work.graph.needs.get(part, ())]
            if microbatch == work.microbatches or any(need not in ends for need in needed):
                continue
            place = work.graph.places[part]
            starts = [ends[need] + work.sends.get((need[0], part), 0) for need in needed]
            end = max([clocks[place], *starts]) + work.durations[part]
            levels = held_levels(work, part)
            if held[place] + max(levels) <= work.limits[place]:
                now, kept = clocks.copy(), held.copy()
                now[place], kept[place] = end, held[place] + levels[-1]
                visit({**ends, (part, microbatch): end}, now, kept)

    visit({}, [0.0] * work.places, [0.0] * work.places)
    return best


def held_levels(work: PipelineWork, part: tuple[str, int]) -> tuple[float, float]:
    """Return how much more is kept in a part, and behind it."""
    kind, chunk = part
    kept = work.kept.get(chunk, KeptActivations())
    has_backward, has_weights = (
        ("B", chunk) in work.graph.places,
        ("W", chunk) in work.graph.places,
    )
    if kind == "F":
        return kept.until_backward, kept.until_backward if has_backward or has_weights else 0.0
    if kind == "B":
        return 0.0, (kept.until_weights if has_weights else 0.0) - kept.until_backward
    return 0.0, -(kept.until_weights if has_backward else kept.until_backward)


def best_or_none(work: PipelineWork) -> BestSchedule | None:
    try:
        return best_schedule(work)
    except NoScheduleError as error:
        assert error.proven
        return None


@pytest.mark.turns
@given(RANDOM)
def test_equal_to_the_best_of_all_schedules(rng: random.Random) -> None:
    work = random_work(rng, 10)
    best, least = best_or_none(work), least_time(work)
    assert (best is None) == (least is None)
    if best is None:
        return
    assert best.proven
    assert best.time == least
    run = work.run(best.schedule)
    assert run.time == best.time
    assert work.fits(run)
    assert not problems(best.schedule, work.graph)


@given(RANDOM)
def test_bounds_and_states_keep_their_promises(rng: random.Random) -> None:
    check(SchedulingProblem(random_work(rng, 8), slack=0.0))


@pytest.mark.turns
@given(RANDOM)
def test_never_worse_than_a_rule(rng: random.Random) -> None:
    rule = RULES[rng.choice(sorted(RULES))]
    places = rng.choice([2, 3, 4])
    graph = rule.graph(places)
    durations = {part: rng.choice([1.0, 1.0, 1.5, 2.3]) for part in graph.places}
    sends = {edge: rng.choice([0.0, 0.1]) for edge in graph.edges}
    memory = [rng.uniform(2, 2 * places)] * places if rng.random() < 0.5 else None
    work = PipelineWork(graph, rng.randint(2, 2 * places), durations, sends, {}, memory)
    best = best_schedule(work, seconds=0.05)
    assert best.bound <= best.time
    assert all(best.time <= other.time * (1 + SLACK) for other in candidates(work))
    assert work.fits(work.run(best.schedule))
    assert not problems(best.schedule, graph)
    if not best.proven:
        assert best.reason
        assert best.gap > 0


@pytest.mark.parametrize("places", [2, 4, 8])
def test_rules_are_proven_where_they_are_best(places: int) -> None:
    """For equal tasks ZB-H1 is the best within its memory, and 1F1B where B and W are one."""
    graph = RULES["zb-h1"].graph(places)
    equal = dict.fromkeys(graph.places, 1.0)
    work = PipelineWork(graph, 2 * places, equal, memory=[float(places)] * places)
    best = best_schedule(work)
    assert (best.origin, best.proven, best.time) == ("zb-h1", True, 7 * places - 1)
    graph = RULES["1f1b"].graph(places)
    whole = {part: {"F": 1.0, "B": 2.0}[part[0]] for part in graph.places}
    best = best_schedule(PipelineWork(graph, 2 * places, whole, memory=[float(places)] * places))
    assert (best.origin, best.proven) == ("1f1b", True)


def test_what_does_not_fit_is_refused() -> None:
    graph = chain_graph((0, 1, 1, 0), splits_backward=False)
    seconds = dict.fromkeys(graph.places, 1.0)
    with pytest.raises(NoScheduleError, match="no schedule fits the memory") as refused:
        best_schedule(PipelineWork(graph, 2, seconds, memory=[2.0, 1.0]))
    assert refused.value.proven
    with pytest.raises(ValueError, match="memory is of 1 places; there are 2"):
        PipelineWork(graph, 2, seconds, memory=[2.0])
    with pytest.raises(ValueError, match="more than 0 s"):
        PipelineWork(graph, 2, seconds | {("F", 0): 0.0})


def test_more_memory_is_never_slower() -> None:
    graph = RULES["zb-h1"].graph(3)
    seconds = {part: {"F": 2.0, "B": 3.0, "W": 1.0}[part[0]] + part[1] / 4 for part in graph.places}
    works = [PipelineWork(graph, 4, seconds, memory=[float(m)] * 3) for m in range(1, 6)]
    best = [best_schedule(work) for work in works]
    assert all(result.proven for result in best)
    assert all(more.time <= less.time for less, more in pairwise(best))


def uneven_work() -> PipelineWork:
    """Return a work for which neither a rule nor the bound of the root is the best time."""
    graph = RULES["1f1b"].graph(4)
    seconds = {part: {"F": 1.0, "B": 2.0}[part[0]] + 0.3 * (part[1] % 3) for part in graph.places}
    sends = {edge: 0.2 for edge in graph.edges if graph.places[edge[0]] != graph.places[edge[1]]}
    return PipelineWork(graph, 8, seconds, sends, memory=[4.0] * 4)


@pytest.mark.turns
@given(RANDOM)
def test_exchanges_keep_schedules_right(rng: random.Random) -> None:
    work = random_work(rng, 30)
    for candidate in list(candidates(work))[:2]:
        schedule, stopped = improved_schedule(work, candidate.schedule, 10)
        run = work.run(schedule)
        assert not stopped
        assert run.time <= candidate.time
        assert work.fits(run)
        assert not problems(schedule, work.graph)


def test_an_interrupt_returns_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def interrupted() -> float:
        nonlocal calls
        calls += 1
        if calls > 5:
            raise KeyboardInterrupt
        return 0.0

    work = uneven_work()
    monkeypatch.setattr(improve, "monotonic", interrupted)
    best = best_schedule(work)
    assert (best.reason, best.proven) == ("interrupted", False)
    assert best.bound < best.time <= min(candidate.time for candidate in candidates(work))


def test_limits_return_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    work = uneven_work()
    limited = best_schedule(work, seconds=0.0)
    assert limited.reason == "time limit"
    assert 0 < limited.gap < 0.2
    monkeypatch.setattr(optimal, "MOST_TASKS", 10)
    large = best_schedule(work)
    assert (large.reason, large.nodes) == ("more than 10 tasks", 0)
    assert large.bound < large.time


def test_uneven_stages_are_solved() -> None:
    work = uneven_work()
    best = best_schedule(work)
    assert best.proven
    assert best.gap == 0
    assert best.time < min(candidate.time for candidate in candidates(work))
