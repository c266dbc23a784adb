"""Lower bounds of sums by messages between tables and variables.

Costs are moved between tables that share a variable, which changes no sum. The sum of the least
entries of all tables is a lower bound. In each pass a variable takes what its values cost at least
in each of its tables, and gives it to the tables that come later (Kolmogorov, "A new look at
reweighted message passing", 2015).

The bound never falls: when a variable has taken the minima ``m_f`` of its tables, each table has a
least entry of 0 beside every value, and the part of the bound that these held, the sum of the
``min m_f``, is at most ``min(sum of m_f)``, which is what the variable holds now. It gives shares
of at most 1 in all, so the sum of the minima stays. At this time a solution with a value ``a`` sums
to at least the bound plus what ``a`` costs more than the variable's best value; the bound before
the pass is at most that bound. So values for which this is above the sum of a known solution are in
no better one.

A fan is never a table here. Its minima over all but one variable are exact: the steps of a group
that need one layout share its price, so they are minima over the partitions of the users, and a
group costs the least over all layouts (2^k groups, 3^k partitions of k users).
"""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np

from collir.synthesis.sharding.factors import Costs, Fan, Numbers, Table


class _Costs:
    """A table to and from which costs are moved."""

    def __init__(self, table: Table):
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
        self.users = len(fan.users)
        self._members, self._splits = _partitions(self.users)

    def _clients(self) -> Costs:
        """Return what each user pays at least for each layout, without the price of it."""
        clients = np.full((self.users, self.fan.prices.shape[1]), np.inf)
        for row, user, needs in zip(clients, self.fan.users, self.fan.needs, strict=True):
            np.minimum.at(row, needs, self.moved[user])
        return clients

    def _best(self, clients: Costs) -> Costs:
        """Return for each layout of the tensor and each set of users what these cost at least."""
        groups = np.stack([clients[list(m)].sum(axis=0) for m in self._members])
        cost = np.stack([(self.fan.prices + group).min(axis=1) for group in groups[1:]], axis=1)
        best = np.zeros((len(self.fan.prices), len(groups)))
        for every, (parts, rest) in enumerate(self._splits, 1):
            best[:, every] = (cost[:, parts - 1] + best[:, rest]).min(axis=1)
        return best

    def least(self, variable: int) -> Costs:
        clients = self._clients()
        best = self._best(clients)
        if variable == self.fan.own:
            return self.moved[variable] + best[:, -1]
        place = self.fan.users.index(variable)
        every = len(self._members) - 1
        prices = self.moved[self.fan.own][:, None] + self.fan.prices
        least = np.full(prices.shape[1], np.inf)
        for group, members in enumerate(self._members):
            if place in members:
                others = [m for m in members if m != place]
                rest = best[:, every ^ group][:, None] + prices
                np.minimum(least, rest.min(axis=0) + clients[others].sum(axis=0), out=least)
        return least[self.fan.needs[place]] + self.moved[variable]

    def add(self, variable: int, more: Costs) -> None:
        self.moved[variable] += more

    def choose(self, variable: int, value: int) -> None:
        """Let a variable have one value alone."""
        moved = np.full_like(self.moved[variable], np.inf)
        moved[value] = self.moved[variable][value]
        self.moved[variable] = moved

    def bound(self) -> float:
        return float(self.least(self.fan.own).min())


@cache
def _partitions(
    users: int,
) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[Numbers, Numbers], ...]]:
    """Return the members of each set of users, by its number in binary, and for each set but the
    empty one the subsets with its first member, each with the rest."""
    members = tuple(
        tuple(user for user in range(users) if number >> user & 1) for number in range(1 << users)
    )
    splits: list[tuple[Numbers, Numbers]] = []
    for number in range(1, 1 << users):
        parts = [
            part for part in range(1, number + 1) if part & ~number == 0 and part & number & -number
        ]
        splits.append((np.array(parts), number ^ np.array(parts)))
    return members, tuple(splits)


class Messages:
    """Tables and fans with costs moved between them.

    Attributes:
        bound: a lower bound of the sum.
        floor: the bound before the last pass.
        above: for each value of each variable, what solutions with it sum to at least, on top of
            ``floor``.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        variables: Sequence[int],
        tables: Sequence[Table],
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
            enough: the part of the bound by which a pass has to raise it, else they end.
        """
        before = -math.inf
        for number in range(passes):
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
        """Return values for all variables, each the best beside those before it, whatever those
        behind it cost at least."""
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
    """Return what the values of a variable cost at least beside the values of others."""
    if isinstance(factor, _Costs):
        at = [slice(values[v], values[v] + 1) if v in values else slice(None) for v in factor.scope]
        return factor.costs[tuple(at)].min(axis=factor.others[variable])
    return factor.least(variable)
