"""One function in C or C++: its names, its declaration and its steps."""

import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import ClassVar, NamedTuple

from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from collir.dialects.nested import CallOp, NestedOp, RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.any_size import Condition, conditions
from collir.ir.buffers import BufferPlan, plan_buffers
from collir.ir.loops import body_name
from collir.ir.names import result_names
from collir.ir.parameters import parameters_of
from collir.layout import DistType, place_at
from collir.layout.coll import PAD
from collir.layout.formulas import Formula
from collir.layout.mesh import digits_over, index_over
from collir.layout.sizes import OpenSize
from collir.localize.places import root_place, taking_part
from collir.syntax.step_writer import nested_text
from collir.targets.code.c_local import Local, LocalSteps
from collir.targets.code.c_text import (
    C,
    Comment,
    MeshNames,
    Words,
    comment,
    condition_text,
    element_count,
    factor_text,
    only_if,
    size_text,
    variables,
)
from collir.targets.code.emitters import StepEmitter, written_step


class Carry(NamedTuple):
    """The variables of a carry of a loop.

    Attributes:
        spare: the buffer beside that of the result: iterations write to both in turns.
        source: the buffer that the iteration reads.
        target: the buffer that it writes.
        kept: the value whose memory is the spare buffer; None if it has memory of its own.
    """

    spare: str
    source: str
    target: str
    kept: SSAValue | None


