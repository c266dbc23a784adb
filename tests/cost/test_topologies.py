"""Tori, matrices of links and uneven ports: examples, and random cases against every message."""

import math
import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise, permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cost.algorithms import ALGORITHMS
from support.cost.messages import Network, groups, time_of
from support.harness.seeds import fresh
from support.machine.topologies import kinds_of, shapes, some_level, some_parents

from collir.cost.bounds import collective_bound
from collir.cost.collectives.collective import Collective
from collir.cost.collectives.meter import Meter
from collir.cost.model import CostModel, algorithm_estimate, step_cost
from collir.cost.network.disjoint_rings import edge_disjoint_rings
from collir.cost.network.group import CostError, Group
from collir.cost.network.link_bounds import cut_seconds, reduced_to_all
from collir.cost.network.rings import ring_count
from collir.cost.network.wires import all_pairs_loads, distances, link_loads, neighbours
from collir.layout import Axis, Factor, Mesh
from collir.machine import Level, LinkKind, Machine
from collir.tools.machine import preset

N = 720720.0


def on(level: Level, *sizes: int) -> Mesh:
    """Return a mesh on one level with an axis for each size, the first most significant."""
    axes = (Axis.placed("abc"[i], [Factor(level.name, n)]) for i, n in enumerate(sizes))
    return Mesh("m", Machine("m", (level,)), tuple(axes))


def seconds(mesh: Mesh, kind: str, name: str, *axes: str, root: str = "", size: float = N) -> float:
    over = axes or tuple(mesh.by_name)
    at_root = frozenset(f"{axis}.{mesh.machine.levels[0].name}" for axis in root)
    return algorithm_estimate(
        Collective(kind, mesh, over, size, at_root), Group.of(mesh, over, at_root), name
    ).time


def lowest(mesh: Mesh, kind: str, *axes: str, root: str = "", copies: str = "") -> float:
    name = mesh.machine.levels[0].name
    over = axes or tuple(mesh.by_name)
    at_root, replicated = (frozenset(f"{axis}.{name}" for axis in a) for a in (root, copies))
    return collective_bound(Collective(kind, mesh, over, N, at_root, replicated)).bandwidth


# ---------------------------------------------------------------------------------------------
# Ports that differ
# ---------------------------------------------------------------------------------------------

UNEVEN = Level("x", 4, 4.0, 0.0, ports=(4.0, 4.0, 2.0, 1.0))


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter"])
def test_a_ring_waits_for_the_slowest_port(kind: str) -> None:
    assert seconds(on(UNEVEN, 4), kind, "ring") == pytest.approx(3 / 4 * N / 1)
    assert lowest(on(UNEVEN, 4), kind) == pytest.approx(3 / 4 * N / 1)


def test_only_ports_that_take_part_count() -> None:
    mesh = on(UNEVEN, 2, 2)
    assert seconds(mesh, "all_gather", "ring", "b.x") == pytest.approx(1 / 2 * N / 1)
    assert seconds(mesh, "all_gather", "ring", "b.x", root="a") == pytest.approx(1 / 2 * N / 4)
    assert lowest(mesh, "all_gather", "b.x", root="a") == pytest.approx(1 / 2 * N / 4)
    # Over `a` the groups are children 0 and 2, and 1 and 3.
    assert seconds(mesh, "broadcast", "binomial", "a.x") == pytest.approx(N / 1)
    assert seconds(mesh, "broadcast", "binomial", "a.x", root="b") == pytest.approx(N / 2)


def test_trees_and_stars_take_the_ports_that_they_use() -> None:
    mesh = on(UNEVEN, 4)
    # First 0 sends to 2 at 2 B/s; then 0 sends to 1 at 4 B/s, and 2 to 3 at 1 B/s.
    assert seconds(mesh, "broadcast", "binomial") == pytest.approx(N / 2 + N / 1)
    # The root receives 3/4 at 4 B/s; the slowest child takes longer to send its quarter at 1 B/s.
    assert seconds(mesh, "gather", "direct") == pytest.approx(N / 4 / 1)
    assert lowest(mesh, "gather") == pytest.approx(N / 4 / 1)
    back = on(replace(UNEVEN, ports=(1.0, 2.0, 4.0, 4.0)), 4)
    assert seconds(back, "gather", "direct") == pytest.approx(3 / 4 * N / 1)
    assert lowest(back, "scatter") == pytest.approx(3 / 4 * N / 1)


