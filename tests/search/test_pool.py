"""Order of the pool: a worker's own deepest task, else the task nearest the root."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collir.problems import graphs
from collir.problems.clique import MaxClique
from collir.search import Budget, Coordination, DepthBounded, Local, optimise
from collir.search.core.tasks import SearchTask
from collir.search.running.pool import Pool

STEPS = st.one_of(
    st.tuples(st.just("put"), st.integers(0, 4), st.sampled_from([None, 0, 1, 2])),
    st.tuples(st.just("take"), st.integers(0, 2), st.none()),
    st.tuples(st.just("keep"), st.integers(0, 4), st.none()),
)


@settings(max_examples=36)
@given(st.lists(STEPS, max_size=300), st.booleans())
def test_the_pool_gives_what_a_plain_list_gives(
    steps: list[tuple[str, int, int | None]], by_maker: bool
) -> None:
    """The pool agrees with a plain list while taken tasks are dropped."""
    pool = Pool(lambda task: (task.depth,), by_maker)
    plain: list[tuple[int, int, int | None]] = []  # number, depth, maker
    for number, (what, value, maker) in enumerate(steps):
        if what == "put":
            pool.put(number, SearchTask(value, ([number],)), maker)
            plain.append((number, value, maker))
        elif what == "keep":
            pool.keep(lambda task, most=value: task.depth <= most)
            plain = [entry for entry in plain if entry[1] <= value]
        elif plain:
            own = [entry for entry in plain if by_maker and entry[2] == value]
            deepest = max((depth for _, depth, _ in own), default=0)
            nearest = min(depth for _, depth, _ in plain)
            expected = next(
                entry for entry in own or plain if entry[1] == (deepest if own else nearest)
            )
            assert pool.first(value) == expected[0]
            assert pool.take(expected[0]).depth == expected[1]
            plain.remove(expected)
        assert sorted(task.levels[0][0] for task in pool) == [number for number, _, _ in plain]
        assert len(pool) == len(plain)
    if not plain:
        with pytest.raises(LookupError):
            pool.first(0)


@pytest.mark.turns
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("coordination", [DepthBounded(3), DepthBounded(4), Budget(1)], ids=str)
def test_few_tasks_are_made_that_the_bound_rules_out(
    coordination: Coordination, workers: int
) -> None:
    """With the shallowest task first, or with pruned siblings as tasks, there were 150,000 to
    2,480,000 tasks here, for 13,727 nodes."""
    outcome = optimise(
        MaxClique(graphs.keller(4)), engine=Local(workers), coordination=coordination
    )
    assert outcome.best is not None and outcome.best.value == 11
    assert outcome.statistics.tasks < 20_000
    assert outcome.statistics.pruned < 30_000
