"""Schedules of overlapping collectives, against an exact simulation and the rules of schedules."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cost.plain_schedules import even_phase, shares, simulated, use_of
from support.harness.seeds import fresh
from support.programs.collectives import RANDOM

from collir.cost.collectives.phases import Phase
from collir.cost.programs.schedule import Interval, StepTask, TimeSpan, longest_chain, schedule

TIMES = st.one_of(st.integers(1, 6).map(float), st.floats(1e-6, 10.0))
RATES = st.sampled_from([1.0, 1.0, 2.0, 1 / 3, 1e9])
PARTS = st.one_of(st.sampled_from([0.0, 0.25, 1 / 3, 0.5, 1.0, 1.5]), st.floats(1e-6, 1.0))


@st.composite
def task_lists(
    draw: st.DrawFn, most: int = 9, waited: float | None = 0.2, nothing: bool = False
) -> list[StepTask]:
    """Draw tasks on up to three levels, with ``waited`` the part of tasks that are waited for."""
    levels = draw(st.integers(1, 3))
    tasks: list[StepTask] = []
    for number in range(draw(st.integers(1, most))):
        empty = nothing and draw(st.integers(0, 9)) == 0
        times = [] if empty else draw(st.lists(TIMES, min_size=1, max_size=3))
        phases = tuple(
            even_phase(t, [t * draw(PARTS) for _ in range(levels)], draw(RATES)) for t in times
        )
        after = draw(st.sets(st.integers(0, number - 1), max_size=2)) if number else set[int]()
        is_waited = bool(waited) and draw(st.integers(0, 99)) < 100 * (waited or 0)
        stream = draw(st.integers(0, levels - 1))
        tasks.append(StepTask(phases, stream, tuple(sorted(after)), is_waited))
    return tasks


def close(x: float, y: float) -> bool:
    return math.isclose(x, y, rel_tol=1e-9, abs_tol=1e-9)


def makespan(spans: Sequence[TimeSpan]) -> float:
    return max(end for _, end in spans)


def same(left: Sequence[TimeSpan], right: Sequence[TimeSpan]) -> bool:
    pairs = zip(left, right, strict=True)
    return all(close(a, c) and close(b, d) for (a, b), (c, d) in pairs)


# --- the spans ----------------------------------------------------------------------------------


@given(tasks=task_lists(nothing=True))
@settings(max_examples=36)
def test_spans_are_those_of_an_exact_simulation(tasks: list[StepTask]) -> None:
    exact = [(float(start), float(end)) for start, end in simulated(tasks)]
    assert same(schedule(tasks), exact)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_more_spans_are_those_of_an_exact_simulation(seed: int) -> None:
    rng = fresh(seed)
    for _ in range(5000):
        tasks = random_tasks(rng, rng.randint(1, 16))
        exact = [(float(start), float(end)) for start, end in simulated(tasks)]
        assert same(schedule(tasks), exact), tasks


def random_tasks(rng: random.Random, count: int, waited: float = 0.1) -> list[StepTask]:
    """Return tasks with few different times, so that many end at the same time."""
    levels = rng.randint(1, 4)
    tasks: list[StepTask] = []
    for number in range(count):
        phases = tuple(random_phase(rng, levels) for _ in range(rng.choice([1, 1, 2, 4])))
        after = sorted(rng.sample(range(number), rng.randint(0, min(2, number))))
        stream = rng.randrange(levels)
        tasks.append(StepTask(phases, stream, tuple(after), rng.random() < waited))
    return tasks


def random_phase(rng: random.Random, levels: int) -> Phase:
    """Return a phase, often as long as others."""
    time = rng.choice([1.0, 1.0, 2.0, 0.5, rng.uniform(0, 1)])
    loads = [time * rng.choice([0, 1, 0.5, rng.random()]) for _ in range(levels)]
    return even_phase(time, loads, rng.choice([1.0, 1.0, 3.0, rng.uniform(0.1, 10)]))


@given(tasks=task_lists(), as_written=st.booleans())
@settings(max_examples=36)
def test_every_phase_gets_its_work_done_in_the_span_of_its_task(
    tasks: list[StepTask], as_written: bool
) -> None:
    """Over all intervals, the speed of a phase adds up to its work; speeds are fair shares."""
    intervals: list[Interval] = []
    spans = schedule(tasks, as_written, intervals.append)
    done: dict[tuple[int, int], float] = {}
    now = 0.0
    for interval in intervals:
        assert interval.start == now
        now = interval.end
        speeds = shares([phase for phase, _ in interval.running.values()])
        for (number, (phase, speed)), fair in zip(interval.running.items(), speeds, strict=True):
            assert close(speed, float(fair))
            assert spans[number][0] <= interval.start
            assert interval.end <= spans[number][1]
            (index,) = (i for i, p in enumerate(tasks[number].phases) if p is phase)
            done[number, index] = done.get((number, index), 0.0) + speed * (now - interval.start)
    assert now == max((end for _, end in spans), default=0.0)
    for number, task in enumerate(tasks):
        assert all(close(done[number, i], p.time) for i, p in enumerate(task.phases))


# --- the shares ---------------------------------------------------------------------------------


@given(tasks=task_lists(most=6, waited=None))
@settings(max_examples=36)
def test_shares_are_max_min_fair(tasks: list[StepTask]) -> None:
    """No port is overused, and a phase that is slowed down uses a full port on which no message is
    faster.

    Only one allocation has these properties. The first event of the schedule shows its allocation.
    """
    phases = [task.phases[0] for task in tasks]
    speeds = shares(phases)
    resources = {resource for phase in phases for resource, _ in phase.uses}
    used = {
        n: sum(s * use_of(p, n) for s, p in zip(speeds, phases, strict=True)) for n in resources
    }
    assert all(part <= 1 for part in used.values())
    rates = [s * Fraction(phase.rate) for s, phase in zip(speeds, phases, strict=True)]
    for speed, rate, phase in zip(speeds, rates, phases, strict=True):
        full = [r for r in resources if used[r] == 1 and use_of(phase, r)]
        fastest = [
            max(r for r, user in zip(rates, phases, strict=True) if use_of(user, resource))
            for resource in full
        ]
        assert speed == 1 or rate in fastest
    together = [StepTask((phase,), number, waited=False) for number, phase in enumerate(phases)]
    first = min(end for _, end in schedule(together))
    ends = (phase.time / float(speed) for speed, phase in zip(speeds, phases, strict=True))
    assert close(first, min(ends))


# --- properties of every schedule ---------------------------------------------------------------


@given(tasks=task_lists(nothing=True), as_written=st.booleans())
@settings(max_examples=36)
def test_schedules_are_within_their_bounds(tasks: list[StepTask], as_written: bool) -> None:
    """A schedule takes at least the time of each level and chain, and at most that of all tasks."""
    spans = schedule(tasks, as_written)
    end = makespan(spans)
    for busy in zip(*(task.loads(3) for task in tasks), strict=True):
        assert end >= sum(busy) * (1 - 1e-9)
    for stream in {task.stream for task in tasks}:
        assert end >= sum(task.time for task in tasks if task.stream == stream) * (1 - 1e-9)
    chains: list[float] = []
    for task in tasks:
        chains.append(task.time + max((chains[needed] for needed in task.after), default=0.0))
    assert end >= max(chains) * (1 - 1e-9)
    assert end <= sum(task.time for task in tasks) * (1 + 1e-9)


@given(tasks=task_lists(), as_written=st.booleans())
@settings(max_examples=36)
def test_starts_wait_for_what_they_have_to(tasks: list[StepTask], as_written: bool) -> None:
    """A task waits for its operands, for its stream, and for earlier tasks that are waited for."""
    spans = schedule(tasks, as_written)
    for number, (task, (start, end)) in enumerate(zip(tasks, spans, strict=True)):
        assert end >= start + task.time * (1 - 1e-9)
        assert all(spans[needed][1] <= start for needed in task.after)
        for earlier in range(number):
            before, after = spans[earlier]
            if as_written and tasks[earlier].stream == task.stream:
                assert after <= start
            assert tasks[earlier].stream != task.stream or after <= start or end <= before
            if tasks[earlier].waited:
                assert after <= start or start < before


@given(tasks=task_lists(waited=1.0), as_written=st.booleans())
@settings(max_examples=18)
def test_what_is_waited_for_runs_one_after_the_other(
    tasks: list[StepTask], as_written: bool
) -> None:
    now = 0.0
    for task, span in zip(tasks, schedule(tasks, as_written), strict=True):
        assert same([span], [(now, now + task.time)])
        now += task.time


def test_there_is_nothing_to_do() -> None:
    assert schedule([]) == []


# --- in the order in which they can start -------------------------------------------------------


def reordered(
    tasks: Sequence[StepTask], spans: Sequence[TimeSpan]
) -> tuple[list[StepTask], list[int]]:
    """Return the tasks in the order of their starts, and their old numbers."""
    order = sorted(range(len(tasks)), key=lambda number: spans[number][0])
    place = {number: index for index, number in enumerate(order)}
    moved = [
        replace(tasks[number], after=tuple(place[needed] for needed in tasks[number].after))
        for number in order
    ]
    return moved, order


def assert_written_again(tasks: Sequence[StepTask]) -> None:
    """Check that tasks in the order of a schedule's starts run as in that schedule."""
    spans = schedule(tasks, as_written=False)
    moved, order = reordered(tasks, spans)
    again = schedule(moved)
    assert same(again, [spans[number] for number in order]), tasks


