"""The times of steps as expressions."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from math import inf

import sympy

from collir.cost.collectives.collective import Collective
from collir.cost.formulas.functions import (
    EFFICIENCIES,
    SOFTWARE,
    Bandwidth,
    Expr,
    Larger,
    Pieces,
    Slowdown,
    expression,
    number_in,
)
from collir.cost.model import CostModel, StepCost, step_cost
from collir.cost.programs.local_steps import (
    COPY,
    Arithmetic,
    LocalStep,
    local_times,
    sent_phases,
)
from collir.cost.programs.products import Product
from collir.machine import Device, Efficiency, Execution

LARGEST = 2**50
"""The most bytes for which the pieces of a collective's time are looked for."""

_CLOSE = 1e-9
"""The relative error up to which a time is on a line."""


class FormulaMissingError(Exception):
    """A cost that is no formula."""


def local_seconds(local: LocalStep, device: Device | None) -> Expr:
    """Return the seconds of a step that sends nothing."""
    product = local.product
    open_step = replace(
        local,
        size=expression(local.size),
        work=tuple((dtype, expression(count)) for dtype, count in local.work),
        elements=tuple((*names, expression(count)) for *names, count in local.elements),
        reach=expression(local.reach) if local.reach else 0.0,
        product=product
        and Product(
            *map(expression, (product.count, product.rows, product.columns, product.length))
        ),
    )
    return sympy.sympify(local_times(open_step, device, _FORMULAS).total(Larger))


def _bandwidth(execution: Execution, size: Expr, memory: float | None) -> Expr | float | None:
    if not execution.streams:
        return memory
    return Bandwidth(size, memory or 0.0, number_in(SOFTWARE, execution))


def _slowdown(product: Product, efficiency: Efficiency) -> Expr | float:
    if efficiency.tile is None and efficiency.unaligned == 1:
        return 1.0
    number = number_in(EFFICIENCIES, efficiency)
    return Slowdown(product.count, product.rows, product.columns, product.length, number)


_FORMULAS = Arithmetic(Larger, _bandwidth, _slowdown)


def sent_seconds(does: StepCost, model: CostModel) -> Expr:
    """Return the seconds of a collective, which are linear in its bytes in pieces: one for each
    algorithm.

    Raises:
        FormulaMissingError: they are not.
    """
    collective = does.collective
    device = collective.mesh.machine.slowest
    if not any(does.port_bytes):
        copies = local_seconds(LocalStep(COPY, 2 * collective.size), device)
        return copies + sum(phase.time for phase in does.phases)
    alone = replace(collective, size=float(int(collective.size)))
    numbers = [x for piece in _pieces(alone, model) for x in piece]
    size = expression(collective.size)
    if len(numbers) == 3:
        return numbers[1] + numbers[2] * size
    return Pieces(size, *(sympy.oo if x == inf else sympy.Float(x) for x in numbers))


Piece = tuple[float, float, float]
"""Up to which size a piece goes, its value at 0, and its slope."""


@cache
def _pieces(collective: Collective, model: CostModel) -> tuple[Piece, ...]:
    unit = collective.size

    @cache
    def probe(size: int) -> tuple[str, float]:
        does = step_cost(collective.scaled(size / unit), model)
        return does.algorithm, sum(phase.time for phase in sent_phases(does))

    return tuple(_linear_pieces(probe))


def _linear_pieces(probe: Callable[[int], tuple[str, float]]) -> Iterator[Piece]:
    """Yield the pieces of a function of sizes that returns the name of a piece and the value.

    Raises:
        FormulaMissingError: a piece is not linear.
    """
    low = 1
    while True:
        name = probe(low)[0]
        high = LARGEST
        if probe(high)[0] != name:  # halve the ratio, then the difference
            first, high = low, LARGEST
            while high - first > 1:
                middle = int((first * high) ** 0.5) if high > 4 * first else (first + high) // 2
                middle = min(max(middle, first + 1), high - 1)
                first, high = (middle, high) if probe(middle)[0] == name else (first, middle)
            high = first
        start, slope = _line(probe, low, high)
        yield (inf if high == LARGEST else high + 0.5), start, slope
        if high == LARGEST:
            return
        low = high + 1


def _line(probe: Callable[[int], tuple[str, float]], low: int, high: int) -> tuple[float, float]:
    (_, first), (_, last) = probe(low), probe(high)
    if low == high:
        return first, 0.0
    slope = (last - first) / (high - low)
    start = first - slope * low
    for part in (0.1, 0.5):
        size = round(low * (high / low) ** part)
        value = probe(size)[1]
        if abs(start + slope * size - value) > _CLOSE * value:
            raise FormulaMissingError(
                f"the time of a collective is not linear in its bytes from {low} to {high} B"
            )
    return start, slope
