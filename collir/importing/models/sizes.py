"""The size of the batch as a parameter: found by comparing two programs that differ in it alone."""

import re
from collections.abc import Mapping
from typing import Any

from collir.importing.models.lines import GIVEN, SIZES

NAME = "batch"

_NUMBER = re.compile(r"(?<![\w.%@])(\d+)(?![\w.])")
"""A number that is a size: no part of a name, and no decimal fraction."""


def batch_of(args: Any) -> int | None:
    """Return the first size that all tensors in arguments have; None if they differ."""
    sizes = {x.shape[0] for x in _tensors(args) if len(x.shape)}
    return sizes.pop() if len(sizes) == 1 else None


def doubled(args: Any) -> Any:
    """Return arguments whose tensors have a batch of twice the size."""
    if isinstance(args, Mapping):
        return {name: doubled(x) for name, x in args.items()}  # pyright: ignore
    if isinstance(args, list | tuple):
        return type(args)(doubled(x) for x in args)  # pyright: ignore
    if hasattr(args, "shape") and len(args.shape):
        return args.repeat(2, *(1 for _ in args.shape[1:]))
    return args


def _tensors(x: Any) -> list[Any]:
    if isinstance(x, Mapping):
        return [tensor for item in x.values() for tensor in _tensors(item)]  # pyright: ignore
    if isinstance(x, list | tuple):
        return [tensor for item in x for tensor in _tensors(item)]  # pyright: ignore
    return [x] if hasattr(x, "shape") else []


def with_batch(text: str, other: str, batch: int) -> str | None:
    """Return a program with the batch as a parameter; None if it cannot be one.

    Args:
        other: the program for twice the batch.
    """
    parts, others = _NUMBER.split(text), _NUMBER.split(other)
    if len(parts) != len(others):
        return None
    made: list[str] = []
    for place, (part, twice) in enumerate(zip(parts, others, strict=True)):
        if part == twice:
            made.append(part)
        elif place % 2 and int(twice) == 2 * int(part) and int(part) % batch == 0:
            times = int(part) // batch
            made.append(NAME if times == 1 else f"{times} * {NAME}")
        else:
            return None
    return None if made == parts else "".join(made)


def with_sizes(text: str, sizes: Mapping[str, int]) -> str:
    """Return a program whose functions have size parameters, with their defaults."""
    defaults = ", ".join(f"{name} = {value}" for name, value in sizes.items())
    given = ", ".join(f"{name} = {name}" for name in sizes)
    text = text.replace(SIZES, f"({defaults})" if sizes else "")
    return text.replace(GIVEN, f"({given})" if sizes else "")
