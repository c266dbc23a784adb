"""The tables of other measurements than vTrain's, told apart by their columns."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from measured import memory, mosaic, papers, published_steps, titan
from measured.rows import records
from measured.scores import Measured, Score, line, score

TABLES: dict[str, tuple[str, Callable[[Path], Iterator[Measured]]]] = {
    "params_optimizer_GiB": ("megatron_2205.05198_fig1_memory.csv", memory.published_split),
    "interleave": ("megatron_2205.05198_table5.csv", papers.table_5),
    "max_mem_allocated_bytes": ("megatron_ci_golden.csv", memory.golden),
    "peak_mem_GiB": ("torchtitan_h100.csv", titan.peaks),
    "tflops_per_gpu": ("training_public.csv", published_steps.seconds),
    "interconnect_note": ("mosaic_mpt_fsdp.csv", mosaic.throughputs),
}
"""A column that only one table has, the file of that table, and what predicts its quantity."""


def predictions(path: Path) -> list[Measured] | None:
    """Return the predictions of a table; None if it has none of these columns.

    Raises:
        DataError: the table cannot be read.
    """
    first = next(records(path), None)
    for column, (_, predict) in TABLES.items():
        if first is not None and column in first[1]:
            return list(predict(path))
    return None


def score_of(found: Sequence[Measured]) -> Score:
    """Return the errors of predictions."""
    measured, predicted = ([getattr(m, name) for m in found] for name in ("measured", "predicted"))
    return score(measured, predicted, [m.group for m in found])


def report(folder: Path) -> Iterator[str]:
    """Yield the errors of each table of a folder, and of its groups.

    Raises:
        DataError: a table cannot be read.
    """
    for name, _ in TABLES.values():
        if not (folder / name).exists():
            continue
        found = predictions(folder / name) or []
        yield line(name.removesuffix(".csv").removeprefix("megatron_"), score_of(found))
        for group in sorted({m.group for m in found}):
            yield line(f"  {group}", score_of([m for m in found if m.group == group]))
