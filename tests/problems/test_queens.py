"""Queens: the known numbers of ways, none of which has two queens on a line."""

import pytest
from support.search.plain_search import plain_decide, plain_enumerate, plain_optimise

from collir.problems.queens import Queens
from collir.search.core.problem import SearchError

WAYS = {1: 1, 2: 0, 3: 0, 4: 2, 5: 10, 6: 4, 7: 40, 8: 92, 9: 352, 10: 724}
"""OEIS A000170."""


@pytest.mark.parametrize("n", WAYS)
def test_the_number_of_ways(n: int) -> None:
    assert plain_enumerate(Queens(n)).values[n] == WAYS[n]


@pytest.mark.slow
def test_the_number_of_ways_on_a_board_of_11() -> None:
    assert plain_enumerate(Queens(11)).values[11] == 2680


@pytest.mark.parametrize("n", [1, 4, 8, 12])
def test_no_two_queens_attack_each_other(n: int) -> None:
    problem = Queens(n)
    outcome = plain_decide(problem)
    columns = problem.show(outcome.node)
    assert sorted(columns) == list(range(n))
    assert len({row + column for row, column in enumerate(columns)}) == n
    assert len({row - column for row, column in enumerate(columns)}) == n


def test_there_is_no_way_on_a_small_board() -> None:
    assert plain_decide(Queens(3)).node is None
    assert plain_optimise(Queens(2)).value is None


def test_one_full_board_is_enough_to_optimise() -> None:
    assert plain_optimise(Queens(8)).nodes == plain_decide(Queens(8)).nodes


def test_boards_are_made_one_at_a_time() -> None:
    problem = Queens(1000)
    assert next(problem.children(problem.root())).placed == (0,)


@pytest.mark.parametrize("n", [0, -1, 1001])
def test_a_board_that_there_is_not(n: int) -> None:
    with pytest.raises(SearchError, match=f"from 1 to 1000 queens, not {n}"):
        Queens(n)
