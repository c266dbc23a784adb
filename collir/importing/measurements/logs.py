"""Lines of logs: what terminals and launchers add to the lines of a program.

Launchers write the rank, the host or the time in front of each line, as ``mpirun --tag-output``,
``srun -l``, ``mpiexec -l`` and ``kubectl logs --prefix`` do, and people quote lines. What stands in
front of a line's known text, without the time of day, names the stream that the line belongs to.
"""

import re
from typing import TypeVar

_T = TypeVar("_T")
_MOST_STREAMS = 64
"""The most streams at the same time, so that reading takes time in proportion to the text."""

_TERMINAL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\ufeff")
_TIME = r"(?<!\d)\d{1,2}:\d\d:\d\d(?:[.,]\d+)?(?:\s?[AP]M\b)?"
_DATE = r"\d{4}[-/]\d\d[-/]\d\d(?:T|\s+)"
_ZONE = r"(?:\s?(?:Z|UTC|[+-]\d\d:?\d\d)\b)?"
_DAY = r"(?:\b[A-Z][a-z]{2},?\s+)?\b[A-Z][a-z]{2}\s+\d{1,2}\s+"
_CLOCK = re.compile(
    rf"{_DAY}{_TIME}\s+(?:[A-Z]{{3,4}}\s+)?\d{{4}}(?!\d)|(?:{_DAY}|{_DATE})?{_TIME}{_ZONE}"
    r"|(?<!\d)\d{10}\.\d+"
)
"""The time of day, with the date or not, or seconds since 1970."""

_DECIMALS = re.compile(r"\d+(?:\.(\d*))?")

_UNIT = re.compile(r"(?:\([a-z%]+\)|\[[a-z%]+\]|/sec)$")

_LEADING_CLOCK = re.compile(rf"\s*\[?(?:{_CLOCK.pattern})\]?\s?")

ELIDED = re.compile(
    r"(.{0,200}?)[#\s]{0,80}[\[<(]{0,8}(?:\.{3,}|\u2026|snip|omitted)[\W_]*", re.IGNORECASE
)
"""A line that replaces lines that were cut out, and its prefix."""

_NCCL = re.compile(
    r"(?:\[[\d\-:. ]{8,30}\] )?(?<![\w.-])[\w.-]+:\d+:\d+ \[\d+\] (?:\S+:\d+ )?"
    r"(?:NCCL )?(?:INFO|WARN|TRACE|ABORT)\b.*"
)


def clean(line: str) -> str:
    """Return a line as a terminal shows it: without colours, and with what was written last."""
    return _TERMINAL.sub("", line).rstrip().rpartition("\r")[2]


def before_messages(line: str) -> str:
    """Return the part of a line before a message of NCCL that another thread wrote into it."""
    return _NCCL.sub("", line, count=1) if "] " in line else line


def without_cut_line(text: str) -> str:
    """Return a text without its last line, if the last number of that seems to be cut off.

    The number has fewer decimals than that above it, or than the two that benchmarks print if
    the name of its column, with a unit, is above it.
    """
    head, _, line = text.rpartition("\n")
    before, last = head.rstrip().rpartition("\n")[2].split(), line.split()
    if not before or not last:
        return text
    decimals = _decimals(last[-1])
    usual = _decimals(before[-1]) if len(before) == len(last) else None
    if usual is None and _UNIT.search(before[-1]):
        usual = 2
    cut = decimals is not None and usual is not None and decimals < usual
    return head if cut else text


def _decimals(text: str) -> int | None:
    """Return the number of decimals of a number, or None."""
    match = _DECIMALS.fullmatch(text)
    return len(match[1] or "") if match else None


def leading_clock(line: str) -> int:
    """Return where the time of day at the start of a line ends, or 0."""
    match = _LEADING_CLOCK.match(line)
    return match.end() if match else 0


def clock_end(line: str) -> int:
    """Return where the last time of day in a line ends, or 0."""
    return max((match.end() for match in _CLOCK.finditer(line)), default=0)


def stream(prefix: str) -> str:
    """Return the name of the stream whose lines have a prefix."""
    return " ".join(_CLOCK.sub(" ", prefix).split()) if prefix.strip() else ""


def begin(streams: dict[str, _T], prefix: str, run: _T) -> None:
    """Let a run continue in the stream of a prefix, and forget old streams."""
    streams.pop(stream(prefix), None)
    streams[stream(prefix)] = run
    if len(streams) > _MOST_STREAMS:
        del streams[next(iter(streams))]


def without(prefix: str, line: str) -> str | None:
    """Return a line without a prefix, whose times may differ; None if the line does not have it."""
    if not prefix.strip():
        return line
    parts = [r"\s*".join(map(re.escape, part.split())) for part in _CLOCK.split(prefix)]
    match = re.match(r"\s*" + rf"\s*(?:{_CLOCK.pattern})\s*".join(parts), line)
    return line[match.end() :] if match else None
