"""Tests of placements: all are found, cost what they do written by hand, and change no result."""

import math
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.harness.seeds import fresh, some
from support.machine.topologies import kinds_of, some_level
from support.programs.collectives import (
    RANDOM,
    FunctionBuilder,
    Move,
    axis_moves,
    module_of,
    random_function,
    random_layout,
    random_mesh,
)
from support.semantics.checks import agree, functions_of, results_on_all_devices
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import collir
from collir.cost.model import CostModel
from collir.cost.programs.classes import classes_of
from collir.cost.programs.simulation import Simulation
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
from collir.synthesis.placement.matrices import Matrix, count
from collir.synthesis.placement.meshes import functions_on, unplaced_meshes
from collir.synthesis.placement.placements import best_placements
from collir.synthesis.placement.problem import PartialMatrix, PlacementProblem
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


def unplaced_mesh(mesh: Mesh) -> Mesh:
    return Mesh(mesh.name, mesh.machine, tuple(Axis(axis.name, axis.size) for axis in mesh.axes))


def random_program(rng: random.Random) -> ModuleOp:
    """Return two random functions on a mesh without a placement."""
    mesh = unplaced_mesh(random_mesh(rng))
    return module_of(
        [mesh],
        [random_function(rng, mesh, 5, f"f{i}", models=rng.random() < 0.3) for i in range(2)],
    )


@pytest.mark.turns
@given(rng=RANDOM)
@settings(max_examples=8)
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


def all_matrices(mesh: Mesh) -> list[Matrix]:
    """Return all matrices of a mesh, by trying all tables of divisors."""
    levels, axes = mesh.machine.levels, mesh.axes
    matrices: list[Matrix] = []
    divisors = [n for n in range(1, mesh.devices + 1) if mesh.devices % n == 0]
    rows = [
        [row for row in product(divisors, repeat=len(levels)) if prod(row) == axis.size]
        for axis in axes
    ]
    sizes = [level.size for level in levels]
    for table in product(*rows):
        if [prod(column) for column in zip(*table, strict=True)] == sizes:
            matrices.append(table)
    return matrices


@pytest.mark.turns
@given(rng=RANDOM, model=st.sampled_from(["alpha-beta", "p2"]))
@settings(max_examples=8)
def test_the_best_placement_is_the_cheapest_one_written_by_hand(
    rng: random.Random, model: str
) -> None:
    while True:  # a placement is priced by what is sent, though stages run beside each other
        module = random_program(rng)
        classes = [classes_of(f.body.ops, mesh_of(f)) for f in functions_of(module)]
        if not any(each.axes for each in classes):
            break
    [op] = unplaced_meshes(module)
    text = write(module)
    mesh = op.value()
    placements = best_placements(module, op, CostModel(model), top=1000)
    matrices = all_matrices(mesh)
    assert placements.proven and placements.count == len(placements.best) == len(matrices)
    assert {placement.matrix for placement in placements.best} == set(matrices)
    line = next(line for line in text.split("\n") if line.startswith("mesh "))
    for placement in placements.best:
        axes = ", ".join(
            f"{axis.name} = " + " * ".join(f"{f.level}:{f.size}" for f in axis.factors or ())
            for axis in placement.mesh.axes
        )
        written = text.replace(line, f"{line.partition('{')[0]}{{ {axes} }}")
        decomposed = run_passes(read(written), f"decompose{{model={model}}}")
        times = {cost.name: sending(cost) for cost in collir.simulate(decomposed, model=model)}
        for name, time in placement.functions.items():
            assert time == pytest.approx(times[name], rel=1e-9)
        as_written = collir.simulate(read(written), model=model)
        bound = sum(map(shared_bound, as_written))
        assert placement.bound == pytest.approx(bound)
        assert placement.bound <= placement.time * (1 + 1e-9)
    times_in_order = [placement.time for placement in placements.best]
    assert times_in_order == sorted(times_in_order)


def sending(simulation: Simulation) -> float:
    """Return the seconds of all steps that are not computations, those of loops every time."""
    own = (step for step in simulation.program if step.kind != "compute" and not step.loop)
    loops = (step.loop for step in simulation.program if step.loop)
    in_loops = sum(loop.times * sending(loop.body) for loop in loops)
    return in_loops + sum(step.task.time for step in own)


def shared_bound(simulation: Simulation) -> float:
    """Return the sum of the bounds of all steps, those of loops in all iterations."""
    own = sum(cost.shared_bound for cost in simulation.collectives)
    loops = (step.loop for step in simulation.program if step.loop)
    return own + sum(loop.times * shared_bound(loop.body) for loop in loops)


