"""The textbook formulas on one level, check values of NCCL, and effects of the order of ranks."""

import math
from collections.abc import Callable

import pytest
from support.cost.algorithms import ALGORITHMS

import collir
from collir.algorithms.table import PIPELINES
from collir.cost.collectives import nccl
from collir.cost.collectives.collective import Collective
from collir.cost.collectives.meter import Meter
from collir.cost.collectives.table import COSTS
from collir.cost.model import CostModel, step_cost
from collir.cost.network.group import CostError, Group
from collir.layout import Axis, Factor, Mesh
from collir.layout.algorithm_names import AlgorithmName
from collir.layout.coll import STEPS
from collir.machine import Device, Fabric, Level, LinkKind, Machine
from collir.syntax.machines import shipped
from collir.tools.machine import preset

A, B, G = 3e-6, 1 / 10e9, 1 / 40e9
N = 1e6

Formula = Callable[[int, float], float]


def lg(p: int) -> int:
    return (p - 1).bit_length()


FORMULAS: dict[tuple[str, str], Formula] = {
    ("all_gather", "ring"): lambda p, n: (p - 1) * A + n * (p - 1) / p * B,
    ("all_gather", "recursive_doubling"): lambda p, n: lg(p) * A + n * (p - 1) / p * B,
    ("all_gather", "bruck"): lambda p, n: lg(p) * A + n * (p - 1) / p * B,
    ("all_gather", "pat"): lambda p, n: lg(p) * A + n * (p - 1) / p * B,
    ("reduce_scatter", "pat"): lambda p, n: lg(p) * A + n * (p - 1) / p * (B + G),
    ("reduce_scatter", "recursive_halving"): lambda p, n: lg(p) * A + n * (p - 1) / p * (B + G),
    ("reduce_scatter", "pairwise"): lambda p, n: (p - 1) * A + n * (p - 1) / p * (B + G),
    ("reduce_scatter", "ring"): lambda p, n: (p - 1) * A + n * (p - 1) / p * (B + G),
    ("all_reduce", "recursive_doubling"): lambda p, n: lg(p) * (A + n * B + n * G),
    ("all_reduce", "halving_doubling"): lambda p, n: (
        2 * lg(p) * A + 2 * n * (p - 1) / p * B + n * (p - 1) / p * G
    ),
    ("all_reduce", "ring"): lambda p, n: (
        2 * (p - 1) * A + 2 * n * (p - 1) / p * B + n * (p - 1) / p * G
    ),
    ("all_to_all", "bruck"): lambda p, n: lg(p) * A + n / 2 * lg(p) * B,
    ("all_to_all", "pairwise"): lambda p, n: (p - 1) * A + n * (p - 1) / p * B,
    ("all_to_all", "direct"): lambda p, n: (p - 1) * A + n * (p - 1) / p * B,
    ("broadcast", "binomial"): lambda p, n: lg(p) * (A + n * B),
    ("broadcast", "scatter_all_gather"): lambda p, n: (lg(p) + p - 1) * A + 2 * n * (p - 1) / p * B,
    ("reduce", "binomial"): lambda p, n: lg(p) * (A + n * B + n * G),
    ("gather", "binomial"): lambda p, n: lg(p) * A + n * (p - 1) / p * B,
    ("scatter", "binomial"): lambda p, n: lg(p) * A + n * (p - 1) / p * B,
}


def one_level(p: int, **settings: object) -> Mesh:
    level = Level("gpu", p, 1 / B, A, **settings)  # pyright: ignore[reportArgumentType]
    machine = Machine("one", (level,), Device(reduction=1 / G))
    return Mesh("m", machine, (Axis.placed("data", [Factor("gpu", p)]),))


