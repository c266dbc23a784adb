"""The cheapest order of steps on one value, one after the other.

Some steps of a row change the layout of the value, and the others compute. Both kinds keep their
order. An interleaving of the two is a path through a grid, from corner to corner: edges across
change the layout, and edges down compute. A square of the grid is a pair of steps that may or may
not change places. Steps that change the layout and meet may become the cheapest program from the
first layout to the last. The cheapest path is found by dynamic programming.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from collir.dialects.operation import DistOp, is_placeholder
from collir.layout import DistType
from collir.synthesis.programs.fusion import layout_change, only_user, rows_of
from collir.synthesis.reorder.prices import NOTHING, CheapestRun, Form, Price, StepPrices
from collir.synthesis.reorder.swap import after, before

Point = tuple[int, int]
"""The numbers of steps done: of those that compute, and of those that change the layout."""


@dataclass(frozen=True)
class PathStep:
    """A step of a path.

    Attributes:
        does: the step, or a program in the place of several steps.
        result: the type of the result.
        origin: the number of the operation that it replaces; for a program, the last of them.
    """

    does: Form | CheapestRun
    result: DistType
    origin: int


@dataclass(frozen=True)
class _Way:
    """The cheapest way to a point.

    Attributes:
        price: the price of the way.
        start: the point before; None: the way has no steps.
        last: the step from there; None: there is none to take.
    """

    price: Price
    start: Point | None = None
    last: PathStep | None = None


class Grid:
    """The interleavings of a row of steps that compute the same value.

    Attributes:
        types: the type of the value at each point that can be reached.
        across: from each point, the step that changes the layout.
        down: the points from which a step computes.
        price: the price of the row as it is written; None: it has none.
    """

    def __init__(self, prices: StepPrices, source: DistType, forms: Sequence[Form]):
        self.prices = prices
        self.local_at = [n for n, form in enumerate(forms) if form.kind.maps]
        self.mover_at = [n for n, form in enumerate(forms) if not form.kind.maps]
        self.locals = [forms[n] for n in self.local_at]
        self.size = len(self.local_at), len(self.mover_at)
        self.types: dict[Point, DistType] = {(0, 0): source}
        self.across: dict[Point, Form] = {}
        self.down: set[Point] = set()
        self.price: Price | None = self._written(forms)
        if self.price is not None:
            self._movers_first()
            self._locals_first()

    def _written(self, forms: Sequence[Form]) -> Price | None:
        """Add the path of the row as it is written; return its price."""
        i, j, total = 0, 0, NOTHING
        for form in forms:
            x = self.types[i, j]
            price, result = self.prices.price(form, x), self.prices.type(form, x)
            if price is None or result is None:
                return None
            total = total.plus(price)
            if form.kind.maps:
                self.down.add((i, j))
                i += 1
            else:
                self.across[i, j] = form
                j += 1
            self.types[i, j] = result
        return total

    def _movers_first(self) -> None:
        """Add the squares on the side of the path where layouts are changed earlier."""
        for i in reversed(range(self.size[0])):
            for j in range(self.size[1]):
                if (i, j) not in self.down or (i, j) in self.across:
                    continue
                if (mover := self.across.get((i + 1, j))) is None:
                    continue
                x, passed = self.types[i, j], self.types[i + 1, j + 1]
                swapped = before(self.prices, mover, self.locals[i], x, passed)
                if swapped is not None:
                    self.across[i, j], self.types[i, j + 1] = swapped
                    self.down.add((i, j + 1))

    def _locals_first(self) -> None:
        """Add the squares on the side of the path where layouts are changed later."""
        for i in range(self.size[0]):
            for j in reversed(range(self.size[1])):
                if (i, j + 1) not in self.down or (i, j) in self.down:
                    continue
                if (mover := self.across.get((i, j))) is None:
                    continue
                x, passed = self.types[i, j], self.types[i + 1, j + 1]
                swapped = after(self.prices, mover, self.locals[i], x, passed)
                if swapped is not None:
                    self.across[i + 1, j], self.types[i + 1, j] = swapped
                    self.down.add((i, j))

    @property
    def cheapest(self) -> Price:
        """The price of the path of least time."""
        return self._settled(False, lambda _: True)[1]

    def best(self) -> list[PathStep] | None:
        """Return the steps of a path cheaper than the row as it is written; None: there is none."""
        written = self.price
        if written is None:
            return None
        for sending_first in (False, True):
            path, price = self._settled(sending_first, lambda price: price.pays(written))
            if price.pays(written):
                return path
        return None

    def _settled(
        self, sending_first: bool, worth: Callable[[Price], bool]
    ) -> tuple[list[PathStep], Price]:
        """Return the cheapest path and its price.

        A program counts with a lower bound on its price until it lies on a path that would be the
        cheapest; then it is searched. So no path is cheaper than it seems.
        """
        while True:
            ways = self._ways(sending_first)
            way = ways[self.size]
            price, path = way.price, list[PathStep]()
            while way.start is not None:
                path += [way.last] if way.last else []
                way = ways[way.start]
            runs = [step.does for step in path if isinstance(step.does, CheapestRun)]
            guesses = [run for run in runs if run.plan is None]
            if not guesses or not worth(price):
                return path[::-1], price
            for run in guesses:
                self.prices.run(run.source, run.target)

    def _ways(self, sending_first: bool) -> dict[Point, _Way]:
        """Return the cheapest way to every point."""
        ways = {(0, 0): _Way(NOTHING)}
        for i in range(self.size[0] + 1):
            for j in range(self.size[1] + 1):
                if (i, j) not in ways:
                    continue
                for end, price, last in self._from(i, j):
                    total = ways[i, j].price.plus(price)
                    if end not in ways or total.before(ways[end].price, sending_first):
                        ways[end] = _Way(total, (i, j), last)
        return ways

    def _from(self, i: int, j: int) -> Iterator[tuple[Point, Price, PathStep | None]]:
        """Yield the steps from a point: where they end, their price, and the step to take."""
        x = self.types[i, j]
        if (i, j) in self.down:
            form, result = self.locals[i], self.types[i + 1, j]
            price = self.prices.price(form, x)
            if price is not None:
                yield (i + 1, j), price, PathStep(form, result, self.local_at[i])
        sends = False
        for end in range(j, self.size[1]):
            if (form := self.across.get((i, end))) is None:
                return
            result, origin = self.types[i, end + 1], self.mover_at[end]
            sends |= form.kind.sends
            if end == j:
                price = self.prices.price(form, x)
                if price is not None:
                    yield (i, end + 1), price, PathStep(form, result, origin)
            elif sends and (run := self.prices.guessed(x, result)) is not None:
                empty = run.plan is not None and not run.plan.steps
                last = None if empty else PathStep(run, result, origin)
                yield (i, end + 1), run.price, last


def part(op: object) -> DistOp | None:
    """Return an operation, if it may be in a row of steps that are interleaved anew."""
    if isinstance(op, DistOp) and op.kind.maps:
        return op
    change = layout_change(op)
    return None if is_placeholder(change) else change


def threads(function: FuncOp) -> Iterator[list[DistOp]]:
    """Yield the longest rows of operations on one value."""
    return rows_of(function, part)


def thread_to(value: SSAValue) -> list[DistOp]:
    """Return the row of operations that make a value, up to a result that has several uses."""
    row: list[DistOp] = []
    while only_user(value) is not None and (op := part(value.owner)) is not None:
        row.append(op)
        value = op.operands[0]
    return row[::-1]
