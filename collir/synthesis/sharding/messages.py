"""Lower bounds of sums by messages between tables and variables.

Costs are moved between tables that share a variable, which changes no sum. The sum of the least
entries of all tables is a lower bound. In each pass a variable takes the least cost of each of its
values from each of its tables, and gives it to the later tables (Kolmogorov, "A new look at
reweighted message passing", 2015).

The bound never falls: when a variable has taken the minima ``m_f`` of its tables, each table has a
least entry of 0 beside every value. The tables held the sum of the ``min m_f`` of the bound, which
is at most ``min(sum of m_f)``, the part that the variable holds now. It gives away shares of at
most 1 in all, so the sum of the minima stays. Then a solution with a value ``a`` sums to at least
the bound plus the excess cost of ``a`` over the variable's best value; the bound before the pass is
no larger. A value for which this exceeds the sum of a known solution is in no better one.

A fan is never a table here. Its minima over all but one variable are exact: the steps of a group
that need one layout share its price, so they are minima over the partitions of the users, and a
group costs the least over all layouts (2^k groups, 3^k partitions of k users).
"""

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from collir.synthesis.searching import check_time
from collir.synthesis.sharding.factors import Costs, FactorTable, Fan, Numbers

_NEVER = 1e100
"""The cost of a value that a variable cannot have; sums of it are no infinities."""


class _Costs:
    """A table to and from which costs are moved."""

    def __init__(self, table: FactorTable):
        self.scope, self.costs = table.scope, table.costs.copy()
        rank = range(len(self.scope))
        self.others = {v: tuple(n for n in rank if n != axis) for axis, v in enumerate(self.scope)}
        self.shape = {v: [-1 if n == a else 1 for n in rank] for a, v in enumerate(self.scope)}

    def least(self, variable: int) -> Costs:
        return self.costs.min(axis=self.others[variable])

    def add(self, variable: int, more: Costs) -> None:
        self.costs += more.reshape(self.shape[variable])

    def bound(self) -> float:
        return float(self.costs.min())


class _FanCosts:
    """A fan to and from which costs are moved."""

    def __init__(self, fan: Fan):
        self.fan, self.scope = fan, fan.scope
        sizes = [len(fan.prices), *(len(needs) for needs in fan.needs)]
        self.moved = {v: np.zeros(n) for v, n in zip(self.scope, sizes, strict=True)}
        self._sets = _sets(len(fan.users))
        orders = [np.argsort(needs, kind="stable") for needs in fan.needs]
        parts = [np.unique(needs) for needs in fan.needs]
        starts = [
            np.searchsorted(needs[order], part)
            for needs, order, part in zip(fan.needs, orders, parts, strict=True)
        ]
        self._needed = list(zip(fan.users, orders, starts, parts, strict=True))

    def _clients(self) -> Costs:
        """Return the least cost of each user for each layout, without the price of the layout."""
        clients = np.full((len(self.fan.users), self.fan.prices.shape[1]), _NEVER)
        for row, (user, order, starts, layouts) in zip(clients, self._needed, strict=True):
            row[layouts] = np.minimum.reduceat(self.moved[user][order], starts)
        return clients

    def _best(self, clients: Costs) -> Costs:
        """Return the least cost of each set of users for each layout of the tensor."""
        groups = self._sets.members @ clients
        cost = (self.fan.prices[:, None, :] + groups).min(axis=2)
        best = np.zeros_like(cost)
        for sets, parts, rests in self._sets.splits:
            best[:, sets] = (cost[:, parts] + best[:, rests]).min(axis=2)
        return best

    def least(self, variable: int) -> Costs:
        clients = self._clients()
        best = self._best(clients)
        if variable == self.fan.own:
            return self.moved[variable] + best[:, -1]
        place = self.fan.users.index(variable)
        having = self._sets.having[place]
        clients[place] = 0.0
        others = self._sets.members[having] @ clients
        rest = best[:, len(best[0]) - 1 - having] + self.moved[self.fan.own][:, None]
        least = ((rest[:, :, None] + self.fan.prices[:, None, :]).min(axis=0) + others).min(axis=0)
        return least[self.fan.needs[place]] + self.moved[variable]

    def add(self, variable: int, more: Costs) -> None:
        self.moved[variable] += more

    def choose(self, variable: int, value: int) -> None:
        """Restrict a variable to one value."""
        moved = np.full_like(self.moved[variable], _NEVER)
        moved[value] = self.moved[variable][value]
        self.moved[variable] = moved

    def bound(self) -> float:
        return float(self.least(self.fan.own).min())