def test_all_ports_together_carry_an_all_reduce() -> None:
    # Three parts of each message could go over the fast ports: 6 N / (4 + 4 + 2 + 1) < N / 1.
    assert lowest(on(UNEVEN, 4), "all_reduce") == pytest.approx(N / 1)
    near = on(replace(UNEVEN, ports=(4.0, 4.0, 3.9, 3.9)), 4)
    assert lowest(near, "all_reduce") == pytest.approx(6 * N / 15.8)


def test_what_has_copies_need_not_go_through_a_slow_root() -> None:
    mesh = on(replace(UNEVEN, ports=(1.0, 4.0, 1.0, 4.0)), 2, 2)  # groups 0, 1 and 2, 3
    assert lowest(mesh, "broadcast", "b.x") == pytest.approx(N / 1)
    assert lowest(mesh, "broadcast", "b.x", copies="a") == pytest.approx(N / 4)
    assert lowest(mesh, "reduce", "b.x", copies="a") == pytest.approx(N / 1)
    assert lowest(mesh, "scatter", "b.x") == pytest.approx(N / 2 / 1)
    assert lowest(mesh, "scatter", "b.x", copies="a") == pytest.approx(N / 2 / 4)
    assert lowest(mesh, "gather", "b.x", copies="a") == pytest.approx(N / 2 / 1)


def test_rails_divide_every_port() -> None:
    levels = replace(UNEVEN, rails=2), Level("y", 2, 100.0, 0.0)
    axes = Axis.placed("a", [Factor("x", 4)]), Axis.placed("b", [Factor("y", 2)])
    mesh = Mesh("m", Machine("m", levels), axes)
    both = Collective("all_gather", mesh, ("a.x",), N)
    alone = replace(both, at_root=frozenset(["b.y"]))
    for step, rate in ((both, 1 / 2), (alone, 1 / 2)):  # two groups share it, or one has half
        group = Group.of(mesh, step.axes, step.at_root)
        assert algorithm_estimate(step, group, "ring").time == pytest.approx(3 / 4 * N / rate)


def test_the_slowest_port_is_what_nccl_and_p2_see() -> None:
    slow = Level("x", 4, 1.0, 0.0)
    for model in ("p2", "nccl"):
        for kind in ("all_reduce", "all_gather", "broadcast", "gather"):
            times = [
                step_cost(Collective(kind, on(level, 4), ("a.x",), 1e9), CostModel(model)).time
                for level in (UNEVEN, slow)
            ]
            assert times[0] == pytest.approx(times[1])


def test_trees_on_too_many_ranks_are_not_listed() -> None:
    level = Level("x", 2, 2.0, 0.0, ports=(2.0, 1.0))
    inner = Level("y", 2**21, 1e9, 0.0)
    axis = Axis.placed("a", [Factor("x", 2), Factor("y", 2**21)])
    mesh = Mesh("m", Machine("m", (level, inner)), (axis,))
    step = Collective("broadcast", mesh, ("a.x", "a.y"), N)
    with pytest.raises(CostError, match="too large to list"):
        algorithm_estimate(step, Group.of(mesh, step.axes), "binomial")
    assert (
        algorithm_estimate(replace(step, kind="all_gather"), Group.of(mesh, step.axes), "ring").time
        > 0
    )


# ---------------------------------------------------------------------------------------------
# A matrix of links
# ---------------------------------------------------------------------------------------------


def dgx1() -> Level:
    gpu = preset("dgx1_v100").op.value().level("gpu")
    assert gpu is not None
    return gpu


