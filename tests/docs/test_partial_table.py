"""Tests that the table of partial values in docs/language/partial.md agrees with the rules."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from collir.layout import (
    Axis,
    DistType,
    DType,
    Factor,
    LayoutError,
    Mesh,
    Reduction,
    local_rules,
)
from collir.machine import Level, Machine

PAGE = Path(__file__).parents[2] / "docs" / "language" / "partial.md"
MESH = Mesh(
    "m", Machine("c", (Level("gpu", 4, 1e9, 0.0),)), (Axis.placed("data", [Factor("gpu", 4)]),)
)
WHOLE = DistType.make(DType.F32, [8])
PAD_VALUES = {"0": [0.0], "0 or 1": [0.0, 1.0], "anything": [0.0, 1.0, 2.5]}

Step = Callable[[DistType], DistType]


def _integers(x: DistType) -> DistType:
    return DistType.make(DType.I32, x.shape, partial=x.partial, reduction=x.reduction)


STEPS: dict[str, Step] = {
    "`add` of two of the same kind": lambda x: local_rules.add(MESH, x, x),
    "`add` of a value that is replicated there": lambda x: local_rules.add(MESH, x, WHOLE),
    "`scale` by a positive constant or 0": lambda x: local_rules.scale(
        MESH, local_rules.scale(MESH, x, 2.0), 0.0
    ),
    "`scale` by a negative constant": lambda x: local_rules.scale(MESH, x, -1.0),
    "`pad` with negative amounts": lambda x: local_rules.pad(MESH, x, 0, -1, -1, 7.0),
    "`cast` to a type that holds every value": lambda x: local_rules.cast(MESH, x, DType.F64),
    "`cast` to a narrower float": lambda x: local_rules.cast(MESH, x, DType.F16),
    "`cast` to a narrower integer": lambda x: local_rules.cast(MESH, _integers(x), DType.I8),
}


def allowed(step: Step, x: DistType) -> bool:
    try:
        step(x)
    except LayoutError:
        return False
    return True


def pad(value: float) -> Step:
    return lambda x: local_rules.pad(MESH, x, 0, 1, 1, value)


def table() -> dict[str, dict[Reduction, str]]:
    """Return the table of the page: row, reduction, cell."""
    section = PAGE.read_text(encoding="utf-8").partition("\n## Partial values\n")[2]
    lines = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    head, _, *rows = cells
    columns = [[Reduction(name) for name in re.findall(r"\w+", cell)] for cell in head[1:]]
    return {
        row[0]: {
            reduction: cell
            for reductions, cell in zip(columns, row[1:], strict=True)
            for reduction in reductions
        }
        for row in rows
    }


def test_the_table_has_every_row() -> None:
    assert set(table()) == {*STEPS, "`pad` with"}


@pytest.mark.parametrize("row", table())
@pytest.mark.parametrize("reduction", Reduction)
def test_what_may_touch_a_partial_value(row: str, reduction: Reduction) -> None:
    cell = table()[row][reduction]
    x = DistType.make(DType.F32, [8], partial=["data.gpu"], reduction=reduction)
    if row == "`pad` with":
        for value in PAD_VALUES["anything"]:
            assert allowed(pad(value), x) == (value in PAD_VALUES[cell])
    else:
        assert allowed(STEPS[row], x) != cell.startswith("no")
