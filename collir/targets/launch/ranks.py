"""The devices of ranks: the order of the ranks of a mesh, and the hosts of its machine."""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, product
from typing import ClassVar

from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target

import collir
from collir.dialects.machine import MeshOp
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import meshes_of
from collir.layout import Mesh, SubAxis, unplaced_message
from collir.machine import (
    Fabric,
    Machine,
    Parents,
    host_level,
    level_fabrics,
    names_tell_fabrics,
    parents_fabric,
)
from collir.targets.code.names import raise_all
from collir.targets.code.python_text import comment
from collir.targets.code.ranks import axes_text
from collir.targets.launch.hostnames import HostNames

ORDERS = ("mesh", "hardware")
"""The orders of ranks: along the axes of the mesh, or the order of the devices."""

MOST_RANKS = 2**24
"""The most lines of a list, which has one for every rank."""

_MOST_SHOWN = 64
"""The most devices of a list in a comment."""

_LINE = 1000
"""The most letters of a comment: SLURM reads lines in pieces of 4096 bytes."""


# ---------------------------------------------------------------------------------------------
# Meshes
# ---------------------------------------------------------------------------------------------


def meshes(module: ModuleOp, name: str) -> list[MeshOp]:
    """Return the meshes of a module, or the mesh of a name.

    Raises:
        DiagnosticError: no such mesh, or a mesh that is not on levels.
    """
    ops = meshes_of(module)
    if not ops:
        raise DiagnosticError.at(
            module, "there is no mesh: write `mesh @m on @machine { data = node:2 * gpu:4 }`"
        )
    name = name.removeprefix("@")
    chosen = [op for op in ops if name in ("", op.sym_name.data)]
    if not chosen:
        raise DiagnosticError.at(
            module, f"there is no mesh @{name}: the option mesh is {_names(ops)}"
        )
    unplaced = [op for op in chosen if not op.value().placed]
    raise_all([DiagnosticError.at(op, unplaced_message(op.value())) for op in unplaced])
    return chosen


def _names(ops: list[MeshOp]) -> str:
    *names, last = (op.sym_name.data for op in ops)
    return f"{', '.join(names)} or {last}" if names else last


def offsets(subs: list[SubAxis]) -> Iterator[int]:
    """Yield the devices at all coordinates on some sub-axes, the first most significant, and at
    coordinate 0 on all other sub-axes."""
    for terms in product(*(range(0, sub.size * sub.stride, sub.stride) for sub in subs)):
        yield sum(terms)


# ---------------------------------------------------------------------------------------------
# Hosts
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HostRanks:
    """The ranks of a placed mesh on the hosts of its machine.

    Attributes:
        level: the level whose children are the hosts; empty where the machine is one host.
        slots: the number of devices of a host, at most.
        order: the order of the ranks, an element of ``ORDERS``.
        unlike: the numbers of devices of the hosts if they differ.
    """

    mesh: Mesh
    level: str
    slots: int
    order: str
    unlike: tuple[int, ...] = ()

    @property
    def hosts(self) -> int:
        """The number of hosts of the machine."""
        return len(self.unlike) or self.mesh.devices // self.slots

    def slot(self, device: int) -> tuple[int, int]:
        """Return the host of a device, and its number among the devices of the host."""
        if not self.unlike:
            return divmod(device, self.slots)
        starts = self._starts
        host = bisect_right(starts, device) - 1
        return host, device - starts[host]

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *accumulate(self.unlike)][:-1]

    def devices(self) -> Iterator[int]:
        """Return the device of every rank."""
        if self.order == "hardware":
            return iter(range(self.mesh.devices))
        return offsets(list(self.mesh.sub_axes))

    def of_a_host(self) -> Iterator[int]:
        """Return the devices of a host in the order of its ranks, the same on all hosts."""
        if self.order == "hardware":
            return iter(range(self.slots))
        return offsets([sub for sub in self.mesh.sub_axes if sub.stride < self.slots])

    def notes(self, what: str, how: str) -> Iterator[str]:
        """Yield the comments in front of a list: its kind, its use, the numbering of ranks."""
        mesh = self.mesh
        yield f"Written by collir {collir.__version__}: {what}. {how}"
        yield f"Mesh @{mesh.name} on @{mesh.machine.name}: {axes_text(mesh)}"
        order = "by hardware" if self.order == "hardware" else "along the mesh, last axis fastest"
        hosts = f"{self.hosts} x {self.slots}"
        if self.unlike:
            hosts = f"{self.hosts} hosts with {', '.join(map(str, self.unlike))}"
        yield f"{mesh.devices} ranks on {hosts} devices, numbered {order}"
        if not names_tell_fabrics(mesh.machine.levels):
            where = f"a child of level '{self.level}'" if self.level else "the machine"
            yield (
                f"No fabric is said, and names of levels do not tell it: a host is taken to be "
                f"{where} (option host)"
            )
        for host, local in self._local_orders():
            if local != sorted(local):
                shown = ",".join(map(str, local))
                yield (
                    f"Local ranks 0, 1, ... of {host} are its devices {shown}: CUDA_VISIBLE_DEVICES"
                )

    def _local_orders(self) -> Iterator[tuple[str, list[int]]]:
        """Yield the devices of hosts in the order of their ranks: of one, if all are alike."""
        if self.slots > _MOST_SHOWN or self.order == "hardware":
            return
        if not self.unlike:
            yield "a host", list(self.of_a_host())
            return
        slots: list[list[int]] = [[] for _ in self.unlike]
        for host, slot in map(self.slot, self.devices()):
            slots[host].append(slot)
        for host, local in enumerate(slots):
            yield f"host {host}", local

    def comments(self, what: str, how: str) -> str:
        """Return the notes as lines that start with #."""
        return "".join(f"# {comment(line)[:_LINE]}\n" for line in self.notes(what, how))


