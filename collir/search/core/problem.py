"""Problems: a tree, given by its root and the children of a node, and the values of its nodes.

A problem is ordinary Python. Nodes are immutable values, and picklable where they are sent
(processes, MPI, checkpoints). ``children`` is called when a node is expanded. Its iterator is
advanced one child at a time, so that children behind a pruned one need not be generated.
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
    """An unusable problem, option or engine; the message says why and what helps."""


@dataclass(frozen=True)
class Dive(Generic[Node]):
    """The result of a kernel below one node.

    ``solutions`` are (value, node) in the order found, each better than the ones known before it;
    ``total`` is the fold of an enumeration; ``rest`` are the levels left when the limit was
    reached: for each depth below the start, shallowest first, the unvisited nodes at that depth.
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
        """Search the subtree of ``node``, including ``node``, and visit about ``limit`` nodes.

        ``cut`` has one element, which other workers may lower meanwhile: a node is not needed if
        its bound (negated if the sense is ``max``) is greater than ``cut[0]``.
        """
        ...


class Problem(Generic[Node]):
    """A tree and the values of its nodes; subclasses define ``root``, ``children`` and more.

    Attributes:
        sense: ``min`` if small objectives are good, ``max`` if great ones are.
        target: the objective that a solution of ``decide`` must reach.
        sorted_by_bound: whether children come in the order of their bounds, best first, so that
            after a pruned child the later ones need not be generated.
        dominance: whether ``key`` is used. It may save nodes; it costs time and memory.
    """

    sense: Sense = "max"
    target: Number | None = None
    sorted_by_bound: bool = False
    dominance: bool = True

    def root(self) -> Node:
        """Return the root of the tree."""
        raise NotImplementedError(f"{type(self).__name__} gives no root")

    def children(self, node: Node) -> Iterable[Node]:
        """Return the children of a node, most promising first: finitely many, always the same."""
        raise NotImplementedError(f"{type(self).__name__} gives no children")

    def objective(self, node: Node) -> Number | None:
        """Return the value of the node as a solution; None if it is no solution."""
        return None

    def bound(self, node: Node) -> Number:
        """Return a value that no solution at or below the node exceeds in quality (admissible)."""
        return math.inf if self.sense == "max" else -math.inf

    def key(self, node: Node) -> Hashable:
        """Return a name of the state that the node has reached, or None.

        Nodes with equal keys have equal subtrees, except that a greater ``cost`` of a node makes
        every solution below it worse. Of two such nodes the dearer one is dropped; of two with the
        same cost, one of them. Enumerations do not use keys.
        """
        return None

    def cost(self, node: Node) -> Cost:
        """Return the cost of reaching the node; small is good.

        If it is a tuple, a node replaces another with the same key only if no part is greater.
        """
        raise NotImplementedError(f"{type(self).__name__} has a key but no cost")

    def show(self, node: Node) -> Any:
        """Return the node as a solution, for people and for JSON."""
        return node

    def identity(self) -> Hashable:
        """Return the identity of the problem in checkpoints; None: its pickle.

        Define it where the pickle differs from process to process (sets of strings), or changes
        with values that the problem caches during a search.
        """
        return None

    def kernel(self, kind: Kind, fold: object) -> Kernel[Node] | None:
        """Return a compiled search of subtrees for this kind of search, or None.

        ``fold`` is the fold of an enumeration, None for the other kinds. Each worker calls this
        once, to compile and to prepare arrays. Kernels are not used for several best solutions, nor
        with a depth limit.
        """
        return None


make_node: Callable[..., Any] = tuple[Any, ...].__new__
"""Function that makes a NamedTuple from its class and fields, in half the time of a call."""


def overrides(problem: Problem[Any], method: str) -> bool:
    """Return whether a problem overrides a method."""
    return getattr(type(problem), method) is not getattr(Problem, method)


def sign(problem: Problem[Any]) -> int:
    """Return the factor that turns a value into its rank; of two ranks the smaller is better."""
    if problem.sense not in ("min", "max"):
        raise SearchError(f"the sense of a problem is 'min' or 'max', not {problem.sense!r}")
    return 1 if problem.sense == "min" else -1


def rank_of(problem: Problem[Any], what: str, value: Any, node: object) -> Number:
    """Check an objective or a bound, and return its rank.

    Raises:
        SearchError: the value is not an int or a float, or is NaN.
    """
    number: Any = cast(Any, value).item() if isinstance(value, np.generic) else value
    if not isinstance(number, int | float):
        shown = node_text(cast(object, value))
        raise SearchError(
            f"the {what} of {node_text(node)} is {shown}: it must be an int or a float"
        )
    if number != number:
        raise SearchError(f"the {what} of {node_text(node)} is not a number (NaN)")
    return sign(problem) * number


def check_whole(what: str, value: object, least: int) -> None:
    """Raise an error if a value is not a whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise SearchError(f"{what} must be a whole number of at least {least}, not {value!r}")


def explain(problem: Problem[Any], node: Any, bounded: bool) -> None:
    """Raise a clear error if the bound or the objective of a node caused a TypeError.

    Raises:
        SearchError: the bound or the objective of the node is no number.
    """
    if bounded:
        rank_of(problem, "bound", problem.bound(node), node)
    if (value := problem.objective(node)) is not None:
        rank_of(problem, "objective", value, node)


def equal_nodes(a: Any, b: Any) -> bool:
    """Return whether two nodes of any type are equal."""
    if type(a) is not type(b):
        return False
    equal = a == b
    return bool(equal.all()) if isinstance(equal, np.ndarray) else bool(equal)


def node_text(node: object) -> str:
    """Return the text of a node for a message, cut if it is long."""
    text = repr(node)
    return text if len(text) <= 200 else f"{text[:200]}..."
