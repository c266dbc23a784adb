"""Functions that take the place of another one where values are larger: ``for @f from N``."""

from typing import cast

from xdsl.dialects.builtin import IndexType, IntegerAttr, IntegerType, ModuleOp, SymbolRefAttr, i64
from xdsl.dialects.func import FuncOp

from collir.dialects.machine import MESH_ATTRIBUTE
from collir.ir.diagnostics import Diagnostic, Position, note

FOR, FROM = "coll.for", "coll.from"
"""The attributes of such a function: whose place it takes, and from how many times the size."""


def alternatives(module: ModuleOp) -> dict[str, list[tuple[int, FuncOp]]]:
    """For the name of every function those that take its place: (from how many times the size of
    its types on, function), the largest first."""
    found: dict[str, list[tuple[int, FuncOp]]] = {}
    for function in module.ops:
        if isinstance(function, FuncOp) and (place := place_of(function)):
            found.setdefault(place[0], []).append((place[1], function))
    for listed in found.values():
        listed.sort(key=lambda one: -one[0])
    return found


def place_of(function: FuncOp) -> tuple[str, int] | None:
    """Whose place a function takes, and from where on; None if it stands for itself."""
    reference, least = function.attributes.get(FOR), function.attributes.get(FROM)
    if not isinstance(reference, SymbolRefAttr) or not isinstance(least, IntegerAttr):
        return None
    number = cast("IntegerAttr[IntegerType | IndexType]", least)
    return (reference.string_value(), number.value.data) if number.type == i64 else None


def alternative_errors(module: ModuleOp) -> list[Diagnostic]:
    """What is wrong with the functions of a module that take the place of others."""
    functions = {op.sym_name.data: op for op in module.ops if isinstance(op, FuncOp)}
    taken: dict[tuple[str, int], FuncOp] = {}
    errors: list[Diagnostic] = []
    for function in functions.values():
        given = FOR in function.attributes or FROM in function.attributes
        place = place_of(function)
        if not given:
            continue
        if place is None:
            errors.append(
                Diagnostic(f"{FOR} is a symbol and {FROM} of type i64", Position.of(function))
            )
            continue
        name, least = place
        other = functions.get(name)
        notes = () if other is None else (note(f"@{name} is defined here", Position.of(other)),)
        problem = ""
        if other is None:
            problem = f"there is no function @{name} to take the place of"
        elif other is function:
            problem, notes = "a function does not take its own place", ()
        elif least < 2:
            problem = (
                f"@{name} itself is for values as large as its types say: from is 2 or more, not "
                f"{least}"
            )
        elif FOR in other.attributes:
            problem = f"@{name} takes the place of another function itself"
        elif function.function_type != other.function_type:
            problem = f"the types of @{function.sym_name.data} are not those of @{name}"
        elif function.attributes.get(MESH_ATTRIBUTE) != other.attributes.get(MESH_ATTRIBUTE):
            problem = f"@{function.sym_name.data} is not on the mesh of @{name}"
        elif (first := taken.setdefault(place, function)) is not function:
            problem = f"@{first.sym_name.data} takes the place of @{name} from {least} on already"
            notes = (note(f"@{first.sym_name.data} is defined here", Position.of(first)),)
        if problem:
            errors.append(Diagnostic(problem, Position.of(function), notes))
    return errors
