"""Trees on links: their bound by brute force over cuts, what they carry, and known figures."""

import importlib
import random
from collections import Counter
from fractions import Fraction
from math import isclose
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.machine.topologies import links
from support.machine.tree_graphs import (
    check_tree,
    cuts,
    link_graphs,
    linked,
    loads,
    smallest_ratio,
    switch_graphs,
)

from collir.algorithms.checking import check
from collir.cost.network.cuts import Network, Node, all_gather_bound
from collir.machine import Level, LinkKind, Machine, Parents
from collir.synthesis.trees import splitting
from collir.synthesis.trees.bound import carries, exact_scale, fixed_scale, root_bandwidth
from collir.synthesis.trees.flows import FlowNetwork
from collir.synthesis.trees.graph import (
    CapacityGraph,
    LinkRates,
    NoTreesError,
    graph_of_level,
    graph_of_machine,
)
from collir.synthesis.trees.overlapping import overlapped_scale
from collir.synthesis.trees.packing import packed_trees
from collir.synthesis.trees.program import program_of_trees
from collir.synthesis.trees.reducing import all_reduce_rate, root_weights
from collir.synthesis.trees.schedules import TreeProblem
from collir.synthesis.trees.shortest import shortest_trees
from collir.synthesis.trees.splitting import without_switches

GRAPHS = st.one_of(link_graphs(), switch_graphs())
nx: Any = importlib.import_module("networkx")

DGX1 = (
    (0, 2, 1, 1, 2, 0, 0, 0),
    (2, 0, 1, 2, 0, 1, 0, 0),
    (1, 1, 0, 2, 0, 0, 2, 0),
    (1, 2, 2, 0, 0, 0, 0, 1),
    (2, 0, 0, 0, 0, 2, 1, 1),
    (0, 1, 0, 0, 2, 0, 1, 2),
    (0, 0, 2, 0, 1, 1, 0, 2),
    (0, 0, 0, 1, 1, 2, 2, 0),
)


# --- flows and bounds ----------------------------------------------------------------------------


