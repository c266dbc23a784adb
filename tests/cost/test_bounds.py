"""The lower bounds in closed form: no algorithm beats them, and they cost little."""

import itertools

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from machines import meshes, steps

from collir.cost.algorithms import ALGORITHMS
from collir.cost.bounds import bound
from collir.cost.collective import Collective
from collir.cost.group import CostError, Group
from collir.cost.model import CostModel, run, step_cost
from collir.layout import Axis, Dim, DistType, DType, Factor, Mesh
from collir.machine import Device, Level, Machine

KINDS = [(kind, name) for kind, names in ALGORITHMS.items() for name in names]


@st.composite
def collectives(draw: st.DrawFn, kind: str) -> Collective:
    """A collective on a random machine; of the sub-axes beside it, some are at root, on some the
    operand is replicated, and over the others it is distributed."""
    mesh, axes, root = draw(steps())
    beside = [axis for axis in mesh.by_name if axis not in axes and axis not in root]
    replicated = frozenset(axis for axis in beside if draw(st.booleans()))
    return Collective(kind, mesh, axes, draw(sizes), root, replicated)


sizes = st.sampled_from([1.0, 720.0, 720720.0, 1e9])


@st.composite
def permutes(draw: st.DrawFn) -> Collective:
    """A permute between random layouts with equal numbers of shards."""
    mesh = draw(meshes().filter(lambda mesh: mesh.sub_axes))
    names = draw(st.permutations(list(mesh.by_name)))
    states = {name: draw(st.sampled_from("RSSOM")) for name in names}
    at_root = frozenset(name for name in names if states[name] == "M")
    free = [name for name in names if states[name] in "RS"]
    count = draw(st.integers(0, len(free)))
    split = draw(st.integers(0, count))
    held = tuple(free[:split]), tuple(free[split:count])
    found = [
        (tuple(order[:i]), tuple(order[i:j]))
        for order in itertools.permutations(free)
        for j in range(len(order) + 1)
        for i in range(j + 1)
    ]
    shards = [mesh.group_size(axes) for axes in held]
    fits = [each for each in found if [mesh.group_size(axes) for axes in each] == shards]
    wanted = draw(st.sampled_from(fits))
    moves = tuple(
        DistType(
            DType.F32,
            tuple(Dim(mesh.devices, axes) for axes in each),
            root=at_root,
        )
        for each in (held, wanted)
    )
    axes = mesh.ordered({axis for each in (*held, *wanted) for axis in each})
    assume(axes)
    distributed = {name for name in names if states[name] == "O"}
    replicated = frozenset(names) - set(axes) - at_root - distributed
    first, second = moves
    return Collective(
        "permute", mesh, axes, draw(sizes), at_root, replicated, moves=(first, second)
    )


@pytest.mark.parametrize(("kind", "name"), KINDS)
@settings(max_examples=1500, deadline=None)
@given(data=st.data())
def test_no_algorithm_is_faster(kind: str, name: str, data: st.DataObject) -> None:
    collective = data.draw(collectives(kind))
    group = Group.of(collective.mesh, collective.axes, collective.at_root)
    try:
        time = run(collective, group, name).time
    except CostError:  # not for this number of ranks, or this kind of level
        return
    assert bound(collective).time <= time * (1 + 1e-9)


@settings(max_examples=5000, deadline=None)
@given(collective=permutes())
def test_no_permute_is_faster(collective: Collective) -> None:
    assert bound(collective).time <= step_cost(collective, CostModel()).time * (1 + 1e-9)


def level(size: int, port: float = 1e9, name: str = "x", **options: float) -> Level:
    return Level(name, size, port, 1e-6, taper=options.get("taper", 1.0))


def mesh_on(*levels: Level, device: Device | None = None) -> Mesh:
    """A mesh with one axis ``d`` over all levels."""
    axis = Axis.placed("d", [Factor(each.name, each.size) for each in levels])
    return Mesh("m", Machine("m", levels, device), (axis,))
