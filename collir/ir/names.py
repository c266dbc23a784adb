"""The names of values and of symbols."""

import re
from collections.abc import Container

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Region, SSAValue
from xdsl.traits import IsolatedFromAbove

IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
"""The form of names in ``.coll``."""


def unique_names(function: FuncOp, hidden: Container[SSAValue] = ()) -> dict[SSAValue, str]:
    """Return a distinct name (without %) for every value of a function, in order of definition.

    A value keeps its name unless an earlier value has the same; a value without a name gets a
    number. The values of the bodies of loops come behind all those outside of them.

    Args:
        hidden: values that get no name.
    """
    names: dict[SSAValue, str] = {}
    used: set[str] = set()
    values, bodies = _scope(function.body)
    values = [*function.args, *values]
    for body in bodies:  # grows meanwhile
        inner, more = _scope(body)
        values += [*(arg for block in body.blocks for arg in block.args), *inner]
        bodies += more
    values = [value for value in values if value not in hidden]
    hints = {value.name_hint for value in values}
    number = 0
    for value in values:
        hint = value.name_hint
        if hint is None or not IDENTIFIER.fullmatch(hint):
            name = str(number)
            number += 1
        elif hint not in used:
            name = hint
        else:
            suffix = 1
            while (name := f"{hint}_{suffix}") in used or name in hints:
                suffix += 1
        used.add(name)
        names[value] = name
    return names


def _scope(region: Region) -> tuple[list[SSAValue], list[Region]]:
    """Return the results of operations that see each other, and the isolated regions inside."""
    values: list[SSAValue] = []
    isolated: list[Region] = []
    for op in (op for block in region.blocks for op in block.ops):
        values += op.results
        if not op.regions:
            continue
        if op.has_trait(IsolatedFromAbove):
            isolated += op.regions
            continue
        for inner in op.regions:
            more, bodies = _scope(inner)
            values += more
            isolated += bodies
    return values, isolated


def unused_symbol(module: ModuleOp, name: str) -> str:
    """Return ``name`` with as many ``_`` behind it as make it differ from the module's symbols."""
    symbols = {
        symbol.data
        for op in module.ops
        if isinstance(symbol := op.properties.get("sym_name"), StringAttr)
    }
    while name in symbols:
        name += "_"
    return name


def numbered_symbol(module: ModuleOp, stem: str) -> str:
    """Return a symbol that a module does not have: the stem, or the stem with a number."""
    name, number = stem, 1
    while unused_symbol(module, name) != name:
        number += 1
        name = f"{stem}_{number}"
    return name


def set_name(value: SSAValue, name: str | None) -> None:
    """Set the name of a value; the setter of ``name_hint`` would cut off a suffix like ``_1``."""
    value._name = name  # pyright: ignore[reportPrivateUsage]
