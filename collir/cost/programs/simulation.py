"""Simulations of functions: the times of their steps, the resources in use, the memory of a device.

All groups of a step are alike, and so are all devices at one place, so one device of each class is
simulated (``classes``): a program on 10^5 devices costs what it does on 16. Collectives have the
phases of their algorithms; ``local_steps`` run on a stream of their own. The memory is the most
that a class of devices needs. If there is one class, its device is at coordinate 0 of all sub-axes,
and takes part in all steps.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from collir.cost.collectives.phases import Phase
from collir.cost.model import CostModel, StepCost, step_cost
from collir.cost.network.loads import Resource
from collir.cost.programs.classes import Lookup, Sites
from collir.cost.programs.kinds import seen_by
from collir.cost.programs.local_steps import (
    COPY,
    LocalStep,
    copied_bytes,
    local_phases,
    sent_phases,
)
from collir.cost.programs.loops import Bound, Node, PlacedTask, Repeated, least_time
from collir.cost.programs.memory import (
    AT_END,
    BY_ROLE,
    Buffer,
    BufferUse,
    Peak,
    memory_use,
    most_held,
    peak_of,
    uses_over_time,
)
from collir.cost.programs.schedule import Interval, StepTask, TimeSpan, longest_chain
from collir.cost.programs.timeline import Timeline, busy_seconds, straight_timeline, timeline
from collir.dialects.nested import RepeatOp
from collir.layout import Mesh, Place
from collir.machine import Machine


@dataclass(frozen=True)
class LoopStep:
    """A loop, whose iterations run one after the other.

    Attributes:
        times: the number of iterations.
        body: the simulation of an iteration.
        spares: the second buffers of carries: their bytes, and whether another value's memory is
            used if the number of iterations is odd.
    """

    times: int
    body: "Simulation"
    spares: tuple[tuple[float, bool], ...] = ()

    @property
    def kind(self) -> str:
        """The word for the loop in reports."""
        return f"{RepeatOp.WORD} {self.times}"

    @property
    def phases(self) -> tuple[Phase, ...]:
        """One phase, which uses the resources as much as an iteration does on average.

        An iteration takes at least as long as the host takes to issue it.
        """
        return _average(self.body, self.times)

    @cached_property
    def peak(self) -> Peak:
        """The bytes that a device needs for an iteration, without its arguments and results, if
        there is one class of devices."""
        return _inner_peak(self.body)


@dataclass(frozen=True)
class TaskStep:
    """A task of a pipeline.

    Attributes:
        kind: its name in the schedule.
        body: the simulation of its function on the devices of its place.
        loop: the name of the first result of the loop that it is in.
        schedule: the name of the schedule; empty if the tasks are listed.
    """

    kind: str
    body: "Simulation"
    loop: str = ""
    schedule: str = ""

    @cached_property
    def phases(self) -> tuple[Phase, ...]:
        """One phase, which uses the resources as much as the function does on average."""
        return _average(self.body, 1)

    @cached_property
    def peak(self) -> Peak:
        """The bytes that a device needs for it, without its arguments and results."""
        return _inner_peak(self.body)


def _average(body: "Simulation", times: int) -> tuple[Phase, ...]:
    """Return one phase that uses the resources as much as a program does on average."""
    time = body.time
    if not time:
        return ()
    uses = tuple((part, min(1.0, busy / time)) for part, busy in body.busy.items())
    return (Phase(work=times * time, uses=uses),)


def _inner_peak(body: "Simulation") -> Peak:
    """Return the bytes that a device of the one class needs beside arguments and results."""
    (buffers,) = body.buffers
    return peak_of([buffer for buffer in buffers if buffer.is_inside], body.spans)


@dataclass(frozen=True)
class SimulatedStep:
    """A step of a function.

    Attributes:
        result: the name of its (first) result in the program.
        does: the cost of a collective that runs alone, a local step, a loop, or a task of a
            pipeline.
        task: its scheduler task.
        at: the place of the devices that run it, where places are told apart; else empty.
        sites: the ports that it uses there.
        kinds: the kinds of these devices, if the machine has several; else empty.
        iterations: the numbers of the iterations that it is in, from 0, outermost first.
        line: the line of the program that it comes from; 0 if that is not known.
        of_pipeline: whether it is a task or a send of a pipeline.
        place: of a local step, the coordinates of the devices that hold its result.
    """

    result: str
    does: StepCost | LocalStep | LoopStep | TaskStep
    task: StepTask
    at: str = ""
    sites: Sites | None = None
    kinds: tuple[str, ...] = ()
    iterations: tuple[int, ...] = ()
    line: int = 0
    of_pipeline: bool = False
    place: Place = ()

    @property
    def name(self) -> str:
        """Its result, and the numbers of its iterations, as a report shows them."""
        return f"%{self.result}{''.join(f'[{number}]' for number in self.iterations)}"

    @property
    def kind(self) -> str:
        """The name of the operation."""
        return self.does.collective.kind if isinstance(self.does, StepCost) else self.does.kind

    @property
    def sent(self) -> StepCost | None:
        """The cost of a collective that runs alone; None for a local step or a loop."""
        return self.does if isinstance(self.does, StepCost) else None

    @property
    def loop(self) -> LoopStep | None:
        """The loop; None for a step."""
        return self.does if isinstance(self.does, LoopStep) else None

    @property
    def size(self) -> float:
        """The bytes of a collective's full buffer, or the bytes that a local step reads and writes;
        0 for a loop or a task."""
        if isinstance(self.does, LoopStep | TaskStep):
            return 0.0
        return self.does.size if isinstance(self.does, LocalStep) else self.does.collective.size

    @property
    def lane(self) -> int:
        """The first class of devices that takes part."""
        return self.task.on[0]

    @property
    def pipelined(self) -> TaskStep | None:
        """The task of a pipeline; None for other steps."""
        return self.does if isinstance(self.does, TaskStep) else None

    def over(self, mesh: Mesh) -> str:
        """Return the axes of a collective as a user writes them."""
        return ", ".join(mesh.short(self.sent.collective.axes)) if self.sent else ""

    def crosses(self, mesh: Mesh) -> str:
        """Return the outermost level of the machine that the axes of a collective cross; empty for
        other steps, and inside of a device."""
        axes = self.sent.collective.axes if self.sent else ()
        used = {mesh.by_name[axis].level for axis in axes}
        return next((level.name for level in mesh.machine.levels if level.name in used), "")

    @property
    def issues(self) -> int:
        """The number of its kernels and collectives that a host issues."""
        if isinstance(self.does, LocalStep):
            return int(self.does.launched and bool(self.does.size or self.does.work))
        return 1 + sum(self.does.collective.packs) if isinstance(self.does, StepCost) else 0

    @property
    def bound(self) -> float:
        """A lower bound of its seconds."""
        if self.loop:
            return self.loop.times * self.loop.body.bound
        if self.pipelined:
            return self.pipelined.body.bound
        return self.sent.bound if self.sent and not copied_bytes(self.sent) else self.task.time


@dataclass(frozen=True, repr=False)
class Simulation:
    """A function simulated under a model; all times are in seconds.

    Attributes:
        program: its steps and loops, in program order.
        held: the buffers of a device of each class; steps are named by their places in the program.
        places: the place of each class, as a report shows it; empty if there is one class.
        kinds: the kinds of devices of each class, if the machine has several.
        lookup: the class of each device; None if there is one class.
    """

    name: str
    mesh: Mesh
    model: CostModel
    program: tuple[SimulatedStep, ...]
    held: tuple[tuple[Buffer, ...], ...]
    places: tuple[str, ...] = ("",)
    kinds: tuple[tuple[str, ...], ...] = ((),)
    lookup: Lookup | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        count, machine = self.mesh.machine.devices, self.mesh.machine.name
        return f"<Simulation of @{self.name}: {self.time:.6g} s on {count} devices of @{machine}>"

    def class_of(self, rank: int) -> int:
        """Return the number of the class of a device."""
        return self.lookup.class_of(rank) if self.lookup else 0

    @cached_property
    def steps(self) -> tuple[SimulatedStep, ...]:
        """The simulated steps. With several classes, these include the simulated iterations of
        loops, and steps of no time at the beginnings of loops and the ends of iterations."""
        if not self._has_loops_apart:
            return self.program
        return tuple(step_at(self.program, placed) for placed in self.timeline.placed)

    @property
    def collectives(self) -> tuple[StepCost, ...]:
        """The costs of its collectives, each alone, without those inside of loops."""
        return tuple(step.sent for step in self.program if step.sent)

    def all_collectives(self, times: int = 1) -> Iterator[tuple[StepCost, int]]:
        """Yield the cost of each collective alone, also in loops and tasks, with its number of
        runs."""
        for step in self.program:
            if step.loop:
                yield from step.loop.body.all_collectives(times * step.loop.times)
            elif step.pipelined:
                yield from step.pipelined.body.all_collectives(times)
            elif step.sent:
                yield step.sent, times

    @property
    def streams(self) -> int:
        """The number of streams: one for each level, one for local steps, and one for the sends of
        pipelines between each two places."""
        own = [step.task.stream for step in self.steps]
        return 1 + max([len(self.mesh.machine.levels), *own])

    @property
    def overlaps(self) -> bool:
        """True if steps may run at the same time."""
        return any(not step.task.waited or step.sites for step in self.program)

    @property
    def _has_loops_apart(self) -> bool:
        return len(self.places) > 1 and any(step.loop for step in self.program)

    @cached_property
    def timeline(self) -> Timeline:
        """The schedule of the steps."""
        if self._has_loops_apart:
            return timeline(nodes_of(self.program))
        return straight_timeline([step.task for step in self.program])

    @property
    def buffers(self) -> tuple[tuple[Buffer, ...], ...]:
        """The buffers that a device of each class holds, by the numbers of ``steps``."""
        if not self._has_loops_apart:
            return self.held
        return tuple(
            tuple(_LaidOut(self.timeline.placed, device_class).buffers(self.program, self.held))
            for device_class in range(len(self.places))
        )

    @property
    def spans(self) -> Sequence[TimeSpan]:
        """The time span of every step."""
        return self.timeline.spans

    @property
    def intervals(self) -> Sequence[Interval]:
        """The intervals between events, in order; iterations left out are one without steps."""
        return self.timeline.intervals

    @cached_property
    def time(self) -> float:
        """The end of the last step, which is behind the host's issue of all steps."""
        return max(self.timeline.time, *map(self.issued_on, range(len(self.places))))

    def issued_on(self, device_class: int) -> float:
        """Return the seconds in which the host of a class issues its kernels and collectives."""
        device = self.mesh.machine.slowest_of(self.kinds[device_class])
        if device is None or not device.execution.issue:
            return 0.0
        return device.execution.issue * self.issues_on(device_class)

    def issues_on(self, device_class: int) -> int:
        """Return the number of kernels and collectives that a class runs."""
        steps = [step for step in self.program if device_class in step.task.on]
        inside = sum(s.loop.times * s.loop.body.issues_on(device_class) for s in steps if s.loop)
        return inside + sum(step.issues for step in steps)

    @property
    def time_before_copies(self) -> float:
        """The end of the last step before results that lie in other buffers are copied."""
        timed = zip(self.steps, self.spans, strict=True)
        return max((end for step, (_, end) in timed if step.kind != COPY), default=0.0)

    @cached_property
    def busy(self) -> Mapping[Resource, float]:
        """Seconds that each resource of the machine is kept busy."""
        if (busy := self.timeline.busy) is not None:
            return busy
        return busy_seconds(step.task for step in self.program)

    @cached_property
    def bound(self) -> float:
        """A lower bound of the time of these steps: the longest chain of their bounds. A loop that
        several classes run has the longest chain of any one class."""
        if not self._has_loops_apart:
            tasks = [step.task for step in self.program]
            return longest_chain(tasks, [step.bound for step in self.program])
        return least_time(nodes_of(self.program), bounds_of(self.program))

    @cached_property
    def _memory_uses(self) -> list[list[tuple[float, float]]]:
        """The bytes held over time by a device of each class; see ``memory_use``."""
        return [memory_use(buffers, self.spans) for buffers in self.buffers]

    @property
    def memory(self) -> list[tuple[float, float]]:
        """The bytes held over time by a device of the fullest class; see ``memory_use``."""
        return self._memory_uses[self.peaks.index(self.peak)]

    def memory_on(self, device_class: int) -> list[tuple[float, float]]:
        """Return the bytes held over time by a device of a class; see ``memory_use``."""
        return self._memory_uses[device_class]

    @property
    def memory_by_use(self) -> list[tuple[float, dict[BufferUse, float]]]:
        """The bytes of each use over time, on a device of the fullest class."""
        return uses_over_time(self.buffers[self.peaks.index(self.peak)], self.spans)

    def peak_on(self, device_class: int) -> Peak:
        """Return the peak of the memory of a device of a class."""
        return peak_of(self.buffers[device_class], self.spans)

    @property
    def has_roles(self) -> bool:
        """True if some buffer is there for a value with a role."""
        held = any(buffer.use in BY_ROLE for buffers in self.held for buffer in buffers)
        return held or any(step.loop.body.has_roles for step in self.program if step.loop)

    @cached_property
    def peaks(self) -> list[float]:
        """The largest number of bytes that a device of each class holds at any time."""
        return [most_held(buffers, self.spans) for buffers in self.buffers]

    @property
    def fullest(self) -> tuple[float, float | None, str]:
        """The fullest memory of any class of devices: its peak in bytes, its capacity, and the kind
        of the device if the machine has several."""
        kinds = self.kinds[self.fullest_class]
        name = "/".join(kinds) if self.mesh.machine.kinds_level is not None else ""
        return self.peaks[self.fullest_class], self._memory_of(kinds), name

    @cached_property
    def fullest_class(self) -> int:
        """The number of the class of devices whose memory is the fullest."""

        def fullness(number: int) -> tuple[float, float]:
            peak, memory = self.peaks[number], self._memory_of(self.kinds[number])
            return peak / memory if memory else 0.0, peak

        return max(range(len(self.peaks)), key=fullness)

    def _memory_of(self, kinds: Sequence[str]) -> float | None:
        device = self.mesh.machine.slowest_of(kinds)
        return device.memory if device else None

    @property
    def peak(self) -> float:
        """The largest number of bytes that a device holds at any time."""
        return max(self.peaks)

    @cached_property
    def in_use(self) -> dict[Resource, list[tuple[float, float]]]:
        """For each resource, its use over time, as pairs (time, part from 0 to 1)."""
        changes_of: dict[Resource, list[tuple[float, float]]] = {r: [] for r in self.busy}
        left_out = {cut.start: cut.use for cut in self.timeline.cuts}
        for interval in self.intervals:
            used = dict.fromkeys(changes_of, 0.0)
            used |= left_out.get(interval.start, {}) if not interval.running else {}
            for phase, speed in interval.running.values():
                for resource, part in phase.uses:
                    used[resource] += part * speed
            for resource, changes in changes_of.items():
                if used[resource] != (changes[-1][1] if changes else None):
                    changes.append((interval.start, used[resource]))
        for changes in changes_of.values():
            changes.append((self.time, 0.0))
        return changes_of

    def on(self, machine: Machine) -> "Simulation":
        """Return the same steps on a machine with the same levels, but other speeds.

        Raises:
            CostError: see ``step_cost``.
        """
        mesh = replace(self.mesh, machine=machine)
        program = tuple(self._changed(step, mesh, 1.0) for step in self.program)
        return replace(self, mesh=mesh, program=program)

    def scaled(self, factor: float) -> "Simulation":
        """Return the simulation with all buffers ``factor`` times as large.

        Raises:
            CostError: see ``step_cost``.
        """
        program = tuple(self._changed(step, self.mesh, factor) for step in self.program)
        buffers = tuple(
            tuple(replace(buffer, size=buffer.size * factor) for buffer in held)
            for held in self.held
        )
        return replace(self, program=program, held=buffers)

    def _changed(self, step: SimulatedStep, mesh: Mesh, factor: float) -> SimulatedStep:
        """Return a step on another mesh, with buffers ``factor`` times as large."""
        if isinstance(step.does, LoopStep):
            body = step.does.body
            body = body.scaled(factor) if mesh == self.mesh else body.on(mesh.machine)
            loop = replace(step.does, body=body)
            phases = () if len(self.places) > 1 else loop.phases
            return replace(step, does=loop, task=replace(step.task, phases=phases))
        if isinstance(step.does, TaskStep):
            body = step.does.body
            body = body.scaled(factor) if mesh == self.mesh else body.on(mesh.machine)
            task = replace(step.does, body=body)
            phases = step.sites.located(task.phases) if step.sites else task.phases
            return replace(step, does=task, task=replace(step.task, phases=phases))
        if isinstance(step.does, LocalStep):
            local = step.does.scaled(factor)
            phases = local_phases(local, mesh.machine.slowest_of(step.kinds))
            return replace(step, does=local, task=replace(step.task, phases=phases))
        seen = seen_by(mesh, step.kinds)
        collective = replace(step.does.collective.scaled(factor), mesh=seen)
        does = step_cost(collective, self.model)
        phases = sent_phases(does)
        located = step.sites.located(phases) if step.sites else phases
        return replace(step, does=does, task=replace(step.task, phases=located))


