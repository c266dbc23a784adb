"""Levels whose parents differ in size; ``test_topologies`` and ``test_events`` have random ones."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cost.calibrations import samples
from support.machine.machine_graphs import machine_graph, reduce_scatter_bound

from collir.cost.bounds import collective_bound
from collir.cost.calibration import calibrate
from collir.cost.collectives.collective import Collective
from collir.cost.collectives.table import COSTS
from collir.cost.model import CostModel, step_cost
from collir.cost.network.cuts import all_gather_bound, all_reduce_bound
from collir.cost.network.group import CostError
from collir.layout import Axis, Factor, Mesh
from collir.machine import Fabric, Level, Machine, MachineError, Parents

CUTS = {
    "all_gather": all_gather_bound,
    "reduce_scatter": reduce_scatter_bound,
    "all_reduce": all_reduce_bound,
}
BYTES = st.sampled_from([1.0, 1e4, 1e9])


def listed(counts: tuple[int, ...], port: float = 4e9) -> Machine:
    """Return a machine with a node of each of these numbers of GPUs."""
    node = Level("node", len(counts), port, 9e-6, fabric=Fabric.NETWORK)
    gpu = Level("gpu", sum(counts), 7e9, 2e-6, fabric=Fabric.NVLINK, parents=Parents(node, counts))
    return Machine("m", (gpu,))


def seconds(mesh: Mesh, kind: str, axis: str, size: float, model: CostModel) -> float:
    """Return the time of a collective over an axis or a sub-axis; nan for an algorithm that needs
    another number of ranks."""
    subs = mesh.of_axis.get(axis, (axis,))
    try:
        return step_cost(Collective(kind, mesh, subs, size), model).time
    except CostError:
        return math.nan


@pytest.mark.turns
@pytest.mark.parametrize("kind", [kind for kind, entry in COSTS.items() if not entry.listed])
@settings(max_examples=15)
@given(nodes=st.integers(2, 5), gpus=st.integers(1, 4), size=BYTES)
def test_nodes_of_equal_sizes_are_a_level(kind: str, nodes: int, gpus: int, size: float) -> None:
    """A list of equal sizes costs what two levels cost, by every algorithm that is no tree."""
    (with_list,) = listed((gpus,) * nodes).levels
    assert with_list.parents
    regular = Machine("r", (with_list.parents.level, Level("gpu", gpus, 7e9, 2e-6)))
    one = Mesh("a", listed((gpus,) * nodes), (Axis.placed("a", [Factor("gpu", nodes * gpus)]),))
    apart = (Axis.placed("a", [Factor("gpu", nodes)]), Axis.placed("b", [Factor("gpu", gpus)]))
    two = Mesh("b", one.machine, apart)
    plain = Mesh("c", regular, (Axis.placed("a", [Factor("node", nodes), Factor("gpu", gpus)]),))
    models = [CostModel("p2"), CostModel("nccl")]
    models += [CostModel("alpha-beta", name) for name in COSTS[kind].algorithms]
    for model in models:
        if model.algorithm in ("pairwise", "hierarchical") or "tree" in model.algorithm:
            continue  # pairs go by sub-axis, rings by level, and trees are refused
        expected = seconds(plain, kind, "a", size, model)
        assert seconds(one, kind, "a", size, model) == pytest.approx(expected, nan_ok=True)
        for axis, sub in (("a", "a.node"), ("b", "a.gpu")):
            if sub in plain.by_name:
                expected = seconds(plain, kind, sub, size, model)
                time = seconds(two, kind, axis, size, model)
                assert time == pytest.approx(expected, nan_ok=True)


def test_groups_inside_nodes_do_not_use_their_ports() -> None:
    axes = (Axis.placed("a", [Factor("gpu", 5)]), Axis.placed("b", [Factor("gpu", 4)]))
    slow, fast = (Mesh("m", listed((8, 8, 4), port), axes) for port in (1e3, 1e12))
    for kind in ("all_reduce", "all_to_all"):
        inside = [seconds(mesh, kind, "b", 1e6, CostModel()) for mesh in (slow, fast)]
        across = [seconds(mesh, kind, "a", 1e6, CostModel()) for mesh in (slow, fast)]
        assert inside[0] == inside[1]
        assert across[0] > 1e6 * across[1]


def test_the_first_children_keep_their_nodes() -> None:
    (level,) = listed((8, 8, 4)).levels
    assert level.first(5).parents is None
    parts = level.first(18).parents
    assert parts and parts.children == (8, 8, 2) and parts.level.size == 3
    parts = level.first(16).parents
    assert parts and parts.children == (8, 8) and parts.level.size == 2


def test_parents_are_of_all_children() -> None:
    node = Level("node", 2, 1e9, 0)
    with pytest.raises(MachineError, match="those of its parents add up to 12"):
        Level("gpu", 11, 1e9, 0, parents=Parents(node, (8, 4)))


def test_calibration_tells_the_ports_of_nodes_from_those_inside() -> None:
    true = listed((3, 2))
    model = CostModel("alpha-beta", order="written", algorithm="ring")
    measured = [
        sample
        for machine in (true, true.first([3]))
        for sample in samples(machine, model, ["all_gather"])
    ]
    (level,) = true.levels
    assert level.parents
    node = replace(level.parents.level, port=1e9, latency=1e-6)
    start = replace(level, port=3e9, latency=1e-6, parents=replace(level.parents, level=node))
    fit = calibrate(replace(true, levels=(start,)), measured, model)
    found = {parameter.name: parameter.value for parameter in fit.parameters}
    expected = {"node.port": 4e9, "node.latency": 9e-6, "gpu.port": 7e9, "gpu.latency": 2e-6}
    assert found == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_reduce"])
@settings(max_examples=10)
@given(counts=st.lists(st.integers(1, 4), min_size=2, max_size=4), port=st.integers(1, 9))
def test_bounds_are_no_more_than_cuts(kind: str, counts: list[int], port: int) -> None:
    machine = listed(tuple(counts), port * 1e9)
    mesh = Mesh("m", machine, (Axis.placed("a", [Factor("gpu", machine.devices)]),))
    closed = collective_bound(Collective(kind, mesh, mesh.of_axis["a"], 1e6)).bandwidth
    cut = CUTS[kind](machine_graph(machine), range(machine.devices), 1e6)
    assert 0.5 * cut <= closed <= cut * (1 + 1e-12)
