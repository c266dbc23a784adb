"""What is searched: a tree, given by its root and the children of a node, and what nodes are worth.

A problem is ordinary Python. Nodes are values: never changed once made, and picklable where they
travel (processes, MPI, checkpoints). ``children`` is called when a node is expanded and its
iterator is drawn from one child at a time, so that what is pruned first is never made.
"""

import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

Node = TypeVar("Node")
Number = int | float
Sense = Literal["min", "max"]
Kind = Literal["enumerate", "decide", "optimise"]
Cost = Number | tuple[Number, ...]


class SearchError(Exception):
    """A problem, an option or an engine that cannot be used as asked; says why and what helps."""


@dataclass(frozen=True)
class Dive(Generic[Node]):
    """What a kernel has done below one node.

    ``solutions`` are (value, node), in the order found, each better than what was known; ``total``
    is what an enumeration adds; ``rest`` are the levels left unexplored when the limit was reached:
    for each depth below the start, shallowest first, the nodes at that depth not yet visited.
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
        """Searches the subtree of ``node``, itself included, visiting about ``limit`` nodes.

        ``cut`` has one element, which others may lower meanwhile: nothing is needed whose bound
        (negated if the sense is ``max``) is greater than ``cut[0]``.
        """
        ...


class Problem(Generic[Node]):
    """A tree and what its nodes are worth; subclasses give ``root``, ``children`` and what else.

    Attributes:
        sense: whether a small or a great objective is good.
        target: the objective that ``decide`` looks for, or better.
        sorted_by_bound: children come in the order of their bounds, best first, so that once one of
            them is pruned the later ones need not be made.
        dominance: whether ``key`` is used: it may save nodes, and costs time and memory.
    """

    sense: Sense = "max"
    target: Number | None = None
    sorted_by_bound: bool = False
    dominance: bool = True

    def root(self) -> Node:
        """The node that all others lie below."""
        raise NotImplementedError(f"{type(self).__name__} gives no root")

    def children(self, node: Node) -> Iterable[Node]:
        """The children of a node, the most promising first: finitely many, the same each time."""
        raise NotImplementedError(f"{type(self).__name__} gives no children")

    def objective(self, node: Node) -> Number | None:
        """What the node is worth as a solution; None if it is none."""
        return None

    def bound(self, node: Node) -> Number:
        """No solution at the node or below it is better than this (admissible)."""
        return math.inf if self.sense == "max" else -math.inf

    def key(self, node: Node) -> Hashable:
        """A name of the state that the node has reached, or None.

        Nodes of one key have the same subtrees, but for what it has cost to reach them (``cost``,
        which every solution below is worse for): of two, the dearer one is dropped, and of two that
        cost the same, one. Not used when enumerating.
        """
        return None

    def cost(self, node: Node) -> Cost:
        """What it took to reach the node; small is good.

        Of several costs (a tuple), none may be greater for a node to replace another of its key.
        """
        raise NotImplementedError(f"{type(self).__name__} has a key but no cost")

    def show(self, node: Node) -> Any:
        """What the node is as a solution, for people and for JSON."""
        return node

    def identity(self) -> Hashable:
        """What a checkpoint knows the problem by; None: its pickle.

        To be given where that differs from process to process (sets of strings), or with what the
        problem remembers while it is searched.
        """
        return None

    def kernel(self, kind: Kind, fold: object) -> Kernel[Node] | None:
        """A compiled search of subtrees of this problem for this kind of search, or None.

        ``fold`` is what ``enumerate`` was asked to compute, None for the other kinds. Called once
        by each worker, so compiling and preparing arrays belongs here. Not used for several best
        solutions, nor with a limit on the depth.
        """
        return None


make_node: Callable[..., Any] = tuple[Any, ...].__new__
"""Makes a NamedTuple of a class from a tuple of its fields, in half the time of a call."""


def has(problem: Problem[Any], method: str) -> bool:
    """Whether a problem gives a method of its own, or leaves the default."""
    return getattr(type(problem), method) is not getattr(Problem, method)


def sign(problem: Problem[Any]) -> int:
    """What turns a value into its rank: of two ranks, the smaller is the better."""
    if problem.sense not in ("min", "max"):
        raise SearchError(f"the sense of a problem is 'min' or 'max', not {problem.sense!r}")
    return 1 if problem.sense == "min" else -1


def rank_of(problem: Problem[Any], what: str, value: Any, node: object) -> Number:
    """The rank of an objective or bound, checked.

    Raises:
        SearchError: it is no number, or not a number (NaN).
    """
    number: Any = cast(Any, value).item() if isinstance(value, np.generic) else value
    if not isinstance(number, int | float):
        found = shown(cast(object, value))
        raise SearchError(f"the {what} of {shown(node)} is {found}: it must be an int or a float")
    if number != number:
        raise SearchError(f"the {what} of {shown(node)} is not a number (NaN)")
    return sign(problem) * number


def whole(what: str, value: object, least: int) -> None:
    """Raises an error if a value is no whole number, or too small a one."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise SearchError(f"{what} must be a whole number of at least {least}, not {value!r}")


def explain(problem: Problem[Any], node: Any, bounded: bool) -> None:
    """Raises the right error if a bound or an objective is why a node could not be dealt with.

    Raises:
        SearchError: the bound or the objective of the node is no number.
    """
    if bounded:
        rank_of(problem, "bound", problem.bound(node), node)
    if (value := problem.objective(node)) is not None:
        rank_of(problem, "objective", value, node)


def same(one: Any, other: Any) -> bool:
    """Whether two nodes are equal, for nodes of any kind."""
    if type(one) is not type(other):
        return False
    equal = one == other
    return bool(equal.all()) if isinstance(equal, np.ndarray) else bool(equal)


def shown(node: object) -> str:
    """A node in a message: of a long one, the beginning."""
    text = repr(node)
    return text if len(text) <= 200 else f"{text[:200]}..."
