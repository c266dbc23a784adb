"""A loop costs what its iterations cost one after the other, and calls cost their steps."""

import random

import pytest
from hypothesis import given, settings
from support.programs.collectives import RANDOM, random_module
from xdsl.dialects.builtin import ModuleOp

from collir.cost.programs.simulate import simulate
from collir.dialects.operation import DistOp
from collir.ir.diagnostics import DiagnosticError
from collir.syntax.reader import read
from collir.transforms.inlining import inline_calls
from collir.transforms.loops.unrolling import unroll_all


def at_once(module: ModuleOp) -> ModuleOp:
    """Return a copy of a module in which no step is ahead."""
    copy = module.clone()
    for op in copy.walk():
        if isinstance(op, DistOp):
            op.properties.pop("ahead", None)
    return copy


def straight(module: ModuleOp) -> ModuleOp:
    """Return a copy of a module without calls and loops, in which no step is ahead."""
    copy = at_once(module)
    inline_calls(copy)
    unroll_all(copy)
    return copy


@pytest.mark.turns
@given(rng=RANDOM)
@settings(max_examples=12)
def test_it_is_the_time_of_all_iterations(rng: random.Random) -> None:
    module = at_once(random_module(rng, functions=2, steps=8, models=rng.random() < 0.3))
    try:
        alike = straight(module)
        pairs = list(zip(simulate(module), simulate(alike), strict=True))
    except DiagnosticError:  # a mesh that is on no levels
        return
    for simulation, unrolled in pairs:
        assert simulation.time == pytest.approx(unrolled.time, rel=1e-9)
        assert simulation.busy == pytest.approx(unrolled.busy, rel=1e-9)
        if len(simulation.places) > 1:  # in a loop, the bound is that of each class for itself
            assert simulation.bound <= unrolled.bound * (1 + 1e-9)
        else:
            assert simulation.bound == pytest.approx(unrolled.bound, rel=1e-9)


LAYERS = """
machine @box {{ device {{ memory = 1 GiB @ 100 GB/s; compute f32 = 1 TFLOP/s }}
               level node[2] {{ port = 8 GB/s, latency = 20 us }}
               level gpu[2] {{ port = 270 GB/s, latency = 3 us }} }}
mesh @m on @box {{ data = node:2 * gpu:2 }}
func @f(%x: f32[1000], %w: f32[{count}, 1000@data]) -> (f32[1000], f32[{count}, 1000]) on @m {{
  %h, %s = repeat {count} carry(%h = %x) slice(%w = %w) {{
    %v = all_gather %w over data dim 0 async
    %c = compute %h flops 1e6
    %a = add %c, %v
    %b = scale %a by 2
    yield %b, %a
  }}
  return %h, %s
}}
"""


def test_steps_overlap_within_an_iteration_only() -> None:
    once, often = (simulate(read(LAYERS.format(count=n)))[0] for n in (1, 96))
    assert often.time == pytest.approx(96 * once.time)
    (step,) = often.steps
    assert step.loop is not None
    assert step.loop.body.time < sum(inner.task.time for inner in step.loop.body.steps)


def test_the_memory_is_that_of_one_iteration() -> None:
    """Arguments, results, the second buffer of the carry, and the largest inside of an iteration:
    the gathered weights and the sum that is scaled, which is the row of the stack."""
    (simulation,) = simulate(read(LAYERS.format(count=96)))
    vector = 4 * 1000
    stacked = 96 * vector
    assert simulation.peak == (vector + stacked / 4) + (vector + stacked) + vector + vector


STAGES = """
machine @box {{ device {{ compute f32 = 1 TFLOP/s }}
               level node[4] {{ port = 1 GB/s, latency = 1 us }}
               level gpu[2] {{ port = 10 GB/s, latency = 1 us }} }}
mesh @m on @box {{ stage = node:4, data = gpu:2 }}
func @f(%x: f32[{count}, 250@data] root(stage)) -> f32[{count}, 250@data] at(stage = 3) on @m {{
  %y = repeat {count} slice(%m = %x) {{
    %a = compute %m flops 1e6
    %b = send %a over stage from 0 to 1 {asynchronous}
    %c = compute %b flops 2e6
    %d = send %c over stage from 1 to 2 {asynchronous}
    %e = compute %d flops 1e6
    %f = send %e over stage from 2 to 3 {asynchronous}
    %g = compute %f flops {last}
    yield %g
  }}
  return %y
}}
"""


