"""vTrain's measured iterations: predictions, fits and what fits predict of other rows."""

import random
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path

from measured import rows as tables
from measured.fitting import NUMBERS, fitted, machine_text
from measured.iteration import predicted_seconds
from measured.memory import largest_bytes
from measured.programs import FOLDER, machine
from measured.rows import NODE, Row
from measured.scores import HEADER, Score, line, score

from collir.machine import Machine

FILES = ("vtrain_single.csv", "vtrain_multi.csv")
SPLITS = 3
"""The random halves that a fit is tried on."""


def group_of(row: Row) -> Hashable:
    """Return what rows have in common that are compared: the model; on a node, also the number of
    GPUs and the batch."""
    return (row.gpus, row.batch, row.model) if row.gpus <= NODE else row.model


def score_of(rows: Sequence[Row], on: Machine) -> Score:
    """Return the errors of the predictions of rows."""
    return scored(rows, [predicted_seconds(row, on) for row in rows])


def scored(rows: Sequence[Row], predicted: Sequence[float]) -> Score:
    """Return the errors of predictions of rows."""
    return score([row.seconds for row in rows], predicted, [*map(group_of, rows)])


def read(folder: Path) -> list[Row]:
    """Return the rows of both tables."""
    return [row for name in FILES for row in tables.read(folder / name)]


def by_nodes(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Yield the rows on one node and on several, with a name."""
    for name, several in (("one node", False), ("several nodes", True)):
        if part := [row for row in rows if (row.gpus > NODE) == several]:
            yield name, part


def report(folder: Path) -> Iterator[str]:
    """Yield the errors of the committed machine by the number of GPUs and the model."""
    on, rows = machine(), read(folder)
    assert on.device is not None and on.device.memory is not None
    fit = sum(largest_bytes(row) <= on.device.memory for row in rows)
    yield f"{fit} of {len(rows)} runs are predicted to fit in the memory of a device"
    yield HEADER
    for name, part in by_nodes(rows):
        yield line(name, score_of(part, on))
        keys: tuple[tuple[str, Callable[[Row], int]], ...] = (
            ("GPUs", lambda row: row.gpus),
            ("width", lambda row: row.hidden),
            ("tensor parallel", lambda row: row.tensor),
            ("pipeline parallel", lambda row: row.pipeline),
        )
        for what, key in keys:
            for value in sorted({key(row) for row in part}):
                own = [row for row in part if key(row) == value]
                yield line(f"  {what} {value}", score_of(own, on))


def fit(folder: Path) -> Iterator[str]:
    """Fit the machine to all rows, write its file, and yield its numbers."""
    rows = read(folder)
    on, values = fitted(machine(), rows)
    note = [
        "A100 as Megatron-LM ran on it in vTrain's measurements (VIA-Research/vTrain).",
        f"Fitted to {len(rows)} iterations by `python benchmarks/training.py --fit`.",
    ]
    for name, part in by_nodes(rows):
        note.append(f"Mean error of those on {name}: {100 * score_of(part, on).mape:.1f} %.")
    (FOLDER / "a100.coll").write_text(machine_text(values, note), encoding="utf-8")
    for number, value in zip(NUMBERS, values, strict=True):
        yield f"{number.name:24}{value:.4g}"


def held_out(folder: Path) -> Iterator[str]:
    """Yield the errors of rows that were kept back from a fit: random halves, and each width."""
    rows = read(folder)
    yield HEADER
    cases: list[tuple[str, list[Row]]] = []
    for seed in range(SPLITS):
        cases.append((f"half {seed}", random.Random(seed).sample(rows, len(rows) // 2)))
    for hidden in sorted({row.hidden for row in rows}):
        cases.append((f"width {hidden}", [row for row in rows if row.hidden == hidden]))
    for name, kept in cases:
        held = set(kept)
        on, _ = fitted(machine(), [row for row in rows if row not in held])
        for where, part in by_nodes(kept):
            yield line(f"{name}, {where}", score_of(part, on))
