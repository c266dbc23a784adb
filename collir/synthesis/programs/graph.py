"""The graph of unordered layouts: what depends on the states that axes may take, and on no cost.

An axis goes through the states of its chain in order, from any to any later one; a step takes a set
of axes from one state to another at once. All edges are kept in arrays, so that costs and bounds of
all of them are computed together.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from collir.layout.steps import STEPS
from collir.layout.types import State

Array = npt.NDArray[Any]

PARTIAL, ROOT, SHARDED, REPLICATED = "PMSR"
ELSEWHERE = "T"
"""Sharded on another dimension than before."""

LETTERS: dict[State, str] = {
    "partial": PARTIAL,
    "root": ROOT,
    "sharded": SHARDED,
    "replicated": REPLICATED,
}


def _transitions() -> Iterator[tuple[str, tuple[str, str]]]:
    for kind in STEPS.values():
        if kind.is_searched and kind.before and kind.after:
            after = ELSEWHERE if kind.exchanges else LETTERS[kind.after]
            yield kind.name, (LETTERS[kind.before], after)


TRANSITIONS = dict(
    sorted(_transitions(), key=lambda one: ("PMS".index(one[1][0]), "RSMT".index(one[1][1])))
)
"""What a collective does to the state of its axes; from the first state on, the shortest way to the
end first."""

KINDS = tuple(TRANSITIONS)

Chain = str
"""The states that an axis may take, in the order in which it may: ``PMSR``."""


def end_of(kind: str, chain: Chain) -> str:
    """What a collective makes of an axis; ``""`` if it cannot take it.

    Where the axis is to be sharded or at root in the end, and the collective leaves copies, these
    are cut or dropped at once: that is free, and may be cheaper than to scatter or reduce.
    """
    start, end = TRANSITIONS[kind]
    if end == REPLICATED and chain[-1] != REPLICATED:
        end = chain[-1]
    return end if 0 <= chain.find(start) < chain.find(end) else ""


MANY_EDGES = 50_000
"""With more edges than this, axes that are alike go together."""

MAX_EDGES = 2_000_000
"""The most edges of a graph."""


def count_edges(chains: Sequence[Chain]) -> int:
    """How many edges a graph has, without making it."""
    found = 0
    for kind in KINDS:
        found += prod(len(chain) + bool(end_of(kind, chain)) for chain in chains)
        found -= prod(len(chain) for chain in chains)
    return found


@dataclass(frozen=True)
class Graph:
    """All states and edges; a state is a number, mixed radix over the places of axes in chains.

    Attributes:
        weights: what a place in its chain counts for each axis.
        start, end: the states that each edge joins; edges of one start are neighbours.
        kind: the number of each edge's collective in ``KINDS``.
        group: the axes of each edge, a bit each.
        first: for each state its first edge; one more at the end.
        rounds: slices of the edges; those of one slice lead to starts of earlier ones, or to none.
    """

    chains: tuple[Chain, ...]
    weights: tuple[int, ...]
    states: int
    start: Array
    end: Array
    kind: Array
    group: Array
    first: dict[int, tuple[int, int]]
    rounds: tuple[tuple[Array, slice], ...]

    def number(self, states: Sequence[str]) -> int:
        """The number of a state, given for each axis."""
        each = zip(self.weights, self.chains, states, strict=True)
        return sum(weight * chain.index(state) for weight, chain, state in each)

    def states_of(self, number: int) -> str:
        """The state of every axis."""
        each = zip(self.weights, self.chains, strict=True)
        return "".join(chain[number // weight % len(chain)] for weight, chain in each)

    def product(self, factors: Sequence[float], states: str) -> Array:
        """For every number the product of the factors of axes that are in one of some states."""
        found = np.ones(1)
        for chain, factor in zip(self.chains, factors, strict=True):
            each = np.array([factor if one in states else 1.0 for one in chain])
            found = np.multiply.outer(found, each).ravel()
        return found

    def least(self, costs: Array, ends: dict[int, float]) -> Array:
        """For every number the least sum of costs of edges to one of the ends; inf if none is."""
        found = np.full(self.states, np.inf)
        for number, value in ends.items():
            found[number] = value
        for starts, edges in self.rounds:
            values = costs[edges] + found[self.end[edges]]
            at = self.start[starts]
            found[at] = np.minimum(found[at], np.minimum.reduceat(values, starts - edges.start))
        return found

    def paths(self, allowed: Array, ends: Sequence[int]) -> Array:
        """For every number how many paths lead to the ends over edges that are allowed."""
        found = np.zeros(self.states, dtype=np.int64)
        found[list(ends)] = 1
        for starts, edges in self.rounds:
            values = np.where(allowed[edges], found[self.end[edges]], 0)
            found[self.start[starts]] += np.add.reduceat(values, starts - edges.start)
        return found


@lru_cache(maxsize=16)
def graph(chains: tuple[Chain, ...]) -> Graph:
    """The graph for axes that take these states."""
    radices = [len(chain) for chain in chains]
    weights = tuple(prod(radices[place + 1 :]) for place in range(len(chains)))
    starts: list[Array] = []
    ends: list[Array] = []
    kinds: list[Array] = []
    groups: list[Array] = []
    for kind, name in enumerate(KINDS):
        ends_of = [end_of(name, chain) for chain in chains]
        able = [place for place, end in enumerate(ends_of) if end]
        one = TRANSITIONS[name][0]
        for bits in range(1, 1 << len(able)):
            group = [place for index, place in enumerate(able) if bits >> index & 1]
            rest = np.zeros(1, dtype=np.int64)
            base = shift = mask = 0
            for place, (chain, weight) in enumerate(zip(chains, weights, strict=True)):
                if place in group:
                    base += chain.index(one) * weight
                    shift += (chain.index(ends_of[place]) - chain.index(one)) * weight
                    mask |= 1 << place
                else:
                    rest = np.add.outer(rest, np.arange(len(chain)) * weight).ravel()
            starts.append(rest + base)
            ends.append(rest + (base + shift))
            kinds.append(np.full(len(rest), kind, dtype=np.int64))
            groups.append(np.full(len(rest), mask, dtype=np.int64))
    total = prod(radices)
    if not starts:
        empty = np.zeros(0, dtype=np.int64)
        return Graph(chains, weights, total, empty, empty, empty, empty, {}, ())
    start, end = np.concatenate(starts), np.concatenate(ends)
    height = np.zeros(1, dtype=np.int64)
    for chain in chains:
        height = np.add.outer(height, np.arange(len(chain))).ravel()
    order = np.lexsort((start, -height[start]))
    start, end = start[order], end[order]
    change = np.flatnonzero(np.diff(start)) + 1
    first = np.concatenate(([0], change))
    last = np.concatenate((change, [len(start)]))
    spans = {int(start[a]): (int(a), int(b)) for a, b in zip(first, last, strict=True)}
    rounds: list[tuple[Array, slice]] = []
    heights = height[start[first]].tolist()
    at = 0
    for _, same in groupby(heights):
        count = len(list(same))
        rounds.append((first[at : at + count], slice(int(first[at]), int(last[at + count - 1]))))
        at += count
    kind, group = np.concatenate(kinds)[order], np.concatenate(groups)[order]
    return Graph(chains, weights, total, start, end, kind, group, spans, tuple(rounds))
