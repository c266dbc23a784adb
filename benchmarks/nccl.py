"""Predict measured collectives: ``python benchmarks/nccl.py --rows FILE``.

FILE has the columns of nccl_public.csv: machine, GPUs of a node, nodes, network, collective, bytes
as nccl-tests count them, and microseconds. Each row is predicted on the machine that ships with
collir, with the ports of its network, and nothing else. The last line is JSON: the mean and the
median absolute error as fractions of the measured times, the part of the rows within 25 %, the part
of the pairs of rows of one sweep that are in the right order, and the number of rows.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

from measured.collectives import PRESETS, Row, predicted, read
from measured.rows import DataError
from measured.scores import Score, score

DATA = Path(__file__).parents[2] / "shared" / "data" / "public" / "nccl_public.csv"

NEAR = 0.25
"""The error within which a prediction is near."""

SIZES = (("to 64 KB", 65536), ("to 16 MB", 2**24), ("larger", float("inf")))
"""The largest sizes of the columns of the table, in bytes."""


def near(rows: Iterable[tuple[Row, float]]) -> float:
    """Return the part of predictions that are near."""
    found = [abs(seconds / row.seconds - 1) <= NEAR for row, seconds in rows]
    return sum(found) / len(found)


def scored(rows: Sequence[tuple[Row, float]]) -> Score:
    """Return the errors of predictions; pairs are of one sweep."""
    measured, seconds = [row.seconds for row, _ in rows], [x for _, x in rows]
    return score(measured, seconds, [row.series for row, _ in rows])


def sweeps(rows: Sequence[tuple[Row, float]]) -> Iterable[list[str]]:
    """Yield the cells of each sweep: machine, ranks, collective, network, rows, median error, rows
    near, and the median ratio of predicted to measured times by size."""
    for series in dict.fromkeys(row.series for row, _ in rows):
        own = [(row, seconds) for row, seconds in rows if row.series == series]
        machine, ranks, where, kind, _ = series
        least, ratios = 0.0, list[str]()
        for _, most in SIZES:
            found = [x / row.seconds for row, x in own if least < row.size <= most]
            ratios.append(f"{median(found):.2f}" if found else "-")
            least = most
        errors = f"{scored(own).median:.1%}", f"{near(own):.0%}"
        yield [machine, ranks, kind, where, str(len(own)), *errors, *ratios]


def table(rows: Sequence[tuple[Row, float]]) -> Iterable[str]:
    """Yield the lines of a table of sweeps."""
    heads = "".join(f"{name:>10}" for name, _ in SIZES)
    yield f"{'sweep':56}{'rows':>6}{'median':>8}{'near':>6}{heads}"
    for machine, ranks, kind, where, count, error, part, *ratios in sweeps(rows):
        name = f"{machine} {ranks} {kind}, {where}"[:55]
        yield f"{name:56}{count:>6}{error:>8}{part:>6}" + "".join(f"{x:>10}" for x in ratios)


def main(arguments: list[str]) -> int:
    """Run the command; the status is 1 for a file that cannot be read."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=Path, default=DATA, help="a table of measured collectives")
    parser.add_argument("--list", action="store_true", help="print each prediction")
    options = parser.parse_args(arguments)
    try:
        rows = read(options.rows)
    except DataError as error:
        print(error, file=sys.stderr)
        return 1
    others = sorted({row.machine for row in rows if row.machine not in PRESETS})
    found = [(row, predicted(row)) for row in rows if row.machine in PRESETS]
    if others:
        count = len(rows) - len(found)
        print(f"{count} rows are of machines that do not ship with collir: {', '.join(others)}")
    if not found:
        print(f"{options.rows}: error: no row is of a machine of collir", file=sys.stderr)
        return 1
    for row, seconds in found if options.list else ():
        place = f"{options.rows}:{row.line}"
        print(f"{place}: measured {row.seconds:.6g}, predicted {seconds:.6g}")
    for line in table(found):
        print(line)
    errors = json.loads(scored(found).as_json())
    print(json.dumps({**errors, "near": round(near(found), 5)}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
