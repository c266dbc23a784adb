"""The machines, meshes and functions of a module, and the check that functions are programs."""

from collections.abc import Generator, Iterable
from contextlib import contextmanager

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.utils.exceptions import VerifyException

from collir.dialects.local import LocalFuncOp
from collir.dialects.machine import MESH_ATTRIBUTE, MachineOp, MeshOp, mesh_of, module_of
from collir.dialects.nested import CallOp, NestedOp, YieldOp
from collir.dialects.operation import DistOp, is_placeholder, value_text
from collir.dialects.tensor import DistTensorType
from collir.ir.auto import is_auto
from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position
from collir.ir.remarks import remark


def machines_of(module: ModuleOp) -> list[MachineOp]:
    """Return the machines of a module, in order."""
    return [op for op in module.ops if isinstance(op, MachineOp)]


def meshes_of(module: ModuleOp) -> list[MeshOp]:
    """Return the meshes of a module, in order."""
    return [op for op in module.ops if isinstance(op, MeshOp)]


def functions_of(module: ModuleOp) -> list[FuncOp]:
    """Return the functions of a module that have a body, in order.

    Raises:
        DiagnosticError: a function is the program of a rank.
    """
    for op in module.ops:
        if isinstance(op, LocalFuncOp):
            text = f"@{op.sym_name.data} is the program of a rank, and this is for the level above"
            raise DiagnosticError.at(op, f"{text}: use it in front of localize")
    return [op for op in module.ops if isinstance(op, FuncOp) and not op.is_declaration]


def task_names(module: ModuleOp) -> set[str]:
    """Return the names of the functions that are tasks of pipelines."""
    calls = (op for f in functions_of(module) for op in f.walk() if type(op) is CallOp)
    return {call.symbol for call in calls if call.task is not None}


def check_programs(
    functions: Iterable[FuncOp],
    cannot: str,
    redistributions: bool = False,
    even: bool = False,
    nested: bool = False,
) -> None:
    """Check that functions are programs of collir: on a mesh, with operations of ``coll`` only.

    Args:
        cannot: the end of every message, such as "cannot be run" or "cannot be MPI".
        redistributions: whether placeholders that ``decompose`` replaces are allowed.
        even: whether values whose blocks differ in size, by the weights of an axis, are refused.
        nested: whether operations that run other operations are allowed.

    Raises:
        DiagnosticError: one diagnostic for each mesh, type and operation that is not allowed.
    """
    errors: list[Diagnostic] = []
    for function in functions:
        try:
            mesh_of(function)
        except VerifyException as error:
            errors.append(Diagnostic(f"{error}: it {cannot}", Position.of(function)))
            continue
        if is_auto(function) and not redistributions:
            name = function.sym_name.data
            text = f"@{name} is auto, and {cannot} before its layouts are chosen: -p propagate"
            errors.append(Diagnostic(text, Position.of(function)))
            continue
        errors += _uneven_values(function, cannot) if even else []
        signature = function.function_type
        for x in dict.fromkeys((*signature.inputs, *signature.outputs)):
            if not isinstance(x, DistTensorType):
                errors.append(Diagnostic(f"{x} {cannot}", Position.of(function)))
        errors += [] if nested else _nested_errors(function, cannot)
        for op in function.body.walk():
            if not isinstance(op, DistOp | ReturnOp | NestedOp | YieldOp):
                errors.append(Diagnostic(f"{op.name} {cannot}", Position.of(op)))
            elif is_placeholder(op) and not redistributions:
                message = f"{op.mnemonic} {cannot} as it is: -p decompose makes steps of it"
                errors.append(Diagnostic(message, Position.of(op)))
    if errors:
        raise DiagnosticError(errors)


