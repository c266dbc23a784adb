"""Lower bounds by cuts on an explicit network, which may be uneven: bandwidth only.

Whatever must leave a set of nodes goes over the links out of it (ForestColl, arXiv 2402.06787).
The compute nodes hold data and reduce; all other nodes are switches, which pass messages on.
Bandwidths are taken as the exact fractions that floats are, so a cut is never missed by rounding.
"""

import importlib
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, cast

from collir.cost.network.group import CostError
from collir.cost.network.wires import has_wires, neighbours
from collir.machine import Level, LinkKind, Machine

MAX_GRAPH = 512
"""The most devices of a machine whose graph is built."""

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

    @staticmethod
    def both_ways(links: Mapping[tuple[Node, Node], float]) -> "Network":
        """A network of full-duplex links, each given once."""
        return Network({**links, **{(b, a): bandwidth for (a, b), bandwidth in links.items()}})

    @cached_property
    def reversed(self) -> "Network":
        """The same with every link the other way round."""
        return Network({(b, a): bandwidth for (a, b), bandwidth in self.links.items()})

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """All ends of links, in the order in which they are named."""
        return tuple(dict.fromkeys(node for link in self.links for node in link))

    @cached_property
    def unit(self) -> Fraction:
        """A bandwidth of which all others are multiples."""
        each = (Fraction(bandwidth).denominator for bandwidth in self.links.values())
        return Fraction(1, math.lcm(*each))

    @cached_property
    def capacities(self) -> dict[tuple[Node, Node], int]:
        """The bandwidth of every link in units; links of none are left out."""
        each = ((link, Fraction(bandwidth)) for link, bandwidth in self.links.items())
        return {(a, b): int(c / self.unit) for (a, b), c in each if c and a != b}

    def out_of(self, part: Collection[Node]) -> int:
        """The units out of a set of nodes."""
        return sum(c for (a, b), c in self.capacities.items() if a in part and b not in part)


# ---------------------------------------------------------------------------------------------
# The bounds
# ---------------------------------------------------------------------------------------------


def all_gather_bound(network: Network, compute: Iterable[Node], size: float) -> float:
    """The seconds below which no all_gather of ``size`` bytes in all is; inf if it is cut off.

    It is exact: (M/N) max |S's compute nodes| / outgoing bandwidth over all sets S that do not hold
    all compute nodes (M bytes, N compute nodes), and schedules that reach it exist (ForestColl).

    For a ratio x, a source with a link of bandwidth x to every compute node can fill N x into a
    node v unless some S without v has less than x |S| going out; the minimum cut is such an S, and
    its own ratio the next, smaller x (Newton's method; Dinkelbach 1967). |S| falls with every step
    for one v, and x never grows again for the others, so this ends after few more than N flows.
    """
    nodes = list(dict.fromkeys(compute))
    return _gathered(network, nodes, nodes, size)


def gather_bound(network: Network, compute: Iterable[Node], root: Node, size: float) -> float:
    """The seconds below which no gather of ``size`` bytes in all to one of the compute nodes is, by
    sets that do not hold it: of an all_gather, what counts for this node."""
    return _gathered(network, list(dict.fromkeys(compute)), [root], size)


def _gathered(network: Network, nodes: Sequence[Node], sinks: Sequence[Node], size: float) -> float:
    count = len(nodes)
    if count < 2:
        return 0.0
    source = _Terminal()
    apart = [node for node in nodes if sinks != [node]]
    ratio = min(Fraction(network.out_of({node})) for node in apart)
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


def reduce_scatter_bound(network: Network, compute: Iterable[Node], size: float) -> float:
    """The seconds below which no reduce_scatter of ``size`` bytes per rank is: an all_gather
    backwards, so it is exact too."""
    return all_gather_bound(network.reversed, compute, size)


def all_reduce_bound(network: Network, compute: Iterable[Node], size: float) -> float:
    """Seconds below which no all_reduce of ``size`` bytes per rank is; inf if it is cut off.

    The larger of two bounds (M bytes, none of them coded):

    - M / min(B_out, B_in) for all sets that hold some compute nodes but not all: what is outside
      must get in, and what is inside out. This is exact: the smallest flow from and to one node.
    - 2 (m-1) M / B for disjoint parts that together hold all compute nodes, B the bandwidth
      out of all parts together, or into them: m parts need 2 (m-1) messages per element to know
      the sum of all (gossip by one-way messages), if what is outside of the parts neither reduces
      nor copies: a device beside the group that could is no switch, and this no bound for it. The
      maximum over all choices of parts is exact where the links form a tree. On other networks
      only some choices are tried, so the bound is valid but not always the best.
    """
    nodes = list(dict.fromkeys(compute))
    if len(nodes) < 2:
        return 0.0
    cut = _smallest_cut(network, nodes)
    if not cut:
        return math.inf
    parts = max(_parts(each, nodes) for each in (network, network.reversed))
    return _seconds(size, network.unit * min(Fraction(cut), 1 / (2 * parts)))


