"""The page of ``collir search --html``: the outcome of a search, and its profile."""

import os
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from collir.search.core.coordination import COORDINATIONS
from collir.search.core.tasks import SearchProfile
from collir.search.running.profiling import recommend
from collir.search.running.results import Decision, Enumeration, Optimum, Solution, Status
from collir.syntax.units import seconds_text
from collir.targets.reports.page.rendered import rendered
from collir.targets.reports.page.tables import HtmlCell
from collir.tools.search_output import Outcome, finite, plain

MOST_SOLUTIONS = 1_000
"""The most solutions of a page: the best ones."""

MOST_TASKS = 5_000
"""The most tasks of a chart: the longest ones."""

COUNTS = ("nodes", "pruned", "dominated", "backtracks")
"""The counts of a profile for each depth."""


@dataclass(frozen=True)
class PageTable:
    """A table of a page."""

    columns: Sequence[str]
    rows: Sequence[Sequence[HtmlCell]]


def html(outcome: Outcome, title: str = "", noun: str = "") -> str:
    """Return the page of a search.

    Args:
        title: the search in a few words.
        noun: the counted things, in the plural.

    Raises:
        DiagnosticError: jinja2 is not installed.
    """
    profile = outcome.profile if outcome.profile and outcome.profile.nodes else None
    solutions = _solutions(outcome)
    data: dict[str, Any] = {
        "title": title or f"{type(outcome).__name__} of a search",
        "lines": [],
        "sentences": [*_sentences(outcome, noun)],
        "depths": _depths(profile) if profile else [],
        "tasks": _longest(profile) if profile else [],
        "accuracy": [],
    }
    return rendered(
        "search",
        data,
        styles=["points"],
        solutions=_listed(solutions),
        more=max(0, len(solutions) - MOST_SOLUTIONS),
        depths=_by_depth(data["depths"]),
        tasks=_tasks(profile) if profile and len(profile.tasks) > 1 else None,
        counts=_statistics(outcome),
        advice=advice(outcome) if profile else None,
    )


@dataclass(frozen=True)
class Advice:
    """A way to divide a search, as an option of the command, and the reason for it."""

    workers: int
    option: str
    reason: str

    def __str__(self) -> str:
        return f"for {self.workers} workers: {self.option} ({self.reason})"


def advice(outcome: Outcome) -> Advice:
    """Return how a search like a profiled one is best divided.

    Raises:
        SearchError: the search was not profiled.
    """
    workers = max(outcome.statistics.workers, os.cpu_count() or 1)
    recommended = recommend(outcome, workers)
    kind = type(recommended.coordination)
    name = next(name for name, made in COORDINATIONS.items() if made is kind)
    number = next(iter(asdict(recommended.coordination).values()))
    return Advice(workers, f"--coordination {name}={number}", recommended.reason)


_ANSWERS: dict[Status, str] = {
    "optimal": "The best solution was found.",
    "feasible": "A solution was found.",
    "infeasible": "There is no solution.",
    "complete": "All nodes were visited.",
    "interrupted": "The search ended without an answer.",
}


def _sentences(outcome: Outcome, noun: str) -> Iterator[str]:
    counts = outcome.statistics
    match outcome:
        case Optimum() if outcome.best is not None:
            yield _optimum(outcome)
        case Decision() if outcome.solution is not None:
            yield f"A solution reaches the target: its value is {outcome.solution.value}."
        case Enumeration():
            so_far = "" if outcome.status == "complete" else " so far"
            yield f"{plain(outcome.total)} {noun or 'in all'}{so_far}"
            yield _ANSWERS[outcome.status]
        case _:
            yield _ANSWERS[outcome.status]
    if counts.reason and counts.reason != outcome.status:
        yield f"The search ended early: {counts.reason}."
    engine = f" ({counts.engine})" if counts.engine else ""
    several = "s" * (counts.workers > 1)
    yield (
        f"{counts.nodes:,} nodes were visited in {seconds_text(counts.seconds)} by "
        f"{counts.workers} worker{several}{engine}; the deepest has depth {counts.deepest}."
    )


