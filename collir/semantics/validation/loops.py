"""Proofs of functions with loops, by induction over the iterations.

The bodies of two loops are functions of carries, slices and invariants. If both are proven to
compute the same, and the loops have equal operands, then their carries are equal before the first
iteration, and stay equal after each one. So the loops compute the same, and count as one unknown
function in the proof of the functions around them. The proof takes as long for 96 iterations as for
2.

If such a proof fails, both functions get forms that are more alike. First, two loops of equally
many iterations become one, if the second needs nothing of the first but its stacks. If that is not
enough, carries that slices determine are removed, such as the carries of steps that run ahead: the
initial value of such a carry is proven to equal what the slices in front of the loop's own would
give. Then loops with equal bodies are cut where the others end, and short parts are unrolled. That
takes as long for 96 iterations as for 2, too.

If that fails, the iterations of both are proven one after the other, unless they are too many.
"""

from collections.abc import Hashable, Iterable, Sequence
from itertools import accumulate

from xdsl.dialects.func import FuncOp

from collir.dialects.nested import RepeatOp
from collir.dialects.tensor import dist_type
from collir.ir.functions import scratch_copy
from collir.ir.loops import repeats_in
from collir.ir.parameters import parameters_of
from collir.layout import DistType
from collir.semantics.validation.proof import mean_the_same, proven
from collir.semantics.validation.underflow import excess_loss
from collir.semantics.validation.verdict import Outcome, Verdict
from collir.transforms.instantiation import fix_parameters
from collir.transforms.loops.bodies import as_function
from collir.transforms.loops.iterations import SlicedCarry, in_parts, returning, sliced_carry, tidy
from collir.transforms.loops.joining import in_one_form, join_loops
from collir.transforms.loops.unrolling import unroll, unroll_all

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
    for change in (_join, align):
        with scratch_copy(before) as old, scratch_copy(after) as new:
            if change(old, new):
                alike = _decided(old, new, numbered_bodies(old, new))
                if alike.outcome is Outcome.SAME:
                    return alike
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
    """Return whether the bodies of two loops are proven to compute the same. If their types have
    different layouts, their tensors are compared."""
    arguments = [[dist_type(arg) for arg in op.body.block.args] for op in (a, b)]
    yielded = [[dist_type(value) for value in op.yielded] for op in (a, b)]
    if arguments[0] == arguments[1] and yielded[0] == yielded[1]:
        if a.body.is_structurally_equivalent(b.body):
            return True
        with as_function(a) as old, as_function(b) as new:
            return decided(old, new).outcome is Outcome.SAME
    if any(_tensors(pair[0]) != _tensors(pair[1]) for pair in (arguments, yielded)):
        return False
    with as_function(a) as old, as_function(b) as new:
        return mean_the_same(old, new, numbered_bodies(old, new))


def _tensors(types: Sequence[DistType]) -> list[Hashable]:
    """Return the tensors that values of some types stand for, whatever their layouts."""
    return [(x.dtype, x.shape, x.partial, x.reduction) for x in types]


# ---------------------------------------------------------------------------------------------
# Functions whose loops are cut in the same places
# ---------------------------------------------------------------------------------------------

FEW = 4
"""The most iterations of a part of a loop that is unrolled."""


def align(before: FuncOp, after: FuncOp) -> bool:
    """Change the loops of two functions so that they are more alike, in place; return whether
    anything has changed that may matter."""
    changed = False
    for function in (before, after):
        fix_parameters(function, parameters_of(function))
        for loop in _loops(function):
            changed |= _without_sliced_carries(function, loop)
    for function in (before, after):
        for loop in _loops(function):
            tidy(loop)
    return _cut(before, after) or changed


def _loops(function: FuncOp) -> list[RepeatOp]:
    return [op for op in function.body.block.ops if isinstance(op, RepeatOp)]


def _join(before: FuncOp, after: FuncOp) -> bool:
    """Join loops of two functions, as far as possible, in place; return whether there were any."""
    joined = [join_loops(function.body.block) for function in (before, after)]
    if any(joined):
        for function in (before, after):
            in_one_form(function.body.block)
    return any(joined)


def _without_sliced_carries(function: FuncOp, loop: RepeatOp) -> bool:
    """Remove the carries of a loop that slices give; return whether there are any."""
    left = list(range(len(loop.carried)))
    removed = False
    while (carry := sliced_carry(loop, left)) is not None:
        left = [number for number in left if number > carry.number]
        if _starts_as_expected(function, carry):
            loop = carry.remove()
            left = [number - 1 for number in left]
            removed = True
    return removed


def _starts_as_expected(function: FuncOp, carry: SlicedCarry) -> bool:
    """Return whether a loop is proven to begin with the value that earlier slices would give."""
    place = _loops(function).index(carry.loop)
    with scratch_copy(function) as actual, scratch_copy(function) as expected:
        copies = [sliced_carry(_loops(copy)[place], [carry.number]) for copy in (actual, expected)]
        assert copies[0] is not None and copies[1] is not None
        returning(actual, copies[0].start)
        returning(expected, copies[1].expected_start())
        bodies = numbered_bodies(actual, expected)
        return _decided(actual, expected, bodies or None).outcome is Outcome.SAME


def _cut(before: FuncOp, after: FuncOp) -> bool:
    """Cut loops with equal bodies where others end, and unroll short ones; return whether there
    were any."""
    numbers = numbered_bodies(before, after)
    changed = False
    for key in dict.fromkeys((number, op.is_reverse) for op, number in numbers.items()):
        sides = [
            [op for op in _loops(side) if (numbers.get(op), op.is_reverse) == key]
            for side in (before, after)
        ]
        counts = [[op.times for op in side] for side in sides]
        if len(counts[0]) == len(counts[1]):
            ends = [{min(pair)} for pair in zip(*counts, strict=True)]
            cuts = [ends, ends]
        else:
            sums = [list(accumulate(side)) for side in counts]
            everywhere = {*sums[0], *sums[1]}
            cuts = [
                [{end - (total - n) for end in everywhere} for total, n in zip(*of, strict=True)]
                for of in zip(sums, counts, strict=True)
            ]
        for side, places in zip(sides, cuts, strict=True):
            for op, ends in zip(side, places, strict=True):
                changed |= _cut_at(op, ends)
    return changed


def _cut_at(loop: RepeatOp, ends: Iterable[int]) -> bool:
    """Cut a loop behind some of its iterations, and unroll short parts; return whether that changes
    anything."""
    parts = [loop]
    done = 0
    for end in sorted(end for end in ends if 0 < end < loop.times):
        first, rest = in_parts(parts.pop(), end - done)
        parts += [first, rest]
        done = end
    short = [part for part in parts if part.times <= FEW]
    for part in short:
        unroll(part)
    return len(parts) > 1 or bool(short)
