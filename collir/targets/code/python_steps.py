"""Steps with the variables of their arrays, from which statements in Python are made."""

from dataclasses import dataclass

from collir.dialects.operation import DistOp
from collir.layout import DistType
from collir.targets.code.ranks import OverList


@dataclass(frozen=True)
class Sent:
    """A collective with the variables of its arrays.

    Attributes:
        operand, out: the variables of the operand and of the result.
        x, y: the types of the operand and of the result.
        axes: the sub-axes in order.
        root: the condition that this rank is the root.
        group: the number of ranks in a group.
        before, after: the shapes of the arrays of the operand and of the result.
        new: the statement that makes an array for the result.
    """

    op: DistOp
    operand: str
    out: str
    x: DistType
    y: DistType
    axes: OverList
    root: str
    group: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    new: str


@dataclass(frozen=True)
class CutDim:
    """A dimension whose blocks differ in size.

    Attributes:
        parts: the sequence of the units of the ranks of this rank's group.
        unit: the size of a unit in the dimension.
        elements: the elements of a unit, in all dimensions.
    """

    dim: int
    parts: str
    unit: int
    elements: int

    @property
    def counts(self) -> str:
        """The elements of the ranks of the group, as a list."""
        return f"[{self.elements} * part for part in {self.parts}]"


NOWHERE = CutDim(0, "()", 1, 1)
"""The dimension that a collective does not have."""


@dataclass(frozen=True)
class Blocks:
    """The dimensions that a collective cuts and joins, whose blocks differ in size."""

    leaves: CutDim = NOWHERE
    comes: CutDim = NOWHERE


@dataclass(frozen=True)
class Local:
    """A step that sends nothing, with the variables of its arrays.

    Attributes:
        operands, out: the variables of the operands and of the result.
        x, y: the types of the first operand and of the result.
        shape: the shape of the result's array.
    """

    op: DistOp
    operands: list[str]
    out: str
    x: DistType
    y: DistType
    shape: tuple[int, ...]

    @property
    def operand(self) -> str:
        """The name of the first operand."""
        return self.operands[0]
