"""The options of passes that ask a cost model, and of those that search for programs."""

from dataclasses import dataclass

from xdsl.passes import ModulePass

from collir.cost.model import CostModel
from collir.synthesis.programs.choices import SearchOptions


@dataclass(frozen=True)
class CostingPass(ModulePass):
    """A pass that asks a cost model."""

    model: str = "auto"
    """The cost model, as for the target `cost`."""
    algorithm: str = "auto"
    """The algorithm of the steps that name none, as for the target `cost`."""
    order: str = "auto"
    """The order of the ranks in a group, as for the target `cost`."""

    def __post_init__(self) -> None:
        self.cost_model()

    def cost_model(self) -> CostModel:
        """Return the cost model that the options name.

        Raises:
            ValueError: an option has a value that does not exist.
        """
        return CostModel(self.model, self.algorithm, self.order)


@dataclass(frozen=True)
class SearchingPass(CostingPass):
    """A pass that searches for the cheapest programs under a cost model."""

    limit: int = 60
    """Seconds for each search; 0: no limit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.limit < 0:
            raise ValueError("limit is 0 (none) or more seconds")

    @property
    def seconds(self) -> float | None:
        """The limit in seconds; None if there is none."""
        return float(self.limit) or None

    def search_options(self) -> SearchOptions:
        """Return what searches are told."""
        return SearchOptions(self.cost_model(), seconds=self.seconds)