class _Sets(NamedTuple):
    """The sets of some users, by their numbers in binary.

    Attributes:
        members: a row for each set, with 1 for its members and 0 for others.
        having: for each user, the sets that it is in.
        splits: for each number of members, the sets of that size; each set is split in all ways
            into a subset with its first member, and the rest.
    """

    members: Costs
    having: tuple[Numbers, ...]
    splits: tuple[tuple[Numbers, Numbers, Numbers], ...]


@cache
def _sets(users: int) -> _Sets:
    """Return the sets of a number of users."""
    numbers = np.arange(1 << users)
    members = (numbers[:, None] >> np.arange(users)) & 1
    splits: list[tuple[Numbers, Numbers, Numbers]] = []
    for count in range(1, users + 1):
        sets = numbers[members.sum(axis=1) == count]
        parts = np.array(
            [[p for p in range(1, s + 1) if p & ~s == 0 and p & s & -s] for s in map(int, sets)]
        )
        splits.append((sets, parts, sets[:, None] ^ parts))
    having = tuple(numbers[members[:, user] == 1] for user in range(users))
    return _Sets(members.astype(np.float64), having, tuple(splits))


class Messages:
    """Tables and fans with costs moved between them.

    Attributes:
        bound: a lower bound of the sum.
        floor: the bound before the last pass.
        above: for each value of each variable, the least sum with it, on top of ``floor``.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        variables: Sequence[int],
        tables: Sequence[FactorTable],
        fans: Sequence[Fan],
        constant: float,
    ):
        self.variables = list(variables)
        self.constant = self.bound = self.floor = constant
        parts = [part for fan in fans for part in fan.parts()]
        self.factors: list[_Costs | _FanCosts] = [
            *(_Costs(table) for table in tables),
            *(_FanCosts(part) for part in parts),
        ]
        self.of: dict[int, list[_Costs | _FanCosts]] = {v: [] for v in self.variables}
        for factor in self.factors:
            for variable in factor.scope:
                self.of[variable].append(factor)
        self.own = {v: np.zeros(sizes[v]) for v in self.variables}
        self.above: dict[int, Costs] = {}
        self.place = {v: place for place, v in enumerate(self.variables)}

    def run(self, passes: int, enough: float) -> None:
        """Move costs forwards and backwards.

        Args:
            passes: the most passes.
            enough: the part of the bound by which a pass must raise it, or passes end.
        """
        before = -math.inf
        for number in range(passes):
            check_time()
            self.floor = self.bound
            self._pass(-1 if number % 2 else 1)
            parts = sum(factor.bound() for factor in self.factors)
            self.bound = self.constant + parts + sum(float(x.min()) for x in self.own.values())
            if number % 4 == 3:
                if self.bound - before <= enough * abs(self.bound):
                    break
                before = self.bound

    def _pass(self, way: int) -> None:
        for variable in self.variables[::way]:
            at, total = self.place[variable] * way, self.own[variable]
            later: list[_Costs | _FanCosts] = []
            earlier = 0
            for factor in self.of[variable]:
                least = factor.least(variable)
                factor.add(variable, -least)
                total = total + least
                places = [self.place[v] * way for v in factor.scope]
                if max(places) > at:
                    later.append(factor)
                earlier += min(places) < at
            self.above[variable] = total - total.min()
            if later:
                share = 1 / max(len(later), earlier)
                for factor in later:
                    factor.add(variable, share * total)
                total = total * (1 - share * len(later))
            self.own[variable] = total

    def solution(self, way: int) -> dict[int, int]:
        """Return values for all variables, chosen one after the other.

        Each is the best for the values chosen before it, and for the least cost of the variables
        behind it.
        """
        fans = [factor for factor in self.factors if isinstance(factor, _FanCosts)]
        kept = [dict(fan.moved) for fan in fans]
        values: dict[int, int] = {}
        for variable in self.variables[::way]:
            total = self.own[variable].copy()
            for factor in self.of[variable]:
                total += _beside(factor, variable, values)
            values[variable] = int(total.argmin())
            for factor in self.of[variable]:
                if isinstance(factor, _FanCosts):
                    factor.choose(variable, values[variable])
        for fan, moved in zip(fans, kept, strict=True):
            fan.moved = moved
        return values


def _beside(factor: _Costs | _FanCosts, variable: int, values: dict[int, int]) -> Costs:
    """Return the least cost of each value of a variable beside the values of others."""
    if isinstance(factor, _Costs):
        at = [slice(values[v], values[v] + 1) if v in values else slice(None) for v in factor.scope]
        return factor.costs[tuple(at)].min(axis=factor.others[variable])
    return factor.least(variable)
