"""Switches replaced by links between the devices at their ports, without a loss for trees.

A link u -> w into a switch and a link w -> t out of it become a link u -> t. It can be done for all
links of a switch, as each node has links of the same capacity in and out (Bang-Jensen, Frank and
Jackson 1995; ForestColl, arXiv 2402.06787, section 5.3).
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from collir.synthesis.trees.bound import carries, least_received
from collir.synthesis.trees.graph import CapacityGraph, Link


@dataclass(frozen=True)
class DirectLinks:
    """Links between devices, with their capacities in trees.

    Attributes:
        through: for each link, the capacity by way of each switch, and of -1: without one.
    """

    capacities: dict[Link, int]
    through: dict[Link, dict[int, int]]


def without_switches(
    graph: CapacityGraph, capacities: Mapping[Link, int], demands: Mapping[int, int]
) -> DirectLinks:
    """Return links between devices that carry as many trees.

    Args:
        capacities: of the links of the graph, in trees.
        demands: the trees of each root.
    """
    left = defaultdict[Link, int](int, capacities)
    through: dict[Link, dict[int, int]] = {
        link: {-1: c} for link, c in capacities.items() if max(link) < graph.ranks
    }
    for switch, below in zip(graph.switches, graph.below, strict=True):
        # Links for all trees of a root come first, so that these stay together. Trees of a single
        # root should part: they are less deep.
        together = math.gcd(*demands.values()) if len(demands) > 1 else 1
        for unit in dict.fromkeys((together, 1)):
            trees = left.copy()
            taken = _evenly(graph, switch, below, trees, unit)
            if carries(graph.nodes, graph.ranks, trees, demands):
                break
        else:
            trees = left.copy()
            taken = _exactly(graph, switch, below, trees, demands)
        left = trees
        for link, count in taken.items():
            if count:
                through.setdefault(link, {})[switch] = count
    direct = {link: c for link, c in left.items() if c and max(link) < graph.ranks}
    return DirectLinks(direct, through)


def _evenly(
    graph: CapacityGraph, switch: int, below: int, left: dict[Link, int], unit: int
) -> dict[Link, int]:
    """Replace a switch by links that are as even as possible; return them.

    All pairs of devices get as much, or the first ones a unit of trees where that is less.
    """
    taken: dict[Link, int] = {}
    devices = _devices(graph, switch)
    pairs: list[Link] = list(_pairs(devices, below))
    while pairs := [pair for pair in pairs if left[pair[0], switch] and left[switch, pair[1]]]:
        equal = min(_equal_part(switch, pairs, left, end) for end in (0, 1))
        part = max(unit, equal // unit * unit)
        for a, b in pairs:
            count = min(part, left[a, switch], left[switch, b])
            taken[a, b] = taken.get((a, b), 0) + count
            _split(left, a, switch, b, count)
    _drop(switch, left)
    return taken


def _equal_part(switch: int, pairs: list[Link], left: dict[Link, int], end: int) -> int:
    """Return the trees that each pair can take of the links of the device at one end."""
    count: dict[int, int] = {}
    for pair in pairs:
        count[pair[end]] = count.get(pair[end], 0) + 1
    links = {node: (switch, node) if end else (node, switch) for node in count}
    return min(left[links[node]] // n for node, n in count.items())


def _pairs(devices: list[int], below: int) -> Iterator[Link]:
    """Yield the pairs of different devices below a switch: the same place below the next port,
    the port after that, and so on, then other places; those below one port come last."""
    count, blocks = len(devices), len(devices) // below
    for place in range(below):
        for port in range(1, blocks):
            for at in range(count):
                block, own = divmod(at, below)
                to = (block + port) % blocks * below + (own + place) % below
                yield devices[at], devices[to]
    for place in range(1, below):
        for at in range(count):
            block, own = divmod(at, below)
            yield devices[at], devices[block * below + (own + place) % below]


def _exactly(
    graph: CapacityGraph, switch: int, below: int, left: dict[Link, int], demands: Mapping[int, int]
) -> dict[Link, int]:
    """Replace a switch by links with a check of each, and return them.

    A first round gives each pair its even part at most, a second one all that is left.
    """
    taken: dict[Link, int] = {}
    wanted = sum(demands.values())
    devices = _devices(graph, switch)
    pairs: list[Link] = list(_pairs(devices, below))

    def take(pairs: list[Link], limit: int) -> None:
        """Replace the ways of pairs, all at once if nothing is lost, else one by one."""
        counts = [_split_most(left, a, switch, b, -(-left[switch, b] // limit)) for a, b in pairs]
        lost = wanted - least_received(graph.nodes, graph.ranks, left, demands)
        if lost and len(pairs) > 1:
            for (a, b), count in zip(pairs, counts, strict=True):
                _split(left, a, switch, b, -count)
            middle = len(pairs) // 2
            take(pairs[:middle], limit)
            take(pairs[middle:], limit)
            return
        for (a, b), count in zip(pairs, counts, strict=True):
            # A cut that lost capacity lost all of what is missing, so that much is given back.
            _split(left, a, switch, b, -lost)
            if a != b:
                taken[a, b] = taken.get((a, b), 0) + count - lost

    take(pairs, len(devices) - 1)
    take([*pairs, *((a, a) for a in devices)], 1)
    _drop(switch, left)
    return taken


def _split_most(left: dict[Link, int], a: int, switch: int, b: int, most: int) -> int:
    """Move capacity from the way through a switch to a link, as much as there is; return it."""
    count = min(most, left[a, switch], left[switch, b])
    _split(left, a, switch, b, count)
    return count


def _split(left: dict[Link, int], a: int, switch: int, b: int, count: int) -> None:
    """Move capacity from the way through a switch to a link; a way back is given up."""
    left[a, switch] -= count
    left[switch, b] -= count
    if a != b:
        left[a, b] = left.get((a, b), 0) + count


def _devices(graph: CapacityGraph, switch: int) -> list[int]:
    """Return the devices at the ports of a switch."""
    return [node for node in range(graph.ranks) if (node, switch) in graph.links]


def _drop(switch: int, left: dict[Link, int]) -> None:
    """Remove the links of a switch."""
    for link in [link for link in left if switch in link]:
        del left[link]
