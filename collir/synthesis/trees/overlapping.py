"""An all_reduce whose two passes run at the same time, on parts of each link.

Chunks go up a tree against its links and down along them. So the loads of the two directions of a
link may differ, as long as both together are at most its bandwidth. A slow port should belong to a
leaf, which receives over it on the way down, and sends on the way up. A linear program (similar to
one for all_reduce in ForestColl, arXiv 2402.06787) divides each link between the two ways, and the
buffer among the roots.
"""

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from collir.synthesis.trees.bound import TreeScale, carries, violated_cuts
from collir.synthesis.trees.graph import CapacityGraph, Link
from collir.synthesis.trees.reducing import DENOMINATORS, MOST_ROUNDS

MOST_LINKS = 512
"""The most links of a graph that the linear program is solved for."""


class _Shares(NamedTuple):
    """The rates of the trees of each root, and their shares of each link, in units."""

    rates: list[float]
    links: dict[Link, float]


def overlapped_scale(graph: CapacityGraph) -> TreeScale | None:
    """Return trees of the largest bandwidth if up and down run at once; None if no fractions of
    small denominators are found, or links are many."""
    if len(graph.links) > MOST_LINKS or (shares := _shares(graph)) is None:
        return None
    total = sum(shares.rates)
    for parts in DENOMINATORS:
        demands = {r: n for r, rate in enumerate(shares.rates) if (n := round(rate * parts))}
        capacities = {link: n for link, c in shares.links.items() if (n := round(c * parts))}
        if (
            sum(demands.values()) >= parts * total * (1 - 1e-6)
            and _fits(graph, capacities, parts)
            and carries(graph.nodes, graph.ranks, capacities, demands)
        ):
            return TreeScale(demands, graph.unit / parts, capacities)
    return None


def _fits(graph: CapacityGraph, capacities: dict[Link, int], parts: int) -> bool:
    """Return whether both directions of each link fit in it, and switches pass everything on."""
    into = dict.fromkeys(graph.switches, 0)
    for (a, b), count in capacities.items():
        if count + capacities.get((b, a), 0) > parts * graph.capacities[a, b]:
            return False
        for switch, more in ((b, count), (a, -count)):
            if switch in into:
                into[switch] += more
    return not any(into.values())


def _shares(graph: CapacityGraph) -> _Shares | None:
    """Return the solution of the linear program in floats; None if it takes too many rounds."""
    linprog: Any = import_module("scipy.optimize").linprog  # imported here as it is slow
    n, links = graph.ranks, [*graph.capacities]
    at = {link: n + number for number, link in enumerate(links)}
    width = n + len(links)
    pairs = [link for link in links if link[0] < link[1]]
    rows = np.zeros((len(pairs), width))
    for row, (a, b) in zip(rows, pairs, strict=True):
        row[at[a, b]] = row[at[b, a]] = 1
    most = [float(graph.capacities[pair]) for pair in pairs]
    kept = np.zeros((len(graph.below), width))
    for row, switch in zip(kept, graph.switches, strict=True):
        for a, b in links:
            if switch in (a, b):
                row[at[a, b]] = 1 if b == switch else -1
    goal = np.where(np.arange(width) < n, -1.0, 0.0)
    cuts = [{rank} for rank in range(n)]
    cuts += [{*range(graph.nodes)} - {rank} for rank in range(n)]
    for _ in range(MOST_ROUNDS):
        out = np.zeros((len(cuts), width))
        for row, cut in zip(out, cuts, strict=True):
            row[[rank for rank in cut if rank < n]] = 1
            row[[at[a, b] for a, b in links if a in cut and b not in cut]] = -1
        solved = linprog(
            goal, np.vstack((rows, out)), [*most, *[0.0] * len(cuts)],
            kept if len(kept) else None, [0.0] * len(kept) if len(kept) else None,
        )  # fmt: skip
        values = [float(x) for x in solved.x]
        shares = _Shares(values[:n], {link: values[at[link]] for link in links})
        violated = violated_cuts(graph.nodes, n, shares.links, dict(enumerate(shares.rates)))
        more = [cut for cut in violated if cut not in cuts]
        if not more:
            return shares
        cuts += more
    return None
