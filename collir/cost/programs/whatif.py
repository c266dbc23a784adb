"""The time that a simulated function would take if one property of its machine were better."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from collir.cost.programs.simulation import Simulation
from collir.machine import Device, Level, Machine, MachineError

BUFFER_FACTOR = 10.0
"""The factor of enlarged buffers."""


@dataclass(frozen=True)
class Improvement:
    """A change that makes a function faster.

    Attributes:
        what: the change, in words.
        time: the seconds that the function then takes.
        passes: the passes that make the change, if there are any.
    """

    what: str
    time: float
    passes: str = ""


def improvements(simulation: Simulation) -> list[Improvement]:
    """Return the changes of the machine that make the function faster, the best first.

    The changes are twice the port bandwidth or half the latency of a level, no taper, twice the
    rate at which a device reduces or copies, and half the time of its launches; where kinds of
    devices differ, also twice the compute rate of one kind.

    Raises:
        CostError: see ``step_cost``.
    """
    changes: list[Improvement] = []
    for what, better in _better_machines(simulation.mesh.machine):
        with suppress(MachineError):  # twice the largest float is infinite
            changes.append(Improvement(what, simulation.on(better()).time))
    helpful = [change for change in changes if change.time < simulation.time * (1 - 1e-9)]
    return sorted(helpful, key=lambda change: change.time)


def large_buffer_ratio(simulation: Simulation) -> float:
    """Return the time per byte in buffers ``BUFFER_FACTOR`` times as large, relative to now.

    Raises:
        CostError: see ``step_cost``.
    """
    return simulation.scaled(BUFFER_FACTOR).time / simulation.time / BUFFER_FACTOR


_RATES = {"reduction": "rate of reducing", "memory_bandwidth": "bandwidth of memory"}
"""The rates of a device that may be doubled, with their names in reports."""


def _better_machines(machine: Machine) -> Iterator[tuple[str, Callable[[], Machine]]]:
    for index, level in enumerate(machine.levels):
        if level.size > 1:
            for what, changed in _better_levels(level):
                yield what, partial(_with_level, machine, index, changed)
    device = machine.slowest
    for name, rate in _RATES.items():
        if device and getattr(device, name):
            yield f"twice the {rate}", partial(machine.with_devices, partial(_twice, name))
    if device and device.efficiency.launch:
        yield "half the time of launches", partial(machine.with_devices, _launching_faster)
    if machine.kinds_level is not None:
        for kind in machine.kinds:
            yield f"{kind.name}s twice as fast", partial(_with_kind, machine, kind.name)


def _better_levels(level: Level) -> Iterator[tuple[str, dict[str, Any]]]:
    ports = level.ports and tuple(2 * port for port in level.ports)
    yield f"twice the port of {level.name}", {"port": 2 * level.port, "ports": ports}
    if level.latency:
        yield f"half the latency of {level.name}", {"latency": level.latency / 2}
    if level.taper > 1:
        yield f"no taper on {level.name}", {"taper": 1.0}
    if parents := level.parents:
        for what, changed in _better_levels(parents.level):
            yield what, {"parents": replace(parents, level=replace(parents.level, **changed))}


def _with_level(machine: Machine, index: int, changed: dict[str, Any]) -> Machine:
    level = replace(machine.levels[index], **changed)
    return replace(machine, levels=(*machine.levels[:index], level, *machine.levels[index + 1 :]))


def _twice(name: str, device: Device) -> Device:
    changed: dict[str, Any] = {name: 2 * getattr(device, name)}
    return replace(device, **changed)


def _with_kind(machine: Machine, name: str) -> Machine:
    """Return the machine with devices of one kind that compute twice as fast."""
    kinds = tuple(
        replace(kind, device=_computing_faster(kind.device)) if kind.name == name else kind
        for kind in machine.kinds
    )
    return replace(machine, kinds=kinds)


def _launching_faster(device: Device) -> Device:
    launch = device.efficiency.launch / 2
    return replace(device, efficiency=replace(device.efficiency, launch=launch))


def _computing_faster(device: Device) -> Device:
    return replace(device, compute=tuple((dtype, 2 * rate) for dtype, rate in device.compute))
