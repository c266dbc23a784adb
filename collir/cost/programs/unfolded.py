"""The steps that each rank runs, one by one: loops and tasks of pipelines are unfolded.

A simulation has the steps of classes of devices, and loops once. Here each rank of a class runs the
steps in which it takes part, without the steps on values that only the root of another group holds.
A step waits for its operands. As in the schedule of the simulation, it also waits for earlier steps
that the host waits for, and for the earlier steps of its stream.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from collir.cost.collectives.collective import Collective
from collir.cost.model import StepCost
from collir.cost.programs.communicators import is_at, members, peers, place_of
from collir.cost.programs.local_steps import (
    COPY,
    LocalStep,
    copied_bytes,
    local_phases,
)
from collir.cost.programs.simulation import LoopStep, SimulatedStep, Simulation, TaskStep
from collir.layout import Place

MOST = 2**22
"""The most parts of steps that are listed, of all ranks together."""


class UnfoldedError(Exception):
    """The ranks run more than ``MOST`` parts of steps."""


class ActivityRole(Enum):
    """The role of a part of a step."""

    LOCAL = auto()
    COLLECTIVE = auto()
    SEND = auto()
    RECEIVE = auto()


@dataclass(frozen=True)
class RankActivity:
    """A part of a step that a rank runs: a computation, a collective, or one side of its messages.

    Attributes:
        does: its cost.
        serial: the number of its step among the steps of all ranks and iterations.
        seconds: its time alone.
        data, control: the numbers of the parts whose results it takes, and of the other parts that
            it waits for directly.
    """

    step: SimulatedStep
    role: ActivityRole
    does: StepCost | LocalStep
    serial: int
    seconds: float
    data: tuple[int, ...]
    control: tuple[int, ...]

    @property
    def collective(self) -> Collective:
        """Its collective, if it sends."""
        assert isinstance(self.does, StepCost)
        return self.does.collective


@dataclass(eq=False)
class _Scope:
    """A list of steps that are being unfolded: a function, an iteration, or a task.

    Attributes:
        issued: the parts that have to end before the next step is issued.
        open: the parts that no later part waits for yet.
        last: for each stream, the parts that end its last step.
        ends: for each step, the parts that make its result.
    """

    issued: set[int]
    open: set[int]
    last: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])
    ends: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])


_Sides = Mapping[Collective, tuple[bool, bool]]
"""The collectives with listed messages, each with whether a rank sends and receives some."""


class _Unfolding:
    """The parts of steps that the ranks of a class run at some places."""

    def __init__(self, number: int, places: frozenset[Place], sides: _Sides):
        self.number, self.places, self.sides = number, places, sides
        self.parts: list[RankActivity] = []
        self.waits: list[frozenset[int]] = []
        self.serial = 0

    def run(self, simulation: Simulation) -> Sequence[RankActivity]:
        """Return the parts of a program, in order."""
        self._program(simulation.program, self.number, _Scope(set(), set()))
        return self.parts

    def _program(self, program: Iterable[SimulatedStep], number: int, scope: _Scope) -> None:
        for place, step in enumerate(program):
            if number not in step.task.on or not self._takes_part(step):
                self.serial += _length(step)
                continue
            if step.loop:
                self._loop(step.loop, number, scope)
                scope.ends[place] = tuple(sorted(scope.open))
                continue
            data = {end for needed in step.task.after for end in scope.ends.get(needed, ())}
            issue = self._reduced(scope.issued | data)
            waits = self._reduced(issue.union(scope.last.get(step.task.stream, ())))
            ends = self._step(step, data, waits)
            scope.ends[place] = tuple(sorted(ends or data or waits))
            scope.open = (scope.open - waits - data) | (ends or waits)
            scope.last[step.task.stream] = tuple(ends or waits)
            scope.issued = issue if not step.task.waited else set(ends or waits)

    def _takes_part(self, step: SimulatedStep) -> bool:
        if isinstance(step.does, StepCost):
            return place_of(step.does.collective) in self.places
        return step.place in self.places

    def _loop(self, loop: LoopStep, number: int, scope: _Scope) -> None:
        """Unfold a loop; iterations, and the step behind it, wait for all parts before them."""
        for _ in range(loop.times):
            inner = _Scope(set(scope.open), set(scope.open))
            self._program(loop.body.program, number, inner)
            scope.open = inner.open
        scope.issued, scope.last = set(scope.open), {}

    def _step(self, step: SimulatedStep, data: set[int], waits: set[int]) -> set[int]:
        """Add the parts of a step, and return its last parts; none if it does nothing."""
        does = step.does
        if isinstance(does, TaskStep):
            self.serial += 1
            inner = _Scope(set(waits), set(waits))
            before = len(self.parts)
            self._program(does.body.program, 0, inner)
            return inner.open if len(self.parts) > before else set()
        self.serial += 1
        assert not isinstance(does, LoopStep)
        if isinstance(does, LocalStep):
            if not (step.task.time or does.size or any(count for _, count in does.work)):
                return set()
            return {self._add(step, ActivityRole.LOCAL, does, step.task.time, data, waits)}
        copy, seconds = _copy_of(does)
        if does.collective.ranks == 1:
            size = copied_bytes(does)
            alone = replace(copy, size=size)
            return (
                {self._add(step, ActivityRole.LOCAL, alone, seconds, data, waits)}
                if size
                else set()
            )
        packed, unpacked = does.collective.packs if seconds else (False, False)
        if packed:
            data = waits = {self._add(step, ActivityRole.LOCAL, copy, seconds, data, waits)}
        roles = [ActivityRole.COLLECTIVE]
        if does.collective.listed:
            pairs = zip(
                (ActivityRole.SEND, ActivityRole.RECEIVE), self.sides[does.collective], strict=True
            )
            roles = [role for role, has in pairs if has]
        time = math.fsum(phase.time for phase in does.phases)
        ends = {self._add(step, role, does, time, data, waits) for role in roles}
        if ends and unpacked:
            return {self._add(step, ActivityRole.LOCAL, copy, seconds, ends, ends)}
        return ends or (data if packed else set())

    def _add(
        self,
        step: SimulatedStep,
        role: ActivityRole,
        does: StepCost | LocalStep,
        seconds: float,
        data: set[int],
        waits: set[int],
    ) -> int:
        if len(self.parts) == MOST:
            raise UnfoldedError
        control = tuple(sorted(self._reduced(waits | data) - data))
        part = RankActivity(step, role, does, self.serial, seconds, tuple(sorted(data)), control)
        self.parts.append(part)
        self.waits.append(frozenset(data | waits))
        return len(self.parts) - 1

    def _reduced(self, parts: set[int]) -> set[int]:
        """Return parts without the parts for which another one waits."""
        if len(parts) < 2:
            return parts
        return parts.difference(*(self.waits[number] for number in parts))


def _copy_of(does: StepCost) -> tuple[LocalStep, float]:
    """Return the copy of the blocks of a collective that lie in several rows, and its seconds."""
    copy = LocalStep(COPY, 2 * does.collective.size)
    phases = local_phases(copy, does.collective.mesh.machine.slowest)
    return copy, math.fsum(phase.time for phase in phases)


def _length(step: SimulatedStep) -> int:
    """Return the number of steps in a step, with those of its iterations and tasks."""
    if step.loop:
        return step.loop.times * sum(map(_length, step.loop.body.program))
    return 1 + (sum(map(_length, step.pipelined.body.program)) if step.pipelined else 0)


def _flat(program: Iterable[SimulatedStep]) -> Iterator[SimulatedStep]:
    """Yield steps, and those of loops and of tasks, each once."""
    for step in program:
        yield step
        inner = step.loop or step.pipelined
        if inner:
            yield from _flat(inner.body.program)


class RankPrograms:
    """The parts of steps that each rank of a function runs.

    Ranks of the same class, at the same places, run the same parts; only the groups of their
    collectives and their partners differ.

    Attributes:
        collectives: the collectives of the function, each once.
        listed: the collectives whose messages are listed; they become sends and receives.
    """

    def __init__(self, simulation: Simulation):
        """Take a simulation."""
        self.simulation, self.mesh = simulation, simulation.mesh
        steps = [*_flat(simulation.program)]
        sent = dict.fromkeys(step.sent.collective for step in steps if step.sent)
        self._places = {*map(place_of, sent), *(step.place for step in steps if not step.sent)}
        self.listed = [x for x in sent if x.listed and x.ranks > 1]
        self.collectives = [x for x in sent if not x.listed and x.ranks > 1]
        self._known: dict[object, Sequence[RankActivity]] = {}

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return self.mesh.devices

    def parts(self, rank: int) -> Sequence[RankActivity]:
        """Return the parts that a rank runs, in the order of the program.

        Raises:
            UnfoldedError: they are more than ``MOST``.
        """
        places = frozenset(place for place in self._places if is_at(self.mesh, rank, place))
        sides = {x: self._sides(x, rank) for x in self.listed}
        key = self.simulation.class_of(rank), places, tuple(sides.values())
        if key not in self._known:
            self._known[key] = _Unfolding(key[0], places, sides).run(self.simulation)
        return self._known[key]

    def _sides(self, collective: Collective, rank: int) -> tuple[bool, bool]:
        targets, sources = self.peers(collective, rank)
        return bool(targets), bool(sources)

    def peers(self, collective: Collective, rank: int) -> tuple[list[int], list[int]]:
        """Return the ranks that a rank sends to and receives from in a collective whose messages
        are listed."""
        group = members(collective, rank)
        own = group.index(rank)
        targets, sources = ([group[n] for n in side.get(own, ())] for side in peers(collective))
        return targets, sources

    def check(self) -> None:
        """Check that not too many parts are listed.

        Raises:
            UnfoldedError: there are more than ``MOST``.
        """
        if sum(len(self.parts(rank)) for rank in range(self.ranks)) > MOST:
            raise UnfoldedError
