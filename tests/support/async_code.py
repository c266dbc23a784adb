"""Checks of emitted code with ``async`` collectives: whether it waits where it has to, by its text.

The checks do not use collir's own decisions where to wait and which buffers are parts of others.
Code that is printed from the program of a rank needs none: the executor of such programs has them.
They read the order of the lines, the pieces of memory that lines name, and the lines that start,
wait, record and free.
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
    """Return the collectives of a function that may be ``async``."""
    return [
        op
        for op in function.walk()
        if isinstance(op, coll.COLLECTIVES) and not isinstance(op, OPERATIONS["permute"])
    ]


def make_async(
    functions: Iterable[FuncOp], rng: random.Random | None = None, share: float = 1.0
) -> int:
    """Make all collectives or about a share of them ``async``; return their number."""
    count = 0
    for op in (op for function in functions for op in able(function)):
        if rng is None or rng.random() < share:
            op.properties["async"] = UnitAttr()
            count += 1
    return count


def marked(module: ModuleOp) -> int:
    """Return the number of ``async`` operations of a module."""
    return sum(isinstance(op, DistOp) and "async" in op.properties for op in module.walk())


# --- memory -------------------------------------------------------------------------------------


class Piece(NamedTuple):
    """A range of elements of a buffer."""

    name: str
    start: int
    end: float

    def meets(self, other: "Piece") -> bool:
        return self.name == other.name and self.start < other.end and other.start < self.end


_TOKEN = re.compile(r"\((\w+) \+ (\d+)\)|(?<![.\w])([A-Za-z_]\w*)\b")
_RESULT = re.compile(r"^// %(\S+) = ")


class Memory:
    """The places of a function's values in memory, learnt from its lines one after the other."""

    def __init__(self, function: FuncOp, parameters: Sequence[str]):
        self.mesh = mesh_of(function)
        names = unique_names(function)
        self.named = {names[op.result]: op for op in function.body.ops if isinstance(op, DistOp)}
        self.known = {re.findall(r"\w+", parameter)[-1] for parameter in parameters}
        self._at: dict[SSAValue, tuple[str, int]] = {}
        for arg, parameter in zip(function.args, parameters, strict=False):
            self._at[arg] = (re.findall(r"\w+", parameter)[-1], 0)
        self.now: DistOp | None = None
        self.scratch: set[str] = set()
        self._pieces: dict[tuple[str, int], list[int]] = {}

    def of(self, value: SSAValue) -> Piece:
        """Return the memory of a value; that of a view is its operand's memory or a part of it."""
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
        """Read a comment that names the operation of the next lines."""
        if result := _RESULT.match(line):
            self.now = self.named[result.group(1)]

    def touched(self, line: str) -> list[Piece]:
        """Return the pieces of memory that a line names."""
        places = {_place(token) for token in _TOKEN.finditer(line)}
        places = {place for place in places if place[0] in self.known}
        op = self.now
        if "compute_for(" in line and op is not None:  # the line does not name its operands
            return [self.of(operand) for operand in op.operands]
        sizes = dict(self._pieces)
        if op is not None:
            own = [self.of(operand) for operand in op.operands]
            sizes |= {piece[:2]: [int(piece.end) - piece.start] for piece in own}
            left = sorted(place for place in places - sizes.keys() if place[0] not in self.scratch)
            if op.result not in self._at and left:
                self._at[op.result] = left[0]
            if op.result in self._at:
                result = self.of(op.result)
                sizes.setdefault(result[:2], []).append(self._size(op.result))
                self._pieces.setdefault(result[:2], []).append(self._size(op.result))
        pieces: list[Piece] = []
        for name, start in sorted(places):
            inside = sizes.get((name, start))
            pieces.append(Piece(name, start, start + min(inside) if inside else math.inf))
        return pieces


def _place(token: re.Match[str]) -> tuple[str, int]:
    """Return the buffer that a token names, and the offset in it."""
    return (token.group(1), int(token.group(2))) if token.group(1) else (token.group(3), 0)


