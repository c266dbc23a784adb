"""The seconds of programs that are searched: what they send, and what devices copy between.

A search counts what is sent. That is a bound of the whole, so programs are asked for in the order
of it until it alone takes longer than the best program.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from collir.cost.model import step_cost
from collir.cost.network.group import CostError
from collir.cost.programs.cost import collective_of, program_cost
from collir.cost.steps import copy_seconds, local_seconds, seconds_sent
from collir.layout import DistType, LayoutError, Mesh
from collir.synthesis.programs.build import Plan, planned
from collir.synthesis.programs.cheapest import Synthesis
from collir.synthesis.programs.search_options import TIE, SearchOptions
from collir.synthesis.programs.steps import Candidate, Program
from collir.synthesis.searching import gap_of

MOST_PROGRAMS = 64
"""The most programs of a change of a layout that are timed as a whole."""


@dataclass(frozen=True)
class Priced:
    """Programs with their seconds, best first.

    Attributes:
        ended: why the search was cut off, or "".
        gap: by how much a program that was not timed may be faster, relative to the best.
    """

    listed: Sequence[tuple[float, Program]]
    ended: str = ""
    gap: float = 0.0


@dataclass(frozen=True)
class Pricing:
    """The seconds of programs from a layout to another.

    Attributes:
        returned: whether the function returns the result, which is copied if it lies in a larger
            buffer.
        known: the seconds of something that does the same already.
        fixed: programs that are timed as well.
    """

    mesh: Mesh
    source: DistType
    target: DistType
    options: SearchOptions
    returned: bool = False
    known: float = math.inf
    fixed: Sequence[Program] = ()

    def best(self, search: Callable[[int], Synthesis]) -> Priced:
        """Return the best programs of a search.

        Args:
            search: a function from a number of programs to as many that send for the shortest time.
        """
        top = self.options.top
        while True:
            synthesis = search(top)
            found = synthesis.candidates
            listed = [
                (time, c.program) for c in found if (time := self.of_candidate(c)) is not None
            ]
            others = {program for _, program in listed}
            listed += [(t, x) for x in self.fixed if x not in others and (t := self.of(x))]
            listed.sort(key=lambda choice: (float(f"{choice[0]:.9e}"), len(choice[1].steps)))
            listed = listed[: self.options.top]
            if len(found) < top or synthesis.ended:
                return Priced(listed, synthesis.ended)
            due = min(self.known, listed[-1][0] if len(listed) == self.options.top else math.inf)
            if due <= found[-1].time * (1 + TIE):
                return Priced(listed)
            if not self._copies_take_time:
                return Priced(listed)
            if top >= MOST_PROGRAMS:
                return Priced(listed, gap=gap_of(due, found[-1].time) or 0.0)
            top = min(4 * top, MOST_PROGRAMS)

    @property
    def _copies_take_time(self) -> bool:
        return copy_seconds(1.0, self.mesh) > 0

    def of_candidate(self, candidate: Candidate) -> float | None:
        """Return the seconds of a program; None for one in chunks that cannot be built, where the
        value is too large to be padded.

        A program in chunks is built before it is timed, because its steps may have to wait while
        values are packed between them.
        """
        program, scale = candidate.program, self.options.scale
        plan = self._planned(program)
        if plan is None:
            return None if candidate.pipeline else candidate.time
        if candidate.pipeline:
            cost = program_cost("", plan.steps, self.mesh, self.options.model)
            return cost.scaled(scale).time + self._local(plan)
        if scale == 1:  # a search may have priced a value that is padded for other programs
            return self._of_plan(plan)
        return sum(map(seconds_sent, candidate.costs)) + self._local(plan)

    def of(self, program: Program) -> float | None:
        """Return the seconds of steps in a row; None if they cannot be built or have no cost."""
        try:
            return None if (plan := self._planned(program)) is None else self._of_plan(plan)
        except CostError:
            return None

    def _of_plan(self, plan: Plan) -> float:
        model, scale = self.options.model, self.options.scale
        sent = (collective_of(x, self.mesh).scaled(scale) for x in plan.steps if x.kind.sends)
        return sum(seconds_sent(step_cost(x, model)) for x in sent) + self._local(plan)

    def _local(self, plan: Plan) -> float:
        """Return the seconds of the steps that send nothing, and of the copy of a result."""
        mesh, scale = self.mesh, self.options.scale
        copied = self.returned and plan.ends_in_larger_buffer(mesh)
        copy = copy_seconds(self.target.local_bytes(mesh) * scale, mesh) if copied else 0.0
        return local_seconds(plan.steps, mesh, scale) + copy

    def _planned(self, program: Program) -> Plan | None:
        try:
            return planned(self.mesh, self.source, program.steps, self.target, program.pipeline)
        except LayoutError:
            return None