@given(tasks=task_lists(waited=None))
@settings(max_examples=45)
def test_a_schedule_can_be_written_down(tasks: list[StepTask]) -> None:
    assert_written_again(tasks)


@given(tasks=task_lists(waited=0.3))
@settings(max_examples=36)
def test_one_with_waiting_can_be_written_down(tasks: list[StepTask]) -> None:
    assert_written_again(tasks)


def in_chunks(tasks: Sequence[StepTask], chunks: int) -> list[StepTask]:
    """Return a chain of the tasks for every chunk."""
    return [
        StepTask(
            task.phases,
            task.stream,
            (chunk * len(tasks) + place - 1,) if place else (),
            waited=False,
        )
        for chunk in range(chunks)
        for place, task in enumerate(tasks)
    ]


@given(tasks=task_lists(most=5, waited=None), chunks=st.integers(1, 12))
@settings(max_examples=36)
def test_schedules_of_chunks_can_be_written_down(tasks: list[StepTask], chunks: int) -> None:
    """The chunks are equal, so many tasks end at the same time."""
    assert_written_again(in_chunks(tasks, chunks))


@given(tasks=task_lists(waited=None))
@settings(max_examples=36)
def test_nothing_that_could_start_waits(tasks: list[StepTask]) -> None:
    """A task that does not start at 0 starts when its last operand or its stream is ready."""
    spans = schedule(tasks, as_written=False)
    for number, task in enumerate(tasks):
        start, _ = spans[number]
        reasons = [spans[needed][1] for needed in task.after]
        reasons += [
            end
            for rival, (_, end) in enumerate(spans)
            if tasks[rival].stream == task.stream and rival != number
        ]
        assert start == 0 or any(close(start, end) for end in reasons)


