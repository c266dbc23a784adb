"""The cheapest edges of a graph that separate two of its nodes (Edmonds and Karp)."""

from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Mapping
from itertools import pairwise
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)


def source_side(edges: Iterable[tuple[Node, Node, float]], source: Node, sink: Node) -> set[Node]:
    """Return the smallest set of nodes around the source that a cheapest cut separates.

    Args:
        edges: two nodes each, and what it costs to cut between them, in this direction.
    """
    left: defaultdict[Node, dict[Node, float]] = defaultdict(dict)
    for a, b, cost in edges:
        left[a][b] = left[a].get(b, 0) + cost
        left[b].setdefault(a, 0)
    while True:
        came_from = _reached(left, source)
        if sink not in came_from:
            return set(came_from)
        path = [sink]
        while path[-1] != source:
            path.append(came_from[path[-1]])
        pairs = [(a, b) for b, a in pairwise(path)]
        flow = min(left[a][b] for a, b in pairs)
        for a, b in pairs:
            left[a][b] -= flow
            left[b][a] += flow


def _reached(left: Mapping[Node, Mapping[Node, float]], source: Node) -> dict[Node, Node]:
    """Return the nodes that a flow reaches from the source, each with the one before it."""
    came_from = {source: source}
    queue = deque([source])
    while queue:
        node = queue.popleft()
        for other, cost in left[node].items():
            if cost > 0 and other not in came_from:
                came_from[other] = node
                queue.append(other)
    return came_from


__all__ = ["source_side"]
