"""One level of a machine: the children of a parent, and the links between them.

A level ``node[4]`` has four children on one interconnect. Each child is attached by one
full-duplex port, which all devices below that child share.
"""

import math
from bisect import bisect_right
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from itertools import accumulate, pairwise

from collir.machine.counts import product_text, saturated_product


class MachineError(ValueError):
    """A level, device or machine that cannot exist; the message names the reason."""


class LinkKind(StrEnum):
    """The shape of the interconnect between the children of a level."""

    SWITCH = "switch"
    """A switch: each child sends to and receives from all others through its own port."""
    RING = "ring"
    """A link between neighbours; the two links of a child share its port's bandwidth equally."""
    FULL = "full"
    """A link between every two children; the links of a child share its port's bandwidth."""
    BUS = "bus"
    """One medium that all children share, with the bandwidth of one port."""
    TORUS = "torus"
    """A ring in each of several dimensions; all links of a child share its port's bandwidth."""
    LINKS = "links"
    """A matrix of link counts between children; the port is all links of the child with the most
    links."""


class Fabric(StrEnum):
    """The hardware that links the children of a level; runtimes treat each kind differently."""

    NVLINK = "nvlink"
    PCI = "pci"
    NETWORK = "network"
    MEMORY = "memory"
    """Memory shared by the processes of a host."""
    ICI = "ici"
    """Direct links between chips, such as between TPUs."""


def check_positive(what: str, value: float) -> None:
    """Check that a number is positive and finite."""
    if not (value > 0 and math.isfinite(value)):
        raise MachineError(f"{what} must be positive and finite, not {value:g}")


MAX_LINKS = 64
"""Largest number of children of a level whose links are a matrix."""

MAX_BESIDE = 2**16
"""Largest number of parallel links between two children."""

Matrix = tuple[tuple[int, ...], ...]

Kinds = tuple[tuple[str, int], ...]
"""Names of kinds of devices, each with the number of neighbouring children that have it."""


@dataclass(frozen=True)
class PartLinks:
    """The links available to groups that extend over only some of the children of a level.

    Attributes:
        children: the largest number of children of such a group.
        port: the bandwidth of each child's port in bytes/second; on a bus, of the shared medium.
        kind: a switch or a bus.

    Raises:
        MachineError: fewer than 2 children, a bandwidth below 0.001 B/s, another kind.
    """

    children: int
    port: float
    kind: LinkKind = LinkKind.SWITCH

    def __post_init__(self) -> None:
        if self.children < 2:
            raise MachineError(f"a part of a level has 2 children or more, not {self.children}")
        check_positive("the port bandwidth of a part", self.port)
        if self.port < 1e-3:
            raise MachineError(
                f"the port bandwidth of a part must be at least 0.001 B/s, not {self.port:g}"
            )
        if self.kind not in (LinkKind.SWITCH, LinkKind.BUS):
            raise MachineError(f"the links of a part are a switch or a bus, not a {self.kind}")


