"""The search over layouts without order, against plain ones over the same steps and over all."""

import heapq
import math
import random
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from plain_strategies import Unordered, equal
from programs import RANDOM, random_mesh
from seeds import fresh

from collir.cost.model import CostModel
from collir.layout import Dim, DistType, DType, Mesh, Reduction
from collir.synthesis.programs.cheapest import Synthesis, synthesise
from collir.synthesis.programs.states import StatePaths

CHANGES = ("PR", "PR", "PS", "PM", "MR", "MS", "SR", "SM", "RR", "RS", "RM", "PP", "SS", "MM")
"""What may become of a sub-axis: from one state to another."""

MODELS = (
    CostModel("p2"),
    CostModel("nccl"),
    CostModel("alpha-beta", order="written"),
    CostModel("alpha-beta", order="written"),
    CostModel("alpha-beta", "runtime", "written"),
    CostModel("alpha-beta", order="hardware"),
)


@dataclass(frozen=True)
class Case:
    """Two layouts on a mesh, as types and as the states of all sub-axes."""

    mesh: Mesh
    source: DistType
    target: DistType
    start: str
    goal: str
    model: CostModel

    def found(self, top: int = 1, memory: float | None = None, counted: bool = False) -> Synthesis:
        """What the search finds."""
        return synthesise(
            self.mesh, self.source, self.target, self.model, top, memory, counted=counted
        )

    def plain(self, memory: float = math.inf) -> Unordered:
        """The same for the plain searches."""
        sizes = [axis.size for axis in self.mesh.by_name.values()]
        shards = math.prod(n for n, one in zip(sizes, self.start, strict=True) if one == "S")
        elements = math.prod(self.source.local_shape(self.mesh)) * shards
        item = self.source.dtype.bytes
        return Unordered(self.mesh, self.start, self.goal, elements, item, self.model, memory)


def placed_mesh(rng: random.Random, most: int) -> Mesh:
    """A placed mesh of some sub-axes, on a machine whose tapers are no larger than is usual."""
    while True:
        mesh = random_mesh(rng)
        usual = all(level.taper < 10 for level in mesh.machine.levels)
        if mesh.placed and 1 <= len(mesh.by_name) <= most and usual:
            return mesh


def random_case(
    rng: random.Random, most: int = 3, changes: tuple[str, ...] = CHANGES, odd: bool = False
) -> Case:
    """Dimension 0 has what stays sharded and gains shards, dimension 1 loses them."""
    while True:
        mesh = placed_mesh(rng, most)
        each = {axis: rng.choice(changes) for axis in mesh.by_name}
        if any(change[0] != change[1] for change in each.values()):
            break
    elements = rng.choice([1, 4, 2**10, 2**20])
    kept = [axis for axis in each if each[axis] == "SS"]
    ends: list[DistType] = []
    for end in (0, 1):
        partial = frozenset(axis for axis in each if each[axis][end] == "P")
        root = frozenset(axis for axis in each if each[axis][end] == "M")
        own = [axis for axis in each if each[axis][end] == "S" and axis not in kept]
        dims = (
            Dim(mesh.devices * elements, tuple(kept + own * end)),
            Dim(mesh.devices, tuple(own * (1 - end))),
            Dim(rng.choice([1, 3, 5]) if odd and not end else ends[0].dims[2].size if end else 1),
        )
        reduction = Reduction.SUM if partial else None
        ends.append(DistType(DType.F32, dims, partial, reduction, root))
    start, goal = ("".join(change[end] for change in each.values()) for end in (0, 1))
    return Case(mesh, ends[0], ends[1], start, goal, rng.choice(MODELS))


def time_of(found: Synthesis) -> float:
    return found.candidates[0].time if found.candidates else math.inf


def same(one: float, other: float) -> bool:
    return one == other or equal(one, other)


# --- the best -----------------------------------------------------------------------------------


def assert_best(case: Case) -> None:
    found = case.found()
    assert found.proven
    assert same(time_of(found), case.plain().best()), case


@given(rng=RANDOM)
@settings(max_examples=250, deadline=None)
def test_the_best_is_that_of_a_plain_search(rng: random.Random) -> None:
    """All steps over all sets of sub-axes, on every way that goes on only."""
    assert_best(random_case(rng, odd=True))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_the_best_of_more_cases_is_that_of_a_plain_search(seed: int) -> None:
    rng = fresh(seed)
    for _ in range(2000):
        assert_best(random_case(rng, 4, odd=True))


# --- the k best ---------------------------------------------------------------------------------


