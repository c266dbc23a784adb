"""The lower bounds of steps on ports, against the times of the cost models."""

import math
import random

import pytest
from hypothesis import given, settings
from support.cost.algorithms import ALGORITHMS
from support.harness.seeds import fresh
from support.programs.collectives import RANDOM, random_machine, random_mesh

from collir.cost.collectives.collective import Collective
from collir.cost.model import CostModel, step_cost
from collir.cost.network.group import CostError
from collir.dialects.machine import mesh_of
from collir.ir.functions import functions_of
from collir.layout import Axis, Factor, Mesh
from collir.syntax.reader import read
from collir.synthesis.programs.ports import Ports

SIZES = (0.0, 1.0, 8.0, 1e3, 1e6, 1e9)


def large_mesh(rng: random.Random) -> Mesh:
    """Return a mesh of hundreds of devices on 2 to 4 levels, with up to 3 axes."""
    levels, axes = rng.randint(2, 4), rng.randint(1, 3)
    factors: dict[tuple[int, int], int] = {}
    total = 1
    for _ in range(rng.randint(2, 6)):
        size = rng.choice([2, 2, 3, 4, 5, 6, 7, 8, 12, 16])
        if total * size <= 700:
            place = rng.randrange(levels), rng.randrange(axes)
            factors[place] = factors.get(place, 1) * size
            total *= size
    table = [[factors.get((level, axis), 1) for axis in range(axes)] for level in range(levels)]
    machine = random_machine(rng, [math.prod(row) for row in table], "large")
    listed = [
        [Factor(f"l{level}", row[axis]) for level, row in enumerate(table)] for axis in range(axes)
    ]
    return Mesh("m", machine, tuple(Axis.placed("xyz"[j], row) for j, row in enumerate(listed)))


def random_model(rng: random.Random, kind: str) -> CostModel:
    """Return any model; alpha-beta more often, by any algorithm of a collective, in any order."""
    algorithm = rng.choice(["cheapest", "runtime", *ALGORITHMS[kind]])
    order = rng.choice(["written", "hardware"])
    models = [CostModel("p2"), CostModel("nccl"), *[CostModel("alpha-beta", algorithm, order)] * 3]
    return rng.choice(models)


def violations(rng: random.Random, mesh: Mesh, count: int) -> list[str]:
    """Return steps that take less than their bound, of any groups in any order of their ranks."""
    wrong: list[str] = []
    names = list(mesh.by_name)
    for _ in range(count):
        kind = rng.choice(list(ALGORITHMS))
        model = random_model(rng, kind)
        rng.shuffle(names)
        many = rng.randint(1, len(names))
        axes, others = tuple(names[:many]), names[many:]
        root = frozenset(axis for axis in others if rng.random() < 0.4)
        size = rng.choice([*SIZES, rng.uniform(0, 1e7)])
        asked = rng.choice([None, *ALGORITHMS[kind]]) if model.model == "alpha-beta" else None
        try:
            paid = step_cost(Collective(kind, mesh, axes, size, root, algorithm=asked), model)
        except CostError:
            continue
        ports = Ports(mesh, model)
        least = ports.least(kind, ports.mask(axes), ports.mask(root), size)
        if least > paid.time * (1 + 1e-9):
            wrong.append(
                f"{kind} by {paid.algorithm} of {size} over {axes}, {root} at root: "
                f"{paid.time}, at least {least}; {model} {mesh}"
            )
    return wrong


@pytest.mark.turns
@given(rng=RANDOM)
@settings(max_examples=144)
def test_no_step_of_a_small_group_takes_less(rng: random.Random) -> None:
    mesh = random_mesh(rng)
    if mesh.placed and mesh.by_name:
        assert violations(rng, mesh, 4) == []


@given(rng=RANDOM)
@settings(max_examples=90)
def test_no_step_of_hundreds_of_ranks_takes_less(rng: random.Random) -> None:
    mesh = large_mesh(rng)
    if mesh.by_name:
        assert violations(rng, mesh, 3) == []