@given(tasks=task_lists(most=4, waited=None), chunks=st.integers(1, 16))
@settings(max_examples=36)
def test_chunks_take_no_less_than_the_pace_of_the_busiest(
    tasks: list[StepTask], chunks: int
) -> None:
    """A stream and a port carry all chunks; the rest of one chunk comes before and after."""
    end = makespan(schedule(in_chunks(tasks, chunks), as_written=False))
    streams = {task.stream for task in tasks}
    paces = [sum(task.time for task in tasks if task.stream == stream) for stream in streams]
    paces += map(sum, zip(*(task.loads(3) for task in tasks), strict=True))
    assert end >= chunks * max(paces) * (1 - 1e-9)
    assert end >= sum(task.time for task in tasks) * (1 - 1e-9)


class Counted(list[StepTask]):
    """A list of tasks that counts accesses."""

    looked = 0

    def __getitem__(self, number: Any) -> Any:
        self.looked += 1
        return super().__getitem__(number)  # pyright: ignore[reportUnknownVariableType]


def test_ten_times_as_many_chunks_are_ten_times_the_work() -> None:
    """The scheduler only looks at tasks whose state may change."""
    tasks = random_tasks(fresh(4), 3, waited=0.0)
    accesses: list[int] = []
    for chunks in (40, 400):
        listed = Counted(in_chunks(tasks, chunks))
        schedule(listed, as_written=False)
        accesses.append(listed.looked)
    assert accesses[1] < 12 * accesses[0]