@dataclass(frozen=True)
class RanksTarget(Target):
    """A target that prints a line for every rank, with its options."""

    WHAT: ClassVar[str]
    """The word for the list in messages."""

    mesh: str = ""
    """The mesh whose ranks are listed, if there are several."""
    order: str = "mesh"
    """The order of the ranks: `mesh`, the order of the mesh's coordinates, or `hardware`, the order
    of the devices."""
    host: str = ""
    """The level whose children are the hosts, or the name of the machine if it is one host; by
    default the innermost level that is a network, by its `fabric` or its name."""
    hosts: tuple[str, ...] = ()
    """Names of the hosts, in the order of the devices, as SLURM lists them: `a,b` or
    `"n[00-15],m[1-4]"`; in a job of SLURM `"$SLURM_JOB_NODELIST"`. By default a hostfile has node0,
    node1 and so on, and a rankfile the hosts of the allocation in their order, `+n0`, `+n1` and so
    on; Open MPI 4 has these only under a resource manager."""

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise ValueError(f"order is {' or '.join(ORDERS)}, not '{self.order}'")
        self.host_names()

    def host_names(self) -> HostNames | None:
        """Return the names of the option ``hosts``, or None without the option.

        Raises:
            ValueError: the names are not host names.
        """
        return HostNames.parse(",".join(self.hosts)) if self.hosts else None

    def ranks(self, module: ModuleOp) -> HostRanks:
        """Return the ranks of the mesh that the options name, or of the only mesh.

        Raises:
            DiagnosticError: no such mesh, several, a mesh without placement, no such level, another
                number of hosts than names, more ranks than ``MOST_RANKS``.
        """
        candidates = meshes(module, self.mesh)
        op = candidates[0]
        if len(candidates) > 1:
            raise DiagnosticError.at(
                candidates[1],
                f"a {self.WHAT} is of one mesh: choose with the option mesh, {_names(candidates)}",
            )
        mesh = op.value()
        ranks = self._on_hosts(op)
        level = ranks.level
        names = self.host_names()
        if names is not None and names.count != ranks.hosts:
            hosts = (
                f"has {_many(ranks.hosts, 'host')} on level '{level}'" if level else "is one host"
            )
            raise DiagnosticError.at(
                op,
                f"the option hosts has {_many(names.count, 'name')}, but machine "
                f"@{mesh.machine.name} {hosts}",
            )
        if mesh.devices > MOST_RANKS:
            raise DiagnosticError.at(
                op, f"a {self.WHAT} has at most {MOST_RANKS} lines, not {mesh.devices}"
            )
        if names is not None and len(set(names)) < names.count:
            raise DiagnosticError.at(op, "the option hosts has a name twice")
        return ranks

    def _on_hosts(self, op: MeshOp) -> HostRanks:
        """Return the ranks on the hosts: the children of the level that options name."""
        mesh = op.value()
        machine = mesh.machine
        names = [level.name for level in machine.levels]
        above = [level.parents.level.name for level in machine.levels if level.parents]
        if unlike := self._unlike(machine):
            parents, sizes = unlike
            return HostRanks(mesh, parents.level.name, max(sizes), self.order, sizes)
        if self.host in names:
            place = names.index(self.host)
        elif self.host == machine.name:
            place = -1
        elif self.host:
            raise DiagnosticError.at(
                op,
                f"machine @{machine.name} has no level '{self.host}': the option host is "
                f"{', '.join((*above, *names))}, or {machine.name} where the whole machine is a "
                "host",
            )
        else:
            place = host_level(machine.levels)
        slots = math.prod(level.size for level in machine.levels[place + 1 :])
        return HostRanks(mesh, names[place] if place >= 0 else "", slots, self.order)

    def _unlike(self, machine: Machine) -> tuple[Parents, tuple[int, ...]] | None:
        """Return the parents that are the hosts, with the devices of each, where these differ."""
        parents = machine.levels[0].parents
        if parents is None or self.host not in ("", parents.level.name):
            return None
        networks = [kind is Fabric.NETWORK for kind in level_fabrics(machine.levels)]
        here = parents_fabric(machine.levels) is Fabric.NETWORK and not any(networks)
        if not self.host and not here:
            return None
        inside = machine.devices // machine.levels[0].size
        return parents, tuple(count * inside for count in parents.children)

    def host_text(self, ranks: HostRanks, default: Callable[[int], str]) -> list[str]:
        """Return the name of each host."""
        names = self.host_names()
        return list(names) if names is not None else [default(i) for i in range(ranks.hosts)]


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count != 1 else ''}"
