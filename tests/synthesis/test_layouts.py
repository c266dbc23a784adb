"""The search over layouts with order, against a plain search over all steps of the typing rules."""

import math
import random
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from support.harness.seeds import fresh
from support.programs.collectives import RANDOM, random_mesh
from support.synthesis.plain_layouts import Ordered
from support.synthesis.plain_strategies import equal

from collir.cost.model import CostModel
from collir.layout import Axis, Dim, DistType, DType, Factor, Mesh, Reduction, at_root
from collir.layout.cuts import undefined_cut, units
from collir.machine import Level, Machine
from collir.synthesis.programs.layouts import LayoutPaths, ReachedLayout
from collir.synthesis.programs.paths import PathNode, cheapest

MODELS = (
    CostModel("p2"),
    CostModel("nccl"),
    CostModel("alpha-beta", order="written"),
    CostModel("alpha-beta", order="hardware"),
)


@dataclass(frozen=True)
class Case:
    """Two layouts on a mesh."""

    mesh: Mesh
    source: DistType
    target: DistType
    model: CostModel

    def search(self, memory: float | None = None) -> float:
        """Return the seconds of the best program; inf if the search finds none."""
        paths = LayoutPaths(self.mesh, self.source, self.target, self.model, memory)
        result = cheapest(paths)
        assert not result.ended
        return result.candidates[0].time if result.candidates else math.inf

    def plain(self, memory: float = math.inf) -> Ordered:
        """Return the plain search."""
        return Ordered(self.mesh, self.target, self.model, memory)


def random_pair(rng: random.Random, mesh: Mesh) -> tuple[DistType, DistType]:
    """Return two layouts of one shape; most sub-axes are sharded."""
    parts = units(mesh, list(mesh.by_name))
    shape = [parts * rng.choice([1, 1, 2, 2**10]) for _ in range(rng.choice([1, 2]))]
    if rng.random() < 0.2:
        shape = [rng.choice([mesh.devices, 2, 3, 4, 6, 8]) for _ in shape]

    def layout(states: str) -> DistType:
        lists: list[list[str]] = [[] for _ in shape]
        sets: dict[str, set[str]] = {"P": set(), "M": set()}
        names = list(mesh.by_name)
        rng.shuffle(names)
        for axis in names:
            state = rng.choice(states)
            if state in sets:
                sets[state].add(axis)
            elif state == "S":
                dim = rng.randrange(len(shape))
                over = [*lists[dim], axis]
                if shape[dim] % units(mesh, over) == 0 and undefined_cut(mesh, over) is None:
                    lists[dim] = over
        dims = tuple(Dim(n, tuple(axes)) for n, axes in zip(shape, lists, strict=True))
        partial = frozenset(sets["P"])
        reduction = Reduction.SUM if partial else None
        return DistType(DType.F32, dims, partial, reduction, at_root(sets["M"]))

    return layout(rng.choice(["RSSSSPM", "RSSS"])), layout(rng.choice(["RSSSSM", "RSSS"]))


def random_case(rng: random.Random, most: int, weights: float = 0.0) -> Case:
    """Return two different layouts; in most cases the order of sub-axes matters.

    Args:
        weights: the probability that axes have weights.
    """
    while True:
        mesh = random_mesh(rng, weights=weights)
        usual = all(level.taper < 10 for level in mesh.machine.levels)
        if not mesh.placed or not 1 <= len(mesh.by_name) <= most or not usual:
            continue
        source, target = random_pair(rng, mesh)
        if source != target:
            return Case(mesh, source, target, rng.choice(MODELS))


def same(a: float, b: float) -> bool:
    return a == b or equal(a, b)


def assert_best(case: Case) -> None:
    time, plain = case.search(), case.plain()
    assert same(time, plain.best_by_few(case.source)), case
    assert time >= plain.best(case.source) * (1 - 1e-9), case


@given(rng=RANDOM)
@settings(max_examples=27)
def test_the_best_is_that_of_a_plain_search(rng: random.Random) -> None:
    assert_best(random_case(rng, 2))


@pytest.mark.turns
@given(rng=RANDOM)
@settings(max_examples=14)
def test_the_best_on_three_sub_axes_is_that_of_a_plain_search(rng: random.Random) -> None:
    assert_best(random_case(rng, 3))


@given(rng=RANDOM)
@settings(max_examples=14)
def test_the_best_on_axes_with_weights_is_that_of_a_plain_search(rng: random.Random) -> None:
    assert_best(random_case(rng, 2, weights=1.0))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_the_best_of_more_cases_is_that_of_a_plain_search(seed: int) -> None:
    rng = fresh(seed)
    for _ in range(1500):
        assert_best(random_case(rng, 3, weights=0.3))


