"""The cheapest typed programs against all programs of P²'s chunk semantics, on small hierarchies.

Both carry out a reduction over all levels. The chunk semantics tracks what every device holds of
every chunk; the types only have a state for each level.
"""

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterator

import pytest
from p2.candidates import p2_candidates
from p2.enumerate import RuleReading, programs
from p2.lower import Numbering, ReducedFactors
from support.harness.seeds import fresh
from support.programs.collectives import random_machine
from support.synthesis.plain_strategies import KINDS, PlainStep, Unordered, dijkstra, equal

from collir.cost.collectives.collective import Collective
from collir.cost.model import CostModel
from collir.layout import Axis, DistType, DType, Factor, Mesh, Reduction
from collir.synthesis.programs.cheapest import synthesise

Hierarchy = tuple[int, ...]
Written = tuple[str, tuple[str, ...], frozenset[str]]
"""A collective, its levels, and the levels of which only the first devices take part."""

MODELS = (
    CostModel("p2"),
    CostModel("alpha-beta", order="hardware"),
    CostModel("alpha-beta", order="written"),
)


def hierarchies(levels: int, devices: int = 16) -> list[Hierarchy]:
    """Return all hierarchies of so many levels, of sizes above 1, with up to 16 devices."""
    products = itertools.product(range(2, devices + 1), repeat=levels)
    return [sizes for sizes in products if math.prod(sizes) <= devices]


def mesh_of(sizes: Hierarchy, rng: random.Random) -> Mesh:
    """Return a mesh of one axis over a level for each size, with any links."""
    factors = [Factor(f"l{level}", size) for level, size in enumerate(sizes)]
    machine = random_machine(rng, sizes, "random")
    return Mesh("m", machine, (Axis.placed("data", factors),))


# --- what they cost -------------------------------------------------------------------------------


def expressible(mesh: Mesh, state: str, step: PlainStep, reading: RuleReading) -> bool:
    """Return whether P² has a typed step.

    It has no scatter or gather; its steps are over neighbouring levels, by all devices, or by the
    first devices of all levels inside.
    """
    names = list(mesh.by_name)
    over = [names.index(axis) for axis in step.axes]
    root = [i for i, letter in enumerate(state) if letter == "M" and i not in over]
    if step.kind in ("scatter", "gather") or max(over) - min(over) + 1 != len(over):
        return False
    masters = root == list(range(max(over) + 1, len(names)))
    only = reading is RuleReading.MASTER_ALL_REDUCE
    return not root or (masters and (step.kind == "all_reduce" or not only))


def best_expressible(plain: Unordered, reading: RuleReading, length: int) -> float:
    """Return the seconds of the cheapest typed program of up to so many steps that P² has too."""

    def edges(at: tuple[str, int]) -> Iterator[tuple[float, tuple[str, int]]]:
        state, steps = at
        if steps < length:
            for step in plain.onwards(state):
                if expressible(plain.mesh, state, step, reading):
                    yield step.time, (step.after, steps + 1)

    times = dijkstra({(plain.start, 0): 0.0}, edges)
    return min(time for (state, _), time in times.items() if state == plain.goal)


def compare(sizes: Hierarchy, rng: random.Random, reading: RuleReading, length: int) -> bool:
    """Check that the cheapest typed program is no dearer than P²'s; return if it is cheaper."""
    mesh, model = mesh_of(sizes, rng), rng.choice(MODELS)
    names = tuple(mesh.by_name)
    elements = mesh.devices * rng.choice([1, 2**10, 2**20])
    listed = p2_candidates(
        Collective("all_reduce", mesh, names, 4.0 * elements), model, length, reading
    )
    source = DistType.make(DType.F32, [elements], partial=names, reduction=Reduction.SUM)
    target = DistType.make(DType.F32, [elements])
    best = synthesise(mesh, source, target, model).candidates[0]
    typed, chunks = best.time, listed[0].time
    assert typed <= chunks * (1 + 1e-9), (mesh, model)
    if model.order == "hardware" or model.model == "p2":  # else the types try two orders
        plain = Unordered(mesh, "P" * len(names), "R" * len(names), elements, 4, model)
        assert equal(best_expressible(plain, reading, length), chunks), (mesh, model)
    return typed < chunks * (1 - 1e-9)


CASES = [
    *((sizes, 5) for levels in (1, 2) for sizes in hierarchies(levels)),
    *((sizes, 4) for sizes in hierarchies(3)),
]


@pytest.mark.turns
@pytest.mark.parametrize(
    "reading",
    [pytest.param(RuleReading.LITERAL, marks=pytest.mark.slow), RuleReading.MASTER_ALL_REDUCE],
)
def test_the_cheapest_is_that_of_the_chunk_semantics(reading: RuleReading) -> None:
    """A typed program is cheaper only by steps that P² does not have.

    The cheapest typed program of steps that it has costs the same.
    """
    rng = fresh(0)
    for sizes, length in CASES:
        compare(sizes, rng, reading, length)


