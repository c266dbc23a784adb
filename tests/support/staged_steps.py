"""A small training step over microbatches, to be cut into the stages of a pipeline."""

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import collir
from collir.dialects.nested import RepeatOp
from collir.ir.functions import functions_of
from collir.ir.pipelines import pipelines_in

_TEXT = """
machine @box {{ level gpu[{places}] {{ port = 100 GB/s, latency = 3 us }} }}
mesh @m on @box {{ pipe = gpu:{places} }}

func @loss(batch = 2, width = 2, layers = {layers})
    (%x: f32[batch, width], %z: f32[batch, width], %w: f32[layers, width, width], %gain: f32[width])
    -> f32[] on @m {{
  %n = mul %x, %gain
  %y = repeat layers carry(%x = %n) slice(%w = %w) {{
    %0 = einsum "b i, i j -> b j" %x, %w
    %1 = relu %0
    yield %1
  }}
  %products = mul %y, %z
  %loss = sum %products dims [0, 1]
  return %loss
}}

func @step(count = {count}, batch = 2, width = 2, layers = {layers})
    (%x: f32[count, batch, width], %z: f32[count, batch, width],
     %w: f32[layers, width, width] parameter, %gain: f32[width] parameter, %rate: f32[])
    -> (f32[], f32[layers, width, width] parameter, f32[width] parameter) on @m {{
  %none = constant value 0 to f32[]
  %none_w = constant value 0 to %w
  %none_g = constant value 0 to %gain
  %loss, %d_w, %d_g = repeat count carry(%l = %none, %d_w = %none_w, %d_g = %none_g)
       slice(%x = %x, %z = %z) with(%w = %w, %gain = %gain) {{
    %own, %own_w, %own_g =
      gradient @loss(batch = batch, width = width, layers = layers)(%x, %z, %w, %gain)
      wrt %w, %gain
    %1 = add %l, %own
    %2 = add %d_w, %own_w
    %3 = add %d_g, %own_g
    yield %1, %2, %3
  }}
  %change = mul %d_w, %rate
  %new_w = sub %w, %change
  %change_g = mul %d_g, %rate
  %new_g = sub %gain, %change_g
  return %loss, %new_w, %new_g
}}
"""

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


def training_step(places: int = 2, count: int = 2, layers: int = 4) -> ModuleOp:
    """Return a module with a training step of a small network, ``@step``.

    Args:
        places: the devices, all along the axis ``pipe``.
        count: the microbatches.
    """
    return collir.parse(_TEXT.format(places=places, count=count, layers=layers), "step.coll")


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
