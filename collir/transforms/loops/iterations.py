"""Loops in other forms with the same meaning, for proofs: in parts, and with fewer carries.

An iteration may compute a carry from its slices and invariants alone, for the next one. If the
initial value is what the slices before the first would give, then the slices of the iteration
before determine the carry, and the loop does not need it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue

from collir.dialects.nested import RepeatOp, YieldOp
from collir.dialects.operation import DistOp
from collir.ir.roles import pass_role
from collir.layout.coll import CONCAT, PAD
from collir.transforms.loops.unrolling import StepsBefore


@dataclass(frozen=True)
class Window:
    """Some neighbouring rows of a stacked value.

    Attributes:
        whole: the value.
        low, high: the numbers of rows in front of them, and behind them.
    """

    whole: SSAValue
    low: int
    high: int

    @staticmethod
    def of(value: SSAValue) -> "Window":
        """Return the rows of the largest value that a value is cut from."""
        low = high = 0
        while isinstance(op := value.owner, DistOp) and op.kind is PAD and op.integer("dim") == 0:
            amounts = op.integer("low"), op.integer("high")
            if max(amounts) > 0:
                break
            low, high, value = low - amounts[0], high - amounts[1], op.input
        return Window(value, low, high)

    def moved(self, rows: int) -> "Window":
        """Return the same number of rows, some rows further on."""
        return Window(self.whole, self.low + rows, self.high - rows)

    def put(self, before: StepsBefore) -> SSAValue:
        """Put a step that cuts the rows out in front of a loop, if needed."""
        if not self.low and not self.high:
            return self.whole
        return before.step(PAD, [self.whole], dim=0, low=-self.low, high=-self.high, value=0.0)


def in_parts(loop: RepeatOp, first: int) -> tuple[RepeatOp, RepeatOp]:
    """Replace a loop by two, with its first iterations and its others; return them."""
    before, rest = StepsBefore(loop), loop.times - first
    windows = [Window.of(x) for x in loop.sliced]
    parts: list[RepeatOp] = []
    carried: list[SSAValue] = list(loop.carried)
    for begin, count in ((0, first), (first, rest)):
        low = loop.times - begin - count if loop.is_reverse else begin
        high = loop.times - low - count
        sliced = [Window(x.whole, x.low + low, x.high + high).put(before) for x in windows]
        body = loop.body.clone().detach_block(0)
        groups = carried, sliced, list(loop.invariant)
        part = loop.rebuilt(groups, body, count)
        before.insert(part)
        parts.append(part)
        carried = list(part.results[: len(carried)])
    stacks = [part.results[len(carried) :] for part in parts]
    stacks = stacks[::-1] if loop.is_reverse else stacks
    joined = [before.step(CONCAT, rows, dim=0) for rows in zip(*stacks, strict=True)]
    _take_place(loop, [*carried, *joined])
    return parts[0], parts[1]


def _take_place(loop: RepeatOp, values: Sequence[SSAValue]) -> None:
    for result, value in zip(loop.results, values, strict=True):
        pass_role(result, value)
        result.replace_all_uses_with(value)
    assert loop.parent is not None
    loop.parent.erase_op(loop)


# ---------------------------------------------------------------------------------------------
# Carries that slices give
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SlicedCarry:
    """A carry that an iteration computes from its slices and invariants, for the next one.

    Attributes:
        number: the number of the carry.
        chain: the steps that compute it.
        before: for each slice that they need, the rows of the iterations before.
    """

    loop: RepeatOp
    number: int
    chain: tuple[DistOp, ...]
    before: dict[SSAValue, Window]

    @property
    def start(self) -> SSAValue:
        """The value that the loop begins with."""
        return self.loop.carried[self.number]

    def at(self, steps: StepsBefore, slices: dict[SSAValue, SSAValue]) -> SSAValue:
        """Put the chain on some slices in front of the loop, and return the value."""
        values = {**slices, **_invariants(self.loop)}
        for op in self.chain:
            steps.insert(op.clone(values))
        return values[self.loop.yielded[self.number]]

    def expected_start(self) -> SSAValue:
        """Put the computation of the expected initial value in front of the loop."""
        loop, steps = self.loop, StepsBefore(self.loop)
        rows = {arg: window.put(steps) for arg, window in self.before.items()}
        slices = {arg: steps.slice(x, loop.order[0]) for arg, x in rows.items()}
        return self.at(steps, slices)

    def remove(self) -> RepeatOp:
        """Put a loop without the carry in the place of the loop, and return it."""
        loop, steps = self.loop, StepsBefore(self.loop)
        block, number = loop.body.block, self.number
        first, second = len(loop.carried), len(loop.carried) + len(loop.sliced)
        last: dict[SSAValue, SSAValue] = {
            arg: steps.slice(x, loop.order[-1])
            for arg, x in zip(block.args[first:second], loop.sliced, strict=True)
            if arg in self.before
        }
        at_end = self.at(steps, last)
        more = [window.put(steps) for window in self.before.values()]
        kept = [arg for arg in block.args if arg is not loop.carries[number]]
        types = [arg.type for arg in kept]
        types[second - 1 : second - 1] = [arg.type for arg in self.before]
        body = Block(arg_types=types)
        added = dict(zip(self.before, body.args[second - 1 :], strict=False))
        own = [arg for arg in body.args if arg not in added.values()]
        values: dict[SSAValue, SSAValue] = dict(zip(kept, own, strict=True))
        earlier: dict[SSAValue, SSAValue] = values | added
        for op in self.chain:
            body.add_op(op.clone(earlier))
        values[loop.carries[number]] = earlier[loop.yielded[number]]
        for op in list(block.ops)[:-1]:
            body.add_op(op.clone(values))
        yielded = [values[x] for i, x in enumerate(loop.yielded) if i != number]
        body.add_op(YieldOp.create(operands=yielded))
        carried = [x for i, x in enumerate(loop.carried) if i != number]
        groups = carried, [*loop.sliced, *more], list(loop.invariant)
        new = loop.rebuilt(groups, body)
        steps.insert(new)
        results = list[SSAValue](new.results)
        _take_place(loop, [*results[:number], at_end, *results[number:]])
        return new


def sliced_carry(loop: RepeatOp, among: Iterable[int] | None = None) -> SlicedCarry | None:
    """Return the first carry computed from slices and invariants alone; None if there is none.

    Its slices must have rows in front of the rows of the loop.

    Args:
        among: the numbers of the carries to look at; by default, all.
    """
    first, second = len(loop.carried), len(loop.carried) + len(loop.sliced)
    stacked: dict[SSAValue, SSAValue] = dict(
        zip(loop.body.block.args[first:second], loop.sliced, strict=True)
    )
    for number in range(first) if among is None else among:
        chain, sources = _feeding(loop, loop.yielded[number])
        if sources is None or len(loop.yielded) == 1:
            continue
        back = 1 if loop.is_reverse else -1
        before = {x: Window.of(stacked[x]).moved(back) for x in sources if x in stacked}
        if all(window.low >= 0 and window.high >= 0 for window in before.values()):
            return SlicedCarry(loop, number, chain, before)
    return None


def _feeding(
    loop: RepeatOp, value: SSAValue
) -> tuple[tuple[DistOp, ...], Sequence[SSAValue] | None]:
    """Return the steps that compute a value, and the body's arguments that they need; None for
    these if other values than slices and invariants are needed."""
    chain: set[Operation] = set()
    sources: dict[SSAValue, None] = {}
    stack = [value]
    while stack:
        x = stack.pop()
        if isinstance(x, BlockArgument):
            if x in loop.carries:
                return (), None
            sources[x] = None
        elif not isinstance(x.owner, DistOp):
            return (), None
        elif x.owner not in chain:
            chain.add(x.owner)
            stack += x.owner.operands
    steps = (op for op in loop.body.block.ops if isinstance(op, DistOp) and op in chain)
    return tuple(steps), [arg for arg in loop.body.block.args if arg in sources]


def _invariants(loop: RepeatOp) -> dict[SSAValue, SSAValue]:
    args = loop.body.block.args[len(loop.carried) + len(loop.sliced) :]
    return dict(zip(args, loop.invariant, strict=True))


def returning(function: FuncOp, value: SSAValue) -> None:
    """Let a function return a value instead, and drop the operations behind it."""
    block = function.body.block
    for op in reversed(list(block.ops)):
        if op is value.owner:
            break
        block.erase_op(op)
    block.add_op(ReturnOp(value))
    function.update_function_type()
    _ = function.properties.pop("res_attrs", None)


# ---------------------------------------------------------------------------------------------
# One form of the arguments
# ---------------------------------------------------------------------------------------------


def tidy(loop: RepeatOp) -> RepeatOp:
    """Replace a loop by one whose slices are used, distinct, and in the order of their sources."""
    block = loop.body.block
    for op in list(block.ops)[-2::-1]:
        if not any(result.uses.get_length() for result in op.results):
            block.erase_op(op)
    first, second = len(loop.carried), len(loop.carried) + len(loop.sliced)
    slices: dict[Window, list[BlockArgument]] = {}
    for arg, x in zip(block.args[first:second], loop.sliced, strict=True):
        if arg.uses.get_length():
            slices.setdefault(Window.of(x), []).append(arg)
    ordered = sorted(slices, key=lambda window: (_place(window.whole, loop), window.low))
    kept = [*block.args[:first], *(slices[w][0] for w in ordered), *block.args[second:]]
    body = Block(arg_types=[arg.type for arg in kept])
    values: dict[SSAValue, SSAValue] = dict(zip(kept, body.args, strict=True))
    for same in slices.values():
        values |= dict.fromkeys(same, values[same[0]])
    for op in block.ops:
        body.add_op(op.clone(values))
    steps = StepsBefore(loop)
    groups = list(loop.carried), [w.put(steps) for w in ordered], list(loop.invariant)
    new = loop.rebuilt(groups, body)
    steps.insert(new)
    _take_place(loop, list(new.results))
    return new


def _place(value: SSAValue, loop: RepeatOp) -> tuple[int, int]:
    """Return numbers that order the values in front of a loop as the program does."""
    if not isinstance(value, OpResult):
        return -1, value.index if isinstance(value, BlockArgument) else 0
    assert loop.parent is not None
    return loop.parent.get_operation_index(value.op), value.index


__all__ = ["SlicedCarry", "Window", "in_parts", "returning", "sliced_carry", "tidy"]
