"""Attributes of the arguments and results in the signature of a function, beside their types.

MLIR has a dictionary of attributes for each of them: ``arg_attrs`` and ``res_attrs``.
"""

from collections.abc import Sequence
from typing import Final, Literal

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

Side = Literal["arg_attrs", "res_attrs"]
"""The arguments of a function, or its results."""


ARGUMENTS: Final = "arg_attrs"
RESULTS: Final = "res_attrs"


def entries(function: FuncOp, side: Side, key: str) -> list[Attribute | None]:
    """Return what each argument or result has under a key."""
    listed, types = _sides(function)[side]
    return [None] * types if listed is None else [entry.data.get(key) for entry in listed]


def set_entries(function: FuncOp, side: Side, key: str, values: Sequence[Attribute | None]) -> None:
    """Set the entries of all arguments or results under a key; entries under other keys stay."""
    listed, _ = _sides(function)[side]
    new: list[DictionaryAttr] = []
    for entry, value in zip(listed or [DictionaryAttr({})] * len(values), values, strict=True):
        data = {name: x for name, x in entry.data.items() if name != key}
        new.append(DictionaryAttr(data if value is None else data | {key: value}))
    if any(entry.data for entry in new):
        function.properties[side] = ArrayAttr(new)
    else:
        function.properties.pop(side, None)


def _sides(function: FuncOp) -> dict[Side, tuple[ArrayAttr[DictionaryAttr] | None, int]]:
    """Return the attributes of the arguments and of the results, and the numbers of both."""
    types = function.function_type
    return {
        ARGUMENTS: (function.arg_attrs, len(types.inputs)),
        RESULTS: (function.res_attrs, len(types.outputs)),
    }
