"""The table of rows, and their common parts."""

from collections.abc import Callable
from typing import Any, TypeVar

from collir.importing.models.graph import ModelNode
from collir.importing.models.lines import Lines, LineValue

Made = LineValue | tuple[LineValue, ...]
Row = Callable[..., Made]
"""A function of the lines, the node, and its arguments, which returns the results."""

_Row = TypeVar("_Row", bound=Row)

ROWS: dict[str, Row] = {}
"""Every operation of torch that can be imported, by its name without ``aten.`` and ``.default``."""

Number = bool | int | float

JAX = "jax."
"""Stands in front of the names of JAX's operations in the table of rows."""


def row(*names: str) -> Callable[[_Row], _Row]:
    """Add a row to the table, for operations of some names."""

    def add(function: _Row) -> _Row:
        for name in names:
            assert name not in ROWS, name
            ROWS[name] = function
        return function

    return add


class NotHere(Exception):
    """An operation with arguments that its row does not have."""


def value_of(e: Lines, x: LineValue | Number, dtype: str) -> LineValue:
    """Return a value or a number as a value of a dtype."""
    return e.cast(x, dtype) if isinstance(x, LineValue) else e.number(float(x), dtype)


def dtype_of(node: ModelNode) -> str:
    """Return the dtype of the first result."""
    return node.result.dtype


def shape_of(node: ModelNode) -> tuple[int, ...]:
    """Return the shape of the first result."""
    return node.result.shape


def dims_of(x: LineValue, dims: Any) -> list[int]:
    """Return dimensions that may be counted from the end; all of them if none is named."""
    if dims is None or dims == []:
        return list(range(len(x.shape)))
    listed: list[int] = list(dims) if isinstance(dims, list | tuple) else [dims]  # pyright: ignore
    return [d % max(1, len(x.shape)) for d in listed]


def joined_dtype(x: LineValue | Number, y: LineValue | Number) -> str:
    """Return the dtype in which two operands are compared."""
    order = ("bool", "u8", "i8", "i16", "i32", "i64", "bf16", "f16", "f32", "f64")
    values = [v for v in (x, y) if isinstance(v, LineValue)]
    full = [v for v in values if v.shape] or values
    dtype = max((v.dtype for v in full), key=order.index)
    numbers = [v for v in (x, y) if not isinstance(v, LineValue)]
    if any(isinstance(v, float) for v in numbers) and dtype not in order[6:]:
        return "f32"
    return "i64" if dtype == "bool" else dtype
