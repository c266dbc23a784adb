"""What a simulated function would take if one thing about its machine were better."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from collir.cost.simulation import Simulation
from collir.machine import Level, Machine

LARGER = 10.0
"""How many times as large buffers are tried."""


@dataclass(frozen=True)
class Change:
    """What is changed, and what the function then takes; seconds."""

    what: str
    time: float


def improvements(simulation: Simulation) -> list[Change]:
    """What each change of the machine would bring, the best first: twice the bandwidth of the ports
    or half the latency of a level, twice the rate at which a device reduces or copies. Those that
    bring nothing are left out.

    Raises:
        CostError: see ``step_cost``.
    """
    each = (
        Change(what, simulation.on(machine).time)
        for what, machine in _machines(simulation.mesh.machine)
    )
    found = [change for change in each if change.time < simulation.time * (1 - 1e-9)]
    return sorted(found, key=lambda change: change.time)


def per_byte(simulation: Simulation) -> float:
    """What a byte takes in buffers ``LARGER`` times as large, of what it takes now; 0 to 1 or so.

    Raises:
        CostError: see ``step_cost``.
    """
    return simulation.scaled(LARGER).time / simulation.time / LARGER


def _machines(machine: Machine) -> Iterator[tuple[str, Machine]]:
    for index, level in enumerate(machine.levels):
        if level.size > 1:
            for what, other in _levels(level):
                levels = (*machine.levels[:index], other, *machine.levels[index + 1 :])
                yield what, replace(machine, levels=levels)
    device = machine.device
    if device and device.reduction:
        faster = replace(device, reduction=2 * device.reduction)
        yield "twice the rate of reducing", replace(machine, device=faster)
    if device and device.memory_bandwidth:
        faster = replace(device, memory_bandwidth=2 * device.memory_bandwidth)
        yield "twice the bandwidth of memory", replace(machine, device=faster)


def _levels(level: Level) -> Iterator[tuple[str, Level]]:
    ports = level.ports and tuple(2 * port for port in level.ports)
    yield f"twice the port of {level.name}", replace(level, port=2 * level.port, ports=ports)
    if level.latency:
        yield f"half the latency of {level.name}", replace(level, latency=level.latency / 2)
    if level.taper > 1:
        yield f"no taper on {level.name}", replace(level, taper=1.0)
