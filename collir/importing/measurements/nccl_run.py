"""A run of nccl-tests: its measurements and its ranks, from all that it prints.

busbw / algbw depends on the collective and on the number of ranks alone (doc/PERFORMANCE.md of
nccl-tests). So it says how many ranks took part where not all are listed, and tells apart
collectives that have the same columns.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from collir.cost.collectives.table import COSTS
from collir.importing.measurements.tables import KINDS, MeasuredRow, MeasuredTable, check_asked
from collir.importing.values import ReadError, Remark, TextPlace

MOST_RANKS = 4096
"""The most ranks that the digits of busbw / algbw are taken to tell."""

_MOST_LISTED = 10**6
"""The most ranks of which a part may be listed."""

_REDUCING = ("all_reduce", "reduce_scatter", "reduce")
_ROOTED = ("broadcast", "reduce", "gather", "scatter")
_UNCHECKED = ("all_to_all", "")
"""Collectives whose results in place are not checked; the empty name stands for a sendrecv."""

_DECIMAL = re.compile(r"\d{1,40}(?:\.(\d{0,40}))?")


def printed_interval(text: str) -> tuple[float, float] | None:
    """Return the least and the largest number that are printed as a text."""
    match = _DECIMAL.fullmatch(text)
    if not match:
        return None
    half = 0.5 * 10.0 ** -len(match[1] or "")
    return float(text) - half, float(text) + half


def out_of_bounds(count: int) -> str:
    """Return a remark on a run that found wrong values, perhaps in lines whose times are read."""
    return f"this run found {count} values out of bounds: its times may be wrong"


@dataclass(frozen=True)
class ListedRank:
    """A rank as it is listed. The process is its number on the host, as text."""

    number: int
    host: str
    device: int
    process: str


@dataclass(frozen=True)
class Time:
    """A measured time, and what its line says of the collective.

    Attributes:
        reduces: True if a reduction is named; None if there is no such column.
        root: the root, -1 if there is none; None if there is no such column.
        checked: True if results in place were checked, False if only those out of place were;
            None if neither were, or it is not known.
        algbw, busbw: the least and the largest number that are printed so; None if not printed.
    """

    size: int
    seconds: float
    place: TextPlace
    reduces: bool | None
    root: int | None = None
    checked: bool | None = None
    algbw: tuple[float, float] | None = None
    busbw: tuple[float, float] | None = None


@dataclass
class NcclRun:
    """A run, while it is read.

    Attributes:
        kind: the collective that the run names; empty if its times are not read, None if it names
            none or several.
        named: the collectives of the programs that were named before the run.
        hint: the collective that the file's name suggests, or None.
        ranks: the ranks as listed, with the line of each, in the order of the lines.
        earlier: those that were listed before the run began once more.
        headers, ends: how often the names of columns, and the count of wrong values behind the
            table, were printed.
        ended: whether the mean bandwidth was printed, which is the last line.
        empty: the number of lines of size 0.
        cut: whether the list of ranks goes on after the last of them.
    """

    place: TextPlace
    kind: str | None = None
    named: set[str] = field(default_factory=set[str])
    hint: str | None = None
    starts: int = 1
    ranks: dict[ListedRank, TextPlace] = field(default_factory=dict[ListedRank, TextPlace])
    earlier: dict[ListedRank, TextPlace] = field(default_factory=dict[ListedRank, TextPlace])
    columns: list[str] = field(default_factory=list[str])
    headers: int = 0
    times: list[Time] = field(default_factory=list[Time])
    ends: int = 0
    ended: bool = False
    empty: int = 0
    cut: bool = False

    @property
    def sole_name(self) -> str | None:
        """The collective that the run names, or the only one named before it."""
        if self.kind is None and len(self.named) == 1:
            return next(iter(self.named))
        return self.kind

    @property
    def said(self) -> str | None:
        """The collective that the run, a program before it, or the file's name names."""
        return self.hint if self.sole_name is None and not self.named else self.sole_name

    def again(self) -> None:
        """Begin once more: the first attempt failed, or another run goes on at the same time."""
        self.starts += 1
        self.earlier |= self.ranks
        self.ranks = {}

    def table(self, kind: str | None, remarks: list[Remark]) -> MeasuredTable:
        """Return the times as a table; ``kind`` is the collective that was asked for, if any.

        Raises:
            ReadError: the collective or the ranks are not known, or contradict what is printed.
        """
        several = self.headers > 1 or self.ends > 1
        self.ranks = self.earlier | self.ranks if several else self.ranks or self.earlier
        if several or len({rank.number for rank in self.ranks}) < len(self.ranks):
            ranks = self._of_several_runs(remarks)
            hosts, kind = (ranks,), self._collective(kind, ranks)
        else:
            listed = max((rank.number + 1 for rank in self.ranks), default=0)
            kind = self._collective(kind, 0 if self.cut else listed)
            ranks = self._count(kind, listed)
            hosts = self._hosts(ranks, remarks)
        rows = tuple(MeasuredRow(kind, time.size, time.seconds, time.place) for time in self.times)
        return MeasuredTable(rows, self.place, hosts=hosts, ranks=ranks)

    def _collective(self, asked: str | None, ranks: int) -> str:
        """Return the collective: as asked for, as named before the run, or as columns tell it."""
        evidence = _Evidence(self.times)
        named = asked or self.sole_name
        if self.kind:
            check_asked(self.kind, asked or None, self.place, "run")
        if named:
            if evidence.has_columns(named):
                return named
            told = " or ".join(filter(None, evidence.kinds(ranks))) or "another program"
            text = f"this is said to be {named}, but reductions and roots are those of {told}"
            raise ReadError(text, self.times[0].place)
        possible = evidence.kinds(ranks) or evidence.kinds(0)
        if self.hint in possible:
            possible = (self.hint,)
        if len(possible) == 1 and possible[0]:
            return possible[0]
        either = [kind for kind in possible if kind]
        hint = f", by its columns {' or '.join(either)}" if 0 < len(either) < 4 else ""
        example = either[0] if either else "all_reduce"
        raise ReadError(
            f"it is not said which collective this is{hint}: --from FILE,collective={example}",
            self.place,
        )

    def _count(self, kind: str, listed: int) -> int:
        """Return the number of all ranks, 0 if it is not known.

        Raises:
            ReadError: no number of ranks agrees with what is printed.
        """
        evidence = _Evidence(self.times)
        if listed and not self.cut and evidence.allows(kind, listed):
            return listed
        told = evidence.ranks(kind)
        if told < listed and not self.cut:
            whose = f"as of {kind} on {told} ranks" if told else f"not as of {kind}"
            text = f"busbw / algbw is {evidence.shown}, {whose}, but {listed} ranks are listed"
            raise ReadError(text, self.times[0].place)
        return told

    def _hosts(self, count: int, remarks: list[Remark]) -> tuple[int, ...]:
        """Return the numbers of ranks on each host, or none if it is not known."""
        ranks = list(self.ranks)
        if len(ranks) == count:
            return tuple(Counter(rank.host for rank in ranks).values())
        if not ranks:
            return ()
        # What is printed must tell how many ranks each host has
        sizes = range(1, count + 1) if count <= _MOST_LISTED else ()
        even = [size for size in sizes if _on_each_host(ranks, count, size)]
        if not count or len(even) != 1:
            told = f"{len(ranks)} of {count or 'more'} ranks are listed"
            remarks.append(Remark(told, self.place))
            return ()
        hosts = count // even[0]
        places = f"{hosts} hosts" if hosts > 1 else "one host"
        text = f"{len(ranks)} of {count} ranks are listed: read as {even[0]} on each of {places}"
        remarks.append(Remark(text, self.place))
        return (even[0],) * hosts

    def _of_several_runs(self, remarks: list[Remark]) -> int:
        """Return the number of ranks of one of several equal runs on hosts of their own.

        Raises:
            ReadError: the runs are not equal, or share a host.
        """
        zeros = [place for rank, place in self.ranks.items() if rank.number == 0]
        where = ", ".join(f"line {place.line}" for place in zeros[:4])
        what = f"rank 0 is listed {len(zeros)} times ({where})" if zeros[1:] else "a table begins"
        hosts: dict[str, list[int]] = {}
        for rank in self.ranks:
            hosts.setdefault(rank.host, []).append(rank.number)
        sizes = {len(numbers) for numbers in hosts.values()}
        alike = all(sorted(numbers) == list(range(len(numbers))) for numbers in hosts.values())
        if zeros[1:] and len(sizes) == 1 and alike and max(self.headers, self.ends) <= len(zeros):
            (size,) = sizes
            if size == 1:
                text = f"{what}: each of these processes ran alone, without MPI (make MPI=1)"
                raise ReadError(text, zeros[1])
            text = (
                f"{what}: {len(zeros)} runs at the same time, each of {size} ranks on a host of "
                "its own; their times are read as those of one host"
            )
            remarks.append(Remark(text, zeros[1]))
            return size
        if not zeros[1:]:
            what = f"{max(self.headers, self.ends)} tables are printed into each other here"
        text = f"{what}: several runs are printed into each other; put each into a file of its own"
        raise ReadError(text, zeros[1] if zeros[1:] else self.place)


