"""The fastest layouts among those that fit into the memory of a device.

A price for each byte at each step turns the memory limit into a cost. For any prices, the least sum
of the time and of the price of the bytes above the limit is a lower bound of the time of all
layouts that fit (Lagrange multipliers). The best prices are the dual values of a linear program:
the fastest mixture of the solutions found so far that fits at every step. Its prices lead to new
solutions, and these improve the mixture (Kelley's cutting planes). At the end, a search at the best
prices looks for layouts that fit, and rejects others.
"""

import math
import time
from dataclasses import dataclass

import numpy as np

from collir.synthesis.searching import interrupted
from collir.synthesis.sharding.factors import FactorSum, Values
from collir.synthesis.sharding.linear import minimum
from collir.synthesis.sharding.memory import Points, SolutionMemory
from collir.synthesis.sharding.rounds import SAME
from collir.synthesis.sharding.solver import VariableValues, least_sum

_ROUNDS = 20
"""The most prices."""

_TIGHT = 1e-4
"""The part of the time by which bounds and mixtures may differ at the end."""

_SMALL = 5e-3
"""The gap that is left open where there is a limit of time."""

_ABOVE = 10.0, 1e3, 1e6
"""The cost of needing twice the available memory, in multiples of the time without a limit: low at
first, so that prices are near those of layouts that fit."""


@dataclass(frozen=True)
class DoesNotFitError(Exception):
    """No layouts were found that fit into memory.

    Attributes:
        least: the bytes at the fullest step of the smallest layouts that were found.
        step: the number of this step.
        bound: the least bytes that any layouts need at their fullest step.
    """

    least: float
    step: int
    bound: float


def least_that_fits(
    whole: FactorSum,
    memory: SolutionMemory,
    limit: float,
    first: VariableValues,
    seconds: float | None,
) -> VariableValues:
    """Return values of all variables with the least sum, among those that fit into memory.

    Args:
        limit: the bytes of a device.
        first: the solution without the limit.
        seconds: the time after which the best so far is returned.

    Raises:
        DoesNotFitError: none was found that fits.
    """
    if memory.at(first.values).max() <= limit:
        return first
    fitting = _Fitting(whole, memory, limit, first, seconds)
    for above in _ABOVE:
        if fitting.find_prices(above * max(first.sum, 1e-9)):
            return fitting.search()
    error = fitting.does_not_fit()
    if fitting.best is None:
        raise error
    return VariableValues(*fitting.best, fitting.bound[0], "gap")


class _Fitting:
    """The search for layouts that fit.

    Attributes:
        best: the fastest solution that fits so far, and its time.
        smallest: the bytes at the fullest step of the smallest solution so far, and this step.
        bound: the best lower bound of the time of solutions that fit, and their prices for each
            step.
    """

    def __init__(
        self,
        whole: FactorSum,
        memory: SolutionMemory,
        limit: float,
        first: VariableValues,
        seconds: float | None,
    ):
        self.whole, self.memory, self.limit, self.first = whole, memory, limit, first
        self.began = time.monotonic()
        self.until = None if seconds is None else self.began + seconds
        self.best: tuple[Values, float] | None = None
        self.smallest = math.inf, 0
        self.bound: tuple[float, Points] = first.bound, np.zeros(memory.count)
        self.times: list[float] = []
        self.parts: list[Points] = []
        self._add(first.values)

    @property
    def _seconds(self) -> float | None:
        return None if self.until is None else max(0.1, self.until - time.monotonic())

    def _priced(self, prices: Points, share: float = 1.0) -> FactorSum:
        whole = self.whole.scaled(share) if share != 1.0 else self.whole
        tables = [*whole.tables, *self.memory.tables(prices / self.limit)]
        return FactorSum(whole.sizes, tables, whole.fans)

    def _fits(self, values: Values) -> float:
        """Return the time of a solution (infinity if it does not fit); keep the best of both
        kinds."""
        held = self.memory.at(values)
        self.smallest = min(self.smallest, (float(held.max()), int(held.argmax())))
        if held.max() > self.limit:
            return math.inf
        seconds = self.whole.value(values)
        if self.best is None or seconds < self.best[1]:
            self.best = values, seconds
        return seconds

    def _add(self, values: Values) -> None:
        """Add a solution to the mixture."""
        _ = self._fits(values)
        self.times.append(self.whole.value(values))
        self.parts.append(self.memory.at(values) / self.limit)

    def _mixture(self, above: float) -> tuple[float, Points, bool]:
        """Return the time of the fastest mixture that fits, the best prices, and whether it fits.

        Args:
            above: the cost of needing more than the limit, by the limit.
        """
        parts = np.stack(self.parts, axis=1)
        rows = np.flatnonzero(parts.max(axis=1) > 1)
        count = len(self.times)
        optimum = minimum(
            np.array([*self.times, above]),
            np.hstack([parts[rows], -np.ones((len(rows), 1))]),
            np.ones(len(rows)),
            np.array([[1.0] * count + [0.0]]),
            np.ones(1),
        )
        prices = np.zeros(self.memory.count)
        prices[rows] = optimum.prices
        return optimum.value, prices, bool(optimum.x[-1] <= 1e-9)

    def find_prices(self, above: float) -> bool:
        """Find the best prices of bytes, and return whether a mixture of solutions fits.

        Args:
            above: the cost of needing more than the limit, by the limit, in seconds.
        """
        fits = False
        for _ in range(_ROUNDS):
            mixed, prices, fits = self._mixture(above)
            solution = least_sum(self._priced(prices), self._seconds, branch=False)
            bound = solution.bound - float(prices.sum())
            if bound > self.bound[0]:
                self.bound = bound, prices
            if solution.sum - float(prices.sum()) >= mixed - _TIGHT * abs(mixed):
                break
            self._add(solution.values)
            if self.best is not None and self.bound[0] >= self.best[1] * (1 - _TIGHT):
                break
            if interrupted() or (self.until is not None and time.monotonic() > self.until):
                break
        return fits or self.best is not None

    def search(self) -> VariableValues:
        """Return the best solution that fits, by a search at the best prices. Under a time limit,
        it takes no longer than the prices took, and may leave a small gap.

        Raises:
            DoesNotFitError: none was found.
        """
        bound, prices = self.bound
        if (
            self.best is not None
            and bound >= self.best[1] * (1 - _SMALL)
            and self.until is not None
        ):
            return VariableValues(*self.best, bound, "small gap")
        above = float(prices.sum())
        if self.until is not None:  # a gap of the prices may take very long to close
            self.until = min(self.until, 2 * time.monotonic() - self.began)
        known = None if self.best is None else (self.best[0], self.best[1] + above)
        solution = least_sum(
            self._priced(prices), self._seconds, lambda x, _: self._fits(x) + above, known
        )
        if self.best is None:
            raise self.does_not_fit()
        values, seconds = self.best
        if not solution.ended and SAME * (seconds + above) <= _TIGHT * seconds:
            return VariableValues(values, seconds, seconds, "", solution.nodes)
        bound = max(bound, solution.bound - above)
        return VariableValues(
            values, seconds, min(bound, seconds), solution.ended or "rounding", solution.nodes
        )

    def does_not_fit(self) -> DoesNotFitError:
        """Return the error that no solution fits, with the least bytes that any layouts need."""
        _, prices, _ = self._mixture(_ABOVE[-1] * max(self.first.sum, 1e-9))
        shares = prices / max(prices.sum(), 1e-300)
        found = least_sum(self._priced(shares, 0.0), self._seconds, branch=False)
        _ = self._fits(found.values)
        return DoesNotFitError(*self.smallest, found.bound * self.limit)
