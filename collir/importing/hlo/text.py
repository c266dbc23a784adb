"""The text of XLA's HLO: computations of instructions, in the forms of old and new versions.

A line is an instruction, with its shape, its opcode, its operands and its attributes. What is
not understood is kept as text: whoever needs it says so, at the line.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position

MOST_BYTES = 2**28
"""The largest text that is read."""

BITS = {
    "pred": 8, "s2": 2, "u2": 2, "s4": 4, "u4": 4, "s8": 8, "u8": 8, "s16": 16, "u16": 16,
    "s32": 32, "u32": 32, "s64": 64, "u64": 64, "f16": 16, "bf16": 16, "f32": 32, "f64": 64,
    "c64": 64,
    "c128": 128, "f4e2m1fn": 4, "f8e3m4": 8, "f8e4m3": 8, "f8e4m3fn": 8, "f8e4m3b11fnuz": 8,
    "f8e4m3fnuz": 8, "f8e5m2": 8, "f8e5m2fnuz": 8, "f8e8m0fnu": 8, "token": 0, "opaque": 0,
}  # fmt: skip
"""The bits of an element of each type."""


@dataclass(frozen=True)
class HloShape:
    """The shape of an array on one device; of a tuple, those of its parts."""

    dtype: str
    sizes: tuple[int, ...] = ()
    parts: tuple["HloShape", ...] | None = None

    @property
    def arrays(self) -> Iterator["HloShape"]:
        """Yield the shapes of all arrays."""
        stack: list[HloShape] = [self]
        while stack:
            shape = stack.pop()
            if shape.parts is None:
                yield shape
            else:
                stack.extend(reversed(shape.parts))

    @property
    def elements(self) -> int:
        """The number of elements of an array."""
        total = 1
        for size in self.sizes:
            total *= size
        return total

    @property
    def bytes(self) -> int:
        """The bytes of all arrays."""
        return sum((x.elements * BITS[x.dtype] + 7) // 8 for x in self.arrays)

    def __str__(self) -> str:
        if self.parts is not None:
            return f"({', '.join(map(str, self.parts))})"
        return f"{self.dtype}[{','.join(map(str, self.sizes))}]"


@dataclass(frozen=True, eq=False)
class HloInstruction:
    """An instruction.

    Attributes:
        inside: what stands in its parentheses.
        operands: the names of the values that it takes.
        line: its line in the text.
        source: the line of the user's Python, as ``file:line``; empty if it is not known.
    """

    name: str
    shape: HloShape
    opcode: str
    inside: str
    operands: tuple[str, ...]
    attributes: Mapping[str, str]
    line: int
    source: str = ""

    def numbers(self, name: str) -> list[int]:
        """Return an attribute that is a list of numbers, such as ``dimensions={0,1}``."""
        return [int(n) for n in re.findall(r"-?\d+", self.attributes.get(name, ""))]

    @property
    def base(self) -> str:
        """Its opcode, of an asynchronous pair without ``-start`` and ``-done``."""
        return re.sub(r"-(start|done|update)$", "", self.opcode)


@dataclass(eq=False)
class HloComputation:
    """A computation: its instructions, in order.

    Attributes:
        root: the instruction with its result.
    """

    name: str
    line: int
    instructions: list[HloInstruction] = field(default_factory=list[HloInstruction])
    root: HloInstruction | None = None

    @cached_property
    def by_name(self) -> dict[str, HloInstruction]:
        """Its instructions by their names."""
        return {x.name: x for x in self.instructions}

    @property
    def parameters(self) -> list[HloInstruction]:
        """Its parameters, in order."""
        found = [x for x in self.instructions if x.opcode == "parameter"]
        return sorted(found, key=lambda x: int(x.inside))

    @property
    def result(self) -> HloInstruction:
        """The instruction that is its result."""
        return self.root or self.instructions[-1]


@dataclass(eq=False)
class HloModule:
    """A module of HLO.

    Attributes:
        partitions: the devices that a program is divided over; 1 if it is not said.
        scheduled: whether the order of instructions is that in which they run.
    """

    name: str
    computations: dict[str, HloComputation]
    entry: HloComputation
    partitions: int
    replicas: int
    scheduled: bool

    @property
    def devices(self) -> int:
        """The number of partitions, or of replicas if there is one partition."""
        return self.partitions if self.partitions > 1 else self.replicas


class _Reader:
    def __init__(self, text: str, file: str):
        self.file = file
        self.lines = text.splitlines()

    def fault(self, line: int, message: str, column: int = 1) -> DiagnosticError:
        return DiagnosticError(Diagnostic(message, Position(self.file, line, column)))


_HEADER = re.compile(r"HloModule\s+([\w.\-<>()]+)")
_COMPUTATION = re.compile(r"\s*(ENTRY\s+)?%?([\w.\-<>]+)\s*(\(.*\)\s*->.*)?\{\s*(//.*)?$")
_INSTRUCTION = re.compile(r"\s*(ROOT\s+)?%?([\w.\-<>]+)\s*=\s*")
_ARRAY = re.compile(r"(\w+)\[([^\]]*)\](\{[^{}]*\})?")
_OPCODE = re.compile(r"\s*([a-z][\w\-]*)\(")
_NAME = re.compile(r"%?([A-Za-z_][\w.\-<>]*)$")
_COMMENT = re.compile(r"/\*.*?\*/")
_ATTRIBUTE = re.compile(r"([\w\-]+)=(.*)", re.DOTALL)
_TABLE = re.compile(r"(FileNames|FunctionNames|FileLocations|StackFrames)\s*$")


def read(text: str, file: str) -> HloModule:
    """Return the module of a text.

    Raises:
        DiagnosticError: it is no HLO, or it ends too early.
    """
    reader = _Reader(text, file)
    if len(text) > MOST_BYTES:
        raise reader.fault(1, f"the file has {len(text)} characters, more than {MOST_BYTES}")
    header = next((n for n, x in enumerate(reader.lines) if x.strip()), 0)
    first = reader.lines[header] if reader.lines else ""
    match = _HEADER.match(first.lstrip())
    if match is None:
        what = "the file is empty" if not text.strip() else "this is no HLO of XLA"
        raise reader.fault(header + 1, f"{what}: it begins with `HloModule NAME`")
    frames = _frames(reader.lines)
    computations: dict[str, HloComputation] = {}
    entry: HloComputation | None = None
    current: HloComputation | None = None
    for number, raw in enumerate(reader.lines[header + 1 :], header + 2):
        line = _COMMENT.sub("", raw) if "/*" in raw else raw
        if current is None:
            opened = _COMPUTATION.match(line)
            if opened is not None and "=" not in line.partition("(")[0]:
                current = HloComputation(opened[2], number)
                if current.name in computations:
                    raise reader.fault(number, f"there are two computations {current.name}")
                computations[current.name] = current
                entry = current if opened[1] else entry
        elif line.strip().startswith("}"):
            if not current.instructions:
                raise reader.fault(number, f"computation {current.name} has no instructions")
            current = None
        elif line.strip() and not line.strip().startswith("//"):
            made, is_root = _instruction(reader, line, number, frames)
            current.instructions.append(made)
            current.root = made if is_root else current.root
    if current is not None:
        message = f"the file ends within computation {current.name}, which begins here"
        raise reader.fault(current.line, message)
    if entry is None:
        if len(computations) != 1:
            raise reader.fault(header + 1, "the module has no ENTRY computation")
        [entry] = computations.values()
    _check_names(reader, computations)
    flags = {name: re.search(rf"\b{name}=(\w+)", first) for name in
             ("num_partitions", "replica_count", "is_scheduled")}  # fmt: skip
    partitions, replicas, scheduled = (x[1] if x else "" for x in flags.values())
    return HloModule(
        match[1].rstrip(","), computations, entry, int(partitions or 1), int(replicas or 1),
        scheduled == "true",
    )  # fmt: skip


def _instruction(
    reader: _Reader, line: str, number: int, frames: Mapping[int, str]
) -> tuple[HloInstruction, bool]:
    start = _INSTRUCTION.match(line)
    if start is None:
        raise reader.fault(number, "this is no instruction: expected `%name = SHAPE opcode(...)`")
    shape, at = _shape(reader, line, number, start.end())
    opcode = _OPCODE.match(line, at)
    if opcode is None:
        raise reader.fault(number, "an opcode and its operands stand behind the shape", at + 1)
    end = _closing(line, opcode.end())
    if end < 0:
        raise reader.fault(number, f"the operands of {opcode[1]} do not end", opcode.end())
    inside = line[opcode.end() : end]
    attributes: dict[str, str] = {}
    for part in split(line[end + 1 :]):
        pair = _ATTRIBUTE.fullmatch(part)
        if pair is not None:
            attributes[pair[1]] = pair[2]
        elif "replica_groups" in attributes and "replica_groups_" not in part:
            attributes["replica_groups"] += f", {part}"  # `mesh[...], device_ids=(...) {...}`
    if "device_ids" in attributes:
        attributes["replica_groups"] += f", device_ids={attributes.pop('device_ids')}"
    operands: list[str] = []
    if opcode[1] not in ("constant", "parameter"):
        for part in split(inside):
            name = _NAME.search(part)
            if name is not None and not (name[1] in BITS and part == name[1]):
                operands.append(name[1])
    source = _source(attributes, frames)
    made = HloInstruction(start[2], shape, opcode[1], inside.strip(), tuple(operands), attributes,
                       number, source)  # fmt: skip
    return made, start[1] is not None


def _shape(reader: _Reader, line: str, number: int, at: int) -> tuple[HloShape, int]:
    """Return the shape that begins at a column, and where it ends."""
    stack: list[list[HloShape]] = []
    while True:
        while at < len(line) and line[at] in " ,":
            at += 1
        if at >= len(line):
            raise reader.fault(number, "the line ends within a shape", at)
        if line[at] == "(":
            stack.append([])
            at += 1
            continue
        if line[at] == ")":
            if not stack:
                raise reader.fault(number, "a shape has a `)` too many", at + 1)
            made, at = HloShape("tuple", (), tuple(stack.pop())), at + 1
        else:
            made, at = _array(reader, line, number, at)
        if not stack:
            return made, at
        stack[-1].append(made)


def _array(reader: _Reader, line: str, number: int, at: int) -> tuple[HloShape, int]:
    match = _ARRAY.match(line, at)
    if match is None or match[1] not in BITS:
        raise reader.fault(number, "this is no shape, such as f32[8,64]", at + 1)
    end = match.end()
    if match[3] is None and line[end : end + 1] == "{":  # a layout with braces inside
        end = _closing(line, end + 1) + 1
    sizes = match[2].replace("<=", "").split(",") if match[2].strip() else []
    if not all(size.strip().isdigit() and len(size) < _DIGITS for size in sizes):
        raise reader.fault(number, f"the sizes [{match[2]}] are no numbers", at + 1)
    return HloShape(match[1], tuple(map(int, sizes))), end


_DIGITS = 15
"""One more than the most digits of a size."""

_OPEN, _CLOSE = "([{", ")]}"


def _closing(line: str, at: int) -> int:
    """Return where what is open at a column closes; -1 if it does not."""
    depth, quoted = 1, False
    for place in range(at, len(line)):
        c = line[place]
        if c == '"' and line[place - 1] != "\\":
            quoted = not quoted
        elif quoted:
            continue
        elif c in _OPEN:
            depth += 1
        elif c in _CLOSE:
            depth -= 1
            if depth == 0:
                return place
    return -1


def split(text: str) -> list[str]:
    """Return the parts of a list with commas, which may be in brackets or quotes."""
    parts: list[str] = []
    depth, quoted, begin = 0, False, 0
    for place, c in enumerate(text):
        if c == '"' and (place == 0 or text[place - 1] != "\\"):
            quoted = not quoted
        elif quoted:
            continue
        elif c in _OPEN:
            depth += 1
        elif c in _CLOSE:
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[begin:place].strip())
            begin = place + 1
    parts.append(text[begin:].strip())
    return [part for part in parts if part]


def _check_names(reader: _Reader, found: Mapping[str, HloComputation]) -> None:
    """Check that all operands and computations are there, each before it is used, and that no
    computation runs itself."""
    for computation in found.values():
        known: set[str] = set()
        for x in computation.instructions:
            for name in x.operands:
                if name not in known:
                    raise reader.fault(x.line, f"{x.name} takes {name}, which is not above it")
            if x.name in known:
                raise reader.fault(x.line, f"there are two instructions {x.name}")
            known.add(x.name)
            for name in called(x):
                if name not in found:
                    raise reader.fault(x.line, f"there is no computation {name}")
    done: set[str] = set()
    for name in found:
        stack: list[tuple[str, Iterator[str]]] = [(name, _calls(found[name]))]
        path = {name}
        while stack:
            own, rest = stack[-1]
            follower = next((x for x in rest if x not in done), None)
            if follower is None:
                done.add(own)
                path.discard(own)
                stack.pop()
            elif follower in path:
                raise reader.fault(found[follower].line, f"computation {follower} runs itself")
            else:
                path.add(follower)
                stack.append((follower, _calls(found[follower])))


def _calls(computation: HloComputation) -> Iterator[str]:
    return (name for x in computation.instructions for name in called(x))


_CALLERS = (
    "calls", "to_apply", "body", "condition", "branch_computations", "true_computation",
    "false_computation", "called_computations", "select", "scatter",
)  # fmt: skip


def called(x: HloInstruction) -> list[str]:
    """Return the computations that an instruction runs."""
    found: list[str] = []
    for key in _CALLERS:
        if (value := x.attributes.get(key)) is not None:
            found += re.findall(r"%?([\w.\-<>]+)", value)
    return found


# --- lines of the user ----------------------------------------------------------------------------


def _frames(lines: Sequence[str]) -> dict[int, str]:
    """Return the line of Python of each stack frame, from the tables in front of computations."""
    tables: dict[str, dict[int, str]] = {}
    current: dict[int, str] | None = None
    for line in lines:
        if (table := _TABLE.match(line)) is not None:
            current = tables.setdefault(table[1], {})
        elif current is not None and (row := re.match(r"(\d+) (.*)", line)) is not None:
            current[int(row[1])] = row[2]
        elif line.strip():
            current = None
            if line.startswith(("%", "ENTRY")):
                break
    made: dict[int, str] = {}
    for frame, text in tables.get("StackFrames", {}).items():
        location = re.search(r"file_location_id=(\d+)", text)
        place = tables.get("FileLocations", {}).get(int(location[1]), "") if location else ""
        file, number = re.search(r"file_name_id=(\d+)", place), re.search(r"\bline=(\d+)", place)
        name = tables.get("FileNames", {}).get(int(file[1]), "") if file else ""
        if name and number:
            made[frame] = name.strip('"') + f":{number[1]}"
    return made


def _source(attributes: Mapping[str, str], frames: Mapping[int, str]) -> str:
    metadata = attributes.get("metadata", "")
    if (frame := re.search(r"stack_frame_id=(\d+)", metadata)) is not None:
        return frames.get(int(frame[1]), "")
    file = re.search(r'source_file="([^"]*)"', metadata)
    line = re.search(r"source_line=(\d+)", metadata)
    return f"{file[1]}:{line[1]}" if file and line else ""
