"""A copy of a function to try something on."""

from collections.abc import Generator
from contextlib import contextmanager

from xdsl.dialects.func import FuncOp


@contextmanager
def trial(function: FuncOp) -> Generator[FuncOp]:
    """A copy beside a function, from where its mesh is found, for as long as it is looked at."""
    block = function.parent_block()
    assert block is not None
    copy = function.clone()
    block.insert_op_after(copy, function)
    try:
        yield copy
    finally:
        copy.detach()
        copy.erase()
