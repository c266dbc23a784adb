"""Placements: all of them, costed as if written by hand; none changes a result."""

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from math import prod

import pytest
from checks import agree, functions_of, results_on_all_devices
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import (
    RANDOM,
    FunctionBuilder,
    Move,
    axis_moves,
    module_of,
    random_function,
    random_layout,
    random_mesh,
)
from topologies import kinds_of, some_level
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import collir
from collir.cost.model import CostModel
from collir.dialects import coll
from collir.dialects.coll import OPERATIONS
from collir.dialects.machine import mesh_of
from collir.dialects.tensor import DistTensorType
from collir.ir.verification import verify
from collir.layout import Axis, Dim, DistType, Mesh
from collir.layout.numbers import divisors
from collir.machine import Level, LinkKind, Machine
from collir.search import k_best
from collir.syntax.reader import read
from collir.syntax.writer import write
from collir.synthesis.p2.matrices import count
from collir.synthesis.placement.meshes import unplaced_meshes
from collir.synthesis.placement.placements import (
    PartialMatrix,
    PlacementProblem,
    best_placements,
    functions_on,
)
from collir.tools.api import run_passes

TWO = """\
machine @cluster {
  level node[4] { port =   8 GB/s, latency = 20 us }
  level gpu[4]  { port = 270 GB/s, latency =  3 us }
}
mesh @m on @cluster { data = 4, model = 4 }
func @grads(%g: f32[1048576, 64@model] partial(sum: data)) -> f32[1048576, 64@model] on @m {
  %r = all_reduce %g over data
  return %r
}
func @acts(%x: f32[4096@data, 1024] partial(sum: model)) -> f32[4096@data, 1024] on @m {
  %r = all_reduce %x over model
  return %r
}
"""


def without_placement(mesh: Mesh) -> Mesh:
    return Mesh(mesh.name, mesh.machine, tuple(Axis(axis.name, axis.size) for axis in mesh.axes))


def random_program(rng: random.Random) -> ModuleOp:
    """Two functions on a mesh that has no placement yet."""
    mesh = without_placement(random_mesh(rng))
    return module_of([mesh], [random_function(rng, mesh, 5, f"f{i}") for i in range(2)])


@given(rng=RANDOM)
@settings(max_examples=25, deadline=None, derandomize=True)
def test_placing_changes_no_result(rng: random.Random) -> None:
    before = read(write(random_program(rng)), "x.coll")
    after = run_passes(before.clone(), "place")
    verify(after)
    assert not unplaced_meshes(after)
    assert write(read(write(after))) == write(after)
    for old, new in zip(functions_of(before), functions_of(after), strict=True):
        assert agree(
            results_on_all_devices(after, new, seed=3),
            results_on_all_devices(before, old, seed=3),
            mesh_of(old).devices,
        )


def by_hand(mesh: Mesh) -> list[tuple[tuple[int, ...], ...]]:
    """All tables of factors that make a mesh, by trying all tables of small numbers."""
    levels, axes = mesh.machine.levels, mesh.axes
    found: list[tuple[tuple[int, ...], ...]] = []
    divisors = [n for n in range(1, mesh.devices + 1) if mesh.devices % n == 0]
    rows = [
        [row for row in product(divisors, repeat=len(levels)) if prod(row) == axis.size]
        for axis in axes
    ]
    sizes = [level.size for level in levels]
    for table in product(*rows):
        if [prod(column) for column in zip(*table, strict=True)] == sizes:
            found.append(table)
    return found