def two_levels(nodes: int, gpus: int, hop: float = 14e-6, **fabric: Fabric) -> Mesh:
    node = Level("node", nodes, 25e9, hop, fabric=fabric.get("node"))
    gpu = Level("gpu", gpus, 300e9, 3.4e-6, fabric=fabric.get("gpu"))
    data = Axis.placed("data", [Factor("node", nodes), Factor("gpu", gpus)])
    return Mesh("m", Machine("two", (node, gpu)), (data,))


def estimate(mesh: Mesh, kind: str, name: str, size: float = N) -> float:
    meter = Meter(Group.of(mesh, tuple(mesh.by_name)))
    ALGORITHMS[kind][name](meter, size)
    return meter.estimate.time


@pytest.mark.parametrize("p", [2, 4, 8, 64, 2**17])
@pytest.mark.parametrize(("kind", "name"), FORMULAS)
def test_the_formulas_of_the_field(kind: str, name: str, p: int) -> None:
    assert estimate(one_level(p), kind, name) == pytest.approx(FORMULAS[kind, name](p, N))


def test_the_names_are_those_that_a_program_can_ask_for() -> None:
    for kind, entry in COSTS.items():
        assert tuple(entry.algorithms) == STEPS[kind].algorithms


@pytest.mark.parametrize("p", [3, 6, 12])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("all_gather", "recursive_doubling"),
        ("reduce_scatter", "recursive_halving"),
        ("reduce", "halving_doubling"),
    ],
)
def test_what_needs_a_power_of_two_says_so(kind: str, name: str, p: int) -> None:
    with pytest.raises(CostError, match=r"2\^k ranks"):
        estimate(one_level(p), kind, name)


def test_a_chain_takes_its_best_number_of_segments() -> None:
    p, n = 10, 1e8
    segments = math.sqrt((p - 2) * n * B / A)
    best = min((p - 2 + k) * (A + n * B / k) for k in (math.floor(segments), math.ceil(segments)))
    assert estimate(one_level(p), "broadcast", "chain", n) == pytest.approx(best)


@pytest.mark.parametrize("p", [2, 3, 4, 9, 1000])
def test_trees_take_the_latency_of_their_height_and_their_bytes(p: int) -> None:
    buffers = {2: 1.0, 3: 1.5}.get(p, 2.0)
    expected = 2 * lg(p) * A + buffers * N * B + N * G
    assert estimate(one_level(p), "all_reduce", "double_binary_tree") == pytest.approx(expected)
    assert estimate(one_level(p), "broadcast", "double_binary_tree") == pytest.approx(
        lg(p) * A + N * B
    )


def test_a_double_tree_carries_over_a_nic_what_was_measured() -> None:
    """A port carries 1 buffer on two nodes, 1.5 on three, and 2 on four and more."""
    for nodes, buffers in ((2, 1.0), (3, 1.5), (4, 2.0), (8, 2.0)):
        meter = Meter(Group.of(two_levels(nodes, 8), ("data.node", "data.gpu")))
        ALGORITHMS["all_reduce"]["double_binary_tree"](meter, N)
        assert meter.estimate.port_bytes[0] == pytest.approx(buffers * N)


def test_the_order_of_ranks_counts() -> None:
    """The bytes through a NIC of 4 nodes of 8 GPUs depend on the order of the ranks."""
    mesh, size = two_levels(4, 8), N

    def nic(order: tuple[str, str], kind: str, name: str) -> float:
        meter = Meter(Group.of(mesh, order))
        ALGORITHMS[kind][name](meter, size)
        return meter.estimate.port_bytes[0] / size

    major, reverse = ("data.node", "data.gpu"), ("data.gpu", "data.node")
    assert nic(major, "all_reduce", "ring") == pytest.approx(2 * 31 / 32)
    assert nic(reverse, "all_reduce", "ring") == pytest.approx(8 * 2 * 31 / 32)
    assert nic(major, "all_reduce", "halving_doubling") == pytest.approx(2 * 3 / 4)
    assert nic(reverse, "all_reduce", "halving_doubling") == pytest.approx(8 * 2 * 3 / 4)
    assert nic(major, "reduce_scatter", "recursive_halving") == pytest.approx(8 * 3 / 4)
    assert nic(reverse, "reduce_scatter", "recursive_halving") == pytest.approx(3 / 4)


