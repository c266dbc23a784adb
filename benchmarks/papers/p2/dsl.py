"""The reduction language of P² (Xie et al., MLSys 2022): slices, forms and collectives.

A program runs on a hierarchy of levels, outermost first; a device is a mixed-radix number of their
sizes. An instruction is a level (the slice), a form that makes groups of the slices, and a
collective that all groups run at once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import prod

Hierarchy = tuple[int, ...]
"""The sizes of levels, outermost first. The first is the root, of size 1: groups lie below it."""

DeviceGroup = tuple[int, ...]
"""The devices of a collective; the first is the root of a reduce or a broadcast."""

DeviceGroups = tuple[DeviceGroup, ...]


class DslError(ValueError):
    """An instruction that the language does not have."""


class CollectiveKind(StrEnum):
    """The collectives of P², under the names that collir's operations have."""

    ALL_REDUCE = "all_reduce"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_GATHER = "all_gather"
    REDUCE = "reduce"
    BROADCAST = "broadcast"


@dataclass(frozen=True)
class InsideGroup:
    """A group is a whole slice."""

    def __str__(self) -> str:
        return "InsideGroup"


@dataclass(frozen=True)
class Parallel:
    """A group is the devices at equal positions in all slices below an instance of ``ancestor``."""

    ancestor: int

    def __str__(self) -> str:
        return f"Parallel({self.ancestor})"


@dataclass(frozen=True)
class Master:
    """Like ``Parallel``, but for the first devices of the slices only; others take no part."""

    ancestor: int

    def __str__(self) -> str:
        return f"Master({self.ancestor})"


Form = InsideGroup | Parallel | Master


@dataclass(frozen=True)
class Instruction:
    """One step: ``slice`` is the index of a level."""

    slice: int
    form: Form
    collective: CollectiveKind

    def __str__(self) -> str:
        return f"({self.slice}, {self.form}, {self.collective})"


Program = tuple[Instruction, ...]


@dataclass(frozen=True)
class Span:
    """The device numbers of the groups of a slice and a form.

    A device is ``(outer * size + member) * inner + position``; a group is all its ``member``s.

    Attributes:
        size: number of devices in a group.
        inner: number of devices in a slice; 1 if the slice itself is the group.
        master: whether only position 0 takes part.
    """

    size: int
    inner: int
    master: bool = False

    def groups(self, devices: int) -> Iterator[DeviceGroup]:
        """Yield the groups, in the order of their first devices."""
        block = self.size * self.inner
        for start in range(0, devices, block):
            for position in range(1 if self.master else self.inner):
                yield tuple(range(start + position, start + block, self.inner))


def span(hierarchy: Sequence[int], slice_: int, form: Form) -> Span:
    """Return the span of a slice and a form.

    Raises:
        DslError: a level does not exist, or is no strict ancestor of the slice.
    """
    if not 0 <= slice_ < len(hierarchy):
        last = len(hierarchy) - 1
        raise DslError(f"the hierarchy has no level {slice_}: its levels are 0 to {last}")
    below = prod(hierarchy[slice_ + 1 :])
    if isinstance(form, InsideGroup):
        return Span(below, 1)
    if not 0 <= form.ancestor < slice_:
        raise DslError(f"level {form.ancestor} is no strict ancestor of level {slice_}")
    between = prod(hierarchy[form.ancestor + 1 : slice_ + 1])
    # A slice of one device has its first device only, so all of its devices take part.
    return Span(between, below, isinstance(form, Master) and below > 1)


def groups(hierarchy: Sequence[int], slice_: int, form: Form) -> DeviceGroups:
    """Return the groups of devices of a slice and a form; none if they would be single devices."""
    group_span = span(hierarchy, slice_, form)
    return tuple(group_span.groups(prod(hierarchy))) if group_span.size > 1 else ()


def forms(slice_: int) -> Iterator[Form]:
    """Yield all forms of a slice: inside, then parallel, then masters, outermost ancestor first."""
    yield InsideGroup()
    yield from (Parallel(level) for level in range(slice_))
    yield from (Master(level) for level in range(slice_))
