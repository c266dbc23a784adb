"""Buffers of a rank, and numbers that depend on its coordinates.

The program of a rank is written once for all of them. Where ranks differ, its numbers say how: they
are sums of products of coordinates, and of tables by coordinates, such as the sizes of different
blocks. A number is an integer, or an open size whose formula is over such atoms. In a program for
values of any size they depend on size parameters, too.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import NamedTuple

from collir.layout.cuts import Coordinates, places
from collir.layout.dtypes import DType
from collir.layout.formulas import Formula, term_text
from collir.layout.mesh import Mesh, index_over
from collir.layout.sizes import OpenSize, formula_of
from collir.layout.types import Place


class CoordinateTable(str):
    """A number for each index over sub-axes, as an atom of formulas: ``[3, 1][data.gpu]``.

    Attributes:
        axes: the sub-axes, the first most significant.
        values: the numbers.
    """

    __slots__ = ("axes", "values")

    axes: tuple[str, ...]
    values: tuple[int, ...]

    def __new__(cls, axes: Sequence[str], values: Sequence[int]) -> "CoordinateTable":
        table = super().__new__(cls, f"[{', '.join(map(str, values))}][{', '.join(axes)}]")
        table.axes, table.values = tuple(axes), tuple(values)
        return table


def axes_of(atom: str) -> tuple[str, ...]:
    """Return the sub-axes that an atom depends on: those of a table, or its own."""
    return atom.axes if isinstance(atom, CoordinateTable) else (atom,)


def number_of(formula: Formula, values: Mapping[str, int] = MappingProxyType({})) -> int:
    """Return the number of each rank that a formula over coordinates and tables is.

    Args:
        values: the values of size parameters.
    """
    largest = {
        atom: max(atom.values) if isinstance(atom, CoordinateTable) else values.get(atom, 1)
        for atom in formula.parameters
    }
    value = int(formula.value(largest))
    return OpenSize(value, formula) if formula.parameters else value


def coordinate_index(mesh: Mesh, axes: Iterable[str]) -> int:
    """Return the mixed-radix index of a rank over sub-axes, the first most significant."""
    formula = Formula.constant(0)
    for axis in axes:
        size = Formula.constant(mesh.by_name[axis].size)
        formula = formula * size + Formula.parameter(axis)
    return number_of(formula)


def table(axes: Sequence[str], values: Sequence[int]) -> int:
    """Return the number that a rank has in a table by its index over sub-axes."""
    if len(set(values)) == 1:
        return values[0]
    divisor = math.gcd(*values)
    atom = CoordinateTable(axes, [value // divisor for value in values])
    return number_of(Formula.parameter(atom) * Formula.constant(divisor))


def number_at(number: int, mesh: Mesh, coordinates: Coordinates) -> int:
    """Return the number of a rank with some coordinates, which may have values of parameters."""
    if not isinstance(number, OpenSize):
        return number
    atoms = {
        atom: atom.values[index_over(mesh, atom.axes, coordinates)]
        if isinstance(atom, CoordinateTable)
        else coordinates[atom]
        for atom in number.formula.parameters
    }
    return int(number.formula.value(atoms))


class Ranks(NamedTuple):
    """The ranks of a mesh, and the size parameters of the program that they run.

    Attributes:
        values: the values of the parameters, for questions whose answers are for these.
    """

    mesh: Mesh
    values: Mapping[str, int] = MappingProxyType({})

    def closed(self, number: int) -> int:
        """Return a number for the values of the parameters."""
        if not isinstance(number, OpenSize) or self.values.keys().isdisjoint(
            number.formula.parameters
        ):
            return number
        constants = {name: Formula.constant(value) for name, value in self.values.items()}
        return number_of(number.formula.substituted(constants))

    def bounds(self, number: int, place: Place = ()) -> tuple[int, int]:
        """Return the least and the largest number of all ranks at a place."""
        return bounds(self.closed(number), self.mesh, place)


def bounds(number: int, mesh: Mesh, place: Place = ()) -> tuple[int, int]:
    """Return the least and the largest number of all ranks at a place.

    All coordinates that index tables are tried; for each choice, the number is a sum of multiples
    of the other coordinates.
    """
    if not isinstance(number, OpenSize):
        return number, number
    cases = _sums(number.formula, mesh, place)
    return min(low for low, _ in cases), max(high for _, high in cases)


def _sums(formula: Formula, mesh: Mesh, place: Place) -> list[tuple[int, int]]:
    tried = dict.fromkeys(axis for axis, _ in place)
    for powers, _ in formula.terms:
        for atom, exponent in powers:
            assert isinstance(atom, str)
            if isinstance(atom, CoordinateTable) or len(powers) > 1 or exponent > 1:
                tried |= dict.fromkeys(axes_of(atom))
    bounds: list[tuple[int, int]] = []
    for coordinates in places(mesh, list(tried)):
        if any(coordinates[axis] != at for axis, at in place):
            continue
        low = high = Fraction(0)
        for powers, factor in formula.terms:
            term, ends = factor, (1, 1)
            for atom, exponent in powers:
                assert isinstance(atom, str)
                if isinstance(atom, CoordinateTable):
                    term *= atom.values[index_over(mesh, atom.axes, coordinates)] ** exponent
                elif atom in coordinates:
                    term *= coordinates[atom] ** exponent
                else:
                    ends = 0, mesh.by_name[atom].size - 1
            low += min(term * end for end in ends)
            high += max(term * end for end in ends)
        bounds.append((int(low), int(high)))
    return bounds


def atoms_in(numbers: Iterable[int]) -> dict[str, None]:
    """Return the coordinates and tables that numbers of a rank depend on, in order."""
    found: dict[str, None] = {}
    for number in numbers:
        if isinstance(number, OpenSize):
            found |= dict.fromkeys(sorted(number.formula.parameters))
    return found


def rank_text(number: int) -> str:
    """Return a number of a rank as it is written: the largest multiples first, then the constant.

    ``8 * data.node + 4 * data.gpu + 3``, ``16 * [3, 1][data.gpu]``, or ``n * data.gpu / 2``.
    """
    if not isinstance(number, OpenSize):
        return str(number)
    text = ""
    for powers, factor in sorted(formula_of(number).terms, key=_written_order):
        sign = (" - " if text else "-") if factor < 0 else (" + " if text else "")
        text += f"{sign}{term_text(powers, abs(factor))}"
    return text


def _written_order(term: tuple[tuple[tuple[str | Formula, int], ...], Fraction]):
    powers, factor = term
    return not powers, -abs(factor), [str(atom) for atom, _ in powers]


@dataclass(frozen=True)
class LocalBuffer:
    """Memory of a rank as an array of elements.

    Attributes:
        shape, strides: numbers of each rank; the strides are the elements from one index of a
            dimension to the next. None: strides of rows one behind the other.
    """

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None

    @staticmethod
    def strided(dtype: DType, shape: Sequence[int], strides: Sequence[int]) -> "LocalBuffer":
        """Return a buffer with some strides; those of dimensions of size 1 do not count."""
        dense = LocalBuffer(dtype, tuple(shape)).steps
        pairs = zip(shape, strides, dense, strict=True)
        own = tuple(usual if size == 1 else step for size, step, usual in pairs)
        return LocalBuffer(dtype, tuple(shape), None if own == dense else own)

    @property
    def steps(self) -> tuple[int, ...]:
        """Elements from one index of each dimension to the next."""
        if self.strides is not None:
            return self.strides
        return tuple(math.prod(self.shape[dim + 1 :]) for dim in range(len(self.shape)))

    @property
    def packed(self) -> "LocalBuffer":
        """The same elements, with rows one behind the other."""
        return LocalBuffer(self.dtype, self.shape)

    @property
    def is_contiguous(self) -> bool:
        """True if its elements are rows one behind the other."""
        return self.strides is None

    @property
    def elements(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """The bytes of all elements."""
        return self.elements * self.dtype.bytes

    @property
    def span(self) -> int:
        """The number of elements of memory from the first to the last one."""
        if not self.elements:
            return 0
        ends = ((n - 1) * step for n, step in zip(self.shape, self.steps, strict=True))
        return 1 + sum(ends)

    @property
    def repeats(self) -> bool:
        """True if two indices may lie at one place, as where a stride is 0."""
        reached = 0
        for step, size in sorted(
            (step, size) for step, size in zip(self.steps, self.shape, strict=True) if size > 1
        ):
            if step <= reached:
                return True
            reached += step * (size - 1)
        return False

    @property
    def numbers(self) -> tuple[int, ...]:
        """All numbers of its shape and its strides."""
        return (*self.shape, *(self.strides or ()))

    @property
    def is_fixed(self) -> bool:
        """True if all ranks have the same one."""
        return not any(isinstance(number, OpenSize) for number in self.numbers)

    def at(self, mesh: Mesh, coordinates: Coordinates) -> "LocalBuffer":
        """Return the buffer of a rank with some coordinates."""
        return self.with_numbers(lambda number: number_at(number, mesh, coordinates))

    def with_numbers(self, changed: Callable[[int], int]) -> "LocalBuffer":
        """Return the buffer with other numbers for those that differ between ranks."""
        if self.is_fixed:
            return self
        shape = [changed(size) for size in self.shape]
        if self.strides is None:
            return LocalBuffer(self.dtype, tuple(shape))
        strides = [changed(step) for step in self.strides]
        return LocalBuffer.strided(self.dtype, shape, strides)

    def text(self, spelled: Callable[[int], str]) -> str:
        """Return the buffer as it is written, with its numbers in some way."""
        text = f"{self.dtype}[{', '.join(map(spelled, self.shape))}]"
        if self.strides is None:
            return text
        return f"{text} strides [{', '.join(map(spelled, self.strides))}]"

    def __str__(self) -> str:
        return self.text(rank_text)
