"""The layouts in which a step may run: from the sub-axes of its indices follow its properties, and
the types of its operands and its result."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from xdsl.ir import Attribute

from collir.dialects.operation import DistOp, attribute_of
from collir.layout import DistType
from collir.layout.steps import ArgumentKind
from collir.layout.structure import REPEATED
from collir.layout.types import Dim
from collir.synthesis.propagation.graph import Layout, Relation

Assignment = Mapping[str, tuple[str, ...]]
"""The sub-axes of every index of a relation."""


Moved = tuple[int, Layout, int]
"""A tensor that is brought somewhere: its number, its layout there, and how often."""


@dataclass(frozen=True)
class LayoutChoice:
    """The layouts in which a step may run.

    Attributes:
        axes: the sub-axes of the indices that are sharded.
        seconds: the time of the step, and of the moves of operands and result.
        moves: the part of it in which operands are moved, a share of each move.
        brought: the numbers of the operands that are moved, with the layouts and the seconds.
    """

    axes: Assignment
    seconds: float = 0.0
    moves: float = 0.0
    brought: Mapping[tuple[int, Layout], float] = field(default_factory=dict[Any, float])

    def summed(self, relation: Relation) -> frozenset[str]:
        """Return the sub-axes of the indices that the result lacks."""
        return summed(relation, self.axes)

    def moves_of(self, relation: Relation) -> dict["Moved", float]:
        """Return the moved tensors with their new layouts, and the seconds of all moves."""
        return {
            (relation.members[number].number, there, relation.times): relation.times * seconds
            for (number, there), seconds in self.brought.items()
        }


def layout_with(over: tuple[str, ...], axes: Assignment) -> Layout:
    """Return the layout of a member whose dimensions run over some indices."""
    return tuple(() if index == REPEATED else axes.get(index, ()) for index in over)


def summed(relation: Relation, axes: Assignment) -> frozenset[str]:
    """Return the sub-axes of the indices that the result of a relation lacks."""
    lacking = (own for index, own in axes.items() if index not in relation.indices[-1])
    return frozenset(chain.from_iterable(lacking))


def with_layout(x: DistType, layout: Layout) -> DistType:
    """Return a type whose dimensions are sharded as a layout says."""
    dims = (Dim(dim.size, axes) for dim, axes in zip(x.dims, layout, strict=True))
    return replace(x, dims=tuple(dims))


def properties_in(
    op: DistOp, layout: Layout, operands: Sequence[DistType], summed: frozenset[str]
) -> dict[str, Attribute]:
    """Return the properties of a step whose result is in a layout.

    Args:
        summed: the sub-axes of indices that the result lacks.
    """
    properties = dict(op.properties)
    structure = op.structure
    for parameter in op.kind.parameters:
        if parameter.kind is ArgumentKind.TYPE:
            partial = summed.union(*(x.partial for x in operands))
            reduction = structure.reduction if partial and structure else None
            x = with_layout(op.layout(parameter.name), layout)
            x = replace(x, partial=partial, reduction=reduction)
            properties[parameter.name] = attribute_of(parameter.kind, x)
    return properties
