"""The names of values and of symbols."""

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TypeGuard

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, OpResult, Region, SSAValue
from xdsl.traits import IsolatedFromAbove
from xdsl.utils.exceptions import VerifyException

from collir.dialects.machine import MESH_ATTRIBUTE
from collir.ir.auto import is_auto, is_implied
from collir.ir.fields import records_of
from collir.ir.signature import ARGUMENTS, RESULTS, Side, entries, set_entries

IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
"""The form of names in ``.coll``."""

VALUE = re.compile(r"[A-Za-z_]\w*(\.\w+)*", re.ASCII)
"""The form of the names of values; those with dots are fields of records."""


NAME = "coll.name"
"""The attribute, of an argument or a result in the signature of a function, with its name.

Names of values are hints: passes, and MLIR, may drop or change them. These names are for callers,
and stay.
"""


def unique_names(function: FuncOp, hidden: Container[SSAValue] = ()) -> dict[SSAValue, str]:
    """Return a distinct name (without %) for every value of a function, in order of definition.

    Arguments have the names that the signature gives them, and so have values that are returned,
    unless an argument or an earlier result has the name. Any other value keeps its name unless an
    earlier value has the same; a value without a name gets a number. The values of the bodies of
    loops come behind all those outside of them.

    Args:
        hidden: values that get no name.
    """
    values, bodies = _scope(function.body)
    values = [*function.args, *values]
    for body in bodies:  # grows meanwhile
        inner, more = _scope(body)
        values += [*(arg for block in body.blocks for arg in block.args), *inner]
        bodies += more
    hints = {value: value.name_hint for value in values if value not in hidden}
    fixed: dict[SSAValue, str | None] = {}
    fixed |= zip(function.args, _given(function, ARGUMENTS), strict=False)
    for value, name in zip(named_values(function), _given(function, RESULTS), strict=False):
        if value in hints:
            fixed.setdefault(value, name)
    hints |= {value: name for value, name in fixed.items() if name is not None}
    names: dict[SSAValue, str] = {}
    auto = is_auto(function)
    used = _Used(hints.values())
    number = 0
    # Names in the signature come first, in the order of the signature. Hidden values come last, so
    # that names do not depend on them.
    arguments = {*function.args}
    first = (x for x, name in fixed.items() if name or x in arguments)
    written = (x for x in hints if not (auto and _is_implied(x)))
    for value in [*first, *written, *hints]:
        if value in names:
            continue
        hint = hints[value]
        if hint is None or not VALUE.fullmatch(hint):
            name = str(number)
            number += 1
        else:
            name = used.unlike(hint)
        used.add(name)
        names[value] = name
    return {value: names[value] for value in hints}


def names_in_block(block: Block) -> dict[SSAValue, str]:
    """Return a distinct name (without %) for every value of a block, and of the blocks inside of
    it, which see its values. Each keeps its name unless an earlier value has it; a value without a
    name gets a number."""
    values = list(_values_in(block))
    used = _Used(value.name_hint for value in values)
    names: dict[SSAValue, str] = {}
    number = 0
    for value in values:
        if (hint := value.name_hint) is None or not VALUE.fullmatch(hint):
            names[value] = str(number)
            number += 1
        else:
            names[value] = used.unlike(hint)
        used.add(names[value])
    return names


def _values_in(block: Block) -> Iterator[SSAValue]:
    """Yield the values of a block, and of those inside, in the order of the text."""
    yield from block.args
    for op in block.ops:
        yield from op.results
        for inner in (x for region in op.regions for x in region.blocks):
            yield from _values_in(inner)


class _Used:
    """The names that are used in a scope, where no value has the name of a record.

    Args:
        wanted: the names that values would have.
    """

    def __init__(self, wanted: Iterable[str | None]):
        self.wanted = set(wanted)
        self.values, self.records = set[str](), set[str]()

    def add(self, name: str) -> None:
        """Add the name of a value."""
        self.values.add(name)
        self.records.update(record for record, _ in records_of(name))

    def __contains__(self, name: str) -> bool:
        """Return whether a name is taken by the used names."""
        inside = (record in self.values for record, _ in records_of(name))
        return name in self.values or name in self.records or any(inside)

    def unlike(self, name: str) -> str:
        """Return a name, with a number if it is used, so that it is neither used nor wanted."""
        if name not in self:
            return name
        head, dot, field = name.partition(".")
        number = 1
        while (numbered := f"{head}_{number}{dot}{field}") in self or numbered in self.wanted:
            number += 1
        return numbered


