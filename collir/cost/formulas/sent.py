# pyright: basic
"""The times of collectives as expressions: linear in their bytes in pieces, one for each algorithm
or protocol.

The pieces are found from the times of a model for some bytes, so that they are those of each model.
They depend on the sizes of all axes, as groups share ports: they are found for each mesh anew.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from math import inf
from typing import Any

import numpy as np

from collir.cost.collectives.collective import Collective
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
        copies = local_seconds(LocalStep(COPY, 2 * collective.size), mesh.machine.slowest)
        return copies + sum(phase.time for phase in does.phases)
    alone = replace(collective, size=float(int(collective.size)))
    pieces_of(alone, model)
    axes = (symbol(f"@{mesh.label(sub.name)}") for sub in mesh.sub_axes)
    return sent_by(alone, model)(expression(collective.size), *axes)


class Sent(Valued):
    """The seconds of a collective, of its bytes and the sizes of the sub-axes of its mesh."""

    @classmethod
    def line(cls, size: float, *axes: float) -> tuple[float, float]:
        """Return the seconds for no bytes and those per byte, of the piece of a size."""
        raise NotImplementedError


@cache
def sent_by(collective: Collective, model: CostModel) -> type[Sent]:
    """Return the function from the bytes of a collective and the sizes of the sub-axes of its mesh
    to seconds."""

    def values(_: type[Valued], size: Any, *axes: Any) -> Any:
        if all(np.ndim(axis) == 0 for axis in axes):
            return _seconds(pieces_on(collective, model, tuple(map(int, axes))), size)
        size, *columns = np.broadcast_arrays(size, *axes)
        distinct, which = distinct_rows(np.stack(columns, axis=1))
        result = np.empty(size.shape)
        for number, sizes in enumerate(distinct):
            rows = which == number
            pieces = pieces_on(collective, model, tuple(int(x) for x in sizes))
            result[rows] = _seconds(pieces, size[rows])
        return result

    def line(_: type[Valued], size: float, *axes: float) -> tuple[float, float]:
        pieces = pieces_on(collective, model, tuple(map(int, axes)))
        return next((start, slope) for limit, start, slope in pieces if size <= limit)

    return new_function(Sent, values=values, line=line)


def _seconds(pieces: tuple[Piece, ...], size: Any) -> Any:
    *others, (_, start, slope) = pieces
    result = start + slope * size
    for limit, start, slope in reversed(others):
        result = np.where(size <= limit, start + slope * size, result)
    return result


@cache
def pieces_on(
    collective: Collective, model: CostModel, sizes: tuple[int, ...]
) -> tuple[Piece, ...]:
    """Return the pieces of a collective where the sub-axes of its mesh have other sizes.

    Raises:
        CostError: the machine cannot have these sizes.
        FormulaMissingError: its time is not linear in pieces.
    """
    mesh = collective.mesh
    labels = (mesh.label(sub.name) for sub in mesh.sub_axes)
    new = on_mesh(collective, resized(mesh, dict(zip(labels, sizes, strict=True))))
    return pieces_of(new, model) if new else ((inf, 0.0, 0.0),)


@cache
def pieces_of(collective: Collective, model: CostModel) -> tuple[Piece, ...]:
    """Return the pieces of a collective, by ascending bytes.

    Raises:
        FormulaMissingError: its time is not linear in pieces.
    """
    unit = collective.size

    @cache
    def probe(size: int) -> tuple[str, float]:
        does = step_cost(collective.scaled(size / unit), model)
        return does.algorithm, sum(phase.time for phase in sent_phases(does))

    return tuple(_linear_pieces(probe))


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
