"""The verifier of modules, which reports all errors with their positions.

xDSL's own verifier stops at the first error and prints the entire module.
"""

from collections.abc import Set
from weakref import WeakKeyDictionary

from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.traits import SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from collir.dialects.local import LocalFuncOp
from collir.dialects.machine import (
    MESH_ATTRIBUTE,
    MachineOp,
    MeshOp,
    function_of,
    mesh_of,
    meshes_remembered,
)
from collir.dialects.nested import CallOp, RepeatOp, YieldOp
from collir.dialects.operation import DistOp, value_text
from collir.dialects.tables import OPERATIONS
from collir.dialects.tensor import DistTensorType, dist_type
from collir.ir.ahead import ahead_errors, is_ahead
from collir.ir.alternatives import alternative_errors
from collir.ir.calls import call_errors, fusion_errors, place_errors, recursion_errors
from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position, note
from collir.ir.names import check_names
from collir.ir.origins import origin_notes, return_mismatch
from collir.ir.parameters import PARAMETERS, check_formulas, has_formulas, parameters_of
from collir.ir.pipelines import pipeline_errors
from collir.ir.roles import ROLE, check_roles
from collir.layout import LayoutError, MeshError, check_type
from collir.layout.steps import AHEAD
from collir.machine import MachineError


def verify(module: ModuleOp) -> None:
    """Check every operation and every type of a module.

    Raises:
        DiagnosticError: all errors of the module.
    """
    errors: list[Diagnostic] = []
    failed: set[Operation | None] = set()
    ops = list(module.walk())
    for kind in (MachineOp, MeshOp):
        errors += [error for op in ops if type(op) is kind for error in _errors_at(op)]
        if errors:  # functions on wrong machines or meshes cannot be checked
            raise DiagnosticError(errors)
    unnamed = (op for op in ops if type(op) is FuncOp and not op.properties.keys() >= _NEEDED)
    if errors := [error for op in unnamed for error in _errors_at(op)]:
        raise DiagnosticError(errors)  # their calls cannot be checked
    with meshes_remembered():
        for op in ops:
            facts = _facts(op)
            if facts and facts == _right.get(op):
                continue
            # Not by ``isinstance``, which is slow for operations.
            if type(op) in (MachineOp, MeshOp) or op.parent_op() in failed:
                continue  # a function with a wrong signature or mesh is not checked further
            new_errors = _errors_at(op)
            errors += new_errors
            if new_errors and isinstance(op, FuncOp):
                failed.add(op)
            if facts and not new_errors:
                _right[op] = facts
        errors = errors or alternative_errors(module)
        if not errors and any(type(op) is CallOp for op in ops):
            errors = recursion_errors(module) or call_errors(module, errors_in)
            errors = errors or fusion_errors(module) or place_errors(module)
            errors = errors or pipeline_errors(module)
    if errors:
        raise DiagnosticError(errors)


_NEEDED = {"sym_name", "function_type"}
"""The properties of a function that its calls are checked by."""

_right: WeakKeyDictionary[Operation, tuple[object, ...]] = WeakKeyDictionary()
"""The facts with which each step was last found right. A pass changes few of the steps, so that
most need not be checked again behind it."""


def _facts(op: Operation) -> tuple[object, ...] | None:
    """Return all that decides whether a step or a call is right; None if it is more than that."""
    if type(op) not in _STEPS or ROLE in op.attributes or AHEAD.name in op.properties:
        return None
    caller, callee = function_of(op), op.function() if type(op) is CallOp else None
    try:
        mesh = mesh_of(op)
    except (VerifyException, MachineError, MeshError):
        return None
    return (
        mesh,
        *(function.attributes.get(PARAMETERS) for function in (caller, callee) if function),
        *((callee.function_type, callee.attributes.get(MESH_ATTRIBUTE)) if callee else ()),
        *(value.type for value in (*op.operands, *op.results)),
        *op.properties.keys(),
        *op.properties.values(),
    )


_STEPS = frozenset((*OPERATIONS.values(), CallOp))


def errors_in(function: FuncOp) -> list[Diagnostic]:
    """Return the errors at the operations of a function in a module."""
    return [error for op in function.walk() for error in _errors_at(op)]


