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
    r"(socket|package|pkg|cpu|core|thread|hwthread|pu|numa|numa_?node|die|ccd|ccx|l[1-4]_?cache|"
    r"llc)s?(_?\d+)?",
    re.IGNORECASE,
)
"""Names of levels inside a host that has no GPUs."""

_CACHES = re.compile(r"l[1-4](_?\d+)?", re.IGNORECASE)
"""Names of levels that are caches if they stand beside the names above; otherwise any levels."""

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
    fabrics = _fabrics(tuple((level.name, level.fabric) for level in _chain(levels)))
    return list(fabrics[-len(levels) :])


def parents_fabric(levels: Sequence[Level]) -> Fabric | None:
    """Return the fabric of the parents of the outermost level, or None without parents."""
    chain = _chain(levels)
    if len(chain) == len(levels):
        return None
    return _fabrics(tuple((level.name, level.fabric) for level in chain))[0]


def names_tell_fabrics(levels: Sequence[Level]) -> bool:
    """Return whether the innermost level declares its fabric, or the names of levels tell it."""
    chain = _chain(levels)
    last = chain[-1]
    named = _GPUS.fullmatch(last.name) or _HOSTS.fullmatch(last.name)
    return bool(last.fabric or named or _inside_host([(x.name, x.fabric) for x in chain]))


def host_level(levels: Sequence[Level]) -> int:
    """Return the index of the level whose children are the hosts; -1 where there is one host."""
    kinds = enumerate(level_fabrics(levels))
    return max((place for place, kind in kinds if kind is Fabric.NETWORK), default=-1)


def _chain(levels: Sequence[Level]) -> list[Level]:
    """Return the levels, with the parents of the outermost in front."""
    parents = levels[0].parents if levels else None
    return [parents.level, *levels] if parents else list(levels)


def _inside_host(levels: Sequence[tuple[str, Fabric | None]]) -> set[int]:
    """Return the indices of the levels that are parts of a host by their names, or memory."""
    parts = {
        index
        for index, (name, fabric) in enumerate(levels)
        if fabric is Fabric.MEMORY or (fabric is None and _CPU_PARTS.fullmatch(name))
    }
    caches = {
        index
        for index, (name, fabric) in enumerate(levels)
        if parts and fabric is None and _CACHES.fullmatch(name)
    }
    return parts | caches


def _fabrics(levels: tuple[tuple[str, Fabric | None], ...]) -> tuple[Fabric, ...]:
    """Return the fabrics of levels, which are given by name and declared fabric."""
    last = len(levels) - 1
    inside = _inside_host(levels)
    host = min(inside, default=last + 1)
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
        elif gpus and index in inside:
            fabrics.append(Fabric.PCI)
        elif index == last and not _HOSTS.fullmatch(name):
            fabrics.append(Fabric.NVLINK)
        else:
            fabrics.append(Fabric.NETWORK)
    return tuple(fabrics)


def runtime_of(machine: Machine) -> Runtime:
    """Return the library that runs collectives on a machine, by its fabrics."""
    kinds = set(level_fabrics(machine.levels))
    if kinds & {Fabric.NVLINK, Fabric.PCI}:
        return Runtime.NCCL
    return Runtime.XLA if Fabric.ICI in kinds else Runtime.MPI
