"""Reader of the output of nccl-tests (all_reduce_perf and so on), rccl-tests and MSCCL++'s tests.

Sizes are those of the full buffer (doc/PERFORMANCE.md of nccl-tests). Lines of other programs, such
as NCCL's own, are passed over; so is what a launcher writes in front of each line, except that it
separates the lines of runs printed at the same time.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from collir.importing.measurements import logs
from collir.importing.measurements.names import kind_of_file, kind_of_program
from collir.importing.measurements.nccl_run import (
    ListedRank,
    NcclRun,
    Time,
    out_of_bounds,
    printed_interval,
)
from collir.importing.measurements.tables import MAX_SIZE, MeasuredTables, is_time
from collir.importing.numbers import integer
from collir.importing.values import ReadError, Remark, TextPlace, shown

_START = re.compile(r"(?:#[ \t]*)?\bnThreads?:?[ \t]+\d+[ \t]+nGpus\b")
_HEADER = re.compile(r"(?:#[ \t]*)?\bsize[ \t]+count[ \t]+(?:type|time)\b")
_RANK = re.compile(
    r"(?:#[ \t]*)?\bRank[ \t]+(\d{1,10})[ \t]+(?:Group[ \t]+(\d{1,10})[ \t]+)?"
    r"Pid[ \t]+(\d+)[ \t]+on[ \t]+(\S+)[ \t]+device[ \t]+(\d{1,10})\b"
)
_BOUNDS = re.compile(r"(?:#[ \t]*)?\bOut of bounds values\b(?:[ \t]*:[ \t]*(\d{1,18}))?")
_END = re.compile(r"(?:#[ \t]*)?\bAvg bus bandwidth\b")
_LISTED = re.compile(r"\bRank[ \t]+\d+[ \t]+(?:Group|Pid)\b")
"""A line that lists a rank, maybe cut off: a process prints 2048 characters of them."""

_STARTING = re.compile(r"(?:#[ \t]*)?\bCollective test starting: ")
_ROW = re.compile(r"(?<![\w.-])\d+\s+\d+\s+[a-z]\w*(?=\s|$)")
_PLAIN_ROW = re.compile(r"(?<![\w.-])\d+\s+\d+(?:\s+[\d.]+)*\s*$")
"""A line of a table without types, as MSCCL++'s tests print it."""

_REST = re.compile(r"[\d.eE+\-NA/\s]*")
"""The rest of a line that messages of NCCL cut in two."""

MARK = re.compile(r"nThreads?:?[ \t]+\d+[ \t]+nGpus\b|size[ \t]+count[ \t]+(?:type|time)\b")
"""A pattern that only these programs print."""

_COUNT = re.compile(r"\d+(?:\.\d*)?(?:e[+-]?\d+)?")
_OPTIONAL = {"redop": re.compile(r"[a-z]\w*"), "root": re.compile(r"-?\d{1,5}")}
"""Columns that may be blank, and their contents otherwise; a time has a point or more digits."""


def read(text: str, kind: str | None = None, file: str = "") -> MeasuredTables:
    """Return the times of all runs in a text.

    The collective is ``kind``, or else the collective of the program that the text or the file's
    name names, or else the only collective whose program prints such lines.

    Raises:
        ReadError: a run's collective is not known, no run has times or other columns, ranks are in
            several groups, or runs are printed into each other.
    """
    reader = _Reader(kind_of_file(file))
    for number, line in enumerate(text.split("\n"), 1):
        reader.line(line, TextPlace(number))
    remarks, runs = reader.remarks, reader.runs
    reader.finish_row()
    others = [run for run in runs if run.kind == "" or (not kind and run.said == "")]
    message = "the run that begins here is of no collective whose times are read"
    remarks += [Remark(message, run.place) for run in others]
    runs = [run for run in runs if run not in others]
    if not runs:
        place = others[0].place if others else TextPlace(1)
        raise ReadError("there are no times of collectives here", place)
    empty = [(run, reason) for run in runs if (reason := _without_times(run, remarks))]
    if len(empty) == len(runs):
        raise ReadError(f"the run that begins here {empty[0][1]}", runs[0].place)
    for run, reason in empty:
        remarks.append(Remark(f"the run that begins here {reason}: it is left out", run.place))
        runs.remove(run)
    tables = tuple(run.table(kind, remarks) for run in runs)
    for run in runs:
        if not run.ended:
            text = "the run that begins here has no end: the file may be cut off"
            remarks.append(Remark(text, run.place))
        if run.empty:
            lines = "a line" if run.empty == 1 else f"{run.empty} lines"
            remarks.append(Remark(f"{lines} of size 0: left out", run.place))
    return MeasuredTables("Times of nccl-tests.", tables, tuple(sorted(remarks, key=_place_of)))


def _search(word: str, pattern: re.Pattern[str], line: str) -> re.Match[str] | None:
    """Return the match of a pattern that contains a word; looking for the word is fast."""
    return pattern.search(line) if word in line else None


def _place_of(remark: Remark) -> TextPlace:
    return remark.place


