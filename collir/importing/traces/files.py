"""Files of traces, told apart by what is in them, and brought together to one trace."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import NamedTuple

from collir.importing.traces.chrome import opened
from collir.importing.traces.kineto import KinetoFile, read_kineto
from collir.importing.traces.trace import RankTrace, Span, Trace, Work
from collir.importing.values import Place, ReadError

_HEAD = 2**16
"""The bytes at the beginning of a file that tell what it is."""

_MOST_SHIFT = 1e-3
"""The seconds that clocks of ranks may be apart before it is said."""


def is_trace(path: Path) -> bool:
    """Return whether a file is a trace that is read here, by its beginning."""
    return _format(path) is not None


def read_traces(paths: Sequence[Path]) -> Trace:
    """Return the trace of a job, of files of one or all ranks.

    Raises:
        ReadError: a file is no trace, or the files do not fit together; its message names the file.
        OSError: a file cannot be read.
    """
    formats = [_format(path) for path in paths]
    for path, found in zip(paths, formats, strict=True):
        if found is None:
            known = ", ".join(dict.fromkeys(x.tool for x in FORMATS))
            raise ReadError(f"{path} is no trace that is known: there are those of {known}",
                            Place(1))  # fmt: skip
    tools = dict.fromkeys(x.tool for x in formats if x)
    if len(tools) > 1:
        raise ReadError(f"the files are traces of {' and of '.join(tools)}", Place(1))
    assert formats[0] is not None
    trace = formats[0].read(paths)
    _check_ranks(trace)
    _align(trace)
    return trace


class Format(NamedTuple):
    """A kind of traces: the tool that records them, whether a file's beginning is that of one, and
    how such files are read."""

    tool: str
    fits: Callable[[Path, str], bool]
    read: Callable[[Sequence[Path]], Trace]


def _format(path: Path) -> Format | None:
    try:
        with opened(path) as stream:
            head = stream.read(_HEAD).decode("utf-8", "replace")
    except (OSError, EOFError):
        head = ""
    return next((x for x in FORMATS if x.fits(path, head)), None)


def _is_kineto(path: Path, head: str) -> bool:
    """Return whether this is the beginning of a trace of torch."""
    marks = ('"schemaVersion"', '"deviceProperties"', '"trace_id"', "ProfilerStep#", '"cpu_op"')
    return head.lstrip().startswith(("{", "[")) and any(x in head for x in marks)


def _kineto(paths: Sequence[Path]) -> Trace:
    found: list[KinetoFile] = []
    for path in paths:
        try:
            with opened(path) as stream:
                found.append(read_kineto(stream, str(path)))
        except ReadError as error:
            raise ReadError(f"{path}: {error.message}", error.place) from error
    remarks = [f"{x.made.file} is cut off: what is behind is not there" for x in found if x.cut_off]
    numbers = [x.rank for x in found]
    if any(rank < 0 for rank in numbers):
        numbers = [*_by_name(paths)]
        remarks.append("the files do not say their ranks: these are taken from their names")
    groups = {name: ranks for x in found for name, ranks in x.groups.items()}
    ranks = [_ranked(x.made, rank, groups) for x, rank in zip(found, numbers, strict=True)]
    for x in found:
        if x.base != found[0].base:
            _shift(x.made, x.base - found[0].base)
    events, ignored = sum(x.events for x in found), sum(x.ignored for x in found)
    return Trace("torch's profiler", sorted(ranks, key=lambda x: x.rank),
                 max(x.world for x in found), remarks, events, ignored)  # fmt: skip


def _by_name(paths: Sequence[Path]) -> Iterator[int]:
    """Yield ranks by the numbers in the names of files in which these differ; else in order."""
    numbers = [re.findall(r"\d+", path.name) for path in paths]
    for column in zip(*numbers, strict=False):
        found = [int(x) for x in column]
        if len(set(found)) == len(paths) and len({*map(len, numbers)}) == 1:
            yield from found
            return
    yield from range(len(paths))


def _ranked(made: RankTrace, rank: int, groups: Mapping[str, tuple[int, ...]]) -> RankTrace:
    """Return what a rank ran, with its number and the ranks of its groups."""
    made.rank = rank
    for each in made.collectives:
        if each.ranks is None and each.group in groups:
            each.ranks = groups[each.group]
            each.group_size = len(each.ranks)
    return made


FORMATS = [Format("torch's profiler", _is_kineto, _kineto)]
"""The kinds of traces that are known."""


# --- ranks beside each other ---------------------------------------------------------------------


def _check_ranks(trace: Trace) -> None:
    counts = Counter(x.rank for x in trace.ranks)
    for rank, count in counts.items():
        if count > 1:
            files = " and ".join(x.file for x in trace.ranks if x.rank == rank)
            raise ReadError(f"{files} are of the same rank {rank}: give one of each", Place(1))
    if trace.world and len(trace.ranks) < trace.world:
        listed = ", ".join(str(x.rank) for x in trace.ranks[:8])
        trace.remarks.append(
            f"{len(trace.ranks)} of {trace.world} ranks are here ({listed}): who waits for the "
            "others is not known"
        )


def _align(trace: Trace) -> None:
    """Bring the clocks of all ranks to that of the first: collectives end together.

    Clocks of one computer are one; those of several may be milliseconds apart.
    """
    first, *others = trace.ranks
    known = _ends(first)
    for rank in others:
        own = _ends(rank)
        apart = [known[key] - end for key, end in own.items() if key in known]
        shift = median(apart) if apart else 0.0
        if abs(shift) > _MOST_SHIFT:
            _shift(rank, shift)
            trace.remarks.append(
                f"the clock of rank {rank.rank} is {1e3 * -shift:+.1f} ms from that of rank "
                f"{first.rank}: its times are moved, so that collectives end together"
            )


def _ends(rank: RankTrace) -> Mapping[tuple[str, float, str, int], float]:
    """Return the ends of the collectives of a rank, by what they are and how many such came
    before."""
    count: dict[tuple[str, float, str], int] = defaultdict(int)
    found: dict[tuple[str, float, str, int], float] = {}
    for each in rank.collectives:
        if each.kind == "send":
            continue
        key = each.kind, each.size, ",".join(map(str, each.ranks or ()))
        found[(*key, count[key])] = each.end
        count[key] += 1
    return found


def _shift(rank: RankTrace, seconds: float) -> None:
    """Move all times of a rank."""
    work = Work()
    products = dict(rank.work.products)
    for number, (name, start, end) in enumerate(rank.work.spans()):
        work.add(name, start + seconds, end + seconds, products.get(number))
    rank.work = work

    def moved(spans: Sequence[Span]) -> list[Span]:
        return [Span(x.name, x.start + seconds, x.end + seconds) for x in spans]

    rank.waits, rank.steps, rank.marks = map(moved, (rank.waits, rank.steps, rank.marks))
    rank.collectives = [
        replace(x, start=x.start + seconds, end=x.end + seconds, issued=x.issued + seconds)
        for x in rank.collectives
    ]
    rank.shift += seconds