def _on_each_host(ranks: Sequence[ListedRank], count: int, size: int) -> bool:
    """Return True if the listed ranks are of hosts with ``size`` ranks each, in their order.

    Devices tell nothing if each process sees one only, which is its device 0.
    """
    if count % size or not any(rank.device for rank in ranks):
        return False
    hosts = {rank.number // size: rank.host for rank in ranks}
    return len(set(hosts.values())) == len(hosts) and all(
        hosts[rank.number // size] == rank.host and rank.number % size == rank.device
        for rank in ranks
    )


@dataclass(frozen=True)
class _Evidence:
    """The collective and the number of ranks of a run, as its lines give them."""

    times: Sequence[Time]

    def kinds(self, ranks: int) -> tuple[str, ...]:
        """Return the collectives that print such lines on some ranks, or on any if ranks are 0."""
        checked = {time.checked for time in self.times}
        counts = (ranks,) if ranks else range(2, MOST_RANKS + 1)
        return tuple(
            kind
            for kind in (*KINDS, "")
            if self.has_columns(kind)
            and any(self.allows(kind, count) for count in counts)
            and (False not in checked or kind in _UNCHECKED)
            and (checked != {True} or kind or not self.times[0].reduces)
        )

    def has_columns(self, kind: str) -> bool:
        """Return True unless reductions and roots are not as a collective has them."""
        reduces, rooted = kind in _REDUCING, kind in _ROOTED
        return not kind or all(
            time.reduces in (None, reduces) and (time.root is None or (time.root >= 0) == rooted)
            for time in self.times
        )

    def allows(self, kind: str, ranks: int) -> bool:
        """Return True unless busbw / algbw is not that of a collective on so many ranks."""
        low, high = self._factor
        factor = COSTS[kind].busbw(ranks) if kind else 1.0
        return low > high or low <= factor <= high

    def ranks(self, kind: str) -> int:
        """Return the number of ranks that busbw / algbw tells, or 0."""
        if math.isinf(self._factor[1]):
            return 0
        counts = [count for count in range(2, MOST_RANKS + 1) if self.allows(kind, count)]
        return counts[0] if len(counts) == 1 else 0

    @property
    def shown(self) -> str:
        low, high = self._factor
        return f"{(low + high) / 2:.4g}"

    @property
    def _factor(self) -> tuple[float, float]:
        """The least and the largest busbw / algbw of all lines with enough digits."""
        low, high = 0.0, math.inf
        for time in self.times:
            if time.algbw and time.busbw and time.algbw[0] >= 1:
                low = max(low, time.busbw[0] / time.algbw[1])
                high = min(high, time.busbw[1] / time.algbw[0])
        return low, high
