"""Times collectives over the levels of a machine, on real ranks: ``collir calibrate --run``.

On a cluster it is started by its own launcher, and what it prints is read with ``--from``:

    srun -n 32 python -m collir.tools.measure node:4 gpu:8 --seconds 120 > times.txt

All points are measured again and again until the time is over; of each, the median of its runs is
printed, and of a run the time of its slowest rank.
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
from collir.importing.measurements.tables import Extent, Row, Table, Tables, extents
from collir.importing.values import Place, ReadError

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
"""Collectives in which every rank needs something of every other. Others end for some ranks before
they have begun for the rest, so that none of the ranks sees how long they take."""

SIZES = tuple(2**exponent for exponent in (8, 11, 14, 16, 18, 20, 22))
"""Bytes of the full buffer."""

REPEATS = 3
"""Runs of a point in a round."""

LEVELS = 4
"""Levels of which all combinations are measured; of more, each alone and all together."""


@dataclass(frozen=True)
class Point:
    """A collective over some levels, and the bytes of its full buffer."""

    kind: str
    over: tuple[Extent, ...]
    size: int


def groups(levels: Sequence[Extent]) -> list[tuple[Extent, ...]]:
    """Groups over all, one or some levels, with all groups beside them at the same time.

    Of a level alone, also groups of two of its children.
    """
    places = range(len(levels))
    few = len(levels) <= LEVELS
    chosen = [
        each
        for count in range(1, len(levels) + 1)
        for each in combinations(places, count)
        if few or count in (1, len(levels))
    ]
    found: list[tuple[Extent, ...]] = []
    for each in chosen:
        whole = [
            Extent(one.level, one.size) if at in each else Extent(one.level, 1, one.size)
            for at, one in enumerate(levels)
        ]
        found.append(tuple(whole))
        if len(each) == 1 and (size := levels[each[0]].size) > 2 and size % 2 == 0:
            pairs = list(whole)
            pairs[each[0]] = Extent(whole[each[0]].level, 2, size // 2)
            found.append(tuple(pairs))
    return found


def points(levels: Sequence[Extent]) -> list[Point]:
    """All that is measured; sizes that the ranks of a group do not divide are rounded down."""
    found: list[Point] = []
    for over, kind, size in product(groups(levels), KINDS, SIZES):
        unit = 4 * math.prod(part.size for part in over)
        if size >= unit:
            found.append(Point(kind, over, size // unit * unit))
    return found


def colour(over: Sequence[Extent], rank: int) -> int:
    """Which of the groups beside one another a rank is in."""
    found, rest = 0, rank
    stride = 1
    for part in reversed(over):
        rest, child = divmod(rest, part.size * part.beside)
        found += stride * (child // part.size)
        stride *= part.beside
    return found


def _operation(mpi: Any, group: Any, point: Point) -> Callable[[], object]:
    """One call, on buffers that exist already."""
    ranks: int = group.Get_size()
    whole = np.ones(point.size // 4, np.float32)
    part = np.ones(point.size // 4 // ranks, np.float32)
    result = np.empty_like(whole)
    match point.kind:
        case "all_reduce":
            return lambda: group.Allreduce(whole, result, mpi.SUM)
        case "all_gather":
            return lambda: group.Allgather(part, result)
        case "reduce_scatter":
            return lambda: group.Reduce_scatter_block(whole, part, mpi.SUM)
        case "all_to_all":
            return lambda: group.Alltoall(whole, result)
        case _:
            raise AssertionError(f"{point.kind} is not measured")


def measure(mpi: Any, levels: Sequence[Extent], seconds: float) -> list[tuple[Point, float]]:
    """The points that were measured in so many seconds, and what each took; the same on all ranks.

    Points are visited with a stride, so that a first round that is cut off has some of all kinds.
    """
    world = mpi.COMM_WORLD
    rank: int = world.Get_rank()
    made = {over: world.Split(colour(over, rank), rank) for over in groups(levels)}
    every = points(levels)
    stride = next(step for step in range(97, 200) if math.gcd(step, len(every)) == 1)
    order = [every[at * stride % len(every)] for at in range(len(every))]
    taken: dict[Point, list[float]] = {}
    end = time.perf_counter() + seconds
    while True:
        for point in order:
            operation = _operation(mpi, made[point.over], point)
            operation()
            for _ in range(REPEATS):
                world.Barrier()
                start = time.perf_counter()
                operation()
                slowest = world.allreduce(time.perf_counter() - start, mpi.MAX)
                taken.setdefault(point, []).append(slowest)
            if world.bcast(time.perf_counter() > end, 0):
                return [(one, median(taken[one])) for one in every if one in taken]


def tables(measured: Sequence[tuple[Point, float]]) -> Tables:
    """As a file of measurements has them."""
    found: dict[tuple[Extent, ...], list[Row]] = {}
    for point, seconds in measured:
        row = Row(point.kind, point.size, seconds, Place(1))
        found.setdefault(point.over, []).append(row)
    each = tuple(Table(tuple(rows), Place(1), over) for over, rows in found.items())
    return Tables("", each)


def main(arguments: Sequence[str] | None = None) -> int:
    """On every rank; rank 0 prints."""
    parser = argparse.ArgumentParser(prog="python -m collir.tools.measure")
    parser.add_argument("levels", nargs="+", metavar="LEVEL:SIZE", help="outermost first")
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args(arguments)
    from mpi4py import MPI

    try:
        levels = extents("*".join(options.levels), Place(1))
    except ReadError as error:
        parser.error(error.message)
    ranks = math.prod(part.size for part in levels)
    if (started := MPI.COMM_WORLD.Get_size()) != ranks:
        parser.error(f"these levels have {ranks} devices, but there are {started} ranks")
    found = measure(MPI, [part for part in levels if part.size > 1], options.seconds)
    if MPI.COMM_WORLD.Get_rank() == 0:
        sys.stdout.write(own.written(tables(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
