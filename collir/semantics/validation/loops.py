"""Proofs of functions with loops, by induction over the iterations.

The bodies of two loops are functions of carries, slices and invariants. If it is proven that both
compute the same, and the loops have equal operands, then what the carries stand for is equal before
the first iteration, and after each iteration if it was before. So the loops compute the same, and
each is one unknown function in the proof of the functions that they are in. The proof takes as long
for 96 iterations as for 2.

If such a proof fails, as where one of the functions has its loop in parts or unrolled, the
iterations of both are proven one after the other, unless they are too many.
"""

from xdsl.dialects.func import FuncOp

from collir.dialects.nested import RepeatOp
from collir.ir.functions import scratch_copy
from collir.ir.loops import as_function, repeats_in, unroll_all
from collir.semantics.validation.proof import proven
from collir.semantics.validation.underflow import excess_loss
from collir.semantics.validation.verdict import Outcome, Verdict

MOST_STEPS = 2000
"""The most steps of a function, those of all iterations counted, that are proven one by one."""


def decided(before: FuncOp, after: FuncOp) -> Verdict:
    """Return the verdict on two functions of one mesh without calls, by proof.

    The outcome is unknown where nothing is proven.
    """
    if not (repeats_in(before) or repeats_in(after)):
        return _decided(before, after)
    by_induction = _decided(before, after, numbered_bodies(before, after))
    if by_induction.outcome is Outcome.SAME:
        return by_induction
    steps = max(map(_steps_unrolled, (before, after)))
    if steps > MOST_STEPS:
        text = f"its loops differ, and run {steps} steps, more than {MOST_STEPS}"
        return Verdict(Outcome.UNKNOWN, "none", text)
    with scratch_copy(before) as old, scratch_copy(after) as new:
        for copy in (old, new):
            unroll_all(copy)
        return _decided(old, new)


def _decided(before: FuncOp, after: FuncOp, bodies: dict[RepeatOp, int] | None = None) -> Verdict:
    """Return the verdict on two functions, whose loops are unknown functions with numbers."""
    verdict = proven(before, after, bodies)
    if verdict.outcome is Outcome.DIFFERENT:
        return verdict
    if loss := excess_loss(before, after, bodies):
        result, ratio = loss
        text = (
            f"up to {float(ratio):g} times as much is lost to underflow, as values are made small "
            "before they are added or scaled up, and not after"
        )
        return Verdict(Outcome.DIFFERENT, "proof", text, result)
    return verdict


def _steps_unrolled(program: FuncOp | RepeatOp) -> int:
    """Return the number of steps that a program runs."""
    return sum(
        op.times * _steps_unrolled(op) if isinstance(op, RepeatOp) else 1
        for op in program.body.block.ops
    )


def numbered_bodies(before: FuncOp, after: FuncOp) -> dict[RepeatOp, int]:
    """Return a number for the body of every loop of two functions, but not of those inside loops.

    Two bodies have the same number if it is proven that they compute the same.
    """
    numbers: dict[RepeatOp, int] = {}
    for op in (*before.body.block.ops, *after.body.block.ops):
        if isinstance(op, RepeatOp):
            same = (number for known, number in numbers.items() if _same_body(known, op))
            numbers[op] = next(same, len(numbers))
    return numbers


def _same_body(a: RepeatOp, b: RepeatOp) -> bool:
    """Return whether it is proven that the bodies of two loops compute the same."""
    arguments = [[arg.type for arg in op.body.block.args] for op in (a, b)]
    yielded = [[value.type for value in op.yielded] for op in (a, b)]
    if arguments[0] != arguments[1] or yielded[0] != yielded[1]:
        return False
    if a.body.is_structurally_equivalent(b.body):
        return True
    with as_function(a) as old, as_function(b) as new:
        return decided(old, new).outcome is Outcome.SAME
