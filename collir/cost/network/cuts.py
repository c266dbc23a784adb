"""Lower bounds for bandwidth by cuts through an explicit network, whose links may differ.

All data that must leave a set of nodes goes over the links out of it (ForestColl, arXiv
2402.06787). Compute nodes hold data and reduce; all other nodes are switches, which pass messages
on. Bandwidths are the exact fractions of their floats, so that no cut is missed by rounding.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import cast

from collir.cost.network.group import CostError
from collir.ir.lazy import networkx

Node = Hashable


@dataclass(frozen=True)
class Network:
    """Directed links with their bandwidth in bytes/second.

    Raises:
        CostError: a bandwidth that is negative or not finite.
    """

    links: Mapping[tuple[Node, Node], float]

    def __post_init__(self) -> None:
        for (a, b), bandwidth in self.links.items():
            if not (bandwidth >= 0 and math.isfinite(bandwidth)):
                raise CostError(f"the link {a} -> {b} has no bandwidth of {bandwidth:g}")

    @cached_property
    def reversed(self) -> "Network":
        """The network with every link reversed."""
        return Network({(b, a): bandwidth for (a, b), bandwidth in self.links.items()})

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The ends of all links, in the order of the links."""
        return tuple(dict.fromkeys(node for link in self.links for node in link))

    @cached_property
    def unit(self) -> Fraction:
        """A bandwidth of which all bandwidths are multiples, in bytes/second."""
        denominators = (Fraction(bandwidth).denominator for bandwidth in self.links.values())
        return Fraction(1, math.lcm(*denominators))

    @cached_property
    def capacities(self) -> dict[tuple[Node, Node], int]:
        """The bandwidth of every link in units, without links of bandwidth 0."""
        links = ((link, Fraction(bandwidth)) for link, bandwidth in self.links.items())
        return {(a, b): int(c / self.unit) for (a, b), c in links if c and a != b}

    def out_of(self, part: Collection[Node]) -> int:
        """Return the units of bandwidth out of a set of nodes."""
        return sum(c for (a, b), c in self.capacities.items() if a in part and b not in part)


# ---------------------------------------------------------------------------------------------
# The bounds
# ---------------------------------------------------------------------------------------------


def all_gather_bound(network: Network, compute: Iterable[Node], size: float) -> float:
    """Return the bound in seconds of an all_gather of ``size`` bytes in all; inf if disconnected.

    The bound is exact: it is (M/N) max |compute nodes in S| / (bandwidth out of S) over all sets S
    that lack some compute node (M bytes, N compute nodes), and schedules reach it (ForestColl).

    To find the set, add a source with a link of bandwidth x to every compute node. The flow from it
    to a node v is N x, unless less than x |S| leaves some S without v. The minimum cut is such an
    S, and its ratio is the next, smaller x (Newton's method; Dinkelbach 1967). For one v, |S| falls
    with every step, and x never grows again for the others, so about N flows suffice.
    """
    nodes = list(dict.fromkeys(compute))
    return _gathered(network, nodes, nodes, size)


def gather_bound(network: Network, compute: Iterable[Node], root: Node, size: float) -> float:
    """Return the bound in seconds of a gather of ``size`` bytes in all to one compute node.

    It is the bound of an all_gather with only those sets that do not contain the root.
    """
    return _gathered(network, list(dict.fromkeys(compute)), [root], size)


def _gathered(network: Network, nodes: Sequence[Node], sinks: Sequence[Node], size: float) -> float:
    count = len(nodes)
    if count < 2:
        return 0.0
    source = _Terminal()
    candidates = [node for node in nodes if sinks != [node]]
    ratio = min(Fraction(network.out_of({node})) for node in candidates)
    for sink in sinks:
        while ratio:
            capacities = {link: c * ratio.denominator for link, c in network.capacities.items()}
            capacities |= {(source, node): ratio.numerator for node in nodes}
            flow, side = _min_cut(capacities, source, sink)
            if flow >= ratio.numerator * count:
                break
            inside = side - {source}
            ratio = Fraction(network.out_of(inside), len(inside.intersection(nodes)))
    return _seconds(size, ratio * network.unit * count)


