"""A machine is a tree of levels, outermost first; every device is a leaf of it.

A level ``node[4]`` says: four children hang on one interconnect, each through one
full-duplex port that all the devices below that child share.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from itertools import pairwise

MAX_DEVICES = 2**31 - 1
"""The most devices a machine may have: ranks are C ints in MPI and NCCL."""


_LARGE = 2**64


def product(sizes: Iterable[int]) -> int:
    """The product of positive sizes, or 2^64 if it is more: then it is too large anyway."""
    total = 1
    for size in sizes:
        total *= size
        if total >= _LARGE:
            return _LARGE
    return total


def devices_text(number: int) -> str:
    """Return a number of devices in words: ``1 device``, ``2 devices``."""
    return "1 device" if number == 1 else f"{number} devices"


def product_text(total: int) -> str:
    """A product in a message."""
    return str(total) if total < _LARGE else "2^64 or more"


class MachineError(ValueError):
    """A level, device or machine that cannot exist; the text names what is wrong."""


class LinkKind(StrEnum):
    """How the children of a level are connected."""

    SWITCH = "switch"
    """Every child reaches every other through its own port."""
    RING = "ring"
    """Each child is linked to its two neighbours; the port is shared out over the two links."""
    FULL = "full"
    """A link between every two children; the port is shared out over the links."""
    BUS = "bus"
    """One medium that all children share: its bandwidth is that of a port."""
    TORUS = "torus"
    """A ring in each of several dimensions; the port is shared out over the links of all."""
    LINKS = "links"
    """As many links between two children as a matrix says; the port is all links of the child that
    has the most."""


class Fabric(StrEnum):
    """What the links of a level are made of; runtimes such as NCCL treat them differently."""

    NVLINK = "nvlink"
    PCI = "pci"
    NETWORK = "network"
    MEMORY = "memory"
    """Memory that the processes of a host share."""
    ICI = "ici"
    """Links from chip to chip, as between TPUs."""


def _check_positive(what: str, value: float) -> None:
    if not (value > 0 and math.isfinite(value)):
        raise MachineError(f"{what} must be positive and finite, not {value:g}")


MAX_LINKS = 64
"""The most children of a level whose links are a matrix."""

MAX_BESIDE = 2**16
"""The most links between two children."""

Matrix = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class PartLinks:
    """The links of groups that extend over some of the children of a level only.

    Attributes:
        children: the most children of such a group.
        port: the bandwidth of each child's port for it, in bytes/second; of a bus, of all together.
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
        _check_positive("the port bandwidth of a part", self.port)
        if self.port < 1e-3:
            raise MachineError(
                f"the port bandwidth of a part must be at least 0.001 B/s, not {self.port:g}"
            )
        if self.kind not in (LinkKind.SWITCH, LinkKind.BUS):
            raise MachineError(f"the links of a part are a switch or a bus, not a {self.kind}")


