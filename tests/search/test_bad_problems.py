"""Wrong problems and options raise a clear error, and never lead to an endless search."""

import itertools
import math
import threading
from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
import pytest
from support.harness.hanging import within
from support.search.problems import BoundedTree, BoundedWalks, Edges, Heap, Tree, Walk, Walks

from collir.search import (
    Budget,
    DepthBounded,
    Local,
    Nodes,
    Options,
    Ordered,
    Problem,
    Processes,
    SearchError,
    StackStealing,
    Threads,
    check,
    decide,
    enumerate,
    k_best,
    optimise,
)
from collir.search.core.plan import ORDERS, Order


@pytest.fixture(autouse=True)
def no_hang() -> Generator[None]:
    with within():
        yield


@pytest.fixture(scope="module")
def engine() -> Generator[Processes]:
    with Processes(2) as engine:
        yield engine


class Line(Problem[Any]):
    """A root and a row of nodes below it, with objectives, bounds and options as given."""

    def __init__(self, value: Any = 1, bound: Any = 10, length: float = 3):
        self.value, self.limit, self.length = value, bound, length

    def root(self) -> Any:
        return 0

    def children(self, node: Any) -> Any:
        return [node + 1] if node < self.length else []

    def objective(self, node: Any) -> Any:
        return self.value

    def bound(self, node: Any) -> Any:
        return self.limit


class Circle(Line):
    """Five nodes in a chain."""

    def children(self, node: int) -> list[int]:
        return [(node + 1) % 5]


# Endless trees.


def test_children_that_lead_in_a_circle_are_named() -> None:
    for search in (optimise, enumerate):
        with pytest.raises(SearchError, match=r"\d lies below itself: the children lead in a"):
            search(Circle())
    with pytest.raises(SearchError, match="lies below itself"):
        check(Circle())


