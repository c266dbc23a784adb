"""The output of ``collir search``: the outcome of a search, for people and for programs."""

import json
import math
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from collir.search.core.problem import Number
from collir.search.running.results import Decision, Enumeration, Optimum, Solution, Statistics

Outcome = Optimum[Any] | Decision[Any] | Enumeration[Any]


def as_json(outcome: Outcome, noun: str) -> str:
    """Return the outcome as a JSON object; unknown values are null."""
    fields: dict[str, Any] = {"status": outcome.status}
    match outcome:
        case Optimum():
            fields["value"] = outcome.best.value if outcome.best else None
            fields["solutions"] = [_as_object(solution) for solution in outcome.solutions]
            fields["bound"] = finite(outcome.bound)
            fields["gap"] = finite(outcome.gap)
        case Decision():
            fields["solution"] = _as_object(outcome.solution) if outcome.solution else None
        case Enumeration():
            fields["counted"] = noun
            fields["total"] = outcome.total
    return json.dumps(fields | {"statistics": asdict(outcome.statistics)}, indent=2, default=str)


def _as_object(solution: Solution[Any]) -> dict[str, Any]:
    return {"value": solution.value, "solution": solution.shown}


def finite(number: Number | None) -> Number | None:
    """Return a number if it is known and finite, else None."""
    return number if number is not None and math.isfinite(number) else None


def as_text(outcome: Outcome, noun: str) -> str:
    """Return the outcome in a few lines."""
    return "\n".join([*_lines(outcome, noun), _statistics(outcome.statistics)])


def _lines(outcome: Outcome, noun: str) -> Iterable[str]:
    match outcome:
        case Optimum():
            return _optimum(outcome)
        case Decision():
            return _decision(outcome)
        case Enumeration():
            return _enumeration(outcome, noun)


def _state(outcome: Outcome) -> str:
    """Return the status, and why the search ended early if it did."""
    reason = outcome.statistics.reason
    return f"{outcome.status} ({reason})" if reason and reason != outcome.status else outcome.status


def _optimum(outcome: Optimum[Any]) -> Iterable[str]:
    if outcome.best is None:
        infeasible = outcome.status == "infeasible"
        yield f"{_state(outcome)}: " + (
            "there is no solution" if infeasible else "no solution found yet"
        )
        return
    yield f"{_state(outcome)}: {outcome.best.value}"
    if outcome.status != "optimal" and (bound := finite(outcome.bound)) is not None:
        gap = "" if outcome.gap is None else f", a gap of {outcome.gap:.1%}"
        yield f"  no solution is better than {bound}{gap}"
    for solution in outcome.solutions:
        several = f"{solution.value}: " if len(outcome.solutions) > 1 else ""
        yield f"  {several}{plain(solution.shown)}"


def _decision(outcome: Decision[Any]) -> Iterable[str]:
    if outcome.solution:
        yield f"{_state(outcome)}: {outcome.solution.value}"
        yield f"  {plain(outcome.solution.shown)}"
        return
    infeasible = outcome.status == "infeasible"
    yield f"{_state(outcome)}: " + (
        "there is no solution" if infeasible else "no solution found yet"
    )


def _enumeration(outcome: Enumeration[Any], noun: str) -> Iterable[str]:
    so_far = "" if outcome.status == "complete" else " so far"
    yield f"{_state(outcome)}: {plain(outcome.total)} {noun}{so_far}"


def plain(shown: Any) -> str:
    """Return a solution in a line: names with their values, lists without brackets."""
    if isinstance(shown, dict):
        return "; ".join(f"{key} {plain(value)}" for key, value in shown.items())  # pyright: ignore[reportUnknownVariableType]
    if isinstance(shown, list | tuple):
        return " ".join(_item(item) for item in shown)  # pyright: ignore[reportUnknownVariableType]
    return str(shown)


def _item(item: Any) -> str:
    if isinstance(item, list | tuple):
        return "->".join(map(str, item))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return str(item)


def _statistics(statistics: Statistics) -> str:
    """Return the statistics in a line; counts of zero are left out."""
    parts = [f"{statistics.nodes} nodes"]
    parts += [f"{statistics.pruned} pruned"] * bool(statistics.pruned)
    parts += [f"{statistics.dominated} dominated"] * bool(statistics.dominated)
    parts += [f"{statistics.tasks} tasks"] * (statistics.tasks > 1)
    parts += [f"{statistics.lost} workers lost"] * bool(statistics.lost)
    engine = f"{statistics.engine}, " if statistics.engine else ""
    workers = f"{engine}{statistics.workers} worker{'s' * (statistics.workers > 1)}"
    return f"{', '.join(parts)} in {statistics.seconds:.2f} s ({workers})"
