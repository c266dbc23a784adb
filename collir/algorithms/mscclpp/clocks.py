"""Vector clocks of those who use memory at the same time, and the races between them.

An agent is a thread block, a port channel, which reads and writes by itself, or the host of a rank,
whose program fills the buffers before a launch and reads them after it. It counts what it does; a
clock has for each agent how much of that is known to have been done before.
"""

from collections.abc import Sequence, Set
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collir.algorithms.collectives import Contributions

Clock = npt.NDArray[np.int32]

Reading = tuple[int, int, int]
"""A cell that was read, the agent that read it, and the number of this use of memory."""


class UsedCell:
    """A cell that was used: its value, who wrote it last, and who read it since.

    Attributes:
        launch: the launch whose flag its packet has, counted from 1; 0 for plain data.
        times: how many packets with this flag were written.
        readings: the readings that the value comes from, which are over where the value is known.
    """

    __slots__ = ("launch", "readers", "readings", "times", "value", "writer", "written")

    def __init__(self) -> None:
        self.value: Contributions | None = None
        self.writer, self.written = -1, 0
        self.readers: dict[tuple[int, int], None] = {}
        self.launch = self.times = 0
        self.readings: frozenset[Reading] = frozenset()

    def write(
        self, agent: int, time: int, value: Contributions | None,
        readings: frozenset[Reading] = frozenset(),
    ) -> None:  # fmt: skip
        """Put plain data in its place."""
        self.value, self.writer, self.written, self.readings = value, agent, time, readings
        self.launch = self.times = 0
        self.readers = {}


class Conflict(NamedTuple):
    """A use of a cell by another agent that may be at the same time."""

    agent: int
    time: int
    writes: bool


def conflict_of_reading(used: UsedCell, clock: Clock) -> Conflict | None:
    """Return the writing that may come before or after a reading."""
    if used.writer >= 0 and clock[used.writer] < used.written:
        return Conflict(used.writer, used.written, True)
    return None


def conflict_of_writing(
    used: UsedCell, cell: int, clock: Clock, done: Sequence[Set[Reading]],
    own: tuple[int, int] | None = None,
) -> Conflict | None:  # fmt: skip
    """Return a writing or reading that may come before or after a writing.

    Args:
        done: readings that are over: those that the value comes from, and others.
        own: who writes and when, if the same thread read the cell for it.
    """
    if conflict := conflict_of_reading(used, clock):
        return conflict
    for reader in used.readers:
        agent, time = reader
        if clock[agent] >= time or reader == own:
            continue
        if not any((cell, agent, time) in readings for readings in done):
            return Conflict(agent, time, False)
    return None
