"""Tests of the function that is called with solutions, and of coordinations by name."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.search.problems import Heap, Tree, trees

from collir.search import (
    Local,
    Nodes,
    Options,
    Processes,
    SearchError,
    Solution,
    decide,
    enumerate_tree,
    k_best,
    optimise,
    so_far,
)
from collir.search.core.coordination import COORDINATIONS


@given(
    trees(),
    st.sampled_from(["sequential", "budget=1", "depth-bounded=3", "ordered=2"]),
    st.integers(1, 3),
)
@settings(max_examples=40)
def test_each_solution_is_better_than_all_before(
    problem: Tree, coordination: str, workers: int
) -> None:
    """The last one is the best; one worker tells of all that are better than those before."""
    heard: list[Solution[int]] = []
    engine = Local(workers)
    outcome = optimise(problem, engine=engine, coordination=coordination, on_solution=heard.append)
    assert (heard[-1].value if heard else None) == (outcome.best and outcome.best.value)
    values = [solution.value for solution in heard]
    costs = [value if problem.sense == "min" else -value for value in values]
    if not coordination.startswith("ordered"):  # there an earlier one of equal value is better
        assert all(after < before for before, after in pairwise(costs))


def test_the_k_best_are_all_told() -> None:
    heard: list[Solution[int]] = []
    outcome = k_best(Heap(100), 5, on_solution=heard.append)
    told = {solution.node for solution in heard}
    assert {solution.node for solution in outcome.solutions} <= told
    assert len(told) == len(heard) < 100


@pytest.mark.parametrize("engine", ["processes", "threads", "auto"])
def test_other_engines_tell_in_this_process(engine: Any) -> None:
    heard: list[Solution[int]] = []
    options = Options(engine=engine, workers=2, coordination="budget", on_solution=heard.append)
    outcome = optimise(Heap(2000), **options)
    assert outcome.best is not None
    assert heard[-1].value == outcome.best.value == max(Heap(2000).most())
    heard.clear()
    assert decide(Heap(2000), target=1000, **options).status == "feasible"
    assert len(heard) == 1


def test_its_exception_ends_the_search_and_keeps_what_was_found() -> None:
    def stop(solution: Solution[int]) -> None:
        if solution.value > 900:
            raise ValueError("good enough")

    with Processes(2) as engine:
        with pytest.raises(ValueError, match="good enough") as error:
            optimise(Heap(3000), engine=engine, on_solution=stop)
        known: Any = so_far(error.value)
        assert known.best.value > 900
        assert enumerate_tree(Heap(50), Nodes(), engine=engine).total == 50


def test_wrong_uses_are_errors() -> None:
    wrong: Any = "print"
    with pytest.raises(SearchError, match="on_solution is a function, not 'print'"):
        optimise(Heap(5), on_solution=wrong)
    with pytest.raises(SearchError, match="use a fold"):
        enumerate_tree(Heap(5), Nodes(), on_solution=print)
    with pytest.raises(SearchError, match="there is no coordination 'bugdet'; there is sequential"):
        optimise(Heap(5), coordination="bugdet")
    with pytest.raises(SearchError, match="sequential takes no number"):
        optimise(Heap(5), coordination="sequential=3")


@pytest.mark.parametrize("name", COORDINATIONS)
def test_each_name_is_that_of_a_coordination(name: str) -> None:
    outcome = optimise(Heap(300), workers=2, engine="local", coordination=name)
    assert outcome.best is not None and outcome.best.value == max(Heap(300).most())
