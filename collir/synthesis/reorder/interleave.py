"""Steps on one value, one after the other: in which order they are cheapest.

Of a row of steps on one value, some change its layout and the others compute. Both kinds keep their
order; how the two are interleaved is a path through a grid, from one corner to the other: one way a
step that changes the layout, the other way one that computes. Each square of the grid is a pair
that may change places, or not. Along the way, steps that change the layout and meet may be the
cheapest program from the first layout to the last. The cheapest path is found step by step.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from collir.dialects.operation import DistOp, is_placeholder
from collir.layout import DistType
from collir.synthesis.programs.fusion import layout_change, only_user
from collir.synthesis.reorder.prices import NOTHING, Form, Price, Prices, Run
from collir.synthesis.reorder.swap import after, before

Point = tuple[int, int]
"""How many steps are done: of those that compute, and of those that change the layout."""


@dataclass(frozen=True)
class Placed:
    """A step of a path: what it does, what type that gives, and the number of the operation that
    did it (for a run: the last of those that did)."""

    does: Form | Run
    gives: DistType
    origin: int


@dataclass(frozen=True)
class _Way:
    """The cheapest way to a point: what it costs, and how it came there."""

    price: Price
    start: Point | None = None
    last: Placed | None = None


class Grid:
    """All interleavings of the steps of a row that mean the same."""

    def __init__(self, prices: Prices, source: DistType, forms: Sequence[Form]):
        self.prices = prices
        self.local_at = [n for n, one in enumerate(forms) if one.kind.maps]
        self.mover_at = [n for n, one in enumerate(forms) if not one.kind.maps]
        self.locals = [forms[n] for n in self.local_at]
        self.size = len(self.local_at), len(self.mover_at)
        self.types: dict[Point, DistType] = {(0, 0): source}
        self.across: dict[Point, Form] = {}
        """From where a step changes the layout."""
        self.down: set[Point] = set()
        """From where a step computes."""
        self.price: Price | None = self._written(forms)
        if self.price is not None:
            self._movers_first()
            self._locals_first()

    def _written(self, forms: Sequence[Form]) -> Price | None:
        """The path of the program as it stands, and what it costs."""
        i, j, total = 0, 0, NOTHING
        for form in forms:
            x = self.types[i, j]
            price, given = self.prices.price(form, x), self.prices.type(form, x)
            if price is None or given is None:
                return None
            total = total.plus(price)
            if form.kind.maps:
                self.down.add((i, j))
                i += 1
            else:
                self.across[i, j] = form
                j += 1
            self.types[i, j] = given
        return total

    def _movers_first(self) -> None:
        """The squares on the side of the path where layouts are changed earlier."""
        for i in reversed(range(self.size[0])):
            for j in range(self.size[1]):
                if (i, j) not in self.down or (i, j) in self.across:
                    continue
                if (mover := self.across.get((i + 1, j))) is None:
                    continue
                x, passed = self.types[i, j], self.types[i + 1, j + 1]
                found = before(self.prices, mover, self.locals[i], x, passed)
                if found is not None:
                    self.across[i, j], self.types[i, j + 1] = found
                    self.down.add((i, j + 1))

    def _locals_first(self) -> None:
        """Those on the other side, where they are changed later."""
        for i in range(self.size[0]):
            for j in reversed(range(self.size[1])):
                if (i, j + 1) not in self.down or (i, j) in self.down:
                    continue
                if (mover := self.across.get((i, j))) is None:
                    continue
                x, passed = self.types[i, j], self.types[i + 1, j + 1]
                found = after(self.prices, mover, self.locals[i], x, passed)
                if found is not None:
                    self.across[i + 1, j], self.types[i + 1, j] = found
                    self.down.add((i, j))

    @property
    def cheapest(self) -> Price:
        """What the path of least time costs."""
        return self._settled(False, lambda _: True)[1]

    def best(self) -> list[Placed] | None:
        """The steps of a path that is cheaper than the one that is written; None: there is none."""
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
    ) -> tuple[list[Placed], Price]:
        """The cheapest path, and what it costs. Runs are searched once they lie on one that would
        be, with what they cost at least; until then no path is cheaper than it seems."""
        while True:
            ways = self._ways(sending_first)
            way = ways[self.size]
            price, path = way.price, list[Placed]()
            while way.start is not None:
                path += [way.last] if way.last else []
                way = ways[way.start]
            runs = [one.does for one in path if isinstance(one.does, Run)]
            guesses = [run for run in runs if run.plan is None]
            if not guesses or not worth(price):
                return path[::-1], price
            for run in guesses:
                self.prices.run(run.source, run.target)

    def _ways(self, sending_first: bool) -> dict[Point, _Way]:
        ways = {(0, 0): _Way(NOTHING)}
        for i in range(self.size[0] + 1):
            for j in range(self.size[1] + 1):
                if (i, j) not in ways:
                    continue
                for end, price, last in self._from(i, j):
                    whole = ways[i, j].price.plus(price)
                    if end not in ways or whole.before(ways[end].price, sending_first):
                        ways[end] = _Way(whole, (i, j), last)
        return ways

    def _from(self, i: int, j: int) -> Iterator[tuple[Point, Price, Placed | None]]:
        """The steps that start at a point."""
        x = self.types[i, j]
        if (i, j) in self.down:
            form, given = self.locals[i], self.types[i + 1, j]
            price = self.prices.price(form, x)
            if price is not None:
                yield (i + 1, j), price, Placed(form, given, self.local_at[i])
        sends = False
        for end in range(j, self.size[1]):
            if (form := self.across.get((i, end))) is None:
                return
            given, origin = self.types[i, end + 1], self.mover_at[end]
            sends |= form.kind.sends
            if end == j:
                price = self.prices.price(form, x)
                if price is not None:
                    yield (i, end + 1), price, Placed(form, given, origin)
            elif sends and (run := self.prices.guessed(x, given)) is not None:
                empty = run.plan is not None and not run.plan.steps
                last = None if empty else Placed(run, given, origin)
                yield (i, end + 1), run.price, last


def part(op: object) -> DistOp | None:
    """An operation, if it may be in a row of steps that are interleaved anew."""
    if isinstance(op, DistOp) and op.kind.maps:
        return op
    found = layout_change(op)
    return None if is_placeholder(found) else found


def threads(function: FuncOp) -> Iterator[list[DistOp]]:
    """Rows of operations on one value, each on the result of the one before, which nothing else
    uses; the longest there are."""
    seen: set[DistOp] = set()
    for op in function.body.ops:
        first = part(op)
        if first is None or first in seen:
            continue
        thread = [first]
        while (following := part(only_user(thread[-1].result))) is not None:
            thread.append(following)
        seen.update(thread)
        yield thread


def thread_to(value: SSAValue) -> list[DistOp]:
    """The row of operations that a value comes from, as far as nothing else uses what they give."""
    found: list[DistOp] = []
    while only_user(value) is not None and (op := part(value.owner)) is not None:
        found.append(op)
        value = op.operands[0]
    return found[::-1]
