"""Rounds of bounds and solutions on a sum that is restricted more and more.

A round has four steps. Variables are eliminated where tables stay small. Messages between the
tables that are left give a lower bound. The solutions that they lead to are improved: each becomes
the best of very many around it. Values that are in no better solution are left out. After a few
rounds mostly one solution is left, and proven.
"""

import random
import time
from collections.abc import Callable

import numpy as np

from collir.synthesis.searching import TimeUp, interrupt, interrupted
from collir.synthesis.sharding.elimination import Eliminated, eliminate
from collir.synthesis.sharding.factors import Costs, FactorSum, Numbers, Values
from collir.synthesis.sharding.messages import Messages

SAME = 1e-9
"""The part of a sum by which another one has to be smaller to be better."""

_FIRST, _LAST = 1 << 14, 1 << 21
"""The most entries of tables in the first rounds, and in the last."""

_DENSE = 1 << 17
"""The most entries of a fan that becomes a table in the first rounds."""

_PASSES, _ENOUGH = 80, 1e-6
"""The most passes of messages in a round, and the part by which some have to raise the bound."""

_TRIES = 4
"""How often a solution is improved."""

_FEWER = 0.9
"""The part of the values that a round has to leave out, or tables get larger."""


Judge = Callable[[Values, float], float]


class SumRounds:
    """The best values of a sum, or bounds.

    Attributes:
        left: the sum over the values that are left.
        kept: the values of each variable that are left.
        best: the best values that are known.
        least: the least sum that is known.
        bound: a lower bound of the sum over the values that were left at the beginning.
        above: the least cost of each value of variables not eliminated, on top of ``floor``.
        count: the number of rounds.
        is_complete: whether the least sum was found, though it may be no solution to the judge.
    """

    def __init__(
        self,
        left: FactorSum,
        kept: tuple[Numbers, ...],
        least: float = float("inf"),
        judge: Judge | None = None,
    ):
        """Set up rounds.

        Args:
            least: the least sum that is known.
            judge: a function from values and their sum to the sum that counts, which is no less;
                infinity for values that are no solution.
        """
        self.left, self.kept, self.least, self.judge = left, list(kept), least, judge
        self.most = _FIRST
        self.best: Values | None = None
        self.bound = self.floor = -float("inf")
        self.above: dict[int, Costs] = {}
        self.count, self.is_complete = 0, False
        self.rng = random.Random(0)

    @property
    def is_proven(self) -> bool:
        """True if no sum over the values is less than the least known one."""
        return self.bound >= self.least * (1 - SAME)

    def run(self, until: float | None = None) -> None:
        """Run rounds until the least sum is proven, no values are left out, or the time is up.

        Args:
            until: the time of ``time.monotonic()`` when the rounds end.
        """
        while True:
            before = sum(self.left.sizes)
            try:
                self._round()
            except KeyboardInterrupt:
                if self.best is None:
                    raise
                interrupt()
            except TimeUp:
                if self.best is None:
                    self._take(dict.fromkeys(range(len(self.left.sizes)), 0))
                return
            self.count += 1
            ended = interrupted() or (until is not None and time.monotonic() > until)
            if self.is_proven or self.is_complete or ended:
                return
            if sum(self.left.sizes) > _FEWER * before:
                if self.most == _LAST:
                    return
                self.most = min(_LAST, self.most * 4)

    def _round(self) -> None:
        whole = self.left.with_tables(max(_DENSE, self.most))
        shared = {v for fan in whole.fans for v in fan.scope}
        rest = eliminate(whole.sizes, whole.tables, self.most, kept=shared)
        if not rest.left:
            self._take(rest.complete({}))
            self.bound, self.is_complete = max(self.bound, rest.constant), True
            return
        variables = sorted(rest.left)
        messages = Messages(whole.sizes, variables, rest.tables, whole.fans, rest.constant)
        messages.run(_PASSES, _ENOUGH)
        self.bound = max(self.bound, messages.bound)
        self._solutions(messages, rest)
        self.floor, self.above = messages.floor, messages.above
        if not self.is_proven:
            self._restrict(self.least * (1 + SAME) - self.floor)

    def _solutions(self, messages: Messages, rest: Eliminated) -> None:
        for way in (-1, 1):
            if not self.is_proven:
                values = rest.complete(messages.solution(way))
                least = self.left.value(values)
                for _ in range(_TRIES):
                    values = self._best_around(values)
                    before, least = least, self.left.value(values)
                    if before - least <= SAME * abs(least):
                        break
                self._take(values)

    def _best_around(self, values: Values) -> dict[int, int]:
        """Return the best solution that agrees with given values on some variables: those that make
        tables too large, and all users of a large fan but two."""
        fixed: dict[int, Numbers] = {}
        for fan in self.left.fans:
            if fan.entries > self.most:
                users = list(fan.scope[1:])
                for user in self.rng.sample(users, max(0, len(users) - 2)):
                    fixed[user] = np.array([values[user]])
        around = {v: 0 if v in fixed else value for v, value in values.items()}
        near = self.left.restricted(fixed).with_tables(1 << 60)
        eliminated = eliminate(near.sizes, near.tables, self.most, around=around).complete({})
        return {v: int(fixed[v][0]) if v in fixed else value for v, value in eliminated.items()}

    def _take(self, values: Values) -> None:
        """Keep values of what is left, if their sum is the least so far."""
        total = self.left.value(values)
        whole = {v: int(self.kept[v][value]) for v, value in values.items()}
        if self.judge is not None:
            total = self.judge(whole, total)
        if total < self.least:
            self.least, self.best = total, whole

    def _restrict(self, most: float) -> None:
        """Leave out values that cost more on top of the bound."""
        kept = {v: np.nonzero(above <= most)[0] for v, above in self.above.items()}
        if any(not len(own) for own in kept.values()):
            self.bound = max(self.bound, self.least)  # no value is in a better solution
            return
        self.above = {v: self.above[v][own] for v, own in kept.items()}
        fewer = {v: own for v, own in kept.items() if len(own) < self.left.sizes[v]}
        for variable, own in fewer.items():
            self.kept[variable] = self.kept[variable][own]
        self.left = self.left.restricted(fewer)
