"""Places in tensors and devices of a mesh as sums of digits.

An index is an integer that follows from variables: where a device stands on a sub-axis, where an
element lies in a dimension. Views, gathering and cutting make sums of *digits* out of them: a digit
of a variable v is ``(v // lo) % n``, as in a number written in mixed radix. Equal indices end up as
equal sums, because neighbouring digits join again: ``4 * (v // 4) + v % 4`` is ``v``.

All that is done here is exact for integers; what cannot be made simpler, such as
``(3 * a + b) // 2``, stays as a digit of a sum. The cost depends on how many digits there are,
never on sizes.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import gcd
from typing import NamedTuple


class Var(NamedTuple):
    """A variable from 0 to ``size - 1``.

    ``kind``: ``device`` (a coordinate; the name is the sub-axis), ``index`` (a place in a local
    dimension), ``branch`` (a place in an interval, see expressions.py), ``bound`` (what is reduced
    over).
    """

    kind: str
    name: str | int
    size: int


class Digit(NamedTuple):
    """``(base // lo) % n`` of a variable or of a sum."""

    base: "Var | Index"
    lo: int
    n: int


class Index(NamedTuple):
    """``offset`` and a sum of digits times coefficients, in a fixed order."""

    offset: int
    terms: tuple[tuple[int, Digit], ...] = ()


Values = Mapping[Var, Index]
"""What is put in the place of variables, all at once."""

ZERO = Index(0)


def constant(value: int) -> Index:
    """A number."""
    return Index(value)


def variable(var: Var) -> Index:
    """A variable; 0, where it has one value only."""
    return Index(0, ((1, Digit(var, 1, var.size)),)) if var.size > 1 else ZERO


def bounds(index: Index) -> tuple[int, int]:
    """Between which values an index lies; both are reached where no digit occurs twice."""
    low = high = index.offset
    for times, digit in index.terms:
        if times > 0:
            high += times * (digit.n - 1)
        else:
            low += times * (digit.n - 1)
    return low, high


@lru_cache(maxsize=2**16)
def variables(index: Index) -> frozenset[Var]:
    """The variables that an index follows from."""
    found: set[Var] = set()
    for _, digit in index.terms:
        if isinstance(digit.base, Var):
            found.add(digit.base)
        else:
            found |= variables(digit.base)
    return frozenset(found)


def whole(index: Index) -> Var | None:
    """The variable that an index is, if it is one and nothing else."""
    if index.offset or len(index.terms) != 1:
        return None
    times, (base, lo, n) = index.terms[0]
    return base if times == 1 and isinstance(base, Var) and (lo, n) == (1, base.size) else None


def weighted(parts: Iterable[tuple[int, Index]], offset: int = 0) -> Index:
    """The sum of indices times coefficients, and of a number."""
    terms: dict[Digit, int] = {}
    for times, index in parts:
        offset += times * index.offset
        for factor, digit in index.terms:
            terms[digit] = terms.get(digit, 0) + times * factor
    return _joined(offset, terms)


def mixed(parts: Iterable[tuple[Index, int]]) -> Index:
    """The number with these digits, the first most significant; each with its size."""
    listed = list(parts)
    terms: list[tuple[int, Index]] = []
    stride = 1
    for index, size in reversed(listed):
        terms.append((stride, index))
        stride *= size
    return weighted(terms)


def shifted(index: Index, by: int) -> Index:
    """The index plus a number."""
    return Index(index.offset + by, index.terms) if by else index


def _size(base: Var | Index) -> int:
    return base.size if isinstance(base, Var) else bounds(base)[1] + 1


def _is_top(digit: Digit) -> bool:
    """Whether nothing of the base lies above a digit."""
    return digit.lo * digit.n >= _size(digit.base)


def _joined(offset: int, terms: dict[Digit, int]) -> Index:
    """The sum with neighbouring digits of one base made one."""
    while len(terms) > 1 and (found := _neighbours(terms)):
        lower, upper, base = found
        times = terms.pop(lower)
        del terms[upper]
        both = digit_of(base, lower.lo, lower.n * upper.n)
        offset += times * both.offset
        for factor, part in both.terms:
            terms[part] = terms.get(part, 0) + times * factor
    listed = [(times, digit) for digit, times in terms.items() if times]
    listed.sort(key=_order)
    return Index(offset, tuple(listed))


def _neighbours(terms: dict[Digit, int]) -> tuple[Digit, Digit, Var | Index] | None:
    """Two digits that are one digit of a base."""
    for lower, times in terms.items():
        for upper, other in terms.items():
            next_to = upper.lo == lower.lo * lower.n and other == times * lower.n and times
            if next_to and _congruent(upper.base, lower.base, upper.lo):
                return lower, upper, upper.base
    return None


def _congruent(one: Var | Index, other: Var | Index, modulus: int) -> bool:
    """Whether two sums differ by a multiple of a number, whatever their variables are."""
    if isinstance(one, Var) or isinstance(other, Var):
        return one == other
    terms = {digit: times for times, digit in one.terms}
    for times, digit in other.terms:
        terms[digit] = terms.get(digit, 0) - times
    return not any(n % modulus for n in (one.offset - other.offset, *terms.values()))


def _order(term: tuple[int, Digit]) -> tuple[int, str, str, int, int]:
    times, (base, lo, n) = term
    kind, name = (base.kind, str(base.name)) if isinstance(base, Var) else ("", str(base))
    return -times, kind, name, lo, n


def digit_of(base: Var | Index, lo: int, n: int) -> Index:
    """``(base // lo) % n``, as simple as it gets."""
    if isinstance(base, Var):
        n = min(n, -(-base.size // lo))
        return Index(0, ((1, Digit(base, lo, n)),)) if n > 1 else ZERO
    least, most = bounds(base)
    if lo == 1 and least >= 0 and most < n:
        return base
    high, rest, offset = _divided(base, lo, n)
    quotient, offset = divmod(offset, lo)
    most_of_rest = offset + sum(times * (digit.n - 1) for digit, times in rest.items())
    parts: list[tuple[int, Index]] = [(times, Index(0, ((1, d),))) for d, times in high.items()]
    if most_of_rest >= lo:
        parts.append((1, _floor(rest, offset, lo, most_of_rest // lo + 1)))
    return _modulo(weighted(parts, quotient), n)


def _modulo(total: Index, n: int) -> Index:
    """``total % n``."""
    for candidate in (total, _least(total, n)):
        least, most = bounds(candidate)
        if least // n == most // n:
            return shifted(candidate, -(least // n) * n)
    if not total.offset and len(total.terms) == 1 and total.terms[0][0] == 1:
        digit = total.terms[0][1]
        if _is_top(digit):
            return Index(0, ((1, Digit(digit.base, digit.lo, n)),))
    common, high, low = _coarse(total, n)
    if common > 1:
        return weighted([(common, _modulo(high, n // common)), (1, low)])
    return Index(0, ((1, Digit(total, 1, n)),))


def _least(total: Index, modulus: int) -> Index:
    """A sum that differs by multiples of a number, with the smallest factors."""
    terms = {digit: times % modulus for times, digit in total.terms}
    return _joined(total.offset % modulus, terms)


def settled(index: Index) -> Index:
    """An index in which sums that only matter up to multiples of a number have the least factors:
    they are the same then, if they are equal up to these multiples. No more is put into it."""
    parts: list[tuple[int, Index]] = []
    for times, digit in index.terms:
        base, lo, n = digit
        if isinstance(base, Index):
            inner = settled(base)
            inner = inner if _is_top(digit) else _least(inner, lo * n)
            digit = Digit(inner, lo, n)
        parts.append((times, Index(0, ((1, digit),))))
    return weighted(parts, index.offset)


def _coarse(total: Index, divisor: int) -> tuple[int, Index, Index]:
    """A sum as a multiple of a number that divides ``divisor``, and a rest below that number; the
    number is 1 where there is none."""
    common = divisor
    candidates: list[int] = []
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
                above, below = _parts(digit, at)
                high.append((times * at // common, above))
                low.append((times, below))
            elif at == 1:
                high.append((times // common, Index(0, ((1, digit),))))
            else:
                low.append((times, Index(0, ((1, digit),))))
        rest = weighted(low, total.offset % common)
        least, most = bounds(rest)
        if least >= 0 and most < common:
            return common, weighted(high, total.offset // common), rest
    return 1, total, ZERO


def _parts(digit: Digit, at: int) -> tuple[Index, Index]:
    """``digit // at`` and ``digit % at``."""
    base, lo, n = digit
    return digit_of(base, lo * at, -(-n // at)), digit_of(base, lo, at)


def _divided(base: Index, lo: int, n: int) -> tuple[dict[Digit, int], dict[Digit, int], int]:
    """What of a sum matters to ``(sum // lo) % n``: quotients by ``lo``, the rest, the offset.

    Factors stay as they are, or digits that were cut here would not join again.
    """
    modulus = lo * n
    high: dict[Digit, int] = {}
    rest: dict[Digit, int] = {}
    offset = base.offset
    work = [*base.terms]

    def again(times: int, part: Index) -> None:
        nonlocal offset
        offset += times * part.offset
        work.extend((times * factor, digit) for factor, digit in part.terms)

    while work:
        times, digit = work.pop()
        if times < 0:
            times %= modulus
        if times % modulus == 0:
            continue
        if at := _carried(base, times, digit, modulus):
            again(times, _parts(digit, at)[1])
        elif times % lo == 0:
            high[digit] = high.get(digit, 0) + times // lo
        elif at := _carried(base, times, digit, lo):
            above, below = _parts(digit, at)
            again(times * at, above)
            again(times, below)
        else:
            rest[digit] = rest.get(digit, 0) + times
    return high, rest, offset % modulus


def _carried(base: Index, times: int, digit: Digit, lo: int) -> int:
    """Where to cut a digit, so that the part above adds a multiple of ``lo`` to a sum; 0: nowhere.

    In unequal parts only where nothing else carries over, or they would not join again.
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


def _floor(rest: dict[Digit, int], offset: int, lo: int, n: int) -> Index:
    """``(rest + offset) // lo``, which is below n, and not simple."""
    total = _joined(offset, dict(rest))
    common, high, _ = _coarse(total, lo)
    if common > 1:
        return digit_of(high, lo // common, n)
    return Index(0, ((1, Digit(total, lo, n)),))


def put(index: Index, values: Values) -> Index:
    """An index with others in the place of variables."""
    if not any(var in values for var in variables(index)):
        return index
    parts: list[tuple[int, Index]] = []
    for times, (base, lo, n) in index.terms:
        if isinstance(base, Var):
            new = digit_of(values.get(base, base), lo, n) if base in values else None
        else:
            new = digit_of(put(base, values), lo, n)
        parts.append((times, Index(0, ((1, Digit(base, lo, n)),)) if new is None else new))
    return weighted(parts, index.offset)


def stretched(index: Index, old: Var, new: Var) -> Index:
    """An index with a larger variable in the place of one, and the highest digits of it larger."""
    terms: list[tuple[int, Index]] = []
    for times, digit in index.terms:
        base, lo, n = digit
        if base == old:
            part = digit_of(new, lo, -(-new.size // lo) if _is_top(digit) else n)
        elif isinstance(base, Index):
            part = digit_of(stretched(base, old, new), lo, n)
        else:
            part = Index(0, ((1, digit),))
        terms.append((times, part))
    return weighted(terms, index.offset)


def value(index: Index, at: Mapping[Var, int]) -> int:
    """What an index is where its variables have these values."""
    total = index.offset
    for times, (base, lo, n) in index.terms:
        number = at[base] if isinstance(base, Var) else value(base, at)
        total += times * (number // lo % n)
    return total
