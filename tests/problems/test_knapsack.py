"""Knapsacks agree with dynamic programming; the bound holds; the reader and its errors."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.search.plain_search import plain_decide, plain_enumerate, plain_optimise

from collir.ir.diagnostics import DiagnosticError
from collir.problems.knapsack import Knapsack, Packing, parse_knapsack, read_knapsack
from collir.search.core.problem import SearchError

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "search"

Items = list[tuple[int, int]]
ITEMS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), max_size=9)
CAPACITY = st.integers(0, 40)


def by_table(items: Items, capacity: int) -> int:
    """Return the greatest value by dynamic programming over capacities."""
    best = [0] * (capacity + 1)
    for value, weight in items:
        for room in range(capacity, weight - 1, -1):
            best[room] = max(best[room], best[room - weight] + value)
    return best[capacity]


def knapsack(items: Items, capacity: int, dominance: bool = False) -> Knapsack:
    return Knapsack([v for v, _ in items], [w for _, w in items], capacity, dominance=dominance)


def subsets(items: Items, capacity: int) -> list[int]:
    """Return the value of each set of items that fits, by brute force."""
    values: list[int] = []
    for mask in range(1 << len(items)):
        chosen = [item for i, item in enumerate(items) if mask >> i & 1]
        if sum(w for _, w in chosen) <= capacity:
            values.append(sum(v for v, _ in chosen))
    return values


@given(ITEMS, CAPACITY)
def test_the_best_value(items: Items, capacity: int) -> None:
    problem = knapsack(items, capacity)
    outcome = plain_optimise(problem)
    packed = problem.show(outcome.node)
    assert outcome.value == packed["value"] == by_table(items, capacity)
    assert packed["value"] == sum(items[i][0] for i in packed["items"])
    assert packed["weight"] == sum(items[i][1] for i in packed["items"]) <= capacity


@given(ITEMS, CAPACITY)
def test_each_packing_is_one_node(items: Items, capacity: int) -> None:
    outcome = plain_enumerate(knapsack(items, capacity))
    assert sorted(outcome.values.elements()) == sorted(subsets(items, capacity))


@given(ITEMS, CAPACITY)
def test_the_bounds_hold_and_fall(items: Items, capacity: int) -> None:
    problem = knapsack(items, capacity)

    def best_below(node: Packing) -> int:
        children = list(problem.children(node))
        best = max([problem.objective(node), *map(best_below, children)])
        bounds = [problem.bound(child) for child in children]
        assert best <= problem.bound(node)
        assert all(a >= b for a, b in pairwise([problem.bound(node), *bounds]))
        return best

    best_below(problem.root())


@given(ITEMS, CAPACITY)
def test_the_best_below_depends_on_the_key_and_the_cost_only(items: Items, capacity: int) -> None:
    problem = knapsack(items, capacity, dominance=True)
    gains: dict[object, int] = {}

    def best_below(node: Packing) -> int:
        best = max([problem.objective(node), *map(best_below, problem.children(node))])
        gain = best + problem.cost(node)
        assert gains.setdefault(problem.key(node), gain) == gain
        return best

    best_below(problem.root())


def test_dominance_is_asked_for() -> None:
    root = knapsack([(1, 1)], 1).root()
    assert knapsack([(1, 1)], 1).key(root) is None
    assert knapsack([(1, 1)], 1, dominance=True).key(root) == (0, 1)


def test_deciding() -> None:
    problem = Knapsack([8, 10, 15, 4], [4, 5, 8, 3], 11, target=19)
    assert plain_decide(problem).value == 19
    assert plain_decide(problem, 20).node is None


def test_exact_where_floats_are_not() -> None:
    big = 2**52
    problem = Knapsack([big + 1, big - 1], [big + 1, big], 2**60)
    assert plain_optimise(problem).value == problem.bound(problem.root()) == 2**53


@pytest.mark.parametrize(
    ("values", "weights", "capacity", "message"),
    [
        ([1], [1, 2], 3, "there are 1 values and 2 weights"),
        ([-1], [1], 3, "must not be negative"),
        ([1], [1], -3, "must not be negative"),
        ([1.5], [1], 3, "must be ints; scale fractions up"),
        ([True], [1], 3, "must be ints"),
        ([2**53, 1], [1, 1], 3, "larger unit"),
        ([1] * 10001, [1] * 10001, 3, "at most 10000 are searched"),
    ],
)
def test_what_is_no_knapsack(
    values: list[int], weights: list[int], capacity: int, message: str
) -> None:
    with pytest.raises(SearchError, match=message):
        Knapsack(values, weights, capacity)


def test_reading() -> None:
    text = "# four items\n4 11\n\n8 4\r\n10 5\n15\t8\n4 3"
    problem = parse_knapsack(text)
    assert (problem.values, problem.weights) == ((8, 10, 15, 4), (4, 5, 8, 3))
    assert problem.capacity == 11
    assert plain_optimise(problem).value == 19


def test_the_example() -> None:
    problem = read_knapsack(EXAMPLES / "twenty_four.items", dominance=True)
    items = list(zip(problem.values, problem.weights, strict=True))
    outcome = plain_optimise(problem)
    assert outcome.value == by_table(items, problem.capacity) == 809


WRONG = [
    ("", "f:1:1: error: there is nothing here"),
    ("# only a comment\n\n", "f:1:1: error: there is nothing here"),
    ("3\n", "f:1:1: error: a line here gives the number of items and the capacity, and nothing"),
    ("1 10 x\n", "f:1:6: error: a line here gives the number of items and the capacity"),
    ("1 10\n5\n", "f:2:1: error: a line here gives the value and the weight of an item"),
    ("1 10\n5 1 1\n", "f:2:5: error: a line here gives the value and the weight of an item"),
    ("2 10\n5 1\n", "f:1:1: error: the file has 1 items, not the 2 given here"),
    ("1 10\n5 1\n6 1\n", "f:3:1: error: there are more items than the 1"),
    ("-1 10\n", "f:1:1: error: the number of items must not be negative, not -1"),
    ("99999999 10\n", "f:1:1: error: the number of items must be at most 10000, not 99999999"),
    ("1 10\n5 -1\n", "f:2:3: error: a weight must not be negative, not -1"),
    ("1 10\n5.5 1\n", "f:2:1: error: a value must be a whole number, not '5.5'; give it in a"),
    ("1 10\nnan 1\n", "f:2:1: error: a value must be a whole number, not 'nan'"),
    ("1 inf\n", "f:1:3: error: the capacity must be a whole number, not 'inf'"),
    ("1 1\n" + "9" * 5000 + " 1", "f:2:1: error: a value must be a whole number, not '9999"),
    ("1 1\n٣ 1", "f:2:1: error: a value must be a whole number, not '٣'"),
    ("2 1\n9007199254740992 1\n1 1", "f:1:1: error: the values add up to more than"),
]


@pytest.mark.parametrize(("text", "message"), WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_with_a_file(text: str, message: str) -> None:
    with pytest.raises(DiagnosticError) as error:
        parse_knapsack(text, "f")
    assert str(error.value).startswith(message)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path, message in [
        (tmp_path, "is a directory"),
        (tmp_path / "nothing", "no such file or directory"),
        (Path("/dev/zero"), "longer than 16 MiB"),
        (Path("a\0b"), "null"),
    ]:
        with pytest.raises(DiagnosticError, match=message):
            read_knapsack(path)
    (tmp_path / "bytes").write_bytes(b"1 10\n5 \xff\n")
    with pytest.raises(DiagnosticError, match=r"not UTF-8 text \(byte 0xff\)") as error:
        read_knapsack(tmp_path / "bytes")
    position = error.value.diagnostics[0].position
    assert position is not None
    assert (position.line, position.column) == (2, 3)


@given(st.text(alphabet="0123456789-. \n\t#ex\x00\x0b\x85", max_size=60))
def test_a_text_is_an_instance_or_has_an_error(text: str) -> None:
    try:
        parse_knapsack(text, "f")
    except DiagnosticError as error:
        assert all(d.position is not None for d in error.diagnostics)
