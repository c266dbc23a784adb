"""Loops are scheduled as if all iterations were simulated, of which most are left out."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from support.programs.collectives import RANDOM

from collir.cost.collectives.phases import Phase
from collir.cost.network.loads import Resource, ResourceKind
from collir.cost.programs.loops import Node, Repeated
from collir.cost.programs.schedule import StepTask, schedule
from collir.cost.programs.timeline import timeline


def random_task(rng: random.Random, classes: int, before: Sequence[int]) -> StepTask:
    """Return a task of one or two classes, which needs some earlier ones of its program."""
    on = tuple(sorted(rng.sample(range(classes), min(classes, rng.choice([1, 1, 2])))))
    phases = [
        Phase(
            work=rng.choice([1.0, 2.0, 3.5]),
            uses=tuple(
                (Resource(0, ResourceKind.PORT, where), rng.choice([0.3, 0.7, 1.0]))
                for where in rng.sample("ab", rng.choice([0, 1, 1, 2]))
            ),
        )
        for _ in range(rng.choice([0, 1, 1, 2]))
    ]
    after = tuple(sorted(rng.sample(before, min(len(before), rng.choice([0, 1, 2])))))
    return StepTask(tuple(phases), rng.randrange(2), after, rng.random() < 0.5, on)


def random_program(rng: random.Random, classes: int, steps: int, loops: int) -> tuple[Node, ...]:
    """Return a program with loops; tasks need earlier tasks that share a class with them."""
    nodes: list[Node] = []
    for _ in range(steps):
        if loops and rng.random() < 0.3:
            loops -= 1
            body = random_program(rng, classes, rng.randint(1, 5), loops and rng.randint(0, 1))
            on = sorted({c for node in body for c in node.on})
            times = rng.choice([1, 2, 9, 40, 71])
            nodes.append(Repeated(times if loops else min(times, 40), body, tuple(on)))
        else:
            task = random_task(
                rng, classes, [n for n, x in enumerate(nodes) if isinstance(x, StepTask)]
            )
            shared = [n for n in task.after if not {*nodes[n].on}.isdisjoint(task.on)]
            nodes.append(replace(task, after=tuple(shared)))
    return tuple(nodes)


def unrolled(nodes: Sequence[Node]) -> list[StepTask]:
    """Return all tasks of a program, with the waiting where iterations begin and end."""
    tasks: list[StepTask] = []

    def wait(on: Sequence[int]) -> None:
        for c in on:
            after = tuple(n for n, task in enumerate(tasks) if c in task.on)
            tasks.append(StepTask((), 0, after, True, (c,)))

    def add(program: Sequence[Node]) -> None:
        numbers: dict[int, int] = {}
        for place, node in enumerate(program):
            if isinstance(node, StepTask):
                after = tuple(numbers[n] for n in node.after)
                numbers[place] = len(tasks)
                tasks.append(replace(node, after=after))
                continue
            wait(node.on)
            for _ in range(node.times):
                add(node.body)
                wait(node.on)

    add(nodes)
    return tasks


@pytest.mark.turns
@given(rng=RANDOM)
@settings(max_examples=8)
def test_it_is_the_schedule_of_all_iterations(rng: random.Random) -> None:
    nodes = random_program(rng, rng.randint(1, 3), rng.randint(1, 5), 2)
    tasks = unrolled(nodes)
    if len(tasks) > 800:
        return
    whole = max((end for _, end in schedule(tasks)), default=0.0)
    found = timeline(nodes)
    assert found.time == pytest.approx(whole, rel=1e-9)
    busy: dict[Resource, float] = {}
    for task in tasks:
        for resource, seconds in task.busy.items():
            busy[resource] = busy.get(resource, 0.0) + seconds
    if found.busy is not None:
        assert found.busy == pytest.approx(busy, rel=1e-9)
    for (first, last), (begin, end) in zip(
        sorted(found.spans)[-3:], sorted(schedule(tasks))[-3:], strict=True
    ):
        assert (first, last) == pytest.approx((begin, end), rel=1e-9)
