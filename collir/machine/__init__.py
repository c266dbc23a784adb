"""Hardware as plain values: levels, ports and devices. Nothing here knows of xDSL."""

from collir.machine.fabric import Runtime, fabrics, runtime_of
from collir.machine.model import (
    MAX_DEVICES,
    Device,
    Fabric,
    Level,
    LinkKind,
    Machine,
    MachineError,
    PartLinks,
)

__all__ = [
    "MAX_DEVICES",
    "Device",
    "Fabric",
    "Level",
    "LinkKind",
    "Machine",
    "MachineError",
    "PartLinks",
    "Runtime",
    "fabrics",
    "runtime_of",
]