@pytest.mark.slow
@pytest.mark.parametrize("reading", [RuleReading.LITERAL, RuleReading.MASTER_ALL_REDUCE])
@pytest.mark.parametrize("sizes", [*hierarchies(3), *hierarchies(4)], ids=str)
def test_the_cheapest_of_longer_programs(sizes: Hierarchy, reading: RuleReading) -> None:
    rng = fresh(1)
    for _ in range(5):
        compare(sizes, rng, reading, 5 if len(sizes) == 3 else 4)


# --- which programs there are ---------------------------------------------------------------------


def lowered(mesh: Mesh, length: int, reading: RuleReading) -> Iterator[list[Written]]:
    """Yield the programs of the chunk semantics, over the levels of a mesh."""
    reduced = ReducedFactors.of_mesh(mesh, tuple(mesh.by_name), Numbering.HARDWARE)
    for program in programs(reduced.hierarchy, length, reading):
        steps: list[Written] = []
        for instruction in program:
            over = reduced.over(instruction, mesh)
            assert over is not None
            steps.append((instruction.collective.value, over.over, frozenset(over.root)))
        yield steps


STALE, PARTS = "by all, of which some hold a value that is out of date", "by masters, before others"
"""The kinds of programs that no types describe: a step of all devices where only masters took part
in the step before; and a step of masters while the values of others are still to be reduced."""


def untyped(mesh: Mesh, steps: list[Written]) -> tuple[str, int]:
    """Return why no typed program has these collectives in this order, and in which step.

    ("", -1) if there is such a program. A replicated value may count as at root first (keep_root).
    """
    states = dict.fromkeys(mesh.by_name, "P")
    for place, (kind, axes, root) in enumerate(steps):
        before, after = KINDS[kind]
        for axis in {*root, *(axes if before == "M" else ())}:
            if states[axis] == "R":
                states[axis] = "M"
        if any(states[axis] != "M" for axis in root):
            return PARTS, place
        if any(s == "M" for axis, s in states.items() if axis not in root.union(axes)):
            return STALE, place
        assert all(states[axis] == before for axis in axes), steps
        states |= dict.fromkeys(axes, after)
    assert set(states.values()) == {"R"}
    return "", -1


def kinds_of(sizes: Hierarchy, length: int, reading: RuleReading) -> dict[str, int]:
    """Return how many programs of each kind the types do not have."""
    mesh = mesh_of(sizes, fresh(0))
    kinds: Counter[str] = Counter()
    for steps in lowered(mesh, length, reading):
        kind, place = untyped(mesh, steps)
        if kind:
            # A useless result is overwritten later, so the program is not the cheapest.
            assert any(kind == "broadcast" for kind, _, _ in steps[place:]), steps
            kinds[kind] += 1
    return dict(kinds)


@pytest.mark.parametrize("sizes", [*hierarchies(1), *hierarchies(2)], ids=str)
def test_on_two_levels_the_types_have_all_programs(sizes: Hierarchy) -> None:
    assert kinds_of(sizes, 5, RuleReading.LITERAL) == {}


@pytest.mark.turns
@pytest.mark.parametrize("sizes", hierarchies(3), ids=str)
def test_on_three_levels_they_lack_those_that_do_something_in_vain(sizes: Hierarchy) -> None:
    """Behind a step of masters alone all devices take part, and their values are overwritten."""
    assert kinds_of(sizes, 4, RuleReading.LITERAL) == {STALE: 6, PARTS: 1}
    assert kinds_of(sizes, 4, RuleReading.MASTER_ALL_REDUCE) == {STALE: 4}


def test_longer_programs_lack_no_others() -> None:
    assert kinds_of((2, 2, 2), 5, RuleReading.LITERAL) == {STALE: 95, PARTS: 7}
    assert kinds_of((2, 2, 2), 5, RuleReading.MASTER_ALL_REDUCE) == {STALE: 41}


@pytest.mark.parametrize("sizes", hierarchies(3), ids=str)
def test_without_masters_the_types_have_all_programs(sizes: Hierarchy) -> None:
    assert kinds_of(sizes, 5, RuleReading.NO_MASTER) == {}


@pytest.mark.slow
@pytest.mark.parametrize("reading", RuleReading)
def test_on_four_levels_they_lack_no_others(reading: RuleReading) -> None:
    kinds = kinds_of((2, 2, 2, 2), 4, reading)
    assert (
        set(kinds)
        == {
            RuleReading.LITERAL: {STALE, PARTS},
            RuleReading.MASTER_ALL_REDUCE: {STALE},
            RuleReading.NO_MASTER: set[str](),
        }[reading]
    )
