"""Measures the search engine, as ratios: ``python benchmarks/search/running/run.py [NAME ...]``.

Each line is a figure, what it should be, and what it was measured against in the same run; a name
selects all figures that begin with it. Times are CPU seconds, unless a line says otherwise.
"""

import sys
import time
from collections.abc import Callable, Iterator

import inflation
import mpi
import parallel
import propagation
import sequential
import tiny
import total
from measure import Figure, used

import collir

BENCHMARKS: dict[str, Callable[[], Iterator[Figure]]] = {
    "sequential.python": sequential.python,
    "sequential.kernel": sequential.kernel,
    "parallel": parallel.figures,
    "inflation": inflation.figures,
    "total": total.figures,
    "tiny": tiny.figures,
    "mpi": mpi.figures,
    "propagation": propagation.figures,
}


def main(names: list[str]) -> int:
    """Print the figures; the status is 1 if there is no benchmark of a name."""
    for name in names:
        if not any(known.startswith(name) for known in BENCHMARKS):
            print(f"run.py: there is no {name!r}; there is {', '.join(BENCHMARKS)}")
            return 1
    print(f"collir {collir.__version__}, collir.search")
    missed = 0
    started = time.perf_counter(), used()
    for known, figures in BENCHMARKS.items():
        if names and not any(known.startswith(name) for name in names):
            continue
        for figure in figures():
            print(figure, flush=True)
            missed += figure.met is False
    seconds, busy = time.perf_counter() - started[0], used() - started[1]
    print(f"{missed} aims missed; {seconds:.0f} s, {busy:.0f} s of CPU")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
