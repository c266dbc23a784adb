"""The collectives in the text of a program of XLA, with the number of times that each runs."""

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

KINDS = {
    "all-reduce": "all_reduce",
    "all-gather": "all_gather",
    "reduce-scatter": "reduce_scatter",
    "all-to-all": "all_to_all",
    "collective-permute": "permute",
}
"""Operation of XLA -> its name here."""

_BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4}

_VIEWS = {"bitcast", "copy", "transpose", "reshape", "get-tuple-element"}
"""Operations whose result has the elements of their operand."""

_INSTRUCTION = re.compile(r"\s+(?:ROOT )?%([\w.-]+) = (.*?) ([a-z][a-z0-9-]*)\((.*)$")
_COMPUTATION = re.compile(r"^(?:ENTRY )?%([\w.-]+) \(.*\{$")
_ARRAY = re.compile(r"([a-z]+\d*)\[([\d,]*)\]")


@dataclass(frozen=True)
class Sent:
    """Collectives of one kind that run together.

    Attributes:
        kind: the name of the collective.
        groups: the devices that take part, by group; for a permutation, pairs.
        size: the bytes of a device before a reduction, or behind a gather.
        times: how often it runs.
    """

    kind: str
    groups: tuple[tuple[int, ...], ...]
    size: int
    times: int


@dataclass
class _Instruction:
    name: str
    op: str
    sizes: list[int]
    operands: list[str]
    text: str


@dataclass
class _Computation:
    """The instructions of a computation by their names, in order."""

    of: dict[str, _Instruction] = field(default_factory=dict[str, _Instruction])

    def users(self, name: str) -> list[_Instruction]:
        return [x for x in self.of.values() if name in x.operands]


def collectives(text: str) -> list[Sent]:
    """Return the collectives of a program.

    An all-reduce of which every device takes only its block is a reduce_scatter: XLA has a pass for
    it on GPUs and TPUs, and none on CPUs.
    """
    program = _Program(text)
    return [sent for sent in program.sent(program.entry, 1) if sent.size > 4]


class _Program:
    def __init__(self, text: str):
        self.computations: dict[str, _Computation] = {}
        self.entry = ""
        current = _Computation()
        for line in text.splitlines():
            if start := _COMPUTATION.match(line):
                current = self.computations[start[1]] = _Computation()
                if line.startswith("ENTRY"):
                    self.entry = start[1]
            elif found := _INSTRUCTION.match(line):
                name, made, op, rest = found.groups()
                operands = re.findall(r"%([\w.-]+)", rest[: _closing(rest)])
                current.of[name] = _Instruction(name, op, _sizes(made), operands, rest)

    def sent(self, name: str, times: int) -> Iterator[Sent]:
        """Yield the collectives of a computation and of those that it calls."""
        computation = self.computations[name]
        for instruction in computation.of.values():
            if (kind := KINDS.get(instruction.op.removesuffix("-start"))) is not None:
                yield from self._collective(computation, instruction, kind, times)
            for called in re.findall(r"(?:body|to_apply|branch_\w+)=%([\w.-]+)", instruction.text):
                if instruction.op in ("while", "call", "conditional"):
                    yield from self.sent(called, times * _trips(instruction))

    def _collective(
        self, computation: _Computation, instruction: _Instruction, kind: str, times: int
    ) -> Iterator[Sent]:
        groups = _groups(instruction.text)
        before = [sum(computation.of[x].sizes) for x in instruction.operands]
        after = instruction.sizes
        if kind in ("all_to_all", "permute"):
            yield Sent(kind, groups, sum(before), times)
            return
        totals: dict[str, int] = {}
        for number, (a, b) in enumerate(zip(before, after, strict=True)):
            scattered = kind == "all_reduce" and self._is_scattered(
                computation, instruction, number, a // len(groups[0])
            )
            own = "reduce_scatter" if scattered else kind
            totals[own] = totals.get(own, 0) + max(a, b)
        for own, size in totals.items():
            yield Sent(own, groups, size, times)

    def _is_scattered(
        self, computation: _Computation, instruction: _Instruction, number: int, block: int
    ) -> bool:
        """Return whether only blocks of a result are used."""
        if len(instruction.sizes) == 1:
            return self._is_sliced(computation, instruction.name, block)
        parts = [
            user
            for user in computation.users(instruction.name)
            if user.op == "get-tuple-element" and f"index={number}," in user.text + ","
        ]
        return bool(parts) and all(self._is_sliced(computation, x.name, block) for x in parts)

    def _is_sliced(self, computation: _Computation, name: str, block: int) -> bool:
        """Return whether all that is used of a value are blocks of some bytes."""
        users = computation.users(name)
        for user in users:
            if user.op == "dynamic-slice" and user.operands[0] == name:
                if user.sizes != [block]:
                    return False
            elif user.op == "fusion":
                called = re.search(r"calls=%([\w.-]+)", user.text)
                assert called is not None
                inner = self.computations[called[1]]
                for number, operand in enumerate(user.operands):
                    if operand == name and not self._is_sliced(
                        inner, _parameter(inner, number), block
                    ):
                        return False
            elif user.op not in _VIEWS or not self._is_sliced(computation, user.name, block):
                return False
        return bool(users)


