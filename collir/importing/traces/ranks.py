"""Ranks of a trace beside each other: their numbers, and their clocks."""

import re
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

from collir.importing.traces.trace import KernelWork, RankTrace, Span, Trace
from collir.importing.values import ReadError, TextPlace

_MOST_SHIFT = 1e-3
"""The seconds that clocks of ranks may be apart before it is said."""

_SURE = 4
"""The least distance of two clocks, in multiples of the spread of the distances of ends."""

_RANK = re.compile(r"rank[-_.]?(\d{1,9})", re.IGNORECASE)
_NUMBER = re.compile(r"\d{1,9}")

BY_NAME = "the files do not say their ranks: these are taken from their names"
CUT_OFF = "{} is cut off: what is behind is not there"


@contextmanager
def reading(path: Path) -> Generator[None]:
    """Name the file in errors."""
    try:
        yield
    except ReadError as error:
        raise ReadError(f"{path}: {error.message}", error.place) from error


def ranks_by_name(paths: Sequence[Path]) -> list[int]:
    """Return the ranks that are in the names of files; else the numbers in which these differ;
    else their order."""
    called = [_RANK.findall(path.name) for path in paths]
    if all(called):
        ranks = [int(x[-1]) for x in called]
        if len(set(ranks)) == len(paths):
            return ranks
    numbers = [_NUMBER.findall(path.name) for path in paths]
    if len(paths) > 1 and len({*map(len, numbers)}) == 1:
        for column in zip(*numbers, strict=True):
            ranks = [int(x) for x in column]
            if len(set(ranks)) == len(paths):
                return ranks
    return [*range(len(paths))]


def check_ranks(trace: Trace) -> None:
    """Check that no rank is there twice, and remark missing ranks.

    Raises:
        ReadError: one is there twice.
    """
    counts = Counter(x.rank for x in trace.ranks)
    for rank, count in counts.items():
        if count > 1:
            files = " and ".join(x.file for x in trace.ranks if x.rank == rank)
            raise ReadError(f"{files} are of the same rank {rank}: give one of each", TextPlace(1))
    if trace.world and len(trace.ranks) < trace.world:
        listed = ", ".join(str(x.rank) for x in trace.ranks[:8])
        trace.remarks.append(
            f"{len(trace.ranks)} of {trace.world} ranks are here ({listed}): who waits for the "
            "others is not known"
        )


def check_sizes(trace: Trace) -> None:
    """Say how many collectives have no size."""
    sized = [
        x.size for rank in trace.ranks for x in rank.collectives if x.kind not in ("barrier",
                                                                                  "other")
    ]  # fmt: skip
    if unknown := sized.count(0.0):
        trace.remarks.append(f"the sizes of {unknown} of {len(sized)} collectives are not there")


def align(trace: Trace) -> None:
    """Bring the clocks of all files to that of the first file: collectives end together.

    Clocks of one computer are one; those of several may be milliseconds apart. Ends at varying
    distances are not those of one clock.
    """
    files: dict[str, list[RankTrace]] = defaultdict(list)
    for rank in trace.ranks:
        files[rank.file].append(rank)
    if len(files) < 2:
        return
    [[first, *_], *others] = files.values()
    known = _ends(first)
    for ranks in others:
        apart = [known[key] - end for x in ranks for key, end in _ends(x).items() if key in known]
        seconds = median(apart) if apart else 0.0
        spread = median(abs(x - seconds) for x in apart) if apart else 0.0
        if abs(seconds) <= max(_MOST_SHIFT, _SURE * spread):
            continue
        for rank in ranks:
            shift(rank, seconds)
        listed = f"rank {ranks[0].rank}" + (f" to {ranks[-1].rank}" if len(ranks) > 1 else "")
        trace.remarks.append(
            f"the clock of {listed} is {1e3 * -seconds:+.1f} ms from that of rank {first.rank}: "
            "its times are moved, so that collectives end together"
        )


def _ends(rank: RankTrace) -> Mapping[tuple[str, float, str, int], float]:
    """Return the ends of the collectives of a rank, by kind and number of earlier alike ones."""
    count: dict[tuple[str, float, str], int] = defaultdict(int)
    ends: dict[tuple[str, float, str, int], float] = {}
    for collective in rank.collectives:
        if collective.kind == "send":
            continue
        key = collective.kind, collective.size, ",".join(map(str, collective.ranks or ()))
        ends[(*key, count[key])] = collective.end
        count[key] += 1
    return ends


def shift(rank: RankTrace, seconds: float) -> None:
    """Move all times of a rank."""
    work = KernelWork()
    products = dict(rank.work.products)
    for number, (name, start, end) in enumerate(rank.work.spans()):
        work.add(name, start + seconds, end + seconds, products.get(number))
    rank.work = work

    def moved(spans: Iterable[Span]) -> list[Span]:
        return [Span(x.name, x.start + seconds, x.end + seconds) for x in spans]

    rank.waits, rank.steps, rank.marks = map(moved, (rank.waits, rank.steps, rank.marks))
    rank.collectives = [
        replace(x, start=x.start + seconds, end=x.end + seconds, issued=x.issued + seconds)
        for x in rank.collectives
    ]
    rank.shift += seconds
