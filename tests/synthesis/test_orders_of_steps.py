"""Bounds that no order of steps is under: all orders of small programs are tried beside them."""

import random
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from support.programs.collectives import RANDOM

from collir.synthesis.sweeping.ingredients import StepsBetween

Steps = list[tuple[int, Any]]


def _steps(rng: random.Random) -> Steps:
    """Return a few steps of a device and collectives, each of which needs some before it."""
    steps: Steps = []
    for number in range(rng.randint(2, 6)):
        after = tuple(n for n in range(number) if rng.random() < 0.4)
        task = SimpleNamespace(time=rng.choice([1.0, 2.0, 5.0]), after=after)
        mesh = SimpleNamespace(label=str)
        sent = SimpleNamespace(collective=SimpleNamespace(mesh=mesh, axes=("model",)))
        is_sent = rng.random() < 0.5
        kind = "all_reduce" if is_sent else "add"
        steps.append(
            (number, SimpleNamespace(task=task, sent=sent if is_sent else None, kind=kind))
        )
    return steps


def _orders(steps: Steps, begun: Sequence[int] = ()) -> Iterator[Sequence[int]]:
    """Yield the orders in which each step comes behind those that it needs."""
    if len(begun) == len(steps):
        yield begun
    for number, step in steps:
        if number not in begun and {*step.task.after} <= {*begun}:
            yield from _orders(steps, (*begun, number))


def _seconds(steps: Steps, order: Sequence[int], weight: float) -> float:
    """Return the end of steps that a device runs in an order, with collectives beside them."""
    ends: dict[int, float] = {}
    free = 0.0
    for number in order:
        _, step = steps[number]
        ready = max((ends[n] for n in step.task.after), default=0.0)
        if step.sent is not None:
            ends[number] = ready + weight * step.task.time
        else:
            ends[number] = free = max(free, ready) + step.task.time
    return max(ends.values())


@given(rng=RANDOM)
@settings(max_examples=60)
def test_no_order_is_under_the_longest_chain(rng: random.Random) -> None:
    steps, weight = _steps(rng), rng.choice([1.0, 16.0])
    places = StepsBetween.of(steps, None, ()).longest(weight)
    scaled = (s.task.time * (weight if s.sent else 1) for n, s in steps if n in places)
    least = min(_seconds(steps, order, weight) for order in _orders(steps))
    assert sum(scaled) <= least + 1e-9


def test_what_stands_beside_a_path_counts() -> None:
    """Three products before an all_reduce, none of which needs another, and one behind it."""
    mesh = SimpleNamespace(label=str)
    sent = SimpleNamespace(collective=SimpleNamespace(mesh=mesh, axes=("model",)))

    def step(after: tuple[int, ...], is_sent: bool = False) -> Any:
        task = SimpleNamespace(time=1.0, after=after)
        return SimpleNamespace(task=task, sent=sent if is_sent else None, kind="all_reduce")

    steps = [*enumerate([step(()), step(()), step(()), step((0, 1, 2), True), step((3,))])]
    assert StepsBetween.of(steps, None, ()).longest(1.0) == (0, 1, 2, 3, 4)
    assert StepsBetween.of(steps, (3,), ()).longest(1.0) == (0, 1, 2, 3)
