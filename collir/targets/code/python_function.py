"""The method of one function in Python for ranks, with the steps that send nothing.

Every value of a function is a variable of its own, an array whose elements lie in order; where a
rank holds nothing of a value, the variable is None. Steps that no result needs are left out.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from collir.dialects.nested import CallOp, NestedOp, RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.blocks import Part, parts_of, shares_by_dim
from collir.ir.buffers import plan_buffers
from collir.ir.loops import body_name, repeats_in
from collir.layout import DistType, DType, Reduction, place_at
from collir.layout.coll import MASK, PAD, SEND
from collir.layout.mesh import digits_over
from collir.layout.operation_table import OperationTable
from collir.localize.places import root_place, taking_part
from collir.syntax.writer import nested_text
from collir.targets.code.emitters import Emitters, StepEmitter, check_uneven, written_step
from collir.targets.code.python_lines import lines_of
from collir.targets.code.python_steps import Blocks, CutDim, Local, Sent
from collir.targets.code.python_text import (
    WIDTH,
    Assignment,
    call,
    comment,
    number_text,
    product_lines,
    remark,
    shown_results,
    tuple_text,
    variables,
    wrapped,
)
from collir.targets.code.rank_mesh import MeshText
from collir.targets.code.waits import remark_waits


@dataclass
class PythonFunction(StepEmitter):
    """The method of one function; a target says how its arrays are made and sent.

    Attributes:
        needs: the helpers and modules that the method uses.
        pending: the statements that wait for the values that are under way.
    """

    function: FuncOp
    names: MeshText
    needs: set[str] = field(default_factory=set[str])
    pending: dict[SSAValue, list[str]] = field(default_factory=dict[SSAValue, list[str]])

    rest: ClassVar[str] = ""
    """The end of an index of the first dimensions only."""
    array: ClassVar[str]
    """The word for an array in docstrings, with its article."""
    WAIT: ClassVar[str] = "wait"
    """The method that waits for what was started."""

    def __post_init__(self) -> None:
        self.mesh = self.names.mesh
        plan = plan_buffers(self.function)
        self.returned = plan.returned
        self.shown = plan.names
        self.variable = dict(zip(plan.names, variables(list(plan.names.values())), strict=True))
        self.results = shown_results(self.function, self.returned, plan.names, self.variable)
        self.live = set(self.returned)
        self.last_reader = {x: op for op in self.function.body.ops for x in op.operands}
        for op in reversed(list(self.function.body.ops)):
            if any(result in self.live for result in op.results):
                self.live |= set(op.operands)
        taken = self.variable.values()
        most = max([len(op.results) for op in repeats_in(self.function)], default=0)
        rows = [f"row{index}" for index in range(most)]
        sends = [op for op in self.function.body.ops if isinstance(op, DistOp) and is_started(op)]
        started = [f"{self.variable[op.result]}_sent" for op in sends]
        names = variables(["i", "made", *rows, *started], taken)
        self.number, self.made, *self.rows = names[: 2 + most]
        self.started = dict(zip(sends, names[2 + most :], strict=True))
        remark_waits(self.function, is_started)

    # --- what a target says -----------------------------------------------------------------

    @abstractmethod
    def library(self, name: str) -> str:
        """Return a function or type of the library of arrays."""

    @abstractmethod
    def dtype(self, dtype: DType) -> str:
        """Return an element type."""

    @abstractmethod
    def options(self, dtype: DType) -> str:
        """Return the last arguments of a call that makes an array."""

    @abstractmethod
    def packed(self, text: str) -> str:
        """Return an array with its elements in order."""

    @abstractmethod
    def copied(self, text: str) -> str:
        """Return an array with memory of its own."""

    @abstractmethod
    def cast(self, text: str, dtype: DType) -> str:
        """Return an array in another element type."""

    @abstractmethod
    def reshaped(self, text: str, shape: Sequence[int]) -> str:
        """Return an array under another shape."""

    @abstractmethod
    def transposed(self, text: str, order: Sequence[int]) -> str:
        """Return an array with its dimensions in another order, elements left where they are."""

    @abstractmethod
    def joined(self, arrays: Sequence[str], dim: int) -> list[str]:
        """Return the lines of an expression that joins arrays along a dimension."""

    @abstractmethod
    def constant(self, value: float, dtype: DType) -> str:
        """Return a factor, rounded to the element type."""

    def full(self, shape: Sequence[int], dtype: DType, value: float | None) -> str:
        """Return a new array of one value, or of no particular values."""
        text, options = tuple_text(shape), self.options(dtype)
        if value is None:
            return f"{self.library('empty')}({text}, {options})"
        if value == 0 and math.copysign(1, value) > 0:
            return f"{self.library('zeros')}({text}, {options})"
        return f"{self.library('full')}({text}, {number_text(value, dtype)}, {options})"

    def average(self, x: DistType, group: int, out: str) -> list[str]:
        """Return the division at the end of an avg."""
        return [f"{out} /= {group}"] if x.reduction is Reduction.AVG else []

    def shares(self, op: DistOp) -> bool:
        """Return whether the result of an operation may share memory with its operand."""
        if op.kind is PAD:
            return op.place_in_operand(self.mesh) is not None
        return op.kind.is_view or op.kind.computes or op.kind is MASK

    def computed(self, text: str, x: DistType) -> str:
        """Return the result of arithmetic as an array."""
        return text

    COLLECTIVES: ClassVar[Emitters[Sent]]
    """The statements of each collective, for the ranks that take part."""

    UNEVEN: ClassVar[dict[str, Callable[[Any, Sent, "Blocks"], list[str]]]]
    """The statements of each collective whose blocks differ in size."""

    def prologue(self) -> list[str]:
        """Return the statements before those of a method."""
        return []

    # --- the method -------------------------------------------------------------------------

    def text(self) -> list[str]:
        """Return the lines of the method, indented as in a class."""
        body = [line for arg in self.function.args for line in self._check_argument(arg)]
        for op in self.function.body.ops:
            if not self.live.intersection(op.results):
                continue
            body += self.waits(op.operands)
            if isinstance(op, DistOp):
                body += self._step(op)
            elif isinstance(op, RepeatOp):
                body += self._loop(op)
            elif isinstance(op, CallOp):
                body += self._call(op)
        body += self.waits(list(self.pending))
        body += self._return()
        arguments = [self.variable[arg] for arg in self.function.args]
        definition = call(f"def {self.function.sym_name.data}", ["self", *arguments], 5)
        definition[-1] += ":"
        text = [*self._docstring(), *self.prologue(), *body]
        lines = [f"    {line}" for line in definition]
        lines += [f"        {line}" if line else line for line in text]
        return [self.names.resolved(line) for line in lines]

    def _docstring(self) -> list[str]:
        lines = ['"""Every rank calls it with what it holds.', ""]
        if self.function.args:
            lines.append("Args:")
            lines += [
                f"    {self.variable[arg]}: {self._meaning(arg)}" for arg in self.function.args
            ]
        if self.function.args and self.returned:
            lines.append("")
        if self.returned:
            lines.append("Returns:")
            lines += [
                f"    {name}: {self._meaning(value)}"
                for name, value in zip(self.results, self.returned, strict=True)
            ]
        if len(lines) == 2:
            return [f'{lines[0]}"""']
        return [*lines, '"""']

    def _meaning(self, value: SSAValue) -> str:
        """Return the type of a value, and the shape of the block on a rank."""
        x = dist_type(value)
        shape = tuple_text(x.local_shape(self.mesh))
        text = f"{comment(x.text(self.mesh))}, on each rank {self.array} of shape {shape}"
        if x.place:
            at = dict(x.place)
            where = " and ".join(f"{axis} = {at[axis]}" for axis in self.mesh.ordered(at))
            text += f" where {comment(where)}, else None"
        return f"{text}."

    def _check_argument(self, arg: SSAValue) -> list[str]:
        x, name = dist_type(arg), self.variable[arg]
        shape = tuple_text(x.local_shape(self.mesh))
        self.needs.add("argument")
        checked = call(f"{name} = self._argument", [f'"{name}"', name, self.dtype(x.dtype), shape])
        return self._where(self.names.at_place(x.place), [], checked)

    def _where(self, condition: str, before: list[str], lines: list[str]) -> list[str]:
        """Return statements for the ranks of a condition only, behind statements for all."""
        if not condition:
            return lines
        return [*before, f"if {condition}:", *(f"    {line}" for line in lines)]

    def _step(self, op: DistOp) -> list[str]:
        """Return the lines of an operation: its comment, and its statements."""
        out, condition = self.variable[op.result], self.names.at_place(taking_part(op))
        statements = self.statements(op)
        heading = f"# {remark(written_step(op, self.mesh, self.shown))}"
        if condition and len(statements) == 1 and isinstance(statements[0], Assignment):
            line = f"{statements[0]} if {condition} else None"
            if len(line) <= WIDTH - 8:
                return [heading, line]
        indent = 12 if condition else 8
        lines = [line for statement in statements for line in wrapped(statement, indent)]
        return [heading, *self._where(condition, [f"{out} = None"], lines)]

    def collective(self, op: DistOp) -> list[str]:
        x, y, axes = dist_type(op.input), dist_type(op.result), op.over
        operand, out = self.variable[op.input], self.variable[op.result]
        before, after = x.local_shape(self.mesh), y.local_shape(self.mesh)
        root, group = self.names.at_place(root_place(op)), self.mesh.group_size(axes)
        new = f"{out} = {self.full(after, y.dtype, None)}"
        sent = Sent(op, operand, out, x, y, axes, root, group, before, after, new)
        if parts := parts_of(op, self.mesh):
            check_uneven(op, self.UNEVEN)
            return self.UNEVEN[op.mnemonic](self, sent, self._blocks(sent, parts))
        return self.COLLECTIVES[op.mnemonic](self, sent)

    def _blocks(self, s: Sent, parts: Sequence[Part]) -> "Blocks":
        """Return how the ranks of a group share the dimensions that a collective cuts or joins."""
        blocks = Blocks()
        for part in parts:
            array = self.names.parts_of(s.axes, part.shares)
            cut = CutDim(part.dim, array, part.unit, part.row * part.rows)
            blocks = replace(blocks, comes=cut) if part.comes else replace(blocks, leaves=cut)
        return blocks

    def local_step(self, op: DistOp) -> list[str]:
        x, y = dist_type(op.operands[0]), dist_type(op.result)
        operands = [self.variable[operand] for operand in op.operands]
        step = Local(op, operands, self.variable[op.result], x, y, y.local_shape(self.mesh))
        return self.LOCAL[op.mnemonic](self, step)

    def computation(self, op: DistOp) -> list[str]:
        return self.local_step(op)

    def ends(self, op: DistOp) -> tuple[str, str]:
        """Return the conditions that this rank sends, and that it receives, in a send."""
        sender, receiver = (
            self.names.at_place(place_at(digits_over(self.mesh, op.over, op.integer(name))))
            for name in ("sender", "receiver")
        )
        return sender, receiver

    def waits(self, values: Iterable[SSAValue]) -> list[str]:
        """Return the statements that wait for those of some values that are under way."""
        return [line for value in values for line in self.pending.pop(value, [])]

    def exchange(self, s: Sent, send: Sequence[str], received: Sequence[str]) -> list[str]:
        """Return the statements of a send: those that send, and those that receive.

        An ``async`` send is started, and waited for where its result is used first.
        """
        sends, receives = self.ends(s.op)
        if s.op.is_async:
            started = self.started[s.op]
            dead = self._ends_at(s.op.input, s.op)
            self.pending[s.op.result] = [
                f"if {started} is not None:",
                f"    {started}.{self.WAIT}()",
                *([f"del {s.operand}"] if dead else []),
            ]
            send = _assigned(started, send)
            received = _assigned(started, received)
        return [
            f"{s.out} = {self.started[s.op]} = None" if s.op.is_async else f"{s.out} = None",
            f"if {sends}:",
            *(f"    {line}" for line in send),
            f"elif {receives}:",
            f"    {s.new}",
            *(f"    {line}" for line in received),
        ]

    def _loop(self, op: RepeatOp) -> list[str]:
        """Return the lines of a loop, which calls the method of its body."""
        carries = [self.variable[result] for result in op.results[: len(op.carried)]]
        operands = [self.variable[operand] for operand in op.carried]
        lines = [self._shown_nested(op)]
        # All at once, as a carry may begin as the result of the same name of another loop.
        lines += [f"{', '.join(carries)} = {', '.join(operands)}"] if carries else []
        arguments = [*carries, *(self._slice_of(x) for x in op.sliced)]
        arguments += [self.variable[operand] for operand in op.invariant]
        targets, behind = list(carries), list[str]()
        for index, result in enumerate(op.results[len(carries) :]):
            x, name = dist_type(result), self.variable[result]
            condition = self.names.at_place(x.place)
            new = self.full(x.local_shape(self.mesh), x.dtype, None)
            made = Assignment.of(name, new)
            if condition and len(line := f"{made} if {condition} else None") <= WIDTH - 8:
                lines.append(line)
            else:
                made_lines = wrapped(made, 12 if condition else 8)
                lines += self._where(condition, [f"{name} = None"], made_lines)
            row = self.rows[index] if condition else f"{name}[{self.number}, ...]"
            targets.append(row)
            if condition:
                behind += [f"if {condition}:", f"    {name}[{self.number}, ...] = {row}"]
        numbers = f"range({op.times})"
        lines.append(
            f"for {self.number} in {f'reversed({numbers})' if op.is_reverse else numbers}:"
        )
        method = f"self.{body_name(op)}"
        statement = f"{', '.join(targets)} = {method}({', '.join(arguments)})"
        if len(targets) == 1 or 12 + len(statement) <= WIDTH:
            made = call(f"{', '.join(targets)} = {method}", arguments, 12)
        else:
            made = call(f"{self.made} = {method}", arguments, 12)
            made += [f"{target} = {self.made}[{n}]" for n, target in enumerate(targets)]
        return [*lines, *(f"    {line}" for line in (*made, *behind))]

    def _shown_nested(self, op: NestedOp) -> str:
        """Return a comment with an operation that runs others in ``.coll``."""
        text = nested_text(op, lambda values: ", ".join(f"%{self.shown[x]}" for x in values))
        results = ", ".join(f"%{self.shown[result]}" for result in op.results)
        return f"# {remark(f'{results} = {text}')}"

    def _call(self, op: CallOp) -> list[str]:
        """Return the lines of a call at the ranks of its place, and those that forget what nothing
        else needs: between the tasks of a pipeline lie activations."""
        callee = op.function()
        assert callee is not None
        targets = [self.variable[result] for result in op.results]
        condition = self.names.at_place(op.place(callee))
        statement = f"{', '.join(targets)} = self.{body_name(op)}"
        arguments = ", ".join(self.variable[operand] for operand in op.operands)
        indent = 12 if condition else 8
        made = lines_of(f"{statement}({arguments})", indent)
        nothing = "None" if len(targets) == 1 else f"(None,) * {len(targets)}"
        nowhere = lines_of(f"{', '.join(targets)} = {nothing}", 8)
        lines = [self._shown_nested(op), *self._where(condition, nowhere, made)]
        dead = [self.variable[x] for x in dict.fromkeys(op.operands) if self._ends_at(x, op)]
        return [*lines, *(lines_of(f"del {', '.join(dead)}", 8) if dead else [])]

    def _ends_at(self, value: SSAValue, op: CallOp | DistOp) -> bool:
        """Return whether an operation is the last that reads what a call or a send made."""
        owner = value.owner
        made = isinstance(owner, CallOp) or (isinstance(owner, DistOp) and owner.kind.pairs)
        return made and self.last_reader[value] is op

    def _slice_of(self, value: SSAValue) -> str:
        row = f"{self.variable[value]}[{self.number}, ...]"
        condition = self.names.at_place(dist_type(value).place)
        return f"{row} if {condition} else None" if condition else row

    def _return(self) -> list[str]:
        """Return the return statement; a result that shares memory with an argument or another
        result is copied."""
        memory: dict[SSAValue, SSAValue] = {value: value for value in self.function.args}
        for op in self.function.body.ops:
            if isinstance(op, DistOp):
                memory[op.result] = memory[op.operands[0]] if self.shares(op) else op.result
            else:
                memory |= {result: result for result in op.results}
        taken: set[SSAValue] = set(self.function.args)
        results: list[str] = []
        for value in self.returned:
            name = self.variable[value]
            if memory[value] in taken:
                root = self.names.at_place(dist_type(value).place)
                name = self.copied(name) + (f" if {root} else None" if root else "")
            taken.add(memory[value])
            results.append(name)
        if not results:
            return []
        line = f"return {', '.join(results)}"
        if len(line) <= WIDTH - 8:
            return [line]
        return ["return (", *(f"    {result}," for result in results), ")"]

    # --- operations that send nothing -------------------------------------------------------

    def _keep(self, s: Local) -> list[str]:
        return [Assignment.of(s.out, s.operand)]

    def _assemble(self, s: Local) -> list[str]:
        lines: list[str] = []
        for index, operand in enumerate(s.operands):
            place = place_at(digits_over(self.mesh, s.op.over, index))
            lines += [
                f"{'el' * bool(index)}if {self.names.at_place(place)}:",
                f"    {s.out} = {self.copied(operand)}",
            ]
        return lines

    def _barrier(self, s: Local) -> list[str]:
        return [Assignment.of(s.out, s.operand)]

    def _compute(self, s: Local) -> list[str]:
        # The operands that it waits for are used so, too.
        waited = [operand for operand in dict.fromkeys(s.operands[1:]) if operand != s.operand]
        lines = [f"_ = {operand}" for operand in waited]
        if seconds := self.names.seconds(s.op):
            self.needs.add("time")
            indent = 12 if self.names.at_place(taking_part(s.op)) else 8
            lines += product_lines("time.sleep", self.names.resolved(seconds), indent)
        return [*lines, Assignment.of(s.out, s.operand)]

    def _view(self, s: Local) -> list[str]:
        return [Assignment.of(s.out, self.reshaped(s.operand, s.shape))]

    def _transpose(self, s: Local) -> list[str]:
        moved = self.transposed(s.operand, s.op.sizes("order"))
        return [Assignment.of(s.out, self.packed(moved))]

    def _add(self, s: Local) -> list[str]:
        return [Assignment.of(s.out, self.computed(" + ".join(s.operands), s.y))]

    def _scale(self, s: Local) -> list[str]:
        factor = self.constant(s.op.number("factor"), s.x.dtype)
        return [Assignment.of(s.out, self.computed(f"{s.operand} * {factor}", s.y))]

    def _cast(self, s: Local) -> list[str]:
        return [Assignment.of(s.out, self.cast(s.operand, s.y.dtype))]

    def _concat(self, s: Local) -> list[str]:
        first, *rest = self.joined(s.operands, s.op.integer("dim"))
        return [Assignment.of(s.out, first), *rest]

    def _mask(self, s: Local) -> list[str]:
        ones = Reduction(s.op.word("reduction")) is Reduction.PROD
        like = f"{self.library('ones_like' if ones else 'zeros_like')}({s.operand})"
        root = self.names.at_zero(s.op.over)
        line = f"{s.out} = {s.operand} if {root} else {like}"
        if len(line) <= WIDTH - 12:
            return [line]
        return [f"if {root}:", f"    {s.out} = {s.operand}", "else:", f"    {s.out} = {like}"]

    def _slice(self, s: Local) -> list[str]:
        dim, index = s.op.integer("dim"), self.names.factor_over(s.op.over)
        size = s.shape[dim]
        start = f"{index} * {size}"
        if (shares := shares_by_dim(s.op, self.mesh)) is not None:
            parts = self.names.parts_of(s.op.over, shares[dim])
            before = f"sum({parts}[: {self.names.index_over(s.op.over)}])"
            start = f"{before} * {shares[dim].unit(size)}"
        rest = self.rest if dim + 1 < len(s.shape) else ""
        block = f"{s.operand}[{':, ' * dim}start : start + {size}{rest}]"
        return [f"start = {start}", f"{s.out} = {self.packed(block)}"]

    def _pad(self, s: Local) -> list[str]:
        op, x, y, operand, out = s.op, s.x, s.y, s.operand, s.out
        dim, low, high = (op.integer(name) for name in ("dim", "low", "high"))
        before, after = x.local_shape(self.mesh)[dim], y.local_shape(self.mesh)[dim]

        def part(name: str, start: int, stop: int, size: int) -> str:
            if (start, stop) == (0, size):
                return name
            first, last = str(start) if start else "", str(stop) if stop != size else ""
            # No space around a colon between numbers, as formatters have it.
            rest = self.rest if dim + 1 < len(x.dims) else ""
            return f"{name}[{':, ' * dim}{first}:{last}{rest}]"

        kept = part(operand, max(-low, 0), before - max(-high, 0), before)
        if low <= 0 and high <= 0:
            in_order = op.place_in_operand(self.mesh) is not None
            return [Assignment.of(out, kept if in_order else self.packed(kept))]
        place = part(out, max(low, 0), after - max(high, 0), after)
        made = self.full(y.local_shape(self.mesh), y.dtype, op.number("value"))
        return [Assignment.of(out, made), f"{place if place != out else f'{out}[...]'} = {kept}"]

    LOCAL: ClassVar[Emitters[Local]] = OperationTable(
        "PythonFunction.LOCAL",
        __name__,
        {
            "keep_root": _keep,
            "keep": _keep,
            "part": _keep,
            "assemble": _assemble,
            "compute": _compute,
            "barrier": _barrier,
            "terms": _view,
            "split": _view,
            "merge": _view,
            "reshape": _view,
            "transpose": _transpose,
            "add": _add,
            "scale": _scale,
            "cast": _cast,
            "concat": _concat,
            "mask": _mask,
            "slice": _slice,
            "pad": _pad,
        },
        row="a method that returns its statements in Python",
    )
    """The statements of each step that sends nothing, for the ranks that hold its result."""


def is_started(op: DistOp) -> bool:
    """Return whether a step is a send that is waited for later."""
    return op.is_async and op.kind is SEND


def _assigned(variable: str, lines: Sequence[str]) -> list[str]:
    """Return the lines of a call, with its result assigned to a variable."""
    return [f"{variable} = {lines[0]}", *lines[1:]]


def is_first(shape: Sequence[int], dim: int) -> bool:
    """Return whether the blocks of a dimension lie one behind the other."""
    return math.prod(shape[:dim]) == 1
