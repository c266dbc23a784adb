"""Measure the time to find strategies: ``make bench``.

The search over layout states for the cheapest program is compared with a faithful P²: all its
programs of at most five steps, enumerated with chunk matrices and costed. Times are CPU seconds of
this process, the best of several runs. Both get the same collectives in turns, and caches are
cleared between runs.
"""

import argparse
import gc
import multiprocessing
import sys
import time
from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path

from collir.cost.collectives.collective import Collective
from collir.cost.model import CostModel, step_cost
from collir.layout import Axis, DistType, DType, Factor, Mesh, Reduction
from collir.machine import Level, Machine
from collir.synthesis.programs import ports
from collir.synthesis.programs.cheapest import synthesise
from collir.synthesis.programs.graph import graph

sys.path.insert(0, str(Path(__file__).parents[1]))
from p2.candidates import p2_candidates

BYTES = 2**31
TWO_LEVELS = [(2, 16), (4, 16), (2, 8), (4, 8), (2, 4), (4, 4), (2, 2), (8, 4)]
MORE_LEVELS = [(2, 4, 4), (4, 4, 4, 4), (2, 4, 4, 4, 8), (2, 4, 8, 4, 8, 16)]
MODELS = ("p2", "alpha-beta")
LIMIT = 60
"""Time limit in seconds of an enumeration on more levels."""


def mesh_of(sizes: Sequence[int]) -> Mesh:
    """Return a mesh with one axis over several levels.

    Each level has a quarter of the bandwidth and twice the latency of the next.
    """
    count = len(sizes)
    levels = tuple(
        Level(f"l{index}", size, 270e9 / 4 ** (count - 1 - index), 3e-6 * 2 ** (count - 1 - index))
        for index, size in enumerate(sizes)
    )
    axis = Axis.placed("data", [Factor(f"l{index}", size) for index, size in enumerate(sizes)])
    return Mesh("m", Machine("machine", levels), (axis,))


def search(sizes: Sequence[int], model: str) -> float:
    """Return the predicted seconds of the cheapest program, by search."""
    mesh = mesh_of(sizes)
    shape = [BYTES // DType.F32.bytes]
    source = DistType.make(DType.F32, shape, partial=mesh.by_name, reduction=Reduction.SUM)
    synthesis = synthesise(mesh, source, DistType.make(DType.F32, shape), CostModel(model))
    return synthesis.candidates[0].time


def enumeration(sizes: Sequence[int], model: str) -> float:
    """Return the predicted seconds of the cheapest of all programs of P²."""
    mesh = mesh_of(sizes)
    step = Collective("all_reduce", mesh, tuple(mesh.by_name), float(BYTES))
    return p2_candidates(step, CostModel(model))[0].time


def forget() -> None:
    """Clear all caches except those of graphs, which do not depend on a mesh."""
    step_cost.cache_clear()
    ports.ports_of.cache_clear()
    ports.times_on.cache_clear()
    gc.collect()


def seconds(work: Callable[[], float], runs: int) -> float:
    """Return the CPU seconds of the best of some runs."""
    best = float("inf")
    for _ in range(runs):
        forget()
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return best


def _shown(value: float) -> str:
    return f"{value * 1e3:9.2f} ms" if value < 1 else f"{value:9.2f} s "


def two_levels(runs: int) -> None:
    """Print the times for all cases on two levels."""
    print("two levels: the cheapest all_reduce of 2 GiB")
    for model in MODELS:
        ours = theirs = 0.0
        for sizes in TWO_LEVELS:
            shortest, listed = search(sizes, model), enumeration(sizes, model)
            assert shortest <= listed * (1 + 1e-9), (sizes, model)
            ours += seconds(lambda sizes=sizes, model=model: search(sizes, model), runs)
            theirs += seconds(lambda sizes=sizes, model=model: enumeration(sizes, model), runs)
        count = len(TWO_LEVELS)
        print(
            f"  {model:<10} search {_shown(ours / count)} a case, P² {_shown(theirs / count)}: "
            f"{theirs / ours:.1f}x less"
        )


def more_levels(runs: int, limit: int) -> None:
    """Print the times on more levels; an enumeration may exceed its time limit."""
    print("more levels")
    for sizes in MORE_LEVELS:
        shape = " x ".join(map(str, sizes))
        line = f"  {shape:<24} {prod(sizes):>7} devices"
        for model in MODELS:
            ours = seconds(lambda sizes=sizes, model=model: search(sizes, model), runs)
            line += f"  {model} {_shown(ours)}"
        print(f"{line}  P² {_limited(sizes, limit)}", flush=True)


def _limited(sizes: Sequence[int], limit: int) -> str:
    """Return the time of an enumeration in its own process, or why it did not end."""
    process = multiprocessing.get_context("spawn").Process(
        target=enumeration, args=(sizes, "p2"), daemon=True
    )
    started = time.monotonic()
    process.start()
    process.join(limit)
    if process.is_alive():
        process.kill()
        process.join()
        return f"not in {limit} s"
    if process.exitcode:
        return "out of memory"
    return _shown(time.monotonic() - started).strip()


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--limit", type=int, default=LIMIT)
    options = parser.parse_args()
    graph.cache_clear()
    two_levels(options.runs)
    more_levels(options.runs, options.limit)


if __name__ == "__main__":
    main()
