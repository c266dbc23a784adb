"""What the links of a machine are made of, and which library therefore runs its collectives."""

from collections.abc import Sequence
from enum import StrEnum

from collir.machine.model import Fabric, Level, Machine


class Runtime(StrEnum):
    """The library that runs collectives on a machine."""

    NCCL = "nccl"
    """Machines of GPUs: some level is made of NVLink or PCIe."""
    MPI = "mpi"
    """Machines of CPUs: ranks meet in memory, or only on a network."""
    XLA = "xla"
    """Machines whose chips are linked to each other directly, as TPUs are."""


def fabrics(levels: Sequence[Level]) -> list[Fabric]:
    """What each level is made of: as said, or NVLink innermost and network outside of it."""
    last = len(levels) - 1
    return [
        level.fabric or (Fabric.NVLINK if index == last else Fabric.NETWORK)
        for index, level in enumerate(levels)
    ]


def runtime_of(machine: Machine) -> Runtime:
    """Return the library that runs collectives on a machine, by its fabrics."""
    kinds = set(fabrics(machine.levels))
    if kinds & {Fabric.NVLINK, Fabric.PCI}:
        return Runtime.NCCL
    return Runtime.XLA if Fabric.ICI in kinds else Runtime.MPI
