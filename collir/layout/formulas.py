"""Formulas over the parameters of a function, in a normal form.

A formula is a sum of terms. A term is a rational number times powers of parameters, whose exponents
may be negative, and of sums in denominators. So ``4 * hidden / heads`` is one term, and formulas
that are equal for all values are one formula, as long as no denominator is a sum. Quotients are
exact: a value that has to be an integer is checked to be one where it is used, and not at each
quotient inside.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from math import gcd, lcm
from typing import Union

Atom = Union[str, "Formula"]
"""A parameter, or a sum that stands in a denominator: of several terms without denominators."""

Powers = tuple[tuple[Atom, int], ...]
"""Atoms with exponents other than 0, sorted; the exponents of sums are negative."""

MAX_WEIGHT = 200
"""The most atoms in a formula, those of repeated factors and of denominators counted each."""


KNOWN = 2**14
"""The most results of arithmetic that are kept: the sizes of a program have few formulas."""


class FormulaError(ValueError):
    """A formula that is too long, or that divides by 0."""


@dataclass(frozen=True)
class Formula:
    """A formula in normal form: its terms, with coefficients other than 0, sorted."""

    terms: tuple[tuple[Powers, Fraction], ...] = ()

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.terms)

    @staticmethod
    @lru_cache(maxsize=KNOWN)
    def constant(value: int | Fraction) -> "Formula":
        """Return a formula without parameters."""
        return Formula((((), Fraction(value)),) if value else ())

    @staticmethod
    def parameter(name: str) -> "Formula":
        """Return the formula that is one parameter."""
        return Formula(((((name, 1),), Fraction(1)),))

    # --- arithmetic ---------------------------------------------------------------------------

    def __add__(self, other: "Formula") -> "Formula":
        return _added(self, other)

    def __neg__(self) -> "Formula":
        return Formula(tuple((powers, -number) for powers, number in self.terms))

    def __sub__(self, other: "Formula") -> "Formula":
        return self + -other

    def __mul__(self, other: "Formula") -> "Formula":
        return _multiplied(self, other)

    def __truediv__(self, other: "Formula") -> "Formula":
        """Return the exact quotient.

        Raises:
            FormulaError: ``other`` is 0.
        """
        if not other.terms:
            raise FormulaError("a formula divides by 0")
        return _divided(self, other)

    # --- value --------------------------------------------------------------------------------

    @cached_property
    def parameters(self) -> frozenset[str]:
        """The names of the parameters."""
        atoms = (atom for powers, _ in self.terms for atom, _ in powers)
        names = ({atom} if isinstance(atom, str) else atom.parameters for atom in atoms)
        return frozenset[str]().union(*names)

    @property
    def weight(self) -> int:
        """The number of atoms, those of repeated factors and of denominators counted each."""
        return sum(
            1 + sum(abs(n) * (1 if isinstance(a, str) else a.weight) for a, n in powers)
            for powers, _ in self.terms
        )

    def value(self, values: Mapping[str, int]) -> Fraction:
        """Return the value for values of the parameters.

        Raises:
            KeyError: a parameter has no value.
            FormulaError: a denominator is 0.
        """
        total: int | Fraction = 0
        for powers, number in self.terms:
            product = number.numerator if number.denominator == 1 else number
            for atom, exponent in powers:
                base = values[atom] if isinstance(atom, str) else atom.value(values)
                if exponent < 0:
                    if not base:
                        raise FormulaError(f"{self} divides by 0")
                    base = Fraction(base)
                product *= base**exponent
            total += product
        return Fraction(total)

    def fraction(self) -> tuple["Formula", "Formula"]:
        """Return two sums of products of parameters, with integers as coefficients, whose quotient
        is the formula.

        Raises:
            FormulaError: they are too long.
        """
        above, below = _fraction(self)
        over = lcm(*(number.denominator for _, number in above.terms))
        least: dict[Atom, int] = {}
        for powers, _ in above.terms:
            for atom, exponent in powers:
                least[atom] = min(least.get(atom, 0), exponent)
        powers = ((atom, -least[atom]) for atom in sorted(least, key=_key) if least[atom])
        factor = Formula(((tuple(powers), Fraction(over)),))
        return above * factor, below * factor

    def substituted(self, formulas: Mapping[str, "Formula"]) -> "Formula":
        """Return the formula with formulas in the place of some parameters.

        Raises:
            FormulaError: a denominator becomes 0.
        """
        total = Formula()
        for powers, number in self.terms:
            term = Formula.constant(number)
            for atom, exponent in powers:
                if isinstance(atom, str):
                    base = formulas.get(atom) or Formula.parameter(atom)
                else:
                    base = atom.substituted(formulas)
                for _ in range(abs(exponent)):
                    term = term * base if exponent > 0 else term / base
            total += term
        return total

    # --- text ---------------------------------------------------------------------------------

    def __str__(self) -> str:
        """Return the formula as it is written in ``.coll``."""
        ordered = sorted(self.terms, key=_order)
        first = next((term for term in ordered if term[1] > 0), None)
        if first is not None:  # begin without a sign where possible
            ordered.remove(first)
            ordered.insert(0, first)
        text = ""
        for powers, number in ordered:
            sign = (" - " if number < 0 else " + ") if text else "-" * (number < 0)
            text += sign + term_text(powers, abs(number))
        return text or "0"

    def __repr__(self) -> str:
        return f"Formula({self})"


# ---------------------------------------------------------------------------------------------
# The normal form
# ---------------------------------------------------------------------------------------------


def _key(atom: Atom) -> tuple[bool, str]:
    return (False, atom) if isinstance(atom, str) else (True, str(atom))


def _order(term: tuple[Powers, Fraction]) -> tuple[object, ...]:
    """Return the key that puts higher degrees first, and then sorts by name."""
    powers, _ = term
    return (-sum(n for _, n in powers), [(_key(atom), -n) for atom, n in powers])


def _sum(terms: Iterable[tuple[Powers, Fraction]]) -> Formula:
    """Return a sum of terms.

    Raises:
        FormulaError: it is too long.
    """
    numbers: dict[Powers, Fraction] = {}
    for powers, number in terms:
        numbers[powers] = numbers.get(powers, Fraction(0)) + number
    left = sorted(((p, n) for p, n in numbers.items() if n), key=_order)
    formula = Formula(tuple(left))
    if formula.weight > MAX_WEIGHT:
        raise FormulaError(f"a formula has more than {MAX_WEIGHT} parameters and numbers")
    return formula


@lru_cache(maxsize=KNOWN)
def _added(a: Formula, b: Formula) -> Formula:
    return _sum((*a.terms, *b.terms))


@lru_cache(maxsize=KNOWN)
def _multiplied(a: Formula, b: Formula) -> Formula:
    return _cancelled(_sum((_merged(p, q), m * n) for p, m in a.terms for q, n in b.terms))


@lru_cache(maxsize=KNOWN)
def _divided(a: Formula, b: Formula) -> Formula:
    return a * _inverse(b)


def _merged(a: Powers, b: Powers) -> Powers:
    """Return a product of powers."""
    exponents = dict(a)
    for atom, exponent in b:
        exponents[atom] = exponents.get(atom, 0) + exponent
    return tuple(sorted(((x, n) for x, n in exponents.items() if n), key=lambda p: _key(p[0])))


def _inverse(formula: Formula) -> Formula:
    """Return 1 divided by a formula that is not 0."""
    above, below = _fraction(formula)
    if len(above.terms) == 1:
        powers, number = next(iter(above.terms))
        return below * Formula(((_to_the(powers, -1), 1 / number),))
    factor = _inverse(_content(above))
    if (alone := above * factor).terms[0][1] < 0:
        alone, factor = -alone, -factor
    return below * factor * Formula(((((alone, -1),), Fraction(1)),))


def _fraction(formula: Formula) -> tuple[Formula, Formula]:
    """Return two formulas without sums in denominators whose quotient is the formula."""
    most: dict[Formula, int] = {}
    for powers, _ in formula.terms:
        for atom, exponent in powers:
            if isinstance(atom, Formula):
                most[atom] = max(most.get(atom, 0), -exponent)
    above, below = Formula(), Formula.constant(1)
    for powers, number in formula.terms:
        term = Formula(((tuple(p for p in powers if isinstance(p[0], str)), number),))
        for atom, exponent in most.items():
            for _ in range(exponent + dict(powers).get(atom, 0)):
                term *= atom
        above += term
    for atom, exponent in most.items():
        for _ in range(exponent):
            below *= atom
    return above, below


def _to_the(powers: Powers, exponent: int) -> Powers:
    return tuple((atom, n * exponent) for atom, n in powers)


def _content(formula: Formula) -> Formula:
    """Return the term whose division leaves a sum with coprime integer coefficients.

    Parameters that divide all terms are part of it.
    """
    numbers = [number for _, number in formula.terms]
    over = lcm(*(number.denominator for number in numbers))
    common = gcd(*(int(number * over) for number in numbers))
    powers = [dict(powers) for powers, _ in formula.terms]
    atoms = sorted(set[Atom]().union(*powers), key=_key)
    least = ((atom, min(exponents.get(atom, 0) for exponents in powers)) for atom in atoms)
    shared: Powers = tuple((atom, n) for atom, n in least if n)
    return Formula(((shared, Fraction(common, over)),))


def _cancelled(formula: Formula) -> Formula:
    """Return a formula without a sum that is its only denominator and divides it."""
    if len(formula.terms) < 2:
        return formula
    sums = [a for a, _ in formula.terms[0][0] if isinstance(a, Formula)]
    for atom in sums:
        if all(any(a == atom for a, _ in powers) for powers, _ in formula.terms):
            above = [(_merged(powers, ((atom, 1),)), n) for powers, n in formula.terms]
            if (quotient := _quotient(above, atom)) is not None:
                return quotient
    return formula


def _quotient(above: list[tuple[Powers, Fraction]], below: Formula) -> Formula | None:
    """Return a term that gives ``above`` when it is multiplied by a sum, or None."""
    if len(above) != len(below.terms):
        return None
    (powers, number), (first, scale) = min(above, key=_order), below.terms[0]
    term = (_merged(powers, _to_the(first, -1)), number / scale)
    product = {_merged(term[0], p): term[1] * n for p, n in below.terms}
    return Formula((term,)) if product == dict(above) else None


def term_text(powers: Powers, number: Fraction) -> str:
    """Return a term with a positive coefficient as it is written."""
    above = [str(number.numerator)] if number.numerator != 1 else []
    above += [str(atom) for atom, n in powers for _ in range(n)]
    below = [str(number.denominator)] if number.denominator != 1 else []
    below += [
        atom if isinstance(atom, str) else f"({atom})" for atom, n in powers for _ in range(-n)
    ]
    return " / ".join([" * ".join(above) or "1", *below])


# ---------------------------------------------------------------------------------------------
# Reading
# ---------------------------------------------------------------------------------------------


def read_formula(accept: Callable[[str], bool], operand: Callable[[], Formula]) -> Formula:
    """Return the formula that a parser of tokens reads.

    Args:
        accept: takes one of the tokens ``+ - * / ( )`` if it is next, and returns whether it was.
        operand: takes a number or a parameter, and raises an error if there is none.
    """

    def total() -> Formula:
        formula = product()
        while True:
            if accept("+"):
                formula += product()
            elif accept("-"):
                formula -= product()
            else:
                return formula

    def product() -> Formula:
        formula = factor()
        while True:
            if accept("*"):
                formula *= factor()
            elif accept("/"):
                formula /= factor()
            else:
                return formula

    def factor() -> Formula:
        if accept("-"):
            return -factor()
        if not accept("("):
            return operand()
        formula = total()
        if not accept(")"):
            raise FormulaError("a bracket of a formula is not closed")
        return formula

    return total()


def formula_of_text(text: str) -> Formula:
    """Return a formula that is written as in ``.coll``.

    Raises:
        FormulaError: the text is no formula, divides by 0, or is too long.
    """
    tokens = list(_tokens(text))

    def accept(token: str) -> bool:
        return bool(tokens) and tokens[0] == token and tokens.pop(0) == token

    def operand() -> Formula:
        token = tokens.pop(0) if tokens else "nothing"
        if token.isdecimal() and token.isascii():
            return Formula.constant(int(token))
        if token.isidentifier() and token.isascii() and token != "nothing":
            return Formula.parameter(token)
        raise FormulaError(f"'{text}' is no formula: it has {token} for a number or a parameter")

    formula = read_formula(accept, operand)
    if tokens:
        raise FormulaError(f"'{text}' is no formula: {tokens[0]} is not possible there")
    return formula


def _tokens(text: str) -> Iterator[str]:
    word = ""
    for character in f"{text} ":
        if character.isalnum() or character == "_":
            word += character
            continue
        if word:
            yield word
        word = ""
        if not character.isspace():
            yield character
