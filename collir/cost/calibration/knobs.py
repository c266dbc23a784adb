"""The knobs of a machine: the numbers that a fit can change.

Times are piecewise linear in latencies and in the reciprocals of bandwidths, so the setting of a
knob is in seconds, or in seconds per byte. The machine's own values are in seconds and bytes per
second.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from collir.machine import Device, Level, Machine

FLOOR = {"latency": 1e-9, "port": 1e-18, "reduction": 1e-18}
"""Smallest settings: 1 ns, and 10^18 bytes/second."""

CEILING = {"latency": 1e3, "port": 1e2, "reduction": 1e2}
"""Largest settings: 1000 s, and 0.01 bytes/second."""

START = {"latency": 1e-6}
"""Settings at which the fit starts if the machine has 0."""


@dataclass(frozen=True)
class Knob:
    """The port or the latency of a level, or the reduction rate of the device.

    Attributes:
        what: ``port``, ``latency`` or ``reduction``.
        level: the index of the level; 0 is outermost.
        part: the index of the level's part that has the port; None for the level itself. If the
            children of a level have ports of their own, the port is the largest of them.
        above: whether it is of the level above, whose children differ in size.
    """

    name: str
    what: str
    level: int = -1
    part: int | None = None
    above: bool = False

    def level_of(self, machine: Machine) -> Level:
        """Return the level of the port or the latency."""
        level = machine.levels[self.level]
        return level.parents.level if self.above and level.parents else level

    def machine_value(self, machine: Machine) -> float:
        """Return the machine's value: seconds, or bytes per second."""
        if self.what == "reduction":
            assert machine.slowest and machine.slowest.reduction
            return machine.slowest.reduction
        level = self.level_of(machine)
        if self.part is not None:
            return level.parts[self.part].port
        return level.latency if self.what == "latency" else level.port

    def setting(self, machine: Machine) -> float:
        """Return the setting on a machine: seconds, or seconds per byte."""
        value = self.machine_value(machine)
        return value if self.what == "latency" else 1 / value

    def value_of(self, setting: float) -> float:
        """Return a setting as a machine's value: seconds, or bytes per second."""
        if self.what == "latency":
            return setting
        return 1 / setting if setting > 0 else float("inf")


def knobs_of(machine: Machine) -> list[Knob]:
    """Return the knobs of a machine, outermost level first, without levels of one child."""
    knobs: list[Knob] = []
    for index, level in enumerate(machine.levels):
        if level.parents:
            name = level.parents.level.name
            knobs += [
                Knob(f"{name}.{what}", what, index, above=True) for what in ("port", "latency")
            ]
        if level.size > 1:
            knobs += [
                Knob(f"{level.name}.part[{part.children}]", "port", index, number)
                for number, part in enumerate(level.parts)
            ]
            knobs += [Knob(f"{level.name}.{what}", what, index) for what in ("port", "latency")]
    if machine.slowest and machine.slowest.reduction:
        knobs.append(Knob("reduction", "reduction"))
    return knobs


def machine_with_settings(
    machine: Machine, knobs: Sequence[Knob], settings: Sequence[float]
) -> Machine:
    """Return the machine with some of its knobs at these settings."""
    values = [knob.value_of(setting) for knob, setting in zip(knobs, settings, strict=True)]
    return machine_with_values(machine, knobs, values)


def machine_with_values(
    machine: Machine, knobs: Sequence[Knob], values: Sequence[float]
) -> Machine:
    """Return the machine with other values of some knobs: seconds, or bytes per second."""
    levels = list(machine.levels)
    for knob, value in zip(knobs, values, strict=True):
        if knob.what == "reduction":
            given = knob.machine_value(machine)
            machine = machine.with_devices(partial(_with_reduction, given, value))
        else:
            level, parents = levels[knob.level], levels[knob.level].parents
            if knob.above and parents:
                changed = _with_value(parents.level, knob, value)
                levels[knob.level] = replace(level, parents=replace(parents, level=changed))
            else:
                levels[knob.level] = _with_value(level, knob, value)
    return replace(machine, levels=tuple(levels))


def _with_value(level: Level, knob: Knob, value: float) -> Level:
    """Return the level with another latency or port."""
    if knob.what == "latency":
        return replace(level, latency=value)
    return _with_port(level, value) if knob.part is None else _with_part(level, knob.part, value)


def _with_reduction(given: float, reduction: float, device: Device) -> Device:
    """Return the device with another rate; those of faster kinds change in proportion."""
    own = device.reduction or given
    return replace(device, reduction=reduction if own == given else own / given * reduction)


def _with_part(level: Level, place: int, port: float) -> Level:
    """Return the level with another port of one of its parts."""
    parts = list(level.parts)
    parts[place] = replace(parts[place], port=port)
    return replace(level, parts=tuple(parts))


def _with_port(level: Level, port: float) -> Level:
    """Return the level with another port; ports of its children change in proportion."""
    if not level.ports:
        return replace(level, port=port)
    ports = tuple(own / level.port * port for own in level.ports)
    return replace(level, port=max(ports), ports=ports)
