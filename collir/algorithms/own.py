"""Algorithms that a program declares: sends whose ranks and blocks are formulas of the rank.

A formula is a function of the values of names: numbers, or arrays of them for many ranks at once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from collir.algorithms.collectives import divisions
from collir.algorithms.moves import Algorithm, Round
from collir.algorithms.patterns import GroupShape, Pattern, Ranks

Value = int | Ranks
"""A number, or one for each of some ranks."""

Formula = Callable[[Mapping[str, Value]], Value]

MOST, MOST_TURNS, MOST_MOVED = 2**20, 2**16, 2**20
"""The most blocks of all ranks together, or messages; sends and turns of loops; and blocks sent."""


class OwnAlgorithmError(ValueError):
    """A declared algorithm that is none, for a number of ranks; the text says why.

    Attributes:
        line: the line of the declaration that it is about, from 1; 0 if it is about none.
    """

    def __init__(self, message: str, line: int = 0):
        super().__init__(message)
        self.line = line


@dataclass(frozen=True)
class Send:
    """A statement in which ranks send blocks.

    Attributes:
        block, count, to, into: the first block, how many, to whom, and where they lie there.
        only: which ranks send; None if all do.
        line: its line, for errors.
    """

    block: Formula
    count: Formula
    to: Formula
    into: Formula | None
    reduces: bool
    only: Formula | None
    line: int


@dataclass(frozen=True)
class Together:
    """Sends that are under way at the same time."""

    sends: tuple[Send, ...]


@dataclass(frozen=True)
class SendLoop:
    """Statements for each value of a name, from the first to the last one, both included."""

    name: str
    first: Formula
    last: Formula
    step: Formula
    body: "tuple[Together | SendLoop, ...]"


@dataclass(frozen=True)
class DeclaredAlgorithm:
    """An algorithm as it is declared.

    Attributes:
        rank, ranks: the names of the number of a rank, and of the number of all.
        blocks: the blocks of the full buffer.
    """

    name: str
    collective: str
    rank: str
    ranks: str
    blocks: Formula
    body: tuple[Together | SendLoop, ...]

    def algorithm(self) -> Algorithm:
        """Return it as rounds."""
        return Algorithm(self.name, self.collective, self._rounds, blocks=self.block_count)

    def block_count(self, shape: GroupShape) -> int:
        """Return the blocks of the full buffer.

        Raises:
            OwnAlgorithmError: there are none, or too many.
        """
        number = int(self.blocks({self.ranks: shape.ranks}))
        if not 1 <= number <= MOST // shape.ranks:
            raise OwnAlgorithmError(
                f"it has {number} blocks for {shape.ranks} ranks: from 1 to {MOST // shape.ranks}"
            )
        parts = divisions(self.collective, shape.ranks)
        if number % parts:
            text = f"{number} blocks are no equal number for each of {parts} ranks"
            raise OwnAlgorithmError(text)
        return number

    def _rounds(self, shape: GroupShape) -> Iterator[Round]:
        known = {self.ranks: shape.ranks}
        blocks = self.block_count(shape)
        turns, moved = count(1), 0
        for together, names in _sends(self.body, known, turns):
            if next(turns) > (most := min(MOST_TURNS, MOST // shape.ranks)):
                raise OwnAlgorithmError(f"it has more than {most} sends and turns of loops")
            pattern = SendPattern(self, together.sends, tuple(names.items()), shape)
            pattern.check(blocks)
            moved += int(pattern.sized_messages(shape)[2].sum())
            if moved > MOST_MOVED:
                raise OwnAlgorithmError(f"it sends more than {MOST_MOVED} blocks")
            first = together.sends[0]
            yield Round(
                pattern, pattern.blocks, pattern.into, reduces=first.reduces, line=first.line
            )


def _sends(
    body: Sequence[Together | SendLoop], names: Mapping[str, int], turns: Iterator[int]
) -> Iterator[tuple[Together, Mapping[str, int]]]:
    """Yield the sends of statements, loops run out, with the values of names.

    Args:
        turns: the number of what was done so far.
    """
    for item in body:
        if isinstance(item, Together):
            yield item, names
            continue
        first, last, step = (int(x(names)) for x in (item.first, item.last, item.step))
        if step == 0:
            raise OwnAlgorithmError(f"the loop over {item.name} goes on by 0")
        for value in range(first, last + (1 if step > 0 else -1), step):
            if next(turns) > MOST_TURNS:
                raise OwnAlgorithmError(f"its loops go on for more than {MOST_TURNS} turns")
            yield from _sends(item.body, {**names, item.name: value}, turns)


@dataclass(frozen=True)
class SendPattern(Pattern):
    """The messages of sends at the same time, for values of the names around them."""

    declared: DeclaredAlgorithm
    sends: tuple[Send, ...]
    names: tuple[tuple[str, int], ...]
    shape: GroupShape

    def turns(self, shape: GroupShape) -> int:
        return len(self.sends)

    def _of(self, formula: Formula, ranks: Value) -> Value:
        return formula({**dict(self.names), self.declared.rank: ranks})

    def _every(self, formula: Formula, ranks: Ranks) -> Ranks:
        return np.broadcast_to(np.asarray(self._of(formula, ranks), dtype=np.int64), ranks.shape)

    def targets(self, ranks: Ranks, turn: int, shape: GroupShape) -> Ranks:
        send = self.sends[turn % len(self.sends)]
        to = self._every(send.to, ranks)
        sends = self._every(send.count, ranks) > 0
        if send.only is not None:
            sends = sends & (self._every(send.only, ranks) != 0)
        return np.where(sends, to, ranks)

    def sized_messages(self, shape: GroupShape) -> tuple[Ranks, Ranks, Ranks]:
        messages = [self._messages(turn) for turn in range(len(self.sends))]
        sources, targets, sizes = zip(*messages, strict=True)
        return np.concatenate(sources), np.concatenate(targets), np.concatenate(sizes)

    def _messages(self, turn: int) -> tuple[Ranks, Ranks, Ranks]:
        """Return who sends to whom in a turn, and how many blocks."""
        everyone = np.arange(self.shape.ranks)
        to = self.targets(everyone, turn, self.shape)
        senders = everyone[to != everyone]
        return senders, to[senders], self._every(self.sends[turn].count, senders)

    def blocks(self, turn: int, rank: int, peer: int) -> range:
        """Return the blocks that a rank sends."""
        return self._range(turn, rank, self.sends[turn].block)

    def into(self, turn: int, rank: int, peer: int) -> range:
        """Return where the blocks that a rank sends lie at its peer."""
        send = self.sends[turn]
        return self._range(turn, rank, send.block if send.into is None else send.into)

    def _range(self, turn: int, rank: int, begin: Formula) -> range:
        first = int(self._of(begin, rank))
        return range(first, first + int(self._of(self.sends[turn].count, rank)))

    def check(self, blocks: int) -> None:
        """Check that ranks send existing blocks, that each receives once in a turn, and that
        simultaneous messages do not overlap.

        Raises:
            OwnAlgorithmError: it is not so.
        """
        for turn in range(len(self.sends)):
            self._check_turn(turn, blocks)
        if len(self.sends) > 1:
            self._check_meetings()

    def _check_meetings(self) -> None:
        """Check that no send has blocks that still arrive, or arrives where another one does."""
        arrives: dict[tuple[int, int], int] = {}
        pairs = [list(zip(*self._messages(t)[:2], strict=True)) for t in range(len(self.sends))]
        for turn, send in enumerate(self.sends):
            for rank, peer in pairs[turn]:
                for block in self.into(turn, int(rank), int(peer)):
                    if arrives.setdefault((int(peer), block), turn) != turn and not send.reduces:
                        text = f"block {block} of rank {peer} arrives twice at the same time"
                        raise OwnAlgorithmError(f"{self._where()}{text}", send.line)
        for turn, send in enumerate(self.sends):
            for rank, peer in pairs[turn]:
                for block in self.blocks(turn, int(rank), int(peer)):
                    if arrives.get((int(rank), block), turn) != turn:
                        text = f"rank {rank} sends block {block}, which arrives at the same time"
                        raise OwnAlgorithmError(f"{self._where()}{text}", send.line)

    def _check_turn(self, turn: int, blocks: int) -> None:
        send = self.sends[turn]
        ranks, to, count = self._messages(turn)
        first = self._every(send.block, ranks)
        there = first if send.into is None else self._every(send.into, ranks)
        for wrong, what, block in (
            ((to < 0) | (to >= self.shape.ranks), "to rank", None),
            ((first < 0) | (first + count > blocks), "block", first),
            ((there < 0) | (there + count > blocks), "into block", there),
        ):
            if wrong.any():
                k = int(np.argmax(wrong))
                which, how = to[k], f"and there are {self.shape.ranks}"
                if block is not None:
                    which = block[k] if block[k] < 0 else block[k] + count[k] - 1
                    how = f"and there are {blocks}"
                text = f"{self._where()}rank {ranks[k]} sends {what} {which}, {how}"
                raise OwnAlgorithmError(text, send.line)
        if len(np.unique(to)) < len(to):
            k = int(np.argmax(np.bincount(to) > 1))
            both = " and ".join(map(str, ranks[to == k][:2]))
            text = f"{self._where()}ranks {both} send to rank {k} at once"
            raise OwnAlgorithmError(text, send.line)

    def _where(self) -> str:
        names = [(n, value) for n, value in self.names if n != self.declared.ranks]
        return "".join(f"for {name} = {value}, " for name, value in names)
