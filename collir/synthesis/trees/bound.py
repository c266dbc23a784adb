"""The bandwidth that trees from some roots can reach, exactly, and capacities in whole trees.

The data of the roots in a set S of nodes leave it over the links out of S. So a root sends to all
others at the rate min (bandwidth out of S) / |roots in S| at most, over all S that lack a device
(ForestColl, arXiv 2402.06787, section 4). Trees reach it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from collir.synthesis.trees.flows import FlowNetwork
from collir.synthesis.trees.graph import CapacityGraph, Link


@dataclass(frozen=True)
class TreeScale:
    """The numbers of trees that begin at each root, and that each link can carry.

    Attributes:
        demands: the trees of each root.
        bandwidth: of a tree, in bytes/second.
        capacities: of each link, in trees.
    """

    demands: dict[int, int]
    bandwidth: Fraction
    capacities: dict[Link, int]

    @property
    def total(self) -> Fraction:
        """The bandwidth of all trees together, in bytes/second."""
        return sum(self.demands.values()) * self.bandwidth


def root_bandwidth(graph: CapacityGraph, roots: Sequence[int]) -> Fraction:
    """Return the rate in bytes/second at which each root can send to all devices at the same time.

    Some set of nodes is the bottleneck. A source sends x to each root; if less than x |roots|
    reach a device, the minimum cut is a tighter set, whose ratio is the next x (Newton's method;
    Dinkelbach 1967). A device that receives enough for some x does so for smaller x.
    """
    rate = Fraction(min(_out_of(graph, {root}) for root in roots))
    for sink in range(graph.ranks):
        while True:
            network, source = _with_source(
                graph.nodes,
                {link: c * rate.denominator for link, c in graph.capacities.items()},
                dict.fromkeys(roots, rate.numerator),
            )
            wanted = rate.numerator * len(roots)
            if network.flow(source, sink, wanted) == wanted:
                break
            inside = network.source_side(source)
            rate = Fraction(_out_of(graph, inside), len(inside.intersection(roots)))
    return rate * graph.unit


def exact_scale(graph: CapacityGraph, rates: Mapping[int, Fraction]) -> TreeScale:
    """Return the fewest trees whose sum is exactly the rate of each root.

    All bandwidths are multiples of that of a tree: it is their greatest common divisor.

    Args:
        rates: the bytes/second of the trees of each root.
    """
    all_rates = [*rates.values(), *(x.bandwidth for x in graph.links.values())]
    whole = math.lcm(*(x.denominator for x in all_rates))
    tree = Fraction(math.gcd(*(int(x * whole) for x in all_rates)), whole)
    capacities = {link: int(x.bandwidth / tree) for link, x in graph.links.items()}
    return TreeScale({root: int(x / tree) for root, x in rates.items()}, tree, capacities)


def fixed_scale(graph: CapacityGraph, demands: Mapping[int, int]) -> TreeScale:
    """Return the fastest trees, where each root has a given number of them.

    A link of bandwidth b carries floor(b / y) trees of bandwidth y, which only grows as y falls.
    The largest y that suffices divides some b; it is found by bisection.

    Args:
        demands: the trees of each root.
    """
    links = {link: x.bandwidth for link, x in graph.links.items()}
    distinct = set(links.values())

    def suffices(tree: Fraction) -> bool:
        counts = {link: int(b / tree) for link, b in links.items()}
        return carries(graph.nodes, graph.ranks, counts, demands)

    high = min(_out_of(graph, {root}) * graph.unit / count for root, count in demands.items())
    low = high / 2
    while not suffices(low):
        low /= 2
    low = _fastest_alike(distinct, low)
    while low < high:
        middle = (low + high) / 2
        if suffices(middle):
            low = _fastest_alike(distinct, middle)
        else:
            # The numbers of trees do not change until one more fits on some link.
            high = max(b / (int(b / middle) + 1) for b in distinct)
    capacities = {link: int(b / low) for link, b in links.items() if b >= low}
    return TreeScale(dict(demands), low, capacities)


def _fastest_alike(bandwidths: set[Fraction], tree: Fraction) -> Fraction:
    """Return the largest bandwidth of a tree at which as many trees cross each link."""
    return min(b / count for b in bandwidths if (count := int(b / tree)))


def carries(
    nodes: int, ranks: int, capacities: Mapping[Link, int], demands: Mapping[int, int]
) -> bool:
    """Return whether every device can receive the trees of all roots: by Edmonds' theorem, whether
    trees exist.

    Args:
        demands: the trees of each root.
    """
    network, source = _with_source(nodes, capacities, demands)
    wanted = sum(demands.values())
    return all(network.flow(source, sink, wanted) == wanted for sink in range(ranks))


def least_received(
    nodes: int, ranks: int, capacities: Mapping[Link, int], demands: Mapping[int, int]
) -> int:
    """Return the trees that the device with the fewest can receive."""
    network, source = _with_source(nodes, capacities, demands)
    least = sum(demands.values())
    for sink in range(ranks):
        least = min(least, network.flow(source, sink, sum(demands.values())))
    return least


def violated_cuts(
    nodes: int, ranks: int, capacities: Mapping[Link, float], rates: Mapping[int, float]
) -> list[set[int]]:
    """Return sets of nodes whose outgoing links carry less than their roots send to other nodes; a
    part in a million too much is ignored.

    Args:
        rates: of the trees of each root, in the unit of the capacities.
    """
    parts = 10**9
    whole = {link: round(c * parts) for link, c in capacities.items()}
    demands = {root: round(rate * parts) for root, rate in rates.items()}
    network, source = _with_source(nodes, whole, demands)
    wanted = sum(demands.values())
    cuts: list[set[int]] = []
    for sink in range(ranks):
        if wanted - network.flow(source, sink, wanted) > wanted // 10**6:
            cut = network.source_side(source) - {source}
            if cut not in cuts:
                cuts.append(cut)
    return cuts


def _with_source(
    nodes: int, capacities: Mapping[Link, int], demands: Mapping[int, int]
) -> tuple[FlowNetwork, int]:
    """Return a network with a source that feeds each root its demand, and the source."""
    network = FlowNetwork(nodes + 1, ((a, b, c) for (a, b), c in capacities.items() if c))
    for root, demand in demands.items():
        network.add(nodes, root, demand)
    return network, nodes


def _out_of(graph: CapacityGraph, inside: set[int]) -> int:
    """Return the capacity out of a set of nodes, in units."""
    return sum(c for (a, b), c in graph.capacities.items() if a in inside and b not in inside)
