"""Equal counts of children for parts of a machine that differ."""

from collections.abc import Sequence
from dataclasses import dataclass

from collir.importing.values import Remark, TextPlace


@dataclass(frozen=True)
class MachinePart:
    """A part of a machine, its place in the text, and the number of its children."""

    name: str
    place: TextPlace
    children: int


def even(parts: Sequence[MachinePart], children: str) -> tuple[int, list[Remark]]:
    """Return the smallest number of children, and a remark if some parts have more."""
    least = min(parts, key=lambda part: part.children)
    most = max(parts, key=lambda part: part.children)
    if least.children == most.children:
        return least.children, []
    return least.children, [
        Remark(
            f"{least.name} has {least.children} {children}, {most.name} has {most.children}: "
            f"all are taken to have {least.children}",
            least.place,
        )
    ]
