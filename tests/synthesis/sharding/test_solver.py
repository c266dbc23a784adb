"""The least sum of tables and fans is that of all combinations of values, and no bound is above a
sum that it bounds."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from support.programs.collectives import RANDOM

from collir.search import optimise
from collir.synthesis.sharding.elimination import eliminate
from collir.synthesis.sharding.factors import Costs, FactorSum, FactorTable, Fan, merged
from collir.synthesis.sharding.messages import Messages
from collir.synthesis.sharding.rounds import SumRounds
from collir.synthesis.sharding.solver import Least, least_sum


def _costs(rng: random.Random, *shape: int) -> Costs:
    count = int(np.prod(shape))
    return np.array([rng.choice([0, 0, rng.randint(1, 20)]) for _ in range(count)], float).reshape(
        shape
    )


def _sum(rng: random.Random) -> FactorSum:
    sizes = [rng.randint(1, 4) for _ in range(rng.randint(2, 7))]
    tables: list[FactorTable] = []
    for _ in range(rng.randint(0, 8)):
        scope = tuple(rng.sample(range(len(sizes)), rng.randint(1, min(3, len(sizes)))))
        tables.append(FactorTable(scope, _costs(rng, *(sizes[v] for v in scope))))
    fans: list[Fan] = []
    for _ in range(rng.randint(0, 3)):
        own, *users = rng.sample(range(len(sizes)), rng.randint(2, min(6, len(sizes))))
        users += rng.sample(users, rng.randint(0, 1))
        layouts = rng.randint(1, 4)
        needs = tuple(np.array([rng.randrange(layouts) for _ in range(sizes[u])]) for u in users)
        fans.append(Fan(own, tuple(users), needs, _costs(rng, sizes[own], layouts)))
    return FactorSum(sizes, tables, fans)


def _plain(whole: FactorSum, values: tuple[int, ...]) -> float:
    """Return a sum as its definition says."""
    total = sum(float(t.costs[tuple(values[v] for v in t.scope)]) for t in whole.tables)
    for fan in whole.fans:
        brought = {int(n[values[u]]) for u, n in zip(fan.users, fan.needs, strict=True)}
        total += sum(float(fan.prices[values[fan.own], layout]) for layout in brought)
    return total


def _all(whole: FactorSum) -> dict[tuple[int, ...], float]:
    return {x: _plain(whole, x) for x in itertools.product(*map(range, whole.sizes))}


@given(RANDOM)
def test_the_least_sum_is_that_of_all_combinations(rng: random.Random) -> None:
    whole = _sum(rng)
    found = least_sum(whole)
    sums = _all(whole)
    assert found.sum == pytest.approx(min(sums.values()))
    assert not found.ended
    values = tuple(found.values[v] for v in range(len(whole.sizes)))
    assert sums[values] == pytest.approx(found.sum)


@pytest.mark.turns
@given(RANDOM)
def test_values_and_tables_say_the_same(rng: random.Random) -> None:
    whole = _sum(rng)
    dense = whole.with_tables(10**9)
    assert not dense.fans
    together = FactorSum(whole.sizes, merged(dense.tables), [])
    for values, total in _all(whole).items():
        named = dict(enumerate(values))
        assert whole.value(named) == pytest.approx(total)
        assert together.value(named) == pytest.approx(total)
        for variable in range(len(values)):
            along = sum(part.along(variable, named) for part in whole.of[variable])
            if whole.of[variable]:
                assert np.ndim(along) == 1


@pytest.mark.turns
@given(RANDOM)
def test_no_message_leads_to_a_bound_above_a_sum(rng: random.Random) -> None:
    whole = _sum(rng)
    variables = list(range(len(whole.sizes)))
    messages = Messages(whole.sizes, variables, merged(whole.tables), whole.fans, 0.0)
    sums = _all(whole)
    before = 0.0
    for passes in (1, 2, 5):
        messages.run(passes, 0.0)
        assert messages.bound >= before - 1e-9
        before = messages.bound
        assert messages.bound <= min(sums.values()) + 1e-9
        for values, total in sums.items():
            for variable, value in enumerate(values):
                assert messages.floor + messages.above[variable][value] <= total + 1e-9


@given(RANDOM)
def test_the_least_of_a_fan_over_all_but_one_variable_is_exact(rng: random.Random) -> None:
    whole = _sum(rng)
    for fan in whole.fans:
        if len(set(fan.users)) < len(fan.users):
            continue
        alone = Messages(whole.sizes, list(fan.scope), [], [fan], 0.0)
        (factor,) = alone.factors
        for variable in fan.scope:
            factor.add(variable, _costs(rng, whole.sizes[variable]))
        more = [getattr(factor, "moved")[v] for v in fan.scope]  # noqa: B009
        table = fan.table().costs.reshape([whole.sizes[v] for v in fan.scope])
        for axis, own in enumerate(more):
            table = table + own.reshape([-1 if n == axis else 1 for n in range(table.ndim)])
        for axis, variable in enumerate(fan.scope):
            others = tuple(n for n in range(table.ndim) if n != axis)
            np.testing.assert_allclose(factor.least(variable), table.min(axis=others))


@given(RANDOM)
def test_elimination_beside_a_solution_finds_none_that_is_worse(rng: random.Random) -> None:
    whole = _sum(rng).with_tables(10**9)
    values = {v: rng.randrange(size) for v, size in enumerate(whole.sizes)}
    for most in (1, 4, 16, 10**6):
        found = eliminate(whole.sizes, whole.tables, most, around=values).complete({})
        assert whole.value(found) <= whole.value(values) + 1e-9
    assert whole.value(found) == pytest.approx(min(_all(whole).values()))


@given(RANDOM)
def test_the_search_ends_with_the_least_sum_where_rounds_leave_a_gap(rng: random.Random) -> None:
    whole = _sum(rng)
    kept = tuple(np.arange(size) for size in whole.sizes)
    rounds = SumRounds(whole, kept)
    rounds.bound, rounds.floor = -1.0, 0.0  # as if they had found nothing out
    rounds.above = {v: np.zeros(size) for v, size in enumerate(whole.sizes) if size > 1}
    rounds.least = float("inf")
    if rounds.above:
        found = optimise(Least(rounds), order="best-first", progress=False)
        assert found.best is not None
        assert found.best.value == pytest.approx(min(_all(whole).values()))