def test_a_dgx1_has_three_rings_of_its_links() -> None:
    gpu = dgx1()
    assert ring_count(gpu) == 3
    mesh = on(gpu, 8)
    once = N * 7 / 8 / (6 * 25e9)
    hops = 7 * gpu.latency
    assert seconds(mesh, "all_reduce", "ring") == pytest.approx(2 * (once + hops))
    assert seconds(mesh, "all_gather", "ring") == pytest.approx(once + hops)
    assert lowest(mesh, "all_reduce") == pytest.approx(2 * once)
    assert lowest(mesh, "all_gather") == pytest.approx(once)


def test_the_rings_of_a_dgx1_link_by_link() -> None:
    gpu = dgx1()
    assert gpu.links is not None
    rings = edge_disjoint_rings(gpu.links)
    sent = np.zeros((8, 8))
    for ring in rings:
        assert sorted(ring) == list(range(8))
        for a, b in pairwise((*ring, ring[0])):  # 7 of 8 blocks, half in each direction
            sent[a, b] += N * 7 / 8 / 2 / len(rings)
            sent[b, a] += N * 7 / 8 / 2 / len(rings)
    links = np.array(gpu.links)
    assert (sent[links == 0] == 0).all()
    busiest = (sent[links > 0] / links[links > 0]).max()
    expected = busiest / 25e9 + 7 * gpu.latency
    assert seconds(on(gpu, 8), "all_gather", "ring") == pytest.approx(expected)


def test_a_ring_of_some_gpus_takes_the_links_between_them() -> None:
    gpu = dgx1()
    # The groups are GPUs 0..3 and 4..7. There are two links between 0 and 1, 2 and 3, 3 and 1, else
    # one. The ring 0-1-2-3-0 has two hops of a single link, each with half of 3/4 per direction.
    mesh = on(gpu, 2, 4)
    expected = N * 3 / 4 / 2 / 25e9 + 3 * gpu.latency
    assert seconds(mesh, "all_gather", "ring", "b.gpu") == pytest.approx(expected)


def test_messages_take_all_ways_of_the_fewest_hops() -> None:
    def loads(source: int, target: int) -> dict[tuple[int, int], float]:
        loads = link_loads(dgx1(), np.array([source]), np.array([target]), np.array([12.0]))
        return {
            (int(a), int(b)): float(loads[a, b]) for a, b in zip(*np.nonzero(loads), strict=True)
        }

    # From 0 to 5 there are 2 paths over 1 (2 links, then 1), and 4 over 4 (2 links, then 2).
    assert loads(0, 5) == pytest.approx({(0, 1): 2, (1, 5): 4, (0, 4): 4, (4, 5): 4})
    assert loads(5, 0) == pytest.approx({(1, 0): 2, (5, 1): 4, (4, 0): 4, (5, 4): 4})
    assert loads(0, 1) == pytest.approx({(0, 1): 6})


def test_cuts_through_links_are_bounds() -> None:
    # Two pairs of children with 3 links of 1 B/s inside each pair, and one link between the pairs.
    level = Level(
        "x", 4, 4.0, 0.0, LinkKind.LINKS,
        links=((0, 3, 0, 0), (3, 0, 1, 0), (0, 1, 0, 3), (0, 0, 3, 0)),
    )  # fmt: skip
    mesh = on(level, 4)
    assert lowest(mesh, "all_gather") == pytest.approx(N / 2)  # half of it over one link
    assert lowest(mesh, "gather") == pytest.approx(N / 2)
    assert lowest(mesh, "broadcast") == pytest.approx(N)
    assert lowest(mesh, "all_reduce") == pytest.approx(N)
    # The distances of all pairs add up to twice (1 + 2 + 3 + 1 + 2 + 1) = 20; there are 14 links.
    assert lowest(mesh, "all_to_all") == pytest.approx(20 / 4 * N / 14)
    axes = (*mesh.axes, Axis.placed("b", [Factor("o", 2)]))
    outer = Mesh("m", Machine("m", (Level("o", 2, 2.0, 0.0), level)), axes)
    # Besides the link, there are 2 B/s by way of the other parent.
    bound = collective_bound(Collective("all_gather", outer, ("a.x",), N)).bandwidth
    assert bound == pytest.approx(max(N / 2 / 3, 3 / 4 * N / 4))
    # Data that goes that way saves at most 3 links.
    bound = collective_bound(Collective("all_to_all", outer, ("a.x",), N)).bandwidth
    assert bound == pytest.approx(20 / 4 * N / (14 + 3 * 2))


