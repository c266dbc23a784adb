"""One collective as the cost models see it: what is sent, over which sub-axes, between whom."""

from dataclasses import dataclass, replace

from collir.cost.collectives.table import COSTS
from collir.layout import DistType, Mesh


@dataclass(frozen=True)
class Collective:
    """A step that sends.

    ``axes`` are its sub-axes in written order (of a permute: all that its layouts are sharded
    over). ``at_root`` are the others on which only coordinate 0 takes part, ``replicated`` those on
    which all hold copies. ``size`` is the full
    buffer in bytes, the n of the formulas: what every rank holds of an all_reduce, broadcast or
    reduce; what all of a group hold together of an all_gather or reduce_scatter; what the root
    holds of a gather or scatter; what one rank sends in an all_to_all or permute. ``algorithm`` is
    the one that the program asks for. ``moves`` are the layouts of a permute, None of all others.
    """

    kind: str
    mesh: Mesh
    axes: tuple[str, ...]
    size: float
    at_root: frozenset[str] = frozenset()
    replicated: frozenset[str] = frozenset()
    algorithm: str | None = None
    moves: tuple[DistType, DistType] | None = None

    @property
    def ranks(self) -> int:
        """The ranks of one group."""
        return self.mesh.group_size(self.axes)

    @property
    def listed(self) -> bool:
        """True for a permute: its layouts say who sends what, so its messages are listed."""
        return COSTS[self.kind].listed

    def scaled(self, factor: float) -> "Collective":
        """The same with a buffer ``factor`` times as large."""
        return replace(self, size=self.size * factor)

    def algbw(self, time: float) -> float:
        """Bytes of the full buffer per second, as nccl-tests define it."""
        return self.size / time if time > 0 else float("inf")

    def busbw(self, time: float) -> float:
        """What that means for the busiest link, as nccl-tests define it."""
        return self.algbw(time) * COSTS[self.kind].busbw(self.ranks)
