"""A machine is a tree of levels, outermost first; every device is a leaf of it.

A level ``node[4]`` says: four children hang on one interconnect, each through one
full-duplex port that all the devices below that child share.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

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


class Fabric(StrEnum):
    """What the links of a level are made of; runtimes such as NCCL treat them differently."""

    NVLINK = "nvlink"
    PCI = "pci"
    NETWORK = "network"


def _check_positive(what: str, value: float) -> None:
    if not (value > 0 and math.isfinite(value)):
        raise MachineError(f"{what} must be positive and finite, not {value:g}")


@dataclass(frozen=True)
class Level:
    """One level of a machine.

    ``port`` is in bytes/second per direction and child, ``latency`` in seconds per message.

    ``taper`` says how many times less than all ports together the interconnect carries.
    ``rails`` is the number of links a port consists of: the devices below a child are dealt out to
    them in blocks of consecutive ranks, and each uses its own.
    ``fabric`` is what the links are made of, where that is known.

    Raises:
        MachineError: a size or a number of rails below 1, a bandwidth below 0.001 B/s, a
            negative latency, a taper below 1.
    """

    name: str
    size: int
    port: float
    latency: float
    kind: LinkKind = LinkKind.SWITCH
    taper: float = 1.0
    rails: int = 1
    fabric: Fabric | None = None

    def __post_init__(self) -> None:
        if self.size < 1:
            raise MachineError(f"level '{self.name}' needs at least one child, not {self.size}")
        _check_positive(f"the port bandwidth of level '{self.name}'", self.port)
        if self.port < 1e-3:
            raise MachineError(
                f"the port bandwidth of level '{self.name}' must be at least 0.001 B/s, not "
                f"{self.port:g}"
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
                raise MachineError(
                    f"the {below} devices below a port of level '{level.name}' do not divide into "
                    f"its {level.rails} rails"
                )

    @cached_property
    def devices(self) -> int:
        """The number of devices: the product of the levels' sizes."""
        return product(level.size for level in self.levels)

    def level(self, name: str) -> Level | None:
        """The level of this name, if there is one."""
        return next((level for level in self.levels if level.name == name), None)
