"""Loops of equally many iterations joined to one, for proofs (fusion).

Where the second loop slices a stack of the first, its iteration i only needs row i, made by
iteration i of the first. So one loop can replace both, unless the second depends on the first in
another way.
"""

from collections.abc import Sequence

from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue

from collir.dialects.nested import RepeatOp, YieldOp
from collir.transforms.loops.iterations import tidy


def join_loops(block: Block) -> bool:
    """Join the loops in a block in place, as far as possible; return whether any were joined."""
    joined = False
    while (pair := _pair(loops_of(block))) is not None:
        _join(*pair)
        joined = True
    return joined


def loops_of(block: Block) -> list[RepeatOp]:
    """Return the loops in a block, but not those inside loops."""
    return [op for op in block.ops if isinstance(op, RepeatOp)]


def _pair(loops: Sequence[RepeatOp]) -> tuple[RepeatOp, RepeatOp] | None:
    for number, first in enumerate(loops):
        for second in loops[number + 1 :]:
            if _is_joinable(first, second):
                return first, second
    return None


def _is_joinable(first: RepeatOp, second: RepeatOp) -> bool:
    if (first.times, first.is_reverse) != (second.times, second.is_reverse):
        return False
    stacks = set[SSAValue](first.results[len(first.carried) :])
    after = _dependent(first, second)
    others = [*second.carried, *second.invariant, *(x for x in second.sliced if x not in stacks)]
    return all(x.owner not in after for x in others)


def _dependent(first: RepeatOp, second: RepeatOp) -> set[Operation]:
    """Return a loop and its dependent operations, up to another loop."""
    after: set[Operation] = {first}
    for op in _between(first, second):
        if any(operand.owner in after for operand in op.operands):
            after.add(op)
    return after


def _between(first: Operation, second: Operation) -> list[Operation]:
    ops: list[Operation] = []
    op = first.next_op
    while op is not None and op is not second:
        ops.append(op)
        op = op.next_op
    return ops


def _join(first: RepeatOp, second: RepeatOp) -> None:
    """Replace two loops by one, with the operations that the second needs in front of it."""
    block = first.parent
    assert block is not None
    after = _dependent(first, second)
    for op in _between(first, second):
        if op not in after:
            op.detach()
            block.insert_op_before(op, first)
    loop = _joined(first, second)
    block.insert_op_before(loop, first)
    c1, c2 = len(first.carried), len(second.carried)
    s1 = len(first.results) - c1
    results = loop.results
    new = [
        *zip(second.results[:c2], results[c1 : c1 + c2], strict=True),
        *zip(second.results[c2:], results[c1 + c2 + s1 :], strict=True),
        *zip(first.results[:c1], results[:c1], strict=True),
        *zip(first.results[c1:], results[c1 + c2 : c1 + c2 + s1], strict=True),
    ]
    for old, value in new:
        old.replace_all_uses_with(value)
    block.erase_op(second)
    block.erase_op(first)


def _joined(first: RepeatOp, second: RepeatOp) -> RepeatOp:
    """Return a loop equal to two loops together; it is in no block."""
    rows = dict[SSAValue, SSAValue](zip(first.results, first.yielded, strict=True))
    values: dict[SSAValue, SSAValue] = {}
    groups: list[list[tuple[BlockArgument, SSAValue]]] = [[], [], []]
    crossing: dict[SSAValue, SSAValue] = {}
    for loop in (first, second):
        for number, pair in enumerate(zip(loop.body.block.args, loop.operands, strict=True)):
            slices = number >= len(loop.carried)
            fixed = number >= len(loop.carried) + len(loop.sliced)
            if loop is second and pair[1] in rows:
                crossing[pair[0]] = rows[pair[1]]
            else:
                groups[slices + fixed].append(pair)
    args = [arg for group in groups for arg, _ in group]
    body = Block(arg_types=[arg.type for arg in args])
    values |= zip(args, body.args, strict=True)
    for loop in (first, second):
        for op in list(loop.body.block.ops)[:-1]:
            body.add_op(op.clone(values))
        if loop is first:
            values |= {arg: values[value] for arg, value in crossing.items()}
    carries = [*first.yielded[: len(first.carried)], *second.yielded[: len(second.carried)]]
    stacks = [*first.yielded[len(first.carried) :], *second.yielded[len(second.carried) :]]
    body.add_op(YieldOp.create(operands=[values[value] for value in (*carries, *stacks)]))
    return first.rebuilt([[x for _, x in group] for group in groups], body)