def broadcast_bound(network: Network, compute: Iterable[Node], size: float) -> float:
    """Seconds below which ``size`` bytes do not get from one of the compute nodes, whichever it is,
    to all others and from all others to one; inf if one is cut off. It is the first bound of an
    all_reduce; for a broadcast or a reduce it is valid where links are the same in both
    directions."""
    nodes = list(dict.fromkeys(compute))
    return _seconds(size, network.unit * _smallest_cut(network, nodes)) if len(nodes) > 1 else 0.0


def _smallest_cut(network: Network, nodes: Sequence[Node]) -> int:
    """The units of the smallest cut between any two nodes, in either direction."""
    first, *rest = nodes
    return min(
        _min_cut(network.capacities, *ends)[0]
        for other in rest
        for ends in ((first, other), (other, first))
    )


def _seconds(size: float, bandwidth: Fraction) -> float:
    return float(Fraction(size) / bandwidth) if bandwidth else math.inf


# ---------------------------------------------------------------------------------------------
# Minimum cuts
# ---------------------------------------------------------------------------------------------


class _Terminal:
    """A node that no network has."""


def _networkx() -> Any:
    """networkx, loaded when a cut is first asked for; it has no type stubs."""
    return importlib.import_module("networkx")


def _min_cut(
    capacities: Mapping[tuple[Node, Node], int], source: Node, sink: Node
) -> tuple[int, set[Node]]:
    """The units of a minimum cut, and the largest set on the side of the source."""
    nx = _networkx()
    graph = nx.DiGraph()
    graph.add_nodes_from((source, sink))
    graph.add_edges_from((a, b, {"capacity": c}) for (a, b), c in capacities.items())
    flow, (side, _) = nx.minimum_cut(graph, source, sink)
    return cast(int, flow), cast("set[Node]", set(side))


# ---------------------------------------------------------------------------------------------
# Parts
# ---------------------------------------------------------------------------------------------


def _parts(network: Network, compute: Sequence[Node]) -> Fraction:
    """The largest (m-1) / units out of m disjoint parts that hold all compute nodes: of all parts
    on a tree, of some elsewhere. The network must be connected."""
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
    """Every node with its parent, parents first; None if the links form no tree."""
    neighbours: defaultdict[Node, dict[Node, None]] = defaultdict(dict)
    for a, b in network.capacities:
        neighbours[a][b] = neighbours[b][a] = None
    if sum(map(len, neighbours.values())) != 2 * (len(neighbours) - 1):
        return None
    first = next(iter(neighbours))
    order: list[tuple[Node, Node | None]] = [(first, None)]
    seen = {first}
    for node, _ in order:  # grows
        new = [other for other in neighbours[node] if other not in seen]
        seen.update(new)
        order += [(other, node) for other in new]
    return order if len(order) == len(neighbours) else None  # there may be a ring beside


_Choice = tuple[int, int]
"""How many parts are complete, and the units out of all of them so far."""


def _best_on_tree(
    network: Network,
    order: Sequence[tuple[Node, Node | None]],
    compute: Collection[Node],
    ratio: Fraction,
) -> _Choice:
    """The parts of a tree with the largest (number - ratio * units out), bottom up.

    Only connected parts with a compute node need a look: others would not become worse in pieces,
    or left out. ``free``, ``open`` and ``held`` are the best choices below a node that is in no
    part, in one that has no compute node below it yet, and in one that has.
    """

    def gain(choice: _Choice | None) -> Fraction | float:
        return -math.inf if choice is None else choice[0] - ratio * choice[1]

    def best(*choices: _Choice | None) -> _Choice | None:
        return max(choices, key=gain)

    def plus(choice: _Choice | None, other: _Choice | None) -> _Choice | None:
        if choice is None or other is None:
            return None
        return choice[0] + other[0], choice[1] + other[1]

    found: dict[Node, tuple[_Choice | None, _Choice | None, _Choice | None]] = {}
    start: dict[bool, tuple[_Choice | None, _Choice | None, _Choice | None]] = {
        True: (None, None, (0, 0)),
        False: ((0, 0), (0, 0), None),
    }
    for node, parent in reversed(order):
        free, open_, held = found.pop(node, start[node in compute])
        if parent is None:
            whole = best(free, plus(held, (1, 0)))
            assert whole is not None
            return whole
        up = network.capacities.get((node, parent), 0)
        down = network.capacities.get((parent, node), 0)
        closed = plus(held, (1, up))
        apart = best(plus(free, (0, down)), plus(closed, (0, down)))
        was_free, was_open, was_held = found.get(parent, start[parent in compute])
        unheld = best(apart, open_)
        found[parent] = (
            plus(was_free, best(free, closed)),
            plus(was_open, unheld),
            best(plus(was_held, best(unheld, held)), plus(was_open, held)),
        )
    raise AssertionError("a tree has a root")


