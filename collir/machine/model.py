"""Machines as trees of levels, outermost first, whose leaves are the devices."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce

from collir.machine.counts import devices_text, product_text, saturated_product
from collir.machine.efficiency import IDEAL, Efficiency
from collir.machine.execution import PLAIN, Execution
from collir.machine.level import Level, MachineError, check_positive

MAX_DEVICES = 2**31 - 1
"""Largest number of devices of a machine: ranks are C ints in MPI and NCCL."""


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _verb(names: Sequence[str], one: str, many: str) -> str:
    return one if len(names) == 1 else many


def _least(values: Sequence[float | None]) -> float | None:
    """Return the least of some numbers; None if one is not known."""
    known = [value for value in values if value is not None]
    return min(known) if len(known) == len(values) else None


@dataclass(frozen=True)
class Device:
    """The device at each leaf of a machine; values that are unknown are ``None`` or absent.

    Attributes:
        compute: pairs of a dtype's name and FLOP/s, in the order written.
        memory: bytes.
        memory_bandwidth: bytes/second.
        reduction: bytes/second at which a device adds a received message to its own data, where
            the time for that is not hidden by receiving.
        efficiency: what kernels reach of these rates.
        execution: what its software adds to the times of kernels.
        power: watts that it takes while a program runs, with its part of what is around it.
        price: US dollars that it costs in an hour.

    Raises:
        MachineError: a number that is not positive, a dtype named twice, an efficiency
            that no device has.
    """

    compute: tuple[tuple[str, float], ...] = ()
    memory: float | None = None
    memory_bandwidth: float | None = None
    reduction: float | None = None
    efficiency: Efficiency = IDEAL
    execution: Execution = PLAIN
    power: float | None = None
    price: float | None = None

    def __post_init__(self) -> None:
        if problem := self.efficiency.problem() or self.execution.problem():
            raise MachineError(problem)
        for dtype, rate in self.compute:
            check_positive(f"the {dtype} compute rate", rate)
        if len(dict(self.compute)) != len(self.compute):
            raise MachineError("a dtype's compute rate is given twice")
        if self.memory is not None:
            check_positive("the memory size", self.memory)
        if self.memory_bandwidth is not None:
            check_positive("the memory bandwidth", self.memory_bandwidth)
        if self.reduction is not None:
            check_positive("the reduction rate", self.reduction)
        if self.power is not None:
            check_positive("the power", self.power)
        if self.price is not None:
            check_positive("the price", self.price)

    def or_like(self, other: "Device") -> "Device":
        """Return the device with the rates of another one where it has none; a dtype without a rate
        gets the rate of the first dtype that has one."""
        own = dict(self.compute)
        first = next(iter(own.values()), None)
        rates = {name: first or rate for name, rate in other.compute} | own
        memory = self.memory_bandwidth or other.memory_bandwidth
        return replace(self, compute=tuple(rates.items()), memory_bandwidth=memory)


@dataclass(frozen=True)
class DeviceKind:
    """A kind of devices of a machine that has several, by its name."""

    name: str
    device: Device


@dataclass(frozen=True)
class Machine:
    """A regular machine: levels outermost first, and the devices at its leaves.

    The rank of a device is its mixed-radix index over the levels, outermost most significant.

    Attributes:
        device: the device at every leaf; None if nothing is known of it, or if kinds have names.
        kinds: the named kinds of devices. If there are several, one level gives each of its
            children a kind; all devices below a child are alike.

    Raises:
        MachineError: no levels, two levels of one name, more than ``MAX_DEVICES`` devices, rails
            that the devices below do not divide into, kinds that levels do not tell apart, or a
            rate of reducing or copying that only some kinds have.
    """

    name: str
    levels: tuple[Level, ...]
    device: Device | None = None
    kinds: tuple[DeviceKind, ...] = ()

    def __post_init__(self) -> None:
        if not self.levels:
            raise MachineError(f"machine @{self.name} has no levels")
        names: set[str] = set()
        for name in self.level_names:
            if name in names:
                raise MachineError(f"machine @{self.name} has two levels named '{name}'")
            names.add(name)
        if self.devices > MAX_DEVICES:
            raise MachineError(
                f"machine @{self.name} has {product_text(self.devices)} devices; "
                "at most 2^31 - 1 are possible"
            )
        for level in self.levels[1:]:
            if level.parents:
                raise MachineError(
                    f"level '{level.parents.level.name}' of machine @{self.name}, whose children "
                    "differ in size, is not the outermost: only the children of the outermost "
                    "level may"
                )
        self._check_rails()
        self._check_kinds()
        self._check_levels_of_kinds()

    def _check_rails(self) -> None:
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

    def _check_kinds(self) -> None:
        if self.kinds and self.device:
            raise MachineError(
                f"machine @{self.name} has a device without a name beside the kind "
                f"'{self.kinds[0].name}': give every kind a name, as in `device v100 {{ ... }}`"
            )
        if len({kind.name for kind in self.kinds}) < len(self.kinds):
            raise MachineError(f"machine @{self.name} has two kinds of devices of one name")
        for what, name, clause in (
            ("reduction", "reduction rate", "reduction = 10 GB/s"),
            ("memory_bandwidth", "memory bandwidth", "memory = 16 GB @ 900 GB/s"),
        ):
            without = [k.name for k in self.kinds if getattr(k.device, what) is None]
            if without and len(without) < len(self.kinds):
                having = [k.name for k in self.kinds if k.name not in without]
                raise MachineError(
                    f"{_listed(having)} of machine @{self.name} {_verb(having, 'has', 'have')} a "
                    f"{name} and {_listed(without)} "
                    f"{_verb(without, 'has', 'have')} none: give every kind one, as in "
                    f"`{clause}`, or none"
                )

    def _check_levels_of_kinds(self) -> None:
        saying = [level for level in self.levels if level.kinds]
        known = {kind.name for kind in self.kinds}
        for level in saying:
            for name, _ in level.kinds:
                if name not in known:
                    has = f"its kinds are {', '.join(known)}" if known else "it names no kinds"
                    raise MachineError(
                        f"machine @{self.name} has no devices of kind '{name}': {has}"
                    )
        if len(saying) > 1:
            raise MachineError(
                f"levels '{saying[0].name}' and '{saying[1].name}' of machine @{self.name} both "
                "say which devices their children have: one level says so for all"
            )
        if not saying and len(self.kinds) > 1:
            counts = ", ".join(f"1 {kind.name}" for kind in self.kinds)
            raise MachineError(
                f"machine @{self.name} has {len(self.kinds)} kinds of devices, and no level says "
                f"which of its children has which: add `devices = [{counts}]`, with its own "
                "numbers, to one level"
            )
        used = {name for level in saying for name, _ in level.kinds}
        if saying and (unused := [kind.name for kind in self.kinds if kind.name not in used]):
            raise MachineError(
                f"no child of level '{saying[0].name}' has devices of kind {_listed(unused)}: "
                "leave the kind out, or name it in `devices`"
            )

    @cached_property
    def kinds_level(self) -> int | None:
        """The index of the level whose children have kinds of devices of their own; None if all
        devices are alike."""
        if all(kind.device == self.kinds[0].device for kind in self.kinds):
            return None
        return next(index for index, level in enumerate(self.levels) if level.kinds)

    @cached_property
    def kind_of(self) -> dict[str, Device]:
        """The device of each kind by its name."""
        return {kind.name: kind.device for kind in self.kinds}

    @cached_property
    def slowest(self) -> Device | None:
        """A device with the least of each number that all kinds have, so that no kind takes longer
        than it; the device itself, if all are alike."""
        return self.slowest_of(self.kind_of)

    def slowest_of(self, names: Iterable[str]) -> Device | None:
        """Return a device with the least of each number that all of some kinds have."""
        devices = [self.kind_of[name] for name in names]
        if not devices:
            return self.device if not self.kinds else self.slowest
        rates = [dict(device.compute) for device in devices]
        shared = [dtype for dtype in rates[0] if all(dtype in rate for rate in rates)]
        return Device(
            tuple((dtype, min(rate[dtype] for rate in rates)) for dtype in shared),
            _least([device.memory for device in devices]),
            _least([device.memory_bandwidth for device in devices]),
            _least([device.reduction for device in devices]),
            reduce(Efficiency.slower, [device.efficiency for device in devices]),
            reduce(Execution.slower, [device.execution for device in devices]),
            devices[0].power if len({device.power for device in devices}) == 1 else None,
            devices[0].price if len({device.price for device in devices}) == 1 else None,
        )

    def with_devices(self, changed: Callable[[Device], Device]) -> "Machine":
        """Return the machine with a change to its device, or to that of every kind."""
        kinds = tuple(replace(kind, device=changed(kind.device)) for kind in self.kinds)
        return replace(self, device=self.device and changed(self.device), kinds=kinds)

    def of_kinds(self, names: Iterable[str]) -> "Machine":
        """Return the machine as steps of some kinds see it: all devices are the slowest of them."""
        levels = tuple(replace(level, kinds=()) for level in self.levels)
        return replace(self, levels=levels, device=self.slowest_of(names), kinds=())

    @cached_property
    def devices(self) -> int:
        """The number of devices: the product of the levels' sizes."""
        return saturated_product(level.size for level in self.levels)

    @property
    def level_names(self) -> tuple[str, ...]:
        """The names of the levels as they are written, so that of parents too, outermost first."""
        chains = [(level.parents and level.parents.level, level) for level in self.levels]
        return tuple(level.name for chain in chains for level in chain if level)

    @property
    def symmetric(self) -> bool:
        """True if all children of each level are alike and equally far from each other.

        The cost of a step then depends only on how many devices of each level take part.
        """
        return all(level.uniform and level.rails == 1 and not level.ports for level in self.levels)

    @property
    def without_parents(self) -> "Machine":
        """The machine with one switch for all children of a level whose parents differ in size."""
        level, *inner = self.levels
        return replace(self, levels=(replace(level, parents=None), *inner))

    def first(self, sizes: Sequence[int]) -> "Machine":
        """Return the machine with only the first children of each level.

        A port keeps the rails that the remaining devices use. If the remaining devices do not fill
        whole rails, the port keeps the largest number of rails that divides those devices.

        Raises:
            MachineError: a part of a torus, or of a matrix of links.
        """
        levels = [level.first(size) for level, size in zip(self.levels, sizes, strict=True)]
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
        return replace(self, levels=tuple(levels), kinds=self.kinds_on(levels))

    def kinds_on(self, levels: Iterable[Level]) -> tuple[DeviceKind, ...]:
        """Return the kinds of the devices on fewer children of the levels."""
        names = {name for level in levels for name, _ in level.kinds}
        return tuple(kind for kind in self.kinds if kind.name in names or not names)

    def level(self, name: str) -> Level | None:
        """Return the level with this name, or None."""
        return next((level for level in self.levels if level.name == name), None)
