"""The links of a machine, or of one of its levels, as a graph of devices and switches.

A port of a level that several devices share is divided among them in equal parts, and links between
two children connect the devices at the same place below each. A tapered level has ports of
1/taper of the bandwidth. For an all_gather or reduce_scatter this loses nothing on regular
machines, as all devices are alike.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

from collir.cost.network.wires import neighbours
from collir.machine import Level, LinkKind, Machine

Link = tuple[int, int]
"""The nodes that a directed link leads from and to."""


class NoTreesError(ValueError):
    """A machine that trees cannot be made for; the message names the reason."""


@dataclass(frozen=True)
class LinkRates:
    """The bandwidth of a link in bytes/second, exactly, and its latency in seconds."""

    bandwidth: Fraction
    latency: float


@dataclass(frozen=True)
class CapacityGraph:
    """Devices and switches with directed links, equal in both directions.

    Attributes:
        ranks: the number of devices, which are the nodes from 0 on; further nodes are switches.
        links: the links. A switch has links to devices only.
        below: for each switch, the number of neighbouring devices below a port; 1 if ports differ.

    Raises:
        NoTreesError: fewer than two devices, or a device that others cannot reach.
    """

    ranks: int
    links: dict[Link, LinkRates]
    below: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.ranks < 2:
            raise NoTreesError("there is one device: nothing has to be sent")
        reached = {0}
        queue = [0]
        neighbours_of: dict[int, list[int]] = {}
        for a, b in self.links:
            neighbours_of.setdefault(a, []).append(b)
        for node in queue:  # the loop appends to the queue
            new = [x for x in neighbours_of.get(node, ()) if x not in reached]
            reached.update(new)
            queue += new
        if apart := set(range(self.ranks)) - reached:
            raise NoTreesError(f"no link leads from device 0 to device {min(apart)}")

    @property
    def nodes(self) -> int:
        """The number of devices and switches."""
        return self.ranks + len(self.below)

    @property
    def switches(self) -> range:
        """The nodes that are switches."""
        return range(self.ranks, self.nodes)

    def latency(self, a: int, b: int, switch: int) -> float:
        """Return the latency of a link between devices in seconds; of a switch, if it is not -1,
        the larger one of both ports."""
        if switch == -1:
            return self.links[a, b].latency
        return max(self.links[a, switch].latency, self.links[switch, b].latency)

    @cached_property
    def unit(self) -> Fraction:
        """The greatest common divisor of the bandwidths of all links, in bytes/second."""
        rates = [link.bandwidth for link in self.links.values()]
        whole = math.lcm(*(rate.denominator for rate in rates))
        return Fraction(math.gcd(*(int(rate * whole) for rate in rates)), whole)

    @cached_property
    def capacities(self) -> dict[Link, int]:
        """The bandwidth of each link in units."""
        return {link: int(x.bandwidth / self.unit) for link, x in self.links.items()}


def graph_of_machine(machine: Machine) -> CapacityGraph:
    """Return the graph of all devices of a machine.

    Raises:
        NoTreesError: a level is a bus, or there is one device.
    """
    graph = _GraphBuilder(machine.devices)
    outer = machine.levels[0].parents
    if outer:
        starts = (*outer.starts, machine.levels[0].size)
        below = machine.devices // machine.levels[0].size
        blocks = [range(a * below, b * below) for a, b in pairwise(starts)]
        graph.add_switch(outer.level, blocks, _ports(outer.level))
        for block in blocks:
            children = [block[i : i + below] for i in range(0, len(block), below)]
            graph.add_switch(machine.levels[0], children, [machine.levels[0].port] * len(children))
    size = machine.devices
    for level in machine.levels:
        for start in range(0, machine.devices, size):
            if level.parents is None:
                graph.add_level(level, range(start, start + size))
        size //= level.size
    return CapacityGraph(machine.devices, graph.links, tuple(graph.below))


def graph_of_level(level: Level) -> CapacityGraph:
    """Return the graph of the children of one parent, each as a device.

    Raises:
        NoTreesError: the level is a bus, has one child, or lists children of several parents.
    """
    if level.parents:
        raise NoTreesError(f"the children of level '{level.name}' have different parents")
    graph = _GraphBuilder(level.size)
    graph.add_level(level, range(level.size))
    return CapacityGraph(level.size, graph.links, tuple(graph.below))


class _GraphBuilder:
    """The links and switches of a graph, as levels are added."""

    def __init__(self, ranks: int):
        self.ranks = ranks
        self.links: dict[Link, LinkRates] = {}
        self.below: list[int] = []

    def add_level(self, level: Level, devices: range) -> None:
        """Add the links between the children of one parent, which has some devices below it."""
        if level.size == 1:
            return
        below = len(devices) // level.size
        match level.kind:
            case LinkKind.BUS:
                raise NoTreesError(
                    f"level '{level.name}' is a bus, on which one device sends at a time: trees "
                    "need links or a switch"
                )
            case LinkKind.SWITCH:
                children = [devices[i : i + below] for i in range(0, len(devices), below)]
                self.add_switch(level, children, _ports(level))
            case _:
                rate = Fraction(level.port) / level.wires / below / Fraction(level.taper)
                for a, b, count in _between(level):
                    for i in range(below):
                        ends = devices[a * below + i], devices[b * below + i]
                        self.add_link(ends, count * rate, level.latency)

    def add_switch(self, level: Level, children: list[range], ports: list[float]) -> None:
        """Add a switch with a port for each child; a child alone needs none."""
        if len(children) == 1:
            return
        switch = self.ranks + len(self.below)
        sizes = {len(child) for child in children}
        self.below.append(sizes.pop() if len(sizes) == 1 else 1)
        for child, port in zip(children, ports, strict=True):
            rate = Fraction(port) / len(child) / Fraction(level.taper)
            for device in child:
                self.add_link((device, switch), rate, level.latency)
                self.add_link((switch, device), rate, level.latency)

    def add_link(self, ends: Link, rate: Fraction, latency: float) -> None:
        """Add a link, or make a link faster by another one beside it."""
        known = self.links.get(ends, LinkRates(Fraction(0), latency))
        self.links[ends] = LinkRates(known.bandwidth + rate, max(latency, known.latency))


def _ports(level: Level) -> list[float]:
    return list(level.ports or [level.port] * level.size)


def _between(level: Level) -> Iterator[tuple[int, int, int]]:
    """Yield the directed links between the children of a level, with how many are parallel."""
    for child in range(level.size):
        if level.kind is LinkKind.FULL:
            yield from ((child, other, 1) for other in range(level.size) if other != child)
        else:
            yield from ((child, other, count) for other, count in neighbours(level, child))
