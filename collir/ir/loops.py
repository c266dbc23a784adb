"""The loops in an operation, and how often their steps run."""

from collections.abc import Iterable, Iterator

from xdsl.ir import Operation

from collir.dialects.nested import NestedOp, RepeatOp
from collir.dialects.operation import DistOp

MOST_STEPS = 10**6
"""The most steps that loops are unrolled to, or calls inlined to."""


def repeats_in(op: Operation) -> list[RepeatOp]:
    """Return the loops in an operation, outer loops before those inside them."""
    return [inner for inner in op.walk() if isinstance(inner, RepeatOp)]


def steps_with_times(ops: Iterable[Operation], times: int = 1) -> Iterator[tuple[DistOp, int]]:
    """Yield the steps of operations, with those of loops, and the number of their runs.

    Calls are inlined first, since the steps of a callee have the sizes of the call.
    """
    for op in ops:
        if isinstance(op, DistOp):
            yield op, times
        elif isinstance(op, RepeatOp):
            yield from steps_with_times(op.program().ops, times * op.times)
        else:
            assert not isinstance(op, NestedOp)
