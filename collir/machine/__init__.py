"""Machines as plain values: levels, ports and devices, without xDSL."""

from collir.machine.efficiency import IDEAL, SHARES, Efficiency
from collir.machine.execution import PLAIN, Execution
from collir.machine.fabric import (
    Runtime,
    host_level,
    level_fabrics,
    names_tell_fabrics,
    parents_fabric,
    runtime_of,
)
from collir.machine.level import Fabric, Level, LinkKind, MachineError, Parents, PartLinks
from collir.machine.model import MAX_DEVICES, Device, DeviceKind, Machine

__all__ = [
    "IDEAL",
    "MAX_DEVICES",
    "PLAIN",
    "SHARES",
    "Device",
    "DeviceKind",
    "Efficiency",
    "Execution",
    "Fabric",
    "Level",
    "LinkKind",
    "Machine",
    "MachineError",
    "Parents",
    "PartLinks",
    "Runtime",
    "host_level",
    "level_fabrics",
    "names_tell_fabrics",
    "parents_fabric",
    "runtime_of",
]
