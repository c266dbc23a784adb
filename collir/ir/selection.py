"""Selection of functions of a module."""

from collections.abc import Collection

from xdsl.dialects.builtin import ModuleOp, SymbolRefAttr
from xdsl.dialects.func import FuncOp

from collir.ir.alternatives import place_of
from collir.ir.functions import functions_of


def erase_other_functions(module: ModuleOp, names: Collection[str]) -> None:
    """Erase all functions except those with the names and those that they need.

    A function needs the functions that it refers to, and the functions that take its place where
    values are larger (``for @f from N``). Those with the names are private no more: they are kept
    for themselves.
    """
    functions = {function.sym_name.data: function for function in functions_of(module)}
    kept = set(names)
    for name, function in functions.items():
        if (place := place_of(function)) and place[0] in names:
            kept.add(name)
    pending = list(kept)
    while pending:
        references = references_of(functions[pending.pop()]) & functions.keys() - kept
        kept |= references
        pending += references
    for name, function in functions.items():
        if name not in kept:
            module.body.block.erase_op(function)
        elif name in names:
            function.properties.pop("sym_visibility", None)


def references_of(function: FuncOp) -> set[str]:
    """Return the names of symbols that a function refers to: its mesh, and functions."""
    return {
        attribute.root_reference.data
        for op in function.walk()
        for attribute in (*op.attributes.values(), *op.properties.values())
        if isinstance(attribute, SymbolRefAttr)
    }