def _parameter(computation: _Computation, number: int) -> str:
    return next(
        x.name
        for x in computation.of.values()
        if x.op == "parameter" and x.text.startswith(f"{number})")
    )


def _closing(text: str) -> int:
    """Return where the list of operands ends."""
    depth = 1
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if not depth:
            return place
    return len(text)


def _sizes(made: str) -> list[int]:
    """Return the bytes of the arrays of a type."""
    return [
        _BYTES.get(dtype, 8) * math.prod(map(int, filter(None, shape.split(","))))
        for dtype, shape in _ARRAY.findall(made)
    ]


def _trips(instruction: _Instruction) -> int:
    """Return how often the body of a loop runs; 1 for what is not a loop.

    Raises:
        ValueError: XLA does not say it.
    """
    if instruction.op != "while":
        return 1
    found = re.search(r'"known_trip_count":\{"n":"(\d+)"\}', instruction.text)
    if found is None:
        raise ValueError(f"a loop of unknown length: {instruction.name}")
    return int(found[1])


# --- groups of devices ---------------------------------------------------------------------------


def _groups(text: str) -> tuple[tuple[int, ...], ...]:
    """Return the groups of a collective, of the notations of XLA: lists, a reshaped and transposed
    range, and axes of a mesh."""
    if found := re.search(r"(?:replica_groups|source_target_pairs)=\{(\{[\d,{}]*\})\}", text):
        return tuple(tuple(map(int, x.split(","))) for x in re.findall(r"\{([\d,]+)\}", found[1]))
    if found := re.search(r"replica_groups=\[([\d,]+)\]<=(\[[\d,]+\](?:T\([\d,]+\))?)", text):
        _, size = _numbers(found[1])
        devices = _range(found[2])
        return tuple(tuple(devices[n : n + size]) for n in range(0, len(devices), size))
    devices = r"(?:, device_ids=\((.*?\]?(?:T\([\d,]+\))?)\))?"
    found = re.search(rf"replica_groups=mesh\[([^\]]*)\]{devices} \{{([^}}]*)\}}", text)
    if found is None:
        raise ValueError(f"unknown groups: {text}")
    sizes = {name: int(size) for name, size in re.findall(r"'(\w+)'=(\d+)", found[1])}
    order = _range(found[2]) if found[2] else range(math.prod(sizes.values()))
    return _along(sizes, order, re.findall(r"'(\w+)'", found[3]))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def _range(text: str) -> Sequence[int]:
    """Return the devices of ``[2,4]T(1,0)``: a range in a shape, its dimensions permuted."""
    found = re.match(r"\[([\d,]+)\](?:T\(([\d,]+)\))?", text)
    assert found is not None
    shape = _numbers(found[1])
    order = _numbers(found[2]) if found[2] else tuple(range(len(shape)))
    strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    return [
        sum(strides[d] * x for d, x in zip(order, places, strict=True))
        for places in itertools.product(*(range(shape[d]) for d in order))
    ]


def _along(
    sizes: Mapping[str, int], devices: Sequence[int], axes: Sequence[str]
) -> tuple[tuple[int, ...], ...]:
    """Return the groups of devices that differ in some axes of a mesh alone."""
    groups: dict[tuple[int, ...], list[int]] = {}
    places = itertools.product(*(range(size) for size in sizes.values()))
    for place, device in zip(places, devices, strict=True):
        others = tuple(x for x, name in zip(place, sizes, strict=True) if name not in axes)
        groups.setdefault(others, []).append(device)
    return tuple(map(tuple, groups.values()))


def axes_of(mesh: Mapping[str, int], groups: Sequence[Sequence[int]]) -> tuple[str, ...]:
    """Return the axes of a mesh along which devices form some groups; all axes where none do."""
    wanted = {frozenset(group) for group in groups}
    devices = range(math.prod(mesh.values()))
    for count in range(1, len(mesh) + 1):
        for axes in itertools.combinations(mesh, count):
            if {frozenset(group) for group in _along(mesh, devices, axes)} == wanted:
                return axes
    return tuple(mesh)
