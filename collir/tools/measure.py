"""Timing of collectives over the levels of a machine, on real ranks: ``collir calibrate --run``.

On a cluster, start this module by the cluster's launcher, and read its output with ``--from``:

    srun -n 32 python -m collir.tools.measure node:4 gpu:8 --seconds 120 > times.txt

All points are measured again and again until the time is over. The time of a run is that of its
slowest rank, and the time of a point is the median of its runs.
"""

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from statistics import median
from typing import Any

import numpy as np

from collir.importing.measurements import own
from collir.importing.measurements.tables import (
    LevelExtent,
    MeasuredRow,
    MeasuredTable,
    MeasuredTables,
    extents,
)
from collir.importing.values import ReadError, TextPlace

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
"""Collectives in which every rank needs data of every other rank.

Other collectives end on some ranks before they have begun on the rest, so that no rank sees how
long they take.
"""

SIZES = tuple(2**exponent for exponent in (8, 11, 14, 16, 18, 20, 22))
"""The sizes of the full buffer, in bytes."""

REPEATS = 3
"""The number of runs of a point in a round."""

LEVELS = 4
"""The largest number of levels whose combinations are all measured.

Of more levels, each is measured alone, and all together.
"""


@dataclass(frozen=True)
class MeasuredCollective:
    """A collective over some levels, and the size of its full buffer in bytes."""

    kind: str
    over: tuple[LevelExtent, ...]
    size: int


def groups(levels: Sequence[LevelExtent]) -> list[tuple[LevelExtent, ...]]:
    """Return groups over all, one or some levels, with all groups beside them at the same time.

    For a single level, groups of two of its children are included.
    """
    places = range(len(levels))
    few = len(levels) <= LEVELS
    subsets = [
        subset
        for count in range(1, len(levels) + 1)
        for subset in combinations(places, count)
        if few or count in (1, len(levels))
    ]
    result: list[tuple[LevelExtent, ...]] = []
    for subset in subsets:
        group = [
            LevelExtent(level.level, level.size)
            if at in subset
            else LevelExtent(level.level, 1, level.size)
            for at, level in enumerate(levels)
        ]
        result.append(tuple(group))
        if len(subset) == 1 and (size := levels[subset[0]].size) > 2 and size % 2 == 0:
            group[subset[0]] = LevelExtent(levels[subset[0]].level, 2, size // 2)
            result.append(tuple(group))
    return result


def points(levels: Sequence[LevelExtent]) -> list[MeasuredCollective]:
    """Return all points; sizes that the ranks of a group do not divide are rounded down."""
    result: list[MeasuredCollective] = []
    for over, kind, size in product(groups(levels), KINDS, SIZES):
        unit = 4 * math.prod(extent.size for extent in over)
        if size >= unit:
            result.append(MeasuredCollective(kind, over, size // unit * unit))
    return result


def colour(over: Sequence[LevelExtent], rank: int) -> int:
    """Return the index of the group of a rank, among the groups beside one another."""
    index, remaining = 0, rank
    stride = 1
    for extent in reversed(over):
        remaining, child = divmod(remaining, extent.size * extent.beside)
        index += stride * (child // extent.size)
        stride *= extent.beside
    return index


def _operation(mpi: Any, group: Any, point: MeasuredCollective) -> Callable[[], object]:
    """Return a function that runs a collective on buffers that exist already."""
    ranks: int = group.Get_size()
    buffer = np.ones(point.size // 4, np.float32)
    block = np.ones(point.size // 4 // ranks, np.float32)
    result = np.empty_like(buffer)
    match point.kind:
        case "all_reduce":
            return lambda: group.Allreduce(buffer, result, mpi.SUM)
        case "all_gather":
            return lambda: group.Allgather(block, result)
        case "reduce_scatter":
            return lambda: group.Reduce_scatter_block(buffer, block, mpi.SUM)
        case "all_to_all":
            return lambda: group.Alltoall(buffer, result)
        case _:
            raise AssertionError(f"{point.kind} is not measured")


def measure(
    mpi: Any, levels: Sequence[LevelExtent], seconds: float
) -> list[tuple[MeasuredCollective, float]]:
    """Measure for ``seconds``; return each measured point and its median time, equal on all ranks.

    Points are visited with a stride, so that a first round that is cut off has points of all kinds.
    """
    world = mpi.COMM_WORLD
    rank: int = world.Get_rank()
    communicators = {over: world.Split(colour(over, rank), rank) for over in groups(levels)}
    all_points = points(levels)
    stride = next(step for step in range(97, 200) if math.gcd(step, len(all_points)) == 1)
    order = [all_points[at * stride % len(all_points)] for at in range(len(all_points))]
    times: dict[MeasuredCollective, list[float]] = {}
    end = time.perf_counter() + seconds
    while True:
        for point in order:
            operation = _operation(mpi, communicators[point.over], point)
            operation()
            for _ in range(REPEATS):
                world.Barrier()
                start = time.perf_counter()
                operation()
                slowest = world.allreduce(time.perf_counter() - start, mpi.MAX)
                times.setdefault(point, []).append(slowest)
            if world.bcast(time.perf_counter() > end, 0):
                return [(timed, median(times[timed])) for timed in all_points if timed in times]


def tables(measured: Sequence[tuple[MeasuredCollective, float]]) -> MeasuredTables:
    """Return measured points as a file of measurements has them."""
    rows_by_group: dict[tuple[LevelExtent, ...], list[MeasuredRow]] = {}
    for point, seconds in measured:
        row = MeasuredRow(point.kind, point.size, seconds, TextPlace(1))
        rows_by_group.setdefault(point.over, []).append(row)
    return MeasuredTables(
        "",
        tuple(
            MeasuredTable(tuple(rows), TextPlace(1), over) for over, rows in rows_by_group.items()
        ),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run on every rank; rank 0 prints the measurements."""
    parser = argparse.ArgumentParser(prog="python -m collir.tools.measure")
    parser.add_argument("levels", nargs="+", metavar="LEVEL:SIZE", help="outermost first")
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args(arguments)
    from mpi4py import MPI

    try:
        levels = extents("*".join(options.levels), TextPlace(1))
    except ReadError as error:
        parser.error(error.message)
    ranks = math.prod(extent.size for extent in levels)
    if (started := MPI.COMM_WORLD.Get_size()) != ranks:
        parser.error(f"these levels have {ranks} devices, but there are {started} ranks")
    measured = measure(MPI, [extent for extent in levels if extent.size > 1], options.seconds)
    if MPI.COMM_WORLD.Get_rank() == 0:
        sys.stdout.write(own.written(tables(measured)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
