"""Cuts by weights: against their definition, device by device, and what is refused."""

import itertools
import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from support.programs.collectives import RANDOM, random_mesh

from collir.layout import (
    Axis,
    Dim,
    DistType,
    DType,
    Factor,
    LayoutError,
    Mesh,
    MeshError,
    check_type,
)
from collir.layout.cuts import (
    Extent,
    block_size,
    cuts,
    extent_at,
    group_shares,
    is_even,
    places,
    undefined_cut,
    units,
)
from collir.layout.formulas import Formula
from collir.layout.sizes import sized
from collir.machine import Level, Machine
from collir.semantics.reference.devices import coordinate, groups, interval

MACHINE = Machine("c", (Level("node", 2, 1e9, 0), Level("gpu", 4, 1e9, 0)))
DATA = Axis.placed("data", [Factor("node", 2), Factor("gpu", 4)])
BOTH = ("data.node", "data.gpu")


def mesh_of(*weights: int) -> Mesh:
    """Return a mesh of one axis over all devices of MACHINE."""
    return Mesh("m", MACHINE, (DATA.weighted(weights),))


def coordinates_of(mesh: Mesh, rank: int) -> dict[str, int]:
    return {name: coordinate(mesh, rank, name) for name in mesh.by_name}


@given(rng=RANDOM)
@settings(max_examples=36)
def test_blocks_are_those_of_the_definition(rng: random.Random) -> None:
    mesh = random_mesh(rng, weights=1.0)
    axes = rng.sample(list(mesh.by_name), rng.randint(0, len(mesh.by_name)))
    if undefined_cut(mesh, axes):
        return
    size = units(mesh, axes) * rng.randint(1, 3)
    check_type(mesh, DistType(DType.F32, (Dim(size, tuple(axes)),)))
    block = block_size(mesh, size, axes)
    sizes: list[int] = []
    for rank in range(mesh.devices):
        at = coordinates_of(mesh, rank)
        begin, end = interval(mesh, rank, Dim(size, tuple(axes)))
        assert cuts(mesh, size, axes, at) == (begin, end)
        assert extent_at(mesh, block, at) == end - begin
        sizes.append(end - begin)
    assert int(block) == max(sizes)
    assert is_even(mesh, axes) == (len(set(sizes)) == 1)
    assert isinstance(block, Extent) == (len(set(sizes)) > 1)


@given(rng=RANDOM)
@settings(max_examples=36)
def test_groups_share_blocks(rng: random.Random) -> None:
    mesh = random_mesh(rng, weights=1.0)
    axes = rng.sample(list(mesh.by_name), rng.randint(0, len(mesh.by_name)))
    if not axes or undefined_cut(mesh, axes):
        return
    count = rng.randrange(len(axes))
    held, over = tuple(axes[:count]), tuple(axes[count:])
    shares = group_shares(mesh, held, over)
    size = units(mesh, axes)
    for group in groups(mesh, over):
        ends = [interval(mesh, rank, Dim(size, tuple(axes))) for rank in group]
        sizes = [end - begin for begin, end in ends]
        at = coordinates_of(mesh, group[0])
        index = 0
        for name in shares.rest if shares else ():
            index = index * mesh.by_name[name].size + at[name]
        row = shares.rows[index] if shares else (1,) * len(group)
        assert [Fraction(share, row[0]) for share in row] == [Fraction(n, sizes[0]) for n in sizes]


def test_a_dimension_divides_into_units_of_the_sums() -> None:
    mesh = mesh_of(3, 3, 1, 1, 1, 1, 1, 1)
    assert units(mesh, BOTH) == 12
    assert units(mesh, ("data.node",)) == 3  # 8 : 4
    assert int(block_size(mesh, 24, BOTH)) == 6
    assert [cuts(mesh, 24, BOTH[:1], {"data.node": at}) for at in (0, 1)] == [(0, 16), (16, 24)]


