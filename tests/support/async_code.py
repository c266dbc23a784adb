"""Collectives made ``async``, and what of the emitted code has to wait: read off its text.

Nothing here looks at how collir decides where to wait, or which buffers are parts of others. What
is read is the order of the lines, the pieces of memory that they name, and what starts, waits,
records and frees.
"""

import math
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

import collir
from collir.dialects import coll
from collir.dialects.coll import OPERATIONS
from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.names import unique_names


def able(function: FuncOp) -> list[DistOp]:
    """The collectives of a function that may be ``async``."""
    return [
        op
        for op in function.body.ops
        if isinstance(op, coll.COLLECTIVES) and not isinstance(op, OPERATIONS["permute"])
    ]


def make_async(
    functions: Iterable[FuncOp], rng: random.Random | None = None, share: float = 1.0
) -> int:
    """Makes collectives ``async``, all or about a share of them; returns how many."""
    count = 0
    for op in (op for function in functions for op in able(function)):
        if rng is None or rng.random() < share:
            op.properties["async"] = UnitAttr()
            count += 1
    return count


def marked(module: ModuleOp) -> int:
    """How many operations of a module are ``async``."""
    return sum(isinstance(op, DistOp) and "async" in op.properties for op in module.walk())


# --- memory -------------------------------------------------------------------------------------


class Piece(NamedTuple):
    """Some elements of a buffer."""

    name: str
    start: int
    end: float

    def meets(self, other: "Piece") -> bool:
        return self.name == other.name and self.start < other.end and other.start < self.end


_TOKEN = re.compile(r"\((\w+) \+ (\d+)\)|(?<![.\w])([A-Za-z_]\w*)\b")
_RESULT = re.compile(r"^// %(\S+) = ")


class Memory:
    """Where the values of a function lie, learnt from its lines one after the other."""

    def __init__(self, function: FuncOp, parameters: Sequence[str]):
        self.mesh = mesh_of(function)
        names = unique_names(function)
        self.named = {names[op.result]: op for op in function.body.ops if isinstance(op, DistOp)}
        self.known = {re.findall(r"\w+", one)[-1] for one in parameters}
        self._at: dict[SSAValue, tuple[str, int]] = {}
        for arg, one in zip(function.args, parameters, strict=False):
            self._at[arg] = (re.findall(r"\w+", one)[-1], 0)
        self.now: DistOp | None = None
        self.scratch: set[str] = set()
        self._pieces: dict[tuple[str, int], list[int]] = {}

    def of(self, value: SSAValue) -> Piece:
        """The memory of a value; a view's is that of its operand, or a part of it."""
        if value not in self._at:
            op = value.owner
            assert isinstance(op, DistOp), value
            start = 0
            if isinstance(op, OPERATIONS["pad"]):
                shape = dist_type(op.input).local_shape(self.mesh)
                start = -op.integer("low") * math.prod(shape[op.integer("dim") + 1 :])
            piece = self.of(op.operands[0])
            self._at[value] = (piece.name, piece.start + start)
        name, start = self._at[value]
        return Piece(name, start, start + self._size(value))

    def _size(self, value: SSAValue) -> int:
        return math.prod(dist_type(value).local_shape(self.mesh))

    def operation(self, line: str) -> None:
        """Takes a comment that says what the next lines do."""
        if found := _RESULT.match(line):
            self.now = self.named[found.group(1)]

    def touched(self, line: str) -> list[Piece]:
        """The memory that a line names."""
        places = {
            (found.group(1), int(found.group(2))) if found.group(1) else (found.group(3), 0)
            for found in _TOKEN.finditer(line)
        }
        places = {place for place in places if place[0] in self.known}
        op = self.now
        if "compute_for(" in line and op is not None:  # which names none of what it waits for
            return [self.of(operand) for operand in op.operands]
        sizes = dict(self._pieces)
        if op is not None:
            own = [self.of(operand) for operand in op.operands]
            sizes |= {piece[:2]: [int(piece.end) - piece.start] for piece in own}
            left = sorted(one for one in places - sizes.keys() if one[0] not in self.scratch)
            if op.result not in self._at and left:
                self._at[op.result] = left[0]
            if op.result in self._at:
                result = self.of(op.result)
                sizes.setdefault(result[:2], []).append(self._size(op.result))
                self._pieces.setdefault(result[:2], []).append(self._size(op.result))
        found: list[Piece] = []
        for name, start in sorted(places):
            inside = sizes.get((name, start))
            found.append(Piece(name, start, start + min(inside) if inside else math.inf))
        return found


