"""The search for layouts finds what people do: each practice on a machine where it is the best.

Nobody names an axis but where a docstring says so. Instances of a few steps are proven the best by
trying all combinations; the others are what the search proves.
"""

from functools import cache

import pytest
from support.programs.model_pages import page
from support.semantics.checks import functions_of
from support.semantics.single_device import Sent, layouts, sent, single_device, steps
from support.synthesis.all_layouts import least_of_all
from xdsl.dialects.func import FuncOp

import collir
from collir.cost.model import CostModel
from collir.dialects.machine import mesh_of
from collir.dialects.tensor import dist_type
from collir.synthesis.propagation.graph import TensorGraph
from collir.synthesis.sharding.shard import sharding_of
from collir.synthesis.sharding.solver import least_sum

X = ("x",)
Y = ("y",)


def box(devices: int, port: int, rate: int = 20) -> str:
    """Return the text of a machine of one level and of its mesh.

    Args:
        port: the bandwidth of a device in GB/s.
        rate: what a device computes in TFLOP/s.
    """
    return f"""
machine @box {{ device {{ compute f32 = {rate} TFLOP/s; memory = 40 GB @ 1 TB/s }}
               level gpu[{devices}] {{ port = {port} GB/s, latency = 3 us }} }}
mesh @m on @box {{ x = gpu:{devices} }}
"""


def cluster(nodes: int, devices: int, slow: int, fast: int) -> str:
    """Return the text of a machine of two levels, with ports of some GB/s, and of its mesh."""
    return f"""
machine @box {{ device {{ compute f32 = 20 TFLOP/s; memory = 40 GB @ 1 TB/s }}
               level node[{nodes}] {{ port = {slow} GB/s, latency = 1 us }}
               level gpu[{devices}] {{ port = {fast} GB/s, latency = 1 us }} }}
mesh @m on @box {{ y = node:{nodes}, x = gpu:{devices} }}
"""


def sharded(text: str) -> FuncOp:
    """Return the function @step of a program, or the only one, in the best layouts."""
    module = collir.parse(text)
    if len(functions_of(module)) > 1:
        module = single_device(module)
    (function,) = functions_of(collir.run_passes(module, "shard"))
    return function


def proven(text: str) -> FuncOp:
    """Return a small function in the best layouts, and try all that no others are better."""
    (function,) = functions_of(collir.parse(text))
    found = least_sum(sharding_of(function, TensorGraph.build(function), CostModel()).sum)
    assert found.sum == pytest.approx(least_of_all(function), rel=1e-9)
    return sharded(text)


def names(collectives: list[Sent]) -> list[str]:
    """Return the names of collectives, in order."""
    return [each.name for each in collectives]


LAYERS = """
func @loss(%x: f32[{batch}, {seq}, {hidden}], %gain: f32[4, {hidden}],
           %v: f32[4, {hidden}, {inner}], %w: f32[4, {inner}, {hidden}]) -> f32[] on @m auto {{
  %y = repeat 4 carry(%h = %x) slice(%gain = %gain, %v = %v, %w = %w) {{
    %n = rms_norm %h, %gain dims [2] eps 1e-6
    %0 = einsum "b s i, i j -> b s j" %n, %v
    %1 = relu %0
    %2 = einsum "b s j, j k -> b s k" %1, %w
    %3 = add %h, %2
    yield %3
  }}
  %4 = mul %y, %y
  %5 = mean %4 dims [0, 1, 2]
  return %5
}}
func @step(%x: f32[{batch}, {seq}, {hidden}], %gain: f32[4, {hidden}] parameter,
           %v: f32[4, {hidden}, {inner}] parameter, %w: f32[4, {inner}, {hidden}] parameter)
    -> (f32[], f32[4, {hidden}] parameter, f32[4, {hidden}, {inner}] parameter,
        f32[4, {inner}, {hidden}] parameter) on @m auto {{
  %l, %dg, %dv, %dw = gradient @loss(%x, %gain, %v, %w) wrt %gain, %v, %w
  %g = sub %gain, %dg
  %a = sub %v, %dv
  %b = sub %w, %dw
  return %l, %g, %a, %b
}}
"""
"""A training step of four layers with a norm and a residual each."""


@cache
def layers(machine: str, batch: int, seq: int, hidden: int, inner: int) -> FuncOp:
    """Return the step of the layers in the best layouts."""
    return sharded(machine + LAYERS.format(batch=batch, seq=seq, hidden=hidden, inner=inner))


