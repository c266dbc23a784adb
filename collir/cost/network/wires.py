"""The links between the children of a level, where they have some of their own, and which of them
messages take.

On a ring messages take the shorter way, and both ways, half of them each, where these are as long.
On a torus they do so in one dimension after the other: half of them in the order of the dimensions,
half in the reverse order, so that answers take the same links back. Where a matrix says the links,
messages take all ways of the fewest hops alike; parallel links are ways of their own.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from collir.cost.network.group import CostError
from collir.machine import Level, LinkKind
from collir.machine.model import Matrix

Array = npt.NDArray[Any]

MAX_WIRED = {LinkKind.RING: 2**16, LinkKind.FULL: 2**12, LinkKind.TORUS: 2**16}
"""The most children of a level that have links of their own; a matrix is small anyway."""


def has_wires(level: Level) -> bool:
    """Whether messages inside a level share links beside the ports."""
    return level.kind not in (LinkKind.SWITCH, LinkKind.BUS)


def link_loads(level: Level, sources: Array, targets: Array, counts: Array) -> Array:
    """The messages over each link of a level, which has ``level.wires`` links for a port.

    Of a ring or torus: for each dimension and direction over the link behind each child; of others,
    between each two children, over each of the links that are there.

    Raises:
        CostError: more than ``MAX_WIRED`` children.
    """
    if level.size > (most := MAX_WIRED.get(level.kind, level.size)):
        raise CostError(
            f"level '{level.name}' has {level.size} children: a {level.kind} is costed for {most} "
            "at most; say kind = switch"
        )
    match level.kind:
        case LinkKind.RING | LinkKind.TORUS:
            return _on_torus(_shape(level), sources, targets, counts)
        case LinkKind.FULL:
            links = np.zeros((level.size, level.size))
            np.add.at(links, (sources, targets), counts)
            return links
        case _:
            return _on_links(level.links or (), sources, targets, counts)


def all_pairs_loads(level: Level) -> Array:
    """The same of a message from every child to every other, where all children are alike: the
    loads of one link in each dimension."""
    if level.kind is LinkKind.FULL:
        return np.ones(1)
    shape = _shape(level)
    ways = [1 if size == 2 and len(shape) > 1 else 2 for size in shape]
    each = zip(_far(level), ways, strict=True)
    return np.array([hops / links for hops, links in each])


def _far(level: Level) -> list[int]:
    """From one child to all others, the links in each dimension."""
    return [size // 2 * ((size + 1) // 2) * (level.size // size) for size in _shape(level)]


def neighbours(level: Level, child: int) -> list[tuple[int, int]]:
    """The children that a child has links to, and how many links; one may come twice."""
    if level.links:
        return [(other, count) for other, count in enumerate(level.links[child]) if count]
    shape = _shape(level)
    at = [int(x) for x in np.unravel_index(child, shape)]
    found: list[tuple[int, int]] = []
    for dimension, size in enumerate(shape):
        for step in (1, -1) if size > 2 or len(shape) == 1 else (1,):
            other = [*at[:dimension], (at[dimension] + step) % size, *at[dimension + 1 :]]
            found.append((int(np.ravel_multi_index(other, shape)), 1))
    return found


def distances(level: Level) -> tuple[int, int]:
    """The links between all children, each to each other, the shortest way: their sum, and the
    most between two."""
    if level.kind is LinkKind.FULL:
        return level.size * (level.size - 1), 1
    if level.links:
        hops, _ = _counted(level.links)
        return sum(map(sum, hops)), max(map(max, hops))
    return level.size * sum(_far(level)), sum(size // 2 for size in _shape(level))


def _shape(level: Level) -> tuple[int, ...]:
    return level.shape or (level.size,)


# ---------------------------------------------------------------------------------------------
# Rings and tori
# ---------------------------------------------------------------------------------------------


def _on_torus(shape: Sequence[int], sources: Array, targets: Array, counts: Array) -> Array:
    links = np.zeros((len(shape), 2, prod(shape)))
    start, end = (np.stack(np.unravel_index(each, shape)) for each in (sources, targets))
    orders = [range(len(shape)), range(len(shape))[::-1]]
    for order in orders if len(shape) > 1 else orders[:1]:
        at = start.copy()
        for dimension in order:
            part = counts / (2 if len(shape) > 1 else 1)
            _on_lines(links[dimension], shape, dimension, at, end[dimension], part)
            at[dimension] = end[dimension]
    return links


def _on_lines(
    links: Array, shape: Sequence[int], dimension: int, at: Array, end: Array, counts: Array
) -> None:
    """Adds messages that go along one dimension only; each line of it is a ring."""
    size = shape[dimension]
    rest = (*shape[:dimension], *shape[dimension + 1 :])
    across = np.delete(at, dimension, axis=0)
    line = np.ravel_multi_index(tuple(across), rest) if rest else np.zeros_like(end)
    ahead = (end - at[dimension]) % size
    if not ahead.any():
        return
    share = np.where(2 * ahead < size, 1.0, np.where(2 * ahead == size, 0.5, 0.0))
    if size == 2 and len(shape) > 1:  # one link, so there is no other way
        share = np.ones_like(share)
    ends = 2 * size + 1
    lines = prod(rest)
    for direction, part in ((0, share), (1, 1 - share)):
        first = line * ends + (at[dimension] if direction == 0 else end)
        length = ahead if direction == 0 else size - ahead
        added, weights = lines * ends, counts * part
        change = np.bincount(first, weights, added) - np.bincount(first + length, weights, added)
        level = np.cumsum(change.reshape(lines, ends), axis=1)[:, :-1]
        both = (level[:, :size] + level[:, size:]).reshape(*rest, size)
        links[direction] += np.moveaxis(both, -1, dimension).ravel()


# ---------------------------------------------------------------------------------------------
# A matrix of links
# ---------------------------------------------------------------------------------------------


def _on_links(links: Matrix, sources: Array, targets: Array, counts: Array) -> Array:
    size = len(links)
    wanted = np.zeros((size, size))
    np.add.at(wanted, (sources, targets), counts)
    found = np.zeros((size, size))
    for source, target in zip(*np.nonzero(wanted), strict=True):
        if source != target:
            places, shares = _ways(links, int(source), int(target))
            found.flat[places] += wanted[source, target] * shares
    return found


@lru_cache(maxsize=2**14)
def _ways(links: Matrix, source: int, target: int) -> tuple[Array, Array]:
    """Which links (row by row of the matrix) messages from a child to another take, and what part
    of them goes over each one of the parallel links there."""
    hops, ways = _counted(links)
    left = np.array([row[target] for row in hops])
    fewest = np.array(hops[source])[:, None] + 1 + left == hops[source][target]
    places = np.flatnonzero(fewest & (np.array(links) > 0))
    all_ways = ways[source][target]
    # Integers, as there may be very many ways
    shares = [
        ways[source][place // len(links)] * ways[place % len(links)][target] / all_ways
        for place in places.tolist()
    ]
    return places, np.array(shares)


@lru_cache(maxsize=64)
def _counted(links: Matrix) -> tuple[Matrix, Matrix]:
    """Between each two children: the fewest hops, and in how many ways there are as few."""
    size = len(links)
    hops: list[tuple[int, ...]] = []
    ways: list[tuple[int, ...]] = []
    for source in range(size):
        distance, count = {source: 0}, {source: 1}
        order = [source]
        for at in order:  # grows, by distance
            for other, parallel in enumerate(links[at]):
                if not parallel:
                    continue
                if other not in distance:
                    distance[other], count[other] = distance[at] + 1, 0
                    order.append(other)
                if distance[other] == distance[at] + 1:
                    count[other] += count[at] * parallel
        hops.append(tuple(distance[child] for child in range(size)))
        ways.append(tuple(count[child] for child in range(size)))
    return tuple(hops), tuple(ways)