def bodies(code: str, returns: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """The name, parameters and lines of every function; a call is on one line."""
    pattern = re.compile(
        rf"^(?:static |extern \"C\" )?{returns} (\w+)\(([^)]*)\)\n\{{\n(.*?)^\}}$",
        re.MULTILINE | re.DOTALL,
    )
    for name, parameters, body in pattern.findall(code):
        joined = re.sub(r",\n\s+", ", ", body)
        lines = [line.strip() for line in joined.splitlines()]
        yield name, [" ".join(one.split()) for one in parameters.split(",")], lines


def hazards(
    module: ModuleOp, target: str, change: Callable[[str], str] = lambda code: code
) -> list[str]:
    """What the emitted code of a target does too early.

    Args:
        change: of the code, before it is looked at.
    """
    functions = {op.sym_name.data: op for op in module.ops if isinstance(op, FuncOp)}
    code = change(collir.emit(module, target))
    found: list[str] = []
    looked = 0
    for name, parameters, lines in bodies(code, "int" if target == "mpi" else "ncclResult_t"):
        if name in functions:
            look = _in_mpi if target == "mpi" else _on_streams
            found += [f"{name}: {one}" for one in look(functions[name], parameters, lines)]
            looked += 1
    assert looked == len(functions)
    return found


# --- MPI ----------------------------------------------------------------------------------------


_START = re.compile(r"(MPI_I[a-z_]+)\((.*), &pending\[(\d+)\]\)")
_BUFFERS = {
    "MPI_Ibcast": (0,),
    "MPI_Iallreduce": (0, 1),
    "MPI_Ireduce": (0, 1),
    "MPI_Ireduce_scatter_block": (0, 1),
    "MPI_Iallgather": (0, 3),
    "MPI_Iscatter": (0, 3),
    "MPI_Igather": (0, 3),
    "MPI_Ialltoall": (0, 3),
}
"""Which arguments are the operand, if it is read, and the result."""

_WAIT = re.compile(r"MPI_Wait\(&pending\[(\d+)\]")


def _in_mpi(function: FuncOp, parameters: list[str], lines: list[str]) -> Iterator[str]:
    """Results of what has started are not to be touched, operands not to be written or freed; all
    has to be waited for."""
    memory = Memory(function, parameters)
    reads: dict[str, Piece] = {}
    writes: dict[str, Piece] = {}
    started: list[str] = []
    for line in lines:
        if line.startswith("done:"):
            break
        if line.startswith("//"):
            memory.operation(line)
        elif made := re.search(r"^\w+ \*(\w+) = NULL;", line):
            memory.known.add(made.group(1))
        elif freed := re.search(r"free\((\w+)\)|^(\w+) = NULL;", line):
            name = freed.group(1) or freed.group(2)
            busy = [one for one in (*reads.values(), *writes.values()) if one.name == name]
            yield from [f"{name} is still in use: {line}"] * bool(busy)
        elif wait := _WAIT.search(line):
            if writes.pop(wait.group(1), None) is None:
                yield f"nothing to wait for: {line}"
            reads.pop(wait.group(1), None)
        else:
            pieces = memory.touched(line)
            late = [one for one in writes.values() if any(one.meets(piece) for piece in pieces)]
            yield from [f"{one} is not there yet: {line}" for one in late]
            assigned = re.search(r"\(?(\w+)(?: \+ \d+\))?\[\w+\] = ", line)
            if assigned and any(one.name == assigned.group(1) for one in reads.values()):
                yield f"{assigned.group(1)} is still sent: {line}"
            if start := _START.search(line):
                kind, given, number = start.groups()
                yield from [f"pending[{number}] is started twice"] * (number in started)
                started.append(number)
                words = given.split(", ")
                mine = [_piece(pieces, words[place]) for place in _BUFFERS[kind]]
                writes[number] = mine[-1]
                if len(mine) > 1:
                    reads[number] = mine[0]
                    met = [one for key, one in reads.items() if key != number]
                    if any(one.meets(mine[-1]) for one in met):
                        yield f"{mine[-1]} is still sent: {line}"
    yield from (f"pending[{number}] is never waited for" for number in writes)


def _piece(pieces: Iterable[Piece], text: str) -> Piece:
    """The piece that is written like this."""
    found = _TOKEN.match(text)
    assert found is not None, text
    place = (found.group(1), int(found.group(2))) if found.group(1) else (found.group(3), 0)
    return next(one for one in pieces if one[:2] == place)


# --- NCCL ---------------------------------------------------------------------------------------


CALLERS = "stream"
_STREAM = re.compile(r"\bmesh_\w+\.streams\[\d+\]|\bstream\b")
_RECORD = re.compile(r"cudaEventRecord\(([^,]+), ([^)]+)\)")
_AWAIT = re.compile(r"cudaStreamWaitEvent\(([^,]+), ([^,]+), 0\)")
_MADE = re.compile(r"device_memory<\w+> (\w+)\((\S+)\);|\*const (\w+) = ")

Stamp = tuple[str, int]
Clock = dict[str, int]


@dataclass
class _Clocks:
    """What every stream knows to be done on the others (vector clocks)."""

    of: dict[str, Clock] = field(default_factory=dict[str, Clock])
    events: dict[str, Clock] = field(default_factory=dict[str, Clock])

    def own(self, stream: str) -> Clock:
        return self.of.setdefault(stream, {})

    def tick(self, stream: str) -> Stamp:
        """Something more on a stream."""
        clock = self.own(stream)
        clock[stream] = clock.get(stream, 0) + 1
        return stream, clock[stream]

    def knows(self, stream: str, stamp: Stamp) -> bool:
        return self.own(stream).get(stamp[0], 0) >= stamp[1]

    def wait(self, stream: str, event: str) -> None:
        clock = self.own(stream)
        for other, count in self.events.get(event, {}).items():
            clock[other] = max(clock.get(other, 0), count)


def _on_streams(function: FuncOp, parameters: list[str], lines: list[str]) -> Iterator[str]:
    """A stream has to have waited for the memory and the values that others make, before it uses
    them; the caller's, for all, before memory is freed and in the end.

    What one operation does with a piece of memory, another that uses it must know of, but for what
    only reads what is there: arguments, and what an operation before has finished.
    """
    memory = Memory(function, parameters[:-1])
    clocks = _Clocks()
    stamps = [clocks.tick(CALLERS)]  # what the caller has put there
    since = dict.fromkeys(memory.known, stamps[0])
    freed_on: dict[str, str] = {}
    written: list[tuple[Piece, Stamp, DistOp | None]] = []
    for line in lines:
        if line.startswith(("//", "(void)")):
            memory.operation(line)
            continue
        if declared := _MADE.search(line):
            name = declared.group(1) or declared.group(3)
            memory.known.add(name)
            memory.scratch |= {name} if memory.now else set()
            freed_on[name] = declared.group(2) or CALLERS
            since[name] = stamps[0]
            written = [one for one in written if one[0].name != name]
            continue
        if record := _RECORD.search(line):
            clocks.events[record.group(1)] = dict(clocks.own(record.group(2)))
            continue
        if wait := _AWAIT.search(line):
            clocks.wait(wait.group(1), wait.group(2))
            continue
        if grown := re.search(r"\b(\w+)\.(allocate|release)\(", line):
            name = grown.group(1)
            late = not all(clocks.knows(freed_on[name], stamp) for stamp in stamps)
            if late and grown.group(2) == "release":
                yield f"freed in use: {line}"
            since[name] = clocks.tick(freed_on[name])
            stamps.append(since[name])
            continue
        pieces = memory.touched(line)
        if not pieces:
            continue
        stream = _STREAM.search(line)
        on = stream.group() if stream else CALLERS
        for piece in pieces:
            if not clocks.knows(on, since[piece.name]):
                yield f"{piece.name} may not have memory yet: {line}"
            for other, stamp, _ in written:
                if other.meets(piece) and not clocks.knows(on, stamp):
                    yield f"{piece} may not be there yet: {line}"
        stamps.append(clocks.tick(on))
        operands = [] if memory.now is None else [memory.of(one) for one in memory.now.operands]
        computed = "compute_for(" in line and memory.now is not None
        made = [memory.of(memory.now.result)] if computed and memory.now else pieces
        written += [
            (one, stamps[-1], memory.now) for one in made if computed or one not in operands
        ]
    if not all(clocks.knows(CALLERS, stamp) for stamp in stamps):
        yield "ends before its streams do"