@given(st.integers(0, 2**32))
@settings(max_examples=60)
def test_flows_are_those_of_networkx(seed: int) -> None:
    rng = random.Random(seed)
    nodes = rng.randint(2, 8)
    ends = [(a, b) for a in range(nodes) for b in range(nodes) if a != b and rng.random() < 0.5]
    capacities = {link: rng.randint(0, 9) for link in ends}
    graph = nx.DiGraph()
    graph.add_nodes_from(range(nodes))
    graph.add_edges_from((a, b, {"capacity": c}) for (a, b), c in capacities.items())
    largest = nx.maximum_flow_value(graph, 0, nodes - 1)
    network = FlowNetwork(nodes, ((a, b, c) for (a, b), c in capacities.items()))
    assert network.flow(0, nodes - 1, 1000) == largest
    side = network.source_side(0)
    assert 0 in side
    assert nodes - 1 not in side
    assert largest == sum(c for (a, b), c in capacities.items() if a in side and b not in side)
    assert network.flow(0, nodes - 1, largest // 2) == largest // 2


@given(GRAPHS, st.data())
@settings(max_examples=60)
def test_the_bound_is_that_of_the_tightest_cut(graph: CapacityGraph, data: st.DataObject) -> None:
    root = data.draw(st.integers(0, graph.ranks - 1))
    for roots in (range(graph.ranks), [root]):
        assert root_bandwidth(graph, roots) == smallest_ratio(graph, roots)
    rates: dict[tuple[Node, Node], float] = {
        (a, b): float(x.bandwidth) for (a, b), x in graph.links.items()
    }
    rate = root_bandwidth(graph, range(graph.ranks))
    known = all_gather_bound(Network(rates), range(graph.ranks), 1.0)
    assert isclose(1 / (graph.ranks * rate), known, rel_tol=1e-9)


@given(st.one_of(link_graphs(most=5), switch_graphs()), st.integers(1, 4))
@settings(max_examples=60)
def test_a_number_of_trees_has_the_largest_bandwidth(graph: CapacityGraph, trees: int) -> None:
    roots = range(graph.ranks)
    rate = root_bandwidth(graph, roots)
    scale = fixed_scale(graph, dict.fromkeys(roots, trees))
    # A larger bandwidth of a tree is a link's by a whole number, or carries as little as one is.
    bandwidths = {x.bandwidth for x in graph.links.values()}
    larger = {b / n for b in bandwidths for n in range(1, 60) if scale.bandwidth < b / n}
    for tree in larger:
        counts = {link: int(x.bandwidth / tree) for link, x in graph.links.items()}
        assert not carries(graph.nodes, graph.ranks, counts, scale.demands)
    assert carries(graph.nodes, graph.ranks, scale.capacities, scale.demands)
    assert scale.bandwidth * trees <= rate


def test_the_bandwidth_of_a_tree_divides_that_of_some_link() -> None:
    graph = graph_of_level(linked(((0, 2, 1), (2, 0, 3), (1, 3, 0))))
    scale = fixed_scale(graph, dict.fromkeys(range(graph.ranks), 2))
    assert scale.bandwidth == Fraction(2 * 10**9, 3)


# --- trees ---------------------------------------------------------------------------------------


@given(GRAPHS, st.data())
@settings(max_examples=80)
def test_trees_reach_the_bound_exactly(graph: CapacityGraph, data: st.DataObject) -> None:
    root = data.draw(st.integers(0, graph.ranks - 1))
    for roots in (range(graph.ranks), [root]):
        rate = smallest_ratio(graph, roots)
        scale = exact_scale(graph, dict.fromkeys(roots, rate))
        assert {n * scale.bandwidth for n in scale.demands.values()} == {rate}
        direct = without_switches(graph, scale.capacities, scale.demands)
        trees = packed_trees(graph.ranks, direct.capacities, scale.demands)
        for tree in trees:
            check_tree(tree, graph.ranks)
        counts: Counter[int] = Counter()
        for tree in trees:
            counts[tree.root] += tree.count
        assert counts == scale.demands
        used = loads(trees)
        assert all(count <= direct.capacities[link] for link, count in used.items())
        check_links(graph, scale.bandwidth, direct.through)


def check_links(
    graph: CapacityGraph, tree: Fraction, through: dict[tuple[int, int], dict[int, int]]
) -> None:
    """Check that no link of a graph carries more than its bandwidth."""
    carried: Counter[tuple[int, int]] = Counter()
    for (a, b), ways in through.items():
        for switch, count in ways.items():
            for link in [(a, b)] if switch == -1 else [(a, switch), (switch, b)]:
                carried[link] += count
    assert all(n * tree <= graph.links[link].bandwidth for link, n in carried.items())


def never(*_: object) -> bool:
    """Return False."""
    return False


@given(switch_graphs(), st.booleans())
@settings(max_examples=40)
def test_switches_are_split_exactly_where_even_links_do_not_do(
    graph: CapacityGraph, one: bool
) -> None:
    roots = [0] if one else range(graph.ranks)
    scale = exact_scale(graph, dict.fromkeys(roots, root_bandwidth(graph, roots)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splitting, "carries", never)
        direct = without_switches(graph, scale.capacities, scale.demands)
    assert carries(graph.ranks, graph.ranks, direct.capacities, scale.demands)
    check_links(graph, scale.bandwidth, direct.through)


@given(GRAPHS, st.integers(1, 3))
@settings(max_examples=40)
def test_a_number_of_trees_is_packed(graph: CapacityGraph, count: int) -> None:
    problem = TreeProblem(graph, "all_gather")
    schedule = problem.with_trees(count)
    assert schedule.count == count * graph.ranks
    assert schedule.bandwidth <= problem.bound * (1 + 1e-9)


@given(GRAPHS)
@settings(max_examples=40)
def test_shortest_trees_are_those_of_a_breadth_first_search(graph: CapacityGraph) -> None:
    one = {link: LinkRates(x.bandwidth, 1.0) for link, x in graph.links.items()}
    alike = CapacityGraph(graph.ranks, one, graph.below)
    adjacent: dict[int, set[int]] = {x: set() for x in range(graph.ranks)}
    for a, b in graph.links:
        if max(a, b) < graph.ranks:
            adjacent[a].add(b)
        elif a >= graph.ranks:
            adjacent[b] |= {c for switch, c in graph.links if switch == a} - {b}
    near = nx.from_dict_of_lists(adjacent)
    used: Counter[tuple[int, int]] = Counter()
    for tree in shortest_trees(alike, range(graph.ranks)).trees:
        check_tree(tree, graph.ranks)
        used += loads([tree])
        known = nx.single_source_shortest_path_length(near, tree.root)
        assert tree.depths == [known[x] for x in range(graph.ranks)]


# --- all_reduce ----------------------------------------------------------------------------------


@given(GRAPHS)
@settings(max_examples=40)
def test_an_all_reduce_may_be_rooted_anywhere(graph: CapacityGraph) -> None:
    rate = root_bandwidth(graph, range(graph.ranks))
    bound = all_reduce_rate(graph)
    if weights := root_weights(graph):
        total = sum(weights.values())
        assert total >= rate * graph.ranks
        assert total / 2 <= bound * (1 + 1e-9)
        for inside, out in cuts(graph):
            assert sum(weights.get(x, Fraction(0)) for x in inside) <= out
    fastest = TreeProblem(graph, "all_reduce").fastest()
    assert float(rate * graph.ranks) / 2 <= fastest.bandwidth * (1 + 1e-9)
    assert fastest.bandwidth <= bound * (1 + 1e-9)


@given(GRAPHS)
@settings(max_examples=60)
def test_both_ways_at_once_keep_to_the_links(graph: CapacityGraph) -> None:
    scale = overlapped_scale(graph)
    if scale is None:
        return
    assert scale.total <= all_reduce_rate(graph) * (1 + 1e-9)
    direct = without_switches(graph, scale.capacities, scale.demands)
    if not carries(graph.ranks, graph.ranks, direct.capacities, scale.demands):
        return  # a switch whose links differ in direction may have no equal links
    trees = packed_trees(graph.ranks, direct.capacities, scale.demands)
    for tree in trees:
        check_tree(tree, graph.ranks)
    assert all(count <= direct.capacities[link] for link, count in loads(trees).items())
    carried: Counter[tuple[int, int]] = Counter()
    for (a, b), ways in direct.through.items():
        for switch, count in ways.items():
            down = [(a, b)] if switch == -1 else [(a, switch), (switch, b)]
            for x, y in down:
                carried[x, y] += count
                carried[y, x] += count
    for link, count in carried.items():
        assert count * scale.bandwidth <= graph.links[link].bandwidth


def test_slow_ports_are_leaves_both_ways_at_once() -> None:
    ports = tuple(25e9 * (1 + rank % 4) for rank in range(16))
    graph = graph_of_level(Level("gpu", 16, 100e9, 1e-6, ports=ports))
    problem = TreeProblem(graph, "all_reduce")
    schedule = problem.overlapped()
    assert schedule
    assert isclose(problem.bound, 25e9)
    assert isclose(schedule.bandwidth, 25e9)
    assert isclose(problem.fastest().bandwidth, 25e9 * 2 / 3)
    assert check(program_of_trees("t", "all_reduce", 16, schedule.trees, 0)).is_right


def test_a_slow_port_is_best_the_root_of_half_of_an_all_reduce() -> None:
    level = Level("gpu", 4, 100e9, 1e-6, ports=(100e9, 100e9, 100e9, 10e9))
    problem = TreeProblem(graph_of_level(level), "all_reduce")
    assert isclose(problem.bound, 10e9)
    assert isclose(problem.fastest().bandwidth, 10e9)
    alike = root_bandwidth(problem.graph, range(4))
    assert isclose(alike * 4 / 2, 10e9 * 4 / 3 / 2)


def test_a_port_that_no_few_trees_divide_has_many_trees_and_a_gap() -> None:
    ports = (97.3e9, 89.123457e9, 61.7777771e9, 53.111119e9)
    level = Level("gpu", 4, max(ports), 1e-6, ports=ports)
    problem = TreeProblem(graph_of_level(level), "all_reduce")
    schedule = problem.fastest()
    assert schedule.count <= 4 * 64
    assert 0.97 * problem.bound < schedule.bandwidth < problem.bound


# --- known figures -------------------------------------------------------------------------------


def algbw(graph: CapacityGraph) -> float:
    """Return the largest bandwidth of an all_gather in GB/s, after trees reached it."""
    problem = TreeProblem(graph, "all_gather")
    schedule = problem.fastest()
    assert isclose(schedule.bandwidth, problem.bound)
    return problem.bound / 1e9


@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_a_ring_has_both_of_its_links(n: int) -> None:
    level = Level("gpu", n, 100e9, 1e-6, LinkKind.RING)
    assert isclose(algbw(graph_of_level(level)), 100 * n / (n - 1))


@pytest.mark.parametrize("n", [2, 3, 5, 8])
@pytest.mark.parametrize("kind", [LinkKind.FULL, LinkKind.SWITCH])
def test_a_mesh_and_a_switch_have_direct_trees(n: int, kind: LinkKind) -> None:
    graph = graph_of_level(Level("gpu", n, 100e9, 1e-6, kind))
    assert isclose(algbw(graph), 100 * n / (n - 1))
    assert TreeProblem(graph, "all_gather").fastest().depth == 1


@pytest.mark.parametrize("shape", [(2, 2), (3, 4), (2, 3, 2)])
def test_a_torus_has_all_of_its_links(shape: tuple[int, ...]) -> None:
    n = len(range(shape[0])) * shape[1] * (shape[2] if len(shape) > 2 else 1)
    level = Level("chip", n, 100e9, 1e-6, LinkKind.TORUS, shape=shape)
    assert isclose(algbw(graph_of_level(level)), 100 * n / (n - 1))


def test_the_links_of_a_dgx1() -> None:
    graph = graph_of_level(linked(DGX1, 150e9))
    assert isclose(algbw(graph), 150 * 8 / 7)
    fastest = TreeProblem(graph, "all_gather").fastest()
    assert (fastest.count, fastest.depth) == (48, 4)


@pytest.mark.parametrize(("nodes", "known"), [(1, 342.9), (2, 346.7), (4, 266.7)])
def test_nodes_of_a100_have_the_optimum_that_forestcoll_publishes(nodes: int, known: float) -> None:
    levels = (
        Level("node", nodes, 200e9, 14e-6, rails=8),
        Level("gpu", 8, 300e9, 3.4e-6),
    )
    assert isclose(algbw(graph_of_machine(Machine("a100", levels))), known, rel_tol=2e-4)


def test_eight_nodes_of_a100_have_the_published_bound() -> None:
    levels = Level("node", 8, 200e9, 14e-6, rails=8), Level("gpu", 8, 300e9, 3.4e-6)
    graph = graph_of_machine(Machine("a100", levels))
    assert isclose(TreeProblem(graph, "all_gather").bound, 228.6e9, rel_tol=2e-4)


def test_nodes_of_different_sizes() -> None:
    nodes = Parents(Level("node", 2, 30e9, 1e-5), (2, 3))
    graph = graph_of_machine(Machine("m", (Level("gpu", 5, 100e9, 1e-6, parents=nodes),)))
    # The node of three sends three parts through its port of 30 GB/s.
    assert isclose(algbw(graph), 5 * 10)


# --- machines that have no trees -----------------------------------------------------------------


def test_what_has_no_trees_is_refused() -> None:
    with pytest.raises(NoTreesError, match="bus"):
        graph_of_level(Level("cpu", 4, 1e9, 1e-6, LinkKind.BUS))
    with pytest.raises(NoTreesError, match="one device"):
        graph_of_level(Level("cpu", 1, 1e9, 1e-6))
    rates = LinkRates(Fraction(1), 0.0)
    with pytest.raises(NoTreesError, match="no link leads from device 0 to device 2"):
        CapacityGraph(4, {(0, 1): rates, (1, 0): rates, (2, 3): rates, (3, 2): rates})


def test_links_of_random_matrices_are_connected() -> None:
    for seed in range(20):
        assert graph_of_level(linked(links(random.Random(seed), 5))).ranks == 5