@given(rng=RANDOM, model=st.sampled_from(["alpha-beta", "p2"]))
@settings(max_examples=8, deadline=None, derandomize=True)
def test_the_best_placement_is_the_cheapest_one_written_by_hand(
    rng: random.Random, model: str
) -> None:
    module = random_program(rng)
    [op] = unplaced_meshes(module)
    text = write(module)
    mesh = op.value()
    placements = best_placements(module, op, CostModel(model), top=1000)
    tables = by_hand(mesh)
    assert placements.proven and placements.count == len(placements.found) == len(tables)
    assert {one.matrix for one in placements.found} == set(tables)
    line = next(line for line in text.split("\n") if line.startswith("mesh "))
    for one in placements.found:
        axes = ", ".join(
            f"{axis.name} = " + " * ".join(f"{f.level}:{f.size}" for f in axis.factors or ())
            for axis in one.mesh.axes
        )
        written = text.replace(line, f"{line.partition('{')[0]}{{ {axes} }}")
        whole = run_passes(read(written), f"decompose{{model={model}}}")
        times = {found.name: found.time for found in collir.cost(whole, model=model)}
        for name, time in one.functions.items():
            assert time == pytest.approx(times[name])
        as_written = collir.cost(read(written), model=model)
        bound = sum(step.shared_bound for found in as_written for step in found.steps)
        assert one.bound == pytest.approx(bound)
        assert one.bound <= one.time * (1 + 1e-9)
    assert [one.time for one in placements.found] == sorted(one.time for one in placements.found)


def test_the_larger_reduction_gets_the_faster_links() -> None:
    module = read(TWO)
    [op] = unplaced_meshes(module)
    found = best_placements(module, op, CostModel("alpha-beta", order="written"))
    assert found.count == 3 and found.proven
    assert [one.matrix for one in found.found] == [
        ((1, 4), (4, 1)),
        ((2, 2), (2, 2)),
        ((4, 1), (1, 4)),
    ]


def test_a_limit_of_time_returns_the_best_so_far_and_says_so() -> None:
    text = TWO.replace("node[4]", "node[64]").replace("gpu[4]", "gpu[64]")
    module = read(text.replace("data = 4, model = 4", "data = 64, model = 8, more = 8"))
    [op] = unplaced_meshes(module)
    found = best_placements(module, op, CostModel("alpha-beta", order="written"), seconds=0.05)
    assert not found.proven
    assert found.count > len(found.found) > 0


def test_placements_that_an_algorithm_does_not_fit_are_left_out() -> None:
    """Trees have no cost on rings."""
    ring = TWO.replace("3 us }", "3 us, kind = ring }")
    module = read(ring.replace("over data", "over data using binary_tree"))
    [op] = unplaced_meshes(module)
    found = best_placements(module, op, CostModel("alpha-beta", order="written"))
    assert [one.matrix for one in found.found] == [((4, 1), (1, 4))]
    both = ring.replace("20 us }", "20 us, kind = ring }")
    module = read(both.replace("over data", "over data using binary_tree"))
    [op] = unplaced_meshes(module)
    with pytest.raises(collir.DiagnosticError, match="trees are not costed"):
        best_placements(module, op, CostModel("alpha-beta", order="written"))


def test_what_has_no_cost_is_left_out_at_the_end_of_the_time_too() -> None:
    ring = TWO.replace("3 us }", "3 us, kind = ring }")
    module = read(ring.replace("over data", "over data using binary_tree"))
    [op] = unplaced_meshes(module)
    search = PlacementProblem(
        functions_on(module, "m"), op.value(), CostModel("alpha-beta", order="written"), {}
    )

    def visit(node: PartialMatrix) -> None:
        search.bound(node)
        for child in search.children(node):
            visit(child)

    visit(search.root())
    assert not search.costed
    search.finish()
    assert [one.matrix for one in search.costed.values() if one] == [((4, 1), (1, 4))]


def test_weights_say_how_often_a_function_runs() -> None:
    module = read(TWO)
    [op] = unplaced_meshes(module)
    plain = best_placements(module, op, CostModel("alpha-beta", order="written"))
    heavy = best_placements(
        module, op, CostModel("alpha-beta", order="written"), weights={"acts": 1000.0}
    )
    assert [one.matrix for one in heavy.found] != [one.matrix for one in plain.found]
    assert heavy.found[0].matrix == ((4, 1), (1, 4))
    for one in heavy.found:
        assert one.time == pytest.approx(one.functions["grads"] + 1000 * one.functions["acts"])