@pytest.mark.parametrize(
    ("settings", "times"),
    [({"kind": LinkKind.RING}, 4.0), ({"kind": LinkKind.FULL}, 7.0), ({"taper": 2.0}, 2.0)],
    ids=["ring", "full", "taper"],
)
def test_strided_pairs_inside_a_level(settings: dict[str, object], times: float) -> None:
    """The pairs (0, 4), (1, 5) ... of eight children share the links on their way."""
    level = Level("gpu", 8, 1 / B, 0.0, **settings)  # pyright: ignore[reportArgumentType]
    axes = (Axis.placed("a", [Factor("gpu", 2)]), Axis.placed("b", [Factor("gpu", 4)]))
    mesh = Mesh("m", Machine("one", (level,)), axes)
    meter = Meter(Group.of(mesh, ("a.gpu",)))
    ALGORITHMS["all_gather"]["recursive_doubling"](meter, N)
    assert meter.estimate.time == pytest.approx(times * N / 2 * B)


def test_one_rail_of_eight() -> None:
    """If one GPU of each node takes part, it has only its own NIC of the node's eight."""
    node, gpu = Level("node", 2, 8 / B, 0.0, rails=8), Level("gpu", 8, 100 / B, 0.0)
    axes = (Axis.placed("a", [Factor("node", 2)]), Axis.placed("b", [Factor("gpu", 8)]))
    mesh = Mesh("m", Machine("two", (node, gpu)), axes)
    for at_root, rails in ((frozenset[str](), 8), (frozenset({"b.gpu"}), 1)):
        meter = Meter(Group.of(mesh, ("a.node",), at_root))
        ALGORITHMS["all_gather"]["ring"](meter, N)
        groups = 8 if rails == 8 else 1
        assert meter.estimate.time == pytest.approx(groups * N / 2 * B / rails)


def test_the_program_chooses_then_the_runtime_or_the_cheapest() -> None:
    mesh = one_level(8)
    axes = tuple(mesh.by_name)
    small, large = (
        Collective("all_reduce", mesh, axes, 1e3),
        Collective("all_reduce", mesh, axes, N),
    )
    asked = Collective("all_reduce", mesh, axes, N, algorithm="direct")
    runtime = CostModel("alpha-beta", order="written", algorithm="runtime")
    assert step_cost(small, runtime).algorithm == "recursive_doubling"
    assert step_cost(large, runtime).algorithm == "halving_doubling"
    assert step_cost(asked, runtime).algorithm == "direct"
    assert (
        step_cost(large, CostModel("alpha-beta", order="written", algorithm="ring")).algorithm
        == "ring"
    )
    cheapest = step_cost(large, CostModel("alpha-beta", order="written"))
    assert cheapest.time == min(estimate(mesh, "all_reduce", n) for n in ALGORITHMS["all_reduce"])


@pytest.mark.parametrize("kind", ["broadcast", "reduce", "all_reduce"])
def test_no_pipeline_of_code_takes_less_than_a_tree_of_messages(kind: str) -> None:
    """A rank of a tree sends to several at a time; data reach p ranks in lg p latencies at best."""
    for p in range(2, 40):
        mesh = one_level(p)
        for of, name in PIPELINES:
            step = Collective(kind, mesh, tuple(mesh.by_name), 1.0, algorithm=name)
            if of == kind:
                cost = step_cost(step, CostModel("alpha-beta", order="written"))
                assert cost.time >= lg(p) * A and cost.time >= cost.bound * (1 - 1e-9)


