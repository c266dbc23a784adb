# pyright: basic, reportMissingImports=false
"""The operations of products in an imported program, beside those that torch counts."""

from collections.abc import Mapping
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from torch_gradients import HEAD
from xdsl.ir import Block

import collir
from collir.dialects.nested import CallOp, RepeatOp
from collir.dialects.operation import DistOp
from collir.importing.models.export import exported
from collir.importing.models.hugging_face import set_experts
from collir.importing.models.layers import rolled
from collir.importing.models.program import written
from collir.importing.models.sizes import with_sizes
from collir.ir.functions import functions_of

PRODUCTS = ("einsum", "grouped_matmul", "conv", "conv_transpose", "conv_filter")


def counted_by_torch(module: torch.nn.Module, kwargs: Mapping[str, Any]) -> int:
    """Return the operations of products of a forward pass, as torch counts them."""
    if hasattr(module, "set_experts_implementation"):
        set_own: Any = module.set_experts_implementation
        set_own("eager")
    counter = FlopCounterMode(display=False)
    with sdpa_kernel(SDPBackend.MATH), counter, torch.no_grad():
        module.train(False)(**kwargs)
    return counter.get_total_flops()


def in_program(module: torch.nn.Module, kwargs: Mapping[str, Any]) -> float:
    """Return the operations of products in the imported program of a forward pass."""
    set_experts(module)
    function = written(rolled(exported(module.train(False), (), kwargs)), "loss")
    read = collir.parse(HEAD + with_sizes(function.text("m"), function.layers))
    [loss] = [f for f in functions_of(read) if f.sym_name.data == "loss"]
    return _products(loss.body.block)


def _products(block: Block) -> float:
    total = 0.0
    for op in block.ops:
        if isinstance(op, RepeatOp):
            total += int(op.times) * _products(op.body.block)
        elif isinstance(op, CallOp) and (callee := op.function()) is not None:
            total += _products(callee.body.block)
        elif isinstance(op, DistOp) and op.mnemonic in PRODUCTS:
            total += op.flops
    return total