def _uneven_values(function: FuncOp, cannot: str) -> list[Diagnostic]:
    """Return an error at the first value of a function whose blocks differ in size."""
    mesh = mesh_of(function)
    results = (result for op in function.body.walk() for result in op.results)
    for value in (*function.args, *results) if mesh.uneven else ():
        x = value.type.data if isinstance(value.type, DistTensorType) else None
        if x is not None and not x.is_even(mesh):
            cut = x.text(mesh)
            message = (
                f"{value_text(value, 'this')} is {cut}, in blocks that differ by the weights of "
                f"mesh @{mesh.name}, and {cannot}: leave out the weights"
            )
            return [Diagnostic(message, Position.of(value))]
    return []


def names_weights(function: FuncOp) -> bool:
    """Return whether a function is distributed over, or sends over, an axis with weights."""
    uneven = mesh_of(function).uneven.keys()
    if not uneven:
        return False
    values = (*function.args, *(result for op in function.body.walk() for result in op.results))
    types = (value.type.data for value in values if isinstance(value.type, DistTensorType))
    over = (op.over for op in function.body.walk() if isinstance(op, DistOp))
    return not all(map(uneven.isdisjoint, (*(x.axes for x in types), *over)))


def check_no_weights(functions: Iterable[FuncOp], cannot: str) -> None:
    """Check that functions name no axis with weights, for searches that know equal blocks only.

    Args:
        cannot: the end of every message, such as "has no strategies".

    Raises:
        DiagnosticError: one diagnostic for each function that does.
    """
    errors = [
        Diagnostic(
            f"@{function.sym_name.data} {cannot}: it names an axis with weights, and searches for "
            "programs know equal blocks only",
            Position.of(function),
        )
        for function in functions
        if names_weights(function)
    ]
    if errors:
        raise DiagnosticError(errors)


def without_weights(functions: Iterable[FuncOp], done: str) -> list[FuncOp]:
    """Return the functions that name no axis with weights, and remark the others.

    Args:
        done: what is not done to the others, as in "no collective of @f is ``decomposed``".
    """
    kept: list[FuncOp] = []
    for function in functions:
        if names_weights(function):
            name = function.sym_name.data
            remark(function, f"nothing of @{name} is {done}: it names an axis with weights")
        else:
            kept.append(function)
    return kept


def refuse_nested(functions: Iterable[FuncOp], cannot: str) -> None:
    """Check that functions run no other programs.

    Args:
        cannot: the end of every message, such as "cannot be run".

    Raises:
        DiagnosticError: one diagnostic for each call and loop.
    """
    if errors := [error for function in functions for error in _nested_errors(function, cannot)]:
        raise DiagnosticError(errors)


def _nested_errors(function: FuncOp, cannot: str) -> list[Diagnostic]:
    return [
        Diagnostic(f"a {op.mnemonic} {cannot}: {_ADVICE[op.mnemonic]}", Position.of(op))
        for op in function.body.walk()
        if isinstance(op, NestedOp)
    ]


_ADVICE = {
    "call": "put the steps of the function in its place with -p inline",
    "gradient": "put a call of a function that computes it in its place with -p differentiate",
    "repeat": "put its iterations in its place with -p unroll",
}
"""The pass that replaces operations that run others, by their names."""


def copied_beside(function: FuncOp, reference: FuncOp) -> FuncOp:
    """Return a copy of a function in a new module, on the mesh of ``reference``, which is copied
    too."""
    module, mesh = module_of(reference), mesh_of(reference)
    copy = function.clone()
    copy.attributes[MESH_ATTRIBUTE] = reference.attributes[MESH_ATTRIBUTE]
    meshes = [op for op in meshes_of(module) if op.sym_name.data == mesh.name]
    _ = ModuleOp([op.clone() for op in (*machines_of(module), *meshes)] + [copy])
    return copy


@contextmanager
def scratch_copy(function: FuncOp) -> Generator[FuncOp]:
    """Insert a copy behind a function, so that the copy's mesh is found, and remove it again."""
    block = function.parent_block()
    assert block is not None
    copy = function.clone()
    block.insert_op_after(copy, function)
    try:
        yield copy
    finally:
        copy.detach()
        copy.erase()
