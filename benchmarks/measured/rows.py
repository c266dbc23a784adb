"""Rows of measured iterations, read from tables of comma-separated values."""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

NODE = 8
"""The GPUs of a node."""


class DataError(Exception):
    """A table that cannot be read; the text is that for a user, ``file:line: error: ...``."""


@dataclass(frozen=True)
class Row:
    """A measured iteration of a GPT in Megatron-LM's layout.

    Attributes:
        line: the number of its line in the file, from 1.
        batch, micro: the sequences of an iteration, and of a microbatch of one data-parallel rank.
        tensor, data, pipeline: the degrees of parallelism, whose product is the number of GPUs.
        seconds: the measured time.
        recompute: what runs again in the backward pass: "none", "core" (attention) or "full".
        sequence: whether the sequence is divided between the products.
        chunks: the chunks of layers of each stage, which are interleaved if there are several.
    """

    line: int
    gpus: int
    batch: int
    micro: int
    hidden: int
    heads: int
    layers: int
    seq: int
    tensor: int
    data: int
    pipeline: int
    seconds: float
    recompute: str = "none"
    sequence: bool = False
    chunks: int = 1

    @property
    def microbatches(self) -> int:
        """The microbatches of an iteration."""
        return self.batch // (self.data * self.micro)

    @property
    def model(self) -> tuple[int, int, int, int]:
        """The sizes that make two rows of one model."""
        return self.hidden, self.heads, self.layers, self.seq

    def problem(self) -> str | None:
        """Return why no iteration is like this, or None."""
        sizes = [(name, getattr(self, name)) for name in COLUMNS if name != "seconds"]
        if wrong := next((name for name, size in sizes if size < 1), None):
            return f"{COLUMNS[wrong]} is at least 1"
        degrees = self.tensor * self.data * self.pipeline
        if degrees != self.gpus:
            shown = f"{self.tensor} x {self.data} x {self.pipeline}"
            return f"{self.gpus} GPUs are not {shown} = {degrees} (tensor x data x pipeline)"
        if self.batch % (self.data * self.micro):
            return (
                f"a global batch of {self.batch} is no multiple of {self.data} x {self.micro} "
                "(data parallelism x micro batch)"
            )
        if self.layers % self.pipeline:
            return f"{self.layers} layers are not divided by {self.pipeline} stages"
        if self.hidden % self.heads or self.heads % self.tensor:
            return f"{self.heads} heads do not divide by {self.tensor}, or {self.hidden} by them"
        if self.gpus > NODE and self.gpus % NODE:
            return f"{self.gpus} GPUs are no whole nodes of {NODE}"
        if self.chunks > 1 and self.microbatches % self.pipeline:
            count = f"{self.microbatches} microbatches are no multiple of {self.pipeline} stages"
            return f"{count}, which interleaved chunks need"
        return None if self.seconds > 0 else "the time is above 0"


COLUMNS = {
    "gpus": "# GPUs",
    "batch": "global batch",
    "micro": "micro batch",
    "hidden": "hidden size",
    "heads": "attention heads",
    "layers": "# layers",
    "seq": "sequence length",
    "tensor": "tensor parallelism",
    "data": "data parallelism",
    "pipeline": "pipeline parallelism",
    "seconds": "iteration time (ms)",
}
"""The columns of vTrain's tables, by the attributes of rows; times are in ms there."""


def records(path: Path) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yield the lines of a table as texts by column, each with its number.

    Raises:
        DataError: no such file or table, or a line with another number of columns.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: error: cannot be read: {error}") from error
    table = csv.reader(lines)
    names = [name.strip() for name in next(table, [])]
    for values in table:
        if not values:
            continue
        if len(values) != len(names):
            raise DataError(
                f"{path}:{table.line_num}: error: {len(values)} values for {len(names)} columns"
            )
        yield table.line_num, dict(zip(names, (value.strip() for value in values), strict=True))


def read(path: Path) -> list[Row]:
    """Return the rows of a table in the format of vTrain's.

    Layers run again in the backward pass of its runs on several nodes, and not on one node.

    Raises:
        DataError: a column is missing, a value is no number, or no iteration is like a row.
    """
    rows: list[Row] = []
    for line, record in records(path):
        missing = [name for name in COLUMNS.values() if name not in record]
        if missing:
            raise DataError(f"{path}:1: error: no column '{missing[0]}'")
        values: dict[str, float] = {}
        for name, column in COLUMNS.items():
            try:
                values[name] = float(record[column])
            except ValueError:
                text = f"{column} is a number, not '{record[column]}'"
                raise DataError(f"{path}:{line}: error: {text}") from None
            if name != "seconds" and not values[name].is_integer():
                raise DataError(f"{path}:{line}: error: {column} is a whole number")
        seconds = values.pop("seconds") / 1e3
        whole = {name: int(value) for name, value in values.items()}
        recompute = "full" if whole["gpus"] > NODE else "none"
        row = Row(line, seconds=seconds, recompute=recompute, **whole)
        if problem := row.problem():
            raise DataError(f"{path}:{line}: error: {problem}")
        rows.append(row)
    if not rows:
        raise DataError(f"{path}:1: error: a table has a header and at least one row")
    return rows
