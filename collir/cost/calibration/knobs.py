"""The numbers of a machine that a fit can turn.

Times are piecewise linear in latencies and in the reciprocals of bandwidths, so a knob is set in
seconds, or in seconds per byte.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from collir.machine import Level, Machine

FLOOR = {"latency": 1e-9, "port": 1e-18, "reduction": 1e-18}
"""The least that a knob is set to: 1 ns, and 10^18 bytes/second."""

CEILING = {"latency": 1e3, "port": 1e2, "reduction": 1e2}
"""The most: 1000 s, and 0.01 bytes/second."""

START = {"latency": 1e-6}
"""Where the fit starts, if the machine says 0."""


@dataclass(frozen=True)
class Knob:
    """The port or the latency of a level (0 is outermost), or the reduction of the device.

    Where the children of a level have ports of their own, the port is the largest of them.
    ``part`` says of which of the level's parts the port is; None: of the level itself.
    """

    name: str
    what: str
    level: int = -1
    part: int | None = None

    def said(self, machine: Machine) -> float:
        """As the machine says it: seconds, or bytes per second."""
        if self.what == "reduction":
            assert machine.device and machine.device.reduction
            return machine.device.reduction
        level = machine.levels[self.level]
        if self.part is not None:
            return level.parts[self.part].port
        return level.latency if self.what == "latency" else level.port

    def read(self, machine: Machine) -> float:
        """In seconds, or seconds per byte."""
        said = self.said(machine)
        return said if self.what == "latency" else 1 / said

    def shown(self, setting: float) -> float:
        """A setting as the machine says it: seconds, or bytes per second."""
        if self.what == "latency":
            return setting
        return 1 / setting if setting > 0 else float("inf")


def knobs_of(machine: Machine) -> list[Knob]:
    """All that a machine has, from the outermost level inwards. One child has no links to fit."""
    found: list[Knob] = []
    for index, level in enumerate(machine.levels):
        if level.size > 1:
            found += [
                Knob(f"{level.name}.part[{part.children}]", "port", index, place)
                for place, part in enumerate(level.parts)
            ]
            found += [Knob(f"{level.name}.{what}", what, index) for what in ("port", "latency")]
    if machine.device and machine.device.reduction:
        found.append(Knob("reduction", "reduction"))
    return found


def machine_with_settings(
    machine: Machine, knobs: Sequence[Knob], settings: Sequence[float]
) -> Machine:
    """The machine with some of its knobs set."""
    shown = [knob.shown(setting) for knob, setting in zip(knobs, settings, strict=True)]
    return machine_with_values(machine, knobs, shown)


def machine_with_values(
    machine: Machine, knobs: Sequence[Knob], values: Sequence[float]
) -> Machine:
    """The machine with some of its numbers replaced: seconds, or bytes per second."""
    levels = list(machine.levels)
    device = machine.device
    for knob, value in zip(knobs, values, strict=True):
        if knob.what == "reduction":
            assert device
            device = replace(device, reduction=value)
        elif knob.what == "latency":
            levels[knob.level] = replace(levels[knob.level], latency=value)
        elif knob.part is not None:
            levels[knob.level] = _with_part(levels[knob.level], knob.part, value)
        else:
            levels[knob.level] = _with_port(levels[knob.level], value)
    return replace(machine, levels=tuple(levels), device=device)


def _with_part(level: Level, place: int, port: float) -> Level:
    """Return the level with this as the port of one of its parts."""
    parts = list(level.parts)
    parts[place] = replace(parts[place], port=port)
    return replace(level, parts=tuple(parts))


def _with_port(level: Level, port: float) -> Level:
    """The level with this as its port; where children have their own, all in proportion."""
    if not level.ports:
        return replace(level, port=port)
    ports = tuple(own / level.port * port for own in level.ports)
    return replace(level, port=max(ports), ports=ports)
