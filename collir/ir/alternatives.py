"""Functions that take the place of another where values are larger: ``for @f from N``."""

from typing import cast

from xdsl.dialects.builtin import (
    FunctionType,
    IndexType,
    IntegerAttr,
    IntegerType,
    ModuleOp,
    SymbolRefAttr,
    i64,
)
from xdsl.dialects.func import FuncOp

from collir.dialects.machine import MESH_ATTRIBUTE
from collir.dialects.tensor import agree
from collir.ir.diagnostics import Diagnostic, Position, note

FOR, FROM = "coll.for", "coll.from"
"""The attributes of such a function: the function it replaces, and the factor of sizes from which
on it does."""


def alternatives(module: ModuleOp) -> dict[str, list[tuple[int, FuncOp]]]:
    """Return, for each function's name, the functions that take its place, as (factor, function).

    A function takes the place where values are at least ``factor`` times as large as its types
    say. The largest factor comes first.
    """
    by_name: dict[str, list[tuple[int, FuncOp]]] = {}
    for function in module.ops:
        if isinstance(function, FuncOp) and (place := place_of(function)):
            by_name.setdefault(place[0], []).append((place[1], function))
    for functions in by_name.values():
        functions.sort(key=lambda item: -item[0])
    return by_name


def place_of(function: FuncOp) -> tuple[str, int] | None:
    """Return the name of the function whose place a function takes, and the factor; else None."""
    reference, least = function.attributes.get(FOR), function.attributes.get(FROM)
    if not isinstance(reference, SymbolRefAttr) or not isinstance(least, IntegerAttr):
        return None
    number = cast("IntegerAttr[IntegerType | IndexType]", least)
    return (reference.string_value(), number.value.data) if number.type == i64 else None


def alternative_errors(module: ModuleOp) -> list[Diagnostic]:
    """Return the errors at functions of a module that take the place of others."""
    functions = {op.sym_name.data: op for op in module.ops if isinstance(op, FuncOp)}
    first_at: dict[tuple[str, int], FuncOp] = {}
    errors: list[Diagnostic] = []
    for function in functions.values():
        if FOR not in function.attributes and FROM not in function.attributes:
            continue
        place = place_of(function)
        if place is None:
            message = f"{FOR} is a symbol and {FROM} of type i64"
            errors.append(Diagnostic(message, Position.of(function)))
            continue
        name, least = place
        original = functions.get(name)
        notes = (note(f"@{name} is defined here", Position.of(original)),) if original else ()
        problem = ""
        if original is None:
            problem = f"there is no function @{name} to take the place of"
        elif original is function:
            problem, notes = "a function does not take its own place", ()
        elif least < 2:
            problem = (
                f"@{name} itself is for values as large as its types say: from is 2 or more, not "
                f"{least}"
            )
        elif FOR in original.attributes:
            problem = f"@{name} takes the place of another function itself"
        elif not _same_types(function.function_type, original.function_type):
            problem = f"the types of @{function.sym_name.data} are not those of @{name}"
        elif function.attributes.get(MESH_ATTRIBUTE) != original.attributes.get(MESH_ATTRIBUTE):
            problem = f"@{function.sym_name.data} is not on the mesh of @{name}"
        elif (first := first_at.setdefault(place, function)) is not function:
            problem = f"@{first.sym_name.data} takes the place of @{name} from {least} on already"
            notes = (note(f"@{first.sym_name.data} is defined here", Position.of(first)),)
        if problem:
            errors.append(Diagnostic(problem, Position.of(function), notes))
    return errors


def _same_types(a: FunctionType, b: FunctionType) -> bool:
    if (len(a.inputs), len(a.outputs)) != (len(b.inputs), len(b.outputs)):
        return False
    return all(map(agree, (*a.inputs, *a.outputs), (*b.inputs, *b.outputs)))