def test_devices_elsewhere_may_reduce() -> None:
    links = ((0, 1, 0, 1), (1, 0, 1, 0), (0, 1, 0, 1), (1, 0, 1, 0))
    square = Level("x", 4, 2.0, 0.0, LinkKind.LINKS, links=links)
    assert cut_seconds(square, reduced_to_all, 0.0, False) == pytest.approx(2 * 3 / 8)  # four parts
    assert cut_seconds(square, reduced_to_all, 0.5, True) == pytest.approx(1 / 2.5)  # one of them


# ---------------------------------------------------------------------------------------------
# Tori
# ---------------------------------------------------------------------------------------------

TORUS = Level("x", 16, 4.0, 1e-9, LinkKind.TORUS, shape=(4, 4))


def test_a_ring_uses_all_links_of_a_torus() -> None:
    mesh = on(TORUS, 16)
    once = N * 15 / 16 / 4
    assert seconds(mesh, "all_reduce", "ring") == pytest.approx(2 * (once + 15e-9))
    assert lowest(mesh, "all_reduce") == pytest.approx(2 * once)


@pytest.mark.parametrize("axis", ["a.x", "b.x"])
def test_a_row_or_column_of_a_torus_is_a_ring(axis: str) -> None:
    assert seconds(on(TORUS, 4, 4), "all_gather", "ring", axis) == pytest.approx(
        N * 3 / 4 / 2 + 3e-9
    )


def test_all_to_all_crosses_the_middle_of_a_torus() -> None:
    # 8 x 8 blocks go from half to half over 8 links of 1 B/s.
    mesh = on(TORUS, 16)
    crossing = 8 * 8 * (N / 16) / 8
    assert lowest(mesh, "all_to_all") == pytest.approx(crossing)
    assert seconds(mesh, "all_to_all", "direct") == pytest.approx(crossing + 15e-9)


def test_a_dimension_of_two_has_one_link() -> None:
    level = Level("x", 8, 3.0, 0.0, LinkKind.TORUS, shape=(2, 4))
    assert level.wires == 3
    # All data goes over the single link of each pair of rows, once in each direction.
    assert seconds(on(level, 2, 4), "all_gather", "ring", "a.x") == pytest.approx(N / 2 / 1)
    assert seconds(on(level, 2, 4), "all_gather", "ring", "b.x") == pytest.approx(N * 3 / 4 / 2)


def test_messages_go_along_one_dimension_after_the_other() -> None:
    loads = link_loads(TORUS, np.array([0]), np.array([5]), np.array([8.0]))
    used = {tuple(map(int, link)): loads[tuple(link)] for link in np.argwhere(loads)}
    # From (0, 0) to (1, 1) by way of (1, 0) and (0, 1): over the links after children 0, 4 and 1.
    assert used == {(0, 0, 0): 4, (0, 0, 1): 4, (1, 0, 0): 4, (1, 0, 4): 4}


def small_tori() -> list[tuple[int, ...]]:
    return [shape for size in range(4, 17) for shape in shapes(size, 4)]


def matrix_of(level: Level) -> list[list[int]]:
    rows = [[0] * level.size for _ in range(level.size)]
    for child, row in enumerate(rows):
        for neighbour, count in neighbours(level, child):
            row[neighbour] += count
    return rows


