"""A regular machine out of one whose parts are not all alike."""

from collections.abc import Sequence
from dataclasses import dataclass

from collir.importing.values import Place, Remark


@dataclass(frozen=True)
class Part:
    """A part of a machine, where the text speaks of it, and how many children it has."""

    name: str
    place: Place
    children: int


def even(parts: Sequence[Part], children: str) -> tuple[int, list[Remark]]:
    """The children that every part has at least; a remark where some have more."""
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
