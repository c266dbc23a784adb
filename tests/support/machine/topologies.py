"""Random levels of every kind."""

import random
from dataclasses import replace
from itertools import pairwise

from collir.machine import Level, LinkKind, Parents

ALIKE = (LinkKind.SWITCH, LinkKind.RING, LinkKind.FULL, LinkKind.BUS)
"""The kinds that take any number of children and no other parameters."""

MAX_MATRIX = 6
"""Largest number of children with a matrix of links: the oracles try all rings through them."""


def kinds_of(size: int) -> list[str]:
    """Return the kinds of a level of ``size`` children; ``uneven``: a switch with uneven ports."""
    kinds = [*ALIKE, "uneven"]
    if 2 <= size <= MAX_MATRIX:
        kinds.append(LinkKind.LINKS)
    if shapes(size):
        kinds.append(LinkKind.TORUS)
    return kinds


def shapes(size: int, most: int = 3) -> list[tuple[int, ...]]:
    """Return the shapes of tori with ``size`` children, in two dimensions up to ``most``."""
    listed: list[tuple[int, ...]] = []
    for first in range(2, size // 2 + 1):
        if size % first == 0:
            listed.append((first, size // first))
            if most > 2:
                listed += [(first, *rest) for rest in shapes(size // first, most - 1)]
    return listed


def links(rng: random.Random, size: int) -> tuple[tuple[int, ...], ...]:
    """Return a connected matrix: each child is linked to an earlier child, and some to others."""
    rows = [[0] * size for _ in range(size)]
    pairs = [(child, rng.randrange(child)) for child in range(1, size)]
    pairs += [(a, b) for a in range(size) for b in range(a) if rng.random() < 0.5]
    for a, b in pairs:
        rows[a][b] = rows[b][a] = rng.choice([1, 1, 2, 3])
    return tuple(map(tuple, rows))


def some_parents(rng: random.Random, level: Level, above: str) -> Level:
    """Return a plain level with a random level above it, whose children differ in size."""
    marks = rng.sample(range(1, level.size), rng.randint(1, min(3, level.size - 1)))
    ends = [0, *sorted(marks), level.size]
    children = tuple(end - start for start, end in pairwise(ends))
    kind = rng.choice([LinkKind.SWITCH, "uneven"])
    port = level.port * rng.choice([0.2, 1, 3])
    outer = some_level(rng, above, len(children), port, rng.choice([0.0, 3e-6, 20e-6]), kind)
    if not outer.ports and rng.random() < 0.3:
        outer = replace(outer, taper=2.5)
    return Level(
        level.name, level.size, level.port, level.latency, parents=Parents(outer, children)
    )


def some_level(
    rng: random.Random, name: str, size: int, port: float, latency: float, kind: str
) -> Level:
    """Return a random level of a kind of ``kinds_of``."""
    if kind == "uneven":
        ports = (port, *(port * rng.choice([1, 1, 0.5, 0.3]) for _ in range(size - 1)))
        mixed = tuple(rng.sample(ports, size))
        return Level(name, size, port, latency, ports=mixed)
    shape = rng.choice(shapes(size)) if kind == LinkKind.TORUS else None
    matrix = links(rng, size) if kind == LinkKind.LINKS else None
    return Level(name, size, port, latency, LinkKind(kind), shape=shape, links=matrix)
