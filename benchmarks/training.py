"""Predict measured iterations of training: ``python benchmarks/training.py --rows FILE``.

FILE has the columns of vTrain's tables. The last line is JSON: the mean and the median absolute
error as fractions of the measured times, the part of the pairs of rows (of one model; on one node,
with the same number of GPUs and batch) more than 5 % apart that are in the right order, and the
number of rows.
"""

import argparse
import sys
from collections.abc import Hashable
from pathlib import Path

from measured import rows as tables
from measured.iteration import predicted_seconds
from measured.programs import machine
from measured.rows import NODE, DataError, Row
from measured.scores import score


def group_of(row: Row) -> Hashable:
    """Return what rows have in common that are compared."""
    return (row.gpus, row.batch, row.model) if row.gpus <= NODE else row.model


def main(arguments: list[str]) -> int:
    """Run the command; the status is 1 for a file that cannot be read."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=Path, help="a table of measured iterations")
    parser.add_argument("--list", action="store_true", help="print each prediction")
    options = parser.parse_args(arguments)
    try:
        rows = tables.read(options.rows)
    except DataError as error:
        print(error, file=sys.stderr)
        return 1
    on = machine()
    predicted = [predicted_seconds(row, on) for row in rows]
    if options.list:
        for row, seconds in zip(rows, predicted, strict=True):
            print(
                f"{options.rows}:{row.line}: {1e3 * row.seconds:.1f} ms, predicted {1e3 * seconds:.1f} ms"
            )
    print(score([row.seconds for row in rows], predicted, [*map(group_of, rows)]).as_json())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
