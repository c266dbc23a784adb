"""What messages put on the ports and links of a level, and how long that takes.

A message between two devices goes through the ports of both on every level from the innermost to
the outermost on which they differ, and over the interconnect of that outermost one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from collir.cost.group import CostError, Digit, Group
from collir.machine import LinkKind

Array = npt.NDArray[Any]

MAX_WIRED = {LinkKind.RING: 2**16, LinkKind.FULL: 2**12}
"""The most children of a ring, and of a full mesh, that have links of their own."""

MAX_WIRED_PAIRS = 512
"""The most of them that all send to all."""


@dataclass(frozen=True)
class Load:
    """Messages on one level.

    ``port``: through the busiest port in its busier direction. ``inside``: between the children
    of the busiest parent. ``through``: those, and all that leave or enter that parent. ``links``:
    over each link of a ring (clockwise, then counterclockwise) or between each two children.
    ``each``: out of and into every port, where not every child has as many (and where the busiest
    is not always the same).
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


Pairs = Iterable[tuple[int, int, float]]
"""(child, child, messages) under one parent."""


def places(
    digits: Sequence[Digit], level: int, watched: Digit | None = None
) -> Iterable[tuple[int, int]]:
    """The children of a level that digits reach, with the coordinate on one of the digits."""
    here = [digit for digit in digits if digit.level == level]
    for at in product(*(range(digit.size) for digit in here)):
        place = sum(digit.step * x for digit, x in zip(here, at, strict=True))
        yield place, at[here.index(watched)] if watched else 0


def is_wired(group: Group, level: int) -> bool:
    """Whether messages inside a level share links beside the ports."""
    return group.levels[level].kind in (LinkKind.RING, LinkKind.FULL)


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


def link_loads(group: Group, level: int, lists: Iterable[Pairs]) -> Array:
    """The messages over each link of a level that is a ring or a full mesh.

    On a ring messages take the shorter way; where both are as long, half of them each.

    Raises:
        CostError: more than ``MAX_WIRED`` children.
    """
    machine = group.levels[level]
    size = machine.size
    if size > (most := MAX_WIRED[machine.kind]):
        raise CostError(
            f"level '{machine.name}' has {size} children: a {machine.kind} is costed for {most} at "
            "most; say kind = switch"
        )
    offsets = [place for place, _ in places(group.others, level)]
    listed = [pair for pairs in lists for pair in pairs]
    shape = (2, size) if machine.kind is LinkKind.RING else (size, size)
    links = np.zeros(shape)
    if not listed:
        return links
    table = np.array(listed, dtype=float)
    sources, targets = table[:, 0].astype(np.int64), table[:, 1].astype(np.int64)
    counts = table[:, 2] * group.beside[level]
    for offset in offsets:
        if machine.kind is LinkKind.RING:
            _add_on_ring(links, sources + offset, targets + offset, counts)
        else:
            np.add.at(links, (sources + offset, targets + offset), counts)
    return links


def _add_on_ring(links: Array, sources: Array, targets: Array, counts: Array) -> None:
    size = links.shape[1]
    ahead = (targets - sources) % size
    share = np.where(2 * ahead < size, 1.0, np.where(2 * ahead == size, 0.5, 0.0))
    for direction, part in ((0, share), (1, 1 - share)):
        starts = sources if direction == 0 else targets
        length = ahead if direction == 0 else size - ahead
        change = np.zeros(2 * size + 1)
        np.add.at(change, starts, counts * part)
        np.add.at(change, starts + length, -counts * part)
        level = np.cumsum(change)[:-1]
        links[direction] += level[:size] + level[size:]


def total(parts: Sequence[tuple[tuple[Load, ...], float]]) -> tuple[Load, ...]:
    """Loads together, in bytes: each of the parts with the bytes of its messages."""
    return tuple(
        Load(
            _through_port(each),
            sum(load.inside * size for load, size in each),
            sum(load.through * size for load, size in each),
            _sum([(load.links, size) for load, size in each]),
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
    listed = _sum([(load.each, size) for load, size in parts])
    same = sum(load.port * size for load, size in parts if load.each is None)
    return same if listed is None else same + float(listed.max())


def _sum(parts: Sequence[tuple[Array | None, float]]) -> Array | None:
    present = [counts * size for counts, size in parts if counts is not None]
    return sum(present[1:], present[0]) if present else None


def seconds(group: Group, loads: Sequence[Load]) -> float:
    """How long the most loaded port, link or interconnect takes for loads in bytes."""
    return max(_each(group, loads), default=0.0)


def _each(group: Group, loads: Sequence[Load]) -> Iterable[float]:
    for level, port, load in zip(group.levels, group.ports, loads, strict=True):
        yield load.port / port
        if level.taper > 1:
            yield load.inside * level.taper / (level.size * level.port)
        if level.kind is LinkKind.BUS:
            yield load.through / level.port
        elif load.links is not None:
            links = 2 if level.kind is LinkKind.RING else level.size - 1
            yield load.busiest_link * links / level.port
