"""Hardware as plain values: levels, ports and devices. Nothing here knows of xDSL."""

from collir.machine.model import (
    MAX_DEVICES,
    Device,
    Fabric,
    Level,
    LinkKind,
    Machine,
    MachineError,
)

__all__ = ["MAX_DEVICES", "Device", "Fabric", "Level", "LinkKind", "Machine", "MachineError"]