@pytest.mark.turns
@pytest.mark.parametrize("asynchronous", ["", "async"])
@pytest.mark.parametrize("last", ["1e6", "5e7"])
def test_stages_do_not_wait_for_each_other(asynchronous: str, last: str) -> None:
    """The iterations of a pipeline take the time of its slowest stage, however many they are."""
    texts = [
        STAGES.format(count=count, asynchronous=asynchronous, last=last)
        for count in (96, 97, 96_000_000)
    ]
    few, more, many = (simulate(read(text))[0] for text in texts)
    period = more.time - few.time
    slowest = max(
        sum(step.task.time for step in few.steps if 1 in step.task.on and step.iterations == (0,)),
        float(last) / 1e12,
    )
    assert slowest * (1 - 1e-9) <= period < few.time / 90
    assert many.time == pytest.approx(few.time + (96_000_000 - 96) * period, rel=1e-9)
    assert few.time == pytest.approx(simulate(straight(read(texts[0])))[0].time, rel=1e-9)
    assert many.peak / 96_000_000 == pytest.approx(few.peak / 96, rel=1e-2)
    assert len(many.steps) < 200


def test_other_machines_and_sizes_count_in_loops() -> None:
    (simulation,) = simulate(read(LAYERS.format(count=96)))
    assert simulation.on(simulation.mesh.machine).time == pytest.approx(simulation.time)
    assert simulation.scaled(1000).time > 5 * simulation.time


@pytest.mark.turns
@given(rng=RANDOM)
@settings(max_examples=12)
def test_what_is_ahead_never_takes_longer(rng: random.Random) -> None:
    """Where several classes of devices wait for each other, a step that is ahead may hold up one
    that more wait for: an anomaly of list scheduling, which is at most twice as long."""
    module = random_module(rng, functions=2, steps=8)
    try:
        pairs = zip(simulate(module), simulate(at_once(module)), strict=True)
    except DiagnosticError:  # a mesh that is on no levels
        return
    for ahead, plain in pairs:
        most = 1 if len(plain.places) == 1 else 2
        assert ahead.time <= most * plain.time * (1 + 1e-9)


AHEAD = LAYERS.replace(" async", " ahead").replace("%c = compute %h", "%c = compute %h, %v")


@pytest.mark.parametrize("count", [2, 3, 96])
def test_a_gather_that_is_ahead_runs_beside_the_iteration_before(count: int) -> None:
    (once,) = simulate(at_once(read(AHEAD.format(count=1))))
    (loop,) = once.steps
    assert loop.loop is not None
    gather, *others = loop.loop.body.steps
    rest = sum(step.task.time for step in others)
    (simulation,) = simulate(read(AHEAD.format(count=count)))
    longer = max(gather.task.time, rest)
    assert simulation.time == pytest.approx(gather.task.time + (count - 1) * longer + rest)
    (plain,) = simulate(at_once(read(AHEAD.format(count=count))))
    assert plain.time == pytest.approx(count * (gather.task.time + rest))


@pytest.mark.parametrize(("count", "buffers"), [(96, 2), (97, 3)])
def test_the_memory_has_the_weights_of_two_layers(count: int, buffers: int) -> None:
    """Those that are gathered, and those in use; and those of the first layer, where they cannot be
    either, as the number of iterations before the last is even."""
    (simulation,) = simulate(read(AHEAD.format(count=count)))
    vector = 4 * 1000
    stacked = count * vector
    carry = vector
    rows = (vector + stacked / 4) + (vector + stacked)
    assert simulation.peak == rows + carry + vector + (buffers - 1) * vector
