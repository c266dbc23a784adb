"""The seconds of the programs that a search finds: sends, and copies on devices in between.

A search counts only the sends, which are a lower bound of the whole. So programs are asked for in
the order of this bound, until it alone exceeds the time of the best program.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from collir.cost.model import StepCost, step_cost
from collir.cost.network.group import CostError
from collir.cost.programs.collectives import collective_of
from collir.cost.programs.simulate import simulate_function
from collir.cost.steps import copy_seconds, local_seconds, seconds_sent
from collir.dialects.machine import meshes_remembered
from collir.dialects.tensor import dist_type
from collir.layout import DistType, LayoutError, Mesh
from collir.synthesis.programs.build import ProgramPlan, planned
from collir.synthesis.programs.cheapest import Synthesis, order, synthesise
from collir.synthesis.programs.search_options import TIE, SearchOptions
from collir.synthesis.programs.steps import Program, StepSequence
from collir.synthesis.searching import MOST_PROGRAMS, TIMED, gap_of


def programs_between(
    mesh: Mesh, source: DistType, target: DistType, options: SearchOptions
) -> Synthesis:
    """Return the cheapest programs from one layout to another.

    Raises:
        CostError, LayoutError: see ``synthesise``.
    """
    memory = None
    if options.memory is not None:
        memory = options.memory * (source.local_bytes(mesh) + target.local_bytes(mesh))
    return synthesise(
        mesh,
        source,
        target,
        options.model,
        options.top,
        memory,
        options.seconds,
        options.scale,
        options.chunks,
        options.left_alone(mesh),
    )


@dataclass(frozen=True)
class Priced:
    """Programs with their seconds, best first.

    Attributes:
        first: the outcome of the search for as many programs as were asked for.
        ended: why the search was cut off, or "".
        gap: by how much a program that was not timed may be faster, relative to the best.
    """

    candidates: Sequence[StepSequence]
    first: Synthesis
    ended: str = ""
    gap: float = 0.0

    @property
    def cut(self) -> str:
        """The reason why a faster program may be missing, or ""."""
        return self.ended or (TIMED if self.gap else "")


@dataclass(frozen=True)
class Pricing:
    """The seconds of programs from a layout to another.

    Attributes:
        returned: whether the function returns the result, which is copied if it lies in a larger
            buffer.
        known: the seconds of a known program with the same effect.
        fixed: programs that are timed as well.
    """

    mesh: Mesh
    source: DistType
    target: DistType
    options: SearchOptions
    returned: bool = False
    known: float = math.inf
    fixed: Sequence[Program] = ()

    def searched(self) -> Priced:
        """Return the best programs within the limits of the options."""
        options, types = self.options, (self.source, self.target)
        return self.best(lambda n: programs_between(self.mesh, *types, replace(options, top=n)))

    def best(self, search: Callable[[int], Synthesis]) -> Priced:
        """Return the best programs of a search.

        Args:
            search: a function from a number to as many programs, the fastest by their sends.
        """
        top, first = self.options.top, search(self.options.top)
        synthesis = first
        while True:
            candidates = synthesis.candidates
            timed = {c.program: self._timed(c) for c in candidates}
            timed |= {x: self._fixed(x) for x in self.fixed if x not in timed}
            listed = sorted(filter(None, timed.values()), key=order)[: self.options.top]
            ended, gap = synthesis.ended, 0.0
            if len(candidates) < top or ended or not self._copies_take_time:
                break
            due = min(self.known, listed[-1].time if len(listed) == self.options.top else math.inf)
            if due <= candidates[-1].time * (1 + TIE):
                break
            if top >= MOST_PROGRAMS:
                gap = gap_of(due, candidates[-1].time) or 0.0
                break
            top = min(4 * top, MOST_PROGRAMS)
            synthesis = search(top)
        return Priced(listed, first, ended, gap)

    @property
    def _copies_take_time(self) -> bool:
        return copy_seconds(1.0, self.mesh) > 0

    def _timed(self, candidate: StepSequence) -> StepSequence | None:
        """Return a program with all of its seconds; None for a program in chunks that cannot be
        built, as the value is too large to be padded.

        A program in chunks is built before it is timed, because its steps may have to wait while
        values are packed between them.
        """
        pipeline, scale = candidate.pipeline, self.options.scale
        if (plan := self._planned(candidate.program)) is None:
            return None if pipeline else candidate
        if pipeline:
            return replace(candidate, copies=self._simulated(plan) - pipeline.time)
        # A search may have priced a value that is padded for other programs.
        own = self._costs(plan)
        costs = candidate.costs if scale != 1 else own
        return replace(candidate, costs=costs, copies=self._copies(plan, own))

    def _simulated(self, plan: ProgramPlan) -> float:
        """Return the seconds of a program whose steps overlap."""
        function = plan.as_function()
        with meshes_remembered({function: self.mesh}):
            alone = simulate_function(function, self.options.model, called=False)
        simulation = alone.scaled(self.options.scale)
        return simulation.time if self.returned else simulation.time_before_copies

    def _fixed(self, program: Program) -> StepSequence | None:
        """Return steps in a row with their seconds; None if they cannot be built or have no
        cost."""
        if (plan := self._planned(program)) is None:
            return None
        try:
            costs = self._costs(plan)
            copies = self._copies(plan, costs)
        except CostError:
            return None
        held = [
            sum(dist_type(x).local_bytes(self.mesh) for x in (*step.operands, step.result))
            for step in plan.steps
        ]
        memory = max(held) * self.options.scale
        return StepSequence(self.mesh, program.steps, costs, memory, copies=copies)

    def _costs(self, plan: ProgramPlan) -> tuple[StepCost, ...]:
        model, scale = self.options.model, self.options.scale
        sent = (collective_of(x, self.mesh).scaled(scale) for x in plan.steps if x.kind.sends)
        return tuple(step_cost(x, model) for x in sent)

    def _copies(self, plan: ProgramPlan, costs: Sequence[StepCost]) -> float:
        beside = sum(seconds_sent(cost) - cost.time for cost in costs)
        return beside + self._local(plan)

    def _local(self, plan: ProgramPlan) -> float:
        """Return the seconds of the steps that send nothing, and of the copy of a result."""
        mesh, scale = self.mesh, self.options.scale
        copied = self.returned and plan.ends_in_larger_buffer(mesh)
        copy = copy_seconds(self.target.local_bytes(mesh) * scale, mesh) if copied else 0.0
        return local_seconds(plan.steps, mesh, scale) + copy

    def _planned(self, program: Program) -> ProgramPlan | None:
        try:
            return planned(self.mesh, self.source, program.steps, self.target, program.pipeline)
        except LayoutError:
            return None