def _some_parts(network: Network, compute: Sequence[Node]) -> Iterator[list[set[Node]]]:
    """Choices of parts: compute nodes are together that no cut below a threshold separates, for
    every threshold (a Gomory-Hu tree of both directions together); switches are where the links
    out of a part become fewest."""
    nx = _networkx()
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
            each = {id(group[node]): group[node].intersection(compute) for node in compute}
            if len(each) > 1:
                yield _isolated(network, list(each.values()))


def _isolated(network: Network, groups: Sequence[set[Node]]) -> list[set[Node]]:
    """Groups of compute nodes, each with the switches that it takes for the smallest cut around it;
    a switch that more than one takes goes to none."""
    source, sink = _Terminal(), _Terminal()
    everything = sum(network.capacities.values()) + 1
    parts: list[set[Node]] = []
    for group in groups:
        # Backwards, so that the largest set on the other side leaves the smallest on this one.
        capacities = dict(network.reversed.capacities)
        for other in groups:
            for node in other:
                capacities[(node, sink) if other is group else (source, node)] = everything
        _, side = _min_cut(capacities, source, sink)
        parts.append({*network.nodes} - side)
    times = Counter(node for part in parts for node in part)
    return [
        {node for node in part if times[node] == 1} | group
        for part, group in zip(parts, groups, strict=True)
    ]


# ---------------------------------------------------------------------------------------------
# Machines
# ---------------------------------------------------------------------------------------------


def machine_graph(machine: Machine) -> Network:
    """The network of a machine: devices are 0, 1, ..., and a switch with children of level l below
    its k-th parent is (l, k); what is no plain switch is made of nodes (l, k, ...).

    It promises no less than the machine has: the rails of a port are one link, and a taper counts
    only where the level is a switch.

    Raises:
        CostError: more than ``MAX_GRAPH`` devices.
    """
    if machine.devices > MAX_GRAPH:
        raise CostError(
            f"machine @{machine.name} has {machine.devices} devices: cuts are for at most "
            f"{MAX_GRAPH}; the bounds in closed form have no limit"
        )
    links: dict[tuple[Node, Node], float] = {}
    ends: list[_Ends] = [(device, device) for device in range(machine.devices)]
    for level in reversed(machine.levels):
        each = [ends[i : i + level.size] for i in range(0, len(ends), level.size)]
        ends = [_connect(links, level, parent, below) for parent, below in enumerate(each)]
    return Network(links)


_Ends = tuple[Node, Node]
"""Where messages leave what is below a port, and where they enter it."""


def _connect(
    links: dict[tuple[Node, Node], float], level: Level, parent: int, children: Sequence[_Ends]
) -> _Ends:
    """Adds what connects the children of a parent, and gives the parent's ends."""
    hub, port, size = (level.name, parent), level.port, level.size
    if has_wires(level):
        up, down = (*hub, "up"), (*hub, "down")
        for at, (out, into) in enumerate(children):
            child = (*hub, at)
            if level.kind is not LinkKind.FULL:
                for other, count in neighbours(level, at):
                    link = child, (*hub, other)
                    links[link] = links.get(link, 0.0) + count * port / level.wires
                around = [((*child, "out"), child), (child, (*child, "in"))]
                links |= dict.fromkeys(around, port)
            else:
                others = [(*hub, other, "in") for other in range(size) if other != at]
                links |= {((*child, "out"), other): port / (size - 1) for other in others}
            outward = [(out, (*child, "out")), ((*child, "out"), up)]
            inward = [(down, (*child, "in")), ((*child, "in"), into)]
            links |= dict.fromkeys(outward + inward, port)
        return up, down
    up = down = hub
    if level.kind is LinkKind.BUS:
        down, up = (*hub, "on"), (*hub, "off")
        links[down, up] = port
    elif level.taper > 1:
        up, down = (*hub, "up"), (*hub, "down")
        links[up, down] = size * port / level.taper
    first, last = (down, up) if level.kind is LinkKind.BUS else (up, down)
    for at, (out, into) in enumerate(children):
        own = level.ports[at] if level.ports else port
        links |= {(out, first): own, (last, into): own}
    return up, down
