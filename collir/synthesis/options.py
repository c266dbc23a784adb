"""The options of passes and targets that search."""

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from collir.cost.options import CostOptions
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.ir.functions import meshes_of


@dataclass(frozen=True)
class TimedOptions(CostOptions):
    """The options of searches that may take long."""

    limit: int = 60
    """Seconds for each search; 0: no limit."""

    def __post_init__(self) -> None:
        if self.limit < 0:
            raise ValueError("limit is 0 (none) or more seconds")
        super().__post_init__()

    @property
    def seconds(self) -> float | None:
        """The seconds for each search; None: no limit."""
        return float(self.limit) or None


@dataclass(frozen=True)
class SendingOptions(TimedOptions):
    """The options of searches for other steps that send the same."""

    without: tuple[str, ...] = ()
    """Axes for new steps to leave alone unless the old layouts name them, such as the axis of the
    stages into which a later pass cuts the program."""

    def axes_of(self, module: ModuleOp) -> frozenset[str]:
        """Return the axes that are left alone.

        Raises:
            DiagnosticError: no mesh of the module has such an axis.
        """
        known = {axis for mesh in meshes_of(module) for axis in mesh.value().of_axis}
        for axis in self.without:
            if axis not in known:
                text = f"without={axis}: no mesh has an axis '{axis}', there is {', '.join(known)}"
                raise DiagnosticError(Diagnostic(text))
        return frozenset(self.without)


@dataclass(frozen=True)
class ParallelOptions(TimedOptions):
    """The options of searches that several processes share."""

    workers: int = 1
    """The number of processes for a search that takes long."""

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise ValueError("workers is 1 or more")
        super().__post_init__()
