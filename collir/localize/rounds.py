"""A collective by an algorithm: rounds in which ranks send blocks to each other and reduce them.

Which blocks go where is the algorithm's (``collir.algorithms``); here they are views of buffers. A
message is one piece of memory, so blocks that do not lie one behind the other are packed. Where
ranks do different things, each has numbers of its own: a rank that sends nothing has a view of no
elements.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, groupby, pairwise
from typing import NamedTuple

from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Operation, SSAValue

from collir.algorithms.chunks import runs
from collir.algorithms.collectives import divisions
from collir.algorithms.moves import Algorithm, LocalCopy, Turn, row_of, turns_of
from collir.algorithms.patterns import GroupDigit, GroupShape
from collir.algorithms.pipelines import best_pieces
from collir.algorithms.program import ChunkBuffer
from collir.algorithms.table import ALGORITHMS, PIPELINES, reason_for_library
from collir.dialects.local import ComputeOp, CopyOp, StartOp, number
from collir.dialects.local_types import RankNumberAttr, buffer_of
from collir.dialects.machine import NumberAttr
from collir.dialects.tables import OPERATIONS
from collir.layout import DType, Mesh, Place, Reduction, place_at
from collir.layout.algorithm_names import AlgorithmName
from collir.layout.local import LocalBuffer, coordinate_index, table
from collir.layout.mesh import digits_over
from collir.layout.sizes import OpenSize
from collir.localize.writer import LocalWriter
from collir.syntax.algorithms import own_algorithm, prove

_KERNELS = {
    Reduction.SUM: "add",
    Reduction.AVG: "add",
    Reduction.PROD: "mul",
    Reduction.MAX: "maximum",
    Reduction.MIN: "minimum",
}
"""The computation that combines two blocks."""

_INPUT, _OUTPUT, _SCRATCH = ChunkBuffer


def shape_over(mesh: Mesh, axes: Sequence[str]) -> GroupShape:
    """Return the shape of a group over sub-axes."""
    levels = mesh.machine.levels
    number_of = {level.name: number for number, level in enumerate(levels)}
    subs = (mesh.by_name[axis] for axis in axes)
    return GroupShape.on(
        (GroupDigit(x.size, number_of.get(x.level or "", 0)) for x in subs), levels
    )


def algorithm_named(collective: str, name: str, count: int) -> Algorithm | None:
    """Return a built-in or declared algorithm of a collective; None if it is not written as rounds.

    Args:
        count: the number of ranks for which a declared algorithm is proven.

    Raises:
        OwnAlgorithmError: it is declared, and does not implement the collective.
    """
    if isinstance(name, AlgorithmName):
        prove(own := own_algorithm(name), count)
        return own
    return ALGORITHMS.get((collective, name)) or PIPELINES.get((collective, name))


def reason_against(algorithm: Algorithm, start: StartOp, count: int, sizes: Iterable[int]) -> str:
    """Return why a collective cannot be written as the rounds of an algorithm; empty if it can.

    Args:
        count: the number of ranks of a group.
        sizes: the elements of its buffers and blocks.
    """
    if not algorithm.fits(count):
        return f"it needs a group of 2^k ranks, and this one has {count}"
    return reason_for_library(
        count,
        is_async=start.is_async is not None,
        is_uneven=any(isinstance(size, OpenSize) for size in sizes),
        joins_booleans=bool(start.operation) and buffer_of(start.source).dtype is DType.BOOL,
    )


class MovedPiece(NamedTuple):
    """Elements that move: their start in both buffers, and their number."""

    begin: int
    there: int
    size: int


Pieces = Sequence[Sequence[MovedPiece]]
"""The pieces of each rank, in the numbers that the algorithm gives to ranks."""


@dataclass
class RoundsOfRanks:
    """The rounds of a collective, as they are written.

    An algorithm has the root as rank 0, so its ranks have other numbers than in the group.

    Attributes:
        start: the collective, which the rounds replace.
        place: the place of the ranks that take part.
        text: the step as it is written, for its first operation.
    """

    writer: LocalWriter
    start: StartOp
    algorithm: Algorithm
    place: Place
    text: str
    rows: dict[ChunkBuffer, SSAValue] = field(init=False)

    def __post_init__(self) -> None:
        self.axes = self.start.axes.data
        self.kind = OPERATIONS[self.start.called].KIND
        self.shape = shape_over(self.writer.mesh, self.axes)
        if (self.start.called, self.algorithm.name) in PIPELINES:
            self.shape = replace(self.shape, pieces=self._best_pieces())
        self.ranks, self.root = self.shape.ranks, self.start.number("root")
        self.row = row_of(self.start.called)
        self.blocks = self.algorithm.blocks(self.shape)
        self.cuts = self.blocks // divisions(self.start.called, self.ranks)
        self.begins = [*accumulate(self._sizes(), initial=0)]
        self.rows = {_INPUT: self.start.source, _OUTPUT: self.start.target}

    def _best_pieces(self) -> int:
        """Return the number of pieces into which a pipeline cuts the buffer."""
        x, levels = buffer_of(self.start.source), self.writer.mesh.machine.levels
        best = best_pieces(self.algorithm.name, self.shape, levels, x.bytes)
        return min(best, max(1, x.elements))

    def _sizes(self) -> list[int]:
        """Return the elements of each block of the full buffer."""
        counts = [*map(int, max(self.start.counts, key=len))]
        if not counts:
            full = max(buffer_of(x).elements for x in (self.start.source, self.start.target))
            parts = self.blocks // self.cuts
            counts = [full // parts] * parts
        turned = counts[self.root :] + counts[: self.root] if len(counts) > 1 else counts
        cuts = self.cuts
        return [size // cuts + (k < size % cuts) for size in turned for k in range(cuts)]

    def write(self) -> None:
        """Write all rounds, between the copies from the operand and to the result."""
        self._begin()
        for _, turns in groupby(turns_of(self.algorithm, self.shape), self._time_of):
            first, *rest = turns
            if isinstance(first, LocalCopy):
                pieces = [self._pieces(first.pairs(rank)) for rank in range(self.ranks)]
                self._move(self.rows[first.source], self.rows[first.target], pieces, self.place)
            else:
                self._together([first, *(x for x in rest if isinstance(x, Turn))])
        self._end()

    def _time_of(self, turn: Turn | LocalCopy) -> tuple[int, int]:
        """Return a key that is equal for turns whose messages are under way at the same time."""
        if isinstance(turn, LocalCopy):
            return id(turn), 0
        return id(turn.round), turn.number // turn.round.pattern.turns(self.shape)

    # --- operand and result -------------------------------------------------------------------

    def _begin(self) -> None:
        """Give each row of blocks its memory, with the operand in it."""
        source, kind = self.start.source, self.kind
        if self.algorithm.scratch(self.shape):
            self.rows[_SCRATCH] = self._alloc(self.begins[-1])
        if kind.exchanges:
            return
        if kind.shards or kind.after == "root":
            self.rows[self.row] = self._alloc(self.begins[-1])
        row = self.rows[self.row]
        if kind.gathers:
            own = [[MovedPiece(0, begin, size)] for begin, size in self._own_blocks()]
            self._move(source, row, own, self.place)
        elif kind.before == "root":
            self._move(source, row, self._from_root(), self._root_place)
        else:
            self._move(source, row, self._whole(), self.place)

    def _end(self) -> None:
        """Copy the result from its row, and divide what is an average."""
        target, kind, row = self.start.target, self.kind, self.rows[self.row]
        place = self._root_place if kind.after == "root" else self.place
        if kind.shards and not kind.exchanges:
            own = [[MovedPiece(begin, 0, size)] for begin, size in self._own_blocks()]
            self._move(row, target, own, self.place)
        elif kind.after == "root":
            back = self._from_root() if kind.gathers else self._whole()
            back = [[MovedPiece(b, a, n) for a, b, n in own] for own in back]
            self._move(row, target, back, place)
        if self.start.operation is Reduction.AVG:
            self._divide(target, place)

    @property
    def _root_place(self) -> Place:
        at = digits_over(self.writer.mesh, self.axes, self.root)
        return place_at({**dict(self.place), **at})

    def _own_blocks(self) -> list[tuple[int, int]]:
        """Return the start of each rank's block in the full buffer, and its elements."""
        ends = self.begins[:: self.cuts]
        return [(begin, end - begin) for begin, end in pairwise(ends)]

    def _whole(self) -> Pieces:
        return [[MovedPiece(0, 0, self.begins[-1])]] * self.ranks

    def _from_root(self) -> Pieces:
        """Return the full buffer of the root: first the blocks from its own on, then the others."""
        if self.blocks == self.cuts or not self.root:
            return self._whole()
        behind = self.begins[(self.ranks - self.root) * self.cuts]
        ahead = self.begins[-1] - behind
        return [[MovedPiece(ahead, 0, behind), MovedPiece(0, behind, ahead)]] * self.ranks

    def _divide(self, x: SSAValue, place: Place) -> None:
        count = self.writer.view(self._alloc(buffer_of(x).elements), buffer_of(x))
        fill = ComputeOp.of("constant", {"value": NumberAttr(float(self.ranks))}, [], [count])
        self._run(self.place, fill)
        self._run(place, ComputeOp.of("div", {}, [x, count], [x]))

    # --- rounds -------------------------------------------------------------------------------

    def _together(self, turns: Sequence[Turn]) -> None:
        """Write the messages of simultaneous turns: all are started, and then waited for."""
        sent = [self._sent(turn) for turn in turns]
        out = [[x for own in sent for x in own[rank]] for rank in range(self.ranks)]
        messages = (self._message_of(turn, own, out) for turn, own in zip(turns, sent, strict=True))
        made = [x for x in messages if x is not None]
        if made:
            self.writer.start_together(self.place, [start for start, _ in made], self._text())
        for _, then in made:
            then()

    def _sent(self, turn: Turn) -> Pieces:
        """Return the pieces that each rank sends in a turn."""
        pairs = (zip(turn.sent(n), turn.stored(n), strict=True) for n in range(self.ranks))
        return [self._pieces(own) for own in pairs]

    def _message_of(
        self, turn: Turn, sent: Pieces, under_way: Pieces
    ) -> tuple[StartOp, Callable[[], None]] | None:
        """Return the start of a turn's messages, if there are any, and a function that writes the
        operations after they arrive.

        Args:
            sent: the pieces that each rank sends.
            under_way: the pieces sent in all turns at this time, which must not be overwritten yet.
        """
        source = self.rows[turn.round.source or self.row]
        target = self.rows[turn.round.target or self.row]
        sender = {turn.peers[rank]: rank for rank in range(self.ranks) if sent[rank]}
        if not sender:
            return None
        came: Pieces = [sent[sender[n]] if n in sender else () for n in range(self.ranks)]
        peers = [to if sent[rank] else rank for rank, to in enumerate(turn.peers)]
        if any(len(own) > 1 for own in sent):
            out = self._message(sent)
            self._move(source, out, [_packed(own) for own in sent], self.place)
        else:
            out = self._view(source, [own[0].begin if own else 0 for own in sent], _sizes(sent))
        reduces, meet = turn.round.reduces, source is target and any(map(_meet, under_way, came))
        if not (reduces or meet or any(len(own) > 1 for own in came)):
            begins = [own[0].there if own else 0 for own in came]
            return self._send(out, self._view(target, begins, _sizes(came)), peers), _nothing
        message = self._message(came)
        back = [_unpacked(own) for own in came]
        start = self._send(out, message, peers)
        return start, partial(self._move, message, target, back, self.place, reduces)

    def _pieces(self, pairs: Iterable[tuple[int, int]]) -> list[MovedPiece]:
        """Return the elements of blocks, each with its destination; neighbours are joined."""
        return [
            MovedPiece(self.begins[a], self.begins[b], self.begins[a + n] - self.begins[a])
            for a, b, n in runs(pairs)
            if self.begins[a + n] > self.begins[a]
        ]

    def _message(self, pieces: Pieces) -> SSAValue:
        """Return memory for a message of each rank."""
        sizes = _sizes(pieces)
        return self._view(self._alloc(max(sizes)), [0] * self.ranks, sizes)

    def _send(self, source: SSAValue, target: SSAValue, peers: Sequence[int]) -> StartOp:
        """Return the start of the messages of ranks to their peers."""
        by_group = [0] * self.ranks
        for rank, to in enumerate(peers):
            by_group[(rank + self.root) % self.ranks] = (to + self.root) % self.ranks
        by, alike = by_group[0], buffer_of(source).elements == buffer_of(target).elements
        if alike and all(to == (n + by) % self.ranks for n, to in enumerate(by_group)):
            begun = StartOp.of("shift", self.axes, source, target, {"distance": number(by)})
        else:
            to = ArrayAttr(map(RankNumberAttr, by_group))
            begun = StartOp.of("send", self.axes, source, target, {"peers": to})
        begun.location = self.start.location
        return begun

    # --- operations ---------------------------------------------------------------------------

    def _alloc(self, elements: int) -> SSAValue:
        dtype = buffer_of(self.start.source).dtype
        return self.writer.alloc(LocalBuffer(dtype, (elements,)), self.place, "blocks")

    def _view(self, memory: SSAValue, begins: Sequence[int], sizes: Sequence[int]) -> SSAValue:
        """Return the elements of a buffer that each rank uses."""
        size, begin = table(self.axes, self._by_group(sizes)), self._number(begins)
        x = LocalBuffer(buffer_of(memory).dtype, (size,))
        return self.writer.view(memory, x, begin, self.place)

    def _number(self, values: Sequence[int]) -> int:
        """Return a number that differs between ranks, given by the ranks of the algorithm."""
        by_group = self._by_group(values)
        step = by_group[1] - by_group[0]
        if all(value == by_group[0] + n * step for n, value in enumerate(by_group)):
            return by_group[0] + step * coordinate_index(self.writer.mesh, self.axes)
        return table(self.axes, by_group)

    def _by_group(self, values: Sequence[int]) -> list[int]:
        """Return values by the ranks of the algorithm in the order of those of the group."""
        return [values[(n - self.root) % self.ranks] for n in range(self.ranks)]

    def _move(
        self,
        source: SSAValue,
        target: SSAValue,
        pieces: Pieces,
        place: Place,
        reduces: bool = False,
    ) -> None:
        """Copy pieces of one buffer to another, or add them to its elements."""
        if source is target:
            return
        for k in range(max(map(len, pieces))):
            own = [x[k] if k < len(x) else MovedPiece(0, 0, 0) for x in pieces]
            sizes = [x.size for x in own]
            part = self._view(source, [x.begin for x in own], sizes)
            row = self._view(target, [x.there for x in own], sizes)
            if reduces:
                assert self.start.operation is not None
                kernel = _KERNELS[self.start.operation]
                self._run(place, ComputeOp.of(kernel, {}, [row, part], [row]))
            else:
                self._run(place, CopyOp.of(part, row))

    def _run(self, place: Place, op: Operation) -> None:
        op.location = self.start.location
        self.writer.run([(place, [op])], self._text())

    def _text(self) -> str:
        text, self.text = self.text, ""
        return text


def _nothing() -> None:
    pass


def _sizes(pieces: Pieces) -> list[int]:
    return [sum(x.size for x in own) for own in pieces]


def _packed(own: Sequence[MovedPiece]) -> list[MovedPiece]:
    """Return pieces of a row, with the place of each in a message."""
    begins = accumulate((x.size for x in own), initial=0)
    return [MovedPiece(x.begin, begin, x.size) for x, begin in zip(own, begins, strict=False)]


def _unpacked(own: Sequence[MovedPiece]) -> list[MovedPiece]:
    """Return pieces of a message, with the place of each in a row."""
    begins = accumulate((x.size for x in own), initial=0)
    return [MovedPiece(begin, x.there, x.size) for x, begin in zip(own, begins, strict=False)]


def _meet(sent: Sequence[MovedPiece], came: Sequence[MovedPiece]) -> bool:
    """Return whether a rank receives into elements that it sends."""
    return any(
        a.begin < b.there + b.size and b.there < a.begin + a.size for a in sent for b in came
    )
