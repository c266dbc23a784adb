# pyright: basic
"""Modules in MLIR's syntax, with source positions; and a verifier that reports with positions.

xDSL's parser leaves every operation at an unknown location, cuts suffixes like ``_1`` off names,
and its verifier stops at the first error and dumps the whole module.
"""

from collections.abc import Sequence

from xdsl.context import Context
from xdsl.dialects.builtin import FunctionType, ModuleOp, UnknownLoc
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.parser import Parser
from xdsl.utils.exceptions import ParseError, VerifyException
from xdsl.utils.lexer import Span

from collir.dialects.coll import CollOp, DistTensorType
from collir.dialects.machine import mesh_of
from collir.layout import LayoutError, MeshError, check_type
from collir.machine import MachineError
from collir.syntax.diagnostics import Diagnostic, DiagnosticError, Position, Sources
from collir.syntax.explain import origin_notes


class LocatedParser(Parser):
    """A parser whose operations know where they stand and whose values keep their whole names."""

    def parse_operation(self) -> Operation:
        start = self._current_token.span
        op = super().parse_operation()
        if isinstance(op.location, UnknownLoc):
            op.location = self._position(start).location()
        return op

    def _position(self, span: Span) -> Position:
        text = self.lexer.input.content
        # Operations come in the order of the text: count on from the last one.
        seen, line = getattr(self, "_counted", (0, 1))
        if span.start < seen:
            seen, line = 0, 1
        line += text.count("\n", seen, span.start)
        self._counted = (span.start, line)
        return Position(self.lexer.input.name, line, span.start - text.rfind("\n", 0, span.start))

    def _register_ssa_definition(self, name: str, values: Sequence[SSAValue], span: Span) -> None:
        super()._register_ssa_definition(name, values, span)
        if SSAValue.is_valid_name(name):
            for value in values:
                value._name = name


def read_mlir(
    ctx: Context, text: str, file: str, sources: Sources, *, implicit_module: bool = True
) -> ModuleOp:
    """The module of a text in MLIR's custom or generic syntax.

    Raises:
        DiagnosticError: the text does not parse.
    """
    sources.add(file, text)
    try:
        return LocatedParser(ctx, text, file).parse_module(implicit_module)
    except ParseError as error:
        raise DiagnosticError(parse_diagnostic(error)) from error
    except VerifyException as error:
        raise DiagnosticError(Diagnostic(str(error), Position(file, 1, 1))) from error
    except RecursionError:
        raise DiagnosticError(
            Diagnostic("the text is nested too deeply", Position(file, 1, 1))
        ) from None


def parse_diagnostic(error: ParseError) -> Diagnostic:
    """A parse error of xDSL as a diagnostic."""
    span = error.span
    text = span.input.content
    before = text[: span.start]
    if isinstance(before, bytes):
        before = before.decode("utf-8", "replace")
    line = before.count("\n") + 1
    position = Position(span.input.name, line, span.start - before.rfind("\n"))
    return Diagnostic(error.msg, position)


def verify(module: ModuleOp) -> None:
    """Checks every operation and every type of a module.

    Raises:
        DiagnosticError: all that is wrong, innermost first where operations nest.
    """
    errors: list[Diagnostic] = []
    for op in module.walk(reverse=True):
        if (found := _verify_one(op)) is not None:
            errors.append(found)
    if errors:
        raise DiagnosticError(reversed(errors))


def _verify_one(op: Operation) -> Diagnostic | None:
    position = Position.of(op)
    try:
        op.verify(verify_nested_ops=False)
        if isinstance(op, FuncOp):
            _verify_signature(op)
    except VerifyException as error:
        cause = error.__cause__
        notes: tuple[Diagnostic, ...] = ()
        if isinstance(cause, LayoutError) and cause.operand is not None and isinstance(op, CollOp):
            operand = op.operands[cause.operand]
            notes = origin_notes(operand, cause.axes, "the operand", mesh_of(op))
        # xDSL adds a dump of the module behind the first line.
        message = str(error).strip().split("\n\n")[0]
        return Diagnostic(message, position, notes)
    except (MachineError, MeshError) as error:
        return Diagnostic(str(error), position)
    except LayoutError as error:
        return Diagnostic(error.text(()), position)
    return None


def _verify_signature(function: FuncOp) -> None:
    """All types of a signature exist on the function's mesh, and the body returns them."""
    signature: FunctionType = function.function_type
    if not any(isinstance(t, DistTensorType) for t in (*signature.inputs, *signature.outputs)):
        return
    mesh = mesh_of(function)
    for x in (*signature.inputs, *signature.outputs):
        if not isinstance(x, DistTensorType):
            raise VerifyException(f"expected a distributed tensor (!coll.dist), not {x}")
        check_type(mesh, x.data)
    if function.is_declaration:
        raise VerifyException("a function without a body has no meaning here")
    if len(function.body.blocks) != 1:
        raise VerifyException("a function on a mesh has one block: it is a straight program")
