"""The critical path of a simulated function, and the causes of its time."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from collir.cost.collectives.phases import Phase
from collir.cost.network.loads import Resource, ResourceKind
from collir.cost.programs.local_steps import LocalStep, local_times
from collir.cost.programs.schedule import Interval
from collir.cost.programs.simulation import SimulatedStep, Simulation


@dataclass(frozen=True)
class CriticalStep:
    """A step of the critical path.

    Attributes:
        number: the number of the step.
        waited_for: the number of the step at whose end it starts; None for the first step.
        why: the reason to wait: ``operand`` (its result is needed), ``stream`` (it ran on the same
            stream), or ``order`` (all later steps wait for it).
    """

    number: int
    waited_for: int | None
    why: str


def critical_path(simulation: Simulation) -> list[CriticalStep]:
    """Return the steps that follow each other without a gap from the start to the end, in order.

    Iterations that are left out are no gap.
    If one of them gets faster, so does the function, unless another path is as long.
    """
    spans, steps = simulation.timeline.simulated, simulation.steps
    if not steps:
        return []
    number = max(range(len(spans)), key=lambda step: spans[step][1])
    path: list[CriticalStep] = []
    while True:
        step = _critical_step(simulation, number)
        path.append(step)
        if step.waited_for is None:
            return path[::-1]
        number = step.waited_for


def _critical_step(simulation: Simulation, number: int) -> CriticalStep:
    """Return a step with the reason why it does not start earlier."""
    spans, steps = simulation.timeline.simulated, simulation.steps
    start, task = spans[number][0], steps[number].task
    for operand in task.after:
        if spans[operand][1] == start:
            return CriticalStep(number, operand, "operand")
    for earlier in range(number - 1, -1, -1):
        before = steps[earlier].task
        same_stream = before.stream == task.stream
        if (
            spans[earlier][1] == start
            and not {*before.on}.isdisjoint(task.on)
            and (before.waited or same_stream)
        ):
            return CriticalStep(number, earlier, "stream" if same_stream else "order")
    # It starts together with an earlier step, so both wait for the same step.
    for earlier in range(number - 1, -1, -1):
        if spans[earlier][0] == start > 0:
            return CriticalStep(number, _critical_step(simulation, earlier).waited_for, "order")
    return CriticalStep(number, None, "")


@dataclass(frozen=True)
class TimeShare:
    """Time on the critical path due to one cause.

    Attributes:
        cause: ``latency``, ``transfer``, ``reduction``, ``local`` (steps that send nothing; of
            operations of models: ``operations``, ``memory`` or ``launch``), ``shared`` (steps that
            run at the same time use the same ports and links), ``host`` (the device waits for the
            issue of kernels), or ``iterations`` (iterations that recur and are not simulated).
        resource: the resource of the machine that takes the time, if any; for latency, a port, or
            None for the start of a step.
        time: seconds.
    """

    cause: str
    resource: Resource | None
    time: float


def time_shares(simulation: Simulation) -> list[TimeShare]:
    """Return the function's time divided by cause and resource, the largest share first."""
    on_path = {step.number for step in critical_path(simulation)}
    times: dict[tuple[str, Resource | None], float] = {}
    for number in list(on_path):
        if loop := simulation.steps[number].loop:
            on_path.remove(number)
            for share in time_shares(loop.body):
                key = share.cause, share.resource
                times[key] = times.get(key, 0.0) + loop.times * share.time
    for interval in simulation.intervals:
        for number in on_path & interval.running.keys():
            phase, speed = interval.running[number]
            time = interval.end - interval.start
            parts = _parts_of_work(simulation, simulation.steps[number], phase)
            for cause, resource, part in _causes(phase, speed, parts):
                times[cause, resource] = times.get((cause, resource), 0.0) + time * part
            if speed < 1:
                key = "shared", _fullest(interval, phase)
                times[key] = times.get(key, 0.0) + time * (1 - speed)
    for left_out in simulation.timeline.cuts:
        times["iterations", None] = times.get(("iterations", None), 0.0) + left_out.cut.seconds
    waited = simulation.time - simulation.timeline.time
    times["host", None] = times.get(("host", None), 0.0) + waited
    shares = (TimeShare(*key, time) for key, time in times.items() if time)
    return sorted(shares, key=lambda share: -share.time)


def _parts_of_work(simulation: Simulation, step: SimulatedStep, phase: Phase) -> dict[str, float]:
    """Return the causes of the work of a device in a phase of a step, each with its part of it."""
    if not isinstance(does := step.does, LocalStep):
        return {"reduction" if step.sent and not phase.is_local else "local": 1.0}
    if not (does.launched and (does.work or does.inside)):
        return {"local": 1.0}
    times = local_times(does, simulation.mesh.machine.slowest_of(step.kinds))
    cause = "operations" if times.operations > times.memory else "memory"
    launch = times.launch / times.seconds if times.seconds else 0.0
    return {"launch": launch, cause: 1 - launch}


def _causes(
    phase: Phase, speed: float, parts_of_work: Mapping[str, float]
) -> Iterator[tuple[str, Resource | None, float]]:
    """Yield the parts of a time that a phase spends on each cause, with the resource."""
    done = speed / phase.time
    for level, latency in phase.latencies:
        port = None if level is None else Resource(level, ResourceKind.PORT)
        yield "latency", port, done * latency
    yield "transfer", phase.narrowest, done * phase.transfer
    for cause, part in parts_of_work.items():
        yield cause, None, done * phase.work * part


def _fullest(interval: Interval, phase: Phase) -> Resource | None:
    """Return the resource of a phase that all running phases together use most."""
    used = dict.fromkeys((resource for resource, _ in phase.uses), 0.0)
    for running, speed in interval.running.values():
        for resource, part in running.uses:
            if resource in used:
                used[resource] += part * speed
    return max(used, key=lambda resource: used[resource], default=None)
