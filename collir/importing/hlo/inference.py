"""The types of the values of a program of XLA: the array that each block belongs to, as far as it
follows from the shardings of parameters."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from collir.importing.hlo.groups import Digits, GroupsError, groups_of, permuted_digits, tiles_of
from collir.importing.hlo.mesh import MeshPieces
from collir.importing.hlo.rules import (
    HloRules,
    all_gathered,
    all_reduced,
    exchanged,
    permuted,
    reduce_scattered,
    sent_by_hand,
)
from collir.importing.hlo.states import (
    Along,
    NotTyped,
    ValueState,
    joined,
    of_table,
    stack_of,
    uniform,
    whole,
)
from collir.importing.hlo.text import HloComputation, HloInstruction, HloModule, HloShape
from collir.importing.values import MALFORMED

COLLECTIVES = frozenset({
    "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute",
    "collective-broadcast", "ragged-all-to-all",
})  # fmt: skip
"""The opcodes of collectives."""

_ROUNDS = 6
"""The times that the body of a loop is typed until its carries stay as they are."""

_BY_HAND = re.compile("shard_map|shmap_body|manual_computation")
"""A part of the names of computations and operations that a ``shard_map`` wrote."""

_INTEGERS = 4096
"""The most integers of a constant that are read."""


@dataclass(frozen=True)
class Untyped:
    """A value whose array is not known, and why.

    Attributes:
        line: the line of HLO where that began.
    """

    reason: str
    line: int


Value = ValueState | Untyped | tuple[Any, ...]
"""A state for each array of a value; a tuple has several."""


@dataclass
class InferredCollective:
    """A collective of a program.

    Attributes:
        over: the pieces of its groups, in the order of their members; None if they are no pieces.
        given, made: the values of its operands, and of its results.
        reason: why it is not typed; empty if it is.
    """

    instruction: HloInstruction
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
        hidden: the numbers of devices that the text leaves out.
        by_hand: what is taken as a ``shard_map`` says, since no rule explains it.
    """

    values: dict[HloInstruction, Value] = field(default_factory=dict[HloInstruction, Value])
    sent: dict[HloInstruction, InferredCollective] = field(
        default_factory=dict[HloInstruction, InferredCollective]
    )
    problems: list[str] = field(default_factory=list[str])
    hidden: set[HloInstruction] = field(default_factory=set[HloInstruction])
    by_hand: set[HloInstruction] = field(default_factory=set[HloInstruction])


def is_collective(x: HloInstruction) -> bool:
    """Return whether an instruction sends: of an asynchronous pair, the start does."""
    return x.base in COLLECTIVES and not x.opcode.endswith(("-done", "-update"))


def digits_of(module: HloModule) -> Iterator[tuple[HloInstruction, Digits | GroupsError]]:
    """Yield the collectives of a module and the digits of their groups, or why there are none."""
    for computation in module.computations.values():
        for x in computation.instructions:
            if x.base == "collective-permute":
                digits = permuted_digits(pairs_of(x), module.devices)
                yield x, tuple(dict.fromkeys((*digits, *digits.values())))
            elif is_collective(x):
                try:
                    yield x, _groups(x, module.devices, module.partitions > 1)
                except GroupsError as error:
                    yield x, error


def pairs_of(x: HloInstruction) -> list[tuple[int, int]]:
    """Return the source and the target of each block of a collective-permute."""
    numbers = x.numbers("source_target_pairs")
    return [*zip(numbers[::2], numbers[1::2], strict=True)]


def _groups(x: HloInstruction, devices: int, is_divided: bool) -> Digits:
    if x.base == "collective-permute":
        return ()
    text = x.attributes.get("replica_groups", "")
    if "channel_id" not in x.attributes and is_divided:
        raise GroupsError("it is between replicas, not partitions (it has no channel_id)")
    return groups_of(text, devices)


