"""Pipelines in every target that prints them: on real ranks, with large messages, and their size.

A multilayer perceptron runs on 4 x 2 devices, and the small GPT of
the examples, whose embedding the first and the last place share, on 2 x 2 x 2.
"""

import re
from itertools import product
from pathlib import Path

import pytest
from support.harness.seeds import some
from support.targets.on_fake_nccl import differences

import collir
from collir.ir.functions import functions_of
from collir.tools import collrun

ROOT = Path(__file__).parents[2]

PERCEPTRON = """
machine @box {
  device { compute f32 = 19.5 TFLOP/s; memory = 40 GiB @ 1.5 TB/s }
  level node[4] { port = 25 GB/s, latency = 5 us }
  level gpu[2] { port = 270 GB/s, latency = 3 us }
}
mesh @m on @box { pipe = node:4, data = gpu:2 }

func @loss(batch = 4, width = 4, layers = 8)
    (%x: f32[batch@data, width], %z: f32[batch@data, width],
     %v: f32[layers, width, 2 * width], %w: f32[layers, 2 * width, width], %gain: f32[width])
    -> f32[] on @m {
  %n = mul %x, %gain
  %y = repeat layers carry(%x = %n) slice(%v = %v, %w = %w) {
    %0 = einsum "b i, i j -> b j" %x, %v
    %1 = gelu %0
    %2 = einsum "b i, i j -> b j" %1, %w
    %3 = add %x, %2
    yield %3
  }
  %difference = sub %y, %z
  %squares = mul %difference, %difference
  %mean = mean %squares dims [0, 1]
  %loss = all_reduce %mean over data
  return %loss
}

func @step(count = COUNT, batch = 4, width = 4, layers = 8)
    (%x: f32[count, batch@data, width], %z: f32[count, batch@data, width],
     %v: f32[layers, width, 2 * width] parameter, %w: f32[layers, 2 * width, width] parameter,
     %gain: f32[width] parameter)
    -> (f32[], f32[layers, width, 2 * width], f32[layers, 2 * width, width], f32[width]) on @m {
  %none = constant value 0 to f32[]
  %none_v = constant value 0 to %v
  %none_w = constant value 0 to %w
  %none_g = constant value 0 to %gain
  %loss, %d_v, %d_w, %d_g =
      repeat count carry(%l = %none, %d_v = %none_v, %d_w = %none_w, %d_g = %none_g)
      slice(%x = %x, %z = %z) with(%v = %v, %w = %w, %gain = %gain) {
    %own, %own_v, %own_w, %own_g =
      gradient @loss(batch = batch, width = width, layers = layers)(%x, %z, %v, %w, %gain)
      wrt %v, %w, %gain
    %1 = add %l, %own
    %2 = add %d_v, %own_v
    %3 = add %d_w, %own_w
    %4 = add %d_g, %own_g
    yield %1, %2, %3, %4
  }
  return %loss, %d_v, %d_w, %d_g
}
"""

BOTH_WAYS = """
machine @line { level node[3] { port = 1 GB/s, latency = 1 us, fabric = network } }
mesh @m on @line { stage = node:3 }
func @forward(size = 4) (%x: f32[size]) -> f32[size] on @m {
  %y = scale %x by 2
  return %y
}
func @last(size = 4) (%x: f32[size], %sum: f32[size]) -> (f32[size], f32[size]) on @m {
  %total = add %sum, %x
  return %x, %total
}
func @pipeline(%x: f32[6, SIZE] root(stage), %s: f32[SIZE] at(stage = 2), %g: f32[SIZE] root(stage),
               %h: f32[SIZE] at(stage = 1))
    -> (f32[SIZE] at(stage = 2), f32[SIZE] root(stage), f32[SIZE] at(stage = 1)) on @m {
  %s_end, %g_end, %h_end =
      repeat 6 carry(%s = %s, %g = %g, %h = %h) slice(%x = %x) schedule "SCHEDULE" {
    %0 = call @forward(size = SIZE)(%x) task F0
    %1 = send %0 over stage from 0 to 1
    %2 = call @forward(size = SIZE)(%1) task F1
    %3 = send %2 over stage from 1 to 2
    %4, %s_new = call @last(size = SIZE)(%3, %s) task F2
    %5 = call @forward(size = SIZE)(%4) task B2
    %6 = send %5 over stage from 2 to 1
    %7, %h_new = call @last(size = SIZE)(%6, %h) task B1
    %8 = send %7 over stage from 1 to 0
    %9, %g_new = call @last(size = SIZE)(%8, %g) task B0
    yield %s_new, %g_new, %h_new
  }
  return %s_end, %g_end, %h_end
}
"""
"""Messages go both ways between neighbours."""


