"""Loops cut in two: the steps that the carries need, and those that only results need (fission).

A carry that iterations only add to can wait for the second loop, as nothing in the loop reads it.
What the second loop needs of the first is stacked by the first and sliced by the second. Views of
such values, and steps without operands, are written again. Other steps stand in one of the loops.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from xdsl.ir import Block, Operation, SSAValue

from collir.dialects.machine import mesh_of
from collir.dialects.nested import RepeatOp, YieldOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.fusion import KERNEL, kernel_name
from collir.ir.names import set_name
from collir.ir.roles import pass_role
from collir.ir.steps import is_free
from collir.layout.steps import ADD


@dataclass(frozen=True, eq=False)
class Fission:
    """A loop, and which of its two parts each step and each result belongs to.

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

        A sum of values that the first part computes anyway stays in the first part.
        """
        yielded, count = loop.yielded, len(loop.carried)
        sums = {n: added for n in range(count) if (added := _added(loop, n))}
        first = _needed(loop, (yielded[n] for n in range(count) if n not in sums))
        known = {result for op in first for result in op.results}
        known |= {carry for n, carry in enumerate(loop.carries) if n not in sums}
        later = frozenset(n for n, added in sums.items() if not known.issuperset(added))
        needed = _needed(loop, (yielded[n] for n in range(count) if n not in later))
        return Fission(loop, later, frozenset(needed))

    def why_not(self) -> str | None:
        """Return why the loop has no two parts; None if it has."""
        if self.loop.recompute is not None:
            return "its iterations are computed again as a whole (`recompute`)"
        if not any(map(self._works, self.first)):
            return "its iterations do not wait for each other"
        if not any(map(self._works, self.second)):
            return "its carries need all that it computes"
        return None

    def _works(self, op: Operation) -> bool:
        return not _is_again(op, self.loop)

    # --- what belongs where -------------------------------------------------------------------

    @cached_property
    def stacked_later(self) -> Sequence[int]:
        """The numbers of the results that the second loop stacks."""
        carries = len(self.loop.carried)
        return [
            number
            for number, value in enumerate(self.loop.yielded)
            if number >= carries and not self._is_early(value)
        ]

    @cached_property
    def second(self) -> Sequence[Operation]:
        """The operations that only the results of the second loop need, in order."""
        numbers = (*self.later, *self.stacked_later)
        needed = _needed(self.loop, (self.loop.yielded[n] for n in numbers)) - self.first
        return [op for op in self.loop.body.block.ops if op in needed]

    def _is_early(self, value: SSAValue) -> bool:
        """Return whether a value is a carry of the first loop, or is computed there."""
        early = {carry for n, carry in enumerate(self.loop.carries) if n not in self.later}
        return value in early or value.owner in self.first

    @cached_property
    def _asked(self) -> Mapping[SSAValue, None]:
        """The values of the first part that the second needs."""
        values = (operand for op in self.second for operand in op.operands)
        return dict.fromkeys(filter(self._is_early, values))

    def crossing(self) -> list[SSAValue]:
        """Return the values that the first loop stacks for the second, of the fewest bytes.

        A view needs the value that it is a view of, or is stacked itself.
        """
        mesh, carries = mesh_of(self.loop), len(self.loop.carried)
        stacked = set(self.loop.yielded[carries:])
        views: dict[SSAValue, dict[SSAValue, None]] = {}
        roots: dict[SSAValue, None] = {}
        for value in self._asked:
            while _is_again(value.owner, self.loop) and (sources := _operands(value)):
                views.setdefault(sources[0], {})[value] = None
                [value] = sources
            roots[value] = None

        def cheapest(value: SSAValue) -> tuple[int, list[SSAValue]]:
            size = 0 if value in stacked else dist_type(value).local_bytes(mesh)
            if value in self._asked:
                return size, [value]
            parts = list(map(cheapest, views[value]))
            total = sum(part for part, _ in parts)
            if size <= total:
                return size, [value]
            return total, [x for _, values in parts for x in values]

        missing = [x for x in roots if self._is_early(x) and not _is_again(x.owner, self.loop)]
        found = {value for root in missing for value in cheapest(root)[1]}
        return [value for value in _values(self.loop.body.block) if value in found]

    def again(self, crossing: Iterable[SSAValue]) -> list[Operation]:
        """Return the operations of the first part that the second does again, in order."""
        known, found = set(crossing), set[Operation]()
        stack = list(self._asked)
        while stack:
            value = stack.pop()
            if value not in known and isinstance(value.owner, Operation):
                found.add(value.owner)
                stack += value.owner.operands
        return [op for op in self.loop.body.block.ops if op in found]

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
        known = {yielded[n] for n in stacks}
        numbers = [*early, *stacks]
        values = [yielded[n] for n in numbers]
        more = [x for x in crossing if x not in known]
        steps = [op for op in loop.body.block.ops if op in self.first]
        first = _part(loop, early, {}, steps, [*values, *more])
        rows = dict(zip([*values, *more][len(early) :], first.results[len(early) :], strict=True))
        for value in more:
            set_name(rows[value], value.name_hint)
        later = [*sorted(self.later), *self.stacked_later]
        again = self.again(crossing)
        steps = [op for op in loop.body.block.ops if op in {*again, *self.second}]
        sliced = {value: rows[value] for value in crossing}
        second = _part(loop, sorted(self.later), sliced, steps, [yielded[n] for n in later])
        kernels = {kernel_name(op) for op in again}  # the rest of them is in the first loop
        for op in second.body.block.ops:
            if kernel_name(op) in kernels:
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


def _added(loop: RepeatOp, number: int) -> list[SSAValue]:
    """Return what an iteration adds to a carry; nothing if it does anything else with it."""
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
    """Return the operations of the body of a loop that values need; a kernel is needed whole."""
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


def _is_again(op: Operation | Block, loop: RepeatOp) -> bool:
    """Return whether an operation costs nothing to do again: a view, or one without operands."""
    if not isinstance(op, DistOp):
        return False
    return not op.operands or (len(op.operands) == 1 and is_free(op, mesh_of(loop)))


def _operands(value: SSAValue) -> Sequence[SSAValue]:
    return () if isinstance(value.owner, Block) else value.owner.operands


def _values(block: Block) -> list[SSAValue]:
    """Return the values of a block in the order in which they are defined."""
    return [*block.args, *(result for op in block.ops for result in op.results)]


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
        sliced: values of the body that it takes as slices, with the operands that these are of.
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


__all__ = ["Fission"]
