"""0/1 knapsack: the items of greatest total value within a total weight.

The bound is that of Dantzig ("Discrete-variable extremum problems", 1957): items by value per
weight, the last one in part.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cmp_to_key
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple, TypedDict

from collir.ir.diagnostics import Position
from collir.problems.text import EXACT, Word, bad, integer, read_text, word_rows
from collir.search.core.problem import Problem, SearchError, make_node

MAX_ITEMS = 10_000


class Packing(NamedTuple):
    """Items chosen among those before ``first``.

    Attributes:
        first: the index, densest first, from which on items may still be chosen.
        value: the total value of the chosen items.
        remaining: the capacity that is left.
        chosen: a mask of the chosen items, bit i for the i-th densest.
        bound: the value with the densest of the later items, the last of them in part, rounded
            down; no packing that contains the chosen items is worth more.
    """

    first: int
    value: int
    remaining: int
    chosen: int
    bound: int


class Packed(TypedDict):
    """A solution for people; items are counted from 0 in the input order."""

    value: int
    weight: int
    items: list[int]


class Knapsack(Problem[Packing]):
    """The choice of items to pack, each once or not at all.

    A child of a packing adds one item after its last item, in the order of density; every packing
    is a solution. The bounds of children fall, because an item that fits is also in the fractional
    optimum of the items from it on.

    Args:
        values: the value of each item, not negative.
        weights: the weight of each item, not negative, in the unit of the capacity.
        capacity: the greatest total weight.
        target: the value that a decision must reach.
        dominance: whether to keep only the most valuable of the packings with the same next item
            and the same capacity left; this takes memory for each kept packing.
    """

    sorted_by_bound = True

    def __init__(
        self,
        values: Sequence[int],
        weights: Sequence[int],
        capacity: int,
        target: int | None = None,
        dominance: bool = False,
    ):
        if len(values) != len(weights):
            raise SearchError(f"there are {len(values)} values and {len(weights)} weights")
        if len(values) > MAX_ITEMS:
            raise SearchError(f"there are {len(values)} items; at most {MAX_ITEMS} are searched")
        if any(type(number) is not int for number in (*values, *weights, capacity)):
            raise SearchError("values, weights and the capacity must be ints; scale fractions up")
        if min((*values, *weights, capacity)) < 0:
            raise SearchError("values, weights and the capacity must not be negative")
        if sum(values) > EXACT:
            raise SearchError(f"the values add up to more than {EXACT}; give them in a larger unit")
        self.values, self.weights = tuple(values), tuple(weights)
        self.capacity, self.target, self.dominance = capacity, target, dominance
        self._order = sorted(range(len(values)), key=cmp_to_key(self._denser))
        self._value = [values[i] for i in self._order]
        self._weight = [weights[i] for i in self._order]
        self._values_before = [0, *accumulate(self._value)]
        self._weights_before = [0, *accumulate(self._weight)]

    def _denser(self, i: int, j: int) -> int:
        """Compare the values per weight of two items, then their values; negative if i has more."""
        (v, w), (v2, w2) = ((self.values[k], self.weights[k]) for k in (i, j))
        weightless = (w2 == 0) - (w == 0)  # for two weightless items the products are equal
        return weightless or v2 * w - v * w2 or v2 - v

    def root(self) -> Packing:
        """Return the empty packing."""
        split = bisect_right(self._weights_before, self.capacity) - 1
        bound = self._values_before[split]
        if split < len(self._weight):
            left = self.capacity - self._weights_before[split]
            bound += left * self._value[split] // self._weight[split]
        return Packing(0, 0, self.capacity, 0, bound)

    def children(self, node: Packing) -> Iterator[Packing]:
        """Yield the packings with one more item that fits, the densest first."""
        index, value, remaining, chosen, _ = node
        weights, values, before = self._weight, self._value, self._weights_before
        values_before, items = self._values_before, len(weights)
        for i in range(index, items):
            if (weight := weights[i]) > remaining:
                continue
            first, worth = i + 1, value + values[i]
            room = before[first] + remaining - weight
            # The first item that does not fit completely, or the number of items.
            split = bisect_right(before, room, first) - 1
            bound = worth + values_before[split] - values_before[first]
            if split < items:
                bound += (room - before[split]) * values[split] // weights[split]
            packed = first, worth, remaining - weight, chosen | 1 << i, bound
            yield make_node(Packing, packed)

    def objective(self, node: Packing) -> int:
        """Return the value of the items."""
        return node.value

    def bound(self, node: Packing) -> int:
        """Return the value with the densest later items, the last of them in part, rounded down."""
        return node.bound

    def key(self, node: Packing) -> tuple[int, int] | None:
        """Return the next item and the capacity left, if dominance is enabled."""
        return (node.first, node.remaining) if self.dominance else None

    def cost(self, node: Packing) -> int:
        """Return the value, negated."""
        return -node.value

    def show(self, node: Packing) -> Packed:
        """Return the items, their value and their weight."""
        items = sorted(item for i, item in enumerate(self._order) if node.chosen >> i & 1)
        return {"value": node.value, "weight": self.capacity - node.remaining, "items": items}


def read_knapsack(path: Path, target: int | None = None, dominance: bool = False) -> Knapsack:
    """Read the instance in a file; see ``parse_knapsack``.

    Raises:
        DiagnosticError: the file cannot be read, or is not an instance.
    """
    return parse_knapsack(read_text(path), str(path), target, dominance)


def parse_knapsack(
    text: str, file: str = "<string>", target: int | None = None, dominance: bool = False
) -> Knapsack:
    """Parse an instance.

    The first line has the number of items and the capacity, every other line the value and the
    weight of an item. Lines that begin with ``#`` are comments.

    Raises:
        DiagnosticError: the text is not an instance.
    """
    lines = (words for words in word_rows(text, file) if not words[0].text.startswith("#"))
    head = next(lines, None)
    if head is None:
        message = "there is nothing here; the first line gives the number of items and the capacity"
        raise bad(Position(file, 1, 1), message)
    _two(head, "the number of items and the capacity")
    count = integer(head[0], "the number of items", high=MAX_ITEMS)
    capacity = integer(head[1], "the capacity")
    values: list[int] = []
    weights: list[int] = []
    for words in lines:
        if len(values) == count:
            message = f"there are more items than the {count} that the first line gives"
            raise bad(words[0].position, message)
        _two(words, "the value and the weight of an item")
        values.append(integer(words[0], "a value"))
        weights.append(integer(words[1], "a weight"))
    if len(values) < count:
        message = f"the file has {len(values)} items, not the {count} given here"
        raise bad(head[0].position, message)
    if sum(values) > EXACT:
        message = f"the values add up to more than {EXACT}; give them in a larger unit"
        raise bad(head[0].position, message)
    return Knapsack(values, weights, capacity, target, dominance)


def _two(words: list[Word], what: str) -> None:
    """Raise an error if a line does not have two words."""
    if len(words) == 2:
        return
    position = words[-1 if len(words) < 2 else 2].position
    count = "one number" if len(words) == 1 else f"{len(words)} words"
    raise bad(position, f"a line here gives {what}, and nothing else; this one has {count}")