# --- classes of devices -------------------------------------------------------------------------


def tasks_of_classes(rng: random.Random, count: int, classes: int) -> list[StepTask]:
    """Return tasks that share no resources, each on some classes of devices."""
    tasks: list[StepTask] = []
    for task in random_tasks(rng, count, waited=0.5):
        phases = tuple(Phase(work=rng.choice([1.0, 2.0, 0.5])) for _ in task.phases)
        on = sorted(rng.sample(range(classes), rng.randint(1, classes)))
        tasks.append(replace(task, phases=phases, on=tuple(on)))
    return tasks


@given(tasks=task_lists(nothing=True))
def test_one_class_of_devices_is_all_devices(tasks: list[StepTask]) -> None:
    alike = [replace(task, on=(3,)) for task in tasks]
    assert same(schedule(alike), schedule(tasks))


@given(rng=RANDOM)
@settings(max_examples=36)
def test_each_class_of_devices_issues_its_own_tasks_in_order(rng: random.Random) -> None:
    count = rng.randint(2, 4)
    tasks = tasks_of_classes(rng, rng.randint(1, 12), count)
    tasks = [StepTask((), 0, on=tuple(range(count))), *tasks[1:]]
    issued = [0.0] * count  # by class, when its last task was
    spans: list[TimeSpan] = []
    for number, task in enumerate(tasks):
        for device_class in task.on:
            own = [n for n in range(number) if device_class in tasks[n].on]
            waits = [n for n in own if tasks[n].waited or n in task.after]
            issued[device_class] = max([issued[device_class], *(spans[n][1] for n in waits)])
        before = [n for n in range(number) if not {*tasks[n].on}.isdisjoint(task.on)]
        queue = [spans[n][1] for n in before if tasks[n].stream == task.stream]
        ready = [*(issued[c] for c in task.on), *(spans[n][1] for n in task.after)]
        start = max([*ready, *queue])
        spans.append((start, start + task.time))
    assert same(schedule(tasks), spans)
    times = [task.time * rng.random() for task in tasks]
    assert longest_chain(tasks, times) <= makespan(spans) * (1 + 1e-9)


def test_stages_compute_at_the_same_time() -> None:
    work = Phase(work=1.0)
    stages = [
        StepTask((work,), 1, tuple(after), on=(stage,))
        for stage, after in ((0, []), (0, []), (1, [0]), (0, []), (1, [1]), (1, [3]))
    ]
    assert makespan(schedule(stages)) == 4.0
    assert makespan(schedule([replace(task, on=(0,)) for task in stages])) == 6.0


def test_a_device_that_receives_does_not_wait_for_the_sender() -> None:
    tasks = [
        StepTask((Phase(work=2.0),), 1, on=(0,)),
        StepTask((Phase(work=1.0),), 0, (0,), waited=False, on=(0, 1)),
        StepTask((Phase(work=1.0),), 1, on=(1,)),
        StepTask((Phase(work=1.0),), 1, (1,), on=(1,)),
    ]
    assert schedule(tasks) == [(0.0, 2.0), (2.0, 3.0), (0.0, 1.0), (3.0, 4.0)]
