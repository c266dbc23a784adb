# pyright: basic
"""The times of collectives as expressions: linear in their bytes in pieces, one for each algorithm
or protocol.

The pieces are found from the times of a model for some bytes, so that they are those of each model.
They depend on the sizes of all axes, as groups share ports, and on the constants of the levels of
the machine: they are found for each mesh anew.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, lru_cache, partial
from math import inf
from typing import Any

import numpy as np

from collir.cost.collectives.collective import Collective
from collir.cost.formulas.constants import links_of, with_links
from collir.cost.formulas.functions import (
    Expr,
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

_CLOSE = 1e-9
"""The relative error up to which a time is on a line."""

Piece = tuple[float, float, float]
"""Up to which bytes a piece goes, its seconds for no bytes, and its seconds per byte."""


class FormulaMissingError(Exception):
    """A cost that is no formula."""


def sent_seconds(does: StepCost, model: CostModel) -> Expr:
    """Return the seconds of a collective.

    Raises:
        FormulaMissingError: they are not linear in pieces.
    """
    collective = does.collective
    mesh = collective.mesh
    if not any(does.port_bytes):
        copies = local_seconds(LocalStep(COPY, 2 * collective.size), mesh.machine)
        return copies + sum(phase.time for phase in does.phases)
    alone = replace(collective, size=float(int(collective.size)))
    pieces_of(alone, model)
    arguments = (symbol(f"@{name}") for name in numbers_of(collective))
    return sent_by(alone, model)(expression(collective.size), *arguments)


def numbers_of(collective: Collective) -> dict[str, float]:
    """Return the numbers that the time of a collective depends on: the sizes of the sub-axes of its
    mesh, and the constants of its levels."""
    mesh = collective.mesh
    return {mesh.label(sub.name): float(sub.size) for sub in mesh.sub_axes} | own_links(collective)


def own_links(collective: Collective) -> dict[str, float]:
    """Return the constants of the levels that a collective sends over."""
    return links_of(collective.mesh, collective.axes)


class Sent(Valued):
    """The seconds of a collective, of its bytes and the numbers of its mesh."""

    collective: Collective
    model: CostModel


@cache
def sent_by(collective: Collective, model: CostModel) -> type[Sent]:
    """Return the function from the bytes of a collective and the numbers of its mesh to seconds."""
    axes, links = len(collective.mesh.sub_axes), tuple(own_links(collective).values())

    def values(_: type[Valued], size: Any, *numbers: Any) -> Any:
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

    def seconds(size: Any, numbers: tuple[float, ...]) -> Any:
        sizes = np.unique(size) if numbers[axes:] != links else np.empty(0)
        if not 0 < len(sizes) <= FEW or sizes[0] < 1:
            return _seconds(pieces_on(collective, model, numbers), size)
        new = with_numbers(collective, numbers)
        own = [priced(new, model, x)[1] if new else 0.0 for x in sizes.tolist()]
        return np.array(own)[np.searchsorted(sizes, size)]

    function = new_function(Sent, values=values)
    function.collective, function.model = collective, model
    return function


def _seconds(pieces: tuple[Piece, ...], size: Any) -> Any:
    *others, (_, start, slope) = pieces
    result = start + slope * size
    for limit, start, slope in reversed(others):
        result = np.where(size <= limit, start + slope * size, result)
    return result


@lru_cache(maxsize=MACHINES)
def with_numbers(collective: Collective, numbers: tuple[float, ...]) -> Collective | None:
    """Return a collective where the numbers of its mesh have other values; None if it is over axes
    of size 1 alone.

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
    """Return the pieces of a collective where the numbers of its mesh have other values.

    Raises:
        CostError: the machine cannot have these sizes.
        FormulaMissingError: its time is not linear in pieces.
    """
    new = with_numbers(collective, numbers)
    return pieces_of(new, model) if new else ((inf, 0.0, 0.0),)


@lru_cache(maxsize=MACHINES)
def pieces_of(collective: Collective, model: CostModel) -> tuple[Piece, ...]:
    """Return the pieces of a collective, by ascending bytes.

    Raises:
        FormulaMissingError: its time is not linear in pieces.
    """
    return tuple(_linear_pieces(cache(partial(priced, collective, model))))


def priced(collective: Collective, model: CostModel, size: float) -> tuple[str, float]:
    """Return the algorithm and the seconds of a collective of some bytes."""
    does = step_cost(collective.scaled(size / collective.size), model)
    return does.algorithm, sum(phase.time for phase in sent_phases(does))


def _linear_pieces(probe: Callable[[int], tuple[str, float]]) -> Iterator[Piece]:
    """Yield the pieces of a function from sizes to the name of a piece and its value."""
    low = 1
    while low <= LARGEST:
        high = _last_of_piece(probe, low)
        start, slope = _line(probe, low, high)
        yield (inf if high == LARGEST else high + 0.5), start, slope
        low = high + 1


def _last_of_piece(probe: Callable[[int], tuple[str, float]], low: int) -> int:
    """Return the last size of the piece that begins at one."""
    name, high = probe(low)[0], LARGEST
    if probe(high)[0] == name:
        return high
    while high - low > 1:  # halve the ratio, then the difference
        middle = int((low * high) ** 0.5) if high > 4 * low else (low + high) // 2
        if probe(middle)[0] == name:
            low = middle
        else:
            high = middle
    return low


def _line(probe: Callable[[int], tuple[str, float]], low: int, high: int) -> tuple[float, float]:
    """Return the value at 0 and the slope of a piece from one size to another.

    Raises:
        FormulaMissingError: the piece is not linear.
    """
    first, last = probe(low)[1], probe(high)[1]
    slope = (last - first) / (high - low) if high > low else 0.0
    start = first - slope * low
    for part in (0.1, 0.5):
        size = round(low * (high / low) ** part)
        if abs(start + slope * size - probe(size)[1]) > _CLOSE * probe(size)[1]:
            raise FormulaMissingError(
                f"the time of a collective is not linear in its bytes from {low} to {high}"
            )
    return start, slope
