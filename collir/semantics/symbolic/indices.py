"""Integer indices as sums of mixed-radix digits of variables.

An ``Index`` is an integer that depends on variables: the coordinate of a device on a sub-axis, or
the position of an element in a dimension of a buffer. It is represented as an offset and a sum of
coefficients times digits. A *digit* is ``(base // lo) % n``, where the base is a variable or
another index.

Example: a view of shape [8] as [2, 4] reads position v at row ``(v // 4) % 2`` and column
``v % 4``. The view back to [8] is ``4 * ((v // 4) % 2) + v % 4``. Neighbouring digits join, so this
becomes ``v`` again: equal indices usually have the same representation.

All arithmetic is exact for integers. Where nothing can be simplified, as in ``(3 * a + b) // 2``,
the result is a digit whose base is a sum. The cost depends on the number of digits, never on sizes.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import gcd
from typing import NamedTuple


class Var(NamedTuple):
    """A variable with the values 0 to ``size - 1``.

    Its ``kind`` is ``device`` (a coordinate; the name is the sub-axis), ``index`` (a position in a
    dimension of a buffer; the name is the dimension), ``branch`` (a position in an interval, see
    ``expressions.Select``), ``bound`` (a variable that a reduction ranges over) or ``new`` (a bound
    variable that is not numbered yet).
    """

    kind: str
    name: str | int
    size: int


class IndexDigit(NamedTuple):
    """The number ``(base // lo) % n``, for a base that is a variable or an index."""

    base: "Var | Index"
    lo: int
    n: int


class Index(NamedTuple):
    """``offset`` plus a sum of coefficients times digits, in a fixed order."""

    offset: int
    terms: tuple[tuple[int, IndexDigit], ...] = ()


Values = Mapping[Var, Index]
"""The indices that replace variables, all at once."""

ZERO_INDEX = Index(0)


def constant(value: int) -> Index:
    """Return the index of a constant."""
    return Index(value)


def variable(var: Var) -> Index:
    """Return the index of a variable; 0 if the variable has one value only."""
    return _of_digit(IndexDigit(var, 1, var.size)) if var.size > 1 else ZERO_INDEX


def _of_digit(digit: IndexDigit) -> Index:
    return Index(0, ((1, digit),))


def bounds(index: Index) -> tuple[int, int]:
    """Return a lower and an upper bound of an index; exact where no digit occurs twice."""
    low = high = index.offset
    for times, digit in index.terms:
        if times > 0:
            high += times * (digit.n - 1)
        else:
            low += times * (digit.n - 1)
    return low, high


@lru_cache(maxsize=2**16)
def variables(index: Index) -> frozenset[Var]:
    """Return the variables that an index depends on."""
    used: set[Var] = set()
    for _, digit in index.terms:
        if isinstance(digit.base, Var):
            used.add(digit.base)
        else:
            used |= variables(digit.base)
    return frozenset(used)


def sole_variable(index: Index) -> Var | None:
    """Return the variable that an index is equal to, or None if it is no single variable."""
    if index.offset or len(index.terms) != 1:
        return None
    times, (base, lo, n) = index.terms[0]
    return base if times == 1 and isinstance(base, Var) and (lo, n) == (1, base.size) else None


def weighted_sum(parts: Iterable[tuple[int, Index]], offset: int = 0) -> Index:
    """Return the sum of coefficients times indices, plus an offset."""
    terms: dict[IndexDigit, int] = {}
    for times, index in parts:
        offset += times * index.offset
        for factor, digit in index.terms:
            terms[digit] = terms.get(digit, 0) + times * factor
    return _joined(offset, terms)


def mixed_radix(digits: Iterable[tuple[Index, int]]) -> Index:
    """Return the number with these digits, each with its radix, the most significant first."""
    terms: list[tuple[int, Index]] = []
    stride = 1
    for index, size in reversed(list(digits)):
        terms.append((stride, index))
        stride *= size
    return weighted_sum(terms)


def shifted(index: Index, by: int) -> Index:
    """Return an index plus a number."""
    return Index(index.offset + by, index.terms) if by else index


# --- digits -------------------------------------------------------------------------------------


def _size(base: Var | Index) -> int:
    return base.size if isinstance(base, Var) else bounds(base)[1] + 1


def _is_top(digit: IndexDigit) -> bool:
    """Return whether a digit is the most significant of its base."""
    return digit.lo * digit.n >= _size(digit.base)


def _joined(offset: int, terms: dict[IndexDigit, int]) -> Index:
    """Return a sum in which neighbouring digits of one base are joined to one digit."""
    while len(terms) > 1 and (neighbours := _neighbours(terms)):
        lower, upper, base = neighbours
        times = terms.pop(lower)
        del terms[upper]
        both = digit_of(base, lower.lo, lower.n * upper.n)
        offset += times * both.offset
        for factor, part in both.terms:
            terms[part] = terms.get(part, 0) + times * factor
    listed = [(times, digit) for digit, times in terms.items() if times]
    listed.sort(key=_order)
    return Index(offset, tuple(listed))


def _neighbours(
    terms: dict[IndexDigit, int],
) -> tuple[IndexDigit, IndexDigit, Var | Index] | None:
    """Return two digits (lower, upper) that are one digit of a base, and that base."""
    for lower, times in terms.items():
        for upper, upper_times in terms.items():
            next_to = upper.lo == lower.lo * lower.n and upper_times == times * lower.n and times
            if next_to and _congruent(upper.base, lower.base, upper.lo):
                return lower, upper, upper.base
    return None


def _congruent(a: Var | Index, b: Var | Index, modulus: int) -> bool:
    """Return whether two bases differ by a multiple of ``modulus`` for all values."""
    if isinstance(a, Var) or isinstance(b, Var):
        return a == b
    terms = {digit: times for times, digit in a.terms}
    for times, digit in b.terms:
        terms[digit] = terms.get(digit, 0) - times
    return not any(n % modulus for n in (a.offset - b.offset, *terms.values()))


def _order(term: tuple[int, IndexDigit]) -> tuple[int, str, str, int, int]:
    times, (base, lo, n) = term
    kind, name = (base.kind, str(base.name)) if isinstance(base, Var) else ("", str(base))
    return -times, kind, name, lo, n


def digit_of(base: Var | Index, lo: int, n: int) -> Index:
    """Return ``(base // lo) % n``, simplified."""
    if isinstance(base, Var):
        n = min(n, -(-base.size // lo))
        return _of_digit(IndexDigit(base, lo, n)) if n > 1 else ZERO_INDEX
    least, most = bounds(base)
    if lo == 1 and least >= 0 and most < n:
        return base
    # (lo * quotients + rest + offset) // lo = quotients + offset // lo + (rest + offset % lo) // lo
    quotients, rest, offset = _divided(base, lo, n)
    quotient, offset = divmod(offset, lo)
    most_of_rest = offset + sum(times * (digit.n - 1) for digit, times in rest.items())
    parts = [(times, _of_digit(digit)) for digit, times in quotients.items()]
    if most_of_rest >= lo:
        parts.append((1, _floor(rest, offset, lo, most_of_rest // lo + 1)))
    return _modulo(weighted_sum(parts, quotient), n)


def _modulo(total: Index, n: int) -> Index:
    """Return ``total % n``, simplified."""
    for candidate in (total, _least(total, n)):
        least, most = bounds(candidate)
        if least // n == most // n:
            return shifted(candidate, -(least // n) * n)
    if not total.offset and len(total.terms) == 1 and total.terms[0][0] == 1:
        digit = total.terms[0][1]
        if _is_top(digit):
            return _of_digit(IndexDigit(digit.base, digit.lo, n))
    common, high, low = coarse(total, n)
    if common > 1:
        return weighted_sum([(common, _modulo(high, n // common)), (1, low)])
    return _of_digit(IndexDigit(total, 1, n))


def _least(total: Index, modulus: int) -> Index:
    """Return an index congruent to ``total``, with coefficients and offset below ``modulus``."""
    terms = {digit: times % modulus for times, digit in total.terms}
    return _joined(total.offset % modulus, terms)


def comparison_form(index: Index) -> Index:
    """Return a form of an index that is the same for more equal indices.

    A base that only matters modulo a number gets the smallest coefficients modulo that number. The
    form is for comparisons only: substituting into it may be wrong.
    """
    parts: list[tuple[int, Index]] = []
    for times, digit in index.terms:
        base, lo, n = digit
        if isinstance(base, Index):
            inner = comparison_form(base)
            inner = inner if _is_top(digit) else _least(inner, lo * n)
            digit = IndexDigit(inner, lo, n)
        parts.append((times, _of_digit(digit)))
    return weighted_sum(parts, index.offset)


def coarse(total: Index, divisor: int) -> tuple[int, Index, Index]:
    """Return (common, high, low) with ``total == common * high + low`` and ``0 <= low < common``.

    ``common`` divides ``divisor``. It is 1, and ``low`` is 0, if no such split is found.
    """
    common = divisor
    candidates = [gcd(divisor, total.offset)] if total.offset else []
    for times, _ in total.terms:
        common = gcd(common, times)
        candidates.append(common)
    for common in dict.fromkeys(reversed(candidates)):
        if common == 1:
            continue
        high: list[tuple[int, Index]] = []
        low: list[tuple[int, Index]] = []
        for times, digit in total.terms:
            at = common // gcd(common, times)
            if 1 < at < digit.n and (digit.n % at == 0 or _is_top(digit)):
                above, below = _cut(digit, at)
                high.append((times * at // common, above))
                low.append((times, below))
            elif at == 1:
                high.append((times // common, _of_digit(digit)))
            else:
                low.append((times, _of_digit(digit)))
        rest = weighted_sum(low, total.offset % common)
        least, most = bounds(rest)
        if least >= 0 and most < common:
            return common, weighted_sum(high, total.offset // common), rest
    return 1, total, ZERO_INDEX


def _cut(digit: IndexDigit, at: int) -> tuple[Index, Index]:
    """Return ``digit // at`` and ``digit % at``."""
    base, lo, n = digit
    return digit_of(base, lo * at, -(-n // at)), digit_of(base, lo, at)


def _divided(
    base: Index, lo: int, n: int
) -> tuple[dict[IndexDigit, int], dict[IndexDigit, int], int]:
    """Return the parts of a base that matter to ``(base // lo) % n``: (quotients, rest, offset).

    Modulo ``lo * n`` the base is ``lo * quotients + rest + offset``. Both dictionaries map digits
    to coefficients. Coefficients are not reduced further, because digits that were cut for that
    would not join again.
    """
    modulus = lo * n
    quotients: dict[IndexDigit, int] = {}
    rest: dict[IndexDigit, int] = {}
    offset = base.offset
    work = [*base.terms]

    def requeue(times: int, part: Index) -> None:
        nonlocal offset
        offset += times * part.offset
        work.extend((times * factor, digit) for factor, digit in part.terms)

    while work:
        times, digit = work.pop()
        if times < 0:
            times %= modulus
        if times % modulus == 0:
            continue
        if at := _carry_cut(base, times, digit, modulus):
            requeue(times, _cut(digit, at)[1])
        elif times % lo == 0:
            quotients[digit] = quotients.get(digit, 0) + times // lo
        elif at := _carry_cut(base, times, digit, lo):
            above, below = _cut(digit, at)
            requeue(times * at, above)
            requeue(times, below)
        else:
            rest[digit] = rest.get(digit, 0) + times
    return quotients, rest, offset % modulus


def _carry_cut(base: Index, times: int, digit: IndexDigit, lo: int) -> int:
    """Return where to cut a digit so that its upper part adds a multiple of ``lo``; 0: nowhere.

    A digit is cut into unequal parts only if no other term carries over. Otherwise the parts would
    not join again.
    """
    at = lo // gcd(lo, times)
    if at >= digit.n:
        return 0
    if digit.n % at:
        others = [(t, d) for t, d in base.terms if d.base != digit.base and t % lo]
        low = sum(t * (d.n - 1) for t, d in others)
        alone = base.offset % lo == 0 and all(0 < t < times for t, _ in others) and low < times
        if lo % times or not alone or not _is_top(digit):
            return 0
    return at


def _floor(rest: dict[IndexDigit, int], offset: int, lo: int, n: int) -> Index:
    """Return ``(rest + offset) // lo``, known to be below ``n``, as a digit of a sum."""
    total = _joined(offset, dict(rest))
    common, high, _ = coarse(total, lo)
    if common > 1:
        return digit_of(high, lo // common, n)
    return _of_digit(IndexDigit(total, lo, n))


# --- other variables ----------------------------------------------------------------------------


def substituted_index(index: Index, values: Values) -> Index:
    """Return an index with variables replaced by other indices."""
    if not any(var in values for var in variables(index)):
        return index
    parts: list[tuple[int, Index]] = []
    for times, digit in index.terms:
        base, lo, n = digit
        if isinstance(base, Index):
            part = digit_of(substituted_index(base, values), lo, n)
        else:
            part = digit_of(values[base], lo, n) if base in values else _of_digit(digit)
        parts.append((times, part))
    return weighted_sum(parts, index.offset)


def stretched(index: Index, old: Var, new: Var) -> Index:
    """Return an index with ``old`` replaced by the larger ``new``, whose top digits grow too."""
    terms: list[tuple[int, Index]] = []
    for times, digit in index.terms:
        base, lo, n = digit
        if base == old:
            part = digit_of(new, lo, -(-new.size // lo) if _is_top(digit) else n)
        elif isinstance(base, Index):
            part = digit_of(stretched(base, old, new), lo, n)
        else:
            part = _of_digit(digit)
        terms.append((times, part))
    return weighted_sum(terms, index.offset)


def evaluated(index: Index, values: Mapping[Var, int]) -> int:
    """Return the value of an index where its variables have these values."""
    total = index.offset
    for times, (base, lo, n) in index.terms:
        value = values[base] if isinstance(base, Var) else evaluated(base, values)
        total += times * (value // lo % n)
    return total
