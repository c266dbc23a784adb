"""Bounds by cuts: examples of uneven networks, against all cuts, and against the closed forms."""

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.harness.seeds import fresh
from support.machine.machine_graphs import both_ways, machine_graph, reduce_scatter_bound
from support.machine.topologies import kinds_of, some_level

from collir.cost.bounds import collective_bound
from collir.cost.collectives.collective import Collective
from collir.cost.network.cuts import (
    Network,
    Node,
    all_gather_bound,
    all_reduce_bound,
)
from collir.cost.network.group import CostError
from collir.layout import Axis, Factor, Mesh
from collir.machine import Level, LinkKind, Machine


def nodes_of_gpus(*nodes: tuple[int, float, float]) -> tuple[Network, list[Node]]:
    """Return nodes on one switch, each (GPUs, bandwidth of a GPU, bandwidth of the NIC)."""
    links: dict[tuple[Node, Node], float] = {}
    for n, (gpus, port, nic) in enumerate(nodes):
        links |= {(f"node{n}", "top"): nic}
        links |= {(f"gpu{n}.{i}", f"node{n}"): port for i in range(gpus)}
    network = both_ways(links)
    return network, [node for node in network.nodes if str(node).startswith("gpu")]


# ---------------------------------------------------------------------------------------------
# By hand
# ---------------------------------------------------------------------------------------------


def test_two_even_nodes() -> None:
    network, gpus = nodes_of_gpus((4, 100, 10), (4, 100, 10))
    assert all_gather_bound(network, gpus, 800) == 40  # four of eight parts go through a NIC
    assert reduce_scatter_bound(network, gpus, 800) == 40
    assert all_reduce_bound(network, gpus, 800) == 80


def test_a_node_with_more_gpus_sends_more() -> None:
    network, gpus = nodes_of_gpus((6, 100, 10), (2, 100, 10))
    assert all_gather_bound(network, gpus, 800) == 60  # 6/8 of the data leaves the large node
    assert reduce_scatter_bound(network, gpus, 800) == 60
    assert all_reduce_bound(network, gpus, 800) == 80  # and not twice 60: M / 10


def test_a_slower_nic_limits_its_own_node_only() -> None:
    # Three nodes: the slow node gets the others' 6/8 through 5 B/s. An all_reduce sends all of M
    # through 5 B/s, 160; in three parts 4 M / (20 + 20 + 5) = 71.
    network, gpus = nodes_of_gpus((3, 100, 20), (3, 100, 20), (2, 100, 5))
    assert all_gather_bound(network, gpus, 800) == 120
    assert all_reduce_bound(network, gpus, 800) == 160


def test_parts_may_lie_on_different_levels() -> None:
    # The first node's GPUs are as slow as the second's NIC: 5 parts send 8 M over 5 ports of 10,
    # where single GPUs (14 M / 1 + ...) and whole nodes (2 M / (1000 + 10)) are no limit.
    network, gpus = nodes_of_gpus((4, 10, 1000), (4, 1000, 10))
    assert all_reduce_bound(network, gpus, 100) == 16
    assert all_gather_bound(network, gpus, 100) == 8.75  # 7/8 of the data into a slow GPU


def test_a_fast_device_on_slow_switches_is_no_limit() -> None:
    network = both_ways({("g0", "s"): 9, ("g1", "s"): 3, ("g2", "s"): 2})
    assert all_gather_bound(network, ["g0", "g1", "g2"], 12) == 4  # 2/3 goes into the slowest
    assert all_reduce_bound(network, ["g0", "g1", "g2"], 12) == 6  # M / 2; parts: 4 M / 10


