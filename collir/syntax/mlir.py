"""The reader of modules in MLIR's syntax, with source positions.

xDSL's parser leaves every operation at an unknown location, and cuts suffixes like ``_1`` off
names.
"""

import re
from collections.abc import Sequence

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, UnknownLoc
from xdsl.ir import AttributeInvT, Operation, SSAValue
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.utils.exceptions import ParseError, VerifyException
from xdsl.utils.lexer import Input, Span

from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position, Sources
from collir.ir.extensions import load_operations
from collir.ir.names import set_name
from collir.ir.verification import one_line
from collir.syntax.algorithms import errors_of_declarations


class LocatedParser(Parser):
    """A parser that sets the locations of operations and keeps the full names of values.

    ``started`` are the starts of the operations being parsed, outermost first. They stay there if
    parsing fails.
    """

    def __init__(self, ctx: Context, text: str, file: str):
        super().__init__(ctx, text, file)
        self.started: list[Span] = [self.current_span]
        self.first_uses: dict[str, Span] = {}

    @property
    def current_span(self) -> Span:
        """The place of the token that is read next."""
        return self._current_token.span

    def parse_operation(self) -> Operation:
        start = self.current_span
        self.started.append(start)
        op = super().parse_operation()
        self.started.pop()
        if isinstance(op.location, UnknownLoc):
            op.location = self._position(start).location()
        return op

    def resolve_operand(
        self, operand: UnresolvedOperand, type: AttributeInvT
    ) -> SSAValue[AttributeInvT]:
        self.first_uses.setdefault(operand.operand_name, operand.span)
        return super().resolve_operand(operand, type)

    def _position(self, span: Span[str]) -> Position:
        text = self.lexer.input.content
        # Operations come in the order of the text: continue counting at the last operation.
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
                set_name(value, name)


_STRING = re.compile(r'//[^\n]*|"(?:[^"\\\n\v\f]|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*("?)')


def _check_strings(text: str, file: str) -> None:
    """Check that every string ends on its line; otherwise xDSL's lexer takes exponential time.

    Raises:
        DiagnosticError: a string does not; the position is that of the first.
    """
    for string in _STRING.finditer(text):
        if string[0].startswith('"') and not string[1]:
            span = Span(string.start(), string.start() + 1, Input(text, file))
            message = "this string does not end on its line, or has an escape that is none"
            raise DiagnosticError(Diagnostic(message, _at(span)))


def read_mlir(
    ctx: Context, text: str, file: str, sources: Sources, *, implicit_module: bool = True
) -> ModuleOp:
    """Return the module of a text in MLIR's custom or generic syntax.

    Raises:
        DiagnosticError: the text does not parse.
    """
    load_operations()
    sources.add(file, text)
    _check_strings(text, file)
    try:
        parser = LocatedParser(ctx, text, file)  # reads the first token
    except ParseError as error:
        raise DiagnosticError(Diagnostic(error.msg, _at(error.span))) from None
    try:
        module = parser.parse_module(implicit_module)
    except ParseError as error:
        undefined = [parser.first_uses[name] for name in parser.forward_ssa_references]
        if undefined and "not defined" in error.msg:  # xDSL reports it at the end of the text
            errors = [Diagnostic(f"{span.text} is not defined", _at(span)) for span in undefined]
        else:
            errors = [Diagnostic(error.msg, _at(error.span))]
    except VerifyException as error:
        errors = [Diagnostic(one_line(error), _at(parser.started[-1]))]
    except RecursionError:
        # The depth reached depends on the caller: point at the outermost operation.
        errors = [Diagnostic("the text is nested too deeply", _at(parser.started[:2][-1]))]
    except Exception as error:  # wrong texts reach asserts and zips in xDSL's parser
        message = f"xDSL's parser gives up here ({type(error).__name__}: {error})"
        errors = [Diagnostic(message, _at(parser.current_span))]
    else:
        if not (errors := errors_of_declarations(module)):
            return module
    raise DiagnosticError(errors)


def _at(span: Span[str] | Span[bytes]) -> Position:
    text = str(span.input.content)
    line = text.count("\n", 0, span.start) + 1
    return Position(span.input.name, line, span.start - text.rfind("\n", 0, span.start))
