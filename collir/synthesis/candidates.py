"""Sequences of collectives that carry out an all_reduce: those of P² (Xie et al., MLSys 2022).

P² lists all programs of its language up to a number of steps. Each step is a collective over
sub-axes of the mesh; here it is costed as such, by any of our cost models.
"""

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from time import monotonic

from collir.cost.collective import Collective
from collir.cost.group import CostError
from collir.cost.model import CostModel, step_cost
from collir.layout.steps import STEPS
from collir.synthesis.p2.dsl import Program
from collir.synthesis.p2.enumerate import Reading, programs
from collir.synthesis.p2.lower import Numbering, Reduction
from collir.synthesis.searching import INTERRUPTED, TIME
from collir.synthesis.steps import Candidate, Step


def enumerated(
    collective: Collective,
    model: CostModel,
    size: int = 5,
    reading: Reading = Reading.MASTER_ALL_REDUCE,
) -> list[Candidate]:
    """All programs of P² up to a number of steps, cheapest first; see ``enumerated_within``."""
    return enumerated_within(collective, model, size, reading, None)[0]


def enumerated_within(
    collective: Collective, model: CostModel, size: int, reading: Reading, seconds: float | None
) -> tuple[list[Candidate], str]:
    """All programs of P² up to a number of steps, cheapest first; of equal ones the shorter.

    Programs that the cost model has no cost for are left out.

    Args:
        collective: an all_reduce on a placed mesh.
        size: the number of steps, at most.
        reading: of what the paper leaves open.
        seconds: after which those found so far are returned.

    Returns: the programs; and why others may be missing, or "".
    """
    mesh = collective.mesh
    axes = mesh.ordered(collective.axes)
    reduction = Reduction.of_mesh(mesh, axes, Numbering.HARDWARE)
    found: list[Candidate] = []
    ended = ""
    until = math.inf if seconds is None else monotonic() + seconds
    try:
        for program in programs(reduction.hierarchy, size, reading, until):
            if monotonic() > until:
                ended = TIME
                break
            with suppress(CostError):
                paid = [step_cost(step, model) for step in _steps(program, reduction, collective)]
                steps = tuple(Step(one.collective.kind, one.collective.axes) for one in paid)
                found.append(Candidate(mesh, steps, tuple(paid)))
    except TimeoutError:
        ended = TIME
    except KeyboardInterrupt:
        ended = INTERRUPTED
    return sorted(found, key=lambda one: (float(f"{one.time:.9e}"), len(one.steps))), ended


def _steps(program: Program, reduction: Reduction, whole: Collective) -> Iterator[Collective]:
    """The steps of a program; ``size`` is what their groups hold, as ``Collective`` says."""
    size = whole.size
    for instruction in program:
        found = reduction.over(instruction, whole.mesh)
        assert found is not None, "in the hardware's numbering groups are sub-axes"
        does = STEPS[instruction.collective.value]
        ranks = whole.mesh.group_size(found.over)
        if does.gathers:
            size *= ranks
        yield replace(
            whole,
            kind=does.name,
            axes=found.over,
            size=size,
            at_root=whole.at_root | frozenset(found.root),
            algorithm=None,
        )
        if does.shards:
            size /= ranks
