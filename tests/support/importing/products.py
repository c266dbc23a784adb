"""The operations of the products of a program."""

from xdsl.ir import Block

from collir.dialects.nested import CallOp, RepeatOp
from collir.dialects.operation import DistOp

PRODUCTS = ("einsum", "grouped_matmul", "conv", "conv_transpose", "conv_filter")


def products(block: Block) -> float:
    """Return the operations of products, those of a loop as often as it runs."""
    total = 0.0
    for op in block.ops:
        if isinstance(op, RepeatOp):
            total += int(op.times) * products(op.body.block)
        elif isinstance(op, CallOp) and (callee := op.function()) is not None:
            total += products(callee.body.block)
        elif isinstance(op, DistOp) and op.mnemonic in PRODUCTS:
            total += op.flops
    return total