def named_values(function: FuncOp) -> list[SSAValue]:
    """Return the values that a function returns, as they are written: where it is ``auto``, without
    the layouts that its signature gives them."""
    last = function.body.blocks[0].last_op if function.body.blocks else None
    if not isinstance(last, ReturnOp):
        return []
    auto = is_auto(function)
    return [_as_written(x) if auto else x for x in last.arguments]


def _as_written(value: SSAValue) -> SSAValue:
    """Return the value at the beginning of a chain of layouts that are not written."""
    while _is_implied(value):
        value = value.op.operands[0]
    return value


def _is_implied(value: SSAValue) -> TypeGuard[OpResult]:
    return isinstance(value, OpResult) and is_implied(value.op)


def argument_names(function: FuncOp) -> list[str]:
    """Return the names of the arguments of a function, as ``.coll`` has them: distinct ones."""
    names = unique_names(function)
    return [names[argument] for argument in function.args]


def result_names(function: FuncOp) -> list[str]:
    """Return the names of the results of a function: distinct ones, or their numbers if they have
    no names."""
    names = _result_names(function, unique_names(function))
    return [str(number) if name is None else name for number, name in enumerate(names)]


def written_result_names(function: FuncOp, names: Mapping[SSAValue, str]) -> list[str | None]:
    """Return the names of results that a signature in ``.coll`` has to give: none, if the returned
    values have all of them.

    Args:
        names: the names of the values.
    """
    own = _result_names(function, names)
    return [None] * len(own) if own == _names_of_returned(function, names) else own


def _result_names(function: FuncOp, names: Mapping[SSAValue, str]) -> list[str | None]:
    of_values = _names_of_returned(function, names)
    given = _given(function, RESULTS)
    return _distinct([x or name for x, name in zip(given, of_values, strict=True)])


def _names_of_returned(function: FuncOp, names: Mapping[SSAValue, str]) -> list[str | None]:
    """Return the names that results have by their returned values; None without a name."""
    own = [names[value] for value in named_values(function)]
    return _distinct([None if name.isdigit() else name for name in own])


def _distinct(names: Sequence[str | None]) -> list[str | None]:
    """Return names with a number behind each that an earlier one has."""
    used = _Used(names)
    chosen: list[str | None] = []
    for name in names:
        chosen.append(None if name is None else used.unlike(name))
        used.add(chosen[-1] or "")
    return chosen


def name_signature(
    function: FuncOp, arguments: Sequence[str | None], results: Sequence[str | None]
) -> None:
    """Set the names of the arguments and results of a function: of equal ones among either, all but
    the first get a number. None, or a number, leaves one without a name."""
    sides: dict[Side, Sequence[str | None]] = {ARGUMENTS: arguments, RESULTS: results}
    for side, names in sides.items():
        named = [name if name and VALUE.fullmatch(name) else None for name in names]
        values = [StringAttr(name) if name else None for name in _distinct(named)]
        set_entries(function, side, NAME, values)


def keep_names(module: ModuleOp) -> None:
    """Note the names of arguments and results in signatures that lack some, and give arguments the
    full names, which clones cut."""
    for function in module.ops:
        if not isinstance(function, FuncOp) or MESH_ATTRIBUTE not in function.attributes:
            continue
        if not function.body.blocks:
            continue
        sides = (_given(function, ARGUMENTS), _given(function, RESULTS))
        for argument, name in zip(function.args, sides[0], strict=False):
            set_name(argument, name or argument.name_hint)
        if None not in chain(*sides) or len(named_values(function)) != len(sides[1]):
            continue
        names = unique_names(function)
        name_signature(function, [names[x] for x in function.args], _result_names(function, names))


def check_names(function: FuncOp) -> None:
    """Check the names that the signature of a function gives.

    Raises:
        VerifyException: one is no name, or two arguments or two results have the same.
    """
    sides: dict[Side, str] = {ARGUMENTS: "arguments", RESULTS: "results"}
    for side, what in sides.items():
        names: set[str] = set()
        for entry in entries(function, side, NAME):
            if entry is None:
                continue
            if not isinstance(entry, StringAttr) or not VALUE.fullmatch(entry.data):
                raise VerifyException(f"{NAME} is a string of letters, digits and _, not {entry}")
            if entry.data in names:
                raise VerifyException(f"two {what} are named '{entry.data}'")
            names.add(entry.data)


def _given(function: FuncOp, side: Side) -> list[str | None]:
    """Return the names that a signature gives to its arguments or results."""
    return [x.data if isinstance(x, StringAttr) else None for x in entries(function, side, NAME)]


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