def _without_times(run: NcclRun, remarks: list[Remark]) -> str:
    """Return why a run has no times, or an empty text."""
    if not run.columns:
        return "has no table: the file is cut off"
    if run.times:
        return ""
    later = [remark for remark in remarks if remark.place > run.place]
    reason = f": line {later[0].place.line}: {later[0].message}" if later else ""
    return f"has no times that can be used{reason}"


@dataclass
class _Row:
    """The cells of a line, perhaps cut off by messages of NCCL."""

    run: NcclRun
    prefix: str
    cells: list[str]
    place: TextPlace

    def own(self, text: str) -> str:
        """Return a part of the line before a message, without the prefix of the message."""
        return text.rstrip().removesuffix(self.prefix.strip())


@dataclass
class _Reader:
    """The runs of a text, while it is read.

    ``hint`` is the collective in the file's name; ``streams`` has the run that goes on in each
    stream, the latest last.
    """

    hint: str | None
    runs: list[NcclRun] = field(default_factory=list[NcclRun])
    remarks: list[Remark] = field(default_factory=list[Remark])
    streams: dict[str, NcclRun] = field(default_factory=dict[str, NcclRun])
    named: set[str] = field(default_factory=set[str])
    starting: dict[str, str | None] = field(default_factory=dict[str, str | None])
    row: _Row | None = None

    def line(self, line: str, place: TextPlace) -> None:
        """Add a line."""
        cut = logs.before_messages(line)
        if match := _search("Rank", _RANK, cut):
            self._rank(match, cut, place)
        elif match := _search("size", _HEADER, cut):
            self._header(match, cut, place)
        elif match := _search("nThread", _START, cut):
            self._start(logs.stream(cut[: match.start()]), place)
        elif match := _search("test starting", _STARTING, cut):
            self.starting[logs.stream(cut[: match.start()])] = kind_of_program(cut)
        elif match := _search("Avg bus", _END, cut):
            if run := self._run(cut[: match.start()]):
                run.ended = True
        elif match := _search("Out of bounds", _BOUNDS, cut):
            if run := self._run(cut[: match.start()]):
                run.ends += 1
                run.ended = run.ended or "type" not in run.columns  # MSCCL++'s last line
                if count := int(match[1] or 0):
                    self.remarks.append(Remark(out_of_bounds(count), place))
        elif match := _ROW.search(cut) or self._plain_row(cut):
            self.finish_row()
            prefix, rest = cut[: match.start()], cut[match.start() :]
            run = self._run(prefix)
            if run and self._is_of_several(prefix):
                text = "it is not clear which run this line is of: it is left out"
                self.remarks.append(Remark(text, place))
            elif run and run.columns:
                self.row = _Row(run, prefix, [], place)
                self._cells(rest if cut == line else self.row.own(rest), whole=cut == line)
        elif self.row:
            rest = self.row.own(logs.without(self.row.prefix, cut) or "")
            if _REST.fullmatch(rest):
                self._cells(rest, whole=False)
        elif match := _search("Rank", _LISTED, cut) or logs.ELIDED.fullmatch(cut):
            self._elided(match)
        elif "concluded" not in cut and (kind := kind_of_program(cut)) is not None:
            self.named.add(kind)

    def _plain_row(self, line: str) -> re.Match[str] | None:
        """Return the match of a line of a table without types, if it belongs to one."""
        if all("type" in run.columns for run in self.streams.values()):
            return None
        match = _PLAIN_ROW.search(line, logs.clock_end(line))
        run = self._run(line[: match.start()]) if match else None
        return match if run and run.columns and "type" not in run.columns else None

    def _run(self, prefix: str) -> NcclRun | None:
        """Return the run that a line with a prefix belongs to."""
        if not self.streams:
            return None
        return self.streams.get(logs.stream(prefix)) or next(reversed(self.streams.values()))

    def _is_of_several(self, prefix: str) -> bool:
        """Return True if a line has the prefix of no run while several go on."""
        going = [run for run in self.streams.values() if not run.ended]
        return len(going) > 1 and logs.stream(prefix) not in self.streams

    def _begin(self, stream: str, place: TextPlace) -> NcclRun:
        if not self.named and self.runs:
            self.named = self.runs[-1].named
        run = NcclRun(place, self.starting.pop(stream, None), self.named, self.hint)
        self.named = set()
        self.runs.append(run)
        self.streams.pop(stream, None)
        self.streams[stream] = run
        return run

    def _start(self, stream: str, place: TextPlace) -> None:
        run = self.streams.get(stream)
        if run and not run.columns:
            run.again()
        else:
            self._begin(stream, place)

    def _rank(self, match: re.Match[str], line: str, place: TextPlace) -> None:
        prefix = line[: match.start()]
        run = self._run(prefix)
        # MSCCL++ prints no line before ranks.
        is_new = logs.stream(prefix) not in self.streams
        if run is None or run.columns or (is_new and run.ranks and not int(match[1])):
            run = self._begin(logs.stream(prefix), place)
        if match[2] and int(match[2]):
            raise ReadError(
                "these ranks are in several groups at the same time (NCCL_TESTS_SPLIT), which is "
                "not read: measure one group a run",
                place,
            )
        run.cut = False
        run.ranks.setdefault(ListedRank(int(match[1]), match[4], int(match[5]), match[3]), place)

    def _elided(self, match: re.Match[str]) -> None:
        """Note that not all ranks are listed, if a line stands in the list of ranks."""
        if self.streams and (match.re is _LISTED or logs.stream(match[1]) in self.streams):
            run = next(reversed(self.streams.values()))
            run.cut = run.cut or bool(run.ranks and not run.columns)

    def _header(self, match: re.Match[str], line: str, place: TextPlace) -> None:
        stream = logs.stream(line[: match.start()])
        run = self._run(stream)
        if run is None or (run.headers and run.times and run.headers >= run.starts):
            run = self._begin(stream, place)
        run.headers += 1
        run.columns = line[match.start() :].lstrip("# \t").split()
        if "cputime" in run.columns:
            raise ReadError(
                "these are times that the CPU took to start the collectives (-C 1), not those that "
                "the collectives took: measure without -C",
                place,
            )
        if "time" not in run.columns:
            raise ReadError("this table has no column 'time'", place)

    def _cells(self, text: str, whole: bool) -> None:
        """Add cells to the line that is read."""
        assert self.row is not None
        self.row.cells += text.split()
        self._end_row(whole)

    def _end_row(self, whole: bool) -> None:
        """Add the line that is read if it has all cells, or will have no more."""
        row = self.row
        assert row is not None
        columns = row.run.columns
        if (cells := _aligned(columns, row.cells, whole)) is not None:
            row.run.times += self._times(row.run, columns, cells, row.place)
        elif whole:
            text = f"this line has {len(row.cells)} of {len(columns)} columns: it is left out"
            self.remarks.append(Remark(text, row.place))
        else:
            return
        self.row = None

    def finish_row(self) -> None:
        """Add the current row, to which no more lines belong."""
        if self.row:
            self._end_row(whole=True)

    def _times(
        self, run: NcclRun, columns: list[str], cells: list[str], place: TextPlace
    ) -> Iterator[Time]:
        """Yield the times of a line, out of place and in place."""
        size = integer(cells[0], "a size", place, 0, MAX_SIZE)
        if not size:
            run.empty += 1
            return
        first = columns.index("time")
        kinds = dict(zip(columns[:first], cells[:first], strict=True))
        starts = [at for at, name in enumerate(columns) if name == "time"]
        groups = [
            dict(zip(columns[start:end], cells[start:end], strict=True))
            for start, end in zip(starts, [*starts[1:], len(columns)], strict=True)
        ]
        groups = [group for group in groups if any(group.values())]
        counted = [bool(_COUNT.fullmatch(group.get("#wrong", ""))) for group in groups]
        root = kinds.get("root", "")
        if root and not _OPTIONAL["root"].fullmatch(root):
            message = f"'{shown(root)}' is not a root: this line is left out"
            self.remarks.append(Remark(message, place))
            return
        for group in groups:
            if wrong := _wrong(group):
                self.remarks.append(Remark(f"{wrong}: this time is left out", place))
                continue
            yield Time(
                size,
                float(group["time"]) * 1e-6,
                place,
                kinds["redop"] not in ("", "none") if "redop" in kinds else None,
                int(root) if root else None,
                counted[-1] if counted[0] and len(groups) == 2 else None,
                printed_interval(group.get("algbw", "")),
                printed_interval(group.get("busbw", "")),
            )


