"""The cheapest programs between two layouts: which graph to search, and what it finds."""

from dataclasses import dataclass

from collir.cost.model import CostModel
from collir.layout import DistType, Mesh, rules
from collir.synthesis.layouts import LayoutPaths
from collir.synthesis.paths import cheapest
from collir.synthesis.states import StatePaths, fits
from collir.synthesis.steps import Candidate


@dataclass(frozen=True)
class Synthesis:
    """The cheapest programs from a layout to another, best first.

    Attributes:
        count: how many programs the graph has; None if they are not counted.
        least: seconds that no program of the graph takes less than, from its bytes and latencies.
        proven: whether the search ended, so that these are the best.
    """

    candidates: tuple[Candidate, ...]
    count: int | None
    least: float
    proven: bool


def synthesise(
    mesh: Mesh,
    source: DistType,
    target: DistType,
    model: CostModel,
    top: int = 1,
    memory: float | None = None,
    seconds: float | None = None,
    counted: bool = False,
) -> Synthesis:
    """The cheapest programs that bring a value from a layout to another.

    Args:
        mesh: placed on levels.
        source: the layout of the operand.
        target: that of the result, of the same shape and dtype.
        model: of the costs.
        top: how many programs.
        memory: bytes that operand and result of any step may take together on a device.
        seconds: after which the best so far are returned.
        counted: whether to count all programs.

    Raises:
        LayoutError: no program leads from one to the other.
        CostError: the mesh is not placed on levels, or too many sub-axes change.
    """
    rules.redistribute(mesh, source, target)
    paths: StatePaths | LayoutPaths
    count: int | None = None
    if fits(source, target):
        paths = StatePaths(mesh, source, target, model, memory)
        count = paths.count() if counted else None
    else:
        paths = LayoutPaths(mesh, source, target, model, memory)
    found = cheapest(paths, top, seconds)
    least = paths.root().bound
    return Synthesis(found.candidates, count, least, found.proven)
