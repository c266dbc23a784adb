"""Upper bounds of the times of steps that share ports with others.

A full port is always in use: tasks of pipelines use a part u of it, and sends use the rest. So

- sends that share a port take together at most the sum of their times, divided by 1 - u;
- any step is delayed at most by the time in which the steps beside it send;
- a task gets its part of a port before sends do (``collir.cost.programs.schedule.fair_speeds``):
  beside n other tasks it takes at most u + n times as long as alone.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

import sympy

from collir.cost.formulas.functions import Expr, Larger
from collir.cost.formulas.memory import largest
from collir.cost.programs.schedule import Stream

_CLOSE = 1e-6
"""The part of a port that tasks leave to sends beside them."""


class PortSharingStep(NamedTuple):
    """A step that shares ports.

    Attributes:
        stream: the stream of the step; steps of one stream run one after the other.
        seconds: the time of the step alone.
        sent: the part of this time in which it sends.
        is_send: whether it only sends.
    """

    stream: Stream
    seconds: Expr
    sent: Expr
    is_send: bool


def slowed(run: PortSharingStep, ports: Collection[Collection[PortSharingStep]]) -> Expr:
    """Return an upper bound of the seconds of a step.

    Args:
        ports: for each of its ports, the other steps that may use it while the step runs.
    """
    if not ports:
        return run.seconds
    beside = {id(step): step for others in ports for step in others}.values()
    loses = run.seconds + sympy.Add(*(step.sent for step in beside))
    if not run.is_send:
        tasks = max(len({x.stream for x in others if not x.is_send}) for others in ports)
        shares = tasks * run.seconds + run.sent if tasks else run.seconds
        return _smaller((1 + _CLOSE) * shares, loses)
    if all(step.is_send for step in beside):
        return loses
    sends = run.seconds + sympy.Add(*(step.sent for step in beside if step.is_send))
    left = 1 - largest(_used_by_tasks(others) for others in ports)
    return _smaller(sends / Larger(left, sympy.Float(_CLOSE)), loses)


def _used_by_tasks(others: Iterable[PortSharingStep]) -> Expr:
    """Return the largest part of a port that tasks may use at once."""
    parts: dict[Stream, list[Expr]] = {}
    for other in others:
        if not other.is_send and other.sent:
            parts.setdefault(other.stream, []).append(other.sent / other.seconds)
    return sympy.Add(*map(largest, parts.values()))


def _smaller(a: Expr, b: Expr) -> Expr:
    larger: Expr = Larger(-a, -b)
    return -larger