# Data parallelism: large batches.

PAIR = """
func @pair(%x: f32[{batch}, 1024], %v: f32[1024, 4096], %w: f32[4096, 1024])
    -> (f32[{batch}, 1024], f32[1024, 4096], f32[4096, 1024]) on @m auto {{
  %0 = einsum "b i, i j -> b j" %x, %v
  %1 = relu %0
  %2 = einsum "b j, j k -> b k" %1, %w
  %3 = einsum "b i, b j -> i j" %x, %0
  %4 = einsum "b j, b k -> j k" %1, %2
  return %2, %3, %4
}}
"""
"""Two products, and for each weight a product over the batch as in its gradient."""


def test_of_a_large_batch_each_device_has_a_part_of_all_combinations() -> None:
    function = proven(box(4, 50) + PAIR.format(batch=1 << 16))
    assert layouts(function) == {"x": (X, ()), "v": ((), ()), "w": ((), ())}
    assert [(x.name, x.shape) for x in sent(function)] == [
        ("reduce_scatter", (1024, 4096)),
        ("reduce_scatter", (4096, 1024)),
    ]


def is_data_parallel(function: FuncOp, batch: int) -> bool:
    """Return whether the first argument is divided over its batch by all axes, and no loop sends a
    value that has the batch."""
    mesh, (images, *_) = mesh_of(function), function.args
    divided = mesh.group_size(dist_type(images).dims[0].axes) == mesh.devices
    return divided and all(batch not in each.shape for each in sent(function) if each.looped)


def test_layers_are_data_parallel_at_a_large_batch() -> None:
    """Weights and their gradients are divided too (ZeRO): they are gathered once, before the loop,
    and each gradient is scattered."""
    batch = 1 << 16
    function = layers(box(8, 200, 100), batch, 1, 1024, 4096)
    assert is_data_parallel(function, batch)
    assert names(sent(function)) == ["all_gather"] * 3 + ["all_reduce"] + ["reduce_scatter"] * 3


CONVOLUTIONS = """
func @loss(%x: f32[{batch}, 16, 16, 128], %w: f32[4, 3, 3, 128, 128], %g: f32[4, 128])
    -> f32[] on @m auto {{
  %y = repeat 4 carry(%h = %x) slice(%w = %w, %g = %g) {{
    %0 = conv %h, %w stride [1, 1] padding [1, 1]
    %mean = mean %0 dims [0, 1, 2]
    %1 = sub %0, %mean
    %2 = mul %1, %1
    %3 = mean %2 dims [0, 1, 2]
    %4 = rsqrt %3
    %5 = mul %4, %g
    %6 = mul %1, %5
    %7 = relu %6
    %8 = add %h, %7
    yield %8
  }}
  %9 = mul %y, %y
  %10 = mean %9 dims [0, 1, 2, 3]
  return %10
}}
func @step(%x: f32[{batch}, 16, 16, 128], %w: f32[4, 3, 3, 128, 128] parameter,
           %g: f32[4, 128] parameter)
    -> (f32[], f32[4, 3, 3, 128, 128] parameter, f32[4, 128] parameter) on @m auto {{
  %l, %dw, %dg = gradient @loss(%x, %w, %g) wrt %w, %g
  %a = sub %w, %dw
  %b = sub %g, %dg
  return %l, %a, %b
}}
"""
"""A training step of blocks of a convolution, a norm of the batch and a residual."""


def test_convolutions_are_data_parallel_at_a_large_batch() -> None:
    batch = 4096
    function = sharded(box(8, 200, 100) + CONVOLUTIONS.format(batch=batch))
    assert is_data_parallel(function, batch)
    statistics = [each for each in sent(function) if each.looped and each.name == "all_reduce"]
    assert {max(each.shape) for each in statistics} == {128}, "channels of the norms"


@pytest.mark.turns
def test_a_vision_transformer_is_data_parallel_at_a_large_batch() -> None:
    module = single_device(page("vit", batch=512, layers=4))
    (function,) = functions_of(collir.run_passes(module, "shard"))
    assert is_data_parallel(function, 512)


@pytest.mark.slow
def test_a_resnet_is_data_parallel_at_256_images_of_a_device() -> None:
    """With 32 images of a device, the search finds that the last blocks are faster where channels
    are divided in the nodes, as norms of the batch send less often then."""
    module = single_device(page("resnet50", batch=64 * 256))
    (function,) = functions_of(collir.run_passes(module, "shard"))
    assert layouts(function)["images"][0] == ("data",)
    assert "all_to_all" not in names(sent(function))