def test_groups_of_roots_may_lie_below_one_node() -> None:
    module = read(
        """
        machine @c {
          level node[2] { port = 3 GB/s, latency = 0 s }
          level gpu[9, 1] { port = 1 GB/s, latency = 1 us }
        }
        mesh @m on @c { x = gpu:2, z = gpu:5 }
        func @f(%a: f32[8]) -> f32[8] on @m {
          return %a
        }
        """
    )
    mesh = mesh_of(next(iter(functions_of(module))))
    model, ports = CostModel("nccl"), Ports(mesh, CostModel("nccl"))
    paid = step_cost(Collective("reduce", mesh, ("z.gpu",), 1e3, frozenset({"x.gpu"})), model)
    assert ports.least("reduce", ports.mask(["z.gpu"]), ports.mask(["x.gpu"]), 1e3) <= paid.time


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_no_step_of_many_takes_less(seed: int) -> None:
    rng = fresh(seed)
    for _ in range(5000):
        mesh = large_mesh(rng) if rng.random() < 0.5 else random_mesh(rng)
        if mesh.placed and mesh.by_name:
            assert violations(rng, mesh, 4) == []


# --- latency ------------------------------------------------------------------------------------
#
# The bound of an empty collective is a sum over the levels: lg(n) times the latency of each, where
# n is the number of children over which the group extends below one parent. By summing the other
# way round, the bound holds if at least lg(N) rounds cross a level or one outside of it, where N is
# the number of all children over which the group extends. In one round a child could hear of
# several others, through devices of its own, so this is no law of nature. These tests count the
# rounds of all algorithms, for every way to write the digits of ranks and every choice of the outer
# digits.


def products(size: int) -> list[tuple[int, ...]]:
    """Return all ordered lists of factors."""
    if size == 1:
        return [()]
    divisors = [n for n in range(2, size + 1) if size % n == 0]
    return [(n, *rest) for n in divisors for rest in products(size // n)]


def children(digits: tuple[int, ...], outside: int) -> list[int]:
    """Return for every rank the child that it is in: its coordinates on the outer digits."""
    places = [0]
    for index, size in enumerate(digits):
        counts = outside >> index & 1
        places = [at * size + x if counts else at for at in places for x in range(size)]
    return places


def fewest_crossing(at: list[int]) -> int:
    """Return the fewest crossing rounds of any algorithm.

    The algorithms are shifts by powers of two, a binomial tree, and exchanges of 2^k ranks after
    the others are folded into these.
    """
    ranks = len(at)
    distances = [1 << bit for bit in range((ranks - 1).bit_length())]
    shifts = [any(at[rank] != at[rank - d] for rank in range(ranks)) for d in distances]
    tree = [any(at[r] != at[r + d] for r in range(0, ranks - d, 2 * d)) for d in distances]
    power = 1 << (ranks.bit_length() - 1)
    extra = ranks - power
    kept = [index + min(index + 1, extra) for index in range(power)]
    bits = [1 << bit for bit in range(power.bit_length() - 1)]
    folded = [any(at[kept[i]] != at[kept[i ^ bit]] for i in range(power)) for bit in bits]
    folded += [any(at[2 * i] != at[2 * i + 1] for i in range(extra))] * 2
    return min(sum(shifts), sum(tree), sum(folded))


def too_few_rounds(sizes: range) -> list[tuple[tuple[int, ...], int]]:
    """Return the digits and choices of outer digits for which too few rounds cross."""
    wrong: list[tuple[tuple[int, ...], int]] = []
    for size in sizes:
        for digits in products(size):
            for outside in range(1, 1 << len(digits)):
                at = children(digits, outside)
                if 2 ** fewest_crossing(at) < max(at) + 1:
                    wrong.append((digits, outside))
    return wrong


def test_enough_rounds_cross_a_level() -> None:
    assert too_few_rounds(range(2, 97)) == []


@pytest.mark.slow
def test_enough_rounds_cross_a_level_of_larger_groups() -> None:
    assert too_few_rounds(range(97, 200)) == []