def test_a_smaller_mesh_gets_the_best_part_of_its_machine() -> None:
    text = TWO.replace("data = 4, model = 4", "data = 2, model = 3")
    text = text.replace("64@model", "96@model")
    module = read(text)
    [op] = unplaced_meshes(module)
    found = best_placements(module, op, CostModel("alpha-beta", order="written"))
    parts = {tuple(level.size for level in one.mesh.machine.levels) for one in found.found}
    assert parts == {(2, 3), (3, 2)} and found.count == 2
    after = run_passes(read(text), "place")
    verify(after)
    assert write(read(write(after))) == write(after)
    assert mesh_of(functions_of(after)[0]).devices == 6
    assert "machine @cluster_part" in write(after)
    assert {mesh_of(new).machine.name for new in functions_of(after)} == {"cluster_part"}


def some_machine(rng: random.Random) -> Machine:
    """Up to 32 devices on up to four levels, where neither bytes nor latencies are all that counts;
    mostly switches."""
    sizes = [32]
    while prod(sizes) > 32:
        sizes = [rng.choice([1, 2, 2, 2, 3, 4, 4]) for _ in range(rng.randint(1, 4))]
    plain = rng.random() < 0.7
    levels: list[Level] = []
    for index, size in enumerate(sizes):
        kind = LinkKind.SWITCH if plain else rng.choice(kinds_of(size))
        latency = rng.choice([0.0, 10 ** rng.uniform(-6, -1)])
        level = some_level(rng, f"l{index}", size, 10 ** rng.uniform(3, 6), latency, kind)
        rails = 1 if plain else rng.choice(divisors(prod(sizes[index + 1 :])))
        levels.append(replace(level, rails=rails))
    return Machine("machine", tuple(levels))


def some_mesh(rng: random.Random) -> Mesh:
    """Up to four axes on such a machine, or on a part of it."""
    machine = some_machine(rng)
    devices = prod(level.size for level in machine.levels)
    left = devices if rng.random() < 0.8 else rng.choice(divisors(devices))
    sizes = [1] * rng.randint(1, 4)
    while left > 1:
        prime = divisors(left)[1]
        left //= prime
        sizes[rng.randrange(len(sizes))] *= prime
    return Mesh("m", machine, tuple(Axis("xyzw"[at], size) for at, size in enumerate(sizes)))


def one_operation(rng: random.Random, mesh: Mesh, name: str) -> FuncOp:
    """A function of a collective or a redistribution."""
    while True:
        x = random_layout(rng, mesh)
        moves = [m for m in axis_moves(mesh, len(x.dims)) if m.op in coll.COLLECTIVES]
        if rng.random() < 0.3:
            other = random_layout(rng, mesh, x.dtype)
            dims = (Dim(d.size, to.axes) for d, to in zip(x.dims, other.dims, strict=False))
            to = DistType(x.dtype, (*dims,), other.partial, x.reduction or other.reduction)
            moves = [Move(OPERATIONS["redistribute"], {"to": DistTensorType(to)})]
        builder = FunctionBuilder(mesh, [x], name)
        rng.shuffle(moves)
        for move in moves:
            value = builder.try_move(builder.values[0], move)
            if value is not None:
                return builder.function([value])


@pytest.mark.parametrize("model", ["alpha-beta", "p2", "nccl"])
def test_bounds_are_no_more_than_what_placements_cost(model: str) -> None:
    """What is known of some columns never says more than a whole matrix takes, nor does what is
    known of whole ones before they are costed."""
    rng = random.Random(model)
    checked = 0
    while checked < 120:
        mesh = some_mesh(rng)
        functions = [one_operation(rng, mesh, f"f{index}") for index in range(rng.randint(1, 2))]
        module = module_of([mesh], functions)
        weights = {"f0": rng.choice([1.0, 3.0])}

        def matrices(
            module: ModuleOp = module, mesh: Mesh = mesh, weights: dict[str, float] = weights
        ) -> PlacementProblem:
            return PlacementProblem(functions_on(module, "m"), mesh, CostModel(model), weights)

        search = matrices()
        if not search.parts:
            continue

        def least(
            node: PartialMatrix,
            search: PlacementProblem = search,
            matrices: Callable[[], PlacementProblem] = matrices,
        ) -> float:
            """The cheapest placement below a node; every node on the way promises no more."""
            closed = 0.0 if node.looked else matrices().bound(node)
            value = search.objective(node)
            below = [least(child) for child in search.children(node)]
            best = min([*below, float("inf") if value is None else value])
            assert max(closed, search.bound(node)) <= best * (1 + 1e-9)
            return best

        checked += least(search.root()) < float("inf")


