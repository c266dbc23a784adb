"""The graph of unordered layouts, made from the states that axes may take, without costs.

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

from collir.layout.coll import STEPS
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
    sorted(_transitions(), key=lambda row: ("PMS".index(row[1][0]), "RSMT".index(row[1][1])))
)
"""The states of its axes before and after each collective, in the order of the state before; of
one state the shortest way to the end comes first."""

KINDS = tuple(TRANSITIONS)

Chain = str
"""The states that an axis may take, in the only order in which it may take them: ``PMSR``."""


def end_of(kind: str, chain: Chain) -> str:
    """Return the state of an axis after a collective; ``""`` if the collective cannot take it.

    If the axis is to be sharded or at root in the end, and the collective leaves copies, these are
    cut or dropped at once. That is free, and may be cheaper than to scatter or reduce.
    """
    start, end = TRANSITIONS[kind]
    if end == REPLICATED and chain[-1] != REPLICATED:
        end = chain[-1]
    return end if 0 <= chain.find(start) < chain.find(end) else ""


MANY_EDGES = 50_000
"""The number of edges above which axes that are alike change together."""

MAX_EDGES = 2_000_000
"""The most edges of a graph."""


def count_edges(chains: Sequence[Chain]) -> int:
    """Return the number of edges of a graph without making it."""
    count = 0
    for kind in KINDS:
        count += prod(len(chain) + bool(end_of(kind, chain)) for chain in chains)
        count -= prod(len(chain) for chain in chains)
    return count


@dataclass(frozen=True)
class StateGraph:
    """A graph of states and edges; a state is a number, mixed radix over places in chains.

    Attributes:
        chains: the states of each axis.
        weights: for each axis the weight of a place in its chain, in the number of a state.
        states: the number of states.
        start, end: for each edge the states that it joins; edges with one start are neighbours.
        kind: for each edge the number of its collective in ``KINDS``.
        group: for each edge the axes that it takes, a bit for each axis.
        first: for each state that has edges, the range of their numbers.
        rounds: the places where starts change, and the slice of edges that they are in; the edges
            of a slice lead to starts of earlier slices, or to states without edges.
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
        """Return the number of a state that is given for each axis."""
        digits = zip(self.weights, self.chains, states, strict=True)
        return sum(weight * chain.index(state) for weight, chain, state in digits)

    def states_of(self, number: int) -> str:
        """Return the state of every axis."""
        digits = zip(self.weights, self.chains, strict=True)
        return "".join(chain[number // weight % len(chain)] for weight, chain in digits)

    def product(self, factors: Sequence[float], states: str) -> Array:
        """Return for every state the product of the factors of its axes that are in ``states``."""
        products = np.ones(1)
        for chain, factor in zip(self.chains, factors, strict=True):
            of_chain = np.array([factor if state in states else 1.0 for state in chain])
            products = np.multiply.outer(products, of_chain).ravel()
        return products

    def least(self, costs: Array, ends: dict[int, float]) -> Array:
        """Return for every state the least sum of costs of edges to an end; inf: it reaches none.

        Args:
            costs: for each edge.
            ends: states, and what is added at each of them.
        """
        sums = np.full(self.states, np.inf)
        for number, value in ends.items():
            sums[number] = value
        for starts, edges in self.rounds:
            values = costs[edges] + sums[self.end[edges]]
            at = self.start[starts]
            sums[at] = np.minimum(sums[at], np.minimum.reduceat(values, starts - edges.start))
        return sums

    def paths(self, allowed: Array, ends: Sequence[int]) -> Array:
        """Return for every state the number of paths to the ends over edges that are allowed."""
        counts = np.zeros(self.states, dtype=np.int64)
        counts[list(ends)] = 1
        for starts, edges in self.rounds:
            values = np.where(allowed[edges], counts[self.end[edges]], 0)
            counts[self.start[starts]] += np.add.reduceat(values, starts - edges.start)
        return counts


@lru_cache(maxsize=16)
def graph(chains: tuple[Chain, ...]) -> StateGraph:
    """Return the graph for axes that take these states."""
    radices = [len(chain) for chain in chains]
    weights = tuple(prod(radices[place + 1 :]) for place in range(len(chains)))
    starts: list[Array] = []
    ends: list[Array] = []
    kinds: list[Array] = []
    groups: list[Array] = []
    for kind, name in enumerate(KINDS):
        ends_of = [end_of(name, chain) for chain in chains]
        able = [place for place, end in enumerate(ends_of) if end]
        before = TRANSITIONS[name][0]
        for bits in range(1, 1 << len(able)):
            group = [place for index, place in enumerate(able) if bits >> index & 1]
            rest = np.zeros(1, dtype=np.int64)
            base = shift = mask = 0
            for place, (chain, weight) in enumerate(zip(chains, weights, strict=True)):
                if place in group:
                    base += chain.index(before) * weight
                    shift += (chain.index(ends_of[place]) - chain.index(before)) * weight
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
        return StateGraph(chains, weights, total, empty, empty, empty, empty, {}, ())
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
    return StateGraph(chains, weights, total, start, end, kind, group, spans, tuple(rounds))