def test_sends_together_take_the_latencies_of_a_tree() -> None:
    for p in range(2, 12):
        sends = "".join(f" send block 0 to {rank} if r == 0" for rank in range(1, p))
        text = f"algorithm @star broadcast(r of n) blocks 1 {{ together {{{sends} }} }}"
        mesh = one_level(p)
        own = AlgorithmName("@star", "broadcast", text)
        step = Collective("broadcast", mesh, tuple(mesh.by_name), 1.0, algorithm=own)
        cost = step_cost(step, CostModel("alpha-beta", order="written"))
        assert cost.time == pytest.approx(lg(p) * A + (p - 1) * B)
        assert cost.time >= cost.bound * (1 - 1e-9)


def test_a_ring_that_code_has_is_in_the_order_of_its_ranks() -> None:
    """A library lays rings along the links of a DGX-1; code has one in either direction."""
    levels = preset("dgx1_v100").op.value().levels
    machine = Machine("one", (levels[1],))
    mesh = Mesh("m", machine, (Axis.placed("d", [Factor("gpu", 8)]),))
    model = CostModel("alpha-beta", "ring", order="written")
    times: dict[str | None, float] = {}
    for asked in (None, "ring"):
        step = Collective("all_reduce", mesh, tuple(mesh.by_name), 1e8, algorithm=asked)
        times[asked] = step_cost(step, model).time
    assert times["ring"] > 1.5 * times[None]


@pytest.mark.parametrize("kind", list(ALGORITHMS))
@pytest.mark.parametrize("model", ["alpha-beta", "p2", "nccl"])
def test_every_model_costs_every_collective(model: str, kind: str) -> None:
    for mesh in (one_level(6), two_levels(3, 4)):
        for size in (1.0, 1e3, 1e9):
            collective = Collective(kind, mesh, tuple(mesh.by_name), size)
            cost = step_cost(collective, CostModel(model))
            assert 0 < cost.time < math.inf
            assert cost.bound <= cost.time * (1 + 1e-9)