def _aligned(columns: list[str], cells: list[str], whole: bool) -> list[str] | None:
    """Return a cell for each column; None if there are too few or too many.

    Programs that have no reduction, or no root, may print nothing in these columns. A time of day
    at the end (-S) is two cells. Programs that run only in place leave the other half of a whole
    line blank; MSCCL++ also its count of wrong values, if it does not check.
    """
    if columns[-1] == "timestamp" and len(cells) > 2 and ":" in cells[-1]:
        cells = [*cells[:-2], f"{cells[-2]} {cells[-1]}"]
    for at, name in enumerate(columns[:5]):
        blank = name in _OPTIONAL and at < len(cells) < len(columns)
        if blank and not _OPTIONAL[name].fullmatch(cells[at]):
            cells = [*cells[:at], "", *cells[at:]]
    if whole and columns.count("time") == 2 and len(cells) < len(columns):
        half = len(columns) - columns[::-1].index("time") - 1
        unchecked = "type" not in columns and columns[half - 1] == "#wrong"
        if len(cells) in (half, half - unchecked):
            cells = [*cells, *[""] * (len(columns) - len(cells))]
    return cells if len(cells) == len(columns) else None


def _wrong(values: dict[str, str]) -> str:
    """Return what is wrong with a time, or an empty text."""
    if not is_time(values["time"]):
        return f"'{shown(values['time'])}' is not a time above 0 us"
    count = values.get("#wrong") or "N/A"
    if count != "N/A" and not re.fullmatch(r"0+(?:\.0*)?(?:e[+-]0+)?", count):
        return f"{shown(count)} elements were wrong"
    return ""
