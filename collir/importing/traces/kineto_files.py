"""Files of torch's profiler: one for each rank."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from collir.importing.traces.chrome import opened
from collir.importing.traces.kineto import KinetoFile, read_kineto
from collir.importing.traces.ranks import BY_NAME, CUT_OFF, ranks_by_name, reading, shift
from collir.importing.traces.trace import RankTrace, Trace

_MARKS = ('"schemaVersion"', '"deviceProperties"', '"trace_id"', "ProfilerStep#", '"cpu_op"')


def is_kineto(_: Path, head: str) -> bool:
    """Return whether this is the beginning of a trace of torch."""
    return head.lstrip().startswith(("{", "[")) and any(x in head for x in _MARKS)


def read_kineto_files(paths: Sequence[Path]) -> Trace:
    """Return the trace of a job, of one file for each rank.

    Raises:
        ReadError: a file is no such trace.
        OSError: a file cannot be read.
    """
    files: list[KinetoFile] = []
    for path in paths:
        with reading(path), opened(path) as stream:
            files.append(read_kineto(stream, str(path)))
    remarks = [CUT_OFF.format(x.made.file) for x in files if x.cut_off]
    numbers = [x.rank for x in files]
    if any(rank < 0 for rank in numbers):
        numbers = ranks_by_name(paths)
        remarks.append(BY_NAME)
    groups = {name: ranks for x in files for name, ranks in x.groups.items()}
    ranks = [_ranked(x.made, rank, groups) for x, rank in zip(files, numbers, strict=True)]
    for x in files:
        if x.base != files[0].base:
            shift(x.made, x.base - files[0].base)
    events, ignored = sum(x.events for x in files), sum(x.ignored for x in files)
    return Trace("torch's profiler", sorted(ranks, key=lambda x: x.rank),
                 max(x.world for x in files), remarks, events, ignored)  # fmt: skip


def _ranked(made: RankTrace, rank: int, groups: Mapping[str, tuple[int, ...]]) -> RankTrace:
    """Return what a rank ran, with its number and the ranks of its groups."""
    made.rank = rank
    for each in made.collectives:
        if each.ranks is None and each.group in groups:
            each.ranks = groups[each.group]
            each.group_size = len(each.ranks)
    return made
