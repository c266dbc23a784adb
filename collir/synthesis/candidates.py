"""Sequences of collectives that carry out an all_reduce: those of P² (Xie et al., MLSys 2022).

P² lists all programs of its language up to a number of steps. Each step is a collective over
sub-axes of the mesh; here it is costed as such, by any of our cost models.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from collir.cost.collective import Collective
from collir.cost.group import CostError
from collir.cost.model import CostModel, StepCost, step_cost
from collir.synthesis.p2.dsl import Program
from collir.synthesis.p2.enumerate import Reading, programs
from collir.synthesis.p2.lower import Numbering, Reduction

SCATTER = "reduce_scatter"


@dataclass(frozen=True)
class Candidate:
    """A sequence of steps in the place of one collective, with what each costs."""

    steps: tuple[StepCost, ...]

    @property
    def time(self) -> float:
        """The sum over the steps; seconds."""
        return sum(step.time for step in self.steps)

    def dim(self, local: Sequence[int]) -> int | None:
        """The dimension to scatter, of a local shape: the first that divides; None: none does.

        Where none does, what is scattered is the value seen as one dimension, and padded.
        """
        scattered = (s.collective.ranks for s in self.steps if s.collective.kind == SCATTER)
        group = math.prod(scattered)
        return next((d for d, size in enumerate(local) if size % group == 0), None)


def enumerated(
    collective: Collective,
    model: CostModel,
    size: int = 5,
    reading: Reading = Reading.MASTER_ALL_REDUCE,
) -> list[Candidate]:
    """All programs of P² up to a number of steps, cheapest first; of equal ones the shorter.

    Programs that the cost model has no cost for are left out.

    Args:
        collective: an all_reduce on a placed mesh.
        size: the number of steps, at most.
        reading: of what the paper leaves open.
    """
    mesh = collective.mesh
    axes = mesh.ordered(collective.axes)
    reduction = Reduction.of_mesh(mesh, axes, Numbering.HARDWARE)
    found: list[Candidate] = []
    for program in programs(reduction.hierarchy, size, reading):
        try:
            steps = _steps(program, reduction, collective)
            found.append(Candidate(tuple(step_cost(step, model) for step in steps)))
        except CostError:
            continue
    return sorted(found, key=lambda one: (float(f"{one.time:.9e}"), len(one.steps)))


def _steps(program: Program, reduction: Reduction, whole: Collective) -> Iterator[Collective]:
    """The steps of a program; ``size`` is what their groups hold, as ``Collective`` says."""
    size = whole.size
    for instruction in program:
        found = reduction.over(instruction, whole.mesh)
        assert found is not None, "in the hardware's numbering groups are sub-axes"
        kind = instruction.collective.value
        ranks = whole.mesh.group_size(found.over)
        if kind == "all_gather":
            size *= ranks
        yield replace(
            whole,
            kind=kind,
            axes=found.over,
            size=size,
            at_root=whole.at_root | frozenset(found.root),
            algorithm=None,
        )
        if kind == SCATTER:
            size /= ranks
