"""Predict measured iterations of training: ``python benchmarks/training.py --rows FILE``.

FILE has the columns of vTrain's tables. The last line is JSON: the mean and the median absolute
error as fractions of the measured times, the part of the pairs of rows (of one model; on one node,
with the same number of GPUs and batch) more than 5 % apart that are in the right order, and the
number of rows. FILE may also be one of the other tables of docs/training.md, told by its columns.
Without FILE the command reports on the tables of a folder.
"""

import argparse
import sys
from pathlib import Path

from measured import tables, vtrain
from measured.iteration import predicted_seconds
from measured.plot import draw
from measured.programs import machine
from measured.rows import DataError, read
from measured.scores import Measured

DATA = Path(__file__).parents[2] / "shared" / "data" / "training"


def predict(path: Path, every: bool) -> None:
    """Print the predictions of a table, if every one is wanted, and the line of JSON.

    Raises:
        DataError: it cannot be read.
    """
    found = tables.predictions(path)
    if found is None:
        rows, on = read(path), machine()
        predicted = [predicted_seconds(row, on) for row in rows]
        found = [
            Measured(row.line, "", row.seconds, seconds)
            for row, seconds in zip(rows, predicted, strict=True)
        ]
        score = vtrain.scored(rows, predicted)
    else:
        score = tables.score_of(found)
    for one in found if every else ():
        print(f"{path}:{one.line}: measured {one.measured:.6g}, predicted {one.predicted:.6g}")
    print(score.as_json())


def main(arguments: list[str]) -> int:
    """Run the command; the status is 1 for a file that cannot be read."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=Path, help="a table of measured iterations")
    parser.add_argument("--list", action="store_true", help="print each prediction")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of all tables")
    parser.add_argument("--fit", action="store_true", help="fit the machine, and write its file")
    parser.add_argument("--held-out", action="store_true", help="fit to parts, predict the rest")
    parser.add_argument("--plot", type=Path, help="write the picture of the report to this file")
    options = parser.parse_args(arguments)
    try:
        if options.rows is not None:
            predict(options.rows, options.list)
            return 0
        if options.plot is not None:
            draw(vtrain.read(options.data), options.plot)
            return 0
        work = vtrain.fit if options.fit else vtrain.held_out if options.held_out else vtrain.report
        for text in work(options.data):
            print(text, flush=True)
        for text in tables.report(options.data) if work is vtrain.report else ():
            print(text, flush=True)
    except DataError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
