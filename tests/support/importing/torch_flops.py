"""The operations of products in an imported program, beside those that torch counts."""

from collections.abc import Mapping
from typing import Any

import torch
from support.importing.products import products
from support.importing.torch_gradients import HEAD
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import collir
from collir.importing.models.export import exported
from collir.importing.models.hugging_face import set_experts
from collir.importing.models.layers import rolled
from collir.importing.models.program import written
from collir.importing.models.sizes import with_sizes
from collir.ir.functions import functions_of


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
    return products(loss.body.block)