def test_directions_differ() -> None:
    # A ring of one direction: all data but a node's own share passes each of its links.
    ring = Network({(i, (i + 1) % 4): 2.0 for i in range(4)})
    assert all_gather_bound(ring, range(4), 8) == 3
    assert reduce_scatter_bound(ring, range(4), 8) == 3
    assert all_reduce_bound(ring, range(4), 8) == 6
    star = Network({("a", "s"): 1, ("s", "a"): 4, ("b", "s"): 2, ("s", "b"): 4})
    assert all_gather_bound(star, "ab", 8) == 4
    assert reduce_scatter_bound(star, "ab", 8) == 4
    assert all_reduce_bound(star, "ab", 8) == 8


def test_what_is_cut_off() -> None:
    network = Network({("a", "b"): 1.0, ("b", "a"): 0.0})
    for bound in (all_gather_bound, reduce_scatter_bound, all_reduce_bound):
        assert math.isinf(bound(network, "ab", 1))
        assert bound(network, "a", 1) == 0
        assert bound(network, "", 1) == 0
    assert math.isinf(all_gather_bound(network, "abc", 1))
    with pytest.raises(CostError, match="a -> b has no bandwidth of nan"):
        Network({("a", "b"): math.nan})


def test_a_third_of_a_byte_per_second_is_no_rounding_error() -> None:
    network, gpus = nodes_of_gpus((1, 1 / 3, 1e12), (1, 1e12, 1 / 3 + 1e-16), (1, 1e12, 1e12))
    assert all_gather_bound(network, gpus, 1) == float(Fraction(2, 3) / Fraction(1 / 3))


# ---------------------------------------------------------------------------------------------
# Against all cuts and all parts
# ---------------------------------------------------------------------------------------------


def subsets(nodes: Sequence[Node]) -> Iterator[set[Node]]:
    for count in range(len(nodes) + 1):
        yield from map(set, itertools.combinations(nodes, count))


def over(amount: float, bandwidth: float) -> float:
    return amount / bandwidth if bandwidth else math.inf


def gather_of_all_cuts(network: Network, compute: Sequence[Node], size: float) -> float:
    return max(
        over(size * len(cut.intersection(compute)) / len(compute), out(network, cut))
        for cut in subsets(network.nodes)
        if 0 < len(cut.intersection(compute)) < len(compute)
    )


def out(network: Network, part: set[Node]) -> float:
    return sum(c for (a, b), c in network.links.items() if a in part and b not in part)


def reduce_of_all_cuts(network: Network, compute: Sequence[Node], size: float) -> float:
    return max(
        over(size, min(out(network, cut), out(network, {*network.nodes} - cut)))
        for cut in subsets(network.nodes)
        if 0 < len(cut.intersection(compute)) < len(compute)
    )


def all_parts(network: Network, compute: Sequence[Node]) -> Iterator[list[set[Node]]]:
    """Yield all disjoint parts that hold all compute nodes; a switch is in one part or none."""

    def extend(parts: list[set[Node]], rest: Sequence[Node]) -> Iterator[list[set[Node]]]:
        if not rest:
            yield parts
            return
        node, *others = rest
        for i in range(len(parts)):
            yield from extend([*parts[:i], parts[i] | {node}, *parts[i + 1 :]], others)
        yield from extend([*parts, {node}] if node in compute else parts, others)

    switches = [node for node in network.nodes if node not in compute]
    yield from extend([], [*compute, *switches])


def reduce_of_all_parts(network: Network, compute: Sequence[Node], size: float) -> float:
    def through(parts: list[set[Node]]) -> float:
        into = sum(out(network, {*network.nodes} - part) for part in parts)
        return min(into, sum(out(network, part) for part in parts))

    return max(
        over(2 * (len(parts) - 1) * size, through(parts))
        for parts in all_parts(network, compute)
        if len(parts) > 1
    )


def check(network: Network, compute: Sequence[Node], exact: bool) -> None:
    assert all_gather_bound(network, compute, 60) == pytest.approx(
        gather_of_all_cuts(network, compute, 60), rel=1e-12
    )
    assert reduce_scatter_bound(network, compute, 60) == pytest.approx(
        gather_of_all_cuts(network.reversed, compute, 60), rel=1e-12
    )
    bound = all_reduce_bound(network, compute, 60)
    cuts = reduce_of_all_cuts(network, compute, 60)
    best = max(cuts, reduce_of_all_parts(network, compute, 60))
    assert cuts * (1 - 1e-12) <= bound <= best * (1 + 1e-12)
    if exact:
        assert bound == pytest.approx(best, rel=1e-12)


