# pyright: basic
"""Modules in MLIR's syntax, with source positions; and a verifier that reports with positions.

xDSL's parser leaves every operation at an unknown location, cuts suffixes like ``_1`` off names,
and its verifier stops at the first error and dumps the whole module.
"""

import re
from collections.abc import Iterable, Sequence

from xdsl.context import Context
from xdsl.dialects.builtin import FunctionType, ModuleOp, UnknownLoc
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import AttributeInvT, Operation, SSAValue
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.traits import SymbolOpInterface
from xdsl.utils.exceptions import ParseError, VerifyException
from xdsl.utils.lexer import Input, Span

from collir.dialects.machine import MachineOp, MeshOp, mesh_of, meshes_remembered
from collir.dialects.operation import DistOp, is_placeholder
from collir.dialects.tensor import DistTensorType, dist_type
from collir.layout import LayoutError, MeshError, check_type
from collir.machine import MachineError
from collir.syntax.alternatives import misplaced
from collir.syntax.diagnostics import Diagnostic, DiagnosticError, Position, Sources, note
from collir.syntax.explain import origin_notes, return_mismatch


class LocatedParser(Parser):
    """A parser whose operations know where they stand and whose values keep their whole names.

    ``started`` are the operations it is in, outermost first: also when it failed in them.
    """

    def __init__(self, ctx: Context, text: str, file: str):
        super().__init__(ctx, text, file)
        self.started: list[Span] = [self._current_token.span]
        self.first_uses: dict[str, Span] = {}

    def parse_operation(self) -> Operation:
        start = self._current_token.span
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


_STRING = re.compile(r'//[^\n]*|"(?:[^"\\\n\v\f]|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*("?)')


def _check_strings(text: str, file: str) -> None:
    """Whether every string ends on its line: where not, xDSL's lexer takes exponential time.

    Raises:
        DiagnosticError: at the first that does not.
    """
    for found in _STRING.finditer(text):
        if found[0].startswith('"') and not found[1]:
            span = Span(found.start(), found.start() + 1, Input(text, file))
            message = "this string does not end on its line, or has an escape that is none"
            raise DiagnosticError(Diagnostic(message, _at(span)))


def read_mlir(
    ctx: Context, text: str, file: str, sources: Sources, *, implicit_module: bool = True
) -> ModuleOp:
    """The module of a text in MLIR's custom or generic syntax.

    Raises:
        DiagnosticError: the text does not parse.
    """
    sources.add(file, text)
    _check_strings(text, file)
    try:
        parser = LocatedParser(ctx, text, file)  # which reads the first token
    except ParseError as error:
        raise DiagnosticError(Diagnostic(error.msg, _at(error.span))) from None
    try:
        return parser.parse_module(implicit_module)
    except ParseError as error:
        undefined = [parser.first_uses[name] for name in parser.forward_ssa_references]
        if undefined and "not defined" in error.msg:  # xDSL says so at the end of the text only
            found = [Diagnostic(f"{span.text} is not defined", _at(span)) for span in undefined]
        else:
            found = [Diagnostic(error.msg, _at(error.span))]
    except VerifyException as error:
        found = [Diagnostic(_one_line(error), _at(parser.started[-1]))]
    except RecursionError:
        # How deep it got depends on who called: point at the outermost operation.
        found = [Diagnostic("the text is nested too deeply", _at(parser.started[:2][-1]))]
    except Exception as error:  # xDSL's parser has asserts and zips that wrong texts reach
        message = f"xDSL's parser gives up here ({type(error).__name__}: {error})"
        found = [Diagnostic(message, _at(parser._current_token.span))]
    raise DiagnosticError(found)


def _at(span: Span[str] | Span[bytes]) -> Position:
    text = str(span.input.content)
    line = text.count("\n", 0, span.start) + 1
    return Position(span.input.name, line, span.start - text.rfind("\n", 0, span.start))


def _one_line(error: VerifyException) -> str:
    """The message, without the dump of the module that xDSL adds behind it."""
    return " ".join(str(error).strip().partition("\n\n")[0].split())


def verify(module: ModuleOp) -> None:
    """Checks every operation and every type of a module.

    Raises:
        DiagnosticError: all that is wrong.
    """
    errors: list[Diagnostic] = []
    failed: set[Operation | None] = set()
    ops = list(module.walk())
    for kind in (MachineOp, MeshOp):
        errors += [found for op in ops if isinstance(op, kind) for found in _verify_one(op)]
        if errors:  # of what is on them nothing can be said
            raise DiagnosticError(errors)
    with meshes_remembered():
        for op in ops:
            if op.parent_op() in failed or isinstance(op, MachineOp | MeshOp):
                continue  # in a function of a wrong type or mesh nothing can be right
            found = _verify_one(op)
            errors += found
            if found and isinstance(op, FuncOp):
                failed.add(op)
    if errors := errors or misplaced(module):
        raise DiagnosticError(errors)


