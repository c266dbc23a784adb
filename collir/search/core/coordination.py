"""When a search is divided: the coordinations of YewPar.

Archibald, Maier, Stewart, Trinder: "Implementing YewPar: a framework for parallel tree search"
(2019). The root of a task is a node like all others here, whoever made it.
"""

from dataclasses import dataclass

from collir.search.core.problem import whole


@dataclass(frozen=True)
class Sequential:
    """Never: one task."""


@dataclass(frozen=True)
class DepthBounded:
    """Every child of a node at a depth below ``depth`` becomes a task."""

    depth: int = 2

    def __post_init__(self) -> None:
        whole("the depth", self.depth, 0)


@dataclass(frozen=True)
class StackStealing:
    """When a worker has nothing to do, a busy one gives away what is nearest the root.

    Args:
        chunked: all unvisited nodes at that depth, rather than the first of them.
    """

    chunked: bool = True


@dataclass(frozen=True)
class Budget:
    """After so many backtracks, a task gives away all its unvisited nodes nearest the root.

    Args:
        backtracks: None: as many as take long enough, by what backtracks and reports have cost so
            far, for reports to be cheap beside them; and only while workers want something to do.
    """

    backtracks: int | None = None

    def __post_init__(self) -> None:
        if self.backtracks is not None:
            whole("the budget", self.backtracks, 1)


@dataclass(frozen=True)
class Ordered:
    """The nodes at ``depth`` are tasks, made before any is done, and kept in their order.

    The answer does not depend on timing: of equally good solutions the first in the order of the
    tasks is returned, and of nodes that reach a target the first. Depth first and without keys that
    is the one that the sequential search finds.
    """

    depth: int = 2

    def __post_init__(self) -> None:
        whole("the depth", self.depth, 0)


Coordination = Sequential | DepthBounded | StackStealing | Budget | Ordered