def _errors_at(op: Operation) -> list[Diagnostic]:
    try:
        match op:
            case DistOp():
                errors = ahead_errors(op) if is_ahead(op) else []
            case ModuleOp():
                errors = _defined_twice(op)
            case FuncOp():
                op.verify(verify_nested_ops=False)
                _verify_signature(op)
                check_formulas(op, parameters_of(op))
                check_roles(op)
                check_names(op)
                return _used_before(op)
            case LocalFuncOp():
                op.verify(verify_nested_ops=False)
                return _used_early(op.body.block, set())
            case RepeatOp():
                op.verify(verify_nested_ops=False)
                _verify_formulas(op)
                check_roles(op)
                return _used_before(op)
            case YieldOp():
                errors = _wrongly_yielded(op)
            case ReturnOp() if (wrong := _wrongly_returned(op)) is not None:
                return wrong
            case _:
                errors = []
        if not errors:
            op.verify(verify_nested_ops=False)
            _verify_formulas(op)
            if ROLE in op.attributes:
                check_roles(op)
        return errors
    except VerifyException as error:
        cause = error.__cause__
        notes: tuple[Diagnostic, ...] = ()
        if isinstance(cause, LayoutError) and cause.operand is not None and isinstance(op, DistOp):
            operand = op.operands[cause.operand]
            notes = origin_notes(operand, cause.axes, "the operand", mesh_of(op))
        return [Diagnostic(one_line(error), Position.of(op), notes)]
    except (MachineError, MeshError) as error:
        return [Diagnostic(str(error), Position.of(op))]
    except LayoutError as error:
        return [Diagnostic(error.text(()), Position.of(op))]


def _verify_formulas(op: Operation) -> None:
    """Check the formulas of a step under the parameters of its function.

    Raises:
        VerifyException: a size is not the value of its formula.
    """
    if has_formulas(op):
        function = function_of(op)
        check_formulas(op, parameters_of(function) if function else {})


def one_line(error: VerifyException) -> str:
    """Return the message of an error in one line, without the module that xDSL prints."""
    return " ".join(str(error).strip().partition("\n\n")[0].split())


def _name(value: SSAValue) -> str:
    return value_text(value, "the value")


def _used_before(function: FuncOp | RepeatOp) -> list[Diagnostic]:
    """Return the errors at uses of values before their definition."""
    known: set[SSAValue] = {arg for block in function.body.blocks for arg in block.args}
    errors: list[Diagnostic] = []
    for op in function.body.ops if len(function.body.blocks) == 1 else ():
        for operand in op.operands:
            if operand not in known:
                here = note("it is defined here", Position.of(operand))
                message = f"{_name(operand)} is used before it is defined"
                errors.append(Diagnostic(message, Position.of(op), (here,)))
        known.update(op.results)
    return errors


def _used_early(block: Block, outside: Set[SSAValue]) -> list[Diagnostic]:
    """Return the errors at uses of values before their definition, in blocks inside too."""
    known = {*outside, *block.args}
    errors: list[Diagnostic] = []
    for op in block.ops:
        for operand in op.operands:
            if operand not in known:
                message = f"{_name(operand)} is used before it is defined"
                errors.append(Diagnostic(message, Position.of(op)))
        for inner in (x for region in op.regions for x in region.blocks):
            errors += _used_early(inner, known)
        known.update(op.results)
    return errors


def _wrongly_returned(op: ReturnOp) -> list[Diagnostic] | None:
    """Return the errors at a return whose types do not agree with the function's signature; None if
    that does not promise as many tensors."""
    function = op.parent_op()
    promised = function.function_type.outputs.data if isinstance(function, FuncOp) else ()
    if len(promised) != len(op.arguments) or not all(
        isinstance(x, DistTensorType) for x in promised
    ):
        return None
    errors: list[Diagnostic] = []
    for value, x in zip(op.arguments, promised, strict=True):
        if isinstance(x, DistTensorType) and not dist_type(value).agrees(x.data):
            mesh = mesh_of(op)
            message, axes = return_mismatch(dist_type(value), x.data, _name(value), mesh)
            notes = origin_notes(value, axes, _name(value), mesh)
            errors.append(Diagnostic(message, Position.of(op), notes))
    return errors


def _wrongly_yielded(op: YieldOp) -> list[Diagnostic]:
    """Return the error at values that do not suit the carries of a loop."""
    loop = op.parent_op()
    problem = loop.yield_problem() if isinstance(loop, RepeatOp) else None
    if problem is None or not isinstance(loop, RepeatOp):
        return []
    message, number = problem
    notes: tuple[Diagnostic, ...] = ()
    if number is not None and (place := Position.of(loop.carries[number])):
        name = value_text(loop.carries[number], "the carry")
        notes = (note(f"{name} is carried from here", place),)
    return [Diagnostic(message, Position.of(op), notes)]


def _defined_twice(module: ModuleOp) -> list[Diagnostic]:
    """Return the errors at symbols that an earlier operation of the module defines."""
    first: dict[str, Operation] = {}
    errors: list[Diagnostic] = []
    for op in module.ops:
        trait = op.get_trait(SymbolOpInterface)
        symbol = trait.get_sym_attr_name(op) if trait else None
        if symbol is not None and (known := first.setdefault(symbol.data, op)) is not op:
            here = note(f"@{symbol.data} is first defined here", Position.of(known))
            errors.append(Diagnostic(f"@{symbol.data} is defined twice", Position.of(op), (here,)))
    return errors


def _verify_signature(function: FuncOp) -> None:
    """Check that the types of a signature exist on the mesh, and that the body is one block.

    Raises:
        LayoutError: a type cannot exist on the mesh.
        VerifyException: any other error.
    """
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