def _optimum(outcome: Optimum[Any]) -> str:
    """Return the sentence of the best value, its bound and its gap."""
    assert outcome.best is not None
    value, bound = outcome.best.value, finite(outcome.bound)
    if outcome.status == "optimal":
        return f"The best value is {value}: no solution is better, so the gap is 0."
    if bound is None:
        return f"The best value so far is {value}; how much better others may be is not known."
    gap = "" if outcome.gap is None else f", a gap of {outcome.gap:.1%}"
    return f"The best value so far is {value}; no solution is better than {bound}{gap}."


def _solutions(outcome: Outcome) -> Sequence[Solution[Any]]:
    match outcome:
        case Optimum():
            return outcome.solutions
        case Decision():
            return [outcome.solution] if outcome.solution else []
        case Enumeration():
            return []


def _listed(solutions: Sequence[Solution[Any]]) -> list[list[HtmlCell]]:
    """Return the rows of solutions: their places, values and texts."""
    rows: list[list[HtmlCell]] = []
    for number, solution in enumerate(solutions[:MOST_SOLUTIONS], 1):
        shown = solution.node if solution.shown is None else solution.shown
        value = HtmlCell(str(solution.value), finite(solution.value))
        rows.append([HtmlCell(str(number), number), value, HtmlCell(plain(shown))])
    return rows


def _depths(profile: SearchProfile) -> list[dict[str, Any]]:
    """Return the counts that are not 0 at all depths, each with its name."""
    length = max(len(getattr(profile, name)) for name in COUNTS)
    counts = {name: getattr(profile, name) for name in COUNTS}
    return [
        {"name": name, "counts": [*own, *[0] * (length - len(own))]}
        for name, own in counts.items()
        if any(own)
    ]


def _by_depth(depths: Sequence[dict[str, Any]]) -> PageTable | None:
    if not depths:
        return None
    rows = [
        [HtmlCell(str(depth), depth), *(HtmlCell(f"{count:,}", count) for count in own)]
        for depth, own in enumerate(zip(*(each["counts"] for each in depths), strict=True))
    ]
    return PageTable(["depth", *(each["name"] for each in depths)], rows)


def _longest(profile: SearchProfile) -> list[list[float]]:
    """Return the depth and the seconds of the longest tasks."""
    longest = sorted(profile.tasks, key=lambda task: -task[1])[:MOST_TASKS]
    return [[depth, seconds] for depth, seconds, _ in longest]


def _tasks(profile: SearchProfile) -> PageTable:
    """Return what tasks took, by the depth of their roots."""
    own: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for depth, seconds, nodes in profile.tasks:
        own[depth].append((seconds, nodes))
    rows: list[list[HtmlCell]] = []
    for depth, tasks in sorted(own.items()):
        times = [seconds for seconds, _ in tasks]
        took = (sum(times), statistics.median(times), max(times))
        nodes = sum(count for _, count in tasks)
        rows.append(
            [
                HtmlCell(str(depth), depth),
                HtmlCell(f"{len(tasks):,}", len(tasks)),
                *(HtmlCell(seconds_text(seconds), seconds) for seconds in took),
                HtmlCell(f"{nodes:,}", nodes),
            ]
        )
    return PageTable(["depth of root", "tasks", "in all", "median", "longest", "nodes"], rows)


def _statistics(outcome: Outcome) -> PageTable:
    rows: list[list[HtmlCell]] = []
    for name, value in asdict(outcome.statistics).items():
        if name == "seconds":
            rows.append([HtmlCell("time"), HtmlCell(seconds_text(value), value)])
        elif isinstance(value, int):
            rows.append([HtmlCell(name), HtmlCell(f"{value:,}", value)])
        elif value:
            rows.append([HtmlCell(name), HtmlCell(str(value))])
    return PageTable(["count", "value"], rows)
