"""The times of collectives as expressions: linear in their bytes in pieces, one for each algorithm
or protocol.

The pieces are found by asking the cost model for the times of some sizes, so that any model will
do. If there are many pieces, the model is asked for each size instead. Each mesh has its own
pieces: they depend on the sizes of all axes, as groups share ports, and on the constants of levels.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, lru_cache, partial
from math import inf
from typing import cast

import numpy as np
import sympy

from collir.cost.collectives.collective import Collective
from collir.cost.formulas.constants import links_of, with_links
from collir.cost.formulas.functions import (
    Column,
    Expr,
    Several,
    Valued,
    distinct_rows,
    expression,
    new_function,
    symbol,
)
from collir.cost.formulas.resized import on_mesh, resized
from collir.cost.formulas.times import local_seconds
from collir.cost.model import CostModel, StepCost, step_cost
from collir.cost.programs.local_steps import COPY, LocalStep, sent_phases

LARGEST = 2**50
"""The most bytes for which pieces are looked for."""

FEW = 8
"""The most sizes on a machine with other constants that are priced one by one, without pieces."""

MACHINES = 2**14
"""The number of collectives on machines whose pieces are remembered."""

MOST_PIECES = 20
"""The most pieces of a collective; the times of others are found one by one, as those of
algorithms with a best number of chunks."""

_CLOSE = 1e-9
"""The relative error up to which a time is on a line."""

Piece = tuple[float, float, float]
"""Up to which bytes a piece goes, its seconds for no bytes, and its seconds per byte."""


def sent_seconds(does: StepCost, model: CostModel) -> Expr:
    """Return the seconds of a collective."""
    collective = does.collective
    mesh = collective.mesh
    if not any(does.port_bytes):
        copies = local_seconds(LocalStep(COPY, 2 * collective.size), mesh.machine)
        return copies + sum(phase.time for phase in does.phases)
    alone = replace(collective, size=float(int(collective.size)), rows=(1, 1))
    arguments = (symbol(f"@{name}") for name in numbers_of(collective))
    sent = sent_by(alone, model)(expression(collective.size), *arguments)
    return sent + packing_seconds(collective)


def packing_seconds(collective: Collective) -> Expr:
    """Return the seconds in which devices pack the blocks of a collective before they are sent, and
    unpack them after."""
    mesh = collective.mesh
    copy = local_seconds(LocalStep(COPY, 2 * collective.size), mesh.machine)
    ranks = sympy.Mul(*(symbol(f"@{mesh.label(axis)}") for axis in collective.axes))
    before, after = (cast("Expr", Several(expression(rows))) for rows in collective.rows)
    return (before + after) * Several(ranks) * copy


def numbers_of(collective: Collective) -> dict[str, float]:
    """Return the sizes of sub-axes and the constants of levels that the time of a collective
    depends on."""
    mesh = collective.mesh
    return {mesh.label(sub.name): float(sub.size) for sub in mesh.sub_axes} | own_links(collective)


def own_links(collective: Collective) -> dict[str, float]:
    """Return the constants of the levels that a collective sends over."""
    return links_of(collective.mesh, collective.axes)


class CollectiveFormula(Valued):
    """The seconds of a collective, by its bytes and the numbers of its mesh (see
    ``numbers_of``)."""

    collective: Collective
    model: CostModel


@lru_cache(maxsize=MACHINES)
def sent_by(collective: Collective, model: CostModel) -> type[CollectiveFormula]:
    """Return the function from the bytes of a collective and the numbers of its mesh to seconds."""
    axes, links = len(collective.mesh.sub_axes), tuple(own_links(collective).values())

    def values(_: type[Valued], size: Column, *numbers: Column) -> Column:
        varied = [place for place, number in enumerate(numbers) if np.ndim(number)]
        if not varied:
            return seconds(size, tuple(map(float, numbers)))
        size, *columns = np.broadcast_arrays(size, *(numbers[place] for place in varied))
        distinct, which = distinct_rows(np.stack(columns, axis=1))
        result, own = np.empty(size.shape), list(numbers)
        for number, row in enumerate(distinct):
            rows = which == number
            for place, value in zip(varied, row, strict=True):
                own[place] = value
            result[rows] = seconds(size[rows], tuple(map(float, own)))
        return result

    def seconds(size: Column, numbers: tuple[float, ...]) -> Column:
        sizes = np.unique(size) if numbers[axes:] != links else np.empty(0)
        if not 0 < len(sizes) <= FEW or sizes[0] < 1:
            if pieces := pieces_on(collective, model, numbers):
                return _seconds(pieces, size)
            sizes = np.unique(size)
        new = with_numbers(collective, numbers)
        own = [priced(new, model, x)[1] if new else 0.0 for x in sizes.tolist()]
        return np.array(own)[np.searchsorted(sizes, size)]

    function = new_function(CollectiveFormula, values=values)
    function.collective, function.model = collective, model
    return function


def _seconds(pieces: tuple[Piece, ...], size: Column) -> Column:
    *others, (_, start, slope) = pieces
    result = start + slope * size
    for limit, start, slope in reversed(others):
        result = np.where(size <= limit, start + slope * size, result)
    return result


@lru_cache(maxsize=MACHINES)
def with_numbers(collective: Collective, numbers: tuple[float, ...]) -> Collective | None:
    """Return a collective on a mesh with other numbers; None if all of its axes then have size 1.

    Raises:
        CostError: the machine cannot have these sizes.
    """
    mesh, values = collective.mesh, dict(zip(numbers_of(collective), numbers, strict=True))
    links = {name: values.pop(name) for name in own_links(collective)}
    new = resized(mesh, {name: int(size) for name, size in values.items()})
    return on_mesh(collective, new if links == own_links(collective) else with_links(new, links))


@lru_cache(maxsize=MACHINES)
def pieces_on(
    collective: Collective, model: CostModel, numbers: tuple[float, ...]
) -> tuple[Piece, ...]:
    """Return the pieces of a collective on a mesh with other numbers; none if they are many.

    Raises:
        CostError: the machine cannot have these sizes.
    """
    new = with_numbers(collective, numbers)
    return pieces_of(new, model) if new else ((inf, 0.0, 0.0),)


@lru_cache(maxsize=MACHINES)
def pieces_of(collective: Collective, model: CostModel) -> tuple[Piece, ...]:
    """Return the pieces of a collective, by ascending bytes; none if they are many."""
    return tuple(_linear_pieces(cache(partial(priced, collective, model))))


def priced(collective: Collective, model: CostModel, size: float) -> tuple[str, float]:
    """Return the algorithm and the seconds of a collective of some bytes."""
    does = step_cost(collective.scaled(size / collective.size), model)
    return does.algorithm, sum(phase.time for phase in sent_phases(does))


def _linear_pieces(probe: Callable[[int], tuple[str, float]]) -> list[Piece]:
    """Return the pieces of a function from sizes to the name of a piece and its value; none if
    there are more than ``MOST_PIECES``."""
    low, pieces = 1, list[Piece]()
    while len(pieces) < MOST_PIECES:
        high = _last(lambda size, low=low: probe(size)[0] == probe(low)[0], low)
        if not _is_line(probe, low, high):
            high = _last(lambda size, low=low: _is_line(probe, low, size), low)
        start, slope = _line(probe, low, high)
        pieces.append(((inf if high == LARGEST else high + 0.5), start, slope))
        if high == LARGEST:
            return pieces
        low = high + 1
    return []


def _last(holds: Callable[[int], bool], low: int) -> int:
    """Return the last size from ``low`` on up to which a predicate holds."""
    high = LARGEST
    if holds(high):
        return high
    while high - low > 1:  # halve the ratio, then the difference
        middle = int((low * high) ** 0.5) if high > 4 * low else (low + high) // 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low


def _is_line(probe: Callable[[int], tuple[str, float]], low: int, high: int) -> bool:
    """Return whether values from one size to another are on a line."""
    start, slope = _line(probe, low, high)
    sizes = (round(low * (high / low) ** part) for part in (0.1, 0.5, 0.9))
    return all(
        abs(start + slope * size - probe(size)[1]) <= _CLOSE * probe(size)[1] for size in sizes
    )


def _line(probe: Callable[[int], tuple[str, float]], low: int, high: int) -> tuple[float, float]:
    """Return the value at 0 and the slope of the line through the values of two sizes."""
    first, last = probe(low)[1], probe(high)[1]
    slope = (last - first) / (high - low) if high > low else 0.0
    return first - slope * low, slope
