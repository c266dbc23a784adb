"""Collectives of a group, on blocks that lie one behind the other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from collir.dialects.local import StartOp
from collir.layout import Reduction
from collir.layout.operation_table import OperationTable
from collir.semantics.reference.collectives import Array, combine

_FIRST = "first"
"""A stand-in for a property that a collective lacks: 0."""

Parts = Sequence[Array | None]
"""The operands of the ranks of a group, in order; None where one has none."""

Counts = Sequence[Sequence[int]]
"""For each rank of a group the elements of the blocks that leave it; nothing if all are equal."""


def combined(op: StartOp, parts: Parts) -> Array:
    """Return the reduction of the operands."""
    reduction = op.operation
    assert isinstance(reduction, Reduction)
    return combine([x for x in parts if x is not None], reduction)


def _all_of(parts: Parts) -> Array:
    return np.concatenate([x for x in parts if x is not None])


def _cut(x: Array | None, count: int, sizes: Sequence[int]) -> list[Array]:
    assert x is not None
    return np.split(x, np.cumsum(sizes)[:-1] if sizes else count)


def _at(number: int, x: Array, count: int) -> list[Array | None]:
    return [x if place == number else None for place in range(count)]


def _all_to_all(op: StartOp, parts: Parts, counts: Counts) -> Parts:
    cut = [_cut(x, len(parts), own) for x, own in zip(parts, counts, strict=True)]
    return [np.concatenate([blocks[place] for blocks in cut]) for place in range(len(parts))]


def _sent(op: StartOp, parts: Parts, _: Counts) -> Parts:
    if op.peers is not None:
        return [None if x == place else parts[x] for place, x in enumerate(op.senders)]
    x = parts[op.number("sender")]
    assert x is not None
    return _at(op.number("receiver"), x, len(parts))


def _shifted(op: StartOp, parts: Parts, _: Counts) -> Parts:
    count, moved = len(parts), list[Array | None]()
    for place, own in enumerate(parts):
        source = place - op.number("distance")
        assert own is not None
        lost = op.open is not None and not 0 <= source < count
        moved.append(np.zeros_like(own) if lost else parts[source % count])
    return moved


@dataclass(frozen=True)
class GroupMeaning:
    """The meaning of a collective in a group.

    Attributes:
        run: a function from the operands of all ranks, as flat arrays, and the sizes of the blocks
            that leave them, to their results.
        sender: the number of the only rank with an operand; None: all ranks have one.
        receiver: the number of the only rank with a result; None: all ranks get one.
    """

    run: Callable[[StartOp, Parts, Counts], Parts]
    sender: str | None = None
    receiver: str | None = None


GROUPS: OperationTable[GroupMeaning] = OperationTable(
    "GROUPS",
    __name__,
    {
        "all_reduce": GroupMeaning(lambda op, parts, _: [combined(op, parts)] * len(parts)),
        "reduce": GroupMeaning(
            lambda op, parts, _: _at(0, combined(op, parts), len(parts)), receiver=_FIRST
        ),
        "broadcast": GroupMeaning(
            lambda op, parts, _: [parts[op.number("root")]] * len(parts), sender="root"
        ),
        "reduce_scatter": GroupMeaning(
            lambda op, parts, counts: _cut(combined(op, parts), len(parts), counts[0])
        ),
        "all_gather": GroupMeaning(lambda op, parts, _: [_all_of(parts)] * len(parts)),
        "scatter": GroupMeaning(
            lambda op, parts, counts: _cut(parts[op.number("root")], len(parts), counts[0]),
            sender="root",
        ),
        "gather": GroupMeaning(
            lambda op, parts, _: _at(0, _all_of(parts), len(parts)), receiver=_FIRST
        ),
        "all_to_all": GroupMeaning(_all_to_all),
        "send": GroupMeaning(_sent, "sender", "receiver"),
        "shift": GroupMeaning(_shifted),
    },
    row="its GroupMeaning: what each rank of a group gets from the operands of all",
)
"""The meaning of every collective on blocks that lie one behind the other."""


def reads(op: StartOp, number: int) -> bool:
    """Return whether the rank of a number in a group has an operand."""
    if op.peers is not None:
        return op.receivers[number] != number
    sender = None if op.before else GROUPS[op.called].sender
    return sender is None or op.number(sender) == number


def writes(op: StartOp, number: int) -> bool:
    """Return whether the rank of a number in a group gets a result."""
    if op.peers is not None:
        return op.senders[number] != number
    receiver = None if op.before else GROUPS[op.called].receiver
    return receiver is None or op.number(receiver) == number
