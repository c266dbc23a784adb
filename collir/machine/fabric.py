"""The kind of hardware that links each level, and the library that runs collectives on it."""

from collections.abc import Sequence
from enum import StrEnum

from collir.machine.level import Fabric, Level
from collir.machine.model import Machine


class Runtime(StrEnum):
    """The library that runs collectives on a machine."""

    NCCL = "nccl"
    """Machines of GPUs: at least one level is linked by NVLink or PCIe."""
    MPI = "mpi"
    """Machines of CPUs: ranks communicate through shared memory or a network."""
    XLA = "xla"
    """Machines whose chips are linked directly to each other, such as TPUs."""


def level_fabrics(levels: Sequence[Level]) -> list[Fabric]:
    """Return the fabric of each level: as declared, else NVLink innermost and network outside."""
    last = len(levels) - 1
    return [
        level.fabric or (Fabric.NVLINK if index == last else Fabric.NETWORK)
        for index, level in enumerate(levels)
    ]


def runtime_of(machine: Machine) -> Runtime:
    """Return the library that runs collectives on a machine, by its fabrics."""
    kinds = set(level_fabrics(machine.levels))
    if kinds & {Fabric.NVLINK, Fabric.PCI}:
        return Runtime.NCCL
    return Runtime.XLA if Fabric.ICI in kinds else Runtime.MPI
