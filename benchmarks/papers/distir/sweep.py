"""DistIR's figures for MLPs: ``python benchmarks/papers/distir/sweep.py FILE.csv``."""

import csv
import io
import sys
from collections.abc import Sequence
from pathlib import Path

from collir.importing.values import MAX_BYTES
from collir.ir.diagnostics import (
    Diagnostic,
    DiagnosticError,
    Position,
    Sources,
    render,
)
from collir.tools.foreign import read_foreign
from collir.tools.shell import CommandParser, run_tool

sys.path.insert(0, str(Path(__file__).parents[1]))
from distir import Configuration, Results, evaluate
from distir.rows import DEGREES, SIZES, ConfigurationRow, read

RESULTS = ("latency", "throughput", "peak_memory")
"""The columns of results: seconds of a step, rows of the batch in a second, bytes.

As in DistIR's files, a latency of -1 gives a throughput of minus the batch.
"""


def run(file: str, sources: Sources) -> int:
    """Print the figures of a file's configurations; return the exit status.

    Warnings on stderr name the rows that DistIR cannot run; their results are -1.

    Raises:
        DiagnosticError: the file cannot be read, or has errors.
    """
    shown, text = read_foreign(file, MAX_BYTES, "divide it into several", sources)
    rows, errors = read(text.replace("\r\n", "\n"))
    if errors:
        raise DiagnosticError(
            Diagnostic(error.message, Position(shown, error.place.line, error.place.column))
            for error in errors
        )
    results = evaluate([row.configuration for row in rows])
    for row, reason in zip(rows, results.reasons, strict=True):
        if reason is not None:
            position = Position(shown, row.place.line, row.place.column)
            warning = Diagnostic(f"no results: {reason}", position, severity="warning")
            sys.stderr.write(render(warning, sources))
    sys.stdout.write(table(rows, results))
    sys.stdout.flush()
    return 0


def table(rows: Sequence[ConfigurationRow], results: Results) -> str:
    """Return the configurations and their results as comma-separated values."""
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    named = all(row.model is not None for row in rows)
    model = ("model_size",) if named else SIZES
    writer.writerow((*model, "world_size", *DEGREES, *RESULTS))
    for row, latency, peak in zip(
        rows, results.latencies.tolist(), results.peaks.tolist(), strict=True
    ):
        c = row.configuration
        sizes = (row.model,) if named else (c.layers, c.width)
        writer.writerow((*sizes, *_degrees(c), *map(repr, (latency, c.batch / latency, peak))))
    return output.getvalue()


def _degrees(c: Configuration) -> tuple[int, ...]:
    return (c.devices, c.batch, c.data, c.tensor, c.pipeline, c.microbatches)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    sources = Sources()
    parser = CommandParser(prog="sweep.py", description="DistIR's figures for the MLPs of a file.")
    parser.add_argument("file", metavar="FILE.csv", help="configurations; -: standard input")
    parser.add_argument("--debug", action="store_true", help="show tracebacks of our errors")
    return run_tool(
        "sweep.py", sources, "--debug" in words, lambda: run(parser.parse_args(words).file, sources)
    )


if __name__ == "__main__":
    sys.exit(main())
