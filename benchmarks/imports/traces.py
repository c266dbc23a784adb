"""Measure the readers of traces: ``python benchmarks/imports/traces.py [--megabytes N] [KIND...]``.

A line for each kind of traces: the MB/s of reading a generated file of one rank, those of
``json.load`` of the same file (``pickle.load`` of pickles), and the share of its events that are
used. Each is the fastest of some runs, the two by turns.
"""

import argparse
import json
import pickle
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.importing.large_traces import large_json, large_table, step
from support.importing.trace_jobs import flight_recorder, write_nsys

from collir.importing.traces.files import read_traces

KINDS = ("kineto", "xla", "recorder", "pickle", "sqlite", "csv")


def write(kind: str, path: Path, size: int) -> Callable[[], object] | None:
    """Write a trace of so many bytes; return what loads it in Python's own way, if anything."""
    if kind == "sqlite":
        write_nsys(path, [step(x) for x in range(size // 660)], with_ranges=True)
        return None
    if kind == "pickle":
        dump = flight_recorder(step(0), True)
        dump["entries"] = [
            entry for x in range(size // 400) for entry in flight_recorder(step(x), True)["entries"]
        ]
        path.write_bytes(pickle.dumps(dump, protocol=2))
        return lambda: pickle.loads(path.read_bytes())
    with path.open("wb") as file:
        for piece in large_table(size) if kind == "csv" else large_json(kind, size):
            file.write(piece)
    return None if kind == "csv" else lambda: json.loads(path.read_bytes())


def seconds_of(function: Callable[[], object]) -> float:
    """Return how long a function runs."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def measure(kind: str, size: int, repeats: int) -> None:
    """Print the line of a kind."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rank0"
        load = write(kind, path, size)
        megabytes = path.stat().st_size / 1e6
        own, python = list[float](), list[float]()
        for _ in range(repeats):
            own.append(seconds_of(lambda: read_traces([path])))
            python += [seconds_of(load)] if load else []
        trace = read_traces([path])
    used = (trace.events - trace.ignored) / trace.events
    beside = f", {megabytes / min(python):.0f} MB/s by Python alone" if python else ""
    print(
        f"{kind}: {megabytes:.0f} MB, {megabytes / min(own):.0f} MB/s{beside}, {used:.0%} of "
        f"{trace.events} events used"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", default=KINDS, metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=2, help="the fastest one counts")
    options = parser.parse_args(arguments)
    for kind in options.kinds:
        size = min(options.megabytes, 50) if kind == "pickle" else options.megabytes
        measure(kind, size * 10**6, options.repeats)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