@pytest.mark.parametrize("model", ["alpha-beta", "p2", "nccl"])
def test_the_best_placement_is_the_best_of_all(model: str) -> None:
    """Nothing is lost by leaving out what bounds exclude."""
    rng = random.Random(model)
    for _ in range(30):
        mesh = some_mesh(rng)
        module = module_of([mesh], [one_operation(rng, mesh, f"f{index}") for index in range(2)])
        [op] = unplaced_meshes(module)
        try:
            all_ = best_placements(module, op, CostModel(model), top=10**6)
        except collir.DiagnosticError:
            continue
        for limit in (None, 60.0):
            best = best_placements(module, op, CostModel(model), top=1, seconds=limit)
            assert best.proven and best.found[0].time == pytest.approx(all_.found[0].time)


MANY = """\
machine @cluster {
  level l0[4]  { port = 1.05 GB/s, latency = 48 us }
  level l1[8]  { port = 4.22 GB/s, latency = 24 us }
  level l2[16] { port = 16.9 GB/s, latency = 12 us }
  level l3[16] { port = 67.5 GB/s, latency =  6 us }
  level l4[16] { port =  270 GB/s, latency =  3 us }
}
mesh @m on @cluster { a = 64, b = 16, c = 16, d = 8 }
func @f(%x: bf16[65536@(c, d), 65536@b] partial(sum: a)) -> bf16[65536@(c, d), 65536@b] on @m {
  %r = all_reduce %x over a
  return %r
}
func @g(%x: bf16[65536@(a, c, d), 65536] partial(sum: b)) -> bf16[65536@(a, c, d), 65536] on @m {
  %r = all_reduce %x over b
  return %r
}
func @h(%x: bf16[65536@(a, d, c), 65536@b]) -> bf16[65536@(a, d), 65536@b] on @m {
  %r = all_gather %x over c dim 0
  return %r
}
"""


@pytest.mark.parametrize("model", ["alpha-beta", "p2"])
def test_on_many_levels_few_matrices_are_costed(model: str) -> None:
    module = read(MANY)
    [op] = unplaced_meshes(module)
    search = PlacementProblem(functions_on(module, "m"), op.value(), CostModel(model), {})
    outcome = k_best(search, 1, order="best-first", progress=False)
    assert outcome.status == "optimal"
    assert len(search.costed) < 50 < count([4, 8, 16, 16, 16], [64, 16, 16, 8]) == 43758


def test_axes_of_a_reduction_are_ordered_by_hardware() -> None:
    """[[1 4] [2 1] [2 4]], reduced over the first and the last: P² numbers devices axis by axis
    and misses the program that stays inside nodes first and last."""
    text = """\
machine @a100 {
  level node[4] { port =   8 GB/s, latency = 0 us }
  level gpu[16] { port = 270 GB/s, latency = 0 us }
}
mesh @m on @a100 { x = gpu:4, y = node:2, z = node:2 * gpu:4 }
func @f(%g: f32[536870912@y] partial(sum: x, z)) -> f32[536870912@y] on @m {
  %r = all_reduce %g over x, z
  return %r
}
"""
    module = run_passes(read(text), "decompose{model=p2}")
    steps = [op for op in functions_of(module)[0].body.ops if op.name.startswith("coll.")]
    names = [op.name.removeprefix("coll.") for op in steps]
    assert names == ["reduce_scatter", "all_reduce", "all_gather"]
    [before], [after] = collir.cost(read(text), model="p2"), collir.cost(module, model="p2")
    assert before.time / after.time == pytest.approx(4.8 / 2.6, rel=0.05)
