"""The types of the values of a program of XLA: what each block is a block of, as far as that
follows from the shardings of its parameters."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from collir.importing.hlo.groups import Digits, GroupsError, groups_of, tiles_of
from collir.importing.hlo.mesh import Pieces
from collir.importing.hlo.rules import (
    Rules,
    all_gathered,
    all_reduced,
    exchanged,
    permuted,
    reduce_scattered,
)
from collir.importing.hlo.states import Along, NotTyped, State, of_table, uniform, whole
from collir.importing.hlo.text import Computation, Instruction, Module, Shape

COLLECTIVES = frozenset({
    "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute",
    "collective-broadcast", "ragged-all-to-all",
})  # fmt: skip
"""The opcodes of collectives."""

_ROUNDS = 6
"""The times that the body of a loop is typed until its carries stay as they are."""

MALFORMED = (ValueError, KeyError, IndexError, TypeError, AttributeError, AssertionError)
"""What attributes that are not those of XLA lead to."""

_INTEGERS = 4096
"""The most integers of a constant that are read."""


@dataclass(frozen=True)
class Untyped:
    """A value of which it is not known what it is a block of, and why.

    Attributes:
        line: the line of HLO where that began.
    """

    reason: str
    line: int


Value = State | Untyped | tuple[Any, ...]
"""A state for each array of a value; a tuple has several."""


@dataclass
class Sent:
    """A collective of a program.

    Attributes:
        over: the pieces of its groups, in the order of their members; None if they are no pieces.
        given, made: the values of its operands, and of its results.
        reason: why it is not typed; empty if it is.
    """

    instruction: Instruction
    over: tuple[int, ...] | None
    given: tuple[Value, ...] = ()
    made: tuple[Value, ...] = ()
    reason: str = ""


@dataclass
class Typing:
    """The values of all instructions.

    Attributes:
        values: by instruction.
        sent: the collectives, by instruction.
        problems: why the results of the program are not typed.
    """

    values: dict[Instruction, Value] = field(default_factory=dict[Instruction, Value])
    sent: dict[Instruction, Sent] = field(default_factory=dict[Instruction, Sent])
    problems: list[str] = field(default_factory=list[str])


def is_collective(x: Instruction) -> bool:
    """Return whether an instruction sends: of an asynchronous pair, the start does."""
    return x.base in COLLECTIVES and not x.opcode.endswith(("-done", "-update"))


def digits_of(module: Module) -> Iterator[tuple[Instruction, Digits | GroupsError]]:
    """Yield the collectives of a module and the digits of their groups, or why there are none."""
    for computation in module.computations.values():
        for x in computation.instructions:
            if is_collective(x):
                try:
                    yield x, _groups(x, module.devices, module.partitions > 1)
                except GroupsError as error:
                    yield x, error


def _groups(x: Instruction, devices: int, is_divided: bool) -> Digits:
    if x.base == "collective-permute":
        return ()
    text = x.attributes.get("replica_groups", "")
    if "channel_id" not in x.attributes and is_divided:
        raise GroupsError("it is between replicas, not partitions (it has no channel_id)")
    return groups_of(text, devices)


def shardings(module: Module) -> Iterator[Digits]:
    """Yield the digits that divide the parameters of a module."""
    for x in module.entry.parameters:
        for shape, text in _of_parameter(x):
            try:
                tiles = tiles_of(text, len(shape.sizes), module.devices)
            except GroupsError:
                continue
            yield from tiles.dims if tiles is not None else ()


def _of_parameter(x: Instruction) -> list[tuple[Shape, str]]:
    """Return the arrays of a parameter, each with its sharding."""
    text = x.attributes.get("sharding", "")
    shapes = [*x.shape.arrays]
    if x.shape.parts is None:
        return [(x.shape, text)]
    parts = re.findall(r"\{[^{}]*\}", text[1:-1]) if text.startswith("{{") else []
    return [*zip(shapes, parts, strict=True)] if len(parts) == len(shapes) else [
        (shape, "") for shape in shapes
    ]  # fmt: skip


def typed(module: Module, pieces: Pieces) -> Typing:
    """Return the types of all values of a module, on a mesh."""
    return Typer(module, pieces).run()


class Typer:
    def __init__(self, module: Module, pieces: Pieces):
        self.module, self.pieces = module, pieces
        self.rules = Rules(pieces, module.devices, module.computations)
        self.made = Typing()

    def run(self) -> Typing:
        entry = self.module.entry
        for value in flat(self.computation(entry, [self.parameter(x) for x in entry.parameters])):
            if isinstance(value, Untyped):
                self.made.problems.append(value.reason)
            elif value.partial or value.stacked:
                self.made.problems.append("a result is no block of an array")
        return self.made

    def parameter(self, x: Instruction) -> Value:
        """Return the value of a parameter of the program, by its sharding."""
        values: list[Value] = []
        for shape, text in _of_parameter(x):
            try:
                tiles = tiles_of(text, len(shape.sizes), self.module.devices)
                if tiles is None:
                    values.append(Untyped(f"the sharding of {x.name} is not known", x.line))
                    continue
                dims = [Along(size, self.pieces.of(digits))
                        for size, digits in zip(shape.sizes, tiles.dims, strict=True)]  # fmt: skip
                values.append(State().with_dims(dims))
            except (GroupsError, NotTyped) as error:
                values.append(Untyped(f"the sharding of {x.name}: {error}", x.line))
        return shaped(values, x.shape)

    def computation(self, computation: Computation, given: Sequence[Value]) -> Value:
        """Return the result of a computation for parameters."""
        values: dict[str, Value] = {}
        for x in computation.instructions:
            if x.opcode == "parameter":
                number = int(x.inside)
                made = given[number] if number < len(given) else Untyped("no parameter", x.line)
            else:
                try:
                    made = self.instruction(x, [values[name] for name in x.operands])
                except (NotTyped, *MALFORMED) as error:
                    if not isinstance(error, NotTyped):
                        error = f"the attributes of {x.name} are not understood"
                    made = shaped([Untyped(str(error), x.line)] * len([*x.shape.arrays]), x.shape)
            values[x.name] = self.made.values[x] = made
        return values[computation.result.name]

    def instruction(self, x: Instruction, operands: list[Value]) -> Value:
        """Return the value of an instruction.

        Raises:
            NotTyped: it is not known.
        """
        inner = self.called(x)
        if is_collective(x) and x.opcode != "async-start":
            return self.collective(x, operands)
        match x.opcode:
            case "tuple":
                return tuple(operands)
            case "get-tuple-element":
                [number], [value] = x.numbers("index"), operands
                return value[number] if isinstance(value, tuple) else value
            case "opt-barrier" | "optimization-barrier" | "domain" | "copy-start" | "copy-done":
                return operands[0]
            case "constant":
                return self.constant(x)
            case "partition-id" | "replica-id":
                count, own = self.module.devices, self.module.partitions > 1
                is_own = own == (x.opcode == "partition-id")
                ids = np.arange(count) if is_own else np.zeros(count, int)
                return of_table(ids, (), self.rules.varying(ids))
            case "while":
                return self.loop(x, operands[0])
            case "conditional":
                branches = [self.computation(body, [value]) for body, value in
                            zip(inner, operands[1:], strict=False)]  # fmt: skip
                if any(str(value) != str(branches[0]) for value in branches[1:]):
                    raise NotTyped("its branches lie in different ways")
                return branches[0]
            case "call" | "fusion" | "async-start":
                return self.computation(inner[0], operands)
            case _ if x.opcode.endswith(("-done", "-update")):
                return operands[0]
            case _:
                return self.operation(x, operands)

    def called(self, x: Instruction) -> list[Computation]:
        names: list[str] = []
        for key in ("calls", "to_apply", "branch_computations", "true_computation",
                    "false_computation"):  # fmt: skip
            names += re.findall(r"%?([\w.\-<>]+)", x.attributes.get(key, ""))
        return [self.module.computations[name] for name in names]

    def operation(self, x: Instruction, operands: Sequence[Value]) -> Value:
        """Return the value of an operation on arrays."""
        states: list[State] = []
        for value in operands:
            if isinstance(value, Untyped):
                raise NotTyped(f"{value.reason} (line {value.line})" if "(line" not in value.reason
                               else value.reason)  # fmt: skip
            if isinstance(value, tuple):
                raise NotTyped(f"{x.opcode} takes a tuple")
            states.append(value)
        if x.shape.parts is None:
            return self.rules.result(x, states)
        parts = [replace(x, shape=part) for part in x.shape.parts]
        return tuple(self.rules.result(part, states) for part in parts)

    def constant(self, x: Instruction) -> Value:
        """Return a constant; small ones of integers are known."""
        is_integer = x.shape.dtype[0] in "sup"
        text = x.inside.replace("true", "1").replace("false", "0")
        if x.shape.elements > _INTEGERS or "..." in text or x.shape.parts is not None:
            return whole(x.shape.sizes)
        numbers = re.findall(r"-?(?:inf|nan|\d+\.?\d*(?:[eE][+-]?\d+)?)", text)
        if len(numbers) != x.shape.elements:
            return whole(x.shape.sizes)
        if len(set(numbers)) == 1 and not is_integer:
            return uniform(x.shape.sizes, float(numbers[0]))
        if not is_integer:
            return whole(x.shape.sizes)
        own = np.array([int(float(n)) for n in numbers]).reshape(1, *x.shape.sizes)
        table = np.repeat(own, self.module.devices, axis=0)
        return of_table(table, x.shape.sizes, frozenset())

    def loop(self, x: Instruction, carried: Value) -> Value:
        """Return the results of a loop, whose carries lie in the same way each time."""
        body = self.module.computations[x.attributes["body"].strip("%")]
        carried = _untabled(carried)
        for _ in range(_ROUNDS):
            made = _untabled(self.computation(body, [carried]))
            joined = _meet(carried, made, x.line)
            if str(joined) == str(carried):
                break
            carried = joined
        return carried

    def collective(self, x: Instruction, operands: list[Value]) -> Value:
        """Return the results of a collective, and note whether it is typed."""
        sent = Sent(x, None, tuple(operands))
        self.made.sent[x] = sent
        shapes = self.results(x)
        try:
            digits = _groups(x, self.module.devices, self.module.partitions > 1)
            sent.over = self.pieces.of(digits)
        except GroupsError as error:
            sent.reason = str(error)
        made: list[Value] = []
        for number, value in enumerate(operands):
            try:
                if sent.over is None:
                    raise NotTyped(sent.reason)
                made.append(self._sent(x, value, sent.over, shapes, number))
            except NotTyped as error:
                sent.reason = sent.reason or str(error)
                made.append(Untyped(f"{x.name}: {error}", x.line))
        sent.made = tuple(made)
        return made[0] if len(shapes) == 1 and len(made) == 1 else tuple(made)

    @staticmethod
    def results(x: Instruction) -> list[Shape]:
        """Return the shapes of the arrays that a collective gives; starts have their operands in
        front, and some have numbers behind."""
        parts = x.shape.parts
        if parts and x.opcode.endswith("-start") and x.base != "all-reduce":
            return [*parts[min(1, len(parts) - 1)].arrays]
        return [*x.shape.arrays]

    def _sent(
        self, x: Instruction, value: Value, over: tuple[int, ...], shapes: Sequence[Shape], n: int
    ) -> Value:
        if not isinstance(value, State):
            reason = value.reason if isinstance(value, Untyped) else "it takes a tuple"
            line = value.line if isinstance(value, Untyped) else x.line
            raise NotTyped(reason if "(line" in reason else f"{reason} (line {line})")
        match x.base:
            case "all-reduce":
                kind = self.rules.reducer(x.attributes.get("to_apply", ""))
                made = all_reduced(self.rules, value, over, kind)
            case "all-gather":
                made = all_gathered(self.rules, value, over, x.numbers("dimensions")[0])
            case "reduce-scatter":
                kind = self.rules.reducer(x.attributes.get("to_apply", ""))
                made = reduce_scattered(self.rules, value, over, x.numbers("dimensions")[0], kind)
            case "all-to-all":
                dims = x.numbers("dimensions")
                made = exchanged(self.rules, value, over, dims[0] if dims else None)
            case "collective-permute":
                numbers = x.numbers("source_target_pairs")
                pairs = [*zip(numbers[::2], numbers[1::2], strict=True)]
                made, moved = permuted(self.rules, value, pairs)
                self.made.sent[x].over = tuple(moved)
            case _:
                raise NotTyped(f"there is no rule for {x.base}")
        sizes = {shape.sizes for shape in shapes}
        if made.sizes not in sizes:
            raise NotTyped(f"its blocks would be {[*made.sizes]}")
        return made


def flat(value: Value) -> Iterator[State | Untyped]:
    if isinstance(value, tuple):
        for part in value:
            yield from flat(part)
    else:
        yield value


def shaped(values: Sequence[Value], shape: Shape) -> Value:
    """Return values of arrays as the parts of a shape."""
    left = iter(values)

    def made(own: Shape) -> Value:
        return next(left) if own.parts is None else tuple(made(part) for part in own.parts)

    return made(shape)


def _untabled(value: Value) -> Value:
    """Return values of a loop, whose numbers are others each time."""
    if isinstance(value, tuple):
        return tuple(_untabled(part) for part in value)
    return replace(value, table=None, number=value.number if value.number == 0 else None) \
        if isinstance(value, State) else value  # fmt: skip


def _meet(x: Value, y: Value, line: int) -> Value:
    """Return what is true of both values of a carry."""
    if isinstance(x, tuple) and isinstance(y, tuple):
        return tuple(_meet(a, b, line) for a, b in zip(x, y, strict=False))
    if isinstance(x, State) and isinstance(y, State):
        number = x.number if x.number == y.number else None
        zero = [v for v in (x, y) if v.number == 0]
        other = y if x.number == 0 else x
        try:
            dims = [
                Along(a.size, b.axes if a.axes is None else a.axes)
                for a, b in zip(x.dims, y.dims, strict=True)
            ]
            if any(a.axes is not None and b.axes is not None and a.axes != b.axes
                   for a, b in zip(x.dims, y.dims, strict=True)):  # fmt: skip
                raise NotTyped("a loop carries a value that lies in another way each time")
            if x.partial != y.partial and not zero:
                raise NotTyped("a loop carries a value that is partial in another way each time")
            stacked = x.stacked | y.stacked
            return replace(other, stacked=stacked, number=number, table=None).with_dims(dims)
        except NotTyped as error:
            return Untyped(str(error), line)
    return next(v for v in (x, y) if not isinstance(v, State))
