"""Numerical semigroups: their numbers by genus, and the fields of each."""

import pytest
from support.search.plain_search import plain_decide, plain_enumerate

from collir.problems.graphs import set_bits
from collir.problems.semigroups import NumericalSemigroups, Semigroup
from collir.search.core.problem import SearchError

# OEIS A007323, from genus 0.
COUNTS = [1, 1, 2, 4, 7, 12, 23, 39, 67, 118, 204, 343, 592, 1001, 1693, 2857, 4806, 8045, 13467]


def generated(generators: list[int], top: int) -> set[int]:
    """Return the sums of generators up to ``top``, by definition."""
    sums = {0}
    for number in range(1, top + 1):
        if any(number - g in sums for g in generators):
            sums.add(number)
    return sums


def all_semigroups(genus: int) -> list[Semigroup]:
    problem = NumericalSemigroups(genus)
    level = [problem.root()]
    semigroups: list[Semigroup] = []
    while level:
        semigroups += level
        level = [child for node in level for child in problem.children(node)]
    return semigroups


def closed_sets(genus: int) -> int:
    """Return the gap sets of all semigroups of a genus, by brute force below 2 * genus."""
    count = 0
    for gaps in range(1 << 2 * genus):
        if gaps.bit_count() != genus or gaps & 1:
            continue
        members = [i for i in range(2 * genus) if not gaps >> i & 1]
        sums = {a + b for a in members for b in members}
        count += not any(gaps >> s & 1 for s in sums)
    return count


def test_the_number_of_each_genus() -> None:
    outcome = plain_enumerate(NumericalSemigroups(18))
    assert [outcome.by_depth[g] for g in range(19)] == COUNTS
    assert outcome.values == {18: COUNTS[18]}


@pytest.mark.parametrize("genus", range(7))
def test_the_number_by_trying_all_sets_of_gaps(genus: int) -> None:
    assert closed_sets(genus) == COUNTS[genus]


def test_each_is_what_its_generators_generate() -> None:
    problem = NumericalSemigroups(8)
    seen: set[frozenset[int]] = set()
    for node in all_semigroups(8):
        members = set(set_bits(node.members))
        top = max(members)
        assert generated(problem.show(node), top) == members
        assert set(set_bits(node.mirror)) == {top - i for i in members}
        gaps = set(range(top)) - members
        assert len(gaps) == node.genus
        assert max(gaps, default=-1) + 1 == node.conductor
        assert min(members - {0}) == node.multiplicity
        for generator in problem.show(node):
            rest = [g for g in problem.show(node) if g != generator]
            assert generator not in generated(rest, top)
        seen.add(frozenset(members))
    assert len(seen) == sum(COUNTS[:9])


def test_what_is_shown() -> None:
    assert NumericalSemigroups(3).show(NumericalSemigroups(3).root()) == [1]
    outcome = plain_decide(NumericalSemigroups(3))
    assert NumericalSemigroups(3).show(outcome.node) == [4, 5, 6, 7]


@pytest.mark.parametrize("genus", [-1, 1001])
def test_a_genus_that_is_not_searched(genus: int) -> None:
    with pytest.raises(SearchError, match=f"from 0 to 1000, not {genus}"):
        NumericalSemigroups(genus)
