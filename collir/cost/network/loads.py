"""What messages put on the ports and links of a level, and how long that takes.

A message between two devices goes through the ports of both on every level from the innermost to
the outermost on which they differ, and over the interconnect of that outermost one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product

import numpy as np

from collir.cost.network import wires
from collir.cost.network.group import CostError, Group, RankDigit
from collir.cost.network.wires import Array, has_wires
from collir.machine import LinkKind

MAX_WIRED_PAIRS = 512
"""The most children with links of their own that all send to all."""


@dataclass(frozen=True)
class Load:
    """Messages on one level.

    ``port``: through the busiest port in its busier direction. ``inside``: between the children
    of the busiest parent. ``through``: those, and all that leave or enter that parent. ``links``:
    over each link between the children, see ``wires``.
    ``each``: out of and into every port, where not every child has as many (and where the busiest
    is not always the same); children of all parents in the order of ranks.
    """

    port: float = 0.0
    inside: float = 0.0
    through: float = 0.0
    links: Array | None = None
    each: Array | None = None

    @property
    def busiest_link(self) -> float:
        """The messages over the busiest link; 0 on a switch or bus."""
        return 0.0 if self.links is None else float(np.max(self.links))


class ResourceKind(StrEnum):
    """What of a level messages share."""

    PORT = "port"
    """The busiest port."""
    CORE = "core"
    """What all children share: the medium of a bus, or an interconnect that carries less than all
    ports."""
    LINK = "link"
    """The busiest link between children that have links of their own."""


Resource = tuple[int, ResourceKind]
"""The level (0 is outermost), and what of it."""

Pairs = Iterable[tuple[int, int, float]]
"""(child, child, messages) under one parent."""


def reached_children(
    digits: Sequence[RankDigit], level: int, watched: RankDigit | None = None
) -> Iterable[tuple[int, int]]:
    """The children of a level that digits reach, with the coordinate on one of the digits."""
    here = [digit for digit in digits if digit.level == level]
    for at in product(*(range(digit.size) for digit in here)):
        place = sum(digit.step * x for digit, x in zip(here, at, strict=True))
        yield place, at[here.index(watched)] if watched else 0


def is_wired(group: Group, level: int) -> bool:
    """Whether messages inside a level share links beside the ports."""
    return has_wires(group.levels[level])


def check_wired_pairs(group: Group, level: int) -> None:
    """Whether the links between all children of a level can be counted pair by pair.

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
    """The messages over each link of a level whose children have links of their own.

    Raises:
        CostError: more than ``MAX_WIRED`` children.
    """
    machine = group.levels[level]
    listed = [pair for pairs in lists for pair in pairs]
    table = np.array(listed, dtype=float).reshape(-1, 3)
    sources, targets = table[:, 0].astype(np.int64), table[:, 1].astype(np.int64)
    counts = table[:, 2] * group.beside[level]
    each = [place for place, _ in reached_children(group.others, level)]
    return wires.link_loads(
        machine,
        np.concatenate([sources + place for place in each]),
        np.concatenate([targets + place for place in each]),
        np.tile(counts, len(each)),
    )


def summed_loads(parts: Sequence[tuple[tuple[Load, ...], float]]) -> tuple[Load, ...]:
    """Loads together, in bytes: each of the parts with the bytes of its messages."""
    return tuple(
        Load(
            _through_port(each),
            sum(load.inside * size for load, size in each),
            sum(load.through * size for load, size in each),
            _sum([(load.links, size) for load, size in each]),
            _every_port(each),
        )
        for each in zip(*([(load, size) for load in loads] for loads, size in parts), strict=True)
    )


def port_bytes(parts: Sequence[tuple[tuple[Load, ...], float]]) -> tuple[float, ...]:
    """The bytes through the busiest port of every level."""
    return tuple(
        _through_port(each)
        for each in zip(*([(load, size) for load in loads] for loads, size in parts), strict=True)
    )


def _through_port(parts: Sequence[tuple[Load, float]]) -> float:
    listed = _every_port(parts)
    same = sum(load.port * size for load, size in parts)
    return same if listed is None else float(listed.max())


def _every_port(parts: Sequence[tuple[Load, float]]) -> Array | None:
    listed = _sum([(load.each, size) for load, size in parts])
    same = sum(load.port * size for load, size in parts if load.each is None)
    return None if listed is None else listed + same


def _sum(parts: Sequence[tuple[Array | None, float]]) -> Array | None:
    present = [counts * size for counts, size in parts if counts is not None]
    return sum(present[1:], present[0]) if present else None


def load_seconds(group: Group, loads: Sequence[Load]) -> float:
    """How long the most loaded port, link or interconnect takes for loads in bytes."""
    return max((time for _, time in resource_seconds(group, loads)), default=0.0)


def resource_seconds(group: Group, loads: Sequence[Load]) -> Iterable[tuple[Resource, float]]:
    """How long loads in bytes keep everything that they share busy."""
    for index, (level, port, load) in enumerate(zip(group.levels, group.ports, loads, strict=True)):
        uneven = group.each_port[index]
        if uneven and load.each is not None:
            children = load.each.reshape(2, -1, len(uneven))
            yield (index, ResourceKind.PORT), float(np.max(children / np.array(uneven)))
        else:
            yield (index, ResourceKind.PORT), load.port / port
        if level.taper > 1:
            yield (index, ResourceKind.CORE), load.inside * level.taper / (level.size * level.port)
        if level.kind is LinkKind.BUS:
            yield (index, ResourceKind.CORE), load.through / level.port
        elif load.links is not None:
            yield (index, ResourceKind.LINK), load.busiest_link * level.wires / level.port
