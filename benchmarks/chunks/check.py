"""Measure chunk programs: ``python benchmarks/chunks/check.py [RANKS ...]``.

A line for each algorithm and number of ranks: its steps, the CPU seconds in which it is made of its
rounds, in which it is proven, and in which its file is written and read; beside what msccl-tools
takes to compile and check its own, as was measured on two cores (2026-08). Then, how many of some
thousand injected faults are found.
"""

import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from collir.algorithms.checking import check
from collir.algorithms.chunks import program_of
from collir.algorithms.msccl_xml import text_of
from collir.algorithms.patterns import GroupDigit, GroupShape
from collir.algorithms.program import ChunkProgram
from collir.algorithms.table import ALGORITHMS
from collir.cost.collectives.meter import Meter
from collir.cost.collectives.rounds import ByRounds
from collir.cost.network.group import Group
from collir.importing.algorithms.msccl_xml import MscclFile, read_msccl_xml
from collir.layout import Axis, Factor, Mesh
from collir.machine import Level, Machine

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.algorithms.chunk_programs import PROGRAMS, results, wanted, with_fault

KEYS = ("ring", "halving_doubling", "hierarchical", "direct")
PEER = {("ring", 64): 9.4, ("ring", 128): 95.1, ("halving_doubling", 64): 35.4}
"""The CPU seconds of msccl-tools; of its all-pairs at 64 ranks it did not end in 580 s."""


def nodes(ranks: int) -> GroupShape:
    """Return the shape of 8 nodes, as of the example of msccl-tools that crashes on 8 x 16."""
    return GroupShape((GroupDigit(8, 0), GroupDigit(ranks // 8, 1)))


MOST_WRITTEN = 256
"""The most ranks whose file is written."""


def timed(run: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """Return a result and the CPU seconds that it took."""
    start = time.process_time()
    made = run(*arguments)
    return made, time.process_time() - start


def through_file(program: ChunkProgram) -> MscclFile:
    """Return a program as it is read from its file."""
    return read_msccl_xml(text_of(program, "msccl").encode())


def faults(count: int) -> tuple[int, int]:
    """Return how many faults change what a program gives, and how many of these are found."""
    rng, wrong, found = random.Random(0), 0, 0
    for number in range(count):
        program = with_fault(PROGRAMS[number % len(PROGRAMS)](rng.randint(3, 6)), rng)
        ran = [results(program, random.Random(seed), 8) for seed in range(2)]
        if any(x != wanted(program) for x in ran):
            wrong += 1
            found += not check(program).is_right
    return wrong, found


def prices() -> None:
    """Print how long it takes to price all algorithms on 131,072 ranks, in two levels."""
    levels = (Level("node", 4096, 1e9, 1e-6), Level("gpu", 32, 1e10, 1e-6))
    axis = Axis.placed("a", [Factor("node", 4096), Factor("gpu", 32)])
    mesh = Mesh("m", Machine("x", levels), (axis,))
    group = Group.of(mesh, tuple(mesh.by_name))
    start = time.process_time()
    for algorithm in ALGORITHMS.values():
        ByRounds(algorithm)(Meter(group), 1e6)
    took = time.process_time() - start
    print(f"{len(ALGORITHMS)} algorithms are priced on 131,072 ranks in {took:.2f} s")


def main() -> None:
    """Print the tables."""
    print(f"{'all_reduce':>17} ranks    steps   made  proven  file  msccl-tools   ratio")
    for ranks in map(int, sys.argv[1:] or ["64", "128"]):
        for name in KEYS:
            if name == "direct" and ranks > 128:
                continue  # a block for each pair
            shape = nodes(ranks) if name == "hierarchical" else GroupShape.flat(ranks)
            program, made = timed(program_of, ALGORITHMS["all_reduce", name], ranks, shape)
            checked, proven = timed(check, program)
            assert checked.is_right
            file = 0.0
            if ranks <= MOST_WRITTEN:
                _, file = timed(through_file, program)
            peer = PEER.get((name, ranks))
            beside = f"{peer:11.1f}  {peer / (made + proven):5.0f}x" if peer else ""
            print(f"{name:>17} {ranks:5} {program.step_count:8,} {made:6.2f} {proven:7.2f} "
                  f"{file:5.2f}  {beside}")  # fmt: skip
    prices()
    wrong, found = faults(10_000)
    print(f"of 10,000 programs with a fault, {wrong:,} are wrong; {found:,} of these are found")


if __name__ == "__main__":
    main()