def shardings(module: HloModule) -> Iterator[Digits]:
    """Yield the digits that divide the parameters of a module."""
    for x in module.entry.parameters:
        for shape, text in _of_parameter(x):
            try:
                tiles = tiles_of(text, len(shape.sizes), module.devices)
            except GroupsError:
                continue
            yield from tiles.dims if tiles is not None else ()


def _of_parameter(x: HloInstruction) -> list[tuple[HloShape, str]]:
    """Return the arrays of a parameter, each with its sharding."""
    text = x.attributes.get("sharding", "")
    shapes = [*x.shape.arrays]
    if x.shape.parts is None:
        return [(x.shape, text)]
    parts = re.findall(r"\{[^{}]*\}", text[1:-1]) if text.startswith("{{") else []
    return [*zip(shapes, parts, strict=True)] if len(parts) == len(shapes) else [
        (shape, "") for shape in shapes
    ]  # fmt: skip


def _written_by_hand(module: HloModule) -> set[HloInstruction]:
    """Return the instructions of ``shard_map``, where each device does what the user wrote."""
    by_hand: set[HloInstruction] = set()
    left = [c for c in module.computations.values() if _BY_HAND.search(c.name)]
    for computation in module.computations.values():
        for x in computation.instructions:
            if _BY_HAND.search(x.attributes.get("metadata", "")):
                by_hand.add(x)
                left += called(module, x)
    seen: set[str] = set()
    while left:
        computation = left.pop()
        if computation.name not in seen:
            seen.add(computation.name)
            by_hand.update(computation.instructions)
            left += [inner for x in computation.instructions for inner in called(module, x)]
    return by_hand


def _leaving(module: HloModule, by_hand: set[HloInstruction]) -> set[HloInstruction]:
    """Return the instructions of a ``shard_map`` whose results are used outside of it."""
    left: list[HloInstruction] = []
    for computation in module.computations.values():
        for x in computation.instructions:
            if x not in by_hand:
                given = [computation.by_name.get(name) for name in x.operands]
                left += [y for y in given if y is not None and y in by_hand]
    leaving: set[HloInstruction] = set()
    while left:
        x = left.pop()
        if x not in leaving:
            leaving.add(x)
            left += [c.result for c in called(module, x) if x.opcode in ("call", "fusion")]
    return leaving


def _unsummed(x: Value) -> Value:
    """Return values of a ``shard_map``, whose results are no sums over devices."""
    if isinstance(x, tuple):
        return tuple(_unsummed(part) for part in x)
    if isinstance(x, ValueState) and x.partial:
        return replace(x, partial=frozenset(), stacked=x.stacked | x.partial)
    return x


_CALLS = ("calls", "to_apply", "branch_computations", "true_computation", "false_computation",
          "body", "condition")  # fmt: skip


def called(module: HloModule, x: HloInstruction) -> list[HloComputation]:
    """Return the computations that an instruction names."""
    names = [name for key in _CALLS
             for name in re.findall(r"%?([\w.\-<>]+)", x.attributes.get(key, ""))]  # fmt: skip
    return [module.computations[name] for name in names]


def typed(module: HloModule, pieces: MeshPieces) -> Typing:
    """Return the types of all values of a module, on a mesh."""
    return Typer(module, pieces).run()


