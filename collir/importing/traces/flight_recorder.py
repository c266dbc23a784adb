"""Dumps of torch's flight recorder: the last collectives that a rank asked for.

A dump is a pickle or JSON. It says when the host asked for a collective, and when the watchdog
found that it had started and ended; that looks only now and then. Where timing was on
(``TORCH_NCCL_ENABLE_TIMING``), it also says how long the collective ran.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BufferedIOBase
from pathlib import Path
from typing import Any, NamedTuple

from collir.importing.traces.chrome import ChromeTrace, opened, read_up_to
from collir.importing.traces.loose import (
    UNREADABLE,
    finite,
    integer,
    integers,
    json_list,
    listed,
    mapped,
    number,
    text,
)
from collir.importing.traces.names import full_size, item_size, kind_of
from collir.importing.traces.plain_pickle import read_plain_pickle
from collir.importing.traces.ranks import BY_NAME, CUT_OFF, ranks_by_name, reading
from collir.importing.traces.trace import RankTrace, Trace, TracedCollective
from collir.importing.values import ReadError, TextPlace, shown

_MOST = 2**26
"""The bytes of the largest pickle that is read."""

_DEFAULT_GROUP = "default_pg"


def is_flight_recorder(_: Path, head: str) -> bool:
    """Return whether this is the beginning of a dump."""
    is_pickle = head.startswith("\ufffd") and head[1:2] < "\x06"
    is_json = head.lstrip().startswith("{")
    marks = ('"collective_seq_id"', '"pg_config"', '"pg_status"')
    return (is_pickle and any(x.strip('"') in head for x in (*marks, "entries"))) or (
        is_json and any(x in head for x in marks) and '"traceEvents"' not in head
    )


class _Entry(NamedTuple):
    """A collective, with the nanosecond of its request, and the seconds that it ran if known."""

    at: int
    seconds: float | None
    has_ended: bool
    collective: TracedCollective


@dataclass
class _Dump:
    """The collectives of a rank, in the order of their requests, and its groups."""

    path: Path
    entries: list[_Entry] = field(default_factory=list[_Entry])
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    world: int = 0
    events: int = 0
    cut_off: bool = False


def read_flight_recorders(paths: Sequence[Path]) -> Trace:
    """Return the trace of a job, of one dump for each rank.

    Raises:
        ReadError: a file is no such dump.
        OSError: a file cannot be read.
    """
    dumps: list[_Dump] = []
    for path in paths:
        with reading(path):
            dumps.append(_read(path))
    first = min((entry.at for x in dumps for entry in x.entries), default=0)
    ranks = [
        RankTrace(rank, str(dump.path), collectives=[*_timed(dump, first)])
        for rank, dump in zip(ranks_by_name(paths), dumps, strict=True)
    ]
    events, used = sum(x.events for x in dumps), sum(len(x.entries) for x in dumps)
    return Trace(
        "torch's flight recorder", sorted(ranks, key=lambda x: x.rank),
        max(x.world for x in dumps), [*_remarks(dumps)], events, events - used,
    )  # fmt: skip


def _remarks(dumps: Sequence[_Dump]) -> Iterator[str]:
    yield from (CUT_OFF.format(x.path) for x in dumps if x.cut_off)
    yield BY_NAME
    entries = [x for dump in dumps for x in dump.entries]
    untimed = sum(x.seconds is None for x in entries)
    if untimed:
        yield (
            f"how long {untimed} of {len(entries)} collectives ran is not known: they stand where "
            "the host asked for them (TORCH_NCCL_ENABLE_TIMING=1 records it)"
        )
    if untimed < len(entries):
        yield (
            "dumps say how long a collective ran, not when it began: that is taken to be when the "
            "host asked for it, or when the one before it in its group ended"
        )
    for dump in dumps:
        if hanging := [x for x in dump.entries if not x.has_ended]:
            yield (
                f"{len(hanging)} of {len(dump.entries)} collectives of {dump.path} had not ended "
                f"when it was made; the first is {shown(hanging[0].collective.label)}"
            )


def _read(path: Path) -> _Dump:
    """Return what a file says."""
    dump = _Dump(path)
    with opened(path) as stream:
        is_pickle = read_up_to(stream, 1)[0] == b"\x80"
    with opened(path) as stream:
        if is_pickle:
            about = _unpickled(stream)
            _take(map(mapped, listed(about["entries"])), dump)
        else:
            chrome = ChromeTrace(stream, "entries")
            _take(chrome.events(), dump)
            about, dump.cut_off = chrome.about, chrome.cut_off
    for name, group in mapped(about.get("pg_config")).items():
        if ranks := integers(json_list(mapped(group).get("ranks"))):
            dump.groups[str(name)] = tuple(ranks)
            if text(mapped(group).get("desc")) == _DEFAULT_GROUP:
                dump.world = len(ranks)
    return dump


def _unpickled(stream: BufferedIOBase) -> Mapping[str, Any]:
    """Return the dump that is pickled in a file."""
    data, is_cut_off = read_up_to(stream, _MOST + 1)
    if len(data) > _MOST:
        raise ReadError(f"the pickle is longer than {_MOST // 2**20} MB", TextPlace(1))
    if is_cut_off:
        raise ReadError("the file is cut off or damaged", TextPlace(1))
    about = mapped(read_plain_pickle(data))
    if "entries" not in about:
        raise ReadError("there is no `entries`: this is no such dump", TextPlace(1))
    return about


def _take(entries: Iterator[Mapping[str, Any]], dump: _Dump) -> None:
    for entry in entries:
        dump.events += 1
        try:
            dump.entries.append(_entry(entry))
        except UNREADABLE:
            continue


def _entry(entry: Mapping[str, Any]) -> _Entry:
    """Return a collective.

    Raises:
        ValueError, KeyError, TypeError, OverflowError: it is not as the recorder writes it.
    """
    label, at = text(entry["profiling_name"]), integer(entry["time_created_ns"], -1, 2**63)
    if not label or at < 0:
        raise ValueError("a collective without a name or a time")
    kind = kind_of(label)
    received, sent = (_bytes(entry, side) for side in ("output", "input"))
    group = [text(x) for x in listed(entry.get("process_group"))] or [""]
    milliseconds = number(entry.get("duration_ms"))
    made = TracedCollective(
        kind, label, full_size(kind, received, sent), 0.0, 0.0, 0.0, group[0], group=group[0]
    )
    has_ended = entry.get("retired") is not False or entry.get("state") == "completed"
    return _Entry(at, milliseconds * 1e-3 if milliseconds > 0 else None, has_ended, made)


def _bytes(entry: Mapping[str, Any], side: str) -> float:
    """Return the bytes of the inputs or outputs; shapes beside one type have it all."""
    shapes = [integers(x) or [] for x in listed(entry.get(f"{side}_sizes"))]
    types = [item_size(text(x)) for x in listed(entry.get(f"{side}_dtypes"))]
    if not types:
        return 0.0
    types += [types[0]] * (len(shapes) - len(types))
    return finite(sum(_product(x) * item for x, item in zip(shapes, types, strict=False)))


def _product(shape: Sequence[int]) -> float:
    count = 1.0
    for size in shape:
        count *= max(0, size)
    return count


def _timed(dump: _Dump, first: int) -> Iterator[TracedCollective]:
    """Yield the collectives of a rank, with their times."""
    free: dict[str, float] = {}
    for at, seconds, _, collective in sorted(dump.entries, key=lambda x: x.at):
        collective.issued = collective.start = (at - first) * 1e-9
        if seconds is not None:
            collective.start = max(collective.start, free.get(collective.group, 0.0))
        collective.end = free[collective.group] = collective.start + (seconds or 0.0)
        collective.ranks = dump.groups.get(collective.group)
        collective.group_size = len(collective.ranks or ())
        yield collective
