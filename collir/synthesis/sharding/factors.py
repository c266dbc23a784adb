"""The parts of a sum over variables: tables, and the moves of a tensor that steps share.

A variable has values ``0 .. n - 1``. A sum is restricted to fewer values of variables when bounds
show that the others are in no best solution.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from collir.synthesis.searching import check_time

Costs = NDArray[np.float64]
Numbers = NDArray[np.int64]
Values = Mapping[int, int]
"""A value for each variable."""

_MOST_CLIENTS = 8
"""The most users of a tensor whose shared costs are bounded together."""


_MOST_GROUPS = 4_000_000
"""The most combinations of layouts and sets of users of a bound."""


class FactorTable(NamedTuple):
    """Costs of the values of some variables.

    Attributes:
        scope: the variables, one for each dimension.
        costs: an array with a dimension for each of them.
    """

    scope: tuple[int, ...]
    costs: Costs

    def along(self, variable: int, values: Values) -> Costs:
        """Return the costs for each value of a variable, where the others have these values."""
        return self.costs[tuple(slice(None) if v == variable else values[v] for v in self.scope)]

    def restricted(self, kept: Mapping[int, Numbers]) -> "FactorTable":
        """Return the table with some values of variables alone."""
        costs = self.costs
        for axis, variable in enumerate(self.scope):
            if variable in kept:
                costs = np.take(costs, kept[variable], axis=axis)
        return FactorTable(self.scope, costs)


@dataclass(frozen=True, eq=False)
class Fan:
    """The costs of moving a tensor to all layouts in which steps need it, each layout paid once.

    Attributes:
        own: the variable of the tensor.
        users: the variables of steps, one for each needed layout.
        needs: for each user, the number of the layout that it needs, by its value.
        prices: the costs from each layout of the tensor to each layout that steps need.
    """

    own: int
    users: tuple[int, ...]
    needs: tuple[Numbers, ...]
    prices: Costs

    @property
    def scope(self) -> tuple[int, ...]:
        """The variables, each once."""
        return tuple(dict.fromkeys((self.own, *self.users)))

    @property
    def entries(self) -> int:
        """The number of combinations of values."""
        sizes = {user: len(needs) for user, needs in zip(self.users, self.needs, strict=True)}
        return len(self.prices) * math.prod(sizes.values())

    def along(self, variable: int, values: Values) -> Costs:
        """Return the costs for each value of a variable, where the others have these values."""
        pairs = list(zip(self.users, self.needs, strict=True))
        fixed = {int(needs[values[user]]) for user, needs in pairs if user != variable}
        if variable == self.own:
            return self.prices[:, sorted(fixed)].sum(axis=1)
        prices = self.prices[values[self.own]].copy()
        costs = np.full(
            len(next(n for u, n in pairs if u == variable)), prices[sorted(fixed)].sum()
        )
        prices[sorted(fixed)] = 0.0
        seen: list[Numbers] = []
        for needs in (needs for user, needs in pairs if user == variable):
            new = np.ones(len(needs), dtype=bool)
            for earlier in seen:
                new &= earlier != needs
            costs += prices[needs] * new
            seen.append(needs)
        return costs

    def restricted(self, kept: Mapping[int, Numbers]) -> "Fan":
        """Return the fan with some values of variables alone."""
        needs = tuple(
            needs[kept[user]] if user in kept else needs
            for user, needs in zip(self.users, self.needs, strict=True)
        )
        prices = self.prices[kept[self.own]] if self.own in kept else self.prices
        used = np.unique(np.concatenate(needs))
        renumbered = tuple(np.searchsorted(used, own) for own in needs)
        return replace(self, needs=renumbered, prices=prices[:, used])

    def table(self) -> FactorTable:
        """Return the same costs as a table over the variables with several values, and the
        tensor."""
        sizes = {user: len(needs) for user, needs in zip(self.users, self.needs, strict=True)}
        users = [user for user in self.scope[1:] if sizes[user] > 1]
        shape = [len(self.prices), *(sizes[user] for user in users)]
        costs = np.zeros(shape)
        for layout in range(self.prices.shape[1]):
            if not (price := self.prices[:, layout]).any():
                continue
            no_one = np.ones(shape[1:], dtype=bool)
            for user, needs in zip(self.users, self.needs, strict=True):
                along = [-1 if other == user else 1 for other in users]
                no_one &= (needs != layout).reshape(along)
            costs += price.reshape(-1, *[1] * len(users)) * ~no_one
        return FactorTable((self.own, *users), costs)

    def parts(self) -> "list[Fan]":
        """Return fans of few users whose sum is a lower bound of this one, and equal to it for a
        single fan without a repeated user."""
        first: dict[int, Numbers] = {}
        for user, needs in zip(self.users, self.needs, strict=True):
            first.setdefault(user, needs)
        users = list(first)
        room = max(1, int(math.log2(max(2.0, _MOST_GROUPS / max(1, self.prices.size)))))
        count = math.ceil(len(users) / min(_MOST_CLIENTS, room))
        groups = [users[n::count] for n in range(count)]
        return [
            Fan(self.own, tuple(group), tuple(first[u] for u in group), self.prices / count)
            for group in groups
        ]


class FactorSum:
    """A sum of tables and fans.

    Attributes:
        sizes: the number of values of each variable.
    """

    def __init__(self, sizes: Sequence[int], tables: Sequence[FactorTable], fans: Sequence[Fan]):
        self.sizes, self.tables, self.fans = list(sizes), list(tables), list(fans)

    @cached_property
    def of(self) -> list[list[FactorTable | Fan]]:
        """The tables and fans of each variable."""
        of: list[list[FactorTable | Fan]] = [[] for _ in self.sizes]
        for part in (*self.tables, *self.fans):
            for variable in part.scope:
                of[variable].append(part)
        return of

    def value(self, values: Values) -> float:
        """Return the sum for values of all variables."""
        total = 0.0
        for part in (*self.tables, *self.fans):
            if part.scope:
                first = part.scope[0]
                total += float(part.along(first, values)[values[first]])
            else:
                assert isinstance(part, FactorTable)
                total += float(part.costs)
        return total

    def restricted(self, kept: Mapping[int, Numbers]) -> "FactorSum":
        """Return the sum over some values of variables alone, numbered anew."""
        sizes = [len(kept[v]) if v in kept else size for v, size in enumerate(self.sizes)]
        tables = [table.restricted(kept) for table in self.tables]
        return FactorSum(sizes, tables, [fan.restricted(kept) for fan in self.fans])

    def scaled(self, factor: float) -> "FactorSum":
        """Return the sum times a factor."""
        tables = [FactorTable(scope, factor * costs) for scope, costs in self.tables]
        fans = [replace(fan, prices=factor * fan.prices) for fan in self.fans]
        return FactorSum(self.sizes, tables, fans)

    def with_tables(self, most: int) -> "FactorSum":
        """Return the same sum with tables for fans of few combinations."""
        dense: list[FactorTable] = []
        for fan in self.fans:
            if fan.entries <= most:
                check_time()
                dense.append(fan.table())
        fans = [fan for fan in self.fans if fan.entries > most]
        return FactorSum(self.sizes, [*self.tables, *dense], fans)


def merged(tables: Sequence[FactorTable]) -> list[FactorTable]:
    """Return tables with the same sum, none of whose scopes contains another."""
    added: dict[tuple[int, ...], Costs] = {}
    for scope, costs in tables:
        order = tuple(sorted(scope))
        turned = costs.transpose([scope.index(v) for v in order])
        added[order] = added[order] + turned if order in added else turned
    having: dict[int, set[tuple[int, ...]]] = {}
    for scope in added:
        for variable in scope:
            having.setdefault(variable, set()).add(scope)
    for scope in sorted(added, key=len):
        larger = [wider for wider in having[scope[0]] if set(scope) < set(wider)] if scope else []
        if larger:
            into = min(larger, key=lambda wider: (added[wider].size, wider))
            added[into] = added[into] + spread(FactorTable(scope, added[scope]), into)
            for variable in scope:
                having[variable].discard(scope)
            del added[scope]
    return [FactorTable(scope, costs) for scope, costs in added.items()]


def spread(table: FactorTable, scope: Sequence[int]) -> Costs:
    """Return the costs of a table with dimensions for more variables, in increasing order."""
    have = dict(zip(table.scope, table.costs.shape, strict=True))
    return table.costs.reshape([have.get(v, 1) for v in scope])
