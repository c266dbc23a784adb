"""A chunk program: what the thread blocks of every rank copy, reduce, send and receive.

A buffer is a row of chunks. A thread block runs its steps in order; it sends over one connection
and receives over one, which keep the order of messages and hold a limited number of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class ChunkBuffer(StrEnum):
    """The memory of a rank that a step uses."""

    INPUT = "input"
    OUTPUT = "output"
    SCRATCH = "scratch"


class ChunkRange(NamedTuple):
    """Neighbouring chunks of a buffer, from an offset on."""

    buffer: ChunkBuffer
    offset: int
    size: int

    def __str__(self) -> str:
        last = self.offset + self.size - 1
        return f"{self.buffer}[{self.offset}{f'..{last}' if self.size > 1 else ''}]"


class Does(NamedTuple):
    """A kind of steps: whether it receives, adds what lies in its source, keeps the result in its
    target, and sends."""

    receives: bool = False
    reduces: bool = False
    keeps: bool = False
    sends: bool = False


DOES = {
    "send": Does(sends=True),
    "receive": Does(receives=True, keeps=True),
    "receive_copy_send": Does(receives=True, keeps=True, sends=True),
    "receive_reduce_send": Does(receives=True, reduces=True, sends=True),
    "receive_reduce_copy": Does(receives=True, reduces=True, keeps=True),
    "receive_reduce_copy_send": Does(receives=True, reduces=True, keeps=True, sends=True),
    "copy": Does(keeps=True),
    "reduce": Does(reduces=True, keeps=True),
    "nop": Does(),
}
"""The kinds of steps. A step that does not receive takes its source, and a ``reduce`` adds that to
its target."""


@dataclass(frozen=True)
class ChunkStep:
    """A step of a thread block.

    Attributes:
        kind: one of ``DOES``.
        source, target: the chunks that it reads and writes, if it does.
        after: the steps of the same rank that it waits for: the thread block and the number.
        line: the line of the file that it comes from; 0 if there is none.
    """

    kind: str
    source: ChunkRange | None = None
    target: ChunkRange | None = None
    after: tuple[tuple[int, int], ...] = ()
    line: int = 0

    @property
    def count(self) -> int:
        """The chunks that it moves."""
        part = self.source or self.target
        return part.size if part else 0


@dataclass(frozen=True)
class ThreadBlock:
    """Steps that run one after the other.

    Attributes:
        sends_to, receives_from: ranks; -1 for none.
        channel: the number of its connections among those of two ranks.
    """

    number: int
    steps: tuple[ChunkStep, ...]
    sends_to: int = -1
    receives_from: int = -1
    channel: int = 0
    line: int = 0


@dataclass(frozen=True)
class RankProgram:
    """The program of a rank.

    Attributes:
        sizes: the chunks of each of its buffers.
    """

    blocks: tuple[ThreadBlock, ...]
    sizes: dict[ChunkBuffer, int]
    line: int = 0


@dataclass(frozen=True)
class ChunkProgram:
    """An algorithm for a number of ranks.

    Attributes:
        collective: its name in collir, or ``custom``.
        chunks: the parts into which the data of a rank are divided: of the full buffer for an
            all_reduce, reduce or broadcast, else of what a rank has for itself or for each other.
        in_place: whether the input lies in the output (all_gather), or the output in the input
            (reduce_scatter), or both are one buffer.
        root: the rank of a reduce or broadcast.
    """

    name: str
    collective: str
    ranks: Sequence[RankProgram]
    chunks: int
    in_place: bool = False
    root: int = 0
    limits: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    @property
    def step_count(self) -> int:
        """The number of all steps."""
        return sum(len(block.steps) for rank in self.ranks for block in rank.blocks)
