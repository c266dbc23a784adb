"""The coordinations of YewPar: rules that say when a search is divided into tasks.

Archibald, Maier, Stewart, Trinder: "Implementing YewPar: a framework for parallel tree search"
(2019). Here the root of a task is visited like any other node.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from collir.search.core.problem import SearchError, check_whole


@dataclass(frozen=True)
class Sequential:
    """No division: the search is one task."""


@dataclass(frozen=True)
class DepthBounded:
    """A task for every child of a node at a depth less than ``depth``."""

    depth: int = 2

    def __post_init__(self) -> None:
        check_whole("the depth", self.depth, 0)


@dataclass(frozen=True)
class StackStealing:
    """Work stealing: while a worker is idle, a busy one gives away its nodes nearest the root.

    Args:
        chunked: give away all unvisited nodes at that depth instead of the first one.
    """

    chunked: bool = True


@dataclass(frozen=True)
class Budget:
    """A number of backtracks after which a task gives away its unvisited nodes nearest the root.

    Args:
        backtracks: the budget. None: the number that takes much longer than a report, by the times
            measured so far, and nodes are given away only while workers are idle.
    """

    backtracks: int | None = None

    def __post_init__(self) -> None:
        if self.backtracks is not None:
            check_whole("the budget", self.backtracks, 1)


@dataclass(frozen=True)
class Ordered:
    """A task for each node at ``depth``, all made before any is run, and kept in their order.

    The answer does not depend on timing: of equally good solutions the first in the order of the
    tasks is returned, and of nodes that reach a target the first. In depth-first order and without
    keys the sequential search finds the same solution.
    """

    depth: int = 2

    def __post_init__(self) -> None:
        check_whole("the depth", self.depth, 0)


Coordination = Sequential | DepthBounded | StackStealing | Budget | Ordered

COORDINATIONS: dict[str, Callable[..., Coordination]] = {
    "sequential": Sequential,
    "depth-bounded": DepthBounded,
    "stack-stealing": StackStealing,
    "budget": Budget,
    "ordered": Ordered,
}
"""Name -> the coordination; its parameter follows ``=``."""


def coordination_of(text: str) -> Coordination:
    """Return the coordination of a text such as ``budget`` or ``depth-bounded=3``.

    Raises:
        SearchError: there is none of that name, or its parameter is wrong.
    """
    name, equals, number = text.partition("=")
    if name not in COORDINATIONS:
        known = ", ".join(COORDINATIONS)
        raise SearchError(f"there is no coordination '{name}'; there is {known}")
    if not equals:
        return COORDINATIONS[name]()
    if name in ("sequential", "stack-stealing"):
        raise SearchError(f"{name} takes no number")
    if not re.fullmatch(r"[0-9]{1,9}", number):
        raise SearchError(f"{name} takes a whole number, not '{number}'")
    return COORDINATIONS[name](int(number))