# ---------------------------------------------------------------------------------------------
# One form of operands and results
# ---------------------------------------------------------------------------------------------


def in_one_form(block: Block) -> None:
    """Rewrite the loops of a block, and those inside them, to one form, in place.

    Unused operands and results are removed. Operands are in the order of their definitions, and
    results in that of their uses.
    """
    for loop in reversed(loops_of(block)):
        carries, stacks, _ = _live(loop)
        used = _rewritten(loop, carries, stacks)
        in_one_form(used.body.block)
        tidy(used)
    for loop in reversed(loops_of(block)):
        numbers = (sorted(of, key=lambda n: _first_use(loop, n)) for of in _live(loop)[:2])
        _rewritten(loop, *numbers)


def _live(loop: RepeatOp) -> tuple[list[int], list[int], set[Operation]]:
    """Return the numbers of the carries and stacks that used results need, and the operations of
    the body that they need."""
    count = len(loop.carried)
    live = {n for n, result in enumerate(loop.results) if result.uses.get_length()}
    needed: set[Operation] = set()
    stack = [loop.yielded[n] for n in live]
    while stack:
        value = stack.pop()
        if isinstance(value, BlockArgument):
            if value.index < count and value.index not in live:
                live.add(value.index)
                stack.append(loop.yielded[value.index])
        elif isinstance(value.owner, Operation) and value.owner not in needed:
            needed.add(value.owner)
            stack += value.owner.operands
    return [n for n in range(count) if n in live], sorted(n for n in live if n >= count), needed


def _first_use(loop: RepeatOp, number: int) -> tuple[float, int]:
    """Return numbers that order results by their first use."""
    block = loop.parent
    assert block is not None
    uses = loop.results[number].uses
    places = [(float(block.get_operation_index(use.operation)), use.index) for use in uses]
    return min(places, default=(float("inf"), 0))


def _rewritten(loop: RepeatOp, carries: Sequence[int], stacks: Sequence[int]) -> RepeatOp:
    """Replace a loop by one with its carries and stacks in another order, and with distinct, used
    invariants in the order of their definitions; return it.

    Args:
        carries, stacks: the numbers of its results; no other one is used, or needed by these.
    """
    block, args, needed = loop.parent, loop.body.block.args, _live(loop)[2]
    assert block is not None
    second = len(loop.carried) + len(loop.sliced)
    fixed: dict[SSAValue, list[BlockArgument]] = {}
    for arg, x in zip(args[second:], loop.invariant, strict=True):
        if arg.uses.get_length():
            fixed.setdefault(x, []).append(arg)
    ordered = sorted(fixed, key=_place)
    slices = args[len(loop.carried) : second]
    kept = [*(args[n] for n in carries), *slices, *(fixed[x][0] for x in ordered)]
    body = Block(arg_types=[arg.type for arg in kept])
    values: dict[SSAValue, SSAValue] = dict(zip(kept, body.args, strict=True))
    for same in fixed.values():
        values |= dict.fromkeys(same, values[same[0]])
    for op in list(loop.body.block.ops)[:-1]:
        if op in needed:
            body.add_op(op.clone(values))
    numbers = [*carries, *stacks]
    body.add_op(YieldOp.create(operands=[values[loop.yielded[n]] for n in numbers]))
    new = loop.rebuilt(([loop.carried[n] for n in carries], list(loop.sliced), ordered), body)
    block.insert_op_before(new, loop)
    for number, result in zip(numbers, new.results, strict=True):
        loop.results[number].replace_all_uses_with(result)
    block.erase_op(loop)
    return new


def _place(value: SSAValue) -> tuple[int, int]:
    """Return numbers that order values as a block defines them."""
    if isinstance(value, OpResult):
        block = value.op.parent
        assert block is not None
        return block.get_operation_index(value.op), value.index
    assert isinstance(value, BlockArgument)
    return -1, value.index


__all__ = ["in_one_form", "join_loops", "loops_of"]
