"""The Mixtral of examples/models: the published parameters, and the collectives of GShard."""

import math

from support.programs.model_pages import function_of, page, with_gradients

from collir.dialects.tensor import dist_type
from collir.ir.loops import steps_with_times
from collir.transforms.inlining import function_without_calls


def test_parameters() -> None:
    """Mixtral-8x7B-v0.1 has 46,702,792,704; Jiang et al. (2024) say 47 billion."""
    types = [dist_type(arg) for arg in function_of(page("mixtral"), "loss").args]
    assert sum(math.prod(x.shape) for x in types if x.dtype.is_float) == 46_702_792_704


def test_words_travel_twice_forward_and_twice_back() -> None:
    """Lepikhin et al. (2020): two all_to_alls of the places of experts, and two in reverse.

    Two are done again with the layer: the gradient of what an expert counts needs what it made.
    """
    module = page("mixtral")
    function, _ = with_gradients(module, "loss")
    sent = [
        (times, dist_type(op.result).shape)
        for op, times in steps_with_times(function_without_calls(function).body.block.ops)
        if op.mnemonic == "all_to_all"
    ]
    forward, again, reverse = 2, 2, 2
    assert sent == [(32, (8, 64, 1280, 4096))] * (forward + again + reverse)