bandwidths = st.sampled_from([1.0, 1.0, 2.0, 3.0, 10.0, 0.1])


@st.composite
def trees(draw: st.DrawFn, most: int = 7) -> tuple[Network, list[Node]]:
    """Draw a tree with compute nodes anywhere, whose links may differ by direction."""
    count = draw(st.integers(2, most))
    even = draw(st.booleans())
    links: dict[tuple[Node, Node], float] = {}
    for node in range(1, count):
        parent = draw(st.integers(0, node - 1))
        links[node, parent] = draw(bandwidths)
        links[parent, node] = links[node, parent] if even else draw(bandwidths)
    compute = draw(st.sets(st.integers(0, count - 1), min_size=2))
    return Network(links), [*sorted(compute)]


@st.composite
def networks(draw: st.DrawFn) -> tuple[Network, list[Node]]:
    """Draw a network with few switches, connected or not."""
    count = draw(st.integers(2, 6))
    ends = st.integers(0, count - 1)
    links: dict[tuple[Node, Node], float] = {(0, 1): draw(bandwidths)}
    for _ in range(draw(st.integers(0, 12))):
        links[draw(ends), draw(ends)] = draw(bandwidths)
    if draw(st.booleans()):
        links |= {(i, (i + 1) % count): draw(bandwidths) for i in range(count)}
    network = both_ways(links) if draw(st.booleans()) else Network(links)
    nodes: list[Node] = [node for node in range(count) if node in network.nodes]
    return network, nodes[: draw(st.integers(2, len(nodes)))]


@settings(max_examples=14)
@given(trees())
def test_on_trees_nothing_is_missed(each: tuple[Network, list[Node]]) -> None:
    check(*each, exact=True)


@settings(max_examples=14)
@given(networks())
def test_on_networks_no_cut_is_missed(each: tuple[Network, list[Node]]) -> None:
    check(*each, exact=False)


def test_a_ring_and_a_link_beside_it_are_no_tree() -> None:
    """Together they have as many links as a tree of their nodes."""
    links: dict[tuple[Node, Node], float] = {(0, 1): 1, (1, 2): 1, (2, 0): 1, (3, 4): 1}
    check(both_ways(links), [0, 1], exact=False)


def test_seven_compute_nodes() -> None:
    network, gpus = nodes_of_gpus((3, 7, 5), (2, 4, 9), (1, 3, 8), (1, 6, 2))
    switches = [node for node in network.nodes if node not in gpus]
    assert all_reduce_bound(network, gpus, 60) == pytest.approx(
        max(
            reduce_of_all_cuts(network, gpus, 60),
            max(_hanging_parts(network, gpus, switches)),
        )
    )


def _hanging_parts(
    network: Network, gpus: Sequence[Node], switches: Sequence[Node]
) -> Iterator[float]:
    """Compare with all partitions of seven compute nodes, with the best switches for each part."""
    around = {
        frozenset(part): min(out(network, part | more) for more in subsets(switches))
        for part in subsets(gpus)
    }
    for parts in all_parts(Network({(a, b): 1 for a in gpus for b in gpus if a != b}), gpus):
        if len(parts) > 1:
            through = sum(around[frozenset(part)] for part in parts)
            yield 2 * (len(parts) - 1) * 60 / through


# ---------------------------------------------------------------------------------------------
# Machines
# ---------------------------------------------------------------------------------------------


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    """Draw a machine of up to 24 devices on one to three levels of plain switches."""
    sizes = draw(
        st.lists(st.integers(1, 5), min_size=1, max_size=3).filter(lambda s: math.prod(s) <= 24)
    )
    ports = st.integers(1, 30).map(lambda n: n * 1e9)
    return Machine("m", tuple(Level(f"l{i}", n, draw(ports), 0) for i, n in enumerate(sizes)))


