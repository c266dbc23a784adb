"""The kind of hardware that links each level, and the library that runs collectives on it."""

import re
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


_CPU_PARTS = re.compile(
    r"(socket|package|pkg|cpu|core|thread|hwthread|pu|numa|numa_?node|die|ccd|ccx|l[1-4]|"
    r"l[1-4]_?cache|llc)s?(_?\d+)?",
    re.IGNORECASE,
)
"""Names of levels inside a host that has no GPUs."""

_GPUS = re.compile(r"(gpu|gcd|xcd|accelerator)s?(_?\d+)?", re.IGNORECASE)
"""Names of levels of GPUs."""

_HOSTS = re.compile(
    r"(host|node|server|chassis|blade|rack|cabinet|leaf|spine|pod|block|cluster)s?(_?\d+)?",
    re.IGNORECASE,
)
"""Names of levels whose children are hosts or groups of hosts."""


def level_fabrics(levels: Sequence[Level]) -> list[Fabric]:
    """Return the fabric of each level: as declared, or by the names of the levels.

    Levels inside a socket or the like are ``MEMORY``, or ``PCI`` where GPUs are below them. Other
    levels are ``NETWORK``, except the innermost, which is ``NVLINK`` unless its children are
    named as hosts.
    """
    fabrics = _fabrics([(level.name, level.fabric) for level in _chain(levels)])
    return fabrics[-len(levels) :]


def parents_fabric(levels: Sequence[Level]) -> Fabric | None:
    """Return the fabric of the parents of the outermost level, or None without parents."""
    chain = _chain(levels)
    if len(chain) == len(levels):
        return None
    return _fabrics([(level.name, level.fabric) for level in chain])[0]


def names_tell_fabrics(levels: Sequence[Level]) -> bool:
    """Return whether the innermost level declares its fabric, or the names of levels tell it."""
    *outer, last = _chain(levels)
    named = _GPUS.fullmatch(last.name) or _HOSTS.fullmatch(last.name)
    return bool(last.fabric or named) or any(_is_memory(x.name, x.fabric) for x in (*outer, last))


def _chain(levels: Sequence[Level]) -> list[Level]:
    """Return the levels, with the parents of the outermost in front."""
    parents = levels[0].parents if levels else None
    return [parents.level, *levels] if parents else list(levels)


def _is_memory(name: str, fabric: Fabric | None) -> bool:
    return fabric is Fabric.MEMORY or (fabric is None and bool(_CPU_PARTS.fullmatch(name)))


def _fabrics(levels: Sequence[tuple[str, Fabric | None]]) -> list[Fabric]:
    """Return the fabrics of levels, which are given by name and declared fabric."""
    last = len(levels) - 1
    host = next((i for i, level in enumerate(levels) if _is_memory(*level)), last + 1)
    gpus = any(
        fabric in (Fabric.NVLINK, Fabric.PCI, Fabric.ICI)
        or (fabric is None and _GPUS.fullmatch(name))
        for name, fabric in levels
    )
    fabrics: list[Fabric] = []
    for index, (name, declared) in enumerate(levels):
        if declared:
            fabrics.append(declared)
        elif index >= host and not gpus:
            fabrics.append(Fabric.MEMORY)
        elif gpus and _CPU_PARTS.fullmatch(name):
            fabrics.append(Fabric.PCI)
        elif index == last and not _HOSTS.fullmatch(name):
            fabrics.append(Fabric.NVLINK)
        else:
            fabrics.append(Fabric.NETWORK)
    return fabrics


def runtime_of(machine: Machine) -> Runtime:
    """Return the library that runs collectives on a machine, by its fabrics."""
    kinds = set(level_fabrics(machine.levels))
    if kinds & {Fabric.NVLINK, Fabric.PCI}:
        return Runtime.NCCL
    return Runtime.XLA if Fabric.ICI in kinds else Runtime.MPI
