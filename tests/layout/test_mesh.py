"""Meshes: placements, sub-axes, and the coordinates of devices."""

import itertools
import random

import pytest
from hypothesis import given, settings
from support.programs.collectives import RANDOM, random_mesh

from collir.layout import Axis, Factor, Mesh, MeshError
from collir.machine import Level, Machine
from collir.semantics.reference.devices import coordinate, groups, index_in

MACHINE = Machine("c", (Level("node", 4, 1e9, 0), Level("gpu", 16, 1e9, 0)))


def placed(**axes: dict[str, int]) -> Mesh:
    """Return a mesh on MACHINE."""
    return Mesh(
        "m",
        MACHINE,
        tuple(
            Axis.placed(name, [Factor(level, size) for level, size in factors.items()])
            for name, factors in axes.items()
        ),
    )


MESH = placed(data={"node": 4, "gpu": 2}, model={"gpu": 8})


def test_sub_axes_are_the_factors_above_one() -> None:
    assert list(MESH.by_name) == ["data.node", "data.gpu", "model.gpu"]
    assert MESH.of_axis == {"data": ("data.node", "data.gpu"), "model": ("model.gpu",)}
    alone = placed(data={"node": 4, "gpu": 16}, model={"gpu": 1})
    assert alone.of_axis["model"] == ()


def test_within_a_level_the_first_declared_axis_is_most_significant() -> None:
    # rank = node * 16 + data.gpu * 8 + model.gpu
    assert {name: sub.stride for name, sub in MESH.by_name.items()} == {
        "data.node": 16,
        "data.gpu": 8,
        "model.gpu": 1,
    }
    rank = 3 * 16 + 1 * 8 + 5
    assert [coordinate(MESH, rank, name) for name in MESH.by_name] == [3, 1, 5]


def test_an_unplaced_axis_is_one_sub_axis_named_after_it() -> None:
    mesh = Mesh("m", MACHINE, (Axis("data", 8), Axis("model", 8)))
    assert list(mesh.by_name) == ["data", "model"]
    assert mesh.by_name["data"].stride == 8


def test_whole_axes_are_written_by_their_name() -> None:
    assert MESH.short(("data.node", "data.gpu", "model.gpu")) == ("data", "model")
    assert MESH.short(("data.gpu", "data.node")) == ("data.gpu", "data.node")
    assert MESH.short(("model.gpu", "data.gpu")) == ("model", "data.gpu")


@given(rng=RANDOM)
@settings(max_examples=36)
def test_coordinates_are_a_bijection_and_groups_a_partition(rng: random.Random) -> None:
    mesh = random_mesh(rng)
    names = list(mesh.by_name)
    places = {tuple(coordinate(mesh, r, a) for a in names) for r in range(mesh.devices)}
    sizes = [range(mesh.by_name[a].size) for a in names]
    assert places == set(itertools.product(*sizes))
    for count in range(1, len(names) + 1):
        axes = names[:count]
        all_groups = groups(mesh, axes)
        assert sorted(r for g in all_groups for r in g) == list(range(mesh.devices))
        for group in all_groups:
            assert len(group) == mesh.group_size(axes)
            assert [index_in(mesh, rank, axes) for rank in group] == list(range(len(group)))


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"data": {"node": 4, "gpu": 3}}, "level 'gpu' multiply to 3, but the level has 16"),
        ({"data": {"gpu": 16, "node": 4}}, r"outermost first: node:4 \* gpu:16"),
        ({"data": {"rack": 4}}, "no level 'rack' .its levels are node, gpu"),
    ],
)
def test_impossible_placements(axes: dict[str, dict[str, int]], message: str) -> None:
    with pytest.raises(MeshError, match=message):
        placed(**axes)


def test_unplaced_sizes_multiply_to_no_more_than_the_devices() -> None:
    with pytest.raises(MeshError, match="multiply to 80, but machine @c has 64 devices"):
        Mesh("m", MACHINE, (Axis("data", 20), Axis("model", 4)))


def test_an_unplaced_mesh_may_be_smaller_than_its_machine() -> None:
    mesh = Mesh("m", MACHINE, (Axis("data", 8), Axis("model", 3)))
    assert mesh.devices == 24


def test_all_axes_are_placed_or_none() -> None:
    axes = (Axis.placed("data", [Factor("node", 4), Factor("gpu", 16)]), Axis("model", 1))
    with pytest.raises(MeshError, match="places only some of its axes"):
        Mesh("m", MACHINE, axes)


def test_axis_names_are_distinct() -> None:
    with pytest.raises(MeshError, match="two axes named 'a'"):
        Mesh("m", MACHINE, (Axis("a", 8), Axis("a", 8)))
