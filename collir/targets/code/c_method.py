"""The function of a local program in C: its names, its memory, its places and its loops.

Memory that the program allocates is a part of one piece, where the lowering has placed it, and
views are pointers. A class per library says how it copies, computes and sends.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import ClassVar

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Block, Operation, SSAValue

from collir.dialects.local import (
    MASK,
    STEP,
    AllocOp,
    ComputeOp,
    CopyOp,
    LocalCallOp,
    LocalFuncOp,
    LocalRepeatOp,
    StartOp,
    WaitOp,
    origin_of,
    place_around,
    started_by,
)
from collir.dialects.local_types import buffer_of
from collir.dialects.operation import DistOp
from collir.ir.names import names_in_block
from collir.layout import DType, Place, Reduction, at_root, place_at
from collir.layout.local import LocalBuffer
from collir.layout.sizes import OpenSize
from collir.targets.code.c_copies import Pointer
from collir.targets.code.c_mesh import HANDLE, CMesh
from collir.targets.code.c_signature import CSignature
from collir.targets.code.c_text import (
    C_TYPES,
    C,
    Comment,
    Words,
    comment,
    condition_text,
    size_text,
    variables,
)
from collir.targets.code.rank_leaves import (
    Piece,
    RankOperation,
    is_memory,
    is_waited_at_once,
    leaves,
    loops_around,
    merged_pieces,
    place_of_memory,
)
from collir.transforms.any_size import Condition, is_product

MEMORY = "memory"
"""The variable for the memory of all temporaries, a name that no other has."""


@dataclass
class CMethod(ABC):
    """The function of a local program in C; a library says how it copies, computes and sends.

    Attributes:
        signature: what it has from the function of the program.
        is_task: whether other functions call it, with memory for its temporaries.
        others: the functions of the file, by their names.
        needs: the sections of the runtime.
        pointer: the pointer to each memory.
        places: the place of the ranks that have a memory.
    """

    function: LocalFuncOp
    names: CMesh
    signature: CSignature
    is_task: bool
    others: Mapping[str, "CMethod"] = field(default_factory=dict[str, "CMethod"], kw_only=True)
    needs: set[str] = field(default_factory=lambda: {"check"}, kw_only=True)

    words: ClassVar[Words] = C
    types: ClassVar[Mapping[DType, str]] = C_TYPES
    """The type of each element in memory."""
    result: ClassVar[str] = "int"
    """The type of what a function returns."""
    success: ClassVar[str]
    """The value that means success."""
    linkage: ClassVar[str] = ""
    """The words before functions that other files may call."""
    inner: ClassVar[str] = ", on memory for its temporaries."
    """The words for how the function for this file differs from the one for others."""
    last: ClassVar[Sequence[tuple[str, str]]] = ()
    """The types and names of the parameters behind the buffers and the sizes."""

    def __post_init__(self) -> None:
        self.mesh = self.names.mesh
        self.has_memory = False
        self.pointer: dict[SSAValue, Pointer] = {}
        self.places: dict[SSAValue, Place] = {}
        self.pending: dict[StartOp, list[str]] = {}
        self.shared: Mapping[SSAValue, SSAValue] = {}  # arguments in which results may lie
        self.apart = set[Operation]()  # collectives that are not waited for where they start
        body = self.function.body.block
        self.allocated = [op for op in self.function.walk() if isinstance(op, AllocOp)]
        self._name()
        places = (place.data for place in self.function.places)
        self.places |= zip(body.args, places, strict=True)
        self.places |= {op.result: place_of_memory(op.result) for op in self.allocated}

    # --- names --------------------------------------------------------------------------------

    def _name(self) -> None:
        """Give each memory a variable, and each loop."""
        body = self.function.body.block
        shown = names_in_block(body)
        number, named = count(), dict[SSAValue, str]()
        taken = {x.name_hint for x in self.function.inputs}
        outputs = list(self.function.outputs)
        for value in (x for x in shown if is_memory(x)):
            word = shown[value] if value.name_hint else str(next(number))
            if value in outputs and (not value.name_hint or value.name_hint in taken):
                word = f"out{outputs.index(value) if len(outputs) > 1 else ''}"
            named[value] = word
        loops = [op for op in self.function.walk() if isinstance(op, LocalRepeatOp)]
        depths = [loops_around(op) for op in loops]
        own = [self.function.sym_name.data, *self.signature.sizes]
        turns = ["turn"] * (1 + max(depths, default=-1))
        words = variables([*own, *named.values(), *turns], self.words)[len(own) :]
        self.pointer |= zip(named, map(Pointer, words), strict=False)
        indices = words[len(named) :]
        self.index = {op: indices[depth] for op, depth in zip(loops, depths, strict=True)}

    def name_of(self, memory: SSAValue) -> str:
        """Return the variable of a memory."""
        return self.pointer[memory].name

    def of(self, value: SSAValue) -> Pointer:
        """Return the pointer to a buffer."""
        root, start = origin_of(value)
        return self.pointer[root].plus(self.names.spelled(start) if start != 0 else "")

    def held(self, value: SSAValue, context: Place) -> str:
        """Return the pointer to a buffer where some ranks may not have it.

        Args:
            context: the place of the ranks that ask.
        """
        root, pointer = origin_of(value)[0], self.of(value)
        rest = dict(set(self.places[root]) - set(context))
        condition = self.names.at_place(place_at(rest))
        return f"({condition} ? {pointer} : NULL)" if condition and pointer.start else str(pointer)

    def elements(self, x: LocalBuffer) -> str:
        """Return the number of elements of a buffer."""
        return self.names.spelled(x.elements)

    # --- the function -------------------------------------------------------------------------

    @property
    def symbol(self) -> str:
        """The name by which other files call it, if it is not static."""
        prefix = "" if self.signature.static else self.names.prefix
        return f"{prefix}{self.function.sym_name.data}"

    def parameters(self) -> list[str]:
        lines = [f"{self.names.kind} *{HANDLE}"] if self.names.has_handle else []
        lines += [f"const {self._kind(x)} *{self.name_of(x)}" for x in self.function.inputs]
        lines += [f"{self._kind(x)} *{self.name_of(x)}" for x in self.function.outputs]
        lines += [f"size_t {name}" for name in self.signature.sizes]
        return [*lines, *(f"{kind} {name}" for kind, name in self.last)]

    def declaration(self) -> str:
        """Return the declaration for other files, without a semicolon."""
        return f"{self.result} {self.symbol}({', '.join(self.parameters()) or 'void'})"

    def declarations_of_parts(self) -> list[str]:
        """Return the declarations of functions that run a part of it, without semicolons."""
        return []

    @property
    def is_inner(self) -> bool:
        """True if others pass it memory for its temporaries."""
        return self.is_task and self.arena != 0

    def extra(self) -> list[tuple[str, str]]:
        """Return the types and names of parameters that only functions of the file pass."""
        return [("char *", MEMORY)] if self.is_inner else []

    def called(self) -> str:
        """Return the name by which other functions of the file call it."""
        is_other = self.extra() and not self.signature.static
        return f"collir_{self.function.sym_name.data}" if is_other else self.symbol

    def head(self) -> str:
        """Return the declaration of the function that others call, without a semicolon."""
        extra = [f"{kind}{name}" for kind, name in self.extra()]
        static = "static " if self.signature.static or extra else self.linkage
        parameters = ", ".join([*self.parameters(), *extra])
        return f"{static}{self.result} {self.called()}({parameters or 'void'})"

    def _kind(self, value: SSAValue) -> str:
        return self.types[buffer_of(value).dtype]

    @property
    def arena(self) -> int:
        """The bytes of memory for temporaries."""
        return self.function.arena.data if self.function.arena else 0

    def passed(self, buffers: Iterable[str], *sizes: str) -> str:
        """Return the arguments of a call of a function on the same mesh."""
        handle = [HANDLE] if self.names.has_handle else []
        return ", ".join([*handle, *buffers, *sizes, *(name for _, name in self.last)])

    def comment(self) -> Comment:
        """Return a comment with the types of the buffers in ``.coll``."""
        pairs = zip(self.function.body.block.args, self.signature.types, strict=True)
        parts: list[str] = []
        for value, x in pairs:
            condition = self.names.at_place(x.place)
            where = f", at {condition}" if condition else ""
            if value in self.shared:
                where += f", and may lie in {self.name_of(self.shared[value])}"
            size = self.elements(buffer_of(value))
            parts.append(f"{self.name_of(value)}[{size}] is {comment(x.text(self.mesh))}{where}")
        return Comment("/* " + ";\n * ".join(parts) + ". */")

    def text(self) -> list[str]:
        """Return the function with a comment that has its types in ``.coll``."""
        steps = self.steps()
        choice, memory = self._choice(), self._memory(steps)
        inner = [*choice, *memory, *self.preparation(), *steps]
        used = words_in(inner)
        args = [HANDLE] if self.names.has_handle else []
        args += [self.name_of(x) for x in self.function.body.block.args]
        args += [*self.signature.sizes, *(name for _, name in self.last)]
        args += [name for _, name in self.extra()]
        unused = [f"(void){name};" for name in args if name not in used]
        lines = [*self.declarations(), *unused, *inner]
        is_other = self.called() != self.symbol
        above = Comment(f"/* The function below{self.inner} */") if is_other else self.comment()
        text = [above, self.head(), "{", *self.body(lines), "}", ""]
        return [*text, *self.entries()] if is_other else text

    def steps(self) -> list[str]:
        """Return the statements of all steps."""
        return list(self.placed(self.pieces(self.function.body.block, ()), ()))

    def entries(self) -> list[str]:
        """Return the functions for other files where the function itself is for this one."""
        args = self.passed(map(self.name_of, self.function.body.block.args), *self.signature.sizes)
        self.has_memory = True
        call = f"TRY({self.called()}({args}, {MEMORY}));"
        lines = [*self.acquired(size_text(self.arena)), call]
        head = f"{self.linkage}{self.declaration()}"
        return [self.comment(), head, "{", *self.body(lines), "}", ""]

    @abstractmethod
    def body(self, lines: Sequence[str]) -> list[str]:
        """Return statements with what is in front of them and behind them in a function."""

    def declarations(self) -> list[str]:
        """Return the declarations of variables besides those for memory."""
        return []

    def preparation(self) -> list[str]:
        """Return the statements in front of all others."""
        return []

    def _memory(self, body: Sequence[str]) -> list[str]:
        """Return the statements that get memory, and say where in it buffers are."""
        lines: list[str] = []
        text = words_in(body)
        for op in self.allocated:
            name, kind = self.name_of(op.result), self._kind(op.result)
            if name in text:
                start = op.start.data if op.start else 0
                place = MEMORY if start == 0 else f"({MEMORY} + {size_text(start)})"
                lines.append(f"{kind} *{name} = ({kind} *){place};")
        if self.is_inner or not (lines or MEMORY in text):
            return lines
        self.has_memory = True
        return [*self.acquired(size_text(self.arena)), *lines]

    @abstractmethod
    def acquired(self, size: str) -> list[str]:
        """Return the statements that get a number of bytes of memory."""

    def _choice(self) -> list[str]:
        """Return the statements that check the sizes, and call the function's replacements for
        larger values, the largest first."""
        own = self.signature
        if not own.sizes or own.static:
            return []
        lines = [f"if ({own.sizes[0]} == 0) return {self.success};"] if own.wide else []
        lines += map(self.checked, [*own.needed, *self._bounds()])
        buffers = [self.name_of(x) for x in self.function.body.block.args]
        for choice in own.choices:
            tests = [f"{own.sizes[0]} >= {size_text(choice.least)}"]
            tests += map(condition_text, choice.needed)
            call = self.chosen(self.others[choice.name], self.passed(buffers, *own.sizes))
            lines.append(f"if ({' && '.join(tests)}) return {call};")
        if any("is_size(" in line for line in lines):
            self.needs.add("is_size")
        return lines

    def chosen(self, other: "CMethod", arguments: str) -> str:
        """Return the call of another function that takes the place of this one."""
        return f"{other.symbol}({arguments})"

    def _bounds(self) -> list[Condition]:
        """Return the condition that the bytes of memory are a number, if no other one says so."""
        if not isinstance(self.arena, OpenSize):
            return []
        own, _ = self.arena.formula.fraction()
        known = [x.formula for x in self.signature.needed if x.least == 0]
        is_known = any(x == own or is_product(x - own) for x in known)
        return [] if is_known else [Condition(own, 0)]

    @abstractmethod
    def checked(self, condition: Condition) -> str:
        """Return the statement that ends the function unless a condition on its sizes holds."""

    # --- blocks -------------------------------------------------------------------------------

    def pieces(self, block: Block, context: Place) -> list[Piece]:
        """Return the statements of a block, those of each place by themselves."""
        ops = list(leaves(block, context))
        at_once = {ops[n].op for n in range(len(ops)) if is_waited_at_once(ops, n)}
        at_once -= self.apart
        pieces: list[Piece] = []
        for leaf in ops:
            lines = list(self._statements(leaf, at_once))
            first = self.in_front(leaf.op)
            note = leaf.op.attributes.get(STEP)
            if isinstance(note, StringAttr) and (lines or isinstance(leaf.op, ComputeOp)):
                named = first if leaf.place == context else lines  # no condition stands between
                named.insert(0, Comment(f"// {comment(note.data)}"))
            pieces += [(context, first), (leaf.place, lines), (context, self.behind(leaf.op))]
        return pieces

    def in_front(self, op: Operation) -> list[str]:
        """Return the statements in front of an operation, for all ranks, even those that skip
        it."""
        return []

    def behind(self, op: Operation) -> list[str]:
        """Return the statements behind an operation, for all ranks, even those that skip it."""
        return []

    def placed(self, pieces: Sequence[Piece], context: Place) -> Iterator[str]:
        """Yield the statements of pieces, those of one place together."""
        for place, lines in merged_pieces(pieces):
            rest = tuple(item for item in place if item not in context)
            if condition := self.names.at_place(rest):
                yield f"if ({condition}) {{"
                yield from map(indented, lines)
                yield "}"
            else:
                yield from lines

    def _statements(self, leaf: RankOperation, at_once: Collection[Operation]) -> list[str]:
        place, op = leaf
        match op:
            case CopyOp():
                return self._copy(op.source, op.target)
            case ComputeOp():
                return self._compute(op)
            case LocalCallOp():
                return [self._call(op)]
            case LocalRepeatOp():
                return self._loop(op, place)
            case StartOp():
                start, wait = self.collective(op, op in at_once)
                self.pending[op] = wait
                return start
            case WaitOp():
                started = started_by(op.token)
                return self.pending.get(started, []) if started else []
            case _:
                return []

    @abstractmethod
    def collective(self, op: StartOp, waits: bool) -> tuple[list[str], list[str]]:
        """Return the statements that start a collective, and the statements that wait for it.

        Args:
            waits: whether it is waited for at once.
        """

    # --- steps --------------------------------------------------------------------------------

    def _copy(self, source: SSAValue, target: SSAValue) -> list[str]:
        x, y = (self.names.named(buffer_of(value)) for value in (source, target))
        return self.copied(self.of(source), x, self.of(target), y)

    @abstractmethod
    def copied(self, source: Pointer, x: LocalBuffer, target: Pointer, y: LocalBuffer) -> list[str]:
        """Return the statements that copy the elements of a buffer to another one."""

    @abstractmethod
    def filled(self, target: Pointer, y: LocalBuffer, value: float) -> list[str]:
        """Return the statements that write the same value to all elements of a buffer."""

    def _compute(self, op: ComputeOp) -> list[str]:
        if not op.outputs:
            return self.computation(op)
        [target] = op.outputs
        y, out = self.names.named(buffer_of(target)), self.of(target)
        if op.kernel.data == MASK:
            return self._masked(op)
        if op.kernel.data == "constant":
            return self.filled(out, y, op.step().number("value"))
        inputs = list(map(self.of, op.inputs))
        assert all(buffer_of(x).is_contiguous for x in (*op.inputs, target)), op.kernel.data
        starts = [self.names.spelled(start.data) for start in op.starts or ()]
        return self.computed(op.step(self.names.named), starts, inputs, out, y)

    @abstractmethod
    def computed(
        self,
        op: DistOp,
        starts: Sequence[str],
        inputs: Sequence[Pointer],
        out: Pointer,
        y: LocalBuffer,
    ) -> list[str]:
        """Return the statements of an operation on contiguous buffers.

        Args:
            starts: where the block that it reads or writes begins in the whole.
        """

    def _masked(self, op: ComputeOp) -> list[str]:
        [target], [start] = op.outputs, [*(op.starts or ())]
        index = start.data
        axes = index.formula.parameters if isinstance(index, OpenSize) else ()
        reduction = op.arguments.data["reduction"]
        assert isinstance(reduction, StringAttr)
        ones = Reduction(reduction.data) is Reduction.PROD
        y = self.names.named(buffer_of(target))
        copy = self._copy(op.inputs[0], target)
        if not (condition := self.names.at_place(at_root(axes))):
            return copy
        fill = self.filled(self.of(target), y, float(ones))
        lines = [f"if ({condition}) {{", *map(indented, copy), "} else {"]
        return [*lines, *map(indented, fill), "}"]

    @abstractmethod
    def computation(self, op: ComputeOp) -> list[str]:
        """Return the statements for a computation of which only the time is known."""

    def seconds(self, op: ComputeOp, number: Callable[[float], str] = repr) -> str:
        """Return the seconds of a computation on this rank as an expression of the number of its
        operations; empty if it takes none.

        Args:
            number: a function that returns seconds as text.
        """
        step = op.step(place=place_around(op))
        flops = next((x for x in step.arguments.values() if isinstance(x, OpenSize)), None)
        if flops is None:
            return self.names.seconds_of(op, number)
        above, below = flops.formula.fraction()
        unit = 1
        if len(above.terms) == 1 and not below.parameters:  # a number times parameters
            unit = int(above.terms[0][1])
        per_unit = unit / int(flops)
        text = self.names.seconds(step, lambda seconds: number(seconds * per_unit))
        if not text:
            return ""
        grown = size_text(flops // unit)
        grown = f"(double)({grown})" if " " in grown else f"(double){grown}"
        return f"{grown} * ({text})" if " " in text else f"{grown} * {text}"

    def _call(self, op: LocalCallOp) -> str:
        place, callee = place_around(op), op.function()
        arguments = self.passed(self.held(x, place) for x in (*op.inputs, *op.outputs))
        if callee.arena and callee.arena.data != 0:
            start = op.start.data if op.start else 0
            arguments += f", {MEMORY}" if start == 0 else f", {MEMORY} + {size_text(start)}"
        return f"TRY({self.callee(callee)}({arguments}));"

    def callee(self, function: LocalFuncOp) -> str:
        """Return the name by which a function is called."""
        return self.others[function.sym_name.data].called()

    # --- loops --------------------------------------------------------------------------------

    def _loop(self, op: LocalRepeatOp, place: Place) -> list[str]:
        body, index, times = op.body.block, self.index[op], op.count
        carried = 2 * len(op.begins)
        turns = list(zip(body.args[:carried:2], body.args[1:carried:2], strict=True))
        for end, pair in zip(op.ends, turns, strict=True):
            self.places |= dict.fromkeys(pair, self.places[origin_of(end)[0]])
        for stack, row in zip(op.stacks, body.args[carried:], strict=True):
            root, start = origin_of(stack)
            self.places[row] = self.places[root]
            number = f"({size_text(times - 1)} - {index})" if op.reverse is not None else index
            step = self.names.factor(buffer_of(row).elements)
            offset = f"{self.names.spelled(start)} + " if start != 0 else ""
            self.pointer[row] = self.pointer[root].plus(f"{offset}{number} * {step}")
        inner = list(self.placed(self.pieces(body, place), place))
        before: list[str] = []
        after: list[str] = []
        used = words_in(inner)
        for begin, end, spare, (now, following) in zip(
            op.begins, op.ends, op.spares, turns, strict=True
        ):
            kind, read, written = self._kind(now), self.name_of(now), self.name_of(following)
            last, spare_name = self.held(end, place), self.held(spare, place)
            first = last if times % 2 else spare_name
            if isinstance(times, OpenSize) and last != spare_name:
                first = f"{self.names.factor(times)} % 2 ? {last} : {spare_name}"
            if read in used:
                start = self.held(begin, place)
                before.append(f"const {kind} *{read} = {start};")
                after += [f"{read} = {written};"] * (start != first or last != spare_name)
            before.append(f"{kind} *{written} = {first};")
            if times != 1 and last != spare_name:
                after.append(f"{written} = {written} == {last} ? {spare_name} : {last};")
        head = f"for (size_t {index} = 0; {index} < {size_text(times)}; ++{index}) {{"
        lines = [*before, head, *map(indented, [*inner, *after]), "}"]
        return ["{", *map(indented, lines), "}"] if before else lines


def words_in(lines: Iterable[str]) -> set[str]:
    """Return the names in statements, without names of members and words of comments."""
    code = "\n".join(line for line in lines if not isinstance(line, Comment))
    return set(re.findall(r"(?<![\w.])(?<!->)\b\w+", code))


def indented(line: str) -> str:
    """Return a line inside of others, which is a comment if it was one."""
    return Comment(f"  {line}") if isinstance(line, Comment) else f"  {line}"