def closed(machine: Machine, kind: str, size: float) -> float:
    axis = Axis.placed("d", [Factor(level.name, level.size) for level in machine.levels])
    mesh = Mesh("m", machine, (axis,))
    return collective_bound(Collective(kind, mesh, tuple(mesh.by_name), size)).bandwidth


BOUNDS = {
    "all_gather": all_gather_bound,
    "reduce_scatter": reduce_scatter_bound,
    "all_reduce": all_reduce_bound,
}


@pytest.mark.turns
@pytest.mark.parametrize("kind", BOUNDS)
@settings(max_examples=18)
@given(machine=machines())
def test_the_closed_form_on_switches_is_the_cut(kind: str, machine: Machine) -> None:
    if machine.devices > 1:
        bound = BOUNDS[kind](machine_graph(machine), range(machine.devices), 1e6)
        assert bound == pytest.approx(closed(machine, kind, 1e6), rel=1e-12)


@pytest.mark.turns
@pytest.mark.parametrize("kind", BOUNDS)
@pytest.mark.parametrize("link", kinds_of(4))
def test_ports_are_cuts_on_every_kind(kind: str, link: str) -> None:
    rng = fresh(link)
    outer = link if link in kinds_of(3) else LinkKind.SWITCH
    levels = some_level(rng, "x", 3, 2e9, 0, outer), some_level(rng, "y", 4, 3e9, 0, link)
    switch = Machine("m", tuple(Level(x.name, x.size, x.port, 0) for x in levels))
    bound = BOUNDS[kind](machine_graph(Machine("m", levels)), range(12), 1e6)
    # With a matrix of links, the bound of an all_reduce does not try all parts, but those of one
    # device each.
    apart = kind == "all_reduce" and link == LinkKind.LINKS
    least = 2 * 11 * 1e6 / (12 * 3e9) if apart else closed(switch, kind, 1e6)
    assert bound >= least * (1 - 1e-12)


SQUARE = ((0, 1, 0, 1), (1, 0, 1, 0), (0, 1, 0, 1), (1, 0, 1, 0))
PATH = ((0, 2, 0, 0), (2, 0, 1, 0), (0, 1, 0, 2), (0, 0, 2, 0))
"""A path with two links, one link, two links; each has a third of the port."""


@pytest.mark.parametrize(
    ("level", "gather", "reduce"),
    [
        (Level("x", 4, 6.0, 0), 3 / 6, 6 / 6),
        (Level("x", 4, 6.0, 0, taper=8), 3 / 3, 4 / 3),
        (Level("x", 4, 6.0, 0, LinkKind.RING), 3 / 6, 6 / 6),
        (Level("x", 4, 6.0, 0, LinkKind.FULL), 3 / 6, 6 / 6),
        (Level("x", 4, 6.0, 0, LinkKind.BUS), 3 / 6, 4 / 6),
        (Level("x", 4, 6.0, 0, LinkKind.TORUS, shape=(2, 2)), 3 / 6, 6 / 6),
        (Level("x", 4, 6.0, 0, LinkKind.LINKS, links=SQUARE), 3 / 6, 6 / 6),
        (Level("x", 4, 6.0, 0, LinkKind.LINKS, links=PATH), 2 / 2, 4 / 2),
        (Level("x", 4, 6.0, 0, ports=(6.0, 1.5, 6.0, 6.0)), 3 / 1.5, 4 / 1.5),
    ],
)
def test_one_level(level: Level, gather: float, reduce: float) -> None:
    graph = machine_graph(Machine("m", (level,)))
    assert all_gather_bound(graph, range(4), 4) == pytest.approx(gather)
    assert reduce_scatter_bound(graph, range(4), 4) == pytest.approx(gather)
    assert all_reduce_bound(graph, range(4), 4) >= reduce - 1e-12
