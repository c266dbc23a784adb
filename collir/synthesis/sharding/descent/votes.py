"""Votes of steps for the states of the parts that they take or make.

A step runs in the best way for the states of its parts. Its vote for a state of a part is its least
cost there, with the other parts in their known states; before these are known, their states count
on average. The votes of steps are added up for each part. They are integers, so the sum does not
depend on the order of steps, and a program may be summed in pieces.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from collir.synthesis.sharding.descent.states import States, StateSpace
from collir.synthesis.sharding.factors import FactorSum, FactorTable

Amounts = NDArray[np.int64]
"""Costs as integers."""

_BITS = 58
"""The bits of the integer that the sum of the largest costs becomes."""

_NEVER = 1 << 60
"""The cost of a way that is not there in a state: more than all others."""


class AlikeSteps:
    """The costs of steps that are alike.

    Attributes:
        own: the cost of each way.
        moves: for each part, the cost of each way (a row) in each of its states.
    """

    def __init__(self, own: Amounts, moves: Sequence[Amounts]):
        self.own, self.moves = own, moves
        self._means = [self._mean(costs) for costs in moves]
        self._votes: dict[tuple[int, ...], list[Amounts]] = {}
        self._least: dict[tuple[int, ...], int] = {}

    def _mean(self, costs: Amounts) -> Amounts:
        """Return the cost of each way where the state of a part is unknown."""
        never = (costs == _NEVER).any(axis=1)
        return np.where(never, 0, costs.mean(axis=1)).astype(np.int64)

    def votes(self, states: tuple[int, ...]) -> list[Amounts]:
        """Return the least cost of a step for each state of each of its parts.

        Args:
            states: the states of its parts; (): unknown.
        """
        if states not in self._votes:
            known = (
                [x[:, s] for x, s in zip(self.moves, states, strict=True)]
                if states
                else self._means
            )
            total = self.own + sum(known)
            self._votes[states] = [
                ((total - own)[:, None] + costs).min(axis=0)
                for own, costs in zip(known, self.moves, strict=True)
            ]
        return self._votes[states]

    def costs(self, states: Sequence[int]) -> Amounts:
        """Return the cost of each way in some states."""
        return self.own + sum(x[:, s] for x, s in zip(self.moves, states, strict=True))

    def least(self, states: tuple[int, ...]) -> int:
        """Return the least cost in some states."""
        if states not in self._least:
            self._least[states] = int(self.costs(states).min())
        return self._least[states]


class VotedStep(NamedTuple):
    """A step, or the edge of a loop, and the numbers of its parts."""

    kind: AlikeSteps
    parts: tuple[int, ...]

    def in_states(self, states: States) -> tuple[int, ...]:
        """Return the states of its parts."""
        return tuple(states[part] for part in self.parts)


Votes = dict[int, Amounts]
"""For each part, the sum of the costs of steps in each of its states."""


def add(votes: Votes, other: Votes) -> None:
    """Add other votes to some, in place."""
    for part, costs in other.items():
        votes[part] = votes[part] + costs if part in votes else costs


def votes_of(steps: Iterable[VotedStep], states: States | None = None) -> Votes:
    """Return the sum of the votes of some steps.

    Args:
        states: those of all parts, if they are known.
    """
    votes: Votes = {}
    for step in steps:
        known = () if states is None else step.in_states(states)
        add(votes, dict(zip(step.parts, step.kind.votes(known), strict=True)))
    return votes


class VotedSteps:
    """The steps of a choice of layouts, with costs as integers.

    Each step pays for the moves of its operands, though several steps may share a move.

    Attributes:
        unit: the size of a cost of 1.
        listed: the steps, those with ways first.
        held: the cost of each part by itself in each of its states.
    """

    def __init__(self, space: StateSpace, whole: FactorSum, variables: Sequence[int]):
        """Set up the steps of a sum.

        Args:
            variables: those of steps.
        """
        self.space, self.variables = space, list(variables)
        self.unit = 2.0 ** -_exponent(whole)
        self._own = {n: np.zeros(whole.sizes[n], np.int64) for n in variables}
        self._moves: dict[int, dict[int, Amounts]] = {n: {} for n in variables}
        self.held: list[Amounts] = [np.zeros(len(x), np.int64) for x in space.layouts]
        edges: list[tuple[int, int, Amounts]] = []
        for table in whole.tables:
            self._add(table, edges)
        for fan in whole.fans:
            for user, needs in zip(fan.users, fan.needs, strict=True):
                self._add(FactorTable((fan.own, user), fan.prices[:, needs]), edges)
        self._kinds: dict[object, AlikeSteps] = {}
        self.listed = [self._step(self._own[n], self._moves[n]) for n in self.variables]
        self.listed += [self._edge(*edge) for edge in edges]

    def integers(self, costs: NDArray[np.float64]) -> Amounts:
        """Return costs in units."""
        return np.rint(costs / self.unit).astype(np.int64)

    def _add(self, table: FactorTable, edges: list[tuple[int, int, Amounts]]) -> None:
        """Add the costs of a table. Savings from reducing a sum of addends once are tables of three
        variables, which no vote counts."""
        if len(table.scope) > 2:
            return
        costs = self.integers(table.costs)
        steps = [v for v in table.scope if v in self._own]
        tensors = [v for v in table.scope if v not in self._own]
        match steps, tensors:
            case [step], []:
                self._own[step] += costs
            case [], [tensor]:
                part, values = self.space.value_of[tensor]
                self.held[part] = self.held[part] + costs[values]
            case [step], [tensor]:
                part, values = self.space.value_of[tensor]
                moves = (costs if table.scope == (step, tensor) else costs.T)[:, values]
                known = self._moves[step]
                known[part] = known[part] + moves if part in known else moves
            case [], [one, other]:
                edges.append((one, other, costs))
            case _:
                raise AssertionError("no table is between two steps")

    def _edge(self, one: int, other: int, costs: Amounts) -> VotedStep:
        """Return the edge of a loop as a step whose ways are the layouts of one of the tensors."""
        (first, values), (second, ways) = self.space.value_of[one], self.space.value_of[other]
        none = np.zeros(costs.shape[1], np.int64)
        if first == second:
            self.held[first] = self.held[first] + costs[values, ways]
            return self._step(none[:1], {})
        there = np.full((costs.shape[1], len(ways)), _NEVER)
        there[ways, np.arange(len(ways))] = 0
        return self._step(none, {first: costs.T[:, values], second: there})

    def _step(self, own: Amounts, moves: dict[int, Amounts]) -> VotedStep:
        ordered = dict(sorted(moves.items()))
        key = (own.tobytes(), *((x.shape, x.tobytes()) for x in ordered.values()))
        if key not in self._kinds:
            self._kinds[key] = AlikeSteps(own, [*ordered.values()])
        return VotedStep(self._kinds[key], tuple(ordered))

    def values(self, states: States) -> dict[int, int]:
        """Return the value of each variable: a layout, or the best way of a step."""
        values = {v: int(of[states[part]]) for v, (part, of) in self.space.value_of.items()}
        for variable, step in zip(self.variables, self.listed, strict=False):
            values[variable] = int(step.kind.costs(step.in_states(states)).argmin())
        return values


def _exponent(whole: FactorSum) -> int:
    """Return the power of two by which the sum of the largest costs has few enough bits."""
    largest = [float(np.abs(table.costs).max()) for table in whole.tables]
    largest += [float(fan.prices.max()) * len(fan.users) for fan in whole.fans]
    total = math.fsum(largest)
    return _BITS - math.ceil(math.log2(total)) if total else 0