class Typer:
    def __init__(self, module: HloModule, pieces: MeshPieces):
        self.module, self.pieces = module, pieces
        self.rules = HloRules(pieces, module.devices, module.computations)
        self.by_hand = _written_by_hand(module)
        self.leaving = _leaving(module, self.by_hand)
        self.made = Typing()

    def run(self) -> Typing:
        entry = self.module.entry
        for value in flat(self.computation(entry, [self.parameter(x) for x in entry.parameters])):
            if isinstance(value, Untyped):
                self.made.problems.append(value.reason)
            elif value.partial or value.stacked:
                self.made.problems.append("a result is no block of an array")
        return self.made

    def parameter(self, x: HloInstruction) -> Value:
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
                values.append(ValueState().with_dims(dims))
            except (GroupsError, NotTyped) as error:
                values.append(Untyped(f"the sharding of {x.name}: {error}", x.line))
        return shaped(values, x.shape)

    def computation(self, computation: HloComputation, given: Sequence[Value]) -> Value:
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

    def instruction(self, x: HloInstruction, operands: list[Value]) -> Value:
        """Return the value of an instruction.

        Raises:
            NotTyped: it is not known.
        """
        made = self._of(x, operands)
        if x not in self.leaving or not any(
            isinstance(y, ValueState) and y.partial for y in flat(made)
        ):
            return made
        self.made.by_hand.add(x)
        return _unsummed(made)

    def _of(self, x: HloInstruction, operands: list[Value]) -> Value:
        inner = called(self.module, x)
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

    def operation(self, x: HloInstruction, operands: Sequence[Value]) -> Value:
        """Return the value of an operation on arrays."""
        states: list[ValueState] = []
        for value in operands:
            if isinstance(value, Untyped):
                raise NotTyped(f"{value.reason} (line {value.line})" if "(line" not in value.reason
                               else value.reason)  # fmt: skip
            if isinstance(value, tuple):
                raise NotTyped(f"{x.opcode} takes a tuple")
            states.append(value)
        if x.shape.parts is None:
            return self.result(x, states)
        parts = [replace(x, shape=part) for part in x.shape.parts]
        return tuple(self.result(x, states, part) for part in parts)

    def result(
        self, x: HloInstruction, states: list[ValueState], part: HloInstruction | None = None
    ) -> ValueState:
        """Return how one result of an operation lies.

        Raises:
            NotTyped: that is not known.
        """
        try:
            return self.rules.result(part or x, states)
        except NotTyped:
            if x not in self.by_hand:
                raise
            self.made.by_hand.add(x)
            return self.rules.result(part or x, [stack_of(state) for state in states])

    def constant(self, x: HloInstruction) -> Value:
        """Return a constant; small ones of integers are known."""
        is_integer = x.shape.dtype[0] in "sup"
        text = x.inside.replace("true", "1").replace("false", "0")
        if text == "{...}" and is_integer and x.shape.sizes == (self.module.devices,):
            self.made.hidden.add(x)
            return replace(whole(x.shape.sizes), is_hidden=True)
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

    def loop(self, x: HloInstruction, carried: Value) -> Value:
        """Return the results of a loop, whose carries lie in the same way each time."""
        body = self.module.computations[x.attributes["body"].strip("%")]
        carried = _untabled(carried)
        for _ in range(_ROUNDS):
            made = _untabled(self.computation(body, [carried]))
            both = self._meet(carried, made, x)
            if str(both) == str(carried):
                break
            carried = both
        return carried

    def _meet(self, x: Value, y: Value, loop: HloInstruction) -> Value:
        """Return what is true of both values of a carry."""
        if isinstance(x, tuple) and isinstance(y, tuple):
            return tuple(self._meet(a, b, loop) for a, b in zip(x, y, strict=False))
        if isinstance(x, ValueState) and isinstance(y, ValueState):
            try:
                return _both(x, y)
            except NotTyped as error:
                if loop not in self.by_hand:
                    return Untyped(str(error), loop.line)
                self.made.by_hand.add(loop)
                return _both(stack_of(x), stack_of(y))
        return next(v for v in (x, y) if not isinstance(v, ValueState))

    def collective(self, x: HloInstruction, operands: list[Value]) -> Value:
        """Return the results of a collective, and note whether it is typed."""
        sent = InferredCollective(x, None, tuple(operands))
        self.made.sent[x] = sent
        shapes = self.results(x)
        try:
            digits = _groups(x, self.module.devices, self.module.partitions > 1)
            sent.over = self.pieces.of(digits)
        except GroupsError as error:
            sent.reason = str(error)
        made: list[Value] = []
        for value in operands:
            try:
                if sent.over is None:
                    raise NotTyped(sent.reason)
                made.append(self._sent(x, value, sent.over, shapes))
            except NotTyped as error:
                sent.reason = sent.reason or str(error)
                made.append(Untyped(f"{x.name}: {error}", x.line))
        sent.made = tuple(made)
        return made[0] if len(shapes) == 1 and len(made) == 1 else tuple(made)

    @staticmethod
    def results(x: HloInstruction) -> list[HloShape]:
        """Return the shapes of the arrays that a collective gives; starts have their operands in
        front, and some have numbers behind."""
        parts = x.shape.parts
        if parts and x.opcode.endswith("-start") and x.base != "all-reduce":
            return [*parts[min(1, len(parts) - 1)].arrays]
        return [*x.shape.arrays]

    def _sent(
        self, x: HloInstruction, value: Value, over: tuple[int, ...], shapes: Sequence[HloShape]
    ) -> Value:
        if not isinstance(value, ValueState):
            reason = value.reason if isinstance(value, Untyped) else "it takes a tuple"
            line = value.line if isinstance(value, Untyped) else x.line
            raise NotTyped(reason if "(line" in reason else f"{reason} (line {line})")
        try:
            made = self._known(x, value, over)
        except NotTyped:
            if x not in self.by_hand:
                raise
            self.made.by_hand.add(x)
            made = sent_by_hand(self.rules, x, value, self.made.sent[x].over or over)
        sizes = {shape.sizes for shape in shapes}
        if made.sizes not in sizes:
            raise NotTyped(f"its blocks would be {[*made.sizes]}")
        return made

    def _known(self, x: HloInstruction, value: ValueState, over: tuple[int, ...]) -> ValueState:
        """Return the result of a collective by its rule.

        Raises:
            NotTyped: its operand does not lie so.
        """
        match x.base:
            case "all-reduce":
                kind = self.rules.reducer(x.attributes.get("to_apply", ""))
                return all_reduced(self.rules, value, over, kind)
            case "all-gather":
                return all_gathered(self.rules, value, over, x.numbers("dimensions")[0])
            case "reduce-scatter":
                kind = self.rules.reducer(x.attributes.get("to_apply", ""))
                dim = x.numbers("dimensions")[0]
                return reduce_scattered(self.rules, value, over, dim, kind)
            case "all-to-all":
                dims = x.numbers("dimensions")
                return exchanged(self.rules, value, over, dims[0] if dims else None)
            case "collective-permute":
                made, moved = permuted(self.rules, value, pairs_of(x))
                self.made.sent[x].over = tuple(moved)
                return made
            case _:
                raise NotTyped(f"there is no rule for {x.base}")


