"""Seconds and memory of a task, computed once for all stages of a kind."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from distir.operations import (
    COSTS,
    Extents,
    Integers,
    Operation,
    Seconds,
    Shape,
    allreduce_seconds,
    size,
)
from distir.tasks import Stage, backward, forward

VALUES: tuple[Shape, ...] = (("rows", "width"), ("rows", "part"), ("width", "part"))
"""The shapes of values that differ in bytes; a weight has the same bytes, however it is cut."""


@dataclass(frozen=True)
class Profile:
    """A task on a number of configurations.

    Attributes:
        seconds: its time.
        change: bytes after it minus bytes before it.
        peak: its most bytes minus those before it, but for results that grow.
        growing: bytes when the result that grows begins, minus those before the task.
        piece: bytes of each piece of the result that grows, 0 if none does.
    """

    seconds: Seconds
    change: Integers
    peak: Integers
    growing: Integers
    piece: Integers


def joined(profiles: Sequence[Profile], order: Integers) -> Profile:
    """Return the profile of the configurations of several, brought into an order."""
    columns = zip(*(vars(profile).values() for profile in profiles), strict=True)
    return Profile(*(np.concatenate(column)[order] for column in columns))


@dataclass(frozen=True)
class Footprint:
    """Counts of a task's operations and of its values by ``VALUES``, without sizes."""

    operations: Counter[tuple[str, Shape]]
    change: Integers
    peaks: Integers
    growing: Integers
    piece: Integers

    def profile(self, extents: Extents, tensor: Integers) -> Profile:
        """Return the seconds and bytes for extents and a number of devices of each reduction."""
        sizes = np.stack([size(shape, extents) for shape in VALUES])
        return Profile(
            self._seconds(extents, tensor),
            self.change @ sizes,
            (self.peaks @ sizes).max(axis=0),
            self.growing @ sizes,
            self.piece @ sizes,
        )

    def _seconds(self, extents: Extents, tensor: Integers) -> Seconds:
        total = np.zeros(tensor.shape)
        for (kind, shape), count in self.operations.items():
            if kind == "MPIAllreduce":
                total += count * allreduce_seconds(size(shape, extents), tensor)
            else:
                total += count * COSTS[kind](shape, extents)
        return total


@cache
def footprint(stage: Stage, is_forward: bool, begins: bool) -> Footprint:
    """Return the counts of a stage's task; ``begins``: on the first microbatch."""
    return _footprint((forward if is_forward else backward)(stage, begins))


def _footprint(operations: Iterable[Operation]) -> Footprint:
    """Count the operations, and the values that are alive at each."""
    live = np.zeros(len(VALUES), dtype=np.int64)
    growing, piece = np.zeros_like(live), np.zeros_like(live)
    peaks: list[Integers] = []
    counts: Counter[tuple[str, Shape]] = Counter()
    for operation in operations:
        counts[operation.kind, operation.shape] += 1
        added, freed = _count(operation.adds), _count(operation.frees)
        if operation.grows:
            growing, piece = live, added
        else:
            peaks.append(live + added)
        live = live + added - freed
    return Footprint(counts, live, _undominated(np.array(peaks)), growing, piece)


def _count(shapes: Iterable[Shape]) -> Integers:
    """Return how many values of each of ``VALUES`` there are."""
    counts = np.zeros(len(VALUES), dtype=np.int64)
    for shape in shapes:
        weight = shape[0] != "rows"
        counts[VALUES.index(("width", "part") if weight else shape)] += 1
    return counts


def _undominated(rows: Integers) -> Integers:
    """Return the rows that are below no other row in all columns: the peak is at one of them."""
    rows = np.unique(rows, axis=0)
    kept = [row for row in rows if np.count_nonzero((rows >= row).all(axis=1)) == 1]
    return np.array(kept)