@dataclass(frozen=True)
class Level:
    """One level of a machine.

    ``port`` is in bytes/second per direction and child, ``latency`` in seconds per message.
    ``ports`` has a bandwidth for each child where they are not all alike (the same below each
    parent); ``port`` then is the largest of them, so no child has more than ``port``.

    ``shape`` are the dimensions of a torus, whose children count row by row. ``links`` is the
    matrix of a level of links: how many there are between each two children.

    ``taper`` says how many times less than all ports together the interconnect carries.
    ``rails`` is the number of links a port consists of: the devices below a child are dealt out to
    them in blocks of consecutive ranks, and each uses its own.
    ``fabric`` is what the links are made of, where that is known.
    ``parts`` are the links of groups that extend over some of the children only, fewest first:
    the first entry with enough children counts, and beyond the last the level itself.
    ``nvls`` is the bandwidth in bytes/second at which the switch reduces and multicasts (NVLink
    SHARP), as nccl-tests report it for an all_reduce (busbw).

    Raises:
        MachineError: a size or a number of rails below 1, a bandwidth below 0.001 B/s, a
            negative latency, a taper below 1; ports, a shape, links or parts that do not fit;
            NVLS on links other than a switch.
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

    def __post_init__(self) -> None:
        if self.size < 1:
            raise MachineError(f"level '{self.name}' needs at least one child, not {self.size}")
        for port in self.ports or (self.port,):
            _check_positive(f"the port bandwidth of level '{self.name}'", port)
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
            _check_positive(f"the NVLS bandwidth of {where}", self.nvls)
            if self.kind is not LinkKind.SWITCH:
                raise MachineError(f"{where} is a {self.kind}: only a switch reduces (nvls)")

    @property
    def fastest(self) -> float:
        """The most bytes/second that any group gets through a port, or that count as much.

        An all_reduce of n ranks counts 2 (n-1)/n of its bytes, and in a switch that reduces those
        of the ranks below it, 3 or more.
        """
        return max(self.port, 1.5 * (self.nvls or 0.0), *(part.port for part in self.parts))

    def for_children(self, count: int) -> "Level":
        """Return the level as a group sees it that extends over so many of its children."""
        if count == self.size or count == 1:
            return self
        part = next((one for one in self.parts if count <= one.children), None)
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
        if product(shape) != self.size:
            raise MachineError(
                f"the torus of level '{self.name}' has the shape {written}, which is "
                f"{product_text(product(shape))}, for {_count(self.size, 'child', 'children')}"
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
        for at, row in enumerate(links):
            if len(row) != size:
                raise MachineError(
                    f"{name} need a square matrix: of {_count(size, 'row')}, row {at} has "
                    f"{_count(len(row), 'number')}"
                )
        if size != self.size:
            raise MachineError(
                f"{name} are a matrix of {_count(size, 'row')} for "
                f"{_count(self.size, 'child', 'children')}"
            )
        for at, row in enumerate(links):
            if row[at]:
                raise MachineError(f"{name} have {row[at]} between child {at} and itself: say 0")
            for other, count in enumerate(row):
                if not 0 <= count <= MAX_BESIDE:
                    raise MachineError(
                        f"{name} have {count} between children {at} and {other}: 0 to {MAX_BESIDE} "
                        "are possible"
                    )
                if count != links[other][at]:
                    raise MachineError(
                        f"{name} have {count} from child {at} to {other} and {links[other][at]} "
                        "back: the matrix must be symmetric"
                    )
        reached = {0}
        new = [0]
        for at in new:  # grows
            found = [other for other, count in enumerate(links[at]) if count]
            new += [other for other in found if other not in reached]
            reached.update(found)
        if len(reached) < size:
            apart = min(set(range(size)) - reached)
            raise MachineError(f"{name} leave child {apart} without a way to child 0")

    @property
    def wires(self) -> int:
        """How many links a port is shared out over, where children have links of their own: those
        of the child with the most; else 0."""
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
        """The same with only the first children, each with the port it has.

        What a tapered interconnect carries stays what it was. Of a torus or a matrix there is
        either all or one child.
        """
        if size == self.size:
            return self
        if size > 1 and (seen := self.for_children(size)) is not self:
            kept = tuple(part for part in self.parts if part.children < size)
            return replace(seen, size=size, parts=kept)
        ports = self.ports and self.ports[:size]
        alone = size == 1 and self.kind in (LinkKind.TORUS, LinkKind.LINKS)
        return replace(
            self,
            size=size,
            port=max(ports) if ports else self.port,
            ports=ports,
            taper=max(1.0, self.taper * size / self.size),
            kind=LinkKind.SWITCH if alone else self.kind,
            shape=None if alone else self.shape,
            links=None if alone else self.links,
            parts=tuple(part for part in self.parts if part.children < size),
        )

    @property
    def switched(self) -> "Level":
        """The same with a switch that carries all that its ports do, and such parts."""
        parts = tuple(replace(part, kind=LinkKind.SWITCH) for part in self.parts)
        return replace(self, kind=LinkKind.SWITCH, taper=1.0, shape=None, links=None, parts=parts)


def _count(number: int, one: str, more: str = "") -> str:
    return f"{number} {one if number == 1 else more or one + 's'}"


@dataclass(frozen=True)
class Device:
    """What hangs at the leaves.

    ``compute`` maps a dtype's name to FLOP/s, in the order written; ``memory`` is in bytes,
    ``memory_bandwidth`` in bytes/second. ``reduction`` is the rate in bytes/second at which a
    device adds a message it received to what it holds, where receiving does not hide that.
    What is unknown is ``None`` or absent.

    Raises:
        MachineError: a rate or a size that is not positive, a dtype named twice.
    """

    compute: tuple[tuple[str, float], ...] = ()
    memory: float | None = None
    memory_bandwidth: float | None = None
    reduction: float | None = None

    def __post_init__(self) -> None:
        for dtype, rate in self.compute:
            _check_positive(f"the {dtype} compute rate", rate)
        if len(dict(self.compute)) != len(self.compute):
            raise MachineError("a dtype's compute rate is given twice")
        if self.memory is not None:
            _check_positive("the memory size", self.memory)
        if self.memory_bandwidth is not None:
            _check_positive("the memory bandwidth", self.memory_bandwidth)
        if self.reduction is not None:
            _check_positive("the reduction rate", self.reduction)


@dataclass(frozen=True)
class Machine:
    """A regular machine: levels outermost first, and the device at its leaves.

    The rank of a device is its mixed-radix index over the levels, outermost most significant.

    Raises:
        MachineError: no levels, two levels of one name, more than ``MAX_DEVICES`` devices, rails
            that the devices below do not divide into.
    """

    name: str
    levels: tuple[Level, ...]
    device: Device | None = None

    def __post_init__(self) -> None:
        if not self.levels:
            raise MachineError(f"machine @{self.name} has no levels")
        names: set[str] = set()
        for level in self.levels:
            if level.name in names:
                raise MachineError(f"machine @{self.name} has two levels named '{level.name}'")
            names.add(level.name)
        if self.devices > MAX_DEVICES:
            raise MachineError(
                f"machine @{self.name} has {product_text(self.devices)} devices; "
                "at most 2^31 - 1 are possible"
            )
        below = self.devices
        for level in self.levels:
            below //= level.size
            if below % level.rails:
                devices = devices_text(below)
                verb = "does" if below == 1 else "do"
                raise MachineError(
                    f"the {devices} below a port of level '{level.name}' {verb} not divide into "
                    f"its {level.rails} rails"
                )

    @cached_property
    def devices(self) -> int:
        """The number of devices: the product of the levels' sizes."""
        return product(level.size for level in self.levels)

    @cached_property
    def symmetric(self) -> bool:
        """Whether all children of a level are alike, and none is nearer to another than to a third:
        so that the cost of a step depends on how many devices of each level take part alone."""
        return all(
            level.kind in (LinkKind.SWITCH, LinkKind.BUS) and level.rails == 1 and not level.ports
            for level in self.levels
        )

    def first(self, sizes: Sequence[int]) -> "Machine":
        """Return the machine with only the first children of each level.

        Of rails those are left that the devices which are left have; where these are no whole
        number of rails, a port is as many as divide them.

        Raises:
            MachineError: a part of a torus, or of a matrix of links.
        """
        levels = [one.first(size) for one, size in zip(self.levels, sizes, strict=True)]
        before = below = 1
        for index in reversed(range(len(levels))):
            rails = levels[index].rails
            if below % rails:
                beside = before // rails
                left = math.gcd(rails, below) if below % beside else below // beside
                part = 1.0 if below % beside else left / rails
                ports = levels[index].ports
                levels[index] = replace(
                    levels[index],
                    rails=left,
                    port=levels[index].port * part,
                    ports=ports and tuple(port * part for port in ports),
                )
            before *= self.levels[index].size
            below *= levels[index].size
        return replace(self, levels=tuple(levels))

    def level(self, name: str) -> Level | None:
        """The level of this name, if there is one."""
        return next((level for level in self.levels if level.name == name), None)
