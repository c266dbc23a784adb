"""Elimination of variables from a sum: exactly where tables stay small.

The tables that a variable is in are added up, and the minimum over its values is a table over the
others (bucket elimination; Dechter, "Bucket elimination", 1999). Where the sum would be too large,
the variable stays, or a neighbour of it gets its value in a given solution. The result is then the
best of very many solutions around the given one.
"""

import heapq
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from collir.synthesis.sharding.factors import Costs, FactorTable, Values, merged, spread


@dataclass
class Eliminated:
    """A sum after the elimination of variables.

    Attributes:
        tables: tables whose least sum equals the least value of the sum before the elimination.
        left: the variables that are not eliminated.
        constant: what is added to the tables.
        steps: for each variable that was eliminated, the scope and the sum of its tables.
    """

    tables: list[FactorTable]
    left: set[int]
    constant: float = 0.0
    steps: list[tuple[int, tuple[int, ...], Costs]] = field(
        default_factory=list[tuple[int, tuple[int, ...], Costs]]
    )

    def complete(self, values: dict[int, int]) -> dict[int, int]:
        """Set the best values of the eliminated variables, in place, and return all."""
        for variable, scope, costs in reversed(self.steps):
            at = tuple(slice(None) if v == variable else values[v] for v in scope)
            values[variable] = int(np.argmin(costs[at]))
        return values


def eliminate(
    sizes: Sequence[int],
    tables: Sequence[FactorTable],
    most: int,
    kept: Collection[int] = (),
    around: Values | None = None,
) -> Eliminated:
    """Eliminate variables, in the order of the size of the table that each makes.

    Args:
        sizes: the number of values of each variable.
        most: the most entries of a sum of tables.
        kept: variables that are not eliminated.
        around: a solution; where no sum is small enough, the variable with the most neighbours gets
            its value there, until all are eliminated.
    """
    return _Elimination(sizes, tables, most, kept).run(around)


class _Elimination:
    def __init__(
        self, sizes: Sequence[int], tables: Sequence[FactorTable], most: int, kept: Collection[int]
    ):
        self.sizes, self.most, self.kept = list(sizes), most, frozenset(kept)
        self.tables: dict[int, FactorTable] = {}
        self.of: dict[int, set[int]] = {v: set() for v in range(len(sizes))}
        self.result = Eliminated([], set(range(len(sizes))))
        self.count = 0
        self.queue: list[tuple[int, int]] = []
        for table in merged(tables):
            self._add(table)

    def _add(self, table: FactorTable) -> None:
        scope = tuple(v for v in table.scope if self.sizes[v] > 1)  # arrays have few dimensions
        table = FactorTable(scope, table.costs.reshape([self.sizes[v] for v in scope]))
        if not table.scope:
            self.result.constant += float(table.costs)
            return
        self.tables[self.count] = table
        for variable in table.scope:
            self.of[variable].add(self.count)
        self.count += 1

    def _scope(self, variable: int) -> list[int]:
        scope = {variable}
        for number in self.of[variable]:
            scope.update(self.tables[number].scope)
        return sorted(scope)

    def _weight(self, variable: int) -> int:
        return math.prod(self.sizes[v] for v in self._scope(variable))

    def run(self, around: Values | None) -> Eliminated:
        """Eliminate all variables that can be, and return what is left."""
        left = self.result.left
        self.queue = [(self._weight(v), v) for v in left if v not in self.kept]
        heapq.heapify(self.queue)
        while self.queue:
            weight, variable = heapq.heappop(self.queue)
            if variable not in left or weight != self._weight(variable):
                continue  # an outdated entry: there is a newer one
            if weight <= self.most:
                self._eliminate(variable)
            elif around is None:
                break
            else:
                heapq.heappush(self.queue, (weight, variable))
                self._set(self._largest(variable), around)
        self.result.tables = merged(list(self.tables.values()))
        return self.result

    def _largest(self, variable: int) -> int:
        """Return the variable with the most neighbours, among a variable and its neighbours."""
        return max(self._scope(variable), key=lambda v: (self.sizes[v] > 1, len(self._scope(v)), v))

    def _eliminate(self, variable: int) -> None:
        scope = self._scope(variable)
        total = np.zeros([self.sizes[v] for v in scope])
        for number in sorted(self.of[variable]):
            total += spread(self.tables[number], scope)
        self._remove(variable)
        self.result.steps.append((variable, tuple(scope), total))
        axis = scope.index(variable)
        self._put(FactorTable(tuple(v for v in scope if v != variable), total.min(axis=axis)))

    def _set(self, variable: int, around: Values) -> None:
        """Give a variable its value in a solution."""
        value = around[variable]
        tables = [self.tables[number] for number in sorted(self.of[variable])]
        self._remove(variable)
        costs = np.full(self.sizes[variable], np.inf)
        costs[value] = 0.0
        self.result.steps.append((variable, (variable,), costs))
        for table in tables:
            axis = table.scope.index(variable)
            scope = tuple(v for v in table.scope if v != variable)
            self._put(FactorTable(scope, np.take(table.costs, value, axis=axis)))

    def _remove(self, variable: int) -> None:
        for number in list(self.of[variable]):
            for other in self.tables.pop(number).scope:
                self.of[other].discard(number)
        self.result.left.discard(variable)

    def _put(self, table: FactorTable) -> None:
        self._add(table)
        for variable in table.scope:
            if variable not in self.kept:
                heapq.heappush(self.queue, (self._weight(variable), variable))
