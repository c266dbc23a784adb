"""Loops cut in two: steps that carries need, and steps that only results need (fission).

A carry that iterations only add to can wait for the second loop, as nothing in the loop reads it.
The first loop stacks the values that the second needs, and the second slices them; a minimum cut
selects these values (``crossing``).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from xdsl.ir import Block, Operation, SSAValue

from collir.dialects.nested import RepeatOp, YieldOp
from collir.dialects.operation import DistOp
from collir.ir.fusion import KERNEL, kernel_name
from collir.ir.names import set_name
from collir.ir.roles import pass_role
from collir.layout.coll import ADD
from collir.transforms.loops.crossing import Crossing, is_replicable


@dataclass(frozen=True, eq=False)
class Fission:
    """A loop, with the part that each carry and each operation belongs to.

    Attributes:
        later: the numbers of the carries of the second loop.
        first: the operations that the other carries need.
    """

    loop: RepeatOp
    later: frozenset[int]
    first: frozenset[Operation]

    @staticmethod
    def of(loop: RepeatOp) -> "Fission":
        """Return the parts of a loop.

        A sum of values that the first loop computes anyway stays in the first loop.
        """
        count = len(loop.carried)
        sums = {n: added for n in range(count) if (added := added_terms(loop, n))}
        parts = Fission._with(loop, sums)
        while True:
            later = [n for n in parts.later if not all(map(parts.is_early, sums[n]))]
            if len(later) == len(parts.later):
                return parts
            parts = Fission._with(loop, later)

    @staticmethod
    def _with(loop: RepeatOp, later: Iterable[int]) -> "Fission":
        numbers = frozenset(later)
        early = (n for n in range(len(loop.carried)) if n not in numbers)
        return Fission(loop, numbers, frozenset(_needed(loop, (loop.yielded[n] for n in early))))

    def why_not(self) -> str | None:
        """Return why the loop cannot be cut; None if it can."""
        if self.loop.recompute is not None:
            return "its iterations are computed again as a whole (`recompute`)"
        if not any(map(self._works, self.first)):
            return "its iterations do not wait for each other"
        if not any(map(self._works, self._rest)):
            return "its carries need all that it computes"
        if not any(map(self._works, self.second)):
            return "what its carries do not need takes less memory beside them"
        return None

    def _works(self, op: Operation) -> bool:
        return not is_replicable(op, self.loop)

    # --- what belongs where -------------------------------------------------------------------

    @cached_property
    def _rest(self) -> Sequence[Operation]:
        """The operations that only other results than the early carries need, in order."""
        rest = _needed(self.loop, self.loop.yielded) - self.first
        return [op for op in self.loop.body.block.ops if op in rest]

    @cached_property
    def _crossing(self) -> Crossing:
        carries = [carry for n, carry in enumerate(self.loop.carries) if n not in self.later]
        return Crossing(self.loop, carries, self.first, self._rest)

    def is_early(self, value: SSAValue) -> bool:
        """Return whether a value is a carry of the first loop, or is computed there."""
        if isinstance(value.owner, Block):
            return value in self._crossing.carries
        return value.owner in self.first or value.owner in self._crossing.moved

    @cached_property
    def stacked_later(self) -> Sequence[int]:
        """The numbers of the results that the second loop stacks."""
        numbers = range(len(self.loop.carried), len(self.loop.yielded))
        return [n for n in numbers if not self.is_early(self.loop.yielded[n])]

    @cached_property
    def second(self) -> Sequence[Operation]:
        """The operations of the second loop, in order."""
        values = (self.loop.yielded[n] for n in (*self.later, *self.stacked_later))
        needed = _needed_beside(values, self._crossing.stacked)
        return [op for op in self.loop.body.block.ops if op in needed]

    def crossing(self) -> Sequence[SSAValue]:
        """Return the values that the second loop takes as slices, in order of definition."""
        needed = {operand for op in self.second for operand in op.operands}
        block = self.loop.body.block
        values = (*block.args, *(result for op in block.ops for result in op.results))
        return [x for x in values if x in needed and x in self._crossing.stacked]

    # --- the two loops ------------------------------------------------------------------------

    def cut(self) -> tuple[RepeatOp, RepeatOp]:
        """Put the two loops in the place of the loop, and return them.

        Raises:
            LayoutError: a value that the second loop needs cannot be stacked. Nothing has changed.
        """
        loop, yielded = self.loop, self.loop.yielded
        carries = len(loop.carried)
        early = [n for n in range(carries) if n not in self.later]
        stacks = [n for n in range(carries, len(yielded)) if n not in self.stacked_later]
        crossing = self.crossing()
        numbers = [*early, *stacks]
        known = {yielded[n] for n in stacks}
        values = [*(yielded[n] for n in numbers), *(x for x in crossing if x not in known)]
        needed = _needed(loop, values)
        steps = [op for op in loop.body.block.ops if op in needed]
        first = _part(loop, early, {}, steps, values)
        pairs = list(zip(values, first.results, strict=True))
        for value, stack in pairs[len(numbers) :]:
            set_name(stack, value.name_hint)
        rows = dict(pairs[len(early) :])
        later = [*sorted(self.later), *self.stacked_later]
        sliced = {value: rows[value] for value in crossing}
        second = _part(loop, sorted(self.later), sliced, self.second, [yielded[n] for n in later])
        twice = {kernel_name(op) for op in self.second if op in needed}
        for op in second.body.block.ops:
            if kernel_name(op) in twice:  # the rest of the kernel is in the first loop
                op.attributes.pop(KERNEL, None)
        self._put(first, numbers)
        self._put(second, later)
        assert loop.parent is not None
        loop.parent.erase_op(loop)
        return first, second

    def _put(self, part: RepeatOp, numbers: Sequence[int]) -> None:
        """Put a loop in front of the loop, and its results in the place of some of its results."""
        assert self.loop.parent is not None
        self.loop.parent.insert_op_before(part, self.loop)
        for number, new in zip(numbers, part.results, strict=False):
            old = self.loop.results[number]
            set_name(new, old.name_hint)
            pass_role(old, new)
            old.replace_all_uses_with(new)


def added_terms(loop: RepeatOp, number: int) -> list[SSAValue]:
    """Return the terms that an iteration adds to a carry; empty if it also uses it otherwise."""
    value: SSAValue = loop.carries[number]
    added: list[SSAValue] = []
    while value.has_one_use():
        [use] = value.uses
        op = use.operation
        if isinstance(op, YieldOp):
            return added if use.index == number else []
        if not isinstance(op, DistOp) or op.kind is not ADD:
            return []
        added.append(op.operands[1 - use.index])
        value = op.result
    return []


def _needed(loop: RepeatOp, values: Iterable[SSAValue]) -> set[Operation]:
    """Return the operations of a loop's body that values need; kernels are needed whole."""
    kernels: dict[str, list[Operation]] = {}
    for op in loop.body.block.ops:
        if (name := kernel_name(op)) is not None:
            kernels.setdefault(name, []).append(op)
    needed: set[Operation] = set()
    stack = [value.owner for value in values]
    while stack:
        op = stack.pop()
        if isinstance(op, Block) or op in needed:
            continue
        needed.add(op)
        stack += (operand.owner for operand in op.operands)
        stack += kernels.get(kernel_name(op) or "", ())
    return needed


