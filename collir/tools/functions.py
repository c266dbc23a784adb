"""Some of the functions of a module, for those who want to look at these only."""

from collections.abc import Sequence

from xdsl.dialects.builtin import ModuleOp, SymbolRefAttr

from collir.ir.alternatives import place_of
from collir.ir.functions import functions_of
from collir.tools.api import UsageError


def keep_functions(module: ModuleOp, names: Sequence[str]) -> None:
    """Drop all functions but those with the names, in place; no names keep all.

    Functions that a kept one refers to are kept, and so are those that take its place where values
    are larger (``for @f from N``).

    Raises:
        UsageError: there is no function of a name.
    """
    if not names:
        return
    functions = {one.sym_name.data: one for one in functions_of(module)}
    chosen = [name.removeprefix("@") for name in names]
    for name in chosen:
        if name not in functions:
            known = ", ".join(functions) or "no functions"
            raise UsageError(f"there is no function @{name} (there are {known})")
    kept = set(chosen)
    for name, function in functions.items():
        if (place := place_of(function)) and place[0] in chosen:
            kept.add(name)
    pending = list(kept)
    while pending:
        found = {
            attribute.root_reference.data
            for op in functions[pending.pop()].walk()
            for attribute in (*op.attributes.values(), *op.properties.values())
            if isinstance(attribute, SymbolRefAttr)
        }
        new = found & functions.keys() - kept
        kept |= new
        pending += new
    for name, function in functions.items():
        if name not in kept:
            module.body.block.erase_op(function)