def all_reduce_bound(network: Network, compute: Iterable[Node], size: float) -> float:
    """Return a bound in seconds of an all_reduce of ``size`` bytes per rank; inf if disconnected.

    It is the larger of two bounds (M bytes, without network coding):

    - M / min(B_out, B_in) over all sets with some but not all compute nodes, as data must get
      into and out of the set. This is computed exactly, as the smallest flow from and to one node.
    - 2 (m-1) M / B over all choices of m disjoint parts that together hold all compute nodes, where
      B is the bandwidth out of all parts together, or into them. Per element, m parts need 2 (m-1)
      one-way messages to all know the sum (gossiping), provided that nothing outside the parts
      reduces or copies. So it is no bound if devices outside the group may help. On trees the
      maximum is exact. On other networks only some choices are tried: the bound is valid but may
      not be the best.
    """
    nodes = list(dict.fromkeys(compute))
    if len(nodes) < 2:
        return 0.0
    cut = _smallest_cut(network, nodes)
    if not cut:
        return math.inf
    parts = max(_best_parts(direction, nodes) for direction in (network, network.reversed))
    return _seconds(size, network.unit * min(Fraction(cut), 1 / (2 * parts)))


def broadcast_bound(network: Network, compute: Iterable[Node], size: float) -> float:
    """Return a bound in seconds of a broadcast or a reduce of ``size`` bytes, with any root; inf if
    disconnected.

    It is the first bound of ``all_reduce_bound``, and valid if links are equal in both directions.
    """
    nodes = list(dict.fromkeys(compute))
    return _seconds(size, network.unit * _smallest_cut(network, nodes)) if len(nodes) > 1 else 0.0


def _smallest_cut(network: Network, nodes: Sequence[Node]) -> int:
    """Return the units of the smallest cut between any two nodes, in either direction."""
    first, *rest = nodes
    return min(
        _min_cut(network.capacities, *ends)[0]
        for node in rest
        for ends in ((first, node), (node, first))
    )


def _seconds(size: float, bandwidth: Fraction) -> float:
    return float(Fraction(size) / bandwidth) if bandwidth else math.inf


# ---------------------------------------------------------------------------------------------
# Minimum cuts
# ---------------------------------------------------------------------------------------------


class _Terminal:
    """A node outside every network."""


def _min_cut(
    capacities: Mapping[tuple[Node, Node], int], source: Node, sink: Node
) -> tuple[int, set[Node]]:
    """Return the units of a minimum cut, and the largest set of nodes on the side of the source."""
    nx = networkx()
    graph = nx.DiGraph()
    graph.add_nodes_from((source, sink))
    graph.add_edges_from((a, b, {"capacity": c}) for (a, b), c in capacities.items())
    flow, (side, _) = nx.minimum_cut(graph, source, sink)
    return cast(int, flow), cast("set[Node]", set(side))


# ---------------------------------------------------------------------------------------------
# Parts
# ---------------------------------------------------------------------------------------------


def _best_parts(network: Network, compute: Sequence[Node]) -> Fraction:
    """Return the largest (m-1) / units out of m disjoint parts that hold all compute nodes.

    On a tree it is the maximum over all choices of parts, elsewhere over some. The network must be
    connected.
    """
    order = _tree_order(network)
    if order is None:
        return max(_ratio(network, parts) for parts in _some_parts(network, compute))
    ratio = _ratio(network, [{node} for node in compute])
    while True:
        count, out = _best_on_tree(network, order, frozenset(compute), ratio)
        if count - 1 <= ratio * out:
            return ratio
        ratio = Fraction(count - 1, out)


def _ratio(network: Network, parts: Sequence[Collection[Node]]) -> Fraction:
    return Fraction(len(parts) - 1, sum(network.out_of(part) for part in parts))


def _tree_order(network: Network) -> list[tuple[Node, Node | None]] | None:
    """Return every node with its parent, parents first; None if the links form no tree."""
    adjacent: defaultdict[Node, dict[Node, None]] = defaultdict(dict)
    for a, b in network.capacities:
        adjacent[a][b] = adjacent[b][a] = None
    if sum(map(len, adjacent.values())) != 2 * (len(adjacent) - 1):
        return None
    first = next(iter(adjacent))
    order: list[tuple[Node, Node | None]] = [(first, None)]
    seen = {first}
    for node, _ in order:  # the loop appends to the order
        new = [neighbour for neighbour in adjacent[node] if neighbour not in seen]
        seen.update(new)
        order += [(neighbour, node) for neighbour in new]
    return order if len(order) == len(adjacent) else None  # else a tree and a ring, apart


