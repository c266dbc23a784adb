"""Steps that run one iteration ahead of the others: their operands, and where they are legal.

The value of such a step may depend on the slices and invariants of its loop only, which are known
before the iteration begins. The steps between these and the step are its chain.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import BlockArgument, Operation, SSAValue

from collir.dialects.nested import NestedOp, RepeatOp
from collir.dialects.operation import DistOp, value_text
from collir.ir.diagnostics import Diagnostic, Position, note
from collir.layout.steps import AHEAD, ASYNC


def is_ahead(op: Operation) -> bool:
    """Return whether the program marks an operation as one iteration ahead."""
    return AHEAD.name in op.properties and isinstance(op, DistOp)


def steps_ahead(loop: RepeatOp) -> list[DistOp]:
    """Return the steps of a loop that are ahead, without the steps of loops inside it."""
    return [op for op in loop.body.block.ops if isinstance(op, DistOp) and is_ahead(op)]


def chain_ahead(loop: RepeatOp) -> list[DistOp]:
    """Return the steps of a loop that are ahead with all that they need, in program order."""
    chain: set[Operation] = set()
    for op in reversed(loop.body.block.ops):
        if is_ahead(op) or any(use.operation in chain for x in op.results for use in x.uses):
            chain.add(op)
    return [op for op in loop.body.block.ops if isinstance(op, DistOp) and op in chain]


def start_early(op: DistOp) -> None:
    """Let a step no longer be ahead, but be ``async`` if it may."""
    op.properties.pop(AHEAD.name, None)
    if op.kind.may_be_async:
        op.properties[ASYNC.name] = UnitAttr()


@dataclass(frozen=True)
class _Source:
    """The reason why a step may not be ahead: a value of the iteration that it depends on.

    Attributes:
        value: a carry, or the result of an operation that is no step.
        path: the steps from there to the step itself, which comes last.
    """

    value: SSAValue
    path: Sequence[DistOp]


def _wrong_source(loop: RepeatOp, op: DistOp) -> _Source | None:
    """Return a value that a step needs and that is not known before the iteration, or None."""
    reached_by: dict[DistOp, DistOp | None] = {op: None}
    stack = [op]
    while stack:
        step = stack.pop()
        for operand in step.operands:
            if isinstance(operand.owner, DistOp):
                if operand.owner not in reached_by:
                    reached_by[operand.owner] = step
                    stack.append(operand.owner)
            elif not isinstance(operand, BlockArgument) or operand in loop.carries:
                path = [step]
                while (user := reached_by[path[-1]]) is not None:
                    path.append(user)
                return _Source(operand, path)
    return None


def ahead_errors(op: DistOp) -> list[Diagnostic]:
    """Return the error at a step that is ahead where it may not be."""
    loop, this = op.parent_op(), f"this {op.mnemonic}"
    if not isinstance(loop, RepeatOp):
        text = f"`{AHEAD.keyword}` starts a step one iteration before it is needed, and {this}"
        advice = f"is in no repeat: write `{ASYNC.keyword}`, or leave it out"
        return [Diagnostic(f"{text} {advice}", Position.of(op))]
    source = _wrong_source(loop, op)
    if source is None:
        return []
    name = value_text(source.value, "a carry")
    if isinstance(source.value, BlockArgument):
        why = f"is computed from the carry {name}, which the iteration before yields"
        fact = note(f"{name} is carried from here", Position.of(source.value))
    else:
        inner = source.value.owner
        word = inner.mnemonic if isinstance(inner, NestedOp) else "operation"
        why = f"is computed from {value_text(source.value, 'a value')}, a result of a {word}"
        fact = note(f"the {word} is here", Position.of(source.value))
    notes = [
        note(f"{value_text(step.result, 'a step between')} is computed from it", Position.of(step))
        for step in source.path[:-1]
    ]
    text = (
        f"{this} is `{AHEAD.keyword}`, but {why}; only what steps compute from slices and "
        f"invariants is known one iteration ahead: leave out `{AHEAD.keyword}`"
    )
    return [Diagnostic(text, Position.of(op), (fact, *notes))]


def drop_misplaced(ops: Iterable[Operation]) -> None:
    """Remove the mark of steps that may no longer be ahead after a rewrite, in place."""
    for op in ops:
        if isinstance(op, DistOp) and is_ahead(op) and ahead_errors(op):
            del op.properties[AHEAD.name]
