"""The memory of a training step by role, in closed form for a model of equal layers."""

import pytest

import collir
from collir.cost.programs.memory import BufferUse
from collir.cost.programs.simulate import simulate
from collir.cost.programs.simulation import Simulation

STEP = """
machine @box {{
  device {{ compute bf16 = 300 TFLOP/s, f32 = 20 TFLOP/s; memory = 40 GB @ 1.5 TB/s }}
  level gpu[8] {{ port = 200 GB/s, latency = 3 us }}
}}
mesh @m on @box {{ data = gpu:8 }}

func @loss(%w: bf16[{layers}, {width}, {width}] parameter, %x: bf16[{batch}@data, {width}])
    -> bf16[] on @m {{
  %y = repeat {layers} carry(%c = %x) slice(%s = %w) {{
    %h = einsum "b h, h f -> b f" %c, %s
    %a = gelu %h
    %n = add %a, %c
    yield %n
  }}
  %l = sum %y dims [0, 1]
  %r = all_reduce %l over data
  return %r
}}

func @step(%w: bf16[{layers}, {width}, {width}] parameter,
    %m: bf16[{layers}, {width}, {width}] state, %x: bf16[{batch}@data, {width}])
    -> (bf16[{layers}, {width}, {width}] parameter, bf16[{layers}, {width}, {width}] state) on @m {{
  %l, %g = gradient @loss(%w, %x) wrt %w
  %d = scale %m by 0.5
  %v = add %d, %g
  %u = scale %v by -0.125
  %n = add %w, %u
  return %n, %v
}}
"""


def step(layers: int, width: int, batch: int) -> Simulation:
    module = collir.parse(STEP.format(layers=layers, width=width, batch=batch))
    collir.run_passes(module, "differentiate,inline")
    return next(x for x in simulate(module) if x.name == "step")


@pytest.mark.parametrize(("layers", "width", "batch"), [(4, 64, 512), (12, 32, 2048), (96, 16, 64)])
def test_the_peak_of_a_step_by_role(layers: int, width: int, batch: int) -> None:
    """A layer keeps its input and what the map takes; the optimiser writes over what it reads."""
    simulation = step(layers, width, batch)
    uses = simulation.peak_on(0).uses
    weights, rows = 2 * layers * width * width, 2 * (batch // 8) * width
    assert (
        uses[BufferUse("parameters")]
        == uses[BufferUse("gradients")]
        == uses[BufferUse("optimiser state")]
        == weights
    )
    assert uses[BufferUse("activations")] == 2 * layers * rows
    assert uses[BufferUse("inputs")] == rows
    assert simulation.peak == sum(uses.values())
    assert simulation.peak <= 3 * weights + (2 * layers + 9) * rows + 2 * weights / layers


def test_the_update_runs_as_two_kernels() -> None:
    """The new state is written once, as it is returned and the new parameters need it."""
    kinds = [part.kind for part in step(4, 64, 512).program]
    assert kinds[-2:] == ["scale+add", "scale+add"]
