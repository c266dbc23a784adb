"""The load of messages on the ports and links of each level, and the seconds it takes.

A message between two devices goes up to the outermost level on which they differ. It passes the
ports of both devices on every level up to that one, and the interconnect of that level.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from typing import NamedTuple

import numpy as np

from collir.cost.network import wires
from collir.cost.network.group import CostError, Group, RankDigit
from collir.cost.network.wires import Array
from collir.machine import LinkKind, Parents

MAX_WIRED_PAIRS = 512
"""Largest number of children with links of their own whose all-to-all messages are counted."""


@dataclass(frozen=True)
class Load:
    """The load on one level, in messages or bytes.

    Attributes:
        port: the load of the busiest port in its busier direction.
        inside: the load between the children of the busiest parent.
        through: ``inside`` and all that leaves or enters that parent.
        links: the load of each link between the children (see ``wires``), where they have links.
        every_port: the load out of and into every port where ports are not alike, as an array of
            (direction, child); children of all parents in the order of ranks.
    """

    port: float = 0.0
    inside: float = 0.0
    through: float = 0.0
    links: Array | None = None
    every_port: Array | None = None

    @property
    def busiest_link(self) -> float:
        """The load of the busiest link; 0 on a switch or bus."""
        return 0.0 if self.links is None else float(np.max(self.links))


class ResourceKind(StrEnum):
    """A kind of resource of a level that messages share."""

    PORT = "port"
    """The busiest port."""
    CORE = "core"
    """The shared interconnect: the medium of a bus, or a switch that carries less than all
    ports."""
    LINK = "link"
    """The busiest link between children that have links of their own."""
    PARENT = "parent"
    """A port of a parent, where parents have different numbers of children; ``where`` names the
    parent and the direction."""


class Resource(NamedTuple):
    """A resource of a machine.

    Attributes:
        level: its level (0 is outermost).
        kind: its kind on that level.
        where: its place, where a simulation tells devices at several places apart or the kind
            alone does not say; else empty.
    """

    level: int
    kind: ResourceKind
    where: str = ""


ResourceSeconds = tuple[tuple[Resource, float], ...]
"""Resources, each with the seconds that it is busy."""

Pairs = Iterable[tuple[int, int, float]]
"""(child, child, messages) under one parent."""


def reached_children(
    digits: Sequence[RankDigit], level: int, watched: RankDigit | None = None
) -> Iterable[tuple[int, int]]:
    """Yield the children of a level that digits reach, with the coordinate on one of the digits."""
    inside = [digit for digit in digits if digit.level == level]
    for coordinates in product(*(range(digit.size) for digit in inside)):
        child = sum(digit.step * x for digit, x in zip(inside, coordinates, strict=True))
        yield child, coordinates[inside.index(watched)] if watched else 0


def check_wired_pairs(group: Group, level: int) -> None:
    """Check that messages between all children of a level can be counted pair by pair.

    Raises:
        CostError: there are more than ``MAX_WIRED_PAIRS`` children.
    """
    if group.across[level] > MAX_WIRED_PAIRS:
        entry = group.levels[level]
        raise CostError(
            f"messages between all {entry.size} children of level '{entry.name}' are counted for "
            f"{MAX_WIRED_PAIRS} at most on a {entry.kind}: use another algorithm"
        )


def group_link_loads(group: Group, level: int, lists: Iterable[Pairs]) -> Array:
    """Return the messages over each link of a level whose children have links of their own.

    Raises:
        CostError: more than ``MAX_WIRED`` children.
    """
    wires.check_wired(group.levels[level])
    listed = [pair for pairs in lists for pair in pairs]
    table = np.array(listed, dtype=float).reshape(-1, 3)
    sources, targets = table[:, 0].astype(np.int64), table[:, 1].astype(np.int64)
    counts = table[:, 2] * group.beside[level]
    offsets = group.first_children(level)
    return wires.link_loads(
        group.levels[level],
        np.concatenate([sources + offset for offset in offsets]),
        np.concatenate([targets + offset for offset in offsets]),
        np.tile(counts, len(offsets)),
    )


SizedLoads = Sequence[tuple[tuple[Load, ...], float]]
"""Loads of every level in messages, each with the bytes of its messages."""


def summed_loads(parts: SizedLoads) -> tuple[Load, ...]:
    """Return the sum of loads in bytes, for every level."""
    return tuple(
        Load(
            _port_bytes(loads),
            sum(load.inside * size for load, size in loads),
            sum(load.through * size for load, size in loads),
            _sum([(load.links, size) for load, size in loads]),
            _every_port(loads),
        )
        for loads in _by_level(parts)
    )


def port_bytes(parts: SizedLoads) -> tuple[float, ...]:
    """Return the bytes through the busiest port of every level."""
    return tuple(_port_bytes(loads) for loads in _by_level(parts))


def _by_level(parts: SizedLoads) -> Iterable[tuple[tuple[Load, float], ...]]:
    return zip(*([(load, size) for load in loads] for loads, size in parts), strict=True)


def _port_bytes(parts: Sequence[tuple[Load, float]]) -> float:
    listed = _every_port(parts)
    alike = sum(load.port * size for load, size in parts)
    return alike if listed is None else float(listed.max())


def _every_port(parts: Sequence[tuple[Load, float]]) -> Array | None:
    """Return the bytes through every port, or None if no load lists its ports."""
    listed = _sum([(load.every_port, size) for load, size in parts])
    alike = sum(load.port * size for load, size in parts if load.every_port is None)
    return None if listed is None else listed + alike


def _sum(parts: Sequence[tuple[Array | None, float]]) -> Array | None:
    present = [counts * size for counts, size in parts if counts is not None]
    return sum(present[1:], present[0]) if present else None


def load_latency(group: Group, loads: Sequence[Load]) -> float:
    """Return the latency of the messages of some loads that go furthest."""
    outermost, first = next(((i, x) for i, x in enumerate(loads) if x.port), (0, None))
    if first is None:
        return 0.0
    apart = outermost == 0 and group.levels[0].parents and first.busiest_link
    return group.latency_between_parents if apart else group.latencies[outermost]


def parent_seconds(group: Group, parts: SizedLoads) -> ResourceSeconds:
    """Return the seconds of bytes through the ports of parents that differ in size."""
    parents = group.levels[0].parents
    links = parents and _sum([(loads[0].links, size) for loads, size in parts])
    if parents is None or links is None:
        return ()
    used = _parent_seconds(0, parents, links)
    return tuple(pair for pair in used if pair[0].kind is ResourceKind.PARENT)


def load_seconds(group: Group, loads: Sequence[Load]) -> float:
    """Return the seconds of the most loaded port, link or interconnect for loads in bytes."""
    return max((time for _, time in resource_seconds(group, loads)), default=0.0)


def resource_seconds(group: Group, loads: Sequence[Load]) -> Iterable[tuple[Resource, float]]:
    """Yield every resource that loads in bytes use, with the seconds that it is busy."""
    for index, (level, port, load) in enumerate(zip(group.levels, group.ports, loads, strict=True)):
        uneven = group.each_port[index]
        if uneven and load.every_port is not None:
            children = load.every_port.reshape(2, -1, len(uneven))
            yield Resource(index, ResourceKind.PORT), float(np.max(children / np.array(uneven)))
        else:
            yield Resource(index, ResourceKind.PORT), load.port / port
        if level.parents and load.links is not None:
            yield from _parent_seconds(index, level.parents, load.links)
            continue
        if level.taper > 1:
            yield (
                Resource(index, ResourceKind.CORE),
                load.inside * level.taper / (level.size * level.port),
            )
        if level.kind is LinkKind.BUS:
            yield Resource(index, ResourceKind.CORE), load.through / level.port
        elif load.links is not None:
            yield Resource(index, ResourceKind.LINK), load.busiest_link * level.wires / level.port


def _parent_seconds(index: int, parents: Parents, links: Array) -> Iterable[tuple[Resource, float]]:
    """Yield the resources between parents that loads in bytes use, by direction and parent."""
    level = parents.level
    ports = level.ports or (level.port,) * level.size
    for direction, row in zip(("out", "in"), links.reshape(2, -1).tolist(), strict=True):
        for parent, (port, size) in enumerate(zip(ports, row, strict=True)):
            if size:
                where = f"{parent}, {direction}"
                yield Resource(index, ResourceKind.PARENT, where), size / port
    if level.taper > 1:
        sent = float(links[: level.size].sum())
        yield Resource(index, ResourceKind.CORE), sent * level.taper / (level.size * level.port)
