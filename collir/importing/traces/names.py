"""Collectives and types by the names that tools give them."""

import math
import re
from typing import Any

from collir.importing.traces.loose import listed

KINDS = (
    ("barrier", "barrier"),
    ("reduce_scatter", "reduce_?scatter"),
    ("all_gather", "all_?gather"),
    ("all_reduce", "all_?reduce|cross-replica-sum"),
    ("all_to_all", "all_?to_?all|ragged-all-to-all"),
    ("permute", "collective_?permute"),
    ("broadcast", "broadcast|bcast"),
    ("reduce", "reduce"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("send", "send|recv|receive|sendrecv|p2p"),
)
"""The kinds of collectives, each with a part of their names; the first that fits counts."""

STEP = re.compile(
    r"(?:ProfilerStep#|(?:\w{1,20}[ _])?(?:step|iter|iteration|batch)[ _:#=]{0,4})\d{1,12}",
    re.IGNORECASE,
)
"""Names of ranges that are steps of training."""

_LIBRARIES = ("nccl", "rccl", "oneccl", "xccl")
"""The beginnings of the names of kernels of libraries of collectives."""

_SIZES = {
    "float": 4, "float32": 4, "f32": 4, "double": 8, "float64": 8, "f64": 8, "half": 2,
    "float16": 2, "f16": 2, "c10::half": 2, "bfloat16": 2, "bf16": 2, "c10::bfloat16": 2,
    "int": 4, "int32": 4, "long": 8, "long int": 8, "int64": 8, "short": 2, "char": 1,
    "signed char": 1, "unsigned char": 1, "byte": 1, "uint8": 1, "int8": 1, "bool": 1,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "c10::float8_e4m3fn": 1, "c10::float8_e5m2": 1,
    "c10::complex<float>": 8, "complexfloat": 8, "complexdouble": 16, "uint64": 8, "uint32": 4,
    "pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "s32": 4, "u32": 4, "s64": 8, "u64": 8,
    "f8e4m3fn": 1, "f8e5m2": 1, "c64": 8, "c128": 16,
}  # fmt: skip


def kind_of(name: str) -> str:
    """Return the kind of a collective by its name in a trace; ``other`` if it is none of them."""
    plain = name.lower().replace("-", "_")
    for kind, pattern in KINDS:
        if re.search(pattern.replace("-", "_"), plain):
            return kind
    return "other"


def is_collective_kernel(name: str) -> bool:
    """Return whether a kernel of a device is one of a library of collectives, by its name."""
    return name.removeprefix("void ").lower().startswith(_LIBRARIES)


def item_size(dtype: str) -> int:
    """Return the bytes of an element; 0 if the type is not known."""
    return _SIZES.get(dtype.strip().lower(), 0)


def full_size(kind: str, received: float, sent: float) -> float:
    """Return the bytes of the full buffer of a collective (see ``Collective.size``).

    Args:
        received, sent: the bytes of the output and of the input of a rank.
    """
    match kind:
        case "all_gather":
            return received or sent
        case "barrier" | "other":
            return 0.0
        case "gather" | "scatter" | "reduce_scatter" | "broadcast":
            return max(received, sent)
        case _:
            return sent or received


def elements(sizes: Any) -> int:
    """Return the number of elements of an array of some sizes, or of several arrays."""
    found = listed(sizes)
    if not found:
        return 0
    if all(isinstance(x, int) for x in found):
        return math.prod(found)
    return sum(map(elements, found))
