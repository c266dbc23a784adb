"""Views of contiguous arrays as expressions: a reshape, an index, and an order of dimensions.

The strides of a view cut the memory into dimensions, and the view has a range of each. Their order,
and dimensions that repeat, are left to write.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from collir.layout import Mesh, Place
from collir.layout.formulas import Formula
from collir.layout.local import LocalBuffer, bounds, number_of
from collir.layout.sizes import OpenSize, formula_of


class ViewedDim(NamedTuple):
    """A dimension of a view.

    Attributes:
        number: which dimension of the view it is.
    """

    size: int
    step: int
    number: int


class ArrayWords(ABC):
    """The words of a library of arrays."""

    REST: ClassVar[str] = "..."
    """The end of an index of the first dimensions only; empty if there is none."""

    @abstractmethod
    def spelled(self, number: int) -> str:
        """Return a number of this rank as an expression."""

    @abstractmethod
    def begin(self, number: int) -> str:
        """Return where a view begins, as an expression that may be written twice."""

    @abstractmethod
    def reshaped(self, x: str, shape: Sequence[int]) -> str:
        """Return an array in another shape."""

    @abstractmethod
    def permuted(self, x: str, order: Sequence[int]) -> str:
        """Return an array with its dimensions in another order, elements left where they are."""

    @abstractmethod
    def repeated(self, x: str, shape: Sequence[int]) -> str:
        """Return an array repeated along dimensions of size 1."""

    @abstractmethod
    def strided(self, x: str, view: LocalBuffer, start: int) -> str:
        """Return any view of a contiguous array."""


@dataclass(frozen=True)
class CutShape:
    """The dimensions that a view cuts an array into, with its ranges in them.

    Attributes:
        sizes: the sizes of the dimensions.
        starts: where the view begins in each.
        counts: how many indices of each it has; the last dimension may have one more than these.
        parts: the dimensions of the view that lie in each, the last ones next to each other.
    """

    sizes: list[int]
    starts: list[int]
    counts: list[int]
    parts: list[list[ViewedDim]]


def view_text(
    words: ArrayWords,
    x: str,
    shape: Sequence[int],
    view: LocalBuffer,
    start: int,
    mesh: Mesh,
    place: Place = (),
) -> str:
    """Return a view of a contiguous array as an expression.

    Args:
        x: the array.
        shape: its shape.
        place: the place of the ranks that have the view.
    """
    whole = LocalBuffer(view.dtype, tuple(shape))
    if view == whole and start == 0:
        return x
    if view.is_contiguous and start == 0 and view.elements == whole.elements:
        return words.reshaped(x, view.shape)
    dims = [
        ViewedDim(size, step, number)
        for number, (size, step) in enumerate(zip(view.shape, view.steps, strict=True))
        if step != 0
    ]
    for kept in (dims, [dim for dim in dims if dim.size != 1]):
        in_order = sorted(kept, key=lambda dim: (-int(dim.step), dim.number))
        for parts in ([[dim] for dim in in_order], _joined(in_order)):
            cut = _cut(whole, parts, start, mesh, place)
            if cut is not None:
                return _text(words, x, whole, view, cut)
    return words.strided(x, view, start)


def _joined(dims: Sequence[ViewedDim]) -> list[list[ViewedDim]]:
    """Return dimensions in groups that lie in memory as one dimension."""
    parts: list[list[ViewedDim]] = []
    for dim in dims:
        if parts and parts[-1][-1].step == dim.size * dim.step:
            parts[-1].append(dim)
        else:
            parts.append([dim])
    return parts


def _cut(
    whole: LocalBuffer,
    parts: list[list[ViewedDim]],
    start: int,
    mesh: Mesh,
    place: Place,
) -> CutShape | None:
    """Return the dimensions that strides cut an array into; None if they cut it into none."""
    steps = [part[-1].step for part in parts]
    sizes: list[int] = []
    for outer, step in zip([whole.elements, *steps], [*steps, 1], strict=True):
        size = _quotient(outer, step)
        if size is None:
            return None
        sizes.append(size)
    starts = _digits(start, [*steps, 1])
    counts: list[int] = []
    for part in parts:
        count = 1
        for dim in part:
            count = count * dim.size
        counts.append(count)
    for begin, count, size in zip(starts, [*counts, 1], sizes, strict=True):
        low, _ = bounds(begin, mesh, place)
        if low < 0 or bounds(begin + count - size, mesh, place)[1] > 0:
            return None
    if sizes[-1] == 1:
        _, _ = sizes.pop(), starts.pop()
    return CutShape(sizes, starts, counts, parts)


def _quotient(a: int, b: int) -> int | None:
    """Return an exact quotient, or None."""
    if not isinstance(a, OpenSize) and not isinstance(b, OpenSize):
        return a // b if b and a % b == 0 else None
    formula = formula_of(a) / formula_of(b)
    for powers, factor in formula.terms:
        if factor.denominator != 1 or any(exponent < 0 for _, exponent in powers):
            return None
    return number_of(formula)


def _digits(start: int, steps: Sequence[int]) -> list[int]:
    """Return a number of elements as multiples of steps, as many as there are of the first."""
    digits = [0] * len(steps)
    for powers, factor in formula_of(start).terms:
        term = number_of(Formula(((powers, factor),)))
        for place, step in enumerate(steps):
            if not isinstance(term, OpenSize) and not isinstance(step, OpenSize):
                more, term = divmod(term, step)
                digits[place] += more
            elif (more := _quotient(term, step)) is not None:
                digits[place] += more
                break
    return digits


def _text(words: ArrayWords, x: str, whole: LocalBuffer, view: LocalBuffer, cut: CutShape) -> str:
    """Return the expression of a view."""
    text = x if tuple(cut.sizes) == whole.shape else words.reshaped(x, cut.sizes)
    index = list(_index(words, cut))
    dropped = len(cut.sizes) > len(cut.counts)  # a dimension, so that one of none is left a view
    while index and index[-1] == ":":
        index.pop()
        dropped = dropped or bool(words.REST)
    if dropped and index:
        index.append("...")
    text += f"[{', '.join(index)}]" if index else ""
    dims = [dim for part in cut.parts for dim in part]
    if any(len(part) > 1 for part in cut.parts):
        text = words.reshaped(text, [dim.size for dim in dims])
    by_number = sorted(dims, key=lambda dim: dim.number)
    if by_number != dims:
        text = words.permuted(text, [dims.index(dim) for dim in by_number])
    if len(dims) < len(view.shape):
        there = {dim.number for dim in dims}
        words_of = [":" if number in there else "None" for number in range(len(view.shape))]
        text += f"[{', '.join(words_of)}]"
    if any(step == 0 and size != 1 for size, step in zip(view.shape, view.steps, strict=True)):
        text = words.repeated(text, view.shape)
    return text


def _index(words: ArrayWords, cut: CutShape) -> Iterator[str]:
    """Yield the index of each dimension."""
    for start, count, size in zip(cut.starts, cut.counts, cut.sizes, strict=False):
        if start == 0 and count == size:
            yield ":"
            continue
        first = words.begin(start) if start != 0 else ""
        last = ""
        if start + count != size:
            known = isinstance(start, OpenSize) and first
            last = f"{first} + {words.spelled(count)}" if known else words.spelled(start + count)
        spaced = any(
            end and not end.isidentifier() and not end.isdecimal() for end in (first, last)
        )
        yield f"{first} : {last}".strip() if spaced else f"{first}:{last}"
    for start in cut.starts[len(cut.counts) :]:
        yield words.begin(start)