# Megatron's pair: small batches.


def test_weights_are_columns_and_then_rows_of_all_combinations() -> None:
    """With few words, most time goes into reading the weights, so that each device has a part."""
    function = proven(
        box(4, 50)
        + """
func @pair(%x: f32[16, 4096], %v: f32[4096, 16384], %w: f32[16384, 4096])
    -> f32[16, 4096] on @m auto {
  %0 = einsum "b i, i j -> b j" %x, %v
  %1 = relu %0
  %2 = einsum "b j, j k -> b k" %1, %w
  %3 = add %x, %2
  return %3
}
"""
    )
    assert layouts(function) == {"x": ((), ()), "v": ((), X), "w": (X, ())}
    assert [each.shape for each in sent(function)] == [(16, 4096)]


def test_layers_are_megatrons_pairs_at_a_small_batch() -> None:
    """Shoeybi et al. 2019: an all_reduce forward, and one backward."""
    function = layers(box(8, 200, 100), 1, 16, 8192, 32768)
    own = layouts(function)
    assert own["v"] == ((), (), X)
    assert own["w"] == ((), X, ())
    assert own["x"] == ((), (), ())
    assert [(x.name, x.shape) for x in sent(function)] == [("all_reduce", (1, 16, 8192))] * 2


# Sequence parallelism.


def test_norms_are_divided_over_the_sequence_of_all_combinations() -> None:
    """The type of the input says that the layer before leaves the sequence divided. What each
    weight is multiplied with stands for its gradient."""
    function = proven(
        box(4, 50)
        + """
func @layer(%x: f32[1, 4096@x, 2048], %g: f32[2048], %v: f32[2048, 16384], %w: f32[16384, 2048])
    -> (f32[1, 4096, 2048], f32[2048, 16384], f32[16384, 2048]) on @m auto {
  %0 = rms_norm %x, %g dims [2] eps 1e-6
  %1 = einsum "b s i, i j -> b s j" %0, %v
  %2 = einsum "b s j, j k -> b s k" %1, %w
  %3 = add %x, %2
  %4 = einsum "b s j, b s k -> j k" %1, %3
  %5 = einsum "b s i, b s j -> i j" %0, %1
  return %3, %5, %4
}
"""
    )
    own = layouts(function)
    assert own["v"] == ((), X)
    assert own["w"] == (X, ())
    assert names(sent(function)) == ["all_gather", "reduce_scatter", "all_gather"]
    (norm,), (residual,) = steps(function, "rms_norm"), steps(function, "add")
    assert all(dist_type(x.result).dims[1].axes == ("x.gpu",) for x in (norm, residual))


def test_long_sequences_are_divided_between_the_pairs() -> None:
    """Korthikanti et al. 2022: what is an all_reduce of a pair is an all_gather in front and a
    reduce_scatter behind it, and backward too; the gradient of the norm's gain is of its part."""
    function = layers(box(8, 200, 100), 1, 1024, 8192, 32768)
    own = layouts(function)
    assert own["x"] == ((), X, ())
    assert own["v"] == ((), (), X)
    assert own["w"] == ((), X, ())
    looped = [each for each in sent(function) if each.looped]
    activations = [each.name for each in looped if each.shape == (1, 1024, 8192)]
    assert activations == ["all_gather", "reduce_scatter"] * 2
    assert [each.shape for each in looped if each.name == "all_reduce"] == []


# Expert parallelism.


def test_words_go_to_experts_and_back_of_all_combinations() -> None:
    """The type of the words says that the layer before leaves their groups divided."""
    function = proven(
        box(8, 200)
        + """
func @experts(%n: f32[8@x, 1024, 1024], %to: f32[8@x, 1024, 8, 128], %w: f32[8, 1024, 1024])
    -> (f32[8, 1024, 1024], f32[8, 1024, 1024]) on @m auto {
  %0 = einsum "g s e c, g s h -> e g c h" %to, %n
  %1 = einsum "e g c h, e h f -> e g c f" %0, %w
  %2 = einsum "g s e c, e g c f -> g s f" %to, %1
  %3 = einsum "e g c h, e g c f -> e h f" %0, %1
  return %2, %3
}
"""
    )
    assert layouts(function)["w"] == (X, (), ())
    assert names(sent(function)) == ["all_to_all"] * 2