@pytest.mark.parametrize("shape", small_tori(), ids=str)
def test_tori_are_made_of_rings(shape: tuple[int, ...]) -> None:
    level = Level("x", math.prod(shape), 1.0, 0.0, LinkKind.TORUS, shape=shape)
    rows = matrix_of(level)
    assert rows == [list(column) for column in zip(*rows, strict=True)]
    assert {sum(row) for row in rows} == {level.wires}
    assert len(edge_disjoint_rings(rows)) == ring_count(level) == level.wires // 2


@pytest.mark.parametrize("size", range(3, 12))
def test_a_full_mesh_has_the_rings_of_a_matrix_of_ones(size: int) -> None:
    rows = tuple(tuple(int(a != b) for b in range(size)) for a in range(size))
    matrix = Level("x", size, float(size - 1), 0.0, LinkKind.LINKS, links=rows)
    full = Level("x", size, float(size - 1), 0.0, LinkKind.FULL)
    assert ring_count(full) == ring_count(matrix)
    assert seconds(on(full, size), "all_reduce", "ring") == pytest.approx(
        seconds(on(matrix, size), "all_reduce", "ring")
    )


def test_a_torus_may_be_too_large() -> None:
    level = Level("x", 2**17, 1.0, 0.0, LinkKind.TORUS, shape=(2**9, 2**8))
    with pytest.raises(CostError, match="a torus is costed for 65536 at most"):
        seconds(on(level, 2**17), "all_reduce", "ring")


# ---------------------------------------------------------------------------------------------
# All of them
# ---------------------------------------------------------------------------------------------


def levels() -> list[Level]:
    rng = fresh(5)
    cases = [(size, kind) for size in (2, 3, 4, 5, 6, 8, 9, 12) for kind in kinds_of(size)]
    drawn = [some_level(rng, "x", size, 1.0, 0.0, kind) for size, kind in cases]
    return [level for level in drawn if level.wires]


@pytest.mark.parametrize("level", levels(), ids=lambda level: f"{level.kind}-{level.size}")
def test_distances_are_those_of_neighbours(level: Level) -> None:
    if level.kind is LinkKind.FULL:
        return
    hops: list[int] = []
    for child in range(level.size):
        distance = {child: 0}
        queue = [child]
        for reached in queue:
            for neighbour, _ in neighbours(level, reached):
                if neighbour not in distance:
                    distance[neighbour] = distance[reached] + 1
                    queue.append(neighbour)
        hops += distance.values()
    assert distances(level) == (sum(hops), max(hops))


@pytest.mark.parametrize("level", levels(), ids=lambda level: f"{level.kind}-{level.size}")
def test_messages_between_all_load_links_alike(level: Level) -> None:
    if level.kind is LinkKind.LINKS:
        return
    sources, targets = np.array(list(permutations(range(level.size), 2))).T
    listed = link_loads(level, sources, targets, np.ones(len(sources)))
    if level.kind is LinkKind.FULL:
        assert listed.max() == all_pairs_loads(level)
    else:
        assert np.max(listed, axis=(1, 2)) == pytest.approx(all_pairs_loads(level))


def test_all_to_all_on_a_large_torus() -> None:
    level = Level("x", 2**12, 4.0, 0.0, LinkKind.TORUS, shape=(64, 64))
    crossing = 2048 * 2048 * (N / 4096) / 128
    assert seconds(on(level, 4096), "all_to_all", "direct") == pytest.approx(crossing)
    assert lowest(on(level, 4096), "all_to_all") == pytest.approx(crossing)


@pytest.mark.parametrize("level", levels(), ids=lambda level: f"{level.kind}-{level.size}")
def test_answers_take_the_same_links_back(level: Level) -> None:
    pairs = np.array(list(permutations(range(level.size), 2)))
    for source, target in pairs:
        forward, backward = (
            link_loads(level, np.array([a]), np.array([b]), np.array([1.0]))
            for a, b in ((source, target), (target, source))
        )
        if level.kind in (LinkKind.RING, LinkKind.TORUS):
            for size, ahead, back in zip(
                level.shape or (level.size,), forward, backward, strict=True
            ):
                if size == 2 and level.shape:  # the single link counts as that of the sender
                    assert ahead[0].sum() == pytest.approx(back[0].sum())
                else:
                    assert ahead == pytest.approx(back[::-1])
        else:
            assert forward == pytest.approx(backward.T)