def run(text: str, passes: str, engine: str, folder: Path, *options: str) -> int:
    """Run a step on an engine, and return its exit status: 0 if it gives what one device does."""
    if engine == "torch":
        pytest.importorskip("torch")
    path = folder / "program.coll"
    path.write_text(text)
    arguments = [str(path), "--engine", engine, *options]
    return collrun.main([*arguments, "-p", passes] if passes else arguments)


def perceptron(microbatches: int = 8) -> str:
    return PERCEPTRON.replace("COUNT", str(microbatches))


def gpt() -> str:
    """Return the small GPT with places of a pipeline instead of a sharded sequence."""
    text = (ROOT / "examples" / "models" / "words.coll").read_text()
    return text.replace("context = gpu:2", "pipe = gpu:2").replace("seq@context", "seq")


CASES = [
    *product(
        ("gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipe"),
        ("mpi4py", "torch", "mpi", "jax"),
    )
]
"""All schedules on all engines."""


@pytest.mark.turns
@pytest.mark.parametrize(("schedule", "engine"), some(CASES, 2, "perceptron"))
def test_perceptron(schedule: str, engine: str, tmp_path: Path) -> None:
    passes = f"differentiate,pipeline{{schedule={schedule}}}"
    assert run(perceptron(), passes, engine, tmp_path, "--function", "step") == 0


@pytest.mark.turns
@pytest.mark.parametrize(("schedule", "engine"), some(CASES, 1, "gpt"))
def test_gpt(schedule: str, engine: str, tmp_path: Path) -> None:
    sizes = {"layers": 4, "batch": 8, "seq": 8, "hidden": 16, "vocab": 16}
    options = [word for name, size in sizes.items() for word in ("--set-size", f"{name}={size}")]
    passes = f"pipeline{{schedule={schedule} microbatches=4}}"
    assert run(gpt(), passes, engine, tmp_path, "--function", "step", *options) == 0


@pytest.mark.turns
@pytest.mark.parametrize(
    ("schedule", "engine"),
    some([*product(("1f1b", "gpipe"), ("mpi", "mpi4py", "torch"))], 1, "large messages"),
)
def test_large_messages_do_not_wait_for_each_other(
    schedule: str, engine: str, tmp_path: Path
) -> None:
    """Messages of 4 MB are sent when the receiver is ready, in both directions at once."""
    text = BOTH_WAYS.replace("SIZE", str(2**20)).replace("SCHEDULE", schedule)
    assert run(text, "", engine, tmp_path, "--function", "pipeline") == 0


@pytest.mark.turns
@pytest.mark.parametrize("schedule", ["1f1b", pytest.param("gpipe", marks=pytest.mark.slow)])
def test_nccl_waits_for_what_a_task_needs(schedule: str, tmp_path: Path) -> None:
    module = collir.parse(BOTH_WAYS.replace("SIZE", "16").replace("SCHEDULE", schedule))
    functions = [f for f in functions_of(module) if f.sym_name.data == "pipeline"]
    assert differences(module, functions, tmp_path) == []


@pytest.mark.turns
@pytest.mark.parametrize("target", ["mpi4py", "torch", "mpi"])
def test_code_grows_by_calls_alone(target: str) -> None:
    """A microbatch more adds calls of tasks, sends and slices, but no steps of tasks."""
    texts = [
        collir.emit(
            collir.run_passes(
                collir.parse(perceptron(count)), "differentiate,pipeline{schedule=1f1b}"
            ),
            target,
        )
        for count in (8, 9)
    ]
    einsums = [len(re.findall(r"einsum|product_f32\(", text)) for text in texts]
    assert einsums[0] == einsums[1]
    lines = [text.count("\n") for text in texts]
    assert 0 < lines[1] - lines[0] < 200
