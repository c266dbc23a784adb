"""What is searched: a tree, given by its root and the children of a node, and what its nodes are worth.

A problem is ordinary Python. Nodes are values: hashable or not, but never changed once made, and picklable
where they travel (processes, MPI, checkpoints). ``children`` is called when a node is expanded and its
iterator is drawn from one child at a time, so that what is pruned first is never made.
"""

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Node = TypeVar("Node")
Number = int | float
Sense = Literal["min", "max"]
Kind = Literal["enumerate", "decide", "optimise"]
Cost = Number | tuple[Number, ...]


class SearchError(Exception):
    """A problem, an option or an engine that cannot be used as asked; the message says why and what helps."""


@dataclass(frozen=True)
class Dive(Generic[Node]):
    """What a kernel has done below one node.

    ``solutions`` are (value, node), in the order found, each better than what was known; ``total`` is
    what an enumeration adds; ``rest`` are the levels left unexplored when the limit was reached: for
    each depth below the start, shallowest first, the nodes at that depth not yet visited.
    """

    nodes: int
    pruned: int = 0
    backtracks: int = 0
    deepest: int = 0
    solutions: tuple[tuple[Number, Node], ...] = ()
    total: Any = None
    rest: tuple[tuple[Node, ...], ...] = ()


class Kernel(Protocol[Node]):
    """A compiled search of a whole subtree (optional; see ``Problem.kernel``)."""

    def __call__(self, node: Node, cut: NDArray[np.float64], limit: int) -> Dive[Node]:
        """Searches the subtree of ``node``, the node included, visiting about ``limit`` nodes at most.

        ``cut`` has one element, which others may lower meanwhile: nothing is needed whose bound (negated
        if the sense is ``max``) is greater than ``cut[0]``.
        """
        ...


class Problem(Generic[Node]):
    """A tree and what its nodes are worth. Subclasses give ``root`` and ``children``, and what they have.

    Attributes:
        sense: whether a small or a great objective is good.
        target: the objective that ``decide`` looks for, or better.
        sorted_by_bound: children come in the order of their bounds, best first, so that once one of
            them is pruned the later ones need not be made.
    """

    sense: Sense = "max"
    target: Number | None = None
    sorted_by_bound: bool = False

    def root(self) -> Node:
        """The node that all others lie below."""
        raise NotImplementedError(f"{type(self).__name__} gives no root")

    def children(self, node: Node) -> Iterable[Node]:
        """The children of a node, the most promising first; the same ones in the same order each time."""
        raise NotImplementedError(f"{type(self).__name__} gives no children")

    def objective(self, node: Node) -> Number | None:
        """What the node is worth as a solution; None if it is none."""
        return None

    def bound(self, node: Node) -> Number:
        """No solution at the node or below it is better than this (admissible)."""
        return math.inf if self.sense == "max" else -math.inf

    def key(self, node: Node) -> Hashable:
        """A name of the state that the node has reached, or None.

        Nodes of one key have the same subtrees, but for what it has cost to reach them (``cost``, which
        every solution below is worse for): of two, the dearer one is dropped, and of two that cost the
        same, one. Not used when enumerating.
        """
        return None

    def cost(self, node: Node) -> Cost:
        """What it took to reach the node, small is good; of several costs (a tuple), all must be no greater
        for one node to take the place of another of the same key."""
        raise NotImplementedError(f"{type(self).__name__} has a key but no cost")

    def show(self, node: Node) -> Any:
        """What the node is as a solution, for people and for JSON."""
        return node

    def kernel(self, kind: Kind, fold: object) -> Kernel[Node] | None:
        """A compiled search of subtrees of this problem for this kind of search, or None.

        ``fold`` is what ``enumerate`` was asked to compute, None for the other kinds. Called once by
        each worker, so compiling and preparing arrays belongs here.
        """
        return None


def has(problem: Problem[Any], method: str) -> bool:
    """Whether a problem gives a method of its own, or leaves the default."""
    return getattr(type(problem), method) is not getattr(Problem, method)
