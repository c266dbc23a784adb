"""The options of passes and targets that search."""

from dataclasses import dataclass

from collir.cost.options import CostOptions


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
class ParallelOptions(TimedOptions):
    """The options of searches that several processes share."""

    workers: int = 1
    """Processes for a search that takes long."""

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise ValueError("workers is 1 or more")
        super().__post_init__()