@dataclass(frozen=True)
class Parents:
    """The outermost level of a machine whose children have different numbers of children.

    Attributes:
        level: that level, a switch; its size is the number of parents.
        children: the number of children of each parent, in order.

    Raises:
        MachineError: not one number for every parent, or one below 1; a level that is no plain
            switch.
    """

    level: "Level"
    children: tuple[int, ...]

    def __post_init__(self) -> None:
        outer, counts = self.level, self.children
        if outer.parents:
            raise MachineError(
                f"level '{outer.name}' has a list of sizes, so the level below it has none: one "
                "level of a machine may have one"
            )
        if len(counts) != outer.size:
            raise MachineError(
                f"{_count(len(counts), 'number')} for {_count(outer.size, 'child', 'children')} of "
                f"level '{outer.name}': give each of them the number of its children"
            )
        if min(counts) < 1:
            raise MachineError(
                f"a child of level '{outer.name}' has {min(counts)} children: it needs at least one"
            )
        plain = outer.kind is LinkKind.SWITCH and outer.rails == 1
        if not plain or outer.parts or outer.nvls:
            raise MachineError(
                f"level '{outer.name}', whose children differ in size, must be a switch without "
                "rails, parts or nvls; its ports may differ, as in `port = [50 GB/s, 25 GB/s]`"
            )

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The number of children before those of each parent."""
        return (0, *accumulate(self.children))[:-1]

    def of(self, child: int) -> int:
        """Return the parent of a child."""
        return bisect_right(self.starts, child) - 1

    def first(self, size: int) -> "Parents | None":
        """Return the parents of the first ``size`` children; None if one has them all."""
        parents = self.of(size - 1) + 1
        if parents == 1:
            return None
        children = (*self.children[: parents - 1], size - self.starts[parents - 1])
        return Parents(self.level.first(parents), children)


@dataclass(frozen=True)
class Level:
    """One level of a machine.

    Attributes:
        size: the number of children of each parent; of all parents together with ``parents``.
        port: bytes/second per direction and child; with ``ports``, the largest of them.
        latency: seconds per message.
        taper: the bandwidth of all ports together divided by that of the interconnect; at least 1.
        rails: the number of links in a port. The devices below a child are divided among them in
            blocks of consecutive ranks, and each device uses only its own link.
        fabric: the hardware of the links, if known.
        ports: the bandwidth of each child's port where they differ; the same below each parent.
        shape: the dimensions of a torus; its children are numbered row by row.
        links: for the kind LINKS, the number of links between every two children.
        parts: the links of groups that extend over only some of the children, fewest children
            first. A group uses the first entry with enough children, or else the level itself.
        nvls: bytes/second at which the switch reduces and multicasts (NVLink SHARP), as nccl-tests
            report it for an all_reduce of all children (busbw).
        kinds: the kinds of the devices below the children, in order: the name of a kind, and the
            number of children that have it. Empty if the level does not say.
        parents: the level above, if its children have different numbers of children. It is then no
            level of the machine: this level counts all of the children, and messages between
            those of different parents go through the ports of both.

    Raises:
        MachineError: a size or a number of rails below 1, a bandwidth below 0.001 B/s, a
            negative latency, a taper below 1; ports, a shape, links, parts, kinds or parents that
            do not fit; NVLS on links other than a switch.
    """

    name: str
    size: int
    port: float
    latency: float
    kind: LinkKind = LinkKind.SWITCH
    taper: float = 1.0
    rails: int = 1
    fabric: Fabric | None = None
    ports: tuple[float, ...] | None = None
    shape: tuple[int, ...] | None = None
    links: Matrix | None = None
    parts: tuple[PartLinks, ...] = ()
    nvls: float | None = None
    kinds: Kinds = ()
    parents: Parents | None = None

    def __post_init__(self) -> None:
        if self.size < 1:
            raise MachineError(f"level '{self.name}' needs at least one child, not {self.size}")
        for port in self.ports or (self.port,):
            check_positive(f"the port bandwidth of level '{self.name}'", port)
            if port < 1e-3:
                raise MachineError(
                    f"the port bandwidth of level '{self.name}' must be at least 0.001 B/s, not "
                    f"{port:g}"
                )
        if not (self.latency >= 0 and math.isfinite(self.latency)):
            raise MachineError(
                f"the latency of level '{self.name}' must not be negative, not {self.latency:g}"
            )
        if not (self.taper >= 1 and math.isfinite(self.taper)):
            raise MachineError(
                f"the taper of level '{self.name}' must be at least 1, not {self.taper:g}"
            )
        if self.rails < 1:
            raise MachineError(f"level '{self.name}' needs at least one rail, not {self.rails}")
        self._check_ports()
        self._check_shape()
        self._check_links()
        self._check_parts()
        self._check_kinds()
        self._check_parents()

    def _check_parents(self) -> None:
        if self.parents is None:
            return
        if self.size != sum(self.parents.children):
            raise MachineError(
                f"level '{self.name}' has {_count(self.size, 'child', 'children')}, but those of "
                f"its parents add up to {sum(self.parents.children)}"
            )
        plain = self.kind is LinkKind.SWITCH and self.taper == self.rails == 1
        if not plain or self.ports or self.parts or self.nvls:
            raise MachineError(
                f"level '{self.name}' has a list of sizes, so it must be a switch with one port "
                "bandwidth, and without taper, rails, parts or nvls"
            )

    @property
    def uniform(self) -> bool:
        """True if every two children of a parent are equally far from each other."""
        return self.kind in (LinkKind.SWITCH, LinkKind.BUS) and self.parents is None

    def _check_kinds(self) -> None:
        for kind, children in self.kinds:
            if children < 1:
                raise MachineError(
                    f"level '{self.name}' has {children} children with devices of kind '{kind}': "
                    "leave the kind out, or give it one child or more"
                )
        total = sum(children for _, children in self.kinds)
        if self.kinds and total != self.size:
            raise MachineError(
                f"the devices of level '{self.name}' add up to "
                f"{_count(total, 'child', 'children')}, but it has {self.size}: each child has "
                "devices of one kind"
            )

    def _check_parts(self) -> None:
        where = f"level '{self.name}'"
        for before, part in pairwise((None, *self.parts)):
            assert part
            if before and part.children <= before.children:
                raise MachineError(
                    f"the parts of {where} must be in the order of their children, each once"
                )
            if part.children >= self.size:
                raise MachineError(
                    f"a part of {where} has {part.children} children, and the level has "
                    f"{self.size}: a part is smaller than the whole"
                )
        if self.nvls is not None:
            check_positive(f"the NVLS bandwidth of {where}", self.nvls)
            if self.kind is not LinkKind.SWITCH:
                raise MachineError(f"{where} is a {self.kind}: only a switch reduces (nvls)")

    @property
    def fastest(self) -> float:
        """An upper limit of the bytes/second of any group through a port.

        For a switch that reduces, the limit is the bandwidth that a port without it would need to
        be as fast: a port counts 2 (n-1)/n of the bytes for n ranks in all.
        """
        return max(self.port, 2 * self.reduced, *(part.port for part in self.parts))

    @property
    def reduced(self) -> float:
        """The bytes/second of the buffers of an all_reduce that the switch reduces (algbw of
        nccl-tests), for any number of its children; 0 if it does not reduce."""
        return (self.nvls or 0.0) * self.size / (2 * max(1, self.size - 1))

    def for_children(self, count: int) -> "Level":
        """Return the level with the links of a group that extends over ``count`` children."""
        if count == self.size or count == 1:
            return self
        part = next((part for part in self.parts if count <= part.children), None)
        if part is None:
            return self
        seen = replace(self.switched, port=part.port, ports=None, parts=(), nvls=None)
        return replace(seen, kind=part.kind)

    def _check_ports(self) -> None:
        if self.ports is None:
            return
        if len(self.ports) != self.size:
            raise MachineError(
                f"level '{self.name}' has {_count(len(self.ports), 'port')} for "
                f"{_count(self.size, 'child', 'children')}: it needs one for each, or one "
                "bandwidth for all"
            )
        if self.port != max(self.ports):
            raise MachineError(f"the port of level '{self.name}' must be the largest of its ports")
        if self.kind is not LinkKind.SWITCH or self.taper > 1:
            what = "a taper" if self.kind is LinkKind.SWITCH else f"the kind {self.kind}"
            raise MachineError(
                f"level '{self.name}' has a port for each child and {what}: only a switch without "
                "a taper can have ports that differ"
            )

    def _check_shape(self) -> None:
        shape = self.shape
        if (shape is not None) != (self.kind is LinkKind.TORUS):
            raise MachineError(
                f"level '{self.name}' is a torus, so it needs a shape, as in `shape = 4 x 4`"
                if shape is None
                else f"level '{self.name}' has a shape, but is no torus: say `kind = torus`"
            )
        if shape is None:
            return
        written = " x ".join(map(str, shape))
        if len(shape) < 2 or min(shape) < 2:
            raise MachineError(
                f"the torus of level '{self.name}' has the shape {written}: it needs two "
                "dimensions or more, of at least 2 each; one dimension is a ring"
            )
        if (children := saturated_product(shape)) != self.size:
            raise MachineError(
                f"the torus of level '{self.name}' has the shape {written}, which is "
                f"{product_text(children)}, for {_count(self.size, 'child', 'children')}"
            )

    def _check_links(self) -> None:
        links = self.links
        if (links is not None) != (self.kind is LinkKind.LINKS):
            raise MachineError(f"level '{self.name}' needs either a matrix of links or a kind")
        if links is None:
            return
        name, size = f"the links of level '{self.name}'", len(links)
        if size > MAX_LINKS:
            raise MachineError(f"{name} are a matrix of {size} rows: at most {MAX_LINKS}")
        for child, row in enumerate(links):
            if len(row) != size:
                raise MachineError(
                    f"{name} need a square matrix: of {_count(size, 'row')}, row {child} has "
                    f"{_count(len(row), 'number')}"
                )
        if size != self.size:
            raise MachineError(
                f"{name} are a matrix of {_count(size, 'row')} for "
                f"{_count(self.size, 'child', 'children')}"
            )
        _check_symmetric(name, links)
        _check_connected(name, links)

    @property
    def wires(self) -> int:
        """The number of links that share a port's bandwidth, of the child with the most links; 0
        where children have no links of their own."""
        match self.kind:
            case LinkKind.RING:
                return 2
            case LinkKind.FULL:
                return self.size - 1
            case LinkKind.TORUS:
                return sum(2 if size > 2 else 1 for size in self.shape or ())
            case LinkKind.LINKS:
                return max(map(sum, self.links or ()), default=0)
            case _:
                return 0

    def first(self, size: int) -> "Level":
        """Return the level with only its first ``size`` children, each with its port.

        The bandwidth of a tapered interconnect stays the same, and so does that of each link of a
        full mesh. A torus or a matrix of links can only be kept whole or cut to one child.
        """
        if size == self.size:
            return self
        smaller_parts = tuple(part for part in self.parts if part.children < size)
        kinds = _first_kinds(self.kinds, size)
        if size > 1 and (seen := self.for_children(size)) is not self:
            return replace(seen, size=size, parts=smaller_parts, kinds=kinds)
        ports = self.ports and self.ports[:size]
        port = max(ports) if ports else self.port
        if self.kind is LinkKind.FULL and size > 1:  # a link to each of those that are left
            port *= (size - 1) / (self.size - 1)
        alone = size == 1 and self.kind in (LinkKind.TORUS, LinkKind.LINKS)
        return replace(
            self,
            size=size,
            port=port,
            ports=ports,
            taper=max(1.0, self.taper * size / self.size),
            kind=LinkKind.SWITCH if alone else self.kind,
            shape=None if alone else self.shape,
            links=None if alone else self.links,
            parts=smaller_parts,
            nvls=2 * (size - 1) / size * self.reduced or None,
            kinds=kinds,
            parents=self.parents and self.parents.first(size),
        )

    @property
    def switched(self) -> "Level":
        """The level as a switch without a taper, and its parts as switches too."""
        parts = tuple(replace(part, kind=LinkKind.SWITCH) for part in self.parts)
        return replace(self, kind=LinkKind.SWITCH, taper=1.0, shape=None, links=None, parts=parts)


def _first_kinds(kinds: Kinds, size: int) -> Kinds:
    """Return the kinds of the first ``size`` children."""
    first: list[tuple[str, int]] = []
    for kind, children in kinds:
        if size > 0:
            first.append((kind, min(children, size)))
        size -= children
    return tuple(first)


def _check_symmetric(name: str, links: Matrix) -> None:
    """Check the numbers in a square matrix of links."""
    for child, row in enumerate(links):
        if row[child]:
            raise MachineError(f"{name} have {row[child]} between child {child} and itself: say 0")
        for peer, count in enumerate(row):
            if not 0 <= count <= MAX_BESIDE:
                raise MachineError(
                    f"{name} have {count} between children {child} and {peer}: 0 to {MAX_BESIDE} "
                    "are possible"
                )
            if count != links[peer][child]:
                raise MachineError(
                    f"{name} have {count} from child {child} to {peer} and {links[peer][child]} "
                    "back: the matrix must be symmetric"
                )


def _check_connected(name: str, links: Matrix) -> None:
    reached = {0}
    queue = [0]
    for child in queue:  # the loop appends to the queue
        neighbours = [peer for peer, count in enumerate(links[child]) if count]
        queue += [peer for peer in neighbours if peer not in reached]
        reached.update(neighbours)
    if len(reached) < len(links):
        apart = min(set(range(len(links))) - reached)
        raise MachineError(f"{name} leave child {apart} without a way to child 0")


def _count(number: int, singular: str, plural: str = "") -> str:
    return f"{number} {singular if number == 1 else plural or singular + 's'}"