@pytest.mark.parametrize(
    "name",
    [
        "local",
        pytest.param("processes", marks=pytest.mark.slow),
        pytest.param("threads", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("order", ORDERS)
def test_a_tree_without_an_end_is_an_error_everywhere(name: Any, order: Order) -> None:
    for problem in (Circle(), Line(length=math.inf)):
        with pytest.raises(SearchError, match=r"lies below itself|may have no end"):
            optimise(problem, engine=name, workers=2, order=order, coordination=StackStealing())


def test_a_limit_of_the_depth_ends_a_tree_without_an_end() -> None:
    for problem in (Circle(), Line(length=math.inf)):
        for limit in (0, 7, 300):
            outcome = enumerate(problem, Nodes(), depth_limit=limit)
            assert (outcome.status, outcome.total) == ("complete", limit + 1)


@pytest.mark.parametrize("checked", [False, True])
def test_a_limit_of_the_depth_ends_a_circle_at_any_depth(checked: bool) -> None:
    """Walks of limited length make a finite tree, although vertices repeat."""
    limit = 1500 if not checked else 20
    outcome = enumerate(Circle(), Nodes(), depth_limit=limit, check=checked)
    assert outcome.total == limit + 1


def test_a_check_of_a_tree_without_an_end_ends() -> None:
    with within(), pytest.raises(SearchError, match="deeper"):
        check(Line(length=math.inf))


# Objectives and bounds that are not numbers.

NO_NUMBERS = ["abc", [1], 1j, math.nan, np.float64(math.nan)]
MESSAGE = r"the (objective|bound) of 0 is"


@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
def test_an_objective_that_is_no_number_is_named(value: Any) -> None:
    for order in ORDERS:
        with pytest.raises(SearchError, match=MESSAGE):
            decide(Line(value), target=1, order=order)
    with pytest.raises(SearchError, match=MESSAGE):
        optimise(Line(value))


@pytest.mark.parametrize("value", [*NO_NUMBERS, None], ids=repr)
def test_a_bound_that_is_no_number_is_named(value: Any) -> None:
    with pytest.raises(SearchError, match=MESSAGE):
        optimise(Line(1, value))


@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
def test_an_objective_that_is_no_number_is_named_best_first(value: Any) -> None:
    with pytest.raises(SearchError, match=MESSAGE):
        optimise(Line(value), order="best-first")


@pytest.mark.parametrize("value", [*NO_NUMBERS, None], ids=repr)
def test_a_bound_that_is_no_number_is_named_best_first(value: Any) -> None:
    with pytest.raises(SearchError, match=MESSAGE):
        optimise(Line(1, value), order="best-first")


def test_an_objective_that_is_no_number_is_named_by_workers(engine: Processes) -> None:
    for bad in (Line("abc"), Line(math.nan)):
        with pytest.raises(SearchError, match="the objective of 0 is"):
            optimise(bad, engine=engine)
        with pytest.raises(SearchError, match="the objective of 0 is"):
            optimise(bad, engine=Threads(2))
    assert optimise(Line(), engine=engine).status == "optimal"


def test_truth_values_and_numpy_numbers_are_numbers() -> None:
    for value in (True, np.int64(1), np.float32(1), np.float64(1)):
        for order in ORDERS:
            outcome = optimise(Line(value), order=order)
            assert outcome.best is not None and outcome.best.value == 1
            assert decide(Line(value), target=1, order=order).status == "feasible"


def test_a_sense_that_is_none_is_an_error() -> None:
    problem: Any = Line()
    problem.sense = "most"
    with pytest.raises(SearchError, match="'min' or 'max', not 'most'"):
        optimise(problem)
    with pytest.raises(SearchError, match="'min' or 'max', not 'most'"):
        decide(problem, target=1)


# Errors that a check finds.


def test_a_check_names_a_bound_that_is_not_admissible() -> None:
    problem = BoundedTree([0, 1, 1], [1, 2, 3, 9], "max", [0, 0, 0, 0], False)
    assert optimise(problem, check=True).bound == 9
    problem.bounds[1] = 8
    with pytest.raises(SearchError, match=r"bound of 1 is not admissible: it is 8, and 3 below"):
        optimise(problem, check=True)
    problem.bounds[1], problem.bounds[3] = 9, 8
    with pytest.raises(SearchError, match="bound of 3 is not admissible"):
        optimise(problem, check=True)


def test_a_check_names_children_that_are_not_sorted_by_their_bounds() -> None:
    problem = BoundedTree([0, 0, 0], [1, 2, 3, 4], "max", [9, 0, 0, 0], True)
    assert check(problem) == 4
    problem.below[0].reverse()
    with pytest.raises(SearchError, match=r"children of 0 are not sorted.*: 2 has a better one"):
        optimise(problem, check=True)


class Keyed(Tree):
    """Leaves with given keys and costs."""

    keys: dict[int, tuple[str, int]]

    def key(self, node: int) -> str | None:
        return self.keys[node][0] if node in self.keys else None

    def cost(self, node: int) -> int:
        return self.keys[node][1]


def test_a_check_names_a_key_that_two_different_states_have() -> None:
    problem = Keyed([0, 0], [None, 5, 7], "max")
    problem.keys = {1: ("state", 1), 2: ("state", 2)}
    with pytest.raises(SearchError, match=r"the key of 1 is that of 2|the key of 2 is that of 1"):
        optimise(problem, check=True)
    problem.keys = {1: ("state", 2), 2: ("state", 1)}
    assert optimise(problem, check=True).bound in (7, math.inf)


class Restless(Line):
    """A node whose children differ from call to call."""

    def __init__(self) -> None:
        super().__init__()
        self.counter = itertools.count()

    def children(self, node: int) -> Iterator[int]:
        if node < 2:
            yield from range(node + 1, node + 2 + next(self.counter) % 2)


def test_a_check_names_children_that_are_not_the_same_each_time() -> None:
    with pytest.raises(SearchError, match="children of 0 are not the same each time"):
        check(Restless())


def test_a_check_visits_every_node_once() -> None:
    assert check(Heap(500, 3)) == 500
    assert check(Heap(500, 3), depth_limit=2) == 13


# Nodes of every type.


class Strange(Line):
    """A tree whose nodes are the results of a function of numbers."""

    def __init__(self, make: Any, number: Any, size: int = 40):
        super().__init__()
        self.make, self.number, self.size = make, number, size

    def root(self) -> Any:
        return self.make(0)

    def children(self, node: Any) -> Any:
        first = 2 * self.number(node) + 1
        return (self.make(i) for i in range(first, min(first + 2, self.size)))

    def objective(self, node: Any) -> int:
        return self.number(node)

    def bound(self, node: Any) -> int:
        return self.size

    def show(self, node: Any) -> int:
        return self.number(node)


def as_list(number: int) -> list[int]:
    return [number]


def as_dict(number: int) -> dict[str, int]:
    return {"number": number}


def as_array(number: int) -> Any:
    return np.array([number, 0])


def or_none(number: int) -> int | None:
    return number or None


def of_list(node: list[int]) -> int:
    return node[0]


def of_dict(node: dict[str, int]) -> int:
    return node["number"]


def of_array(node: Any) -> int:
    return int(node[0])


def of_none(node: int | None) -> int:
    return node or 0


KINDS: list[tuple[Any, Any]] = [
    (as_list, of_list),
    (as_dict, of_dict),
    (as_array, of_array),
    (or_none, of_none),
]


@pytest.mark.parametrize("kind", KINDS, ids=["lists", "dicts", "arrays", "None"])
def test_nodes_need_be_neither_hashable_nor_comparable(
    engine: Processes, kind: tuple[Any, Any]
) -> None:
    for where in (Local(1), Local(3), Threads(2), engine):
        for order in ORDERS:
            for coordination in (Budget(1), Ordered(2), DepthBounded(3), StackStealing()):
                outcome = k_best(
                    Strange(*kind), 3, engine=where, order=order, coordination=coordination, slice=1
                )
                assert [solution.shown for solution in outcome.solutions] == [39, 38, 37]
    assert enumerate(Strange(*kind), engine=engine, coordination=Budget(1)).total == 40


class Row(Strange):
    """A chain of nodes."""

    def children(self, node: Any) -> Any:
        number = self.number(node) + 1
        return [self.make(number)] if number < self.size else []


@pytest.mark.parametrize("checked", [False, True])
def test_nodes_that_have_no_single_truth_value_when_compared(checked: bool) -> None:
    """The check for circles accepts arrays as nodes."""
    problem = Row(as_array, of_array, 30 if checked else 1500)
    assert enumerate(problem, Nodes(), check=checked).total == problem.size


@pytest.mark.turns
def test_nodes_of_two_megabytes_do_not_block_workers_and_their_parent(engine: Processes) -> None:
    problem = Strange(_large, len, 100)
    problem.number = _size
    for coordination in (Budget(1), DepthBounded(50), StackStealing(), Ordered(4)):
        outcome = optimise(problem, engine=engine, coordination=coordination, slice=1)
        assert outcome.best is not None and outcome.best.value == 99
    assert enumerate(problem, engine=engine, coordination=Budget(1)).total == 100


def _large(number: int) -> bytes:
    return bytes([number]) * 2_000_000


def _size(node: bytes) -> int:
    return node[0]


# Problems that raise errors, or cannot be pickled.


class Raising(Line):
    """A problem that raises an exception at a given place."""

    def __init__(self, where: str):
        super().__init__(length=5)
        self.where = where

    def _raise(self, here: str) -> None:
        if here == self.where:
            raise ZeroDivisionError(f"no {here}")

    def root(self) -> int:
        self._raise("root")
        return 0

    def children(self, node: int) -> Iterator[int]:
        if node == 2:
            self._raise("children")
        if node < 5:
            yield node + 1
            if node == 3:
                self._raise("second child")

    def objective(self, node: int) -> int:
        if node == 2:
            self._raise("objective")
        return node

    def bound(self, node: int) -> int:
        if node == 2:
            self._raise("bound")
        return 9


@pytest.mark.parametrize("where", ["root", "children", "second child", "objective", "bound"])
def test_what_a_problem_raises_is_passed_on(engine: Processes, where: str) -> None:
    """The exception is raised itself, or as text from a worker; the engine stays usable."""
    for order in ORDERS:
        for place in (Local(1), Local(3), Threads(2)):
            with pytest.raises(ZeroDivisionError, match=f"no {where}"):
                optimise(Raising(where), engine=place, order=order, slice=1)
        with pytest.raises((SearchError, ZeroDivisionError), match=f"no {where}"):
            optimise(Raising(where), engine=engine, order=order, coordination=Budget(1))
        assert optimise(Raising("nowhere"), engine=engine, order=order).bound == 5


class Locked(Line):
    """A problem that cannot be pickled."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class LockedNodes(Line):
    """A problem whose nodes cannot be pickled."""

    def root(self) -> Any:
        return [threading.Lock()]

    def children(self, node: Any) -> Any:
        return []


class LockedChildren(LockedNodes):
    """A problem whose nodes, except the root, cannot be pickled."""

    def root(self) -> Any:
        return 0

    def children(self, node: Any) -> Any:
        return [threading.Lock()] if node == 0 else []


def test_a_problem_that_cannot_be_pickled_is_refused_before_anything_starts() -> None:
    with Processes(2) as engine:
        with pytest.raises(SearchError, match=r"Locked cannot be sent.*workers=1"):
            optimise(Locked(), engine=engine)
        assert engine.pids == []
    assert optimise(Locked()).status == "optimal"
    assert optimise(Locked(), engine="threads", workers=2).status == "optimal"


def test_a_child_that_cannot_be_pickled_is_an_error(engine: Processes) -> None:
    with pytest.raises(SearchError, match="pickle"):
        optimise(LockedChildren(), engine=engine, coordination=DepthBounded(2))
    assert optimise(Line(), engine=engine).status == "optimal"


def test_a_root_that_cannot_be_pickled_is_an_error(engine: Processes) -> None:
    try:
        with pytest.raises(SearchError, match="pickle"):
            optimise(LockedNodes(), engine=engine)
    finally:
        assert optimise(Line(), engine=engine).status == "optimal"


# Options.


@pytest.mark.parametrize(
    "options",
    [
        {"workers": 0},
        {"workers": -1},
        {"workers": 1.5},
        {"workers": True},
        {"depth_limit": -1},
        {"depth_limit": 0.5},
        {"slice": 0},
        {"time_limit": -1},
        {"time_limit": math.nan},
        {"node_limit": -5},
        {"memory_limit": -1},
        {"checkpoint_every": -1.0},
        {"checkpoint_every": math.nan},
        {"order": "breadth-first"},
        {"engine": "gpu"},
        {"engine": "process", "workers": 2},
        {"better_than": "much"},
        {"better_than": math.nan},
    ],
    ids=str,
)
def test_an_option_that_is_wrong_is_refused(options: Any) -> None:
    with pytest.raises(SearchError):
        optimise(Line(), **options)


@pytest.mark.parametrize(
    "options",
    [
        {"worker": 2},
        {"coordination": "badget"},
        {"coordination": Budget},
        {"engine": 42},
        {"time_limit": "soon"},
        {"node_limit": 1.5},
    ],
    ids=str,
)
def test_an_option_of_no_such_name_or_kind_is_refused(options: Any) -> None:
    with pytest.raises((SearchError, TypeError), match=str(next(iter(options)))[:4]):
        optimise(Line(), **options)


def test_other_arguments_that_are_wrong_are_refused() -> None:
    wrong: Any
    for wrong in (0, -1, True, 1.0, "3"):
        with pytest.raises(SearchError, match="k must be"):
            k_best(Line(), wrong)
    for wrong in (0, -1, 2.5, True):
        with pytest.raises(SearchError, match="budget"):
            Budget(wrong)
    for wrong in (-1, None, 1.5):
        with pytest.raises(SearchError, match="depth"):
            DepthBounded(wrong)
        with pytest.raises(SearchError, match="depth"):
            Ordered(wrong)
    with pytest.raises(SearchError, match="needs a target"):
        decide(Line())
    for wrong in ("great", math.nan):
        with pytest.raises(SearchError, match="target"):
            decide(Line(), target=wrong)
    with pytest.raises(SearchError, match="depth-first"):
        enumerate(Line(), order="best-first")


class NanCost(Walks):
    """A problem whose cost is not a number."""

    def cost(self, node: Walk) -> Any:
        return math.nan


def test_a_cost_that_is_no_number_is_named() -> None:
    for order in ORDERS:
        with pytest.raises(SearchError, match=r"the cost of Walk\(.* is not a number"):
            optimise(NanCost({0: [(1, (1,))]}, 1), order=order)


class Costless(Line):
    """A problem with a key and no cost."""

    def key(self, node: int) -> int:
        return node


def test_a_key_without_a_cost_is_an_error() -> None:
    with pytest.raises(NotImplementedError, match="Costless has a key but no cost"):
        optimise(Costless())


def test_a_problem_that_gives_nothing_says_so() -> None:
    nothing: Problem[int] = Problem()
    with pytest.raises(NotImplementedError, match="Problem gives no root"):
        optimise(nothing)


class Drawn(Line):
    """A tree that counts the generated children."""

    def __init__(self) -> None:
        super().__init__(bound=math.inf)
        self.drawn: list[int] = []

    def children(self, node: int) -> Iterator[int]:
        if node == 0:
            for child in range(1, 50):
                self.drawn.append(child)
                yield child


def test_a_decision_draws_no_more_children() -> None:
    problem = Drawn()
    decide(problem, target=1, slice=1)
    assert problem.drawn == []


def test_children_that_a_pruned_sibling_makes_needless_are_not_drawn() -> None:
    problem = Drawn()
    problem.limit, problem.sorted_by_bound = 1, True
    optimise(problem)
    assert problem.drawn in ([], [1])


def test_children_with_side_effects_are_drawn_once_each() -> None:
    for coordination in (None, Budget(1), StackStealing(), DepthBounded(1), Ordered(1)):
        problem = Drawn()
        outcome = enumerate(problem, Nodes(), engine=Local(3), coordination=coordination, slice=1)
        assert outcome.total == 50
        assert sorted(problem.drawn) == list(range(1, 50))


def test_a_circle_of_states_is_no_error_where_keys_end_it() -> None:
    edges: Edges = {i: [((i + 1) % 700, (0,))] for i in range(700)}
    for order in ORDERS:
        outcome = optimise(BoundedWalks(edges, 699), order=order)
        assert outcome.best is not None and outcome.best.value == 0
    options = Options(engine=Local(3), coordination=Budget(1))
    assert optimise(BoundedWalks(edges, 1000), **options).status == "infeasible"
