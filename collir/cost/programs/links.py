"""The time for which each link between the children of a level is busy, if children have links."""

from collections.abc import Iterator

import numpy as np

from collir.cost.model import step_estimate
from collir.cost.network.wires import Array
from collir.cost.programs.simulation import Simulation
from collir.machine import Level, LinkKind

LinkSeconds = dict[tuple[int, int], float]
"""The seconds that each link is busy, by the two children that it connects, the lower first."""


def link_seconds(simulation: Simulation, number: int) -> LinkSeconds:
    """Return the seconds for which the links of a level are busy, each in its busier direction.

    Links that nothing uses are left out. There are none where children share a switch or a bus, or
    where the cost model counts no messages (``nccl`` and ``p2`` count bytes of ports alone).

    Args:
        number: the level, 0 for the outermost.
    """
    level = simulation.mesh.machine.levels[number]
    seconds: LinkSeconds = {}
    if not level.wires or level.parents:
        return seconds
    total: Array | None = None
    for step, times in simulation.all_collectives():
        for part in step_estimate(step.collective, simulation.model)[1].rounds:
            links = part.loads[number].links
            if links is None:
                continue  # nothing is sent on this level
            sent = times * part.times * part.size * _each(level, links)
            total = sent if total is None else total + sent
    if total is None:
        return seconds
    for a, b, size in _pairs(level, total):
        pair = min(a, b), max(a, b)
        seconds[pair] = max(seconds.get(pair, 0.0), size * level.wires / level.port)
    return seconds


def _each(level: Level, loads: Array) -> Array:
    """Return the load of each link; it may be one number for all of them, or for each dimension."""
    rings = level.kind in (LinkKind.RING, LinkKind.TORUS)
    dimensions = len(level.shape or (1,))
    shape = (dimensions, 2, level.size) if rings else (level.size, level.size)
    if loads.size == np.prod(shape):
        return loads.reshape(shape)
    if loads.size not in (1, dimensions):
        return np.zeros(shape)  # of a group that has other links, for fewer children
    if rings:
        return np.broadcast_to(loads.reshape(-1, 1, 1), shape)
    present = 1 - np.eye(level.size) if level.links is None else np.array(level.links) > 0
    return loads.ravel()[0] * present


def _pairs(level: Level, loads: Array) -> Iterator[tuple[int, int, float]]:
    """Yield the links that are used: from a child, to a child, with their load."""
    if level.kind in (LinkKind.RING, LinkKind.TORUS):
        shape = level.shape or (level.size,)
        children = np.arange(level.size).reshape(shape)
        for dimension, directions in enumerate(loads):
            after = np.roll(children, -1, axis=dimension).ravel()
            for row in directions:
                yield from ((a, int(after[a]), float(x)) for a, x in enumerate(row) if x)
        return
    sources, targets = np.nonzero(loads)
    for a, b in zip(sources.tolist(), targets.tolist(), strict=True):
        yield a, b, float(loads[a, b])