def test_the_larger_reduction_gets_the_faster_links() -> None:
    module = read(TWO)
    [op] = unplaced_meshes(module)
    placements = best_placements(module, op, CostModel("alpha-beta", order="written"))
    assert placements.count == 3 and placements.proven
    assert [placement.matrix for placement in placements.best] == [
        ((1, 4), (4, 1)),
        ((2, 2), (2, 2)),
        ((4, 1), (1, 4)),
    ]


def test_a_limit_of_time_returns_the_best_so_far_and_says_so() -> None:
    text = TWO.replace("node[4]", "node[64]").replace("gpu[4]", "gpu[64]")
    module = read(text.replace("data = 4, model = 4", "data = 64, model = 8, more = 8"))
    [op] = unplaced_meshes(module)
    model = CostModel("alpha-beta", order="written")
    seconds = 0.05
    while not (placements := best_placements(module, op, model, seconds=seconds)).best:
        seconds *= 4  # the machine is slow
    assert not placements.proven
    assert placements.count > len(placements.best) > 0


def test_placements_that_an_algorithm_does_not_fit_are_left_out() -> None:
    """Check that a placement is left out if it puts a tree algorithm on a ring: it has no cost."""
    ring = TWO.replace("3 us }", "3 us, kind = ring }")
    module = read(ring.replace("over data", "over data using binary_tree"))
    [op] = unplaced_meshes(module)
    placements = best_placements(module, op, CostModel("alpha-beta", order="written"))
    assert [placement.matrix for placement in placements.best] == [((4, 1), (1, 4))]
    both = ring.replace("20 us }", "20 us, kind = ring }")
    module = read(both.replace("over data", "over data using binary_tree"))
    [op] = unplaced_meshes(module)
    with pytest.raises(collir.DiagnosticError, match="trees are not costed"):
        best_placements(module, op, CostModel("alpha-beta", order="written"))


def test_what_has_no_cost_is_left_out_at_the_end_of_the_time_too() -> None:
    ring = TWO.replace("3 us }", "3 us, kind = ring }")
    module = read(ring.replace("over data", "over data using binary_tree"))
    [op] = unplaced_meshes(module)
    problem = PlacementProblem(
        functions_on(module, "m"), op.value(), CostModel("alpha-beta", order="written"), {}
    )

    def visit(node: PartialMatrix) -> None:
        problem.bound(node)
        for child in problem.children(node):
            visit(child)

    visit(problem.root())
    assert not problem.costed
    problem.finish()
    costed = [placement for placement in problem.costed.values() if placement]
    assert [placement.matrix for placement in costed] == [((4, 1), (1, 4))]


def test_a_search_that_ends_before_it_reached_a_placement_still_gives_one() -> None:
    module = read(TWO)
    [op] = unplaced_meshes(module)
    problem = PlacementProblem(functions_on(module, "m"), op.value(), CostModel("alpha-beta"), {})
    problem.deadline = -math.inf
    problem.finish()
    assert [placement for placement in problem.costed.values() if placement]


def test_weights_say_how_often_a_function_runs() -> None:
    module = read(TWO)
    [op] = unplaced_meshes(module)
    plain = best_placements(module, op, CostModel("alpha-beta", order="written"))
    heavy = best_placements(
        module, op, CostModel("alpha-beta", order="written"), weights={"acts": 1000.0}
    )
    assert [p.matrix for p in heavy.best] != [p.matrix for p in plain.best]
    assert heavy.best[0].matrix == ((4, 1), (1, 4))
    for placement in heavy.best:
        weighted = placement.functions["grads"] + 1000 * placement.functions["acts"]
        assert placement.time == pytest.approx(weighted)


def test_a_smaller_mesh_gets_the_best_part_of_its_machine() -> None:
    text = TWO.replace("data = 4, model = 4", "data = 2, model = 3")
    text = text.replace("64@model", "96@model")
    module = read(text)
    [op] = unplaced_meshes(module)
    placements = best_placements(module, op, CostModel("alpha-beta", order="written"))
    parts = {tuple(level.size for level in p.mesh.machine.levels) for p in placements.best}
    assert parts == {(2, 3), (3, 2)} and placements.count == 2
    after = run_passes(read(text), "place")
    verify(after)
    assert write(read(write(after))) == write(after)
    assert mesh_of(functions_of(after)[0]).devices == 6
    assert "machine @cluster_part" in write(after)
    assert {mesh_of(new).machine.name for new in functions_of(after)} == {"cluster_part"}