def bodies(code: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield the name, the parameters and the lines of every function; each call is on one line."""
    pattern = re.compile(
        r"^(?:static |extern \"C\" )?ncclResult_t (\w+)\(([^)]*)\)\n\{\n(.*?)^\}$",
        re.MULTILINE | re.DOTALL,
    )
    for name, parameters, body in pattern.findall(code):
        joined = re.sub(r",\n\s+", ", ", body)
        lines = [line.strip() for line in joined.splitlines()]
        yield name, [" ".join(words.split()) for words in parameters.split(",")], lines


def hazards(
    module: ModuleOp, target: str, change: Callable[[str], str] = lambda code: code
) -> list[str]:
    """Return what the emitted code of a target of NCCL does too early.

    The text is read as that of one device, so functions in which devices write their own piece of
    one buffer are left out.

    Args:
        change: a change of the code before it is checked.
    """
    functions = {op.sym_name.data: op for op in module.ops if isinstance(op, FuncOp)}
    code = change(collir.emit(module, target))
    faults: list[str] = []
    checked = 0
    for name, parameters, lines in bodies(code):
        if name in functions and not _assembles(functions[name]):
            found = _on_streams(functions[name], parameters, lines)
            faults += [f"{name}: {fault}" for fault in found]
        checked += name in functions
    assert checked == len(functions)
    return faults


def _assembles(function: FuncOp) -> bool:
    return any(isinstance(op, DistOp) and op.kind.assembles for op in function.body.ops)


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
    """Vector clocks: for every stream, the work on other streams that it knows to be done."""

    of: dict[str, Clock] = field(default_factory=dict[str, Clock])
    events: dict[str, Clock] = field(default_factory=dict[str, Clock])

    def own(self, stream: str) -> Clock:
        return self.of.setdefault(stream, {})

    def tick(self, stream: str) -> Stamp:
        """Add work to a stream, and return its stamp."""
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
    """Yield the faults of NCCL code.

    Before a stream uses memory or values of other streams, it must have waited for them. It must
    have waited for all that uses memory before that is freed, and the caller's stream for all
    streams at the end.

    An operation that uses a piece of memory must know of all earlier operations on it, except those
    that only read: arguments, and values that an earlier operation has finished.
    """
    memory = Memory(function, parameters[:-1])
    clocks = _Clocks()
    stamps = [clocks.tick(CALLERS)]  # the caller's own work, such as the arguments
    since = dict.fromkeys(memory.known, stamps[0])
    freed_on: dict[str, str] = {}
    uses: dict[str, list[Stamp]] = {}
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
            written = [entry for entry in written if entry[0].name != name]
            continue
        if record := _RECORD.search(line):
            clocks.events[record.group(1)] = dict(clocks.own(record.group(2)))
            continue
        if wait := _AWAIT.search(line):
            clocks.wait(wait.group(1), wait.group(2))
            continue
        if grown := re.search(r"\b(\w+)\.(allocate|release)\(", line):
            name = grown.group(1)
            late = not all(clocks.knows(freed_on[name], stamp) for stamp in uses.get(name, []))
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
            unknown = [p for p, stamp, _ in written if not clocks.knows(on, stamp)]
            yield from [f"{piece} may not be there yet: {line}" for p in unknown if p.meets(piece)]
        stamps.append(clocks.tick(on))
        for piece in pieces:
            uses.setdefault(piece.name, []).append(stamps[-1])
        operands = [] if memory.now is None else [memory.of(x) for x in memory.now.operands]
        computed = "compute_for(" in line and memory.now is not None
        made = [memory.of(memory.now.result)] if computed and memory.now else pieces
        written += [
            (piece, stamps[-1], memory.now) for piece in made if computed or piece not in operands
        ]
    if not all(clocks.knows(CALLERS, stamp) for stamp in stamps):
        yield "ends before its streams do"
