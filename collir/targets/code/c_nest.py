"""Loop nests in C: arrays with a stride for each loop, and the loops around some statements."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from collir.layout import DType
from collir.targets.code.c_text import AS_BITS, C_ELEMENTS, C_TYPES, factor_text, size_text

Strides = Mapping[str, int]
"""The distance in elements between two iterations of a loop, by the variable of the loop."""

_NUMBERS = {
    **C_TYPES,
    **dict.fromkeys(AS_BITS, "float"),
    DType.I8: "uint32_t",
    DType.I32: "uint32_t",
    DType.I64: "uint64_t",
}


def number_type(dtype: DType) -> str:
    """Return the type in which C computes elements: unsigned for integers, which wrap, and float
    for 16-bit floats."""
    return _NUMBERS[dtype]


def value_type(dtype: DType) -> str:
    """Return the type in which C compares elements."""
    return "float" if dtype in AS_BITS else C_TYPES[dtype]


def is_one(size: int) -> bool:
    """Return whether a size is 1 on all ranks."""
    return size_text(size) == "1"


def same_size(a: int, b: int) -> bool:
    """Return whether two sizes are equal on all ranks."""
    return size_text(a) == size_text(b)


@dataclass(frozen=True)
class Array:
    """A buffer that a loop nest reads or writes.

    Attributes:
        strides: the stride of each loop that it depends on, in the order of its dimensions.
        start: where it begins behind the pointer, as a term of a sum; empty at the pointer.
    """

    name: str
    dtype: DType
    strides: Strides
    start: str = ""

    @staticmethod
    def of(name: str, dtype: DType, shape: Sequence[int], variables: Sequence[str]) -> "Array":
        """Return an array of a shape; a dimension without a variable is always at 0."""
        strides = {
            variable: math.prod(shape[d + 1 :])
            for d, (size, variable) in enumerate(zip(shape, variables, strict=True))
            if variable and not is_one(size)
        }
        return Array(name, dtype, strides)

    def offset(self, at: Mapping[str, str] | None = None) -> str:
        """Return the element at the loop variables, some of which have other values."""
        terms = [self.start] if self.start else []
        for variable, stride in self.strides.items():
            text = (at or {}).get(variable, variable)
            terms.append(text if is_one(stride) else f"{text} * {factor_text(stride)}")
        return " + ".join(terms) or "0"

    def element(self, at: Mapping[str, str] | None = None) -> str:
        """Return the element as it is in memory."""
        return f"{self.name}[{self.offset(at)}]"

    def value(self, at: Mapping[str, str] | None = None) -> str:
        """Return the element as C compares it."""
        return C_ELEMENTS.load(self.element(at), self.dtype)

    def number(self, at: Mapping[str, str] | None = None) -> str:
        """Return the element as C adds and multiplies it."""
        if self.dtype.is_float:
            return self.value(at)
        return f"({number_type(self.dtype)}){self.element(at)}"

    def place(self, variables: Sequence[str]) -> str:
        """Return where the array begins at the values of some variables, with others at 0."""
        known = {v: stride for v, stride in self.strides.items() if v in variables}
        offset = replace(self, strides=known).offset()
        return f"{self.name} + {offset}" if known or self.start else self.name

    def store(self, text: str) -> str:
        """Return the statement that writes a number, rounded to the type of the elements."""
        return f"{self.element()} = {C_ELEMENTS.store(text, self.dtype)};"


@dataclass(frozen=True)
class CLoop:
    """A loop of a variable from 0, and the statements at the beginning of an iteration.

    Attributes:
        guarded: whether these statements may end the iteration.
    """

    variable: str
    size: int
    first: tuple[str, ...] = ()
    guarded: bool = False

    @property
    def is_plain(self) -> bool:
        """True if it is a single iteration, for which no loop is printed."""
        return is_one(self.size) and not self.guarded


def nested(loops: Sequence[CLoop], body: Sequence[str], whole: bool = False) -> list[str]:
    """Return the lines of loops in each other, the first outermost.

    Args:
        whole: whether the lines of the body are a single statement.
    """
    lines, is_statement = list(body), whole or len(body) == 1
    for loop in reversed(loops):
        if loop.is_plain:
            lines, is_statement = [*loop.first, *lines], is_statement and not loop.first
            continue
        name = loop.variable
        head = f"for (size_t {name} = 0; {name} < {size_text(loop.size)}; ++{name})"
        if loop.first or not is_statement:
            lines = [f"{head} {{", *(f"  {line}" for line in (*loop.first, *lines)), "}"]
        else:
            lines = [head, *(f"  {line}" for line in lines)]
        is_statement = True
    return lines


def block(loops: Sequence[CLoop], body: Sequence[str]) -> list[str]:
    """Return the lines of loops in each other, whose variables are not known behind them."""
    lines, front = nested(loops, body), list(takewhile(lambda loop: loop.is_plain, loops))
    if len(lines) > 1 and (len(front) == len(loops) or any(loop.first for loop in front)):
        return ["{", *(f"  {line}" for line in lines), "}"]
    return lines


def merged(
    loops: Sequence[CLoop], arrays: Sequence[Array], only: str = ""
) -> tuple[list[CLoop], list[Array]]:
    """Return loops of which two in a row are one where all arrays are contiguous over both.

    Args:
        only: the variable of the loop if a single one is left; by default that of the first.
    """
    left: list[CLoop] = []
    for loop in loops:
        before = left[-1] if left else None
        if before is None or before.first or loop.first or not _joins(before, loop, arrays):
            left.append(loop)
            continue
        left[-1] = CLoop(before.variable, before.size * loop.size)
        arrays = [_without(array, before.variable, loop.variable) for array in arrays]
    if only and len(left) == 1:
        name = left[0].variable
        left = [replace(left[0], variable=only)]
        arrays = [
            replace(x, strides={only if v == name else v: n for v, n in x.strides.items()})
            for x in arrays
        ]
    return left, list(arrays)


def _joins(outer: CLoop, inner: CLoop, arrays: Sequence[Array]) -> bool:
    for array in arrays:
        step, stride = array.strides.get(outer.variable), array.strides.get(inner.variable)
        if step is None and stride is None:
            continue
        if step is None or stride is None or not same_size(step, stride * inner.size):
            return False
    return True


def _without(array: Array, outer: str, inner: str) -> Array:
    """Return an array whose two loops have become one loop over the outer variable."""
    strides = dict(array.strides)
    if inner in strides:
        strides[outer] = strides.pop(inner)
    return replace(array, strides=strides)
