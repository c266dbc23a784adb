"""Schedules of pipelines: seconds to make and run large ones, and sizes that are solved to proof.

    python benchmarks/schedules.py [--seeds N] [--seconds S]

The second table has chunks whose times differ by up to a factor of two, and sends that take up to
0.3 forward tasks. ``memory`` is in microbatches of a chunk; ``saving`` is the mean part of the time
of the best named rule that the best schedule saves, ``gap`` the greatest distance from its bound.
"""

import argparse
import random
import statistics
import time
from itertools import pairwise

from collir.cost.programs.pipelines import run_pipeline
from collir.layout.pipelines.rules import RULES
from collir.layout.pipelines.schedule import problems, program_order
from collir.synthesis.pipelines.candidates import candidates
from collir.synthesis.pipelines.optimal import best_schedule
from collir.synthesis.pipelines.work import PipelineWork

LARGE = [("1f1b", 1), ("zb-h1", 1), ("dualpipe", 2), ("zb-v", 2), ("interleaved", 4)]
"""Rules and chunks at each of 64 places, for 512 microbatches."""

SIZES = [
    ("1f1b", 4, 8, 4),
    ("1f1b", 4, 16, 4),
    ("1f1b", 4, 16, None),
    ("1f1b", 8, 16, 8),
    ("1f1b", 8, 32, None),
    ("zb-h1", 2, 8, 2),
    ("zb-h1", 4, 6, 4),
    ("zb-h1", 4, 8, 4),
    ("zb-h1", 4, 16, 7),
    ("zb-h1", 8, 16, None),
    ("zb-v", 3, 6, 6),
    ("zb-v", 4, 8, 8),
    ("interleaved", 4, 8, 12),
]
"""Rules of the chunks, places, microbatches and memory of the works that are solved."""

TIMES = {True: {"F": 1.0, "B": 1.0, "W": 1.0}, False: {"F": 1.0, "B": 2.0}}
"""Seconds of the tasks, where W are tasks of their own and where they are not."""


def large(name: str, chunks: int) -> str:
    """Return the seconds that a large schedule takes, as a row."""
    rule, clock = RULES[name], time.process_time
    times = [clock()]
    schedule = rule.schedule(64, 512, chunks)
    times.append(clock())
    graph = rule.graph(64, chunks)
    assert not problems(schedule, graph)
    times.append(clock())
    run_pipeline(schedule, graph, {part: 1 + n / 64 for n, part in enumerate(graph.places)})
    times.append(clock())
    program_order(schedule, graph)
    times.append(clock())
    seconds = [f"{after - before:8.2f}" for before, after in pairwise(times)]
    return f"{name:12} {sum(map(len, schedule.orders)):8} {' '.join(seconds)}"


def uneven_work(
    name: str, places: int, microbatches: int, memory: int | None, seed: int
) -> PipelineWork:
    """Return the chunks of a rule with random times."""
    rng, rule = random.Random(seed), RULES[name]
    graph, seconds = rule.graph(places), TIMES[rule.splits[0]]
    durations = {part: seconds[part[0]] * rng.uniform(0.7, 1.4) for part in graph.places}
    between = [edge for edge in graph.edges if graph.places[edge[0]] != graph.places[edge[1]]]
    sends = {edge: rng.uniform(0, 0.3) for edge in between}
    limits = None if memory is None else [float(memory)] * places
    return PipelineWork(graph, microbatches, durations, sends, memory=limits)


def solved(
    name: str, places: int, microbatches: int, memory: int | None, seeds: int, limit: float
) -> str:
    """Return how many random works of a size are solved, as a row."""
    seconds: list[float] = []
    gaps, savings = [0.0], list[float]()
    for seed in range(seeds):
        work = uneven_work(name, places, microbatches, memory, seed)
        began = time.perf_counter()
        best = best_schedule(work, limit)
        if best.proven:
            seconds.append(time.perf_counter() - began)
        gaps.append(best.gap)
        rules = [candidate.time for candidate in candidates(work) if candidate.name in RULES]
        savings += [1 - best.time / min(rules)] if rules else []
    median = f"{statistics.median(seconds):7.2f} s" if seconds else "-".rjust(9)
    size = f"{name:12} {places:2} {microbatches:3} {memory or '-':>6}"
    proven = f"{len(seconds):3} of {seeds}"
    return f"{size} {proven} {median} {max(gaps):7.2%} {statistics.mean(savings or [0]):7.2%}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=8.0)
    arguments = parser.parse_args()
    print("rule            tasks     make    check      run    order (CPU seconds)")
    for row in LARGE:
        print(large(*row))
    print("\nrule          P   K memory   proven    median     gap  saving")
    for row in SIZES:
        print(solved(*row, arguments.seeds, arguments.seconds), flush=True)