_Choice = tuple[int, int]
"""The number of complete parts, and the units out of all of them so far."""


def _best_on_tree(
    network: Network,
    order: Sequence[tuple[Node, Node | None]],
    compute: Collection[Node],
    ratio: Fraction,
) -> _Choice:
    """Return the parts of a tree with the largest (number - ratio * units out), bottom up.

    It suffices to consider connected parts that contain a compute node. ``free``, ``open`` and
    ``held`` are the best choices below a node that is in no part, in a part without a compute node
    at or below it yet, and in a part with one.
    """

    def gain(choice: _Choice | None) -> Fraction | float:
        return -math.inf if choice is None else choice[0] - ratio * choice[1]

    def best(*choices: _Choice | None) -> _Choice | None:
        return max(choices, key=gain)

    def plus(choice: _Choice | None, other: _Choice | None) -> _Choice | None:
        if choice is None or other is None:
            return None
        return choice[0] + other[0], choice[1] + other[1]

    choices_at: dict[Node, tuple[_Choice | None, _Choice | None, _Choice | None]] = {}
    start: dict[bool, tuple[_Choice | None, _Choice | None, _Choice | None]] = {
        True: (None, None, (0, 0)),
        False: ((0, 0), (0, 0), None),
    }
    for node, parent in reversed(order):
        free, open_, held = choices_at.pop(node, start[node in compute])
        if parent is None:
            choice = best(free, plus(held, (1, 0)))
            assert choice is not None
            return choice
        up = network.capacities.get((node, parent), 0)
        down = network.capacities.get((parent, node), 0)
        closed = plus(held, (1, up))
        apart = best(plus(free, (0, down)), plus(closed, (0, down)))
        was_free, was_open, was_held = choices_at.get(parent, start[parent in compute])
        unheld = best(apart, open_)
        choices_at[parent] = (
            plus(was_free, best(free, closed)),
            plus(was_open, unheld),
            best(plus(was_held, best(unheld, held)), plus(was_open, held)),
        )
    raise AssertionError("a tree has a root")


def _some_parts(network: Network, compute: Sequence[Node]) -> Iterator[list[set[Node]]]:
    """Yield some choices of parts.

    For every threshold, compute nodes share a part if no cut below the threshold separates them
    (by a Gomory-Hu tree of both directions together). Switches join the part that they give the
    fewest links out of it.
    """
    nx = networkx()
    graph = nx.Graph()
    for (a, b), c in network.capacities.items():
        before = graph.get_edge_data(a, b, {"capacity": 0})["capacity"]
        graph.add_edge(a, b, capacity=before + c)
    tree = nx.gomory_hu_tree(graph)
    edges = cast("list[tuple[Node, Node, int]]", list(tree.edges(data="weight")))
    group: dict[Node, set[Node]] = {node: {node} for node in network.nodes}
    yield [{node} for node in compute]
    yield _isolated(network, [{node} for node in compute])
    edges.sort(key=lambda edge: -edge[2])
    for index, (a, b, weight) in enumerate(edges):
        joined = group[a] | group[b]
        group |= dict.fromkeys(joined, joined)
        if index + 1 == len(edges) or edges[index + 1][2] < weight:
            parts = {id(group[node]): group[node].intersection(compute) for node in compute}
            if len(parts) > 1:
                yield _isolated(network, list(parts.values()))


def _isolated(network: Network, groups: Sequence[set[Node]]) -> list[set[Node]]:
    """Return groups of compute nodes, each with the switches inside the smallest cut around it.

    A switch inside the cuts of several groups joins none.
    """
    source, sink = _Terminal(), _Terminal()
    unlimited = sum(network.capacities.values()) + 1
    parts: list[set[Node]] = []
    for group in groups:
        # The reversed network: the largest set on the other side leaves the smallest on this side.
        capacities = dict(network.reversed.capacities)
        for node_set in groups:
            for node in node_set:
                capacities[(node, sink) if node_set is group else (source, node)] = unlimited
        _, side = _min_cut(capacities, source, sink)
        parts.append({*network.nodes} - side)
    times = Counter(node for part in parts for node in part)
    return [
        {node for node in part if times[node] == 1} | group
        for part, group in zip(parts, groups, strict=True)
    ]
