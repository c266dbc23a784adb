"""What ``collir search`` prints: the outcome of a search, for people and for programs."""

import json
import math
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from collir.search.core.problem import Number
from collir.search.running.results import Decision, Enumeration, Optimum, Solution, Statistics

Outcome = Optimum[Any] | Decision[Any] | Enumeration[Any]


def as_json(outcome: Outcome, what: str) -> str:
    """The outcome as a JSON object; what is unknown is null."""
    found: dict[str, Any] = {"status": outcome.status}
    match outcome:
        case Optimum():
            found["value"] = outcome.best.value if outcome.best else None
            found["solutions"] = [_as_object(one) for one in outcome.solutions]
            found["bound"] = _finite(outcome.bound)
            found["gap"] = _finite(outcome.gap)
        case Decision():
            found["solution"] = _as_object(outcome.solution) if outcome.solution else None
        case Enumeration():
            found["counted"] = what
            found["total"] = outcome.total
    return json.dumps(found | {"statistics": asdict(outcome.statistics)}, indent=2, default=str)


def _as_object(one: Solution[Any]) -> dict[str, Any]:
    return {"value": one.value, "solution": one.shown}


def _finite(number: Number | None) -> Number | None:
    return number if number is not None and math.isfinite(number) else None


def as_text(outcome: Outcome, what: str) -> str:
    """The outcome in a few lines."""
    return "\n".join([*_lines(outcome, what), _statistics(outcome.statistics)])


def _lines(outcome: Outcome, what: str) -> Iterable[str]:
    match outcome:
        case Optimum():
            return _optimum(outcome)
        case Decision():
            return _decision(outcome)
        case Enumeration():
            return _enumeration(outcome, what)


def _state(outcome: Outcome) -> str:
    """The status, and why the search ended early if it did."""
    reason = outcome.statistics.reason
    return f"{outcome.status} ({reason})" if reason and reason != outcome.status else outcome.status


def _optimum(outcome: Optimum[Any]) -> Iterable[str]:
    if outcome.best is None:
        known = outcome.status == "infeasible"
        yield f"{_state(outcome)}: " + (
            "there is no solution" if known else "no solution found yet"
        )
        return
    yield f"{_state(outcome)}: {outcome.best.value}"
    if outcome.status != "optimal" and (bound := _finite(outcome.bound)) is not None:
        gap = "" if outcome.gap is None else f", a gap of {outcome.gap:.1%}"
        yield f"  no solution is better than {bound}{gap}"
    for one in outcome.solutions:
        several = f"{one.value}: " if len(outcome.solutions) > 1 else ""
        yield f"  {several}{_plain(one.shown)}"


def _decision(outcome: Decision[Any]) -> Iterable[str]:
    if outcome.solution:
        yield f"{_state(outcome)}: {outcome.solution.value}"
        yield f"  {_plain(outcome.solution.shown)}"
        return
    known = outcome.status == "infeasible"
    yield f"{_state(outcome)}: " + ("there is no solution" if known else "no solution found yet")


def _enumeration(outcome: Enumeration[Any], what: str) -> Iterable[str]:
    so_far = "" if outcome.status == "complete" else " so far"
    yield f"{_state(outcome)}: {_plain(outcome.total)} {what}{so_far}"


def _plain(shown: Any) -> str:
    """A solution in a line: names with what they stand for, lists without brackets."""
    if isinstance(shown, dict):
        return "; ".join(f"{key} {_plain(value)}" for key, value in shown.items())  # pyright: ignore[reportUnknownVariableType]
    if isinstance(shown, list | tuple):
        return " ".join(_item(item) for item in shown)  # pyright: ignore[reportUnknownVariableType]
    return str(shown)


def _item(item: Any) -> str:
    if isinstance(item, list | tuple):
        return "->".join(map(str, item))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return str(item)


def _statistics(found: Statistics) -> str:
    """What it took, without what did not happen."""
    parts = [f"{found.nodes} nodes"]
    parts += [f"{found.pruned} pruned"] * bool(found.pruned)
    parts += [f"{found.dominated} dominated"] * bool(found.dominated)
    parts += [f"{found.tasks} tasks"] * (found.tasks > 1)
    parts += [f"{found.lost} workers lost"] * bool(found.lost)
    where = f"{found.engine}, " if found.engine else ""
    workers = f"{where}{found.workers} worker{'s' * (found.workers > 1)}"
    return f"{', '.join(parts)} in {found.seconds:.2f} s ({workers})"
