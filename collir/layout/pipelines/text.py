"""Schedules as they are written: the name of a rule, or the tasks of each place in order.

    F0.0 F0.1 B0.0 B0.1; F1.0 B1.0 F1.1 B1.1

Places are separated by semicolons or line ends; what follows ``#`` on a line is a comment.
"""

import re
from collections.abc import Sequence

from collir.layout.pipelines.rules import RULES
from collir.layout.pipelines.schedule import Schedule
from collir.layout.pipelines.tasks import Part, parse_task


def schedule_of_text(
    text: str, chunk_places: Sequence[int], iterations: int, splits_backward: bool
) -> Schedule:
    """Return the schedule that a text names, or lists.

    Args:
        text: the name of a rule, or tasks.
        chunk_places: the place of each chunk of the program.
        iterations: the number of microbatches, of each direction if a rule has two.
        splits_backward: whether the program has W tasks.

    Raises:
        ValueError: there is no such rule, it does not fit the program, or a word is no task.
    """
    if "." in text:
        return listed_schedule(text, iterations)
    if text not in RULES:
        raise ValueError(
            f"there is no schedule {text}: use {', '.join(RULES)}, or list the tasks of each "
            "place, as in F0.0 B0.0; F1.0 B1.0"
        )
    rule = RULES[text]
    places = max(chunk_places, default=0) + 1
    chunks = max(1, round(len(chunk_places) / places))
    if tuple(chunk_places) != rule.chunk_places(places, chunks):
        expected = ", ".join(map(str, rule.chunk_places(places, rule.chunks or chunks)))
        listed = ", ".join(map(str, chunk_places))
        raise ValueError(f"{text} has its chunks at places {expected}, and these are at {listed}")
    splits = splits_backward if splits_backward in rule.splits else None
    return rule.schedule(places, iterations * rule.directions, chunks, splits)


def listed_schedule(text: str, iterations: int) -> Schedule:
    """Return the schedule that a text lists.

    Raises:
        ValueError: a word is no task.
    """
    rows = re.split(r"[;\n]", re.sub(r"#[^\n]*", "", text))
    orders = tuple(tuple(map(parse_task, row.split())) for row in rows if row.split())
    return Schedule(orders, iterations, any(task.kind == "W" for order in orders for task in order))


def schedule_text(schedule: Schedule) -> str:
    """Return a schedule as the tasks of its places."""
    return "; ".join(" ".join(map(str, order)) for order in schedule.orders)


def part_of_text(text: str) -> Part:
    """Return the kind and the chunk that are written as ``F0``.

    Raises:
        ValueError: the text is none of these.
    """
    try:
        return parse_task(f"{text}.0").part
    except ValueError:
        message = f"'{text}' is no name of a task: it is F, B or W and the chunk, as in F0"
        raise ValueError(message) from None
