"""Measure the import of XLA's HLO: ``python benchmarks/imports/xla.py FILE...``.

A line for each file: its megabytes, the seconds that each takes, its collectives, how many of them
are typed, and the lines of the program beside those of the text.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from collir.tools.hlo import import_hlo

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "tests" / "importing" / "hlo").glob("*.hlo.txt"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, default=FILES)
    parser.add_argument("--repeats", type=int, default=3, help="the fastest one counts")
    options = parser.parse_args(arguments)
    sent = typed = 0
    size = seconds = 0.0
    for file in options.files:
        text = file.read_text(encoding="utf-8")
        times: list[float] = []
        for _ in range(options.repeats):
            start = time.perf_counter()
            imported = import_hlo(text, str(file))
            times.append(time.perf_counter() - start)
        own = len(text) / 1e6
        lines = text.count("\n"), imported.text.count("\n")
        print(
            f"{file.name}: {own:.3f} MB, {min(times) / own:.2f} s/MB, {imported.typed} of "
            f"{imported.sent} typed, {lines[1]} lines of {lines[0]}"
        )
        sent, typed = sent + imported.sent, typed + imported.typed
        size, seconds = size + own, seconds + min(times)
    print(f"all: {size:.3f} MB, {seconds / size:.2f} s/MB, {typed} of {sent} typed")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
