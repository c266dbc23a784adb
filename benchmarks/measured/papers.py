"""Published times of large models: Korthikanti et al. (2022), table 5."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from measured.iteration import predicted_seconds
from measured.memory import number
from measured.programs import machine
from measured.rows import Row, records
from measured.scores import Measured

PORT = 200e9
"""Bytes/second of a node of DGX A100: eight HDR adapters."""

WHOLE = {
    "gpus": "gpus",
    "batch": "global_batch",
    "micro": "micro_batch",
    "hidden": "hidden",
    "heads": "heads",
    "layers": "layers",
    "seq": "seq",
    "tensor": "tp",
    "data": "dp",
    "pipeline": "pp",
    "chunks": "interleave",
}


def table_5(path: Path) -> Iterator[Measured]:
    """Yield the times of 22B to 1T, with full recomputation and with sequence parallelism.

    Raises:
        DataError: the table cannot be read.
    """
    on = machine()
    on = replace(on, levels=(replace(on.levels[0], port=PORT), *on.levels[1:]))
    for line, record in records(path):
        full = record["mode"].startswith("full")
        sizes = {name: int(number(path, line, record, column)) for name, column in WHOLE.items()}
        seconds = number(path, line, record, "iteration_time_s")
        recompute = "full" if full else "core"
        row = Row(line, seconds=seconds, recompute=recompute, sequence=not full, **sizes)
        group = "full recomputation" if full else "sequence parallel"
        yield Measured(line, group, seconds, predicted_seconds(row, on))
