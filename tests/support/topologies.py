"""Random levels of every kind that so many children can be."""

import random

from collir.machine import Level, LinkKind

ALIKE = (LinkKind.SWITCH, LinkKind.RING, LinkKind.FULL, LinkKind.BUS)
"""The kinds that take any number of children, and nothing beside it."""

MAX_MATRIX = 6
"""The most children that get a matrix here: the oracles look at all rings through them."""


def kinds_of(size: int) -> list[str]:
    """What so many children can be; ``uneven`` is a switch with a port for each child."""
    found = [*ALIKE, "uneven"]
    if 2 <= size <= MAX_MATRIX:
        found.append(LinkKind.LINKS)
    if shapes(size):
        found.append(LinkKind.TORUS)
    return found


def shapes(size: int, most: int = 3) -> list[tuple[int, ...]]:
    """The shapes of tori with so many children, in two dimensions up to ``most``."""
    found: list[tuple[int, ...]] = []
    for first in range(2, size // 2 + 1):
        if size % first == 0:
            found.append((first, size // first))
            if most > 2:
                found += [(first, *rest) for rest in shapes(size // first, most - 1)]
    return found


def links(rng: random.Random, size: int) -> tuple[tuple[int, ...], ...]:
    """A connected matrix: each child is linked to one before it, and some to others."""
    rows = [[0] * size for _ in range(size)]
    pairs = [(child, rng.randrange(child)) for child in range(1, size)]
    pairs += [(a, b) for a in range(size) for b in range(a) if rng.random() < 0.5]
    for a, b in pairs:
        rows[a][b] = rows[b][a] = rng.choice([1, 1, 2, 3])
    return tuple(map(tuple, rows))


def some_level(
    rng: random.Random, name: str, size: int, port: float, latency: float, kind: str
) -> Level:
    """A level of a kind that ``kinds_of`` has."""
    if kind == "uneven":
        ports = (port, *(port * rng.choice([1, 1, 0.5, 0.3]) for _ in range(size - 1)))
        mixed = tuple(rng.sample(ports, size))
        return Level(name, size, port, latency, ports=mixed)
    shape = rng.choice(shapes(size)) if kind == LinkKind.TORUS else None
    matrix = links(rng, size) if kind == LinkKind.LINKS else None
    return Level(name, size, port, latency, LinkKind(kind), shape=shape, links=matrix)
