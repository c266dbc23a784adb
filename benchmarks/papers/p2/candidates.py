"""Programs of P² (Xie et al., MLSys 2022) for an all_reduce, costed by any of our cost models.

P² lists all programs of its language up to a number of steps. Each step is a collective over
sub-axes of the mesh, and is costed as such.
"""

import math
from collections.abc import Hashable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from time import monotonic

from collir.cost.collectives.collective import Collective
from collir.cost.model import CostModel, StepCost, step_cost
from collir.cost.network.group import CostError
from collir.layout.coll import STEPS
from collir.machine import Machine
from collir.synthesis.programs.steps import CollectiveStep, StepSequence
from collir.synthesis.searching import INTERRUPTED, TIME
from p2.dsl import Instruction, Program
from p2.enumerate import RuleReading, known_programs
from p2.lower import Numbering, ReducedFactors


def p2_candidates(
    collective: Collective,
    model: CostModel,
    size: int = 5,
    reading: RuleReading = RuleReading.MASTER_ALL_REDUCE,
) -> list[StepSequence]:
    """Return all programs of P² up to a size, cheapest first; see ``p2_candidates_within``."""
    return p2_candidates_within(collective, model, size, reading, None)[0]


def p2_candidates_within(
    collective: Collective, model: CostModel, size: int, reading: RuleReading, seconds: float | None
) -> tuple[list[StepSequence], str]:
    """Return all programs of P² up to a size, cheapest first; the shorter of equal ones first.

    Programs without a cost under the model are left out.

    Args:
        collective: an all_reduce on a placed mesh.
        size: maximum number of steps.
        reading: reading of the rules that the paper leaves open.
        seconds: limit after which the programs found so far are returned; None: no limit.

    Returns: the programs, and the reason why others may be missing, or "".
    """
    mesh = collective.mesh
    axes = mesh.ordered(collective.axes)
    reduction = ReducedFactors.of_mesh(mesh, axes, Numbering.HARDWARE)
    candidates: list[StepSequence] = []
    steps = _StepCosts(reduction, collective, model)
    ended = ""
    until = math.inf if seconds is None else monotonic() + seconds
    try:
        for program in known_programs(reduction.hierarchy, size, reading, until):
            if monotonic() > until:
                ended = TIME
                break
            with suppress(CostError):
                costs = tuple(steps.costs(program))
                kinds = tuple(CollectiveStep(c.collective.kind, c.collective.axes) for c in costs)
                candidates.append(StepSequence(mesh, kinds, costs))
    except TimeoutError:
        ended = TIME
    except KeyboardInterrupt:
        ended = INTERRUPTED
    candidates.sort(key=lambda candidate: (float(f"{candidate.time:.9e}"), len(candidate.steps)))
    return candidates, ended


class _StepCosts:
    """The costs of the steps of programs; equal steps are costed once.

    On a symmetric machine, steps that differ only in the names of their sub-axes, on another
    placement or over another axis, are equal too.
    """

    def __init__(self, reduction: ReducedFactors, all_reduce: Collective, model: CostModel):
        self.reduction, self.all_reduce, self.model = reduction, all_reduce, model
        self._known: dict[tuple[Instruction, float], StepCost | None] = {}
        machine = all_reduce.mesh.machine
        self._by_key = costs_on(machine, model) if machine.symmetric else {}

    def costs(self, program: Program) -> Iterator[StepCost]:
        """Yield the costs of the steps of a program.

        Raises:
            CostError: a step has no cost.
        """
        size = self.all_reduce.size
        for instruction in program:
            kind = STEPS[instruction.collective.value]
            key = instruction, size
            if key not in self._known:
                self._known[key] = self._cost(instruction, size)
            cost = self._known[key]
            if cost is None:
                raise CostError("a step has no cost")
            yield cost
            if kind.gathers:
                size *= cost.collective.ranks
            if kind.shards:
                size /= cost.collective.ranks

    def _cost(self, instruction: Instruction, held: float) -> StepCost | None:
        """Return the cost of a step on an operand of some bytes per device; None if it has none."""
        mesh = self.all_reduce.mesh
        groups = self.reduction.over(instruction, mesh)
        assert groups is not None, "in the hardware's numbering groups are sub-axes"
        kind = STEPS[instruction.collective.value]
        step = replace(
            self.all_reduce,
            kind=kind.name,
            axes=groups.over,
            size=held * mesh.group_size(groups.over) if kind.gathers else held,
            at_root=self.all_reduce.at_root | frozenset(groups.root),
            algorithm=None,
        )
        key = _key_without_names(step)
        try:
            if key not in self._by_key:
                self._by_key[key] = step_cost(step, self.model)
        except CostError:
            return None
        return replace(self._by_key[key], collective=step)


@lru_cache(maxsize=16)
def costs_on(machine: Machine, model: CostModel) -> dict[Hashable, StepCost]:
    """Return the costs of steps on a machine that are known, by ``_key_without_names``."""
    return {}


def _key_without_names(step: Collective) -> Hashable:
    """Return what the cost of a step depends on if all devices of a machine are alike."""
    subs = step.mesh.by_name
    axes, *unordered = (
        [(subs[name].level, subs[name].size) for name in names]
        for names in (step.axes, step.at_root, step.replicated)
    )
    in_order = (tuple(sorted(factors, key=str)) for factors in unordered)
    return (step.kind, step.size, tuple(axes), *in_order)