def nodes_of(program: Sequence[SimulatedStep]) -> list[Node]:
    """Return the steps and loops of a program that several classes run, to be scheduled."""
    return [
        Repeated(step.loop.times, tuple(nodes_of(step.loop.body.program)), step.task.on)
        if step.loop
        else step.task
        for step in program
    ]


def step_at(program: Sequence[SimulatedStep], placed: PlacedTask) -> SimulatedStep:
    """Return the step of a task; where a loop begins or iterations end, one that does nothing."""
    step = program[placed.path[0]]
    for place in placed.path[1:]:
        assert step.loop
        step = step.loop.body.program[place]
    does = LocalStep(step.kind, 0.0) if step.loop else step.does
    return replace(step, does=does, task=placed.task, iterations=placed.of_all)


def bounds_of(program: Sequence[SimulatedStep]) -> list[Bound]:
    """Return the lower bounds of the seconds of steps, and of those in loops."""
    return [bounds_of(step.loop.body.program) if step.loop else step.bound for step in program]


class _LaidOut:
    """The numbers of one class's tasks in a list that has the iterations of loops."""

    def __init__(self, placed: Sequence[PlacedTask], device_class: int):
        self.device_class = device_class
        self.first: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
        self.last: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
        for number, task in enumerate(placed):
            if device_class in task.task.on:
                key = task.path, task.iterations[: len(task.path) - 1]
                self.first.setdefault(key, number)
                self.last[key] = number

    def buffers(
        self, program: Sequence[SimulatedStep], held: Sequence[Sequence[Buffer]]
    ) -> Iterator[Buffer]:
        """Yield the buffers of a function, and those inside of its loops."""
        for buffer in held[self.device_class]:
            yield self._numbered(buffer, (), ())
        yield from self._inside(program, (), ())

    def _inside(
        self, program: Sequence[SimulatedStep], path: tuple[int, ...], iterations: tuple[int, ...]
    ) -> Iterator[Buffer]:
        for place, step in enumerate(program):
            here = (*path, place)
            if not step.loop or (here, iterations) not in self.first:
                continue
            depth = len(iterations)
            begun = (key[1] for key in self.first if key[0][:-1] == here)
            numbers = dict.fromkeys(inner[depth] for inner in begun if inner[:depth] == iterations)
            own = [b for b in step.loop.body.held[self.device_class] if b.is_inside]
            for number in numbers:
                inner = (*iterations, number)
                yield from (self._numbered(buffer, here, inner) for buffer in own)
                yield from self._inside(step.loop.body.program, here, inner)

    def _numbered(
        self, buffer: Buffer, path: tuple[int, ...], iterations: tuple[int, ...]
    ) -> Buffer:
        """Return a buffer with numbers in the list in place of places in a program."""
        first, until = buffer.first, buffer.until
        if first not in (None, AT_END):
            first = self.first[(*path, first), iterations]
        if until is not None:
            until = tuple(self.last[(*path, place), iterations] for place in until)
        over = buffer.over and tuple(self.last[(*path, n), iterations] for n in buffer.over)
        return replace(buffer, first=first, until=until, over=over)
