"""Every application, divided in every way, agrees with a plain search; bounds and keys hold."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from support.search.plain_search import plain_decide, plain_enumerate, plain_optimise

from collir.problems.knapsack import Knapsack
from collir.problems.queens import Queens
from collir.problems.semigroups import NumericalSemigroups
from collir.problems.tsp import TSP
from collir.problems.uts import UTS
from collir.search import (
    Budget,
    Coordination,
    DepthBounded,
    NodesByDepth,
    Ordered,
    Problem,
    Sequential,
    Solutions,
    StackStealing,
    check,
    decide,
    enumerate,
    k_best,
    optimise,
)

WAYS: list[Coordination] = [
    Sequential(),
    DepthBounded(0),
    DepthBounded(3),
    StackStealing(),
    StackStealing(chunked=False),
    Budget(1),
    Budget(50),
    Ordered(0),
    Ordered(2),
]


def knapsack(seed: int, dominance: bool) -> Knapsack:
    rng = Random(seed)
    weights = [rng.randint(3, 20) for _ in range(12)]
    values = [weight + rng.randint(0, 3) for weight in weights]
    return Knapsack(values, weights, sum(weights) // 2, dominance=dominance)


def tsp(seed: int, symmetric: bool) -> TSP:
    rng = Random(seed)
    rows = [[rng.randint(1, 30) for _ in range(7)] for _ in range(7)]
    if symmetric:
        rows = [[rows[min(i, j)][max(i, j)] for j in range(7)] for i in range(7)]
    return TSP(rows)


OPTIMISED: dict[str, Callable[[int], Problem[Any]]] = {
    "knapsack": lambda seed: knapsack(seed, dominance=False),
    "knapsack-dominance": lambda seed: knapsack(seed, dominance=True),
    "tsp": lambda seed: tsp(seed, symmetric=True),
    "atsp": lambda seed: tsp(seed, symmetric=False),
}
COUNTED: dict[str, Problem[Any]] = {
    "queens": Queens(6),
    "semigroups": NumericalSemigroups(7),
    "uts": UTS(depth=4),
    "uts-kernel": UTS(depth=4, kernel=True),
    "binomial": UTS(tree="binomial", b0=20, q=0.2, m=4),
}


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("name", OPTIMISED)
def test_the_optimum(name: str, way: Coordination) -> None:
    for seed in range(3):
        problem = OPTIMISED[name](seed)
        outcome = optimise(problem, workers=3, engine="local", seed=seed, coordination=way)
        assert outcome.status == "optimal"
        assert outcome.best is not None
        assert outcome.best.value == plain_optimise(problem).value
        assert problem.objective(outcome.best.node) == outcome.best.value


@pytest.mark.parametrize("name", OPTIMISED)
def test_the_optimum_best_first(name: str) -> None:
    problem = OPTIMISED[name](7)
    outcome = optimise(problem, order="best-first")
    assert outcome.best is not None
    assert outcome.best.value == plain_optimise(problem).value


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("name", OPTIMISED)
def test_the_five_best(name: str, way: Coordination) -> None:
    problem = OPTIMISED[name](11)
    values = sorted(plain_enumerate(problem).values.elements(), reverse=problem.sense == "max")
    outcome = k_best(problem, 5, workers=2, engine="local", coordination=way)
    assert [solution.value for solution in outcome.solutions] == values[:5]
    assert len({solution.node for solution in outcome.solutions}) == 5


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("name", COUNTED)
def test_the_nodes_of_each_depth(name: str, way: Coordination) -> None:
    problem = COUNTED[name]
    outcome = enumerate(problem, NodesByDepth(), workers=3, engine="local", coordination=way)
    assert dict(zip(range(100), outcome.total, strict=False)) == plain_enumerate(problem).by_depth


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_deciding(way: Coordination) -> None:
    problems: list[Problem[Any]] = [Queens(3), Queens(6), NumericalSemigroups(5)]
    for problem in problems:
        outcome = decide(problem, workers=3, engine="local", coordination=way)
        known = plain_decide(problem).node is not None
        assert outcome.status == ("feasible" if known else "infeasible")


def test_in_processes() -> None:
    assert enumerate(Queens(8), Solutions(), workers=2, engine="processes").total == 92
    problem = knapsack(5, dominance=True)
    outcome = optimise(problem, workers=2, engine="processes", coordination=Budget(1))
    assert outcome.best is not None
    assert outcome.best.value == plain_optimise(problem).value


@pytest.mark.turns
@pytest.mark.parametrize("name", OPTIMISED)
def test_bounds_keys_and_orders_hold(name: str) -> None:
    for seed in range(3):
        check(OPTIMISED[name](seed))


def test_the_other_problems_hold_too() -> None:
    for problem in COUNTED.values():
        check(problem)
