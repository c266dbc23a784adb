"""Traces in which all happens as predicted, but for what is planted."""

from collections.abc import Callable, Mapping

import numpy as np
from support.programs.two_axes import program

from collir.cost.programs.simulation import Simulation
from collir.importing.traces.expected import expected_steps
from collir.importing.traces.trace import (
    RankTrace,
    Span,
    TimeIntervals,
    Trace,
    TracedCollective,
    TracedProduct,
)

STEP = program(2, "step")

Change = Callable[[int, int, TracedCollective], TracedCollective | None]
"""What becomes of a collective of a rank in a step of training; None: it does not run."""


def traced(
    simulation: Simulation,
    steps: int = 2,
    late: Mapping[int, float] | None = None,
    change: Change | None = None,
    groups: bool = True,
    ranks: int | None = None,
) -> Trace:
    """Return the trace of a simulation.

    Args:
        late: how much later ranks begin each step of training; the others wait for them.
        groups: whether the trace says how many ranks a group has.
        ranks: how many are recorded; by default all.
    """
    late = late or {}
    mesh, most = simulation.mesh, max(late.values(), default=0.0)
    every = simulation.time + most + 1e-3
    found: list[RankTrace] = []
    for rank in range(ranks or mesh.devices):
        made = RankTrace(rank, f"rank{rank}.json")
        for number in range(steps):
            begin = 1.0 + number * every
            made.steps.append(Span(f"ProfilerStep#{number}", begin, begin + every))
            first = True
            for step in expected_steps(simulation, rank):
                start, end = begin + most + step.start, begin + most + step.end
                if not step.step.sent:
                    product = TracedProduct(step.operations, "") if step.operations else None
                    made.work.add(step.kind, start, end, product)
                    continue
                came = start - (most - late.get(rank, 0.0)) * first
                first = False
                size = mesh.group_size(step.axes) if groups else 0
                own = TracedCollective(step.kind, step.kind, step.size, came, end, came, "net",
                                       None, size)  # fmt: skip
                if change:
                    own = change(rank, number, own)
                if own:
                    made.collectives.append(own)
        made.collectives.sort(key=lambda x: x.issued)
        found.append(made)
    return Trace("a test", found, mesh.devices)


def union(times: TimeIntervals) -> list[tuple[float, float]]:
    """Return parts of time as pairs."""
    return [*zip(times.start.tolist(), times.end.tolist(), strict=True)]


def plain_union(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return when any of some spans is running, by going through them."""
    made: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if made and start <= made[-1][1]:
            made[-1] = made[-1][0], max(made[-1][1], end)
        else:
            made.append((start, end))
    return made


def times_of(spans: list[tuple[float, float]]) -> TimeIntervals:
    """Return spans as times."""
    return TimeIntervals.of(np.array([a for a, _ in spans]), np.array([b for _, b in spans]))
