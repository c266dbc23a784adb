"""A collective as the cost models see it: its kind, its size, and the ranks that take part."""

from dataclasses import dataclass, replace
from typing import NamedTuple

from collir.cost.collectives.table import COSTS
from collir.cost.collectives.uneven import UnevenSizes
from collir.cost.network.group import Group
from collir.layout import DistType, Mesh, Place


class LayoutChange(NamedTuple):
    """The layouts of operand and result, which determine the messages of a permute."""

    before: DistType
    after: DistType


class Route(NamedTuple):
    """The ranks of a group that a send is from and to."""

    sender: int
    receiver: int


class RingShift(NamedTuple):
    """The distance in ranks of a shift, and whether its ring is open."""

    distance: int
    is_open: bool


SentBy = LayoutChange | Route | RingShift
"""Who sends to whom in a collective whose layouts or arguments say so."""


@dataclass(frozen=True)
class Collective:
    """A step that sends.

    Attributes:
        kind: the name of the collective.
        axes: its sub-axes in written order; for a permute, the sub-axes that shard its layouts.
        size: the full buffer in bytes, the n of the formulas. For an all_reduce, broadcast or
            reduce it is the buffer of one rank; for an all_gather or reduce_scatter, the buffers of
            a group together; for a gather or scatter, the buffer of the root; for an all_to_all or
            permute, the bytes that one rank sends.
        at_root: the other sub-axes on which only one coordinate takes part.
        replicated: the other sub-axes on which all coordinates hold copies.
        algorithm: the algorithm that the program asks for, if any.
        library_reason: the reason why a library runs that algorithm, and no printed code; empty if
            code does.
        root: the coordinates of the root that a broadcast or scatter comes from, where not 0.
        sent_by: who sends to whom, of a permute, a send or a shift; None for other collectives.
        base: the first rank that takes part, where the sub-axes of ``at_root`` are at another
            coordinate than 0.
        uneven: the sizes that count where blocks differ in size; None if they are equal.
        rows: the number of rows of blocks cut out of an operand, and of blocks joined to a result.
            In one row they lie one behind the other, as along the first dimension; else a device
            copies its full buffer before or after they are sent.
    """

    kind: str
    mesh: Mesh
    axes: tuple[str, ...]
    size: float
    at_root: frozenset[str] = frozenset()
    replicated: frozenset[str] = frozenset()
    algorithm: str | None = None
    library_reason: str = ""
    root: Place = ()
    sent_by: SentBy | None = None
    base: int = 0
    uneven: UnevenSizes | None = None
    rows: tuple[float, float] = (1, 1)

    @property
    def ranks(self) -> int:
        """The ranks of one group."""
        return self.mesh.group_size(self.axes)

    def group(self, order: str = "") -> Group:
        """Return its groups, with ranks in the written or the ``hardware`` order.

        Raises:
            CostError: the mesh is not placed on levels.
        """
        return Group.of(self.mesh, self.axes, self.at_root, order, base=self.base)

    @property
    def listed(self) -> bool:
        """True if its messages are listed, as its layouts or arguments determine them."""
        return COSTS[self.kind].listed

    def scaled(self, factor: float) -> "Collective":
        """Return the collective with a buffer ``factor`` times as large."""
        uneven = self.uneven and self.uneven.scaled(factor)
        return replace(self, size=self.size * factor, uneven=uneven)

    @property
    def packs(self) -> tuple[bool, bool]:
        """True for blocks that a device packs before they are sent, and unpacks after."""
        before, after = self.rows
        return int(before) != 1, int(after) != 1

    @property
    def padded(self) -> float:
        """The full buffer in bytes if all blocks were as large as the largest."""
        return self.uneven.padded if self.uneven else self.size

    @property
    def least(self) -> float:
        """The full buffer in bytes if all blocks were as small as the smallest, for bounds."""
        return self.uneven.least if self.uneven else self.size

    def root_in(self, group: Group) -> int:
        """Return the number of the root in a group."""
        at = {self.mesh.by_name[axis].stride: coordinate for axis, coordinate in self.root}
        number = 0
        for digit in group.digits:
            number = number * digit.size + at.get(digit.stride, 0)
        return number

    def size_for(self, algorithm: str) -> float:
        """Return the full buffer of equal blocks that an algorithm is priced with, in bytes."""
        if self.uneven and algorithm in COSTS[self.kind].around:
            return self.uneven.ring
        return self.padded

    def algbw(self, time: float) -> float:
        """Return the algorithm bandwidth of nccl-tests: bytes of the full buffer per second."""
        return self.size / time if time > 0 else float("inf")

    def busbw(self, time: float) -> float:
        """Return the bus bandwidth of nccl-tests: bytes per second over the busiest link."""
        return self.algbw(time) * COSTS[self.kind].busbw(self.ranks)
