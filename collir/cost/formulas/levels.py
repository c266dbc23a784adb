"""The time of a collective near some values as a sum over the levels of the machine: messages times
the latency of a level, and bytes divided by the bandwidth of its ports.

The time of an algorithm is linear in latencies and in seconds per byte. So the part of a level
follows from the time on a machine where it is a little slower.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from math import prod

import sympy

from collir.cost.collectives.collective import Collective
from collir.cost.collectives.table import COSTS
from collir.cost.formulas.constants import PORT
from collir.cost.formulas.functions import Expr, as_number
from collir.cost.formulas.sent import (
    LARGEST,
    CollectiveFormula,
    Piece,
    own_links,
    pieces_on,
    priced,
    with_numbers,
)

STEP = 2**-10
"""The share by which a level is slower."""

NEAR = 8
"""The largest ratio between the bytes on slower machines and those of the collective."""

_CLOSE = 1e-9
"""The relative error up to which a time is a sum over levels."""


def seconds_near(sent: CollectiveFormula, values: Sequence[float]) -> Expr:
    """Return the seconds of a collective, a ``Sent``, as a sum of products of its arguments. If the
    time is not linear in the constants of levels, the sum is in its bytes alone.

    Args:
        values: the values of its arguments.
    """
    collective, (size, *symbols), (now, *numbers) = sent.collective, sent.args, values
    pieces = pieces_on(collective, sent.model, (*numbers,))
    if not pieces:
        return sympy.Float(float(sent.values(now, *numbers)))
    low, (high, start, slope) = _piece(pieces, now)
    plain = start + slope * size
    total, near = start + slope * now, (max(low, now / NEAR) * min(high, now * NEAR)) ** 0.5
    parts = _parts(_slowed(sent, near, numbers), len(own_links(collective)))
    if not total or parts is None:
        return plain
    own = [n for n, x in enumerate(collective.mesh.sub_axes) if x.name in collective.axes]
    ranks, count = sympy.Mul(*(symbols[n] for n in own)), prod(int(numbers[n]) for n in own)
    messages, sizes = sympy.S.Zero, sympy.S.Zero
    for seconds, name, symbol, number in zip(
        reversed(parts),
        reversed(own_links(collective)),
        reversed(symbols),
        reversed(numbers),
        strict=False,
    ):
        if name.endswith(PORT):
            slope -= seconds / near
            sizes += _times_ranks(seconds * number / near, collective, ranks, count) / symbol
        else:
            start -= seconds
            messages += _short(seconds / number) * symbol
    if min(start, slope * now) < -_CLOSE * total:
        return plain
    messages += start if start > _CLOSE * total else 0
    sizes += slope if slope * now > _CLOSE * total else 0
    return messages + sizes * size


def _piece(pieces: Sequence[Piece], size: float) -> tuple[float, Piece]:
    """Return where the piece of a size begins, and the piece; it ends at a number."""
    low = 1.0
    for high, start, slope in pieces:
        if size <= high:
            return low, (min(high, LARGEST), start, slope)
        low = high
    raise AssertionError("the last piece has no end")


def _slowed(
    sent: CollectiveFormula, size: float, numbers: Sequence[float]
) -> Callable[[Sequence[float]], float | None]:
    """Return a function from the slowdown of each level to the seconds of a collective of some
    bytes; None where another algorithm is chosen."""
    collective, model = sent.collective, sent.model
    links = [*own_links(collective)]
    axes = len(numbers) - len(links)

    def seconds(factors: Sequence[float]) -> float | None:
        slower = (
            number / factor if name.endswith(PORT) else number * factor
            for name, number, factor in zip(links, numbers[axes:], factors, strict=True)
        )
        new = with_numbers(collective, (*numbers[:axes], *slower))
        algorithm, found = priced(new, model, size) if new else ("", 0.0)
        return found if algorithm == named.setdefault("", algorithm) else None

    named: dict[str, str] = {}
    return seconds


def _parts(seconds: Callable[[Sequence[float]], float | None], count: int) -> list[float] | None:
    """Return the seconds due to each of some constants; None if the time is not linear in them.

    Constants are slowed down one after another; where two are slowest together, the first counts.
    """
    times = [seconds([1 + STEP] * n + [1.0] * (count - n)) for n in range(count + 1)]
    slowest = seconds([1 + 2 * STEP] * count)
    known = [time for time in times if time is not None]
    if len(known) <= count or slowest is None:
        return None
    if abs(2 * known[-1] - known[0] - slowest) > _CLOSE * slowest:
        return None
    parts = [(after - before) / STEP for before, after in pairwise(known)]
    return [part if part > _CLOSE * known[0] else 0.0 for part in parts]


# --- factors of people --------------------------------------------------------------------------


def _times_ranks(factor: float, collective: Collective, ranks: Expr, count: int) -> Expr:
    """Return a factor of bytes; a multiple of a ring's share is written with the number of
    ranks."""
    share = COSTS[collective.kind].busbw
    multiple = _short(factor / share(count)) if count > 1 else None
    is_whole = isinstance(multiple, sympy.Integer)
    return multiple * share(as_number(ranks)) if is_whole else _short(factor)


def _short(number: float) -> Expr:
    """Return a number as a fraction, if its numerator and denominator are small."""
    fraction = Fraction(number).limit_denominator(8)
    if abs(fraction - number) <= _CLOSE * number:
        return sympy.Rational(fraction.numerator, fraction.denominator)
    return sympy.Float(number)
