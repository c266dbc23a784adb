"""The links of a level that not all pairs of its children share, and the routes of messages.

On a ring messages take the shorter way; if both ways are equally long, half of them take each.
On a torus they go along one dimension after the other as on rings: half of them in the order of
the dimensions, half in the reverse order, so that replies use the same links. With a matrix of
links, messages are divided equally among all shortest paths; parallel links are different paths.
Between children of different parents, messages take the ports of both parents.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from collir.cost.network.group import CostError
from collir.machine import Level, LinkKind, Parents
from collir.machine.level import Matrix

Array = npt.NDArray[Any]

MAX_WIRED = {LinkKind.RING: 2**16, LinkKind.FULL: 2**12, LinkKind.TORUS: 2**16}
"""Largest number of children by kind of level; ``MAX_LINKS`` limits matrices."""


def link_loads(level: Level, sources: Array, targets: Array, counts: Array) -> Array:
    """Return the messages over each link of a level, whose ports have ``level.wires`` links each.

    The shape for a ring or torus is (dimension, direction, child): the link after each child.
    For parents it is flat: out of every parent, then into every parent. Otherwise it is
    (child, child): each of the parallel links between two children.

    Raises:
        CostError: more than ``MAX_WIRED`` children.
    """
    check_wired(level)
    if level.parents:
        return _through_parents(level.parents, sources, targets, counts)
    match level.kind:
        case LinkKind.RING | LinkKind.TORUS:
            return _on_torus(_shape(level), sources, targets, counts)
        case LinkKind.FULL:
            links = np.zeros((level.size, level.size))
            np.add.at(links, (sources, targets), counts)
            return links
        case _:
            return _on_links(level.links or (), sources, targets, counts)


def check_wired(level: Level) -> None:
    """Check that the links of a level can be counted one by one.

    Raises:
        CostError: more than ``MAX_WIRED`` children.
    """
    if level.size > (limit := MAX_WIRED.get(level.kind, level.size)):
        raise CostError(
            f"level '{level.name}' has {level.size} children: a {level.kind} is costed for {limit} "
            "at most; say kind = switch"
        )


def all_pairs_loads(level: Level) -> Array:
    """Return the messages if every child sends one to every other: over one link in each dimension,
    or over the ports of parents as in ``link_loads``.

    The level must not have a matrix of links.
    """
    if level.parents:
        inside = np.array(level.parents.children, dtype=float)
        return np.tile(inside * (level.size - inside), 2)
    if level.kind is LinkKind.FULL:
        return np.ones(1)
    shape = _shape(level)
    links = [1 if size == 2 and len(shape) > 1 else 2 for size in shape]
    return np.array([hops / count for hops, count in zip(_hop_sums(level), links, strict=True)])


def _hop_sums(level: Level) -> list[int]:
    """Return the sum of the hops from one child to all others, in each dimension."""
    return [size // 2 * ((size + 1) // 2) * (level.size // size) for size in _shape(level)]


def neighbours(level: Level, child: int) -> list[tuple[int, int]]:
    """Return the children that a child has links to, with numbers of links; some may come twice."""
    if level.links:
        return [(neighbour, count) for neighbour, count in enumerate(level.links[child]) if count]
    shape = _shape(level)
    coordinates = [int(x) for x in np.unravel_index(child, shape)]
    neighbours_of: list[tuple[int, int]] = []
    for dimension, size in enumerate(shape):
        for step in (1, -1) if size > 2 or len(shape) == 1 else (1,):
            neighbour = [
                *coordinates[:dimension],
                (coordinates[dimension] + step) % size,
                *coordinates[dimension + 1 :],
            ]
            neighbours_of.append((int(np.ravel_multi_index(neighbour, shape)), 1))
    return neighbours_of


def distances(level: Level) -> tuple[int, int]:
    """Return the sum of the distances between all ordered pairs of children, and the largest."""
    if level.kind is LinkKind.FULL:
        return level.size * (level.size - 1), 1
    if level.links:
        hops, _ = _shortest_paths(level.links)
        return sum(map(sum, hops)), max(map(max, hops))
    return level.size * sum(_hop_sums(level)), sum(size // 2 for size in _shape(level))


def _shape(level: Level) -> tuple[int, ...]:
    return level.shape or (level.size,)


def _through_parents(parents: Parents, sources: Array, targets: Array, counts: Array) -> Array:
    parent = np.repeat(np.arange(len(parents.children)), parents.children)
    ends = parent[sources], parent[targets]
    away = ends[0] != ends[1]
    sides = [np.bincount(end[away], counts[away], len(parents.children)) for end in ends]
    return np.concatenate(sides)


# ---------------------------------------------------------------------------------------------
# Rings and tori
# ---------------------------------------------------------------------------------------------


def _on_torus(shape: Sequence[int], sources: Array, targets: Array, counts: Array) -> Array:
    links = np.zeros((len(shape), 2, prod(shape)))
    starts, ends = (np.stack(np.unravel_index(children, shape)) for children in (sources, targets))
    orders = [range(len(shape)), range(len(shape))[::-1]]
    for order in orders if len(shape) > 1 else orders[:1]:
        positions = starts.copy()
        for dimension in order:
            part = counts / (2 if len(shape) > 1 else 1)
            _add_along(links[dimension], shape, dimension, positions, ends[dimension], part)
            positions[dimension] = ends[dimension]
    return links


def _add_along(
    links: Array, shape: Sequence[int], dimension: int, starts: Array, ends: Array, counts: Array
) -> None:
    """Add the messages that go along one dimension, whose lines are rings.

    A message takes the links ``first`` to ``first + length`` of its line. Lines are unrolled to
    twice their length, so that no message wraps around: the loads are the cumulative sums of +1 at
    the first link of every message and -1 behind its last.
    """
    size = shape[dimension]
    rest = (*shape[:dimension], *shape[dimension + 1 :])
    across = np.delete(starts, dimension, axis=0)
    line = np.ravel_multi_index(tuple(across), rest) if rest else np.zeros_like(ends)
    ahead = (ends - starts[dimension]) % size
    if not ahead.any():
        return
    share = np.where(2 * ahead < size, 1.0, np.where(2 * ahead == size, 0.5, 0.0))
    if size == 2 and len(shape) > 1:  # one link joins the two, so there is only one way
        share = np.ones_like(share)
    unrolled = 2 * size + 1
    lines = prod(rest)
    for direction, part in ((0, share), (1, 1 - share)):
        first = line * unrolled + (starts[dimension] if direction == 0 else ends)
        length = ahead if direction == 0 else size - ahead
        bins, weights = lines * unrolled, counts * part
        change = np.bincount(first, weights, bins) - np.bincount(first + length, weights, bins)
        loads = np.cumsum(change.reshape(lines, unrolled), axis=1)[:, :-1]
        rolled = (loads[:, :size] + loads[:, size:]).reshape(*rest, size)
        links[direction] += np.moveaxis(rolled, -1, dimension).ravel()


# ---------------------------------------------------------------------------------------------
# A matrix of links
# ---------------------------------------------------------------------------------------------


def _on_links(links: Matrix, sources: Array, targets: Array, counts: Array) -> Array:
    size = len(links)
    messages = np.zeros((size, size))
    np.add.at(messages, (sources, targets), counts)
    loads = np.zeros((size, size))
    for source, target in zip(*np.nonzero(messages), strict=True):
        if source != target:
            used, shares = _route(links, int(source), int(target))
            loads.flat[used] += messages[source, target] * shares
    return loads


@lru_cache(maxsize=2**14)
def _route(links: Matrix, source: int, target: int) -> tuple[Array, Array]:
    """Return the links (as flat indices of the matrix) that messages between two children take, and
    the part of the messages over each one of the parallel links there."""
    hops, paths = _shortest_paths(links)
    left = np.array([row[target] for row in hops])
    on_path = np.array(hops[source])[:, None] + 1 + left == hops[source][target]
    used = np.flatnonzero(on_path & (np.array(links) > 0))
    # The numbers of paths are integers, as they may be too large for floats.
    shares = [
        paths[source][link // len(links)] * paths[link % len(links)][target] / paths[source][target]
        for link in used.tolist()
    ]
    return used, np.array(shares)


@lru_cache(maxsize=64)
def _shortest_paths(links: Matrix) -> tuple[Matrix, Matrix]:
    """Return the hops and the number of the shortest paths between every two children."""
    size = len(links)
    hops: list[tuple[int, ...]] = []
    paths: list[tuple[int, ...]] = []
    for source in range(size):
        distance, count = {source: 0}, {source: 1}
        queue = [source]
        for child in queue:  # the loop appends to the queue, in the order of distances
            for neighbour, parallel in enumerate(links[child]):
                if not parallel:
                    continue
                if neighbour not in distance:
                    distance[neighbour], count[neighbour] = distance[child] + 1, 0
                    queue.append(neighbour)
                if distance[neighbour] == distance[child] + 1:
                    count[neighbour] += count[child] * parallel
        hops.append(tuple(distance[child] for child in range(size)))
        paths.append(tuple(count[child] for child in range(size)))
    return tuple(hops), tuple(paths)
