"""Loops of XLA: the number of their iterations, and the slices that they read and write."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from collir.importing.hlo.text import HloComputation, HloInstruction, HloModule

MOST_TIMES = 10**6
"""The most iterations of a loop whose length is counted."""


@dataclass(frozen=True)
class HloLoop:
    """A loop of a known length.

    Attributes:
        reads: the instructions that read a slice of a carry, each with the carry.
        writes: the instructions that write a slice, each with the carry.
        reverse: whether the last slice comes first.
        counter: the carry that counts the iterations, if it is known.
    """

    body: HloComputation
    times: int
    reads: Mapping[HloInstruction, int]
    writes: Mapping[HloInstruction, int]
    reverse: bool
    counter: int | None = None

    @property
    def sliced(self) -> set[int]:
        """The carries that are read slice by slice."""
        return set(self.reads.values())

    @property
    def stacked(self) -> set[int]:
        """The carries that are written slice by slice."""
        return set(self.writes.values())


def loop_of(module: HloModule, x: HloInstruction) -> HloLoop | None:
    """Return a loop, or None if it is not known how often it runs."""
    body = module.computations[x.attributes["body"].strip("%")]
    condition = module.computations[x.attributes["condition"].strip("%")]
    times = times_of(x, condition)
    if times is None:
        return None
    counter = _counter(condition)
    carries = _carries(body)
    if counter is None:
        return HloLoop(body, times, {}, {}, False)
    reads: dict[HloInstruction, int] = {}
    writes: dict[HloInstruction, int] = {}
    orders: dict[int, set[str]] = {}
    for y in body.instructions:
        is_read, is_write = y.opcode == "dynamic-slice", y.opcode == "dynamic-update-slice"
        if not (is_read or is_write):
            continue
        source = carries.get(y.operands[0])
        slice_of = y.shape if is_read else body.by_name[y.operands[1]].shape
        starts = y.operands[1:] if is_read else y.operands[2:]
        whole = body.by_name[y.operands[0]].shape.sizes
        order = _order(body, carries, counter, starts, times) if source is not None else ""
        if order and whole[:1] == (times,) and slice_of.sizes == (1, *whole[1:]):
            assert source is not None
            (reads if is_read else writes)[y] = source
            orders.setdefault(source, set()).add(order)
    known = {order for own in orders.values() for order in own}
    kept = {
        n for n, own in orders.items() if len(own) == 1 and _only(body, carries, n, reads, writes)
    }
    if len(known) > 1:  # the body has one direction
        kept = set[int]()
    return HloLoop(
        body,
        times,
        {y: n for y, n in reads.items() if n in kept},
        {y: n for y, n in writes.items() if n in kept},
        known == {"reverse"} and bool(kept),
        counter,
    )


def times_of(x: HloInstruction, condition: HloComputation) -> int | None:
    """Return how often a loop runs: as XLA says, or below which constant its counter stays."""
    said = re.search(r'known_trip_count[^0-9]*"?(\d+)', x.attributes.get("backend_config", ""))
    if said is not None:
        return int(said[1])
    root = condition.result
    if root.opcode != "compare" or root.attributes.get("direction") != "LT":
        return None
    bound = condition.by_name.get(root.operands[1])
    while bound is not None and bound.opcode in ("copy", "convert"):
        bound = condition.by_name.get(bound.operands[0])
    if bound is None or bound.opcode != "constant" or not bound.inside.isdigit():
        return None
    return int(bound.inside)


def _counter(condition: HloComputation) -> int | None:
    """Return the carry that the condition compares."""
    root = condition.result
    own = condition.by_name.get(root.operands[0]) if root.operands else None
    while own is not None and own.opcode in ("copy", "convert"):
        own = condition.by_name.get(own.operands[0])
    if own is None or own.opcode != "get-tuple-element":
        return None
    return own.numbers("index")[0]


def _carries(body: HloComputation) -> dict[str, int]:
    """Return the carry that each instruction is, if it is one as it comes in."""
    carries: dict[str, int] = {}
    [parameter] = [x for x in body.instructions if x.opcode == "parameter"]
    for x in body.instructions:
        if x.opcode == "get-tuple-element" and x.operands == (parameter.name,):
            carries[x.name] = x.numbers("index")[0]
        elif x.opcode == "copy" and x.operands[0] in carries:
            carries[x.name] = carries[x.operands[0]]
    return carries


def _only(
    body: HloComputation, carries: Mapping[str, int], number: int,
    reads: Mapping[HloInstruction, int], writes: Mapping[HloInstruction, int],
) -> bool:  # fmt: skip
    """Return whether a carry is only read slice by slice, or only written so."""
    own = {name for name, n in carries.items() if n == number}
    mine = [y for y, n in (*reads.items(), *writes.items()) if n == number]
    is_written = any(y in writes for y in mine)
    if is_written and len(mine) != 1:
        return False
    result = body.result.operands
    behind = result[number] if body.result.opcode == "tuple" else ""
    if behind not in ({mine[0].name} if is_written else own):
        return False
    for x in body.instructions:
        if x in mine or x.name in own or x is body.result:
            continue
        if own.intersection(x.operands) or (is_written and mine[0].name in x.operands):
            return False
    return result.count(behind) == 1 and all(
        name not in own for place, name in enumerate(result) if place != number
    )


def _order(
    body: HloComputation,
    carries: Mapping[str, int],
    counter: int,
    starts: tuple[str, ...],
    times: int,
) -> str:
    """Return whether a slice begins at the number of the iteration, or at that from the end."""
    samples = sorted({0, min(1, times - 1), times - 1})
    places: list[int] = []
    for number in samples:
        rows = [_number(body, carries, counter, name, number) for name in starts]
        if any(n != 0 for n in rows[1:]) or rows[0] is None:
            return ""
        places.append(rows[0])
    if places == samples:
        return "forward"
    return "reverse" if places == [times - 1 - n for n in samples] else ""


def _number(
    body: HloComputation, carries: Mapping[str, int], counter: int, name: str, iteration: int
) -> int | None:
    """Return the number that an instruction gives in an iteration; None if it is not known."""
    known: dict[str, int | None] = {}
    stack = [name]
    while stack:
        own = body.by_name[stack[-1]]
        if own.name in known:
            stack.pop()
        elif carries.get(own.name) == counter:
            known[own.name] = iteration
        elif own.opcode == "constant":
            text = own.inside.replace("true", "1").replace("false", "0")
            known[own.name] = int(text) if re.fullmatch(r"-?\d+", text) else None
        elif own.opcode not in _NUMBERS:
            known[own.name] = None
        elif missing := [x for x in own.operands if x not in known]:
            stack += missing
        else:
            numbers = [n for n in (known[x] for x in own.operands) if n is not None]
            is_known = len(numbers) == len(own.operands)
            known[own.name] = _NUMBERS[own.opcode](own, numbers) if is_known else None
    return known[name]


def _compared(x: HloInstruction, numbers: list[int]) -> int:
    a, b = numbers
    signs = {"LT": a < b, "LE": a <= b, "GT": a > b, "GE": a >= b, "EQ": a == b, "NE": a != b}
    return int(signs[x.attributes["direction"]])


_NUMBERS: dict[str, Callable[[HloInstruction, list[int]], int]] = {
    "add": lambda x, n: n[0] + n[1],
    "subtract": lambda x, n: n[0] - n[1],
    "multiply": lambda x, n: n[0] * n[1],
    "copy": lambda x, n: n[0],
    "convert": lambda x, n: n[0],
    "bitcast": lambda x, n: n[0],
    "reshape": lambda x, n: n[0],
    "select": lambda x, n: n[1] if n[0] else n[2],
    "compare": _compared,
    "clamp": lambda x, n: min(max(n[0], n[1]), n[2]),
}
"""The numbers of instructions on numbers."""