# ---------------------------------------------------------------------------------------------
# NCCL
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ranks", "algorithm", "times"),
    [
        (8, nccl.RING, (15.0, 40.6, 56.0)),
        (8, nccl.TREE, (15.2, 31.5, 64.4)),
        (16, nccl.RING, (40.0, 75.2, 131.6)),
        (16, nccl.TREE, (25.2, 48.5, 92.4)),
        (32, nccl.RING, (78.8, 144.4, 282.8)),
        (32, nccl.TREE, (35.2, 65.5, 120.4)),
    ],
)
def test_latencies_of_nccl(ranks: int, algorithm: str, times: tuple[float, ...]) -> None:
    """The check values are for eight GPUs per node on Intel hosts, in microseconds."""
    for protocol, expected in zip(("LL", "LL128", "Simple"), times, strict=True):
        own = nccl.latencies(algorithm, protocol, "all_reduce", ranks, ranks // 8, Fabric.NVLINK)
        assert sum(own) * 1e6 == pytest.approx(expected, abs=0.05)


def test_nccl_takes_trees_for_small_and_rings_for_large_buffers() -> None:
    group = Group.of(two_levels(4, 8), ("data.node", "data.gpu"))
    assert nccl.estimate("all_reduce", group, 8.0).algorithm == "double_binary_tree/LL"
    large = nccl.estimate("all_reduce", group, 1e9)
    assert large.algorithm == "ring/Simple"
    back = 2 * (14e-6 - 3.4e-6)  # from the last node to the first, in both rounds
    assert large.time == pytest.approx(282.8e-6 + back + 35e-6 + 2 * 31 / 32 * 1e9 / 25e9)


def test_nccl_asks_the_fabric_what_a_node_is() -> None:
    """Two levels of NVLink are one node."""
    apart, together = two_levels(2, 8), two_levels(2, 8, 3.4e-6, node=Fabric.NVLINK)
    axes = ("data.node", "data.gpu")
    two_nodes = nccl.estimate("all_reduce", Group.of(apart, axes), 8.0)
    assert two_nodes.time * 1e6 == pytest.approx(25.2, abs=0.01)
    one_node = nccl.estimate("all_reduce", Group.of(together, axes), 8.0)
    assert one_node.time * 1e6 == pytest.approx(min(6.8 + 2 * 15 * 0.6, 6.6 + 30 * 0.6), abs=0.01)


def test_nccl_has_no_other_algorithms() -> None:
    group = Group.of(two_levels(2, 8), ("data.gpu",))
    with pytest.raises(CostError, match="NCCL's model has no bruck for all_gather"):
        nccl.estimate("all_gather", group, N, "bruck")


def test_every_shipped_machine_has_a_cost_under_every_model() -> None:
    for name in shipped():
        levels = preset(name).op.value().levels
        axis = " * ".join(f"{level.name}:{level.size}" for level in levels)
        module = collir.parse(f"""
            machine @q = @{name}
            mesh @m on @q {{ d = {axis} }}
            func @f(%g: f32[8388608] partial(sum: d)) -> f32[8388608] on @m {{
              %r = all_reduce %g over d
              return %r
            }}
        """)
        for model in ("alpha-beta", "p2", "nccl"):
            [cost] = collir.simulate(module, model=model)
            assert 0 < cost.bound <= cost.time * (1 + 1e-9)


def test_models_with_fixed_algorithms_refuse_others() -> None:
    for model in ("p2", "nccl"):
        with pytest.raises(ValueError, match=f"the model {model} has no algorithm but ring"):
            CostModel(model, "bruck")
    mesh = two_levels(4, 8)
    step = Collective("all_reduce", mesh, tuple(mesh.by_name), 8.0)
    assert step_cost(step, CostModel("nccl", "ring")).algorithm == "ring/LL"


def test_busbw_is_that_of_nccl_tests() -> None:
    assert COSTS["all_reduce"].busbw(4) == 1.5
    assert COSTS["all_gather"].busbw(4) == 0.75
    assert COSTS["broadcast"].busbw(4) == 1
    mesh = one_level(4)
    step = Collective("all_reduce", mesh, tuple(mesh.by_name), 1e9)
    assert (step.algbw(0.5), step.busbw(0.5)) == (2e9, 3e9)


# ---------------------------------------------------------------------------------------------
# P²
# ---------------------------------------------------------------------------------------------


def test_p2_counts_only_bytes_over_bandwidth() -> None:
    """The mesh is [[2 2] [1 8]] on two nodes of 16 GPUs with one NIC; 2 GiB, summed over axis 0."""
    node, gpu = Level("node", 2, 8e9, 20e-6), Level("gpu", 16, 270e9, 3e-6)
    axes = (
        Axis.placed("a", [Factor("node", 2), Factor("gpu", 2)]),
        Axis.placed("b", [Factor("gpu", 8)]),
    )
    mesh = Mesh("m", Machine("a100", (node, gpu), Device(reduction=1e9)), axes)
    size = 2.0 * 2**30
    for over in (("a.node", "a.gpu"), ("a.gpu", "a.node")):
        step = step_cost(Collective("all_reduce", mesh, over, size), CostModel("p2"))
        assert step.time == pytest.approx(8 * 2 * 3 / 4 * size / 8e9)
    inside = step_cost(Collective("all_reduce", mesh, ("a.gpu",), size), CostModel("p2"))
    assert inside.time == pytest.approx(size / 270e9)
    ring = Level("gpu", 8, 135e9, 3e-6, LinkKind.RING)
    v100 = Mesh("m", Machine("v100", (ring,)), (Axis.placed("a", [Factor("gpu", 8)]),))
    around = step_cost(Collective("broadcast", v100, ("a.gpu",), size), CostModel("p2"))
    assert around.time == pytest.approx(size / 135e9)
    down = step_cost(Collective("broadcast", mesh, ("a.node",), size), CostModel("p2"))
    assert down.time == pytest.approx(16 * size / 8e9)