def flat(value: Value) -> Iterator[ValueState | Untyped]:
    if isinstance(value, tuple):
        for part in value:
            yield from flat(part)
    else:
        yield value


def shaped(values: Sequence[Value], shape: HloShape) -> Value:
    """Return values of arrays as the parts of a shape."""
    left = iter(values)

    def made(own: HloShape) -> Value:
        return next(left) if own.parts is None else tuple(made(part) for part in own.parts)

    return made(shape)


def _untabled(value: Value) -> Value:
    """Return values of a loop, whose numbers are others each time."""
    if isinstance(value, tuple):
        return tuple(_untabled(part) for part in value)
    return replace(value, table=None, number=value.number if value.number == 0 else None) \
        if isinstance(value, ValueState) else value  # fmt: skip


def _both(x: ValueState, y: ValueState) -> ValueState:
    """Return what is true of two values.

    Raises:
        NotTyped: they lie in different ways.
    """
    number = x.number if x.number == y.number else None
    zero = [v for v in (x, y) if v.number == 0]
    whole_operand = y if x.number == 0 else x
    if x.partial != y.partial and not zero:
        raise NotTyped("a loop carries a value that is partial in another way each time")
    try:
        made = joined([replace(v, partial=frozenset()) for v in (x, y)])
    except NotTyped as error:
        message = "a loop carries a value that lies in another way each time"
        raise NotTyped(message) from error
    whole = replace(whole_operand, dims=(), stacked=made.stacked, number=number, table=None)
    return whole.with_dims(made.dims)