def assert_k_best(case: Case, most: int) -> bool:
    """Whether there were few enough programs to look at."""
    plain = case.plain()
    times: list[float] = []
    for program in plain.programs():
        times.append(math.fsum(step.time for step in program))
        if len(times) > most:
            return False
    top = len(times) + 3
    found = case.found(top, counted=True)
    assert found.count == len(times), case
    assert len(found.candidates) == len(times), case
    each = zip([one.time for one in found.candidates], sorted(times), strict=True)
    assert all(same(one, other) for one, other in each), case
    return True


@given(rng=RANDOM)
@settings(max_examples=75, deadline=None)
def test_the_k_best_and_their_number_are_those_of_all_programs(rng: random.Random) -> None:
    """Up to the last one, where there are up to 300."""
    assert_k_best(random_case(rng, 2), 300)


@given(rng=RANDOM)
@settings(max_examples=25, deadline=None)
def test_the_first_of_many_are_the_cheapest(rng: random.Random) -> None:
    case = random_case(rng, 3)
    plain = case.plain()
    if len(case.start) < 3 or not math.isfinite(plain.best()):
        return
    times: list[float] = []
    count = 0
    for program in plain.programs():
        count += 1
        if count > 20_000:
            return
        heapq.heappush(times, -math.fsum(step.time for step in program))
        if len(times) > 10:
            heapq.heappop(times)
    found = case.found(10, counted=True)
    assert found.count == count
    each = zip([one.time for one in found.candidates], sorted(-t for t in times), strict=True)
    assert all(same(one, other) for one, other in each), case


# --- all steps ----------------------------------------------------------------------------------
#
# A search over all steps in any order may find more: what is given up is measured here. Of axes
# that are at root at both ends nothing is claimed: to scatter them and gather them back may use
# more rails. Nor of values at root below several rails, or of levels with a taper, where what goes
# around by one device passes fewer ports.


PLAIN = (
    CostModel("p2"),
    CostModel("alpha-beta", order="written"),
    CostModel("alpha-beta", order="hardware"),
)


def better_elsewhere(case: Case, fixed: str) -> float:
    """How much cheaper the best program of all steps is: 1 if it is not."""
    found, best = time_of(case.found()), case.plain().anywhere(fixed)
    if not best or found <= best * (1 + 1e-9):
        return 1.0
    return found / best


@given(rng=RANDOM)
@settings(max_examples=250, deadline=None)
def test_no_other_way_is_cheaper(rng: random.Random) -> None:
    case = random_case(rng)
    levels = case.mesh.machine.levels
    if case.model in PLAIN and all(level.taper == level.rails == 1 for level in levels):
        assert better_elsewhere(case, "M") == 1, case


@given(rng=RANDOM)
@settings(max_examples=150, deadline=None)
def test_no_other_way_of_an_all_reduce_is_cheaper(rng: random.Random) -> None:
    """Under any model."""
    case = random_case(rng, changes=("PR", "PR", "RR", "SS", "PP"))
    if all(level.taper == 1 for level in case.mesh.machine.levels):
        assert better_elsewhere(case, "") == 1, case


# --- the bound ----------------------------------------------------------------------------------


def assert_bounds(case: Case) -> None:
    """What is left from every layout on the way is no less than the search takes it to be."""
    plain = case.plain()
    paths = StatePaths(case.mesh, case.source, case.target, case.model)
    names = plain.names
    for state, rest in plain.to_go().items():
        each = dict(zip(names, state, strict=True))
        number = paths.graph.number([each[unit[0]] for unit in paths.units])
        assert paths.remaining(number) <= rest * (1 + 1e-7), (case, state)


@given(rng=RANDOM)
@settings(max_examples=100, deadline=None)
def test_the_bound_is_below_what_is_left(rng: random.Random) -> None:
    assert_bounds(random_case(rng, odd=True))


# --- memory -------------------------------------------------------------------------------------


def assert_within(case: Case, share: float) -> None:
    """With a limit, that of the plain search with the same limit for every step."""
    mesh = case.mesh
    whole = case.source.local_bytes(mesh) + case.target.local_bytes(mesh)
    found = case.found(3, memory=share * whole)
    for one in found.candidates:
        assert one.memory <= share * whole
    assert same(time_of(found), case.plain(share * whole).best()), (case, share)


@given(rng=RANDOM)
@settings(max_examples=200, deadline=None)
def test_a_limit_of_memory_leaves_the_best_within_it(rng: random.Random) -> None:
    assert_within(random_case(rng), rng.choice([0.5, 0.75, 1.0, 1.0, 1.25, 2.0, 3.0]))
