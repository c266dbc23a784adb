"""Measure trees on links: ``python benchmarks/synthesis/trees.py [RANKS ...]``.

A line for each machine: the largest bandwidth of an all_gather, the seconds of CPU in which the
bound is found, the trees are packed, and the program of an all_reduce is made and proven, beside
the seconds of wall time that ForestColl's program takes for nodes of 8 A100 (measured in 2026-08 on
two cores) and the optimum that it gives. Then the gap of few trees.
"""

import sys
import time
from collections.abc import Callable
from typing import TypeVar

from collir.algorithms.checking import check
from collir.machine import Level, LinkKind, Machine
from collir.synthesis.trees.graph import CapacityGraph, graph_of_level, graph_of_machine
from collir.synthesis.trees.program import program_of_trees
from collir.synthesis.trees.schedules import TreeProblem

Made = TypeVar("Made")

KNOWN = {8: (342.9, 0.1, 0.5), 16: (346.7, 1.0, 13.9), 32: (266.7, 3.5, 255.0),
         64: (228.6, 24.0, None)}  # fmt: skip
"""Ranks -> GB/s, and seconds of the bound and of the trees, by ForestColl's program."""


def timed(run: Callable[[], Made]) -> tuple[Made, float]:
    """Return a result and the CPU seconds that it took."""
    start = time.process_time()
    made = run()
    return made, time.process_time() - start


def a100(ranks: int) -> CapacityGraph:
    """Return nodes of 8 A100 with a network port of 25 GB/s for each."""
    levels = Level("node", ranks // 8, 200e9, 14e-6, rails=8), Level("gpu", 8, 300e9, 3.4e-6)
    return graph_of_machine(Machine("a100", levels))


def others() -> dict[str, CapacityGraph]:
    """Return levels with links of their own."""
    torus = Level("chip", 64, 400e9, 1e-6, LinkKind.TORUS, shape=(8, 8))
    cube = Level("chip", 64, 600e9, 1e-6, LinkKind.TORUS, shape=(4, 4, 4))
    ports = tuple(25e9 * (1 + rank % 4) for rank in range(16))
    return {
        "torus 8 x 8": graph_of_level(torus),
        "torus 4 x 4 x 4": graph_of_level(cube),
        "16 uneven ports": graph_of_level(Level("gpu", 16, max(ports), 1e-6, ports=ports)),
    }


def line(name: str, graph: CapacityGraph, known: tuple[float, float, float | None] | None) -> str:
    """Return the line of a machine."""
    problem = TreeProblem(graph, "all_gather")
    bound, bound_seconds = timed(lambda: problem.bound)
    schedule, tree_seconds = timed(problem.fastest)
    assert abs(schedule.bandwidth / bound - 1) < 1e-9
    reduce = TreeProblem(graph, "all_reduce")
    both = [reduce.fastest(), reduce.overlapped()]
    fastest = max(filter(None, both), key=lambda x: x.bandwidth)
    ranks = graph.ranks
    program, made = timed(lambda: program_of_trees("t", "all_reduce", ranks, fastest.trees, 0))
    checked, proven = timed(lambda: check(program))
    assert checked.is_right
    text = (
        f"{name:>16} {bound / 1e9:8.1f} {schedule.count:6} {schedule.depth:5} "
        f"{bound_seconds:7.3f} {tree_seconds:7.2f} {made:7.2f} {proven:7.2f} "
        f"{100 * (1 - fastest.bandwidth / reduce.bound):5.1f}%"
    )
    if known:
        trees = f"{known[2]:7.1f}" if known[2] else "      -"
        text += f"  {known[0]:8.1f} {known[1]:7.1f} {trees}"
    return text


def main() -> None:
    """Print the tables."""
    print(f"{'':>16}     GB/s  trees depth   bound   trees    made  proven all_reduce  "
          "ForestColl: GB/s, bound, trees")  # fmt: skip
    for ranks in map(int, sys.argv[1:] or ["8", "16", "32", "64"]):
        print(line(f"{ranks} A100", a100(ranks), KNOWN.get(ranks)), flush=True)
    for name, graph in others().items():
        print(line(name, graph, None), flush=True)
    print("\nall_gather of 16 A100 with K trees of each rank: gap to the bound")
    problem = TreeProblem(a100(16), "all_gather")
    for count in (1, 2, 3, 4, 6, 8, 12, 13):
        schedule, seconds = timed(lambda count=count: problem.with_trees(count))
        gap = 100 * (1 - schedule.bandwidth / problem.bound)
        print(f"{count:4} {gap:6.2f}%  depth {schedule.depth}  {seconds:.2f} s")


if __name__ == "__main__":
    main()
