"""Collectives of XLA, by the names and texts of their operations."""

import math
import re
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from collir.importing.traces.loose import text
from collir.importing.traces.names import full_size, item_size, kind_of
from collir.importing.traces.trace import Span, TracedCollective

_COPY = r"(?:\.(?:\d+|clone|remat\w*))*"
_WORDS = (
    r"(?:ragged-)?(?:all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute|"
    r"collective-broadcast|send|recv)(?:-scatter)?(-start|-done)?"
)
_NAME = re.compile(_WORDS + _COPY)
"""A collective by its name or category in HLO; a ``reduce`` is a reduction of a device."""

CONTAINER = re.compile(r"(?:while|call|conditional|async-(?:start|update|done))" + _COPY)
"""Operations that consist of others."""

_OPERATION = re.compile(rf"(?<=\s){_WORDS}\(")
_ARRAY = re.compile(r"([a-z][a-z0-9]{1,14})\[([0-9,]{0,200})\]")
_LISTED = re.compile(r"replica_groups=\{\{([0-9, ]+)\}")
_TABLE = re.compile(r"replica_groups=\[\d{1,9},(\d{1,9})\]<=")


class XlaCollective(NamedTuple):
    """A collective, or one end of one that runs beside others.

    Attributes:
        phase: ``-start``, ``-done``, or nothing.
    """

    phase: str
    name: str
    collective: TracedCollective


def operation_of(span: Span, arguments: Mapping[str, Any], stream: str) -> XlaCollective | None:
    """Return the collective that an operation of HLO is, if it is one."""
    name = text(arguments.get("hlo_op")) or span.name
    match = _NAME.fullmatch(name) or _NAME.fullmatch(text(arguments.get("hlo_category")))
    if match is None:
        return None
    kind, phase = kind_of(match[0]), match[1] or ""
    size, ranks = _described(text(arguments.get("long_name")), kind, phase)
    made = TracedCollective(
        kind, name, size, span.start, span.end, span.start, stream, group_size=ranks
    )
    return XlaCollective(phase, name, made)


def _described(written: str, kind: str, phase: str) -> tuple[float, int]:
    """Return the bytes of the full buffer and the number of ranks of a group, or 0 for what the
    text of an operation does not say."""
    ranks = 0
    if match := _TABLE.search(written):
        ranks = int(match[1])
    elif match := _LISTED.search(written):
        ranks = match[1].count(",") + 1
    opening = _OPERATION.search(written)
    if opening is None:
        return 0.0, ranks
    received = _bytes(written[: opening.start()])
    sent = _bytes(written[opening.end() :].partition(")")[0])
    if phase and kind in ("all_gather", "permute"):  # its result has its operands too
        received -= sent
    if kind == "reduce_scatter" and not sent:
        received *= ranks
    return full_size(kind, max(0.0, received), sent), ranks


def _bytes(written: str) -> float:
    """Return the bytes of the arrays that are in a text."""
    return float(sum(
        item_size(dtype) * math.prod(int(x) for x in sizes.split(",") if x)
        for dtype, sizes in _ARRAY.findall(written)
    ))  # fmt: skip


def paired(operations: Sequence[XlaCollective]) -> Iterator[TracedCollective]:
    """Yield collectives, from where they start to where they are done."""
    waiting: dict[str, deque[XlaCollective]] = defaultdict(deque)
    for operation in sorted(operations, key=lambda x: x.collective.start):
        made = operation.collective
        if operation.phase == "-start":
            waiting[made.kind].append(operation)
        elif operation.phase == "-done" and (queue := waiting[made.kind]):
            named = operation.name.replace("-done", "-start")
            start = next((x for x in queue if x.name == named), queue[0])
            queue.remove(start)
            start.collective.end = max(start.collective.end, made.end)
            yield start.collective
        else:
            yield made
    for queue in waiting.values():
        yield from (x.collective for x in queue)