def _needed_beside(values: Iterable[SSAValue], known: Collection[SSAValue]) -> set[Operation]:
    """Return the operations of a loop's body that values need beside known ones."""
    needed: set[Operation] = set()
    stack = list(values)
    while stack:
        value = stack.pop()
        if value not in known and isinstance(value.owner, Operation) and value.owner not in needed:
            needed.add(value.owner)
            stack += value.owner.operands
    return needed


def _part(
    loop: RepeatOp,
    carries: Sequence[int],
    sliced: Mapping[SSAValue, SSAValue],
    steps: Sequence[Operation],
    yielded: Sequence[SSAValue],
) -> RepeatOp:
    """Return a loop of some steps of another; it is in no block.

    Args:
        carries: the numbers of its carries.
        sliced: values of the body that it takes as slices, with the sliced operands.
        steps: the operations of the body, in order.
        yielded: the values of the body that it yields.
    """
    needed = {operand for op in steps for operand in op.operands} | set(yielded)
    args = loop.body.block.args
    own = list(zip(args, loop.operands, strict=True))
    first, second = len(loop.carried), len(loop.carried) + len(loop.sliced)
    groups: list[list[tuple[SSAValue, SSAValue]]] = [
        [own[number] for number in carries],
        [*sliced.items(), *(pair for pair in own[first:second] if pair[0] in needed)],
        [pair for pair in own[second:] if pair[0] in needed],
    ]
    values = [value for group in groups for value, _ in group]
    body = Block(arg_types=[value.type for value in values])
    known = dict[SSAValue, SSAValue](zip(values, body.args, strict=True))
    for old, new in known.items():
        set_name(new, old.name_hint)
    for op in steps:
        body.add_op(op.clone(known))
    end = YieldOp.create(operands=[known[value] for value in yielded])
    last = loop.body.block.last_op
    assert last is not None
    end.location = last.location
    body.add_op(end)
    return loop.rebuilt([[x for _, x in group] for group in groups], body)


__all__ = ["Fission", "added_terms"]