@pytest.mark.slow
def test_other_programs_are_seldom_cheaper() -> None:
    """The search gives up few programs for speed.

    Copies are not dropped on the way, nor is a value gathered to be at root for a while.
    """
    rng = fresh(5)
    cases = [random_case(rng, 3) for _ in range(1500)]
    ratios: list[float] = []
    for case in cases:
        time, best = case.search(), case.plain().best(case.source)
        if time > best * (1 + 1e-9):
            ratios.append(time / best)
    assert len(ratios) < 0.02 * len(cases)
    assert max(ratios, default=1) < 16


# --- the bound ----------------------------------------------------------------------------------


@given(rng=RANDOM)
@settings(max_examples=27)
def test_the_bound_is_below_what_is_left(rng: random.Random) -> None:
    """The bound holds at the source, and one step from it, of all steps that the rules allow."""
    case = random_case(rng, 2, weights=0.3)
    paths = LayoutPaths(case.mesh, case.source, case.target, case.model)
    plain = case.plain()
    for x in [case.source, *(move.after for _, move in plain.moves(case.source))]:
        rest = plain.best(x)
        assert paths.remaining(ReachedLayout(x)) <= rest * (1 + 1e-7) + paths.tie, (case, x)


def two_levels(*ports: float) -> Mesh:
    """Return a mesh of two nodes of eight devices, with one axis over both levels."""
    levels = [
        Level(f"l{i}", n, port, 1e-6) for i, (n, port) in enumerate(zip((2, 8), ports, strict=True))
    ]
    factors = [Factor("l0", 2), Factor("l1", 8)]
    return Mesh("m", Machine("c", tuple(levels)), (Axis.placed("x", factors),))


def test_a_dimension_that_is_sharded_inside_of_children_only() -> None:
    """Every child has all its blocks: the bound once counted one of them for all."""
    mesh = two_levels(12.5e9, 372e9)
    source = DistType(DType.F32, (Dim(16384, ("x.l1", "x.l0")), Dim(16)))
    target = DistType(DType.F32, (Dim(16384), Dim(16, ("x.l0", "x.l1"))))
    [best] = cheapest(LayoutPaths(mesh, source, target, CostModel("p2"))).candidates
    assert [(step.kind, step.axes) for step in best.steps] == [
        ("all_to_all", ("x.l0",)),
        ("all_to_all", ("x.l1",)),
    ]


def test_the_latency_of_a_machine_is_none_of_nccl() -> None:
    """NCCL's model has latencies of its own: a bound with those of the machine is too high."""
    machine = Machine("c", (Level("l0", 8, 1e9, 243e-6),))
    axes = tuple(Axis.placed(name, [Factor("l0", n)]) for name, n in (("y", 4), ("z", 2)))
    mesh = Mesh("m", machine, axes)
    source = DistType(DType.F32, (Dim(8), Dim(8192, ("z.l0", "y.l0"))))
    target = DistType(DType.F32, (Dim(8, ("z.l0",)), Dim(8192, ("y.l0",))))
    assert_best(Case(mesh, source, target, CostModel("nccl")))


def paid(paths: LayoutPaths, x: DistType, to: DistType) -> float:
    """Return the seconds of a permute in the search."""
    for opened in paths.children(PathNode(0.0, 0.0, ReachedLayout(x))):
        if opened.edge is not None and opened.edge.moves == (x, to):
            [costed] = paths.children(opened)
            return costed.cost - paths.tie
    raise AssertionError(f"no permute leads from {x} to {to}")


def test_permutes_from_two_layouts_to_one_are_two() -> None:
    """They share a name, a size and a group, but they send different blocks."""
    machine = Machine("c", (Level("a", 2, 1e9, 1e-6), Level("b", 4, 1e11, 1e-6)))
    axes = [Axis.placed("x", [Factor("a", 2), Factor("b", 2)]), Axis.placed("y", [Factor("b", 2)])]
    mesh = Mesh("m", machine, tuple(axes))
    near, far, to = (
        DistType(DType.F32, (Dim(2**16, order), Dim(8)))
        for order in (("x.a", "x.b", "y.b"), ("y.b", "x.b", "x.a"), ("x.a", "y.b", "x.b"))
    )
    model = CostModel("alpha-beta", order="written")
    alone = [paid(LayoutPaths(mesh, x, to, model), x, to) for x in (near, far)]
    paths = LayoutPaths(mesh, near, to, model)
    assert [paid(paths, x, to) for x in (near, far)] == pytest.approx(alone)
    assert alone[0] < alone[1]


# --- memory -------------------------------------------------------------------------------------


@given(rng=RANDOM)
@settings(max_examples=22)
def test_a_limit_of_memory_leaves_the_best_within_it(rng: random.Random) -> None:
    case = random_case(rng, 2)
    both_ends = case.source.local_bytes(case.mesh) + case.target.local_bytes(case.mesh)
    memory = both_ends * rng.choice([0.5, 0.75, 1.0, 1.0, 1.5, 2.0])
    time, best = case.search(memory), case.plain(memory).best_by_few(case.source)
    assert time >= best * (1 - 1e-9)
    if case.target.placed <= set(case.source.axes):  # else cuts in another order may fit
        assert same(time, best), (case, memory)
