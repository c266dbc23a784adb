"""The writer of local functions: one statement a line, in the words of ``.coll``."""

from collections.abc import Iterable, Iterator, Mapping

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from collir.dialects.local import (
    STEP,
    AllocOp,
    AtOp,
    ComputeOp,
    CopyOp,
    FreeOp,
    LocalCallOp,
    LocalFuncOp,
    LocalRepeatOp,
    LocalYieldOp,
    StartOp,
    ViewOp,
    WaitOp,
    mesh_at,
)
from collir.dialects.local_types import RankNumberAttr, buffer_of
from collir.dialects.operation import arguments_of
from collir.dialects.parameters import parameters_of
from collir.dialects.tables import OPERATIONS
from collir.ir.diagnostics import DiagnosticError
from collir.ir.names import names_in_block
from collir.layout import Mesh, Place
from collir.layout.local import rank_text
from collir.layout.types import place_text
from collir.syntax.local_kinds import kernel_kind, start_kind, without_formulas
from collir.syntax.step_writer import clauses_text, step_text


def local_text(function: LocalFuncOp) -> str:
    """Return a local function as a text.

    Raises:
        DiagnosticError: an operation cannot be written in ``.coll``.
    """
    try:
        mesh = mesh_at(function)
    except VerifyException as error:
        raise DiagnosticError.at(function, f"{error}: use -t mlir") from error
    return _LocalText(function, mesh).text()


