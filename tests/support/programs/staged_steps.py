"""Small training steps over microbatches, to be cut into the stages of a pipeline."""

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import collir
from collir.dialects.nested import RepeatOp
from collir.ir.functions import functions_of
from collir.ir.pipelines import pipelines_in

_TEXT = """
machine @box {{ {device} level gpu[{places}] {{ port = {port}, latency = 3 us }} }}
mesh @m on @box {{ pipe = gpu:{places} }}

func @loss(batch = {batch}, width = {width}, layers = {layers})
    (%x: {dtype}[batch, width], %z: {dtype}[batch, {targets}],
     %w: {dtype}[layers, width, width], %v: {dtype}[{other}]) -> {dtype}[] on @m {{
  {front}
  %y = repeat layers carry(%h = {start}) slice(%w = %w) {{
    %0 = einsum "b i, i j -> b j" %h, %w
    %1 = {map} %0
    yield %1
  }}
  {loss}
  return %loss
}}

func @step(count = {count}, batch = {batch}, width = {width}, layers = {layers})
    (%x: {dtype}[count, batch, width], %z: {dtype}[count, batch, {targets}]{arguments},
     %w: {dtype}[layers, width, width] parameter, %v: {dtype}[{other}] parameter, %rate: {dtype}[])
    -> ({dtype}[], {dtype}[layers, width, width] parameter, {dtype}[{other}] parameter{types})
    on @m {{
  %none = constant value 0 to {dtype}[]
  %none_w = constant value 0 to %w
  %none_v = constant value 0 to %v
  %loss, %d_w, %d_v{results} =
      repeat count carry(%l = %none, %d_w = %none_w, %d_v = %none_v{carries})
      slice(%x = %x, %z = %z{slices}) with(%w = %w, %v = %v{fixed}) {{
    %own, %own_w, %own_v =
      gradient @loss(batch = batch, width = width, layers = layers)(%x, %z, %w, %v) wrt %w, %v
    {body}
  }}
  {behind}
  %change = mul %d_w, %rate
  %new_w = sub %w, %change
  %change_v = mul %d_v, %rate
  %new_v = sub %v, %change_v
  return %loss, %new_w, %new_v{returned}
}}
"""

SUMS = "%1 = add %l, %own\n    %2 = add %d_w, %own_w\n    %3 = add %d_v, %own_v\n    "
"""The steps of a loop over microbatches that add the loss and the gradients up."""

_PIECES: dict[str, object] = {
    # the machine, and sizes
    "device": "",
    "port": "100 GB/s",
    "places": 2,
    "count": 2,
    "batch": 2,
    "width": 2,
    "layers": 4,
    "dtype": "f32",
    # the network: the last dimension of targets, the dimensions of %v, and steps around the layers
    "targets": "width",
    "other": "width",
    "front": "%n = mul %x, %v",
    "start": "%n",
    "map": "relu",
    "loss": "%products = mul %y, %z\n  %loss = sum %products dims [0, 1]",
    # the loop over microbatches: further inputs, its body behind the gradient, and further results
    "arguments": "",
    "slices": "",
    "fixed": "",
    "carries": "",
    "body": SUMS + "yield %1, %2, %3",
    "results": "",
    # steps behind the loop, and further results of the function
    "behind": "",
    "returned": "",
    "types": "",
}
"""What stands in the places of the text, if nothing else is said."""

_PERCEPTRON: dict[str, object] = {
    "port": "8 GB/s",
    "batch": 4,
    "width": 8,
    "dtype": "f64",
    "front": "",
    "start": "%x",
    "map": "tanh",
    "loss": """\
%p = einsum "b i, i j -> b j" %y, %v
  %d = sub %p, %z
  %s = mul %d, %d
  %loss = mean %s dims [0, 1]""",
}
"""Layers, a projection behind them, and the mean of squared differences."""

_WHOLE_BATCH = """
machine @box { level gpu[4] { port = 100 GB/s, latency = 3 us } }
mesh @m on @box { data = gpu:2, pipe = gpu:2 }

func @loss(batch = 4, width = 2, layers = 2)
    (%x: f32[batch@data, width], %z: f32[batch@data, width], %w: f32[layers, width, width])
    -> f32[] on @m {
  %y = repeat layers carry(%x = %x) slice(%w = %w) {
    %0 = einsum "b i, i j -> b j" %x, %w
    %1 = relu %0
    yield %1
  }
  %products = mul %y, %z
  %mean = mean %products dims [0, 1]
  %loss = all_reduce %mean over data
  return %loss
}

func @step(batch = 4, width = 2, layers = 2)
    (%x: f32[batch@data, width], %z: f32[batch@data, width],
     %w: f32[layers, width, width] parameter, %rate: f32[])
    -> (f32[], f32[layers, width, width] parameter) on @m {
  %loss, %d_w =
    gradient @loss(batch = batch, width = width, layers = layers)(%x, %z, %w) wrt %w
  %change = mul %d_w, %rate
  %new_w = sub %w, %change
  return %loss, %new_w
}
"""


def whole_batch_step() -> ModuleOp:
    """Return a module with a training step on a batch, without a loop over microbatches."""
    return collir.parse(_WHOLE_BATCH, "batch.coll")


def step_text(**pieces: object) -> str:
    """Return a program with a training step of a small network over microbatches, ``@step``.

    It has layers %w and another weight %v. The pieces take the place of those in ``_PIECES``.
    """
    assert pieces.keys() <= _PIECES.keys()
    return _TEXT.format(**(_PIECES | pieces))


def perceptron_text(
    places: int, layers: int, words: int = 6, count: int = 4, memory: str = "1 GiB"
) -> str:
    """Return a program with a step of layers in f64 and a projection to ``words`` behind them.

    Args:
        places: the devices, all along the axis ``pipe``.
        count: the microbatches.
        memory: the memory of a device.
    """
    device = f"device {{ compute f64 = 1 GFLOP/s; memory = {memory} @ 1 GB/s }}"
    sizes = {"places": places, "layers": layers, "count": count, "targets": words}
    return step_text(**_PERCEPTRON, **sizes, device=device, other=f"width, {words}")


def training_step(places: int = 2, count: int = 2, layers: int = 4) -> ModuleOp:
    """Return a module with a training step of a small network, ``@step``.

    Args:
        places: the devices, all along the axis ``pipe``.
        count: the microbatches.
    """
    return collir.parse(step_text(places=places, count=count, layers=layers), "step.coll")


def staged(module: ModuleOp, schedule: str, microbatches: int = 0) -> ModuleOp:
    """Return a copy of a module with its step cut into the stages of a pipeline.

    Args:
        microbatches: the number of parts of a whole batch; 0 if there is a loop over microbatches.
    """
    options = f"schedule={schedule} microbatches={microbatches}"
    return collir.run_passes(module.clone(), f"pipeline{{{options}}}")


def step_of(module: ModuleOp) -> FuncOp:
    """Return the training step of a module."""
    [step] = [f for f in functions_of(module) if f.sym_name.data == "step"]
    return step


def pipeline_of(module: ModuleOp) -> RepeatOp:
    """Return the loop with a schedule of the training step of a module."""
    [loop] = pipelines_in(step_of(module))
    return loop
