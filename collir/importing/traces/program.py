"""The program of a trace: what one rank computed as `compute`, its collectives as they are."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from collir.importing.hlo.groups import Digit, Digits, GroupsError, digits_of_group
from collir.importing.hlo.mesh import MeshPieces, mesh_of
from collir.importing.traces.trace import RankTrace, Span, TimeIntervals, TracedCollective

_NEAR = 0.05
"""The part of a gap by which the collective that ends it may end before its end."""

_LEAST = 1e-7
"""The shortest computing that is written, in seconds."""

_CUTS = ("reduce_scatter", "all_gather", "all_to_all")
"""The collectives whose buffers are cut into as many blocks as there are ranks."""

_SECONDS = "seconds "
"""The mark before the seconds of a line, until they are written as operations."""


class UnsuitableTraceError(Exception):
    """A trace that no program can be made of, with the reason."""


@dataclass
class TracedProgram:
    """A step of training as a program.

    Attributes:
        arguments: what its collectives take, as they are written.
        lines: its steps.
        results: what it returns: a name and its type.
        pieces: the mesh.
        computes, waits, idles: the seconds of its computing, of gaps that collectives end, and of
            other gaps, which are written as computing.
        left_out: the number of collectives left out, by the reason.
        ungrouped: the number of collectives whose ranks the trace does not give; they are taken to
            be on all ranks.
    """

    pieces: MeshPieces
    rate: float
    arguments: list[str] = field(default_factory=list[str])
    lines: list[str] = field(default_factory=list[str])
    results: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    computes: float = 0.0
    waits: float = 0.0
    idles: float = 0.0
    left_out: Counter[str] = field(default_factory=Counter[str])
    collectives: int = 0
    ungrouped: int = 0

    def text(self, name: str, scale: float = 1.0, rest: float = 0.0) -> str:
        """Return the function.

        Args:
            scale: by how much its computing is longer than in the trace.
            rest: seconds that are added at its end.
        """
        lines = [*self._timed(scale)]
        last = "%t" if not self.lines else self._last()
        if rest > 0:
            lines.append(f"  %rest = compute {last} flops {rest * self.rate:.6g}")
            last = "%rest"
        results = [(last, "f32[1]"), *self.results]
        arguments = ",\n    ".join(["%t: f32[1]", *self.arguments])
        types = ",\n    ".join(kind for _, kind in results)
        returned = ", ".join(value for value, _ in results)
        body = "\n".join(lines)
        return (
            f"func @{name}(\n    {arguments})\n    -> ({types}) on @m {{\n{body}\n"
            f"  return {returned}\n}}\n"
        )

    def _last(self) -> str:
        times = [x for x in self.lines if x.startswith("  %t")]
        return times[-1].split()[0] if times else "%t"

    def _timed(self, scale: float) -> Iterator[str]:
        for line in self.lines:
            head, mark, seconds = line.partition(_SECONDS)
            yield f"{head}{float(seconds) * scale * self.rate:.6g}" if mark else line


def traced_program(
    rank: RankTrace,
    window: Span,
    ran: Sequence[TracedCollective],
    devices: int,
    levels: Sequence[tuple[str, int]],
    axes: Mapping[str, int],
    rate: float,
) -> TracedProgram:
    """Return the run of a rank in a step of training, as a program for all ranks.

    Its computing is written as ``compute`` steps. A part ends where the rank asked for a
    collective, or where a gap began that the end of a collective ended; the program waits for that
    collective there.

    Args:
        ran: the collectives of the step, in the order in which they were issued.
        axes: the axes of the mesh that the user names, with their sizes.
        rate: the operations of a device in a second.

    Raises:
        UnsuitableTraceError: there are no collectives, or their groups are of several meshes.
    """
    digits = {id(x): _digits(x, devices) for x in ran}
    all_digits = [d for own in digits.values() for d in own or ()]
    try:
        pieces = mesh_of(all_digits, devices, axes, levels)
    except GroupsError as error:
        raise UnsuitableTraceError(str(error)) from error
    made = TracedProgram(pieces, rate)
    written = _Writer(made, rank, window)
    for collective in ran:
        written.until(collective.issued)
        own = digits[id(collective)]
        if own is None:
            made.left_out[f"{collective.label}, whose group is no part of a mesh"] += 1
        elif not collective.size:
            made.left_out[f"{collective.label}, whose bytes the trace does not say"] += 1
        else:
            try:
                written.send(collective, pieces.of(own))
            except GroupsError:
                made.left_out[f"{collective.label}, whose group is no part of a mesh"] += 1
    written.until(window.end)
    written.end()
    if not made.collectives:
        raise UnsuitableTraceError("no collective of the trace has known bytes and ranks")
    return made


def _digits(x: TracedCollective, devices: int) -> Digits | None:
    """Return the digits that the group of a collective runs over; None if it is no such group."""
    if x.ranks is None:
        return (Digit(1, devices),) if x.group_size in (0, devices) else None
    if len(x.ranks) < 2 or max(x.ranks) >= devices:
        return None
    try:
        return digits_of_group(sorted(x.ranks))
    except GroupsError:
        return None


class _Writer:
    """Writes what a rank ran between two times."""

    def __init__(self, made: TracedProgram, rank: RankTrace, window: Span):
        self.made = made
        self.busy = rank.busy.within(window.start, window.end)
        self.at = window.start
        self.token = "%t"
        self.number = 0
        self.open: list[tuple[str, TracedCollective]] = []
        self.seconds, self.after = 0.0, ""

    def until(self, time: float) -> None:
        """Write the computing up to a time, and the waits."""
        if time <= self.at:
            return
        busy = self.busy.within(self.at, time)
        whole = TimeIntervals.of_spans([Span("", self.at, time)])
        begin = self.at
        for start, end in _pairs(whole.without(busy)):
            self._compute(busy.within(begin, start).seconds)
            ended = self._ended_by(start, end)
            if ended is None:
                self.made.idles += end - start
                self._compute(end - start, idle=True)
            else:
                name, own = ended
                self.open = [x for x in self.open if x[1].end > own.end]
                late = max(0.0, end - max(start, own.end))
                self.made.waits += end - start - late
                self.made.idles += late
                self._compute(late, name, idle=True)
            begin = end
        self._compute(busy.within(begin, time).seconds)
        self.at = time

    def _ended_by(self, start: float, end: float) -> tuple[str, TracedCollective] | None:
        """Return the collective that a gap is for: the last one that ends in it."""
        near = _NEAR * (end - start)
        inside = [x for x in self.open if start - near <= x[1].end <= end + near]
        return max(inside, key=lambda x: x[1].end, default=None)

    def _compute(self, seconds: float, after: str = "", idle: bool = False) -> None:
        """Note what is computed, behind a collective if one is named."""
        self.made.computes += 0.0 if idle else seconds
        if after:
            self._write()
            self.after = after
        self.seconds += seconds

    def _write(self) -> None:
        """Write what was computed."""
        if self.seconds < _LEAST and not self.after:
            return
        self.number += 1
        operands = ", ".join(filter(None, (self.token, self.after)))
        self.token = f"%t{self.number}"
        line = f"  {self.token} = compute {operands} flops {_SECONDS}{self.seconds!r}"
        self.made.lines.append(line)
        self.seconds, self.after = 0.0, ""

    def end(self) -> None:
        """Write what is left."""
        self._write()

    def send(self, x: TracedCollective, pieces: Sequence[int]) -> None:
        """Write a collective, which runs beside the computing after it."""
        count = math.prod(self.made.pieces.pieces[n].digit.size for n in pieces)
        over = self.made.pieces.listed(pieces)
        cut = count if x.kind in _CUTS else 1
        elements = max(cut, math.ceil(x.size / 4 / cut) * cut)
        types = _types(x.kind, elements, count, over)
        if types is None:
            self.made.left_out[f"{x.label}, which differs by rank"] += 1
            return
        taken, given, rest = types
        self._write()
        self.made.collectives += 1
        self.made.ungrouped += x.ranks is None and not x.group_size
        number = self.made.collectives
        self.made.arguments.append(f"%x{number}: {taken}")
        result = f"%r{number}"
        self.made.lines += [
            f"  %p{number} = compute %x{number}, {self.token} flops 0",
            f"  {result} = {x.kind} %p{number} over {over}{rest} async",
        ]
        self.made.results.append((result, given))
        self.open.append((result, x))


def _types(kind: str, elements: int, count: int, over: str) -> tuple[str, str, str] | None:
    """Return the types of the operand and the result of a collective, and what is behind its axes;
    None for what only some ranks of a group do."""
    whole = f"f32[{elements}]"
    inside = f"({over})" if "," in over else over
    match kind:
        case "all_reduce":
            return f"{whole} partial(sum: {over})", whole, ""
        case "reduce_scatter":
            return f"{whole} partial(sum: {over})", f"f32[{elements}@{inside}]", " dim 0"
        case "all_gather":
            return f"f32[{elements}@{inside}]", whole, " dim 0"
        case "all_to_all":
            rows = f"f32[{count}@{inside}, {elements}]", f"f32[{count}, {elements}@{inside}]"
            return *rows, " dim 0 to 1"
        case "broadcast":
            return f"{whole} root({over})", whole, ""
        case "reduce":
            return f"{whole} partial(sum: {over})", f"{whole} root({over})", ""
        case _:
            return None


def _pairs(times: TimeIntervals) -> Iterator[tuple[float, float]]:
    yield from zip(times.start.tolist(), times.end.tolist(), strict=True)