class _LocalText:
    """The text of a local function, with the steps of the global program as comments.

    Attributes:
        names: the names of its values.
    """

    def __init__(self, function: LocalFuncOp, mesh: Mesh):
        self.function, self.mesh = function, mesh
        self.names: Mapping[SSAValue, str] = names_in_block(function.body.block)

    def text(self) -> str:
        """Return the whole function."""
        function = self.function
        places = [place.data for place in function.places]
        held = [
            f"{self._list([arg])}: {buffer_of(arg)}{self._at(place)}"
            for arg, place in zip(function.body.block.args, places, strict=True)
        ]
        count = len(function.inputs)
        sizes = ", ".join(f"{name} = {value}" for name, value in parameters_of(function).items())
        head = f"local @{function.sym_name.data}{f'({sizes})' * bool(sizes)}"
        head += f"({', '.join(held[:count])})"
        if len(held) == count + 1:
            head += f" -> {held[-1]}"
        elif held[count:]:
            head += f" -> ({', '.join(held[count:])})"
        head += f" on @{self.mesh.name}{_number(' arena', function.arena)} {{"
        lines = (f"  {line}" for line in self._lines(function.body.block))
        return "\n".join([head, *lines, "}", ""])

    def _list(self, values: Iterable[SSAValue]) -> str:
        return ", ".join(f"%{self.names[value]}" for value in values)

    def _at(self, place: Place) -> str:
        return f" at({place_text(place, self.mesh)})" if place else ""

    def _lines(self, block: Block) -> Iterator[str]:
        for op in block.ops:
            if isinstance(step := op.attributes.get(STEP), StringAttr):
                yield f"// {step.data}"
            yield from self._statement(op)

    def _body(self, head: str, block: Block) -> Iterator[str]:
        yield f"{head} {{"
        yield from (f"  {line}" for line in self._lines(block))
        yield "}"

    def _statement(self, op: Operation) -> Iterator[str]:
        """Yield the lines of an operation."""
        made = f"{self._list(op.results)} = " if op.results else ""
        match op:
            case AllocOp():
                place = self._at(op.place.data if op.place else ())
                start = _number(" from", op.start)
                yield f"{made}alloc {buffer_of(op.result)}{place}{start}"
            case FreeOp():
                yield f"free {self._list([op.memory])}"
            case ViewOp():
                offset = op.offset.data
                start = f" from {rank_text(offset)}" if offset != 0 else ""
                at = self._at(op.place.data if op.place else ())
                yield f"{made}view {self._list([op.whole])} as {buffer_of(op.result)}{at}{start}"
            case CopyOp():
                yield f"copy {self._list([op.source])} -> {self._list([op.target])}"
            case StartOp():
                yield f"{made}start {self._start(op)}"
            case WaitOp():
                yield f"wait {self._list([op.token])}"
            case ComputeOp():
                yield f"compute {self._compute(op)}"
            case LocalCallOp():
                targets = f" -> {self._list(op.outputs)}" if op.outputs else ""
                arguments = f"({self._list(op.inputs)}){targets}"
                callee = op.callee.string_value()
                yield f"call @{callee}{arguments}{_number(' from', op.start)}"
            case AtOp():
                yield from self._body(f"{made}{self._at(op.place.data).strip()}", op.body.block)
            case LocalYieldOp():
                if op.tokens:
                    yield f"yield {self._list(op.tokens)}"
            case LocalRepeatOp():
                yield from self._body(self._repeat(op), op.body.block)
            case _:
                raise DiagnosticError.at(op, f"{op.name} cannot be written in .coll: use -t mlir")

    def _start(self, op: StartOp) -> str:
        name = op.kind.data
        kind = start_kind(OPERATIONS[name].KIND, has_peers=op.peers is not None)
        arguments = arguments_of(kind, op.properties)
        own = {"kind", "reduction", "peers", "sends", "receives"}
        if unwritten := op.properties.keys() - {*own, *arguments}:
            if unwritten == {"axes"} and not op.axes.data:
                unwritten = None
            else:
                message = f"a {name} has no {min(unwritten)}: use -t mlir"
                raise DiagnosticError.at(op, message)
        written = {key: without_formulas(value) for key, value in arguments.items()}
        reduction = f" {op.reduction.data}" if op.reduction else ""
        ends = f"{self._list([op.source])} -> {self._list([op.target])}"
        text = f"{name}{reduction} {ends}{clauses_text(kind, written, self.mesh)}"
        lists = {"peers": op.receivers, **dict(zip(("sends", "receives"), op.counts, strict=True))}
        for word, numbers in lists.items():
            text += f" {word} [{_texts(numbers)}]" if numbers else ""
        return text

    def _compute(self, op: ComputeOp) -> str:
        operands = self._list(op.inputs)
        if op.outputs:
            operands = f"{operands} -> {self._list(op.outputs)}".strip()
        text = self._kernel(op, operands)
        if op.starts:
            text += f" starts [{_texts(start.data for start in op.starts)}]"
        if op.whole:
            text += f" of [{', '.join(map(str, op.whole.data))}]"
        return text

    def _kernel(self, op: ComputeOp, operands: str) -> str:
        """Return a computation with its arguments."""
        name, step = op.kernel.data, op.step()
        kind = kernel_kind(OPERATIONS[name].KIND)
        if kind is None:
            raise DiagnosticError.at(op, f"a computation {name} is not written: use -t mlir")
        return step_text(step, self.mesh, operands, kind)

    def _repeat(self, op: LocalRepeatOp) -> str:
        words = [f"repeat {rank_text(op.count)}"]
        arguments = iter(op.body.block.args)
        for buffers in zip(op.begins, op.ends, op.spares, strict=True):
            own = self._list([next(arguments), next(arguments)])
            words.append(f"carry({own} = {self._list(buffers)})")
        rows = [f"{self._list([next(arguments)])} = {self._list([x])}" for x in op.stacks]
        if rows:
            words.append(f"slice({', '.join(rows)})")
        return " ".join([*words, *(["reverse"] if op.reverse else [])])


def _texts(numbers: Iterable[int]) -> str:
    return ", ".join(map(rank_text, numbers))


def _number(word: str, value: Attribute | None) -> str:
    """Return a word and a number behind it, or nothing if there is none."""
    return f"{word} {rank_text(value.data)}" if isinstance(value, RankNumberAttr) else ""