def functions_of(module: ModuleOp) -> list[FuncOp]:
    """The functions of a module that have a body, in order."""
    return [op for op in module.ops if isinstance(op, FuncOp) and not op.is_declaration]


def check_programs(functions: Iterable[FuncOp], cannot: str, redistributions: bool = False) -> None:
    """Whether functions are programs of ours: on a mesh, with operations of ``coll`` only.

    Args:
        cannot: what functions that are not cannot: be run, or be MPI.
        redistributions: whether there may be some that are not decomposed.

    Raises:
        DiagnosticError: all that is not.
    """
    errors: list[Diagnostic] = []
    for function in functions:
        try:
            mesh_of(function)
        except VerifyException as error:
            errors.append(Diagnostic(f"{error}: it {cannot}", Position.of(function)))
            continue
        signature = function.function_type
        for x in dict.fromkeys((*signature.inputs, *signature.outputs)):
            if not isinstance(x, DistTensorType):
                errors.append(Diagnostic(f"{x} {cannot}", Position.of(function)))
        for op in function.body.walk():
            if not isinstance(op, DistOp | ReturnOp):
                errors.append(Diagnostic(f"{op.name} {cannot}", Position.of(op)))
            elif is_placeholder(op) and not redistributions:
                message = f"{op.mnemonic} {cannot} as it is: -p decompose makes steps of it"
                errors.append(Diagnostic(message, Position.of(op)))
    if errors:
        raise DiagnosticError(errors)


def _verify_one(op: Operation) -> list[Diagnostic]:
    position = Position.of(op)
    try:
        match op:
            case ModuleOp():
                found = _defined_twice(op)
            case FuncOp():
                op.verify(verify_nested_ops=False)
                _verify_signature(op)
                return _used_before(op)
            case ReturnOp():
                found = _wrongly_returned(op)
            case _:
                found = []
        if not found:
            op.verify(verify_nested_ops=False)
        return found
    except VerifyException as error:
        cause = error.__cause__
        notes: tuple[Diagnostic, ...] = ()
        if isinstance(cause, LayoutError) and cause.operand is not None and isinstance(op, DistOp):
            operand = op.operands[cause.operand]
            notes = origin_notes(operand, cause.axes, "the operand", mesh_of(op))
        return [Diagnostic(_one_line(error), position, notes)]
    except (MachineError, MeshError) as error:
        return [Diagnostic(str(error), position)]
    except LayoutError as error:
        return [Diagnostic(error.text(()), position)]


def _name(value: SSAValue) -> str:
    return f"%{value.name_hint}" if value.name_hint else "the value"


def _used_before(function: FuncOp) -> list[Diagnostic]:
    """Errors at the uses of values that stand before the definition."""
    known: set[SSAValue] = set(function.args)
    found: list[Diagnostic] = []
    for op in function.body.ops if len(function.body.blocks) == 1 else ():
        for operand in op.operands:
            if operand not in known:
                here = note("it is defined here", Position.of(operand))
                message = f"{_name(operand)} is used before it is defined"
                found.append(Diagnostic(message, Position.of(op), (here,)))
        known.update(op.results)
    return found


def _wrongly_returned(op: ReturnOp) -> list[Diagnostic]:
    """Errors at a return of distributed tensors that the function does not promise."""
    function = op.parent_op()
    if not isinstance(function, FuncOp):
        return []
    promised = function.function_type.outputs.data
    if len(promised) != len(op.arguments):
        return []
    found: list[Diagnostic] = []
    for value, x in zip(op.arguments, promised, strict=True):
        if value.type != x and isinstance(x, DistTensorType):
            mesh = mesh_of(op)
            message, axes = return_mismatch(dist_type(value), x.data, _name(value), mesh)
            notes = origin_notes(value, axes, _name(value), mesh)
            found.append(Diagnostic(message, Position.of(op), notes))
    return found


def _defined_twice(module: ModuleOp) -> list[Diagnostic]:
    """Errors at the symbols that an earlier operation of the module has."""
    first: dict[str, Operation] = {}
    found: list[Diagnostic] = []
    for op in module.ops:
        trait = op.get_trait(SymbolOpInterface)
        symbol = trait.get_sym_attr_name(op) if trait else None
        if symbol is not None and (known := first.setdefault(symbol.data, op)) is not op:
            here = note(f"@{symbol.data} is first defined here", Position.of(known))
            found.append(Diagnostic(f"@{symbol.data} is defined twice", Position.of(op), (here,)))
    return found


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
