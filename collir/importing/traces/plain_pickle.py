"""Pickles of plain values, read without running anything that they say.

A pickle is a program, and Python's own reader runs it. Here the few instructions that make lists,
dicts, texts and numbers are carried out, and any other one is an error. Keys are texts or numbers:
the hash of a tuple that holds another one twice, which holds a third one twice, takes forever.
"""

import pickletools
from collections.abc import Iterator
from typing import Any, cast

from collir.importing.values import ReadError, TextPlace

_SCALARS = {
    "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE",
    "BINUNICODE8", "INT", "LONG", "FLOAT", "UNICODE",
}  # fmt: skip
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_IGNORED = {"PROTO", "FRAME", "STOP"}

_MARK = object()
"""The place on the stack where the parts of a value begin."""


def read_plain_pickle(data: bytes) -> Any:
    """Return the value of a pickle.

    Raises:
        ReadError: it is cut off, or no pickle, or not of plain values.
    """
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    try:
        for opcode, argument, _ in pickletools.genops(data):
            _run(opcode.name, argument, stack, memo)
        [value] = stack
    except ReadError:
        raise
    except (ValueError, IndexError, KeyError, TypeError, AssertionError, OverflowError) as error:
        raise ReadError("the pickle is cut off or damaged", TextPlace(1)) from error
    return value


def _run(name: str, argument: Any, stack: list[Any], memo: dict[int, Any]) -> None:
    """Carry out an instruction."""
    if name in _SCALARS:
        stack.append(argument)
    elif name in _CONSTANTS:
        stack.append(_CONSTANTS[name])
    elif name == "MARK":
        stack.append(_MARK)
    elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
        memo[argument] = stack[-1]
    elif name == "MEMOIZE":
        memo[len(memo)] = stack[-1]
    elif name in ("BINGET", "LONG_BINGET", "GET"):
        stack.append(memo[argument])
    elif name == "EMPTY_LIST":
        stack.append([])
    elif name == "EMPTY_DICT":
        stack.append({})
    elif name in _TUPLES:
        count = _TUPLES[name]
        parts = [stack.pop() for _ in range(count)]
        stack.append(parts[::-1])
    elif name in ("LIST", "TUPLE"):
        stack.append(_marked(stack))
    elif name in ("APPEND", "APPENDS"):
        parts = _marked(stack) if name == "APPENDS" else [stack.pop()]
        _list(stack).extend(parts)
    elif name in ("DICT", "SETITEM", "SETITEMS"):
        parts = [stack.pop(), stack.pop()][::-1] if name == "SETITEM" else _marked(stack)
        if name == "DICT":
            stack.append({})
        _dict(stack).update(_pairs(parts))
    elif name not in _IGNORED:
        raise ReadError(f"the pickle has an instruction {name}: it is not of plain values",
                        TextPlace(1))  # fmt: skip


def _marked(stack: list[Any]) -> list[Any]:
    """Take the values off the stack that are behind the last mark."""
    parts: list[Any] = []
    while (value := stack.pop()) is not _MARK:
        parts.append(value)
    return parts[::-1]


def _list(stack: list[Any]) -> list[Any]:
    assert isinstance(stack[-1], list)
    return cast("list[Any]", stack[-1])


def _dict(stack: list[Any]) -> dict[Any, Any]:
    assert isinstance(stack[-1], dict)
    return cast("dict[Any, Any]", stack[-1])


def _pairs(parts: list[Any]) -> Iterator[tuple[str | int | float | None, Any]]:
    """Yield keys with their values."""
    for key, value in zip(parts[::2], parts[1::2], strict=True):
        if not isinstance(key, str | int | float | None):
            raise ReadError("a key in the pickle is neither a text nor a number", TextPlace(1))
        yield key, value
