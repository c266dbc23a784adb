"""The options of searches for programs."""

from dataclasses import dataclass

from collir.cost.model import CostModel
from collir.layout import Mesh

TIE = 1e-9
"""The relative difference below which two times count as equal."""


@dataclass(frozen=True)
class SearchOptions:
    """The options of a search for programs.

    Attributes:
        model: the cost model.
        top: how many programs to return.
        memory: the limit on the bytes of a step's operand and result together, as a multiple of
            those of the whole program; None: no limit.
        seconds: the time limit, after which the best so far are returned; None: no limit.
        scale: the factor by which the sizes of values are multiplied.
        chunks: the most chunks into which a program may cut its value.
        without: names of axes over which no program cuts a value that is whole at both ends.
    """

    model: CostModel
    top: int = 1
    memory: float | None = None
    seconds: float | None = None
    scale: float = 1.0
    chunks: int = 1
    without: frozenset[str] = frozenset()

    def left_alone(self, mesh: Mesh) -> frozenset[str]:
        """Return the sub-axes of the axes ``without``."""
        return frozenset(sub for axis in self.without for sub in mesh.of_axis.get(axis, ()))
