"""Computations: their times, the steps that overlap them, and their buffers."""

from textwrap import dedent

import pytest

import collir
from collir.cost.programs.local_steps import COPY
from collir.cost.programs.simulate import simulate
from collir.cost.programs.simulation import Simulation

MESH = """\
machine @c {
  device { compute f32 = 1 TFLOP/s; memory = 1 GB @ 1 TB/s }
  level node[2] { port = 8 GB/s, latency = 20 us }
  level gpu[4]  { port = 270 GB/s, latency = 3 us }
}
mesh @m on @c { data = node:2 * gpu:4 }
"""


def simulated(function: str) -> Simulation:
    [simulation] = simulate(collir.parse(MESH + dedent(function)))
    return simulation


def test_it_takes_what_the_device_needs_for_it() -> None:
    simulation = simulated("""\
        func @f(%x: f32[64]) -> f32[64] on @m {
          %a = compute %x flops 2e9
          %b = compute %a flops 1e9
          return %b
        }""")
    assert simulation.time == pytest.approx(3e-3)
    assert simulation.scaled(2).time == pytest.approx(6e-3)
    assert simulation.peak == 2 * 64 * 4  # %x, and the result, to which %x is copied


def test_what_is_async_runs_beside_it() -> None:
    """The first all_reduce overlaps the second computation; the second all_reduce follows both."""
    simulation = simulated("""\
        func @f(%x: f32[1048576] partial(sum: data), %y: f32[1048576] partial(sum: data))
            -> (f32[1048576], f32[1048576]) on @m {
          %a = compute %x flops 1e9
          %b = all_reduce %a over data async
          %c = compute %y, %x flops 1e9
          %d = all_reduce %c over data async
          return %b, %d
        }""")
    timed = zip(simulation.steps, simulation.spans, strict=True)
    spans = {step.result: span for step, span in timed}
    assert spans["a"] == (0.0, pytest.approx(1e-3))
    assert spans["b"][0] == pytest.approx(1e-3)
    assert spans["c"] == (pytest.approx(1e-3), pytest.approx(2e-3))
    assert spans["d"][0] == pytest.approx(max(2e-3, spans["b"][1]))


def test_what_waits_for_its_stream_keeps_nothing_else() -> None:
    """The second all_reduce is queued behind the first; the computation does not wait for it."""
    simulation = simulated("""\
        func @f(%x: f32[1048576] partial(sum: data), %y: f32[1048576] partial(sum: data))
            -> (f32[1048576], f32[1048576], f32[1048576] partial(sum: data)) on @m {
          %b = all_reduce %x over data async
          %d = all_reduce %y over data async
          %c = compute %y flops 1e9
          return %b, %d, %c
        }""")
    timed = zip(simulation.steps, simulation.spans, strict=True)
    spans = {step.result: span for step, span in timed if step.kind != COPY}
    assert spans["d"][0] == pytest.approx(spans["b"][1])
    assert spans["c"][0] == 0.0


def test_all_operands_are_waited_for() -> None:
    simulation = simulated("""\
        func @f(%x: f32[64], %w: f32[1048576@data]) -> f32[64] on @m {
          %b = all_gather %w over data dim 0 async
          %c = compute %x, %b flops 1e6
          return %c
        }""")
    (_, end), (start, _), _ = simulation.spans  # the result, which lies in %x, is copied at the end
    assert start == pytest.approx(end)


@pytest.mark.parametrize("target", ["mpi", "nccl", "mpi4py", "torch"])
def test_what_it_waits_for_is_in_the_code(target: str) -> None:
    """The code waits for an operand although nothing else uses it."""
    module = collir.parse(
        MESH
        + dedent("""\
        func @f(%a: f32[64] partial(sum: data), %c: f32[64]) -> f32[64] on @m {
          %b = all_reduce %a over data
          %d = compute %c, %b flops 1e6
          return %d
        }""")
    )
    code = collir.emit(module, target)
    calls = {"mpi": "TRY(all_reduce(", "nccl": "ncclAllReduce(", "mpi4py": ".Allreduce("}
    assert calls.get(target, "dist.all_reduce(") in code
