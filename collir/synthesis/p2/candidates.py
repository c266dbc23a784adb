"""Sequences of collectives that carry out an all_reduce: those of P² (Xie et al., MLSys 2022).

P² lists all programs of its language up to a number of steps. Each step is a collective over
sub-axes of the mesh; here it is costed as such, by any of our cost models.
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
from collir.layout.steps import STEPS
from collir.machine import Machine
from collir.synthesis.p2.dsl import Instruction, Program
from collir.synthesis.p2.enumerate import RuleReading, known_programs
from collir.synthesis.p2.lower import Numbering, ReducedFactors
from collir.synthesis.programs.steps import Candidate, Step
from collir.synthesis.searching import INTERRUPTED, TIME


def p2_candidates(
    collective: Collective,
    model: CostModel,
    size: int = 5,
    reading: RuleReading = RuleReading.MASTER_ALL_REDUCE,
) -> list[Candidate]:
    """All programs of P² up to a number of steps, cheapest first; see ``p2_candidates_within``."""
    return p2_candidates_within(collective, model, size, reading, None)[0]


def p2_candidates_within(
    collective: Collective, model: CostModel, size: int, reading: RuleReading, seconds: float | None
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
    reduction = ReducedFactors.of_mesh(mesh, axes, Numbering.HARDWARE)
    found: list[Candidate] = []
    steps = _Steps(reduction, collective, model)
    ended = ""
    until = math.inf if seconds is None else monotonic() + seconds
    try:
        for program in known_programs(reduction.hierarchy, size, reading, until):
            if monotonic() > until:
                ended = TIME
                break
            with suppress(CostError):
                paid = steps.of(program)
                taken = tuple(Step(one.collective.kind, one.collective.axes) for one in paid)
                found.append(Candidate(mesh, taken, paid))
    except TimeoutError:
        ended = TIME
    except KeyboardInterrupt:
        ended = INTERRUPTED
    return sorted(found, key=lambda one: (float(f"{one.time:.9e}"), len(one.steps))), ended


class _Steps:
    """What the steps of programs cost; each that occurs in several is looked at once.

    On machines whose devices are all alike, so is each that differs in the names of its sub-axes
    only: on another placement, or over another axis.
    """

    def __init__(self, reduction: ReducedFactors, whole: Collective, model: CostModel):
        self.reduction, self.whole, self.model = reduction, whole, model
        self._known: dict[tuple[Instruction, float], StepCost | None] = {}
        machine = whole.mesh.machine
        self._alike = _costs_on(machine, model) if machine.symmetric else {}

    def of(self, program: Program) -> tuple[StepCost, ...]:
        """The costs of the steps of a program.

        Raises:
            CostError: a step has none.
        """
        return tuple(self._of(program))

    def _of(self, program: Program) -> Iterator[StepCost]:
        size = self.whole.size
        for instruction in program:
            does = STEPS[instruction.collective.value]
            key = instruction, size
            if key not in self._known:
                self._known[key] = self._cost(instruction, size)
            paid = self._known[key]
            if paid is None:
                raise CostError("a step has no cost")
            yield paid
            if does.gathers:
                size *= paid.collective.ranks
            if does.shards:
                size /= paid.collective.ranks

    def _cost(self, instruction: Instruction, held: float) -> StepCost | None:
        """The cost of a step on what its operand holds; ``size`` is what the groups of it hold, as
        ``Collective`` says."""
        whole = self.whole
        found = self.reduction.over(instruction, whole.mesh)
        assert found is not None, "in the hardware's numbering groups are sub-axes"
        does = STEPS[instruction.collective.value]
        step = replace(
            whole,
            kind=does.name,
            axes=found.over,
            size=held * whole.mesh.group_size(found.over) if does.gathers else held,
            at_root=whole.at_root | frozenset(found.root),
            algorithm=None,
        )
        key = _but_for_names(step)
        try:
            if key not in self._alike:
                self._alike[key] = step_cost(step, self.model)
        except CostError:
            return None
        return replace(self._alike[key], collective=step)


@lru_cache(maxsize=16)
def _costs_on(machine: Machine, model: CostModel) -> dict[Hashable, StepCost]:
    """What steps on a machine cost, as far as it is known; by ``_but_for_names``."""
    return {}


def _but_for_names(step: Collective) -> Hashable:
    """What the cost of a step depends on, where all devices of a machine are alike."""
    subs = step.mesh.by_name
    axes, *others = (
        [(subs[name].level, subs[name].size) for name in names]
        for names in (step.axes, step.at_root, step.replicated)
    )
    return (step.kind, step.size, tuple(axes), *(tuple(sorted(one, key=str)) for one in others))


def forget() -> None:
    """Forgets all costs, for measurements."""
    _costs_on.cache_clear()