@dataclass
class CFunction(StepEmitter):
    """One function in C or C++: its names, its declaration and its steps.

    Attributes:
        static: whether the function is for its own file only.
        sized: whether the size parameters of the function are arguments.
        wide: whether its size parameter is the width that every function can have.
        instead: the functions that take the place of this one from some sizes on, as multiples of
            the default of its parameter.
        scoped: the steps whose statements declare variables, and so need a block.
    """

    words: ClassVar[Words] = C
    success: ClassVar[str]
    """The value that means success."""
    result: ClassVar[str]
    """The type of what a function returns."""
    linkage: ClassVar[str] = ""
    """The words before functions that other files may call."""
    last_parameters: ClassVar[Sequence[tuple[str, str]]] = ()
    """The types and names of the parameters behind the buffers and the sizes."""

    function: FuncOp
    names: MeshNames
    static: bool = field(default=False, kw_only=True)
    sized: bool = field(default=False, kw_only=True)
    wide: bool = field(default=False, kw_only=True)
    instead: Sequence[tuple[int, FuncOp]] = field(default=(), kw_only=True)
    scoped: set[DistOp] = field(default_factory=set[DistOp], kw_only=True)

    def __post_init__(self) -> None:
        self.mesh = self.names.mesh
        self.plan: BufferPlan = plan_buffers(self.function)
        results = self._result_names()
        elsewhere = {*self.plan.result_of, *self.plan.part_of}
        owners = [
            value
            for value, owner in self.plan.owner.items()
            if owner is value and value not in elsewhere
        ]
        names = [*results, *(self.plan.names[value] for value in owners)]
        carries = [
            f"{self.plan.names[result]}_{word}"
            for op in self.function.body.ops
            if isinstance(op, RepeatOp)
            for result in op.results[: len(op.carried)]
            for word in ("spare", "from", "to")
        ]
        self.sizes = parameters_of(self.function) if self.sized else {}
        # These names are taken: a variable must not hide the function itself, or a size.
        taken = [self.function.sym_name.data, *self.sizes]
        chosen = variables([*taken, *names, *carries], self.words)[len(taken) :]
        of_carries = iter(chosen[len(names) :])
        chosen = chosen[: len(names)]
        self.loops = {
            op: [Carry(*islice(of_carries, 3), kept=x) for x in self.plan.spares(op)]
            for op in self.function.body.ops
            if isinstance(op, RepeatOp)
        }
        self.results = chosen[: len(results)]
        memory = dict(zip(owners, chosen[len(results) :], strict=True))
        memory |= {owner: self.results[index] for owner, index in self.plan.result_of.items()}
        self.places = {value: self._place(memory, value) for value in self.plan.owner}
        self.variable = {value: self._place_text(*place) for value, place in self.places.items()}

    @property
    def nested(self) -> list[NestedOp]:
        """The loops and calls of the function."""
        return [op for op in self.function.body.ops if isinstance(op, NestedOp)]

    @property
    @abstractmethod
    def local(self) -> LocalSteps:
        """The statements of steps that send nothing."""

    # --- names ------------------------------------------------------------------------------

    def _place(self, memory: Mapping[SSAValue, str], value: SSAValue) -> tuple[str, int]:
        """Return the buffer that a value lies in, and the element where it starts."""
        owner, offset = self.plan.owner[value], self.plan.offset[value]
        if owner in self.plan.part_of:
            owner, start = self.plan.part_of[owner]
            offset += start
        return memory[owner], offset

    def _place_text(self, buffer: str, offset: int) -> str:
        return f"({buffer} + {size_text(offset)})" if offset else buffer

    def _result_names(self) -> list[str]:
        """Return a name for each result: its own, or ``out`` if it has none or an argument has it,
        and the result is not written where its value is."""
        owners, returned = set(self.plan.result_of.values()), self.plan.returned
        arguments = {self.plan.names[argument] for argument in self.function.args}
        names: list[str] = []
        for i, name in enumerate(result_names(self.function)):
            if name.isdigit() or name in arguments:
                copied = f"out{i if len(returned) > 1 else ''}"
                name = self.plan.names[returned[i]] if i in owners else copied
            names.append(name)
        return names

    def temporaries(self) -> list[SSAValue]:
        """Return the values that need memory of the function's own."""
        return [value for value in self.plan.owner if self.plan.is_temporary(value)]

    def unused(self) -> list[str]:
        """Return the arguments that no statement names."""
        named = {
            self.plan.owner[operand]
            for op in self.function.body.ops
            if not isinstance(op, DistOp) or not self.plan.is_view(op)
            for operand in op.operands
        }
        return [self.variable[arg] for arg in self.function.args if arg not in named]

    def unused_sizes(self, lines: Iterable[str]) -> list[str]:
        """Return the sizes among the arguments that no line of a function names."""
        text = "\n".join(line for line in lines if not isinstance(line, Comment))
        return [name for name in self.sizes if not re.search(rf"\b{name}\b", text)]

    def scaled_seconds(self, op: DistOp, number: Callable[[float], str] = repr) -> str:
        """Return the seconds that a computation takes on this rank as an expression; empty if it
        takes none. They grow with the number of its operations.

        Args:
            number: a function that returns seconds as text.
        """
        flops = next((x for x in op.arguments.values() if isinstance(x, OpenSize)), None)
        if flops is None:
            return self.names.seconds(op, number)
        above, below = flops.formula.fraction()
        unit = 1
        if len(above.terms) == 1 and not below.parameters:  # a number times parameters
            unit = int(above.terms[0][1])
        grown = size_text(flops // unit)
        each = unit / int(flops)
        text = self.names.seconds(op, lambda seconds: number(seconds * each))
        if not text:
            return ""
        grown = f"({grown})" if " " in grown else grown
        return f"{grown} * ({text})" if " " in text else f"{grown} * {text}"

    def holds(self, x: DistType) -> str:
        """Return the condition that this rank holds a value of a type; empty if all ranks do."""
        return self.names.at_place(x.place)

    def bytes_of(self, x: DistType) -> str:
        """Return the bytes that a rank holds of a value."""
        return size_text(element_count(x, self.mesh) * x.dtype.bytes)

    # --- declarations and comments ----------------------------------------------------------

    def prototype(self) -> str:
        """Return the name of the function and its parameters."""
        types = self.local.elements.types
        parameters = [
            f"const {types[dist_type(arg).dtype]} *{self.variable[arg]}"
            for arg in self.function.args
        ]
        parameters += [
            f"{types[dist_type(value).dtype]} *{name}"
            for value, name in zip(self.plan.returned, self.results, strict=True)
        ]
        parameters += [f"size_t {name}" for name in self.sizes]
        parameters += [f"{kind} {name}" for kind, name in self.last_parameters]
        return f"{self.function.sym_name.data}({', '.join(parameters) or 'void'})"

    def declaration(self) -> str:
        """Return the declaration for a header, without a semicolon."""
        return f"{self.result} {self.prototype()}"

    def signature(self) -> str:
        """Return the declaration for the file that defines the function, without a semicolon."""
        return f"{'static ' if self.static else self.linkage}{self.declaration()}"

    def choice(self) -> list[str]:
        """Return the statements that check the sizes, and the calls of the functions that take the
        place of this one, those for the largest values first."""
        if not self.sizes or self.static:
            return []
        lines: list[str] = []
        needed = conditions(self.function)
        if self.wide:
            (width,) = self.sizes
            lines.append(f"  if ({width} == 0) return {self.success};")
            needed = [x for x in needed if x.formula != Formula.parameter(width)]
        lines += [f"  {self.checked(condition)}" for condition in needed]
        buffers = [*(self.variable[arg] for arg in self.function.args), *self.results]
        last = [name for _, name in self.last_parameters]
        arguments = ", ".join([*buffers, *self.sizes, *last])
        for least, function in self.instead:
            ((name, default),) = self.sizes.items()
            more = [x for x in conditions(function) if x not in needed and not self.wide]
            tests = [f"{name} >= {size_text(least * default)}", *map(condition_text, more)]
            call = f"{function.sym_name.data}({arguments})"
            lines.append(f"  if ({' && '.join(tests)}) return {call};")
        if any("is_size(" in line for line in lines):
            self.local.needs.add("is_size")
        return lines

    @abstractmethod
    def checked(self, condition: Condition) -> str:
        """Return the statement that ends the function unless a condition on its sizes holds."""

    def comment(self) -> Comment:
        """Return a comment with the types of the buffers in ``.coll``."""

        def described(value: SSAValue, name: str) -> str:
            x = dist_type(value)
            where = f", at {self.holds(x)}" if x.place else ""
            count = element_count(x, self.mesh)
            size = size_text(count) if self.sizes else count
            return f"{name}[{size}] is {comment(x.text(self.mesh))}{where}"

        parts = [described(arg, self.variable[arg]) for arg in self.function.args]
        parts += [described(v, n) for v, n in zip(self.plan.returned, self.results, strict=True)]
        return Comment(self.names.resolved("/* " + ";\n * ".join(parts) + ". */"))

    def shown(self, op: DistOp) -> Comment:
        """Return a comment with an operation in ``.coll``."""
        return Comment(f"  // {comment(written_step(op, self.mesh, self.plan.names))}")

    # --- steps ------------------------------------------------------------------------------

    def step(self, op: DistOp) -> list[str]:
        """Return the lines of an operation: its comment, the memory of its result, its statements,
        and the release of the buffers that it is the last to use."""
        if self.plan.is_view(op) and not op.kind.computes:
            return [self.shown(op)] if op.kind is PAD else []
        lines = self.heading(op)
        condition = self.names.at_place(taking_part(op))
        statements = [*self.allocation(op), *self.statements(op)]
        if op.kind.computes:
            lines += [f"  {only_if(condition, statement)}" for statement in statements]
        elif condition or op in self.scoped:
            head = f"if ({condition}) {{" if condition else "{"
            lines += [f"  {head}", *(f"    {statement}" for statement in statements), "  }"]
        else:
            lines += [f"  {statement}" for statement in statements]
        return [*lines, *self.ending(op), *self.release(op)]

    # --- loops ------------------------------------------------------------------------------

    def program(self) -> list[str]:
        """Return the lines of all operations."""
        lines: list[str] = []
        for op in self.function.body.ops:
            if isinstance(op, DistOp):
                lines += self.step(op)
            elif isinstance(op, RepeatOp):
                lines += self.loop(op)
            elif isinstance(op, CallOp):
                lines += self.call_of(op)
        return lines

    def call_of(self, op: CallOp) -> list[str]:
        """Return the lines of a call, at the ranks of its place."""
        callee = op.function()
        assert callee is not None
        last = [name for _, name in self.last_parameters]
        buffers = [self.variable[value] for value in (*op.operands, *op.results)]
        call = self.attempt(f"{body_name(op)}({', '.join([*buffers, *last])})")
        return [
            *self.before_call(op),
            self._shown_nested(op),
            *self._begun(op),
            f"  {only_if(self.names.at_place(op.place(callee)), call)}",
            *self.after_loop(op),
            *self.release(op),
        ]

    def _shown_nested(self, op: NestedOp) -> Comment:
        """Return a comment with an operation that runs others in ``.coll``."""
        text = nested_text(op, lambda values: ", ".join(f"%{self.plan.names[x]}" for x in values))
        names = ", ".join(f"%{self.plan.names[result]}" for result in op.results)
        return Comment(f"  // {comment(f'{names} = {text}')}")

    def _begun(self, op: NestedOp) -> list[str]:
        """Return the lines that get memory for what an operation is the first to write to."""
        return [
            f"  {only_if(self.holds(y), statement)}"
            for value in self.plan.begun_by(op)
            if (y := dist_type(value)) and self.is_allocated(value)
            for statement in self.new(self.variable[value], y)
        ]

    def loop(self, op: RepeatOp) -> list[str]:
        """Return the lines of a loop, which calls the function of its body."""
        new = self._begun(op)
        block = self._iterations(op)
        if op.carried:
            block = ["{", *(f"  {line}" for line in (*self._carried(op), *block)), "}"]
        return [
            *self.before_loop(op),
            self._shown_nested(op),
            *new,
            *(f"  {line}" for line in block),
            *self.after_loop(op),
            *self.release(op),
        ]

    def _carried(self, op: RepeatOp) -> list[str]:
        """Return the statements that get a second buffer for each carry, and the variables for the
        buffers that an iteration reads and writes; the last one writes that of the result."""
        lines: list[str] = []
        for operand, result, names in zip(op.carried, op.results, self.loops[op], strict=False):
            y, out = dist_type(result), self.variable[result]
            kind = self.local.elements.types[y.dtype]
            if op.times != 1 and names.kept is None:
                lines += self.new_spare(names.spare, y)
            first = out if op.times % 2 else names.spare
            if isinstance(op.times, OpenSize):
                first = f"{factor_text(op.times)} % 2 ? {out} : {names.spare}"
            lines.append(f"const {kind} *{names.source} = {self.variable[operand]};")
            lines.append(f"{kind} *{names.target} = {first};")
        return lines

    def _iterations(self, op: RepeatOp) -> list[str]:
        carries = self.loops[op]
        inputs, outputs = [x.source for x in carries], [x.target for x in carries]
        inputs += [self._row(op, operand) for operand in op.sliced]
        inputs += [self.variable[operand] for operand in op.invariant]
        outputs += [self._row(op, result) for result in op.results[len(carries) :]]
        last = [*self.sizes, *(name for _, name in self.last_parameters)]
        call = f"{body_name(op)}({', '.join([*inputs, *outputs, *last])})"
        lines = [
            f"for (size_t i = 0; i < {size_text(op.times)}; ++i) {{",
            f"  {self.attempt(call)}",
        ]
        for result, names in zip(op.results, carries, strict=False):
            lines.append(f"  {names.source} = {names.target};")
            if op.times != 1:
                out = self.variable[result]
                spare = names.spare if names.kept is None else self.variable[names.kept]
                swapped = f"{names.target} == {out} ? {spare} : {out}"
                lines.append(f"  {names.target} = {swapped};")
        return [*lines, "}"]

    def _row(self, op: RepeatOp, value: SSAValue) -> str:
        """Return the slice of a stacked value that an iteration takes or makes."""
        x = dist_type(value)
        number = f"({size_text(op.times - 1)} - i)" if op.is_reverse else "i"
        elements = element_count(x, self.mesh) // op.times
        row = f"{self.variable[value]} + {number} * {factor_text(elements)}"
        condition = self.holds(x)
        return f"({condition} ? {row} : NULL)" if condition else row

    @abstractmethod
    def attempt(self, call: str) -> str:
        """Return the statement that makes a call, and ends the function if it fails."""

    def before_loop(self, op: RepeatOp) -> list[str]:
        """Return the lines that wait for all that is under way."""
        return []

    def before_call(self, op: CallOp) -> list[str]:
        """Return the lines that wait for the operands of a call."""
        return []

    def after_loop(self, op: NestedOp) -> list[str]:
        """Return the lines behind a loop or a call."""
        return []

    def is_allocated(self, value: SSAValue) -> bool:
        """Return whether a temporary gets memory where it is first written to."""
        return True

    @abstractmethod
    def new_spare(self, name: str, y: DistType) -> list[str]:
        """Return the statements that get memory for a spare buffer of a carry."""

    @abstractmethod
    def heading(self, op: DistOp) -> list[str]:
        """Return the comment of an operation, and the statements that wait for its operands."""

    def allocation(self, op: DistOp) -> list[str]:
        """Return the statements that get memory for the temporary that it is the first to write."""
        lines: list[str] = []
        for value in self.plan.begun_by(op):
            if not self.is_allocated(value):
                continue
            y = dist_type(value)
            more = self.names.at_place(y.without_place(dict(taking_part(op))).place)
            lines += [only_if(more, line) for line in self.new(self.variable[value], y)]
        return lines

    @abstractmethod
    def new(self, name: str, y: DistType) -> list[str]:
        """Return the statement that gets memory for a value, if that takes a statement."""

    def ending(self, op: DistOp) -> list[str]:
        """Return the lines behind the statements of an operation."""
        return []

    def release(self, op: Operation) -> list[str]:
        """Return the lines that free the temporaries of which an operation is the last use."""
        owners = dict.fromkeys(map(self.plan.buffer, op.operands))
        return [
            line
            for owner in owners
            if self.plan.is_temporary(owner) and self.is_last_use(owner, op)
            for line in self.freed(self.variable[owner])
        ]

    @abstractmethod
    def is_last_use(self, owner: SSAValue, op: Operation) -> bool:
        """Return whether nothing reads a buffer after an operation."""

    @abstractmethod
    def freed(self, name: str) -> list[str]:
        """Return the lines that free a temporary."""

    def local_step(self, op: DistOp) -> list[str]:
        operands = [self.variable[operand] for operand in op.operands]
        buffer, offset = self.places[op.result]
        starts = [
            start - offset if memory == buffer else None
            for memory, start in (self.places[operand] for operand in op.operands)
        ]
        return self.local.statements(
            Local(op, self.names, operands, self.variable[op.result], starts)
        )

    def copied_results(self) -> list[str]:
        """Return the copies of the results that lie in the memory of arguments or other results."""
        lines: list[str] = []
        for index, (value, name) in enumerate(zip(self.plan.returned, self.results, strict=True)):
            if self.plan.result_of.get(self.plan.owner[value]) != index:
                x = dist_type(value)
                copy = self.local.copy(name, self.variable[value], self.bytes_of(x))
                lines.append(f"  {only_if(self.holds(x), copy)}")
        return lines

    def communicator(self, op: DistOp) -> str:
        """Return the communicator of the sub-axes that an operation is over."""
        return f"{self.names.variable}.{self.names.communicators[op.over]}"

    def root(self, op: DistOp) -> int:
        """Return the rank of the root of a collective in its communicator."""
        if "root" not in (op.kind.before, op.kind.after):
            return 0
        return index_over(self.mesh, op.over, dict(root_place(op)))

    def ends(self, op: DistOp) -> tuple[str, str]:
        """Return the conditions that this rank sends, and that it receives, in a send."""
        sender, receiver = (
            self.names.at_place(place_at(digits_over(self.mesh, op.over, op.integer(name))))
            for name in ("sender", "receiver")
        )
        return sender, receiver

    def neighbours(self, op: DistOp, nobody: str) -> list[str]:
        """Return the variables ``to`` and ``from`` of a shift: the ranks in the communicator that
        this rank sends to and receives from.

        Args:
            nobody: the rank that stands for none, at the ends of an open ring.
        """
        self.scoped.add(op)
        by = op.integer("distance")
        ends = {"to": by, "from": -by}
        if "open" not in op.properties:
            return [f"int {end} = {self.names.next_index(op.over, n)};" for end, n in ends.items()]
        lines = [f"int {end} = {self.names.index_on_line(op.over, n)};" for end, n in ends.items()]
        for end, distance in ends.items():
            beyond = self.names.beyond_line(op.over, distance, end)
            lines.append(f"if ({beyond}) {end} = {nobody};")
        return lines

    def partners(self, op: DistOp) -> list[str]:
        """Return the variables ``to`` and ``from`` of a permute: the ranks that this rank's block
        goes to and comes from."""
        self.scoped.add(op)
        x, y = dist_type(op.input), dist_type(op.result)
        return [*self._partner("to", x, y), *self._partner("from", y, x)]

    def exchanged(self, op: DistOp) -> list[str]:
        """Return the arguments of a permute for its blocks: memory, elements and rank of the one
        that leaves, then of the one that comes, which may differ in size."""
        return [
            word
            for value, rank in ((op.operands[0], "to"), (op.result, "from"))
            for word in (
                self.variable[value],
                size_text(element_count(dist_type(value), self.mesh)),
                rank,
            )
        ]

    def _partner(self, name: str, x: DistType, y: DistType) -> list[str]:
        """Return a variable for the rank whose place in layout ``y`` is this rank's in layout
        ``x``."""
        terms = (f"  + {term}" for term in self.names.to_partner(x, y))
        lines = [f"int {name} = {self.names.variable}.rank", *terms]
        return [*lines[:-1], f"{lines[-1]};"]
