"""The page of ``collir compare TRACE... PROGRAM``: a run and its prediction on one scale."""

from collections.abc import Iterator
from typing import Any

from collir.importing.traces.compared import Compared
from collir.importing.traces.trace import RankTrace, Span
from collir.targets.reports.page.data import MOST_STEPS, StepRow
from collir.targets.reports.page.target import Section, Shown, page
from collir.tools.trace_output import sentences, tables

_MOST_RANKS = 8
"""The most ranks of the timeline: those that are waited for, then the first ones."""

_MOST_ROWS = 500
"""The most rows of a table."""


def html(compared: Compared, file: str) -> str:
    """Return the page.

    Args:
        file: that of the program.

    Raises:
        DiagnosticError: jinja2 is not installed.
    """
    sections = [*_sections(compared)]
    ran = _timeline(compared)
    titles = "Timeline of the trace", "Timeline of the prediction"
    shown = Shown(compared.simulation, sentences=[*sentences(compared)], sections=sections,
                  beside=(ran, *titles))  # fmt: skip
    return page([shown], file)


def _sections(compared: Compared) -> Iterator[Section]:
    for title, columns, rows in tables(compared):
        if not rows:
            continue
        left = len(rows) - _MOST_ROWS
        lines = [f"... and {left} more (--json has all)"] if left > 0 else []
        yield Section(title, columns, rows[:_MOST_ROWS], lines)
    if compared.remarks:
        yield Section("Remarks", [""], [[x] for x in compared.remarks])


def _timeline(compared: Compared) -> dict[str, Any]:
    """Return a step of training of the ranks, as a page has timelines: the last step."""
    late = [x.rank for x in compared.late]
    order = sorted(compared.trace.ranks, key=lambda x: (x.rank not in late, x.rank))
    ranks = sorted(order[:_MOST_RANKS], key=lambda x: x.rank)
    windows = {x.rank: compared.steps[x.rank][compared.count - 1][0] for x in ranks}
    begin = min(x.start for x in windows.values())
    end = max(x.end for x in windows.values())
    rows: list[StepRow] = []
    lanes: list[str] = []
    for number, rank in enumerate(ranks):
        lanes += [f"rank {rank.rank}", f"  {rank.rank} sends"]
        rows += _rows(rank, windows[rank.rank], begin, 2 * number)
    longest = sorted(rows, key=lambda x: x.start - x.end)[:MOST_STEPS]
    longest.sort(key=lambda x: x.start)
    return {
        "name": compared.simulation.name,
        "time": end - begin,
        "bound": 0.0,
        "lanes": lanes,
        "steps": longest,
        "left_out": len(rows) - len(longest),
        "exposed": [],
        "bodies": [],
    }


def _rows(rank: RankTrace, window: Span, begin: float, lane: int) -> Iterator[StepRow]:
    """Yield what a rank ran in a step of training."""
    for span in rank.work.spans():
        if window.start <= span.start < window.end:
            yield _row(span.name, "", 0.0, span.start - begin, span.end - begin, lane)
    for each in rank.collectives:
        if window.start <= each.start < window.end:
            start, end = each.start - begin, each.end - begin
            yield _row(each.label, each.kind, each.size, start, end, lane + 1)


def _row(name: str, over: str, size: float, start: float, end: float, lane: int) -> StepRow:
    return StepRow(name, "", over, "", size, start, end, end - start, lane, 0, 0, -1, [], "")
