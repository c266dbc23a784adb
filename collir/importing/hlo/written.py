"""A program of XLA as a function in ``.coll``.

Where it is known what a value is a block of, it is written with the type of the whole array, and
the steps that made it are steps on arrays. Elsewhere a value has the type of a block, as if every
device had the same, which costs the same: `reinterpret` stands between.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from collir.importing.hlo.groups import permuted_digits
from collir.importing.hlo.inference import (
    Typer,
    Untyped,
    Value,
    called,
    flat,
    is_collective,
    pairs_of,
    shaped,
)
from collir.importing.hlo.loops import HloLoop, loop_of
from collir.importing.hlo.mesh import MeshPieces
from collir.importing.hlo.states import Along, NotTyped, ValueState, of_table, whole
from collir.importing.hlo.text import HloComputation, HloInstruction, HloModule, HloShape
from collir.importing.values import MALFORMED
from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position
from collir.layout.coll import STEPS

DTYPES = {
    "pred": "bool", "s8": "i8", "u8": "u8", "s16": "i16", "u16": "i16", "s32": "i32", "u32": "i32",
    "s64": "i64", "u64": "i64", "f16": "f16", "bf16": "bf16", "f32": "f32", "f64": "f64",
    "c64": "f64",
}  # fmt: skip
"""The dtypes in ``.coll``; others have the bytes of ``i8``."""


class NotWritten(Exception):
    """An instruction that is no step on arrays."""


@dataclass(frozen=True)
class WrittenValue:
    """A value that is written.

    Attributes:
        value: what is known of it.
        state: its state as written: the state of the value, or of a block on all devices.
        is_block: whether it is written as a block.
    """

    name: str
    shape: HloShape
    value: ValueState | Untyped
    state: ValueState
    is_block: bool


Cells = WrittenValue | tuple[Any, ...]


def _flops(x: HloInstruction, shape: HloShape, given: Sequence[WrittenValue]) -> int:
    """Return the number of floating-point operations of an instruction.

    A product has two for each term of its sums; another instruction has one for each element of the
    largest among its operands and its result.
    """
    sizes = [cell.shape.sizes for cell in given]
    if x.opcode == "convolution" and len(sizes) > 1:
        labels = re.fullmatch(r"\w+_(\w+)->\w+", x.attributes.get("dim_labels", ""))
        features = sizes[1][labels[1].index("o")] if labels else 1
        return 2 * shape.elements * (math.prod(sizes[1]) // max(1, features))
    if x.opcode in ("dot", "custom-call") and len(sizes) > 1:
        text = x.attributes.get("backend_config", "") if x.opcode == "custom-call" else ""
        contracting = re.search(r'lhs_contracting_dimensions"?:\s*\[([^\]]*)\]', text)
        dims = (
            re.findall(r"\d+", contracting[1])
            if contracting
            else map(str, x.numbers("lhs_contracting_dims"))
        )
        summed = math.prod(sizes[0][int(d)] for d in dims if int(d) < len(sizes[0]))
        return 2 * shape.elements * summed if contracting or x.opcode == "dot" else shape.elements
    return max([shape.elements, *map(math.prod, sizes)])


class HloWriter:
    """Writes the function of a module.

    Attributes:
        typer: knows what values are blocks of.
        lines: the lines so far.
        opaque: how often opcodes are costed by their operations alone.
        sources: the line of the user's Python of each collective, by its name in the function.
        problems: which results of the program are no blocks of arrays.
        has_blocks: whether all values are written as blocks that all devices have.
    """

    def __init__(self, module: HloModule, pieces: MeshPieces, file: str, has_blocks: bool = False):
        self.module, self.pieces, self.file = module, pieces, file
        self.has_blocks = has_blocks
        self.typer = Typer(module, pieces)
        self.lines: list[str] = []
        self.opaque: dict[str, int] = {}
        self.sources: dict[str, str] = {}
        self.problems: list[str] = []
        self._names: set[str] = set()
        self._views: dict[str, tuple[str, list[int]]] = {}
        self.indent = "  "

    def inner(self) -> "HloWriter":
        """Return the writer of a body inside, whose names are its own."""
        made = copy(self)
        made.lines, made._names, made.indent = [], set(), self.indent + "  "
        made._views = {}
        return made

    # --- text -----------------------------------------------------------------------------------

    def name(self, hint: str) -> str:
        """Return a name that no other value has."""
        hint = re.sub(r"\W+", "_", hint).strip("_").lower() or "x"
        hint = f"x_{hint}" if hint[0].isdigit() else hint
        made, number = hint, 1
        while made in self._names:
            made, number = f"{hint}_{number}", number + 1
        self._names.add(made)
        return made

    def line(self, text: str) -> None:
        """Add a line."""
        self.lines.append(self.indent + text)

    def step(self, text: str, hint: str) -> str:
        """Add a step, and return the name of its result."""
        name = self.name(hint)
        self.line(f"%{name} = {text}")
        return name

    def reshaped(self, name: str, before: Sequence[int], after: Sequence[int]) -> str:
        """Return the name of an array with other sizes, whose elements stay in order."""
        source, sizes = self._views.get(name, (name, [*before]))
        if sizes == [*after]:
            return source
        made = self.step(f"reshape %{source} to [{', '.join(map(str, after))}]", source)
        self._views[made] = source, sizes
        return made

    def end(self, keyword: str, names: Sequence[str]) -> None:
        """Add the last line, and leave out the steps that nothing reads."""
        self.line(f"{keyword} {', '.join(f'%{name}' for name in names)}")
        self.lines = pruned(self.lines, set())

    def size_of(self, pieces: Iterable[int]) -> int:
        """Return the number of devices along pieces."""
        return math.prod(map(self.typer.rules.size_of, pieces))

    def sizes(self, state: ValueState) -> list[int]:
        """Return the sizes of an array as it is written: 1 where elements are equal along a
        dimension, and none if all of them are."""
        if all(d.axes is None for d in state.dims):
            return []
        return [1 if d.axes is None else d.size * self.size_of(d.axes) for d in state.dims]

    def listed(self, pieces: Iterable[int]) -> str:
        """Return pieces as they are written behind ``over``."""
        return self.pieces.listed(pieces)

    def type(self, dtype: str, state: ValueState) -> str:
        """Return the type of an array."""
        dims = [f"{size}{self.axes(d.pieces)}"
                for size, d in zip(self.sizes(state), state.dims, strict=False)]  # fmt: skip
        text = f"{DTYPES.get(dtype, 'i8')}[{', '.join(dims)}]"
        if state.partial:
            text += f" partial({state.kind}: {self.listed(sorted(state.partial))})"
        return text

    def axes(self, pieces: Sequence[int]) -> str:
        """Return the axes behind the size of a dimension."""
        text = self.listed(pieces)
        return "" if not text else f"@({text})" if "," in text else f"@{text}"

    # --- cells ----------------------------------------------------------------------------------

    def cell(
        self, name: str, shape: HloShape, value: ValueState | Untyped, state: ValueState
    ) -> WrittenValue:
        """Return a value that is written as an array."""
        return WrittenValue(name, shape, value, state, False)

    def computed(self, cell: WrittenValue) -> WrittenValue:
        """Return a value that is written; numbers that are known on each device were not yet."""
        if cell.name or not isinstance(cell.value, ValueState):
            return cell
        table = cell.value.table
        assert table is not None
        if cell.value.number is not None:
            state = replace(cell.value, table=None)
            number = int(cell.value.number)
            text = f"constant value {number} to {DTYPES.get(cell.shape.dtype, 'i8')}[]"
            return WrittenValue(self.step(text, "c"), cell.shape, cell.value, state, False)
        state = whole(cell.shape.sizes)
        self.opaque["partition-id"] = self.opaque.get("partition-id", 0) + 1
        to = self.type(cell.shape.dtype, state)
        name = self.step(f"constant value 0 to {to}", "of_device")
        return WrittenValue(name, cell.shape, cell.value, state, True)

    def block(self, cell: WrittenValue) -> WrittenValue:
        """Return a value as a block that all devices have."""
        cell = self.computed(cell)
        if cell.is_block:
            return cell
        cell = self.full(cell)
        own = whole(cell.shape.sizes)
        if cell.state.axes or cell.state.partial:
            to = self.type(cell.shape.dtype, own)
            name = self.step(f"reinterpret %{cell.name} to {to}", cell.name)
            return WrittenValue(name, cell.shape, cell.value, own, True)
        return replace(cell, state=own, is_block=True)

    def full(self, cell: WrittenValue, dims: Sequence[int] | None = None) -> WrittenValue:
        """Return a value that is not written with 1 for sizes of equal elements."""
        cell = self.computed(cell)
        wanted = range(len(cell.state.dims)) if dims is None else dims
        if not any(cell.state.dims[d].axes is None for d in wanted):
            return cell
        made = tuple(Along(d.size) if n in wanted and d.axes is None else d
                     for n, d in enumerate(cell.state.dims))  # fmt: skip
        state = replace(cell.state, dims=made)
        if self.sizes(state) == self.sizes(cell.state):
            return replace(cell, state=state)
        to = self.type(cell.shape.dtype, replace(state, partial=frozenset()))
        name = self.step(f"broadcast_to %{cell.name} to {to}", cell.name)
        return replace(cell, name=name, state=state)

    def reinterpreted(self, cell: WrittenValue, state: ValueState) -> WrittenValue:
        """Return a block as one of an array."""
        cell = self.block(cell)
        to = self.type(cell.shape.dtype, state)
        if to == self.type(cell.shape.dtype, cell.state):
            return cell
        name = self.step(f"reinterpret %{cell.name} to {to}", cell.name)
        return WrittenValue(name, cell.shape, cell.value, state, False)

    # --- instructions ---------------------------------------------------------------------------

    def computation(self, computation: HloComputation, given: Sequence[Cells]) -> Cells:
        """Write a computation, and return its result."""
        cells: dict[str, Cells] = {}
        for x in computation.instructions:
            try:
                if x.opcode == "parameter":
                    cells[x.name] = given[int(x.inside)]
                else:
                    cells[x.name] = self.instruction(x, [cells[name] for name in x.operands])
            except MALFORMED as error:
                what = f"{x.name} is not understood: it has not the operands or attributes of XLA"
                raise self.fault(what, x) from error
        return cells[computation.result.name]

    def fault(self, message: str, x: HloInstruction) -> DiagnosticError:
        """Return an error at the line of an instruction."""
        return DiagnosticError(Diagnostic(message, Position(self.file, x.line, 1)))

    def instruction(self, x: HloInstruction, operands: list[Cells]) -> Cells:
        """Write an instruction, and return its result."""
        if is_collective(x) and x.opcode != "async-start":
            return self.collective(x, operands)
        match x.opcode:
            case "tuple":
                return tuple(operands)
            case "get-tuple-element":
                [number], own = x.numbers("index"), operands[0]
                return own[number] if isinstance(own, tuple) else own
            case "opt-barrier" | "optimization-barrier" | "domain" | "copy-start" | "copy-done":
                return operands[0]
            case "call" | "fusion" | "async-start":
                return self.computation(called(self.module, x)[0], operands)
            case "while":
                return self.loop(x, operands[0])
            case _ if x.opcode.endswith(("-done", "-update")):
                return operands[0]
            case _:
                return self.operation(x, operands)

    def values(self, cells: Cells) -> Value:
        """Return what is known of values."""
        if isinstance(cells, tuple):
            return tuple(self.values(part) for part in cells)
        return cells.value

    def operation(self, x: HloInstruction, operands: Sequence[Cells]) -> Cells:
        """Write an operation on arrays."""
        try:
            made = self.typer.instruction(x, [self.values(cell) for cell in operands])
        except (NotTyped, *MALFORMED) as error:
            made = shaped([Untyped(str(error), x.line)] * len([*x.shape.arrays]), x.shape)
        given = [cell for own in operands for cell in cells_of(own)]
        if x.shape.parts is not None:
            values = [*flat(made)]
            made_of = [self._opaque(x, shape, value, given)
                       for shape, value in zip(x.shape.arrays, values, strict=True)]  # fmt: skip
            return shape_cells(made_of, x.shape)
        assert not isinstance(made, tuple)
        if isinstance(made, ValueState) and made.table is not None:
            return self.cell("", x.shape, made, made)
        if x.opcode != "dynamic-slice":
            given = [self.computed(cell) for cell in given]
        write = _STEPS.get(x.opcode)
        if write is None:
            return self._opaque(x, x.shape, made, given)
        is_array = isinstance(made, ValueState) and not made.stacked and not self.has_blocks
        arrays = given[:1] if x.opcode == "dynamic-slice" else given
        if is_array and not any(c.is_block for c in arrays):
            assert isinstance(made, ValueState)
            before = len(self.lines)
            try:
                return self.cell(write(self, x, given, made), x.shape, made, made)
            except (NotWritten, NotTyped, *MALFORMED):
                del self.lines[before:]
        before = len(self.lines)
        try:
            state = whole(x.shape.sizes)
            name = write(self, x, [self.block(cell) for cell in given], state)
            return WrittenValue(name, x.shape, made, state, True)
        except (NotWritten, NotTyped, *MALFORMED):
            del self.lines[before:]
        return self._opaque(x, x.shape, made, given)

    def _opaque(
        self,
        x: HloInstruction,
        shape: HloShape,
        value: ValueState | Untyped,
        given: Sequence[WrittenValue],
    ) -> WrittenValue:
        """Write an instruction as the time that its operations take."""
        state = whole(shape.sizes)
        self.opaque[x.opcode] = self.opaque.get(x.opcode, 0) + 1
        blocks = [self.block(cell) for cell in given]
        same = [c for c in blocks if DTYPES.get(c.shape.dtype) == DTYPES.get(shape.dtype)
                and c.shape.sizes == shape.sizes]  # fmt: skip
        to = self.type(shape.dtype, state)
        first = same[0].name if same else self.step(f"constant value 0 to {to}", x.opcode)
        others = [c.name for c in blocks if c.name != first]
        flops = _flops(x, shape, given) if shape.dtype[0] in "fb" else 0
        names = ", ".join(f"%{name}" for name in dict.fromkeys([first, *others]))
        name = self.step(f"compute {names} flops {flops}", x.opcode)
        return WrittenValue(name, shape, value, state, True)

    # --- loops ----------------------------------------------------------------------------------

    def loop(self, x: HloInstruction, given: Cells) -> Cells:
        """Write a loop: what is read or written slice by slice is sliced or stacked."""
        values = self.typer.loop(x, self.values(given))
        found = loop_of(self.module, x)
        if found is None:
            raise self.fault(f"it is not known how often {x.name} runs: no count is in the text", x)
        cells, states = [*cells_of(given)], [*flat(values)]
        return _loop(self, x, found, cells, states)

    # --- collectives ----------------------------------------------------------------------------

    def collective(self, x: HloInstruction, operands: Sequence[Cells]) -> Cells:
        """Write a collective."""
        given = [cell for own in operands for cell in cells_of(own)]
        made = self.typer.collective(x, [cell.value for cell in given])
        sent = self.typer.made.sent[x]
        values, shapes = [*flat(made)], self.typer.results(x)
        is_async = " async" if x.opcode.endswith("-start") else ""
        results: list[WrittenValue] = []
        if x.base == "all-to-all" and len(given) > 1:
            results = _exchanged_parts(self, x, given, values, sent.over, is_async)
        else:
            for cell, value, shape in zip(given, values, shapes, strict=True):
                results.append(_one(self, x, cell, value, shape, sent.over, is_async))
        for cell in results:
            if x.source:
                self.sources[cell.name] = x.source
        return results[0] if len(results) == 1 and x.shape.parts is None else (
            results[0] if len(results) == 1 else tuple(results)
        )  # fmt: skip

    def function(self) -> str:
        """Return the text of the function."""
        entry = self.module.entry
        arguments: list[str] = []
        given: list[Cells] = []
        for x in entry.parameters:
            cells: list[WrittenValue] = []
            named = _ARGUMENT.search(x.attributes.get("metadata", ""))
            for shape, value in zip(x.shape.arrays, flat(self.typer.parameter(x)), strict=True):
                name = self.name(named[1] if named else x.name)
                state = value if isinstance(value, ValueState) else whole(shape.sizes)
                arguments.append(f"%{name}: {self.type(shape.dtype, state)}")
                cells.append(WrittenValue(name, shape, value, state, isinstance(value, Untyped)))
            given.append(shape_cells(cells, x.shape))
        results = [self.full(cell) for cell in cells_of(self.computation(entry, given))]
        for number, cell in enumerate(results):
            value = cell.value
            if isinstance(value, Untyped):
                self.problems.append(f"result {number} is not typed: {value.reason}")
            elif value.partial or value.stacked:
                how = "partial over" if value.partial else "another array on each device along"
                over = self.listed(sorted(value.partial or value.stacked))
                self.problems.append(f"result {number} is {how} {over}")
        self.end("return", [cell.name for cell in results])
        types = [self.type(cell.shape.dtype, cell.state) for cell in results]
        made = types[0] if len(types) == 1 else f"({(',' + chr(10) + '        ').join(types)})"
        listed = (",\n     ").join(arguments)
        name = re.sub(r"[^0-9A-Za-z_]", "_", self.module.name)
        name = f"{name}_" if name in ("m", "cluster") else name
        head = f"func @{name}\n    ({listed})\n    -> {made} on @m {{"
        return "\n".join([head, *self.lines, "}", ""])


_ARGUMENT = re.compile(r'op_name="([^"/]+)"')
"""The name JAX gives an argument: its path in a pytree, as in ``params['layers'][0]``."""

_NAMED = re.compile(r"\s*%(\w+) = (\w+) ")
_KEPT = frozenset({"repeat", *(name for name, kind in STEPS.items() if kind.sends)})
"""The steps that stay although nothing reads their results."""


def pruned(lines: Sequence[str], used: set[str]) -> list[str]:
    """Return lines without unused steps of a single result, except sends."""
    kept: list[str] = []
    for line in reversed(lines):
        made = _NAMED.match(line)
        if made is None or made[1] in used or made[2] in _KEPT:
            used.update(re.findall(r"%([\w.]+)", line[made.end() :] if made else line))
            kept.append(line)
    return kept[::-1]


def cells_of(cells: Cells) -> list[WrittenValue]:
    """Return all values of a tuple."""
    if isinstance(cells, tuple):
        return [cell for part in cells for cell in cells_of(part)]
    return [cells]


def shape_cells(cells: Sequence[WrittenValue], shape: HloShape) -> Cells:
    """Return values as the parts of a shape."""
    left = iter(cells)

    def made(own: HloShape) -> Cells:
        return next(left) if own.parts is None else tuple(made(part) for part in own.parts)

    return made(shape)


# --- steps ----------------------------------------------------------------------------------------

Step = Callable[[HloWriter, HloInstruction, Sequence[WrittenValue], ValueState], str]
_STEPS: dict[str, Step] = {}


def _step(*names: str) -> Callable[[Step], Step]:
    def add(function: Step) -> Step:
        _STEPS.update(dict.fromkeys(names, function))
        return function

    return add


_ONE = {
    "negate": "neg", "exponential": "exp", "log": "log", "sqrt": "sqrt", "rsqrt": "rsqrt",
    "tanh": "tanh", "logistic": "sigmoid", "sine": "sin", "cosine": "cos", "erf": "erf",
}  # fmt: skip
_TWO = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "maximum": "maximum",
    "minimum": "minimum",
}  # fmt: skip
_COMPARED = {
    "GT": "greater", "GE": "greater_equal", "LT": "less", "LE": "less_equal", "EQ": "equal",
    "NE": "not_equal",
}  # fmt: skip


def _is_float(cell: WrittenValue) -> bool:
    return cell.shape.dtype[0] in "fb"


@_step(*_ONE)
def _map(w: HloWriter, x: HloInstruction, given: Sequence[WrittenValue], state: ValueState) -> str:
    if x.opcode != "negate" and not _is_float(given[0]):
        raise NotWritten
    return w.step(f"{_ONE[x.opcode]} %{given[0].name}", _ONE[x.opcode])


@_step(*_TWO)
def _two(w: HloWriter, x: HloInstruction, given: Sequence[WrittenValue], state: ValueState) -> str:
    if x.shape.dtype == "pred" or (x.opcode == "divide" and not _is_float(given[0])):
        raise NotWritten
    op = _TWO[x.opcode]
    if any(cell.state.partial for cell in given) and not all(cell.state.partial for cell in given):
        given = [w.full(cell) for cell in given]
        if op in ("add", "sub"):
            raise NotWritten
    return w.step(f"{op} {', '.join(f'%{cell.name}' for cell in given)}", op)


@_step("and", "or")
def _truth(
    w: HloWriter, x: HloInstruction, given: Sequence[WrittenValue], state: ValueState
) -> str:
    if x.shape.dtype != "pred":
        raise NotWritten
    number = w.step(f"constant value {int(x.opcode == 'or')} to bool[]", "c")
    a, b = (cell.name for cell in given)
    order = f"%{a}, %{b}, %{number}" if x.opcode == "and" else f"%{a}, %{number}, %{b}"
    return w.step(f"where {order}", x.opcode)


@_step("abs")
def _abs(w: HloWriter, x: HloInstruction, given: Sequence[WrittenValue], state: ValueState) -> str:
    negative = w.step(f"neg %{given[0].name}", "neg")
    return w.step(f"maximum %{given[0].name}, %{negative}", "abs")


@_step("compare")
def _compare(
    w: HloWriter, x: HloInstruction, given: Sequence[WrittenValue], state: ValueState
) -> str:
    op = _COMPARED.get(x.attributes.get("direction", ""))
    if op is None or given[0].shape.dtype == "pred":
        raise NotWritten
    return w.step(f"{op} {', '.join(f'%{cell.name}' for cell in given)}", op)


@_step("select")
def _select(
    w: HloWriter, x: HloInstruction, given: Sequence[WrittenValue], state: ValueState
) -> str:
    if state.partial:
        raise NotWritten
    return w.step(f"where {', '.join(f'%{cell.name}' for cell in given)}", "where")


@_step("clamp")
def _clamp(
    w: HloWriter, x: HloInstruction, given: Sequence[WrittenValue], state: ValueState
) -> str:
    low, own, high = (cell.name for cell in given)
    least = w.step(f"maximum %{own}, %{low}", "maximum")
    return w.step(f"minimum %{least}, %{high}", "minimum")


@_step("convert", "copy", "reduce-precision")
def _convert(
    w: HloWriter, x: HloInstruction, given: Sequence[WrittenValue], state: ValueState
) -> str:
    [own] = given
    before, after = DTYPES.get(own.shape.dtype), DTYPES.get(x.shape.dtype)
    if before == after:
        return own.name
    if before is None or after is None or (after == "bool"):
        raise NotWritten
    return w.step(f"cast %{own.name} to {after}", "cast")


@_step("constant")
def _constant(
    w: HloWriter, x: HloInstruction, given: Sequence[WrittenValue], state: ValueState
) -> str:
    if state.number is None or not math.isfinite(state.number):
        number = {"inf": "inf", "-inf": "-inf"}.get(x.inside.strip(), "")
        if not number or not _is_float_shape(x.shape):
            raise NotWritten
    else:
        number = repr(state.number) if _is_float_shape(x.shape) else str(int(state.number))
    return w.step(f"constant value {number} to {w.type(x.shape.dtype, state)}", "c")


def _is_float_shape(shape: HloShape) -> bool:
    return shape.dtype[0] in "fb"


@_step("iota")
def _iota(w: HloWriter, x: HloInstruction, given: Sequence[WrittenValue], state: ValueState) -> str:
    [dim] = x.numbers("iota_dimension")
    dtype = x.shape.dtype if x.shape.dtype[0] in "su" else "s32"
    name = w.step(f"iota dim {dim} to {w.type(dtype, state)}", "iota")
    return name if dtype == x.shape.dtype else w.step(
        f"cast %{name} to {DTYPES[x.shape.dtype]}", "iota"
    )  # fmt: skip


@_step("broadcast")
def _broadcast(
    w: HloWriter, x: HloInstruction, given: Sequence[WrittenValue], state: ValueState
) -> str:
    """The operand with sizes of 1 where its elements are repeated."""
    [own], places = given, x.numbers("dimensions")
    if not w.sizes(own.state) and not w.sizes(state):
        return own.name
    own = w.full(own) if not w.sizes(own.state) and own.state.dims else own
    kept = dict(zip(places, w.sizes(own.state), strict=True))
    had = [kept.get(d, 1) for d in range(len(x.shape.sizes))]
    name = w.reshaped(own.name, w.sizes(own.state), had)
    if had == w.sizes(state):
        return name
    return w.step(f"broadcast_to %{name} to {w.type(x.shape.dtype, state)}", "broadcast")


@_step("reshape", "bitcast")
def _reshape(
    w: HloWriter, x: HloInstruction, given: Sequence[WrittenValue], state: ValueState
) -> str:
    if not w.sizes(given[0].state) and not w.sizes(state):
        return given[0].name
    own = w.full(given[0])
    if x.shape.elements != own.shape.elements or own.shape.dtype != x.shape.dtype:
        raise NotWritten
    sizes = [d.size * w.size_of(d.pieces) for d in state.dims]
    name = w.reshaped(own.name, w.sizes(own.state), sizes)
    if any(d.axes is None and d.size != 1 for d in state.dims):
        raise NotWritten  # all its elements are equal
    return name


@_step("transpose")
def _transpose(
    w: HloWriter, x: HloInstruction, given: Sequence[WrittenValue], state: ValueState
) -> str:
    order = x.numbers("dimensions")
    if order == sorted(order) or not w.sizes(given[0].state):
        return given[0].name
    return w.step(f"transpose %{given[0].name} order [{', '.join(map(str, order))}]", "transpose")


@_step("slice")
def _slice(
    w: HloWriter, x: HloInstruction, given: Sequence[WrittenValue], state: ValueState
) -> str:
    bounds = re.findall(r"\[(\d+):(\d+)(?::(\d+))?\]", x.attributes.get("slice", ""))
    name = given[0].name
    for dim, (start, end, step) in enumerate(bounds):
        size, own = given[0].state.dims[dim].size, given[0].state.dims[dim]
        if step not in ("", "1"):
            raise NotWritten
        low, high = -int(start), int(end) - size
        if (low or high) and own.axes is not None:
            if own.axes:
                raise NotWritten
            parts = f"{f' low {low}' if low else ''}{f' high {high}' if high else ''}"
            name = w.step(f"pad %{name} dim {dim}{parts}", "slice")
    return name


@_step("pad")
def _pad(w: HloWriter, x: HloInstruction, given: Sequence[WrittenValue], state: ValueState) -> str:
    own, value = w.full(given[0]), given[1].state.number
    if value is None or not math.isfinite(value):
        raise NotWritten
    name = own.name
    for dim, part in enumerate(x.attributes.get("padding", "").split("x")):
        low, high, inner, *_ = (*map(int, part.split("_")), 0, 0)
        if len(part.split("_")) == 3 and inner:
            raise NotWritten
        if low or high:
            if own.state.dims[dim].pieces:
                raise NotWritten
            amounts = f"{f' low {low}' if low else ''}{f' high {high}' if high else ''}"
            filled = f" value {value!r}" if value and max(low, high) > 0 else ""
            name = w.step(f"pad %{name} dim {dim}{amounts}{filled}", "pad")
    return name


@_step("concatenate")
def _concatenate(
    w: HloWriter, x: HloInstruction, given: Sequence[WrittenValue], state: ValueState
) -> str:
    [dim] = x.numbers("dimensions")
    names = ", ".join(f"%{w.full(cell).name}" for cell in given)
    return w.step(f"concat {names} dim {dim}", "concat") if len(given) > 1 else given[0].name


@_step("dynamic-slice")
def _dynamic_slice(
    w: HloWriter, x: HloInstruction, given: Sequence[WrittenValue], state: ValueState
) -> str:
    """The block of each device, or elements at a place that is computed."""
    own, *starts = given
    name = own.name
    if not w.sizes(own.state):
        return name
    for dim, (before, after) in enumerate(zip(own.state.dims, state.dims, strict=True)):
        if before.size == after.size:
            continue
        if after.pieces != before.pieces:
            over = w.listed(after.pieces[len(before.pieces) :])
            name = w.step(f"slice %{name} over {over} dim {dim}", "slice")
            continue
        start = w.computed(starts[dim])
        if before.axes is None or before.axes or start.state.stacked:
            raise NotWritten
        place = w.step(f"reshape %{start.name} to [1]", "place")
        if after.size != 1:
            count = w.step(f"iota dim 0 to {DTYPES[start.shape.dtype]}[{after.size}]", "iota")
            place = w.step(f"add %{place}, %{count}", "places")
        name = w.step(f"take %{name}, %{place} dim {dim}", "take")
    return name


@_step("reduce")
def _reduce(
    w: HloWriter, x: HloInstruction, given: Sequence[WrittenValue], state: ValueState
) -> str:
    kind = {"sum": "sum", "max": "max", "min": "min"}.get(
        w.typer.rules.reducer(x.attributes.get("to_apply", "")), ""
    )
    if not kind or x.shape.dtype == "pred" or len(given) != 2:
        raise NotWritten
    dims = x.numbers("dimensions")
    own = w.full(given[0], dims)
    if not dims:
        return own.name
    return w.step(f"{kind} %{own.name} dims [{', '.join(map(str, dims))}]", kind)


@_step("dot")
def _dot(w: HloWriter, x: HloInstruction, given: Sequence[WrittenValue], state: ValueState) -> str:
    left, right = (w.full(cell) for cell in given)
    if not _is_float(left) or left.shape.dtype != right.shape.dtype:
        raise NotWritten
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    a = [next(letters) for _ in left.shape.sizes]
    b = [next(letters) for _ in right.shape.sizes]
    sums = [*zip(x.numbers("lhs_contracting_dims"), x.numbers("rhs_contracting_dims"), strict=True)]
    batch = [*zip(x.numbers("lhs_batch_dims"), x.numbers("rhs_batch_dims"), strict=True)]
    for p, q in (*sums, *batch):
        b[q] = a[p]
    shared = [p for p, _ in batch]
    made = [a[p] for p in shared]
    made += [c for p, c in enumerate(a) if p not in shared and p not in [s for s, _ in sums]]
    others = [q for _, q in (*sums, *batch)]
    made += [c for q, c in enumerate(b) if q not in others]
    text = f"{' '.join(a)}, {' '.join(b)} -> {' '.join(made)}".strip()
    name = w.step(f'einsum "{text}" %{left.name}, %{right.name}', "einsum")
    before, after = DTYPES[left.shape.dtype], DTYPES.get(x.shape.dtype)
    return name if before == after else w.step(f"cast %{name} to {after}", "cast")


@_step("gather")
def _gather(
    w: HloWriter, x: HloInstruction, given: Sequence[WrittenValue], state: ValueState
) -> str:
    """Gather whole rows of the first dimension; other gathers are costed by the bytes read."""
    own, places = (w.full(cell) for cell in given)
    offset, collapsed = x.numbers("offset_dims"), x.numbers("collapsed_slice_dims")
    last = len(places.shape.sizes) - 1
    simple = (
        collapsed == x.numbers("start_index_map") == [0]
        and not x.numbers("operand_batching_dims")
        and int(x.attributes.get("index_vector_dim", "-1")) == last
        and offset == [*range(last, last + len(own.shape.sizes) - 1)]
        and x.numbers("slice_sizes")[1:] == [*own.shape.sizes[1:]]
    )
    if not simple or own.state.dims[0].pieces:
        raise NotWritten
    sizes = ", ".join(map(str, w.sizes(places.state)[:-1]))
    at = w.step(f"reshape %{places.name} to [{sizes}]", "places")
    return w.step(f"take %{own.name}, %{at} dim 0", "take")


@_step("convolution")
def _convolution(
    w: HloWriter, x: HloInstruction, given: Sequence[WrittenValue], state: ValueState
) -> str:
    """A convolution without dilation of images with channels last."""
    window = dict(re.findall(r"(\w+)=(\S+)", x.attributes.get("window", "").strip("{}")))
    labels = re.fullmatch(r"(\w+)_(\w+)->(\w+)", x.attributes.get("dim_labels", ""))
    if labels is None or {"lhs_dilate", "rhs_dilate", "rhs_reversal"} & set(window):
        raise NotWritten
    if any(x.attributes.get(name, "1") != "1" for name in
           ("feature_group_count", "batch_group_count")):  # fmt: skip
        raise NotWritten
    sides = "".join(sorted(c for c in labels[1] if c.isdigit()))
    pads = [[int(n) for n in part.split("_")] for part in window.get("pad", "").split("x") if part]
    sizes = [int(n) for n in window["size"].split("x")] if "size" in window else []
    strides = [int(n) for n in window.get("stride", "").split("x") if n] or [1] * len(sides)
    image, filters = (w.full(cell) for cell in given)
    names: list[str] = []
    for cell, text, order in ((image, labels[1], f"b{sides}f"), (filters, labels[2], f"{sides}io")):
        moved = [text.index(c) for c in order]
        listed = ", ".join(map(str, moved))
        names.append(cell.name if moved == sorted(moved) else
                     w.step(f"transpose %{cell.name} order [{listed}]", "transpose"))  # fmt: skip
    same: list[int] = []
    for side, (low, high) in enumerate(pads or [[0, 0]] * len(sides)):
        if low == high and 0 <= low < sizes[side]:
            same.append(low)
            continue
        amounts = f"{f' low {low}' if low else ''}{f' high {high}' if high else ''}"
        names[0] = (
            w.step(f"pad %{names[0]} dim {side + 1}{amounts}", "pad") if amounts else names[0]
        )
        same.append(0)
    text = f"conv %{names[0]}, %{names[1]} stride {strides} padding {same}"
    made, order = w.step(text, "conv"), f"b{sides}f"
    moved = [order.index(c) for c in labels[3]]
    if moved == sorted(moved):
        return made
    return w.step(f"transpose %{made} order [{', '.join(map(str, moved))}]", "transpose")


# --- collectives ----------------------------------------------------------------------------------


def _one(
    w: HloWriter, x: HloInstruction, cell: WrittenValue, value: ValueState | Untyped,
    shape: HloShape,
    over: tuple[int, ...] | None, is_async: str,
) -> WrittenValue:  # fmt: skip
    """Write a collective of one array."""
    given = cell.value
    is_typed = isinstance(value, ValueState) and not value.stacked and not cell.is_block
    is_typed = is_typed and not w.has_blocks
    if over is None:
        return w._opaque(x, shape, value, [cell])  # pyright: ignore[reportPrivateUsage]
    if not over:
        return replace(cell, value=value)
    own = _divided(w, cell, x.numbers("dimensions")[0], over) if x.base == "all-gather" else cell
    own = w.full(own)
    if x.base in ("all-to-all", "collective-permute"):
        if is_typed and isinstance(value, ValueState) and own.state == _plain(given):
            try:
                name = _exchange(w, x, own, value, over, is_async)
                return WrittenValue(name, shape, value, _plain(value) or value, False)
            except NotWritten:
                pass
        return _moved(w, x, own, value, shape, over, is_async)
    if not is_typed or (isinstance(given, ValueState) and given.stacked):
        own = w.reinterpreted(own, _needed(w, x, own, over))
    listed = w.listed(over if x.base != "all-reduce" else sorted(over))
    dims = f" dim {x.numbers('dimensions')[0]}" if x.base != "all-reduce" else ""
    op = x.base.replace("-", "_")
    name = w.step(f"{op} %{own.name} over {listed}{dims}{is_async}", x.name)
    if is_typed:
        assert isinstance(value, ValueState)
        state = replace(value, dims=tuple(Along(d.size, d.pieces) for d in value.dims))
        return WrittenValue(name, shape, value, state, False)
    if x.base != "reduce-scatter":
        return WrittenValue(name, shape, value, whole(shape.sizes), True)
    [dim] = x.numbers("dimensions")
    made = [Along(n, over if d == dim else ()) for d, n in enumerate(shape.sizes)]
    return WrittenValue(name, shape, value, ValueState(tuple(made)), False)


def _plain(value: ValueState | Untyped) -> ValueState | None:
    """Return how a value is written whose elements are not known."""
    if not isinstance(value, ValueState) or value.stacked:
        return None
    return ValueState(tuple(Along(d.size, d.pieces) for d in value.dims), value.partial, value.kind)


def _exchange(
    w: HloWriter,
    x: HloInstruction,
    own: WrittenValue,
    value: ValueState,
    over: tuple[int, ...],
    is_async: str,
) -> str:
    """Write an exchange of blocks as its effect on the array.

    Raises:
        NotWritten: it is no exchange of two dimensions, of axes, or with neighbours.
    """
    if own.state.partial:
        raise NotWritten
    if x.base == "all-to-all":
        return _transposed_blocks(w, x, own, over, is_async)
    pairs = pairs_of(x)
    if permuted_digits(pairs, w.module.devices):
        return w.step(f"permute %{own.name} to {w.type(own.shape.dtype, value)}", x.name)
    inner = [d.pieces for d in own.state.dims if set(over).intersection(d.pieces)]
    if len(inner) != 1 or inner[0][len(inner[0]) - len(over) :] != over:
        raise NotWritten
    at, count = w.typer.rules.coordinates(over), w.size_of(over)
    steps = {int(at[target] - at[source]) for source, target in pairs}
    is_open = len(pairs) < w.module.devices
    moved = {step % count for step in steps} if not is_open else steps
    by = moved.pop()
    if moved or by == 0 or (is_open and len(pairs) * count != w.module.devices * (count - abs(by))):
        raise NotWritten
    by = by - count if not is_open and 2 * by > count else by
    last = " open" if is_open else ""
    return w.step(f"shift %{own.name} over {w.listed(over)} by {by}{last}{is_async}", x.name)


def _transposed_blocks(
    w: HloWriter, x: HloInstruction, own: WrittenValue, over: tuple[int, ...], is_async: str
) -> str:
    """Write the exchange of parts of a dimension d, as large as the group, in front of the rest of
    the array's dimension: that dimension is divided then, and d counts the blocks of another."""
    [d], dims = x.numbers("dimensions"), own.state.dims
    sources = [n for n, dim in enumerate(dims) if dim.pieces == over]
    if (len(sources) != 1 or d + 1 >= len(dims) or dims[d].size != w.size_of(over)
            or dims[d].pieces or dims[d + 1].pieces):  # fmt: skip
        raise NotWritten
    [source], sizes = sources, w.sizes(own.state)
    merged = [*sizes[:d], sizes[d] * sizes[d + 1], *sizes[d + 2 :]]
    name = w.reshaped(own.name, sizes, merged)
    first = source - (source > d)
    name = w.step(f"all_to_all %{name} over {w.listed(over)} dim {first} to {d}{is_async}", x.name)
    labels = [n for n in range(len(dims)) if n != d + 1]
    labels = [d + 1 if n == d else n for n in labels]
    labels.insert(labels.index(source), d)
    parts = [*merged[:first], sizes[d], merged[first] // sizes[d], *merged[first + 1 :]]
    name = w.reshaped(name, merged, parts)
    order = [labels.index(n) for n in range(len(dims))]
    if order == sorted(order):
        return name
    return w.step(f"transpose %{name} order [{', '.join(map(str, order))}]", "received")


def _divided(w: HloWriter, cell: WrittenValue, dim: int, over: tuple[int, ...]) -> WrittenValue:
    """Return a value whose elements are equal along a dimension as divided there."""
    own = cell.state
    if cell.is_block or not own.dims or own.dims[dim].axes is not None or own.partial:
        return cell
    dims = [Along(d.size, over if n == dim else d.pieces) for n, d in enumerate(own.dims)]
    state = replace(own, dims=tuple(dims))
    name = w.computed(cell).name
    made = w.step(f"broadcast_to %{name} to {w.type(cell.shape.dtype, state)}", "broadcast")
    return replace(cell, name=made, state=state)


def _needed(
    w: HloWriter, x: HloInstruction, cell: WrittenValue, over: tuple[int, ...]
) -> ValueState:
    """Return the type that the operand of a collective has at least."""
    state = whole(cell.shape.sizes)
    if x.base == "all-gather":
        [dim] = x.numbers("dimensions")
        dims = list(state.dims)
        dims[dim] = Along(dims[dim].size, over)
        return state.with_dims(dims)
    try:
        kind = w.typer.rules.reducer(x.attributes.get("to_apply", ""))
    except NotTyped:
        kind = "sum"
    kind = kind if kind in ("sum", "max", "min") else "sum"
    return replace(state, partial=frozenset(over), kind=kind)


def _moved(
    w: HloWriter, x: HloInstruction, cell: WrittenValue, value: ValueState | Untyped,
    shape: HloShape,
    over: tuple[int, ...], is_async: str,
) -> WrittenValue:  # fmt: skip
    """Write an exchange of the blocks of devices, as of an array in one dimension."""
    block = w.block(cell)
    count, total = w.size_of(over), shape.elements
    dtype = DTYPES.get(shape.dtype, "i8")
    if x.base == "all-to-all" and total % count == 0:
        flat_name = w.step(f"reshape %{block.name} to [{count}, {total // count}]", "sent")
        axes = w.axes(over)
        to = f"{dtype}[{count}, {total}{axes}]"
        name = w.step(f"reinterpret %{flat_name} to {to}", "sent")
        name = w.step(f"all_to_all %{name} over {w.listed(over)} dim 1 to 0{is_async}", x.name)
        back = f"{dtype}[1, {total}]"
        name = w.step(f"reinterpret %{name} to {back}", "received")
    else:
        flat_name = w.step(f"reshape %{block.name} to [{total}]", "sent")
        axes = w.axes(over)
        name = w.step(f"reinterpret %{flat_name} to {dtype}[{total * count}{axes}]", "sent")
        name = w.step(f"shift %{name} over {w.listed(over)} by 1{is_async}", x.name)
        name = w.step(f"reinterpret %{name} to {dtype}[{total}]", "received")
    sizes = ", ".join(map(str, shape.sizes))
    name = w.step(f"reshape %{name} to [{sizes}]", "received")
    return WrittenValue(name, shape, value, whole(shape.sizes), True)


def _exchanged_parts(
    w: HloWriter, x: HloInstruction, given: Sequence[WrittenValue],
    values: Sequence[ValueState | Untyped],
    over: tuple[int, ...] | None, is_async: str,
) -> list[WrittenValue]:  # fmt: skip
    """Write an all-to-all of one array for each member of the group: of all of them together."""
    shape = given[0].shape
    stacked_sizes = ", ".join(map(str, (1, *shape.sizes)))
    parts = [
        w.step(f"reshape %{w.block(cell).name} to [{stacked_sizes}]", "part") for cell in given
    ]
    listed = ", ".join(f"%{name}" for name in parts)
    joined = w.step(f"concat {listed} dim 0", "parts")
    wide = HloShape(shape.dtype, (len(given), *shape.sizes))
    cell = WrittenValue(joined, wide, values[0], whole(wide.sizes), True)
    if not over:
        return [w._opaque(x, shape, v, [cell]) for v in values]  # pyright: ignore[reportPrivateUsage]
    made = _moved(w, replace(x, shape=wide), cell, values[0], wide, over, is_async)
    results: list[WrittenValue] = []
    for number, value in enumerate(values):
        low, high = number, len(given) - 1 - number
        parts_of = f"{f' low -{low}' if low else ''}{f' high -{high}' if high else ''}"
        name = w.step(f"pad %{made.name} dim 0{parts_of}", "part") if parts_of else made.name
        sizes = ", ".join(map(str, shape.sizes))
        name = w.step(f"reshape %{name} to [{sizes}]", "part")
        results.append(WrittenValue(name, shape, value, whole(shape.sizes), True))
    return results


# --- loops ----------------------------------------------------------------------------------------


def _loop(
    w: HloWriter,
    x: HloInstruction,
    found: HloLoop,
    cells: Sequence[WrittenValue],
    values: Sequence[Any],
) -> Cells:
    """Write a loop of a known length."""
    inner = w.inner()
    carried: dict[int, WrittenValue] = {}
    sliced: dict[int, WrittenValue] = {}
    clauses: dict[str, list[str]] = {"carry": [], "slice": []}
    inside: list[WrittenValue] = []
    for number, (cell, value) in enumerate(zip(cells, values, strict=True)):
        if number in found.stacked:
            inside.append(cell)
            continue
        is_block = not isinstance(value, ValueState) or bool(value.stacked) or cell.is_block
        state = whole(cell.shape.sizes)
        if isinstance(value, ValueState) and not is_block:
            dims = tuple(Along(d.size, d.pieces) for d in value.dims)
            state = replace(value, number=None, dims=dims)
        start = _as(w, cell, state, is_block)
        name = inner.name(start.name)
        clause = f"%{name} = %{start.name}"
        if number in found.sliced:
            own = HloShape(cell.shape.dtype, cell.shape.sizes[1:])
            part = replace(state, dims=state.dims[1:])
            known = replace(value, dims=value.dims[1:]) if isinstance(value, ValueState) else value
            sliced[number] = WrittenValue(name, own, known, part, is_block)
            clauses["slice"].append(clause)
            inside.append(start)
        else:
            carried[number] = WrittenValue(name, cell.shape, value, state, is_block)
            clauses["carry"].append(clause)
            inside.append(carried[number])
    body = _Body(inner, found, inside, sliced)
    results = body.run(x.shape)
    yielded = [_as(inner, results[n], own.state, own.is_block) for n, own in carried.items()]
    stacks = {n: inner.full(body.written[n]) for n in sorted(found.stacked)}
    inner.end("yield", [cell.name for cell in (*yielded, *stacks.values())])
    behind_counter = _without_counter(inner, found, carried, clauses["carry"])
    names = [w.name(cell.name) for cell in carried.values()]
    behind = [w.name("stacked") for _ in stacks]
    text = " ".join(f"{kind}({', '.join(own)})" for kind, own in clauses.items() if own)
    back = " reverse" if found.reverse else ""
    made = ", ".join(f"%{n}" for n in (*names, *behind))
    w.line(f"{made} = repeat {found.times} {text}{back} {{")
    w.lines += inner.lines
    w.line("}")
    after = list(cells)
    if behind_counter is not None and found.counter is not None:
        after[found.counter] = behind_counter
    for name, (number, own) in zip(names, carried.items(), strict=True):
        after[number] = replace(own, name=name)
    for name, (number, cell) in zip(behind, stacks.items(), strict=True):
        shape = HloShape(cell.shape.dtype, (found.times, *cell.shape.sizes))
        state = replace(cell.state, dims=(Along(found.times), *cell.state.dims))
        value = values[number] if cell.is_block else state
        after[number] = WrittenValue(name, shape, value, state, cell.is_block)
    return shape_cells(after, x.shape)


def _without_counter(
    w: HloWriter, found: HloLoop, carried: dict[int, WrittenValue], clauses: list[str]
) -> WrittenValue | None:
    """Leave out the carry that counts iterations, if nothing but itself depends on it, and return
    its number behind the loop."""
    number = found.counter
    if number not in carried or carried[number].shape.sizes or len(carried) < 2:
        return None
    own, place = carried[number], [*carried].index(number)
    keyword, _, listed = w.lines[-1].strip().partition(" ")
    names = listed.split(", ")
    del names[place]
    lines = pruned([*w.lines[:-1], f"{w.indent}{keyword} {', '.join(names)}"], set())
    if any(re.search(rf"%{own.name}(?![\w.])", line) for line in lines):
        return None
    w.lines = lines
    del carried[number]
    del clauses[place]
    times = of_table(np.full(w.module.devices, found.times), (), frozenset())
    return WrittenValue("", own.shape, times, times, False)


def _as(w: HloWriter, cell: WrittenValue, state: ValueState, is_block: bool) -> WrittenValue:
    """Return a value written as another one is."""
    if is_block:
        return w.block(cell)
    if not (cell.is_block or state.partial or any(d.axes is None for d in state.dims)):
        dims = [
            b if a.axes is None else a for a, b in zip(cell.state.dims, state.dims, strict=True)
        ]
        own = w.computed(cell)
        if tuple(dims) == state.dims != cell.state.dims and not own.is_block:
            to = w.type(cell.shape.dtype, state)
            name = w.step(f"broadcast_to %{own.name} to {to}", own.name)
            return replace(own, name=name, state=state)
    own = w.full(cell)
    if own.is_block or own.state.partial != state.partial or own.state.dims != state.dims:
        return w.reinterpreted(own, state)
    return own


class _Body:
    """Writes the body of a loop: slices are values of their own, and what is stacked is kept."""

    def __init__(
        self,
        w: HloWriter,
        found: HloLoop,
        inside: Sequence[WrittenValue],
        sliced: dict[int, WrittenValue],
    ):
        self.w, self.found, self.inside, self.sliced = w, found, inside, sliced
        self.written: dict[int, WrittenValue] = {}

    def run(self, shape: HloShape) -> list[WrittenValue]:
        """Write it, and return the carries behind an iteration."""
        cells: dict[str, Cells] = {}
        for x in self.found.body.instructions:
            if x.opcode == "parameter":
                cells[x.name] = shape_cells(self.inside, shape)
            elif x in self.found.reads:
                own = self.sliced[self.found.reads[x]]
                cells[x.name] = _with_front(self.w, own, x.shape)
            elif x in self.found.writes:
                update = cells[x.operands[1]]
                assert isinstance(update, WrittenValue)
                number = self.found.writes[x]
                self.written[number] = _without_front(self.w, update)
                cells[x.name] = self.inside[number]
            else:
                cells[x.name] = self.w.instruction(x, [cells[name] for name in x.operands])
        return cells_of(cells[self.found.body.result.name])


def _with_front(w: HloWriter, cell: WrittenValue, shape: HloShape) -> WrittenValue:
    """Return a slice with a dimension of 1 in front."""
    state = replace(cell.state, dims=(Along(1), *cell.state.dims))
    name = w.reshaped(cell.name, w.sizes(cell.state), w.sizes(state))
    value = replace(cell.value, dims=(Along(1), *cell.value.dims)) \
        if isinstance(cell.value, ValueState) else cell.value  # fmt: skip
    return WrittenValue(name, shape, value, state, cell.is_block)


def _without_front(w: HloWriter, cell: WrittenValue) -> WrittenValue:
    """Return what is written to a place of a stack, without the dimension of 1."""
    cell = w.full(cell)
    if cell.state.dims[0].pieces:
        cell = w.block(cell)
    state = replace(cell.state, dims=cell.state.dims[1:])
    name = w.reshaped(cell.name, w.sizes(cell.state), w.sizes(state))
    return WrittenValue(name, HloShape(cell.shape.dtype, cell.shape.sizes[1:]), cell.value, state,
                cell.is_block)  # fmt: skip