def random_mesh(rng: random.Random) -> Mesh:
    """Return a mesh of up to 48 devices on one to three levels, mostly of this file's kinds."""
    while True:
        axes: dict[str, list[Factor]] = {"a": [], "b": []}
        levels: list[Level] = []
        devices = 1
        for name in "xyz"[: rng.randint(1, 3)]:
            sizes = [rng.choice([1, 2, 2, 3, 4, 6]) for _ in axes]
            if devices * math.prod(sizes) > 48:
                sizes = [1 for _ in sizes]
            devices *= math.prod(sizes)
            for factors, size in zip(axes.values(), sizes, strict=True):
                factors.append(Factor(name, size))
            size = math.prod(sizes)
            kinds = [kind for kind in kinds_of(size) if kind in ("uneven", "torus", "links")]
            kind = rng.choice(kinds if rng.random() < 0.8 else kinds_of(size))
            level = some_level(
                rng, name, size, rng.randint(1, 9) * 1e9, rng.randint(0, 9) * 1e-6, kind
            )
            taper = 2.0 if not level.ports and rng.random() < 0.2 else 1.0
            levels.append(replace(level, taper=taper))
        for index, level in enumerate(levels):
            below = math.prod(inner.size for inner in levels[index + 1 :])
            rails = rng.choice([n for n in (1, 1, 1, 2, 3) if below % n == 0])
            levels[index] = replace(level, rails=rails)
        if levels[0].size > 1 and rng.random() < 0.3:
            levels[0] = some_parents(rng, levels[0], "w")
        placed = tuple(Axis.placed(name, factors) for name, factors in axes.items())
        mesh = Mesh("m", Machine("m", tuple(levels)), placed)
        if mesh.sub_axes:
            return mesh


def check(rng: random.Random, compared: Counter[str]) -> None:
    """Check the times of all algorithms of a random step, and that none is below the bound."""
    mesh = random_mesh(rng)
    names = list(mesh.by_name)
    rng.shuffle(names)
    count = rng.randint(1, len(names))
    axes, beside = tuple(names[:count]), names[count:]
    root = frozenset(axis for axis in beside if rng.random() < 0.4)
    copied = frozenset(axis for axis in beside if axis not in root and rng.random() < 0.5)
    group, members = Group.of(mesh, axes, root), groups(mesh, axes, root)
    for kind, replicated in product(ALGORITHMS, {frozenset[str](), copied}):
        step = Collective(kind, mesh, axes, rng.choice([1.0, N, 1e9]), root, replicated)
        least = collective_bound(step).time
        for name, algorithm in ALGORITHMS[kind].items():
            meter = Meter(group)
            try:
                algorithm(meter, step.size)
            except CostError:  # not for this number of ranks, or on these links
                continue
            time = meter.estimate.time
            assert least <= time * (1 + 1e-9), (step, name)
            compared["bounds"] += 1
            network = Network(mesh, members)
            expected = None if replicated else time_of(network, kind, name, step.size, 0.0)
            if expected is not None:
                assert time == pytest.approx(expected, rel=1e-9), (step, name)
                port_bytes = pytest.approx(network.port_bytes(), rel=1e-9)
                assert meter.estimate.port_bytes == port_bytes
                compared["times"] += 1


@pytest.mark.turns
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32))
def test_times_are_those_of_all_messages_and_no_less_than_bounds(seed: int) -> None:
    check(random.Random(seed), Counter())


@pytest.mark.slow
def test_two_thousand_steps() -> None:
    rng, compared = fresh(35), Counter[str]()
    for _ in range(2000):
        check(rng, compared)
    assert compared["bounds"] > 50_000 and compared["times"] > 20_000
