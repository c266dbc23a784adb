"""Integers that carry their formula: sizes that follow from the parameters of a function.

A ``Size`` computes, prints and is ordered (``<``) as its value: its formula at the defaults of the
parameters. Sums, differences and products with integers keep the formula, and so do quotients that
divide. Other operations give plain integers. It is equal (``==``) to its number, and to a size of
the same value and formula; its hash is that of the formula, so a cache by sizes is one by formulas.
``same_size`` says whether two numbers are the same, with or without formulas.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import cast

from collir.layout.formulas import Formula, FormulaError


class IndivisibleError(FormulaError):
    """Open sizes that do not divide.

    Attributes:
        parameters: the parameters of their formulas.
    """

    def __init__(self, text: str, parameters: Iterable[str]):
        super().__init__(text)
        self.parameters = frozenset(parameters)


class Size(int):
    """An integer with the formula that it is the value of; make it with ``sized``."""

    formula: Formula

    def __new__(cls, value: int, formula: Formula) -> "Size":
        size = super().__new__(cls, value)
        size.formula = formula
        return size

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is type(other):
            size = cast("Size", other)
            return int.__eq__(self, size) and self.formula == size.formula
        return self._is_number(other)

    def _is_number(self, other: object) -> bool:
        """Return whether a number without a formula is this one."""
        return not isinstance(other, Size) and int(self) == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        """Return the hash of the formula, so that dictionaries and caches tell sizes from numbers.

        This is on purpose: ``size == 8`` asks for the number, a key asks for everything.
        """
        return hash(self.formula)

    def __reduce__(self) -> tuple[type["Size"], tuple[int, Formula]]:
        return type(self), (int(self), self.formula)

    def __copy__(self) -> "Size":
        return self

    def __deepcopy__(self, memo: object) -> "Size":
        return self

    def __add__(self, other: int) -> int:
        return _combined(int.__add__, Formula.__add__, self, other)

    def __radd__(self, other: int) -> int:
        return _combined(int.__add__, Formula.__add__, other, self)

    def __sub__(self, other: int) -> int:
        return _combined(int.__sub__, Formula.__sub__, self, other)

    def __rsub__(self, other: int) -> int:
        return _combined(int.__sub__, Formula.__sub__, other, self)

    def __mul__(self, other: int) -> int:
        return _combined(int.__mul__, Formula.__mul__, self, other)

    def __rmul__(self, other: int) -> int:
        return _combined(int.__mul__, Formula.__mul__, other, self)

    def __floordiv__(self, other: int) -> int:
        return _divided(self, other)

    def __rfloordiv__(self, other: int) -> int:
        return _divided(other, self)

    def __neg__(self) -> int:
        return 0 - self


class OpenSize(Size):
    """A size whose parameters have no values yet, as in code that takes them as arguments.

    It agrees with an open size of the same formula, and with no other number. Its text is its
    formula. Quotients have to divide at the defaults, and all other questions (``<``, ``%``) are
    answered for the defaults too.
    """

    @property
    def number(self) -> object:
        """The formula, by which ``same_size`` compares."""
        return self.formula

    def _is_number(self, other: object) -> bool:
        return False

    def __bool__(self) -> bool:
        return True

    def __str__(self) -> str:
        return str(self.formula)

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return str(self.formula)


class ShardedSize(OpenSize):
    """An open size of a program whose axes have open sizes too.

    A block of a dimension is the size divided by the sizes of axes, which are parameters named as
    ``@data``. Sizes that depend only on axes agree if their values do, as programs with such sizes
    are written for these axes.
    """

    @property
    def number(self) -> object:
        is_fixed = all(name.startswith("@") for name in self.formula.parameters)
        return int(self) if is_fixed else self.formula

    def block(self, axes: Mapping[str, int]) -> int:
        """Return the size of a block that is sharded over sub-axes of these names and sizes."""
        value, formula = int(self), self.formula
        for name, size in axes.items():
            value //= size
            formula = formula / Formula.parameter(f"@{name}")
        return ShardedSize(value, formula)


def same_size(a: int | Sequence[int], b: int | Sequence[int]) -> bool:
    """Return whether sizes are the same numbers at the defaults of their parameters.

    If parameters are open, sizes must be the same for all values of the open parameters.
    """
    if isinstance(a, int) or isinstance(b, int):
        return _number(a) == _number(b)
    return len(a) == len(b) and all(map(same_size, a, b))


def same_key(a: object, b: object) -> bool:
    """Return whether values are the same to a dictionary: with the formulas of their sizes."""
    return hash(a) == hash(b) and a == b


def _number(size: object) -> object:
    """Return what decides whether a size agrees with another one."""
    if isinstance(size, OpenSize):
        return size.number
    return int(size) if isinstance(size, Size) else size


def sized(value: int, formula: Formula) -> int:
    """Return an integer with its formula; a plain integer if the formula has no parameters."""
    return Size(value, formula) if formula.parameters else int(value)


def as_number(size: float) -> float:
    """Return a number as a float; an open size stays."""
    return size if isinstance(size, OpenSize) else float(size)


def sum_of(numbers: Sequence[float]) -> float:
    """Return the sum of numbers, as an open size if there are open sizes among whole numbers."""
    if not any(isinstance(number, OpenSize) for number in numbers):
        return sum(numbers)
    return sum(x if isinstance(x, OpenSize) else int(x) for x in numbers)


def quotient(a: int, b: int) -> int:
    """Return a quotient rounded up, as for amounts of work.

    The quotient of an open size has the exact formula, which is an integer only for some values.
    """
    value = -(-int(a) // int(b))
    kinds = [type(x) for x in (a, b) if isinstance(x, OpenSize)]
    if not kinds:
        return value
    formula = formula_of(a) / formula_of(b)
    return (ShardedSize if ShardedSize in kinds else OpenSize)(value, formula)


def without_formula(size: int) -> int:
    """Return an integer as a plain one; an open size stays, since its value is only a default."""
    return size if isinstance(size, OpenSize) else int(size)


def formula_of(size: int) -> Formula:
    """Return the formula of an integer: its own, or the constant."""
    return size.formula if isinstance(size, Size) else Formula.constant(size)


def written(size: int | str) -> str:
    """Return an integer (or a name) as it is written: by its formula, if it has one."""
    return str(size.formula if isinstance(size, Size) else size)


def explained(size: int) -> str:
    """Return an integer as messages write it: ``12``, or ``12 (3 * batch)``."""
    if isinstance(size, OpenSize):
        return str(size)
    return f"{size} ({size.formula})" if isinstance(size, Size) else str(size)


def _is_known(number: object) -> bool:
    """Say whether a number is the same on all devices, and so has a value (unlike an Extent)."""
    return isinstance(number, Size) or type(number) in (int, bool)


def _combined(
    numbers: Callable[[int, int], int],
    formulas: Callable[[Formula, Formula], Formula],
    a: int,
    b: int,
) -> int:
    """Return a result with its formula; without one, if that would be too long.

    Raises:
        FormulaError: it would be too long for an open size.
    """
    if not _is_known(a) or not _is_known(b):
        return NotImplemented
    value = numbers(int(a), int(b))
    kinds = [type(x) for x in (a, b) if isinstance(x, OpenSize)]
    is_open = bool(kinds)
    try:
        formula = formulas(formula_of(a), formula_of(b))
    except FormulaError:
        if is_open:
            raise
        return value
    if is_open and (formula.parameters or ShardedSize in kinds):
        return (ShardedSize if ShardedSize in kinds else OpenSize)(value, formula)
    return sized(value, formula)


def _divided(a: int, b: int) -> int:
    """Return the quotient rounded down, with its formula if it divides.

    Raises:
        FormulaError: an open size does not divide.
    """
    if not isinstance(cast("object", a), int) or not isinstance(cast("object", b), int):
        return NotImplemented
    if not int(b) or int(a) % int(b):
        if isinstance(a, OpenSize) or isinstance(b, OpenSize):
            parameters = formula_of(a).parameters | formula_of(b).parameters
            raise IndivisibleError(f"{a} does not divide by {b}", parameters)
        return int(a) // int(b)
    return _combined(int.__floordiv__, Formula.__truediv__, a, b)


# ---------------------------------------------------------------------------------------------
# Other values of the parameters
# ---------------------------------------------------------------------------------------------

LIMIT = 2**63
"""Sizes are below this number, as emitted code has them as signed 64-bit integers."""


def size_at(formula: Formula, values: Mapping[str, int]) -> int:
    """Return the integer that a formula is for values of its parameters, with the formula.

    Raises:
        KeyError: a parameter has no value.
        FormulaError: the value is not an integer, or too large, or a denominator is 0.
    """
    value = formula.value(values)
    if value.denominator != 1:
        raise FormulaError(f"{formula} is {value}, which is not an integer")
    if abs(value) >= LIMIT:
        raise FormulaError(f"{formula} is {value.numerator}: sizes are below 2^63")
    return sized(value.numerator, formula)


def size_with(size: int, values: Mapping[str, int]) -> int:
    """Return the integer that a size becomes where its parameters are other sizes.

    Its formula is over the parameters of those sizes.

    Raises:
        KeyError: a parameter has no value.
        FormulaError: the value is not an integer, or too large, or the formula is too long.
    """
    formula = formula_of(size)
    value = size_at(formula, values)
    formulas = {name: formula_of(values[name]) for name in formula.parameters}
    return sized(int(value), formula.substituted(formulas))


def default_error(name: str, value: int) -> str:
    """Return what is wrong with the value of a parameter, or an empty text."""
    if 1 <= value < LIMIT:
        return ""
    return f"parameter '{name}' needs a value from 1 to 2^63 - 1, not {value}"


def substituted(size: int, formulas: Mapping[str, Formula]) -> int:
    """Return an integer with formulas in the place of some parameters of its own.

    Its value stays: those parameters have the values of the formulas.
    """
    return sized(int(size), formula_of(size).substituted(formulas))


def bindings_text(formulas: Iterable[Formula], values: Mapping[str, int]) -> str:
    """Return the values of the parameters of formulas, as in ``batch = 8, hidden = 64``."""
    names = frozenset[str]().union(*(formula.parameters for formula in formulas))
    return ", ".join(f"{name} = {value}" for name, value in values.items() if name in names)
