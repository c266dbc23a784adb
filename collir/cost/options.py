"""The options of passes and targets that cost."""

from dataclasses import dataclass

from collir.cost.model import CostModel


@dataclass(frozen=True)
class CostOptions:
    """The options that name a cost model."""

    model: str = "auto"
    """The cost model: `auto` (the model of the library that runs the program: `nccl` on GPUs,
    MPICH's on CPUs), `alpha-beta` (latency and bandwidth), `p2` (bandwidth only, as in P²) or
    `nccl`."""
    algorithm: str = "auto"
    """The algorithm of the steps that name none: `auto` (the library's choice; of `alpha-beta`, the
    cheapest), `cheapest`, `runtime` (MPICH's choice), or the name of one."""
    order: str = "auto"
    """The order of the ranks in a group: as `written` behind `over`, or that of the `hardware`;
    `auto` is the hardware's on GPUs, as NCCL lays its rings."""

    def __post_init__(self) -> None:
        self.cost_model()

    def cost_model(self) -> CostModel:
        """Return the cost model that the options name.

        Raises:
            ValueError: an option has a value that does not exist.
        """
        return CostModel(self.model, self.algorithm, self.order)