def some_machine(rng: random.Random) -> Machine:
    """Return a machine of up to 32 devices on up to four levels, mostly switches.

    Port speeds and latencies are such that both bytes and messages matter.
    """
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
    """Return a mesh of up to four axes on such a machine, or on a part of it."""
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
    """Return a function of one random collective or redistribution."""
    while True:
        x = random_layout(rng, mesh)
        moves = [m for m in axis_moves(mesh, len(x.dims)) if m.op in coll.COLLECTIVES]
        if rng.random() < 0.3:
            layout = random_layout(rng, mesh, x.dtype)
            dims = (Dim(d.size, to.axes) for d, to in zip(x.dims, layout.dims, strict=False))
            to = DistType(x.dtype, (*dims,), layout.partial, x.reduction or layout.reduction)
            moves = [Move(OPERATIONS["redistribute"], {"to": DistTensorType(to)})]
        builder = FunctionBuilder(mesh, [x], name)
        rng.shuffle(moves)
        for move in moves:
            value = builder.try_move(builder.values[0], move)
            if value is not None:
                return builder.function([value])


@pytest.mark.turns
@pytest.mark.parametrize("model", some(["alpha-beta", "p2", "nccl"], 1, "bounds"))
def test_bounds_are_no_more_than_what_placements_cost(model: str) -> None:
    """Check that the bound of every node is at most the cost of the cheapest placement below it."""
    rng = fresh(model)
    checked = 0
    while checked < 60:
        mesh = some_mesh(rng)
        functions = [one_operation(rng, mesh, f"f{index}") for index in range(rng.randint(1, 2))]
        module = module_of([mesh], functions)
        weights = {"f0": rng.choice([1.0, 3.0])}

        def new_problem(
            module: ModuleOp = module, mesh: Mesh = mesh, weights: dict[str, float] = weights
        ) -> PlacementProblem:
            return PlacementProblem(functions_on(module, "m"), mesh, CostModel(model), weights)

        problem = new_problem()
        if not problem.parts:
            continue

        def least(
            node: PartialMatrix,
            problem: PlacementProblem = problem,
            new_problem: Callable[[], PlacementProblem] = new_problem,
        ) -> float:
            """Return the time of the cheapest placement below a node, and check its bounds."""
            closed = 0.0 if node.refinements else new_problem().bound(node)
            value = problem.objective(node)
            below = [least(child) for child in problem.children(node)]
            best = min([*below, float("inf") if value is None else value])
            assert max(closed, problem.bound(node)) <= best * (1 + 1e-9)
            return best

        checked += least(problem.root()) < float("inf")


@pytest.mark.turns
@pytest.mark.parametrize("model", some(["alpha-beta", "p2", "nccl"], 1))
def test_the_best_placement_is_the_best_of_all(model: str) -> None:
    """Check that a search for one placement finds the best of a search for all."""
    rng = fresh(model)
    for _ in range(30):
        mesh = some_mesh(rng)
        module = module_of([mesh], [one_operation(rng, mesh, f"f{index}") for index in range(2)])
        [op] = unplaced_meshes(module)
        try:
            all_ = best_placements(module, op, CostModel(model), top=10**6)
        except collir.DiagnosticError:
            continue
        if all_.ended:  # a busy machine cut the search off
            continue
        for limit in (None, 60.0):
            best = best_placements(module, op, CostModel(model), top=1, seconds=limit)
            assert best.proven and best.best[0].time == pytest.approx(all_.best[0].time)


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


@pytest.mark.turns
@pytest.mark.parametrize("model", ["alpha-beta", "p2"])
def test_on_many_levels_few_matrices_are_costed(model: str) -> None:
    module = read(MANY)
    [op] = unplaced_meshes(module)
    problem = PlacementProblem(functions_on(module, "m"), op.value(), CostModel(model), {})
    outcome = k_best(problem, 1, order="best-first", progress=False)
    assert outcome.status == "optimal"
    assert len(problem.costed) < 50 < count([4, 8, 16, 16, 16], [64, 16, 16, 8]) == 43758


def test_axes_of_a_reduction_are_ordered_by_hardware() -> None:
    """Check a case where numbering the devices axis by axis, as P² does, misses the best program.

    The matrix is [[1 4] [2 1] [2 4]], reduced over its first and last axis. The best program stays
    inside nodes in its first and last step.
    """
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
    [before], [after] = collir.simulate(read(text), model="p2"), collir.simulate(module, model="p2")
    assert before.time / after.time == pytest.approx(4.8 / 2.6, rel=0.05)