def test_a_part_of_an_axis_needs_weights_that_are_a_product() -> None:
    assert undefined_cut(mesh_of(3, 3, 1, 1, 1, 1, 1, 1), ("data.gpu",)) == ("data.gpu", BOTH)
    assert undefined_cut(mesh_of(6, 2, 2, 2, 3, 1, 1, 1), ("data.gpu",)) is None
    assert undefined_cut(mesh_of(6, 2, 2, 2, 3, 1, 1, 1), ("data.gpu", "data.node")) is None
    with pytest.raises(LayoutError, match="no product of weights"):
        check_type(mesh_of(3, 3, 1, 1, 1, 1, 1, 1), DistType(DType.F32, (Dim(24, ("data.gpu",)),)))


def test_groups_of_sub_axes_are_the_finest() -> None:
    """Check two sub-axes that belong together, beside one that factors out."""
    machine = Machine("c", tuple(Level(name, 2, 1e9, 0) for name in "abc"))
    axis = Axis.placed("x", [Factor(name, 2) for name in "abc"])
    outer, inner = (5, 1, 1, 2), (3, 1)
    weights = [  # x.a and x.c depend on each other, x.b does not
        outer[2 * a + c] * inner[b] for a, b, c in itertools.product(range(2), repeat=3)
    ]
    mesh = Mesh("m", machine, (axis.weighted(weights),))
    assert mesh.uneven["x.a"].groups == (("x.a", "x.c"), ("x.b",))
    assert undefined_cut(mesh, ("x.b", "x.a")) is None
    assert undefined_cut(mesh, ("x.a", "x.b", "x.c")) is None
    assert undefined_cut(mesh, ("x.b", "x.c")) == ("x.c", ("x.a", "x.c"))


def test_weights_have_no_common_divisor() -> None:
    assert DATA.weighted([6, 6, 2, 2, 2, 2, 2, 2]).weights == (3, 3, 1, 1, 1, 1, 1, 1)
    assert DATA.weighted([5] * 8) == DATA
    for wrong in ([1] * 7, [1] * 9, [0] + [1] * 7, [-1] + [2] * 7, []):
        with pytest.raises(MeshError, match="weight"):
            DATA.weighted(wrong)


def test_extents_keep_their_formula() -> None:
    mesh = mesh_of(3, 3, 1, 1, 1, 1, 1, 1)
    block = block_size(mesh, 24, BOTH)
    assert isinstance(block, Extent)
    for extent, times in ((block * 5, 5), (5 * block, 5), (-block, -1), (block + block, 2)):
        assert isinstance(extent, Extent)
        for rank in range(8):
            at = coordinates_of(mesh, rank)
            assert extent_at(mesh, extent, at) == times * extent_at(mesh, block, at)
    assert extent_at(mesh, (4 * block) // 2, coordinates_of(mesh, 7)) == 4
    with pytest.raises(ArithmeticError):
        _ = block + 1
    with pytest.raises(ArithmeticError):
        _ = block // 7


def test_an_extent_times_a_size_of_a_formula_is_an_extent() -> None:
    mesh = mesh_of(3, 3, 1, 1, 1, 1, 1, 1)
    block = block_size(mesh, 24, BOTH)
    size = sized(5, Formula.parameter("over"))
    for extent in (block * size, size * block):
        assert isinstance(extent, Extent)
        for rank in range(8):
            at = coordinates_of(mesh, rank)
            assert int(extent_at(mesh, extent, at)) == 5 * extent_at(mesh, block, at)


def test_a_hundred_thousand_weights_are_cut_one_after_the_other() -> None:
    rng = random.Random(1)
    weights = [rng.randint(1, 3) for _ in range(100_000)]
    machine = Machine("c", (Level("node", 1000, 1e9, 0), Level("gpu", 100, 1e9, 0)))
    data = Axis.placed("data", [Factor("node", 1000), Factor("gpu", 100)])
    mesh = Mesh("m", machine, (data.weighted(weights),))
    size = sum(weights)
    ends = [cuts(mesh, size, BOTH, at) for at in places(mesh, BOTH)]
    assert [end - begin for begin, end in ends] == weights
    assert all(end == begin for (_, end), (begin, _) in itertools.pairwise(ends))