def test_a_switch_transformer_divides_experts() -> None:
    """Two all_to_alls of each layer forward, and two backward."""
    module = single_device(page("switch", hidden=2048))
    (function,) = functions_of(collir.run_passes(module, "shard"))
    own, expert = layouts(function), ("expert",)
    assert own["x"] == (expert, (), ())
    assert own["w.up"][1] == own["w.down"][1] == expert
    looped = names([each for each in sent(function) if each.looped])
    assert looped == ["all_to_all"] * 4 + ["reduce_scatter"] * 2


# A vocabulary that is divided.

VOCABULARY = """
func @loss(%tokens: i32[2048], %targets: i32[2048], %table: f32[65536, 1024]) -> f32[] on @m auto {
  %x = take %table, %tokens dim 0
  %logits = einsum "b h, v h -> b v" %x, %table
  %losses = cross_entropy %logits, %targets dim 1
  %mean = mean %losses dims [0]
  return %mean
}
func @step(%tokens: i32[2048], %targets: i32[2048], %table: f32[65536, 1024] parameter)
    -> (f32[], f32[65536, 1024] parameter) on @m auto {
  %l, %d = gradient @loss(%tokens, %targets, %table) wrt %table
  %new = sub %table, %d
  return %l, %new
}
"""


def test_a_vocabulary_is_divided_of_all_combinations() -> None:
    function = proven(
        box(4, 50)
        + """
func @words(%t: i32[64], %table: f32[65536, 1024]) -> f32[64] on @m auto {
  %0 = take %table, %t dim 0
  %1 = einsum "b h, v h -> b v" %0, %table
  %2 = max %1 dims [1] keepdims
  %3 = sub %1, %2
  %4 = exp %3
  %5 = sum %4 dims [1]
  return %5
}
"""
    )
    assert layouts(function)["table"] == (X, ())
    (taken,) = steps(function, "take")
    assert dist_type(taken.result).partial == {"x.gpu"}
    assert [each.shape for each in sent(function)] == [(64, 1024), (64, 1), (64,)]


def test_embedding_and_loss_divide_the_vocabulary() -> None:
    """Shoeybi et al. 2019: words that a device does not have are zeros in its part of a sum; of the
    logits a few numbers of each word are sent, and of the gradient what the words are."""
    function = sharded(box(8, 20, 100) + VOCABULARY)
    assert layouts(function)["table"] == (X, ())
    (taken,) = steps(function, "take")
    assert dist_type(taken.result).partial == {"x.gpu"}
    assert not steps(function, "cross_entropy"), "it runs as its steps"
    assert {x.name for x in sent(function)} == {"all_reduce"}
    first, *between, last = [x.shape for x in sent(function)]
    assert first == last == (2048, 1024)
    assert {*between} == {(2048, 1), (2048,)}


def test_a_loss_is_not_divided_along_words_where_the_network_is_fast() -> None:
    """Blocks of the logits become blocks of rows, rather than three passes over them."""
    function = sharded(box(8, 200, 100) + VOCABULARY)
    assert [dist_type(x.operands[0]).dims[1].axes for x in steps(function, "cross_entropy")] == [()]
    assert "all_to_all" in names(sent(function))


# Two axes of a mesh.


def test_weights_are_divided_on_two_dimensions() -> None:
    """Of square weights and a small batch, each product leaves a sum over one axis, of blocks that
    the other one divides."""
    function = layers(cluster(4, 4, 100, 50), 16, 1, 4096, 4096)
    own = layouts(function)
    assert own["v"] in (((), X, Y), ((), Y, X))
    assert own["w"] == (own["v"][0], *own["v"][:0:-1])


def test_a_perceptron_divides_weights_on_two_dimensions() -> None:
    module = single_device(page("mlp", batch=256, width=16384))
    (function,) = functions_of(collir.run_passes(module, "shard"))
    own = layouts(function)
    assert sorted(own["v"][1:]) == sorted(own["w"][1:]) == [("data",), ("model",)]
    assert own["v"][1:] == own["w"][:0:-1]


def test_the_batch_is_divided_across_nodes_and_weights_inside() -> None:
    """Nodes are slow: gradients are sent between them, once a step, and activations are not."""
    batch = 1 << 14
    function = layers(cluster(2, 4, 16, 200), batch, 1, 3072, 12288)
    own = layouts(function)
    assert own["x"][0][0] == "y"
    assert own["v"][2] == own["w"][1] == X
    for each in sent(function):
        if batch in each.shape:
            assert each.over == X
    assert any("y" in each.over for each in sent(function))
