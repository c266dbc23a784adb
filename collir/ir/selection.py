"""Selection of functions of a module."""

from collections.abc import Collection, Iterable

from xdsl.dialects.builtin import ModuleOp, SymbolRefAttr
from xdsl.dialects.func import FuncOp

from collir.ir.alternatives import place_of
from collir.ir.functions import functions_of


def erase_other_functions(module: ModuleOp, names: Collection[str]) -> None:
    """Erase all functions except the named ones and the functions that they need.

    A function needs the functions that it refers to, and the functions that take its place where
    values are larger (``for @f from N``). The named functions become public.
    """
    functions = functions_of(module)
    kept = _needed(functions, names)
    for function in functions:
        name = function.sym_name.data
        if name not in kept:
            module.body.block.erase_op(function)
        elif name in names:
            function.properties.pop("sym_visibility", None)


def copy_with_functions(module: ModuleOp, names: Collection[str]) -> ModuleOp:
    """Return a copy of a module with only the named functions and those that they need, as in
    ``erase_other_functions``."""
    functions = functions_of(module)
    kept = _needed(functions, names)
    left_out = {function for function in functions if function.sym_name.data not in kept}
    copy = ModuleOp([], dict(module.attributes))
    copy.location = module.location
    for op in module.ops:
        if op in left_out:
            continue
        copy.body.block.add_op(own := op.clone())
        if isinstance(own, FuncOp) and own.sym_name.data in names:
            own.properties.pop("sym_visibility", None)
    return copy


def _needed(functions: Iterable[FuncOp], names: Collection[str]) -> set[str]:
    """Return the names of some functions and of all functions that they need."""
    named = {function.sym_name.data: function for function in functions}
    needed = set(names)
    for name, function in named.items():
        if (place := place_of(function)) and place[0] in names:
            needed.add(name)
    pending = list(needed)
    while pending:
        references = references_of(named[pending.pop()]) & named.keys() - needed
        needed |= references
        pending += references
    return needed


def references_of(function: FuncOp) -> set[str]:
    """Return the names of symbols that a function refers to: its mesh, and functions."""
    return {
        attribute.root_reference.data
        for op in function.walk()
        for attribute in (*op.attributes.values(), *op.properties.values())
        if isinstance(attribute, SymbolRefAttr)
    }
