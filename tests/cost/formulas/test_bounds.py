"""Tests of programs with steps that overlap: their times are between bounds, or exact."""

import random
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from support.harness.seeds import some
from support.programs.collectives import RANDOM, random_module
from support.programs.timed_pipelines import written
from support.targets.async_code import make_async
from xdsl.dialects.builtin import ModuleOp

import collir
from collir.cost.formulas.function import CostFunction
from collir.cost.formulas.terms import value_of
from collir.cost.programs.simulation import Simulation
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import functions_of
from collir.layout.pipelines.rules import RULES

EXAMPLES = Path(__file__).parents[3] / "examples"


def simulated(module: ModuleOp, function: str) -> Simulation:
    return next(s for s in collir.simulate(module) if s.name == function)


def check(costs: CostFunction, simulation: Simulation, values: Mapping[str, int]) -> float:
    """Check the costs at some values, and return the upper bound over the time."""
    found = costs(**values)
    time, most, memory = (float(x[0]) for x in (found.time, found.most, found.memory))
    sizes = {**costs.values, **values}
    if any(value_of(size, sizes) == 1 for size in costs.formulas.quotients):
        return 1.0  # blocks of one row are views that others are not
    assert time <= simulation.time * (1 + 1e-12)
    assert most >= simulation.time * (1 - 1e-12)
    assert memory >= simulation.peak * (1 - 1e-12)
    if costs.formulas.is_exact:
        assert time == pytest.approx(simulation.time, rel=1e-12)
    if costs.formulas.peaks_exact:
        assert memory == pytest.approx(simulation.peak, rel=1e-12)
    return most / simulation.time if simulation.time else 1.0


@pytest.mark.turns
@settings(max_examples=8)
@given(rng=RANDOM)
def test_async(rng: random.Random) -> None:
    module = random_module(rng, 2, 8)
    make_async([*functions_of(module)], rng, 0.7)
    try:
        simulations = {simulation.name: simulation for simulation in collir.simulate(module)}
    except DiagnosticError:
        return
    for name, simulation in simulations.items():
        check(collir.cost_function(module, name), simulation, {})


@pytest.mark.turns
@pytest.mark.parametrize("name", RULES)
@settings(max_examples=2)
@given(rng=RANDOM)
def test_schedules(name: str, rng: random.Random) -> None:
    """Tasks and sends of any times; sends of different stages share ports."""
    rule, places = RULES[name], rng.choice([2, 4])
    microbatches = places * rng.randint(2, 4) * rule.directions
    graph = rule.graph(places)
    durations = {part: rng.choice([1e-3, rng.uniform(1e-4, 1e-1)]) for part in graph.places}
    port, size = rng.choice([("1000000 TB/s", 4), ("4 GB/s", 1_000_000)])
    text = written(graph, durations, rule.iterations(microbatches), name, port, size=size)
    module = collir.parse(text)
    costs = collir.cost_function(module, "f")
    check(costs, simulated(module, "f"), {})
    flops = dict.fromkeys(range(places), 0.0)
    for part, place in graph.places.items():
        flops[place] += rule.iterations(microbatches) * durations[part] * 1e12
    assert float(costs().flops[0]) == pytest.approx(max(flops.values()), rel=1e-9)


@pytest.mark.parametrize("places", [2, 4])
def test_equal_stages(places: int) -> None:
    """With equal stages and free sends, 1f1b takes (K + P - 1)(F + B)."""
    graph = RULES["1f1b"].graph(places)
    durations = {part: 1e-3 if part[0] == "F" else 2e-3 for part in graph.places}
    found = collir.cost_function(collir.parse(written(graph, durations, 8, "1f1b")), "f")()
    for bound in (found.time, found.most):
        assert bound[0] == pytest.approx((8 + places - 1) * 3e-3, rel=1e-6)


STEP = """\
machine @row {
  device { compute f32 = 10 TFLOP/s; memory = 80 GB @ 1 TB/s }
  level node[4] { port = 4 GB/s, latency = 5 us, fabric = network }
  level gpu[2] { port = 100 GB/s, latency = 3 us }
}
mesh @m on @row { pipe = node:4, model = gpu:2 }
func @loss(batch = 8, width = 8, layers = 8)
    (%x: f32[batch, width], %v: f32[layers, width, width@model],
     %w: f32[layers, width@model, width]) -> f32[] on @m {
  %y = repeat layers carry(%h = %x) slice(%v = %v, %w = %w) {
    %0 = einsum "b i, i j -> b j" %h, %v
    %1 = relu %0
    %2 = einsum "b i, i j -> b j" %1, %w
    %3 = all_reduce %2 over model
    yield %3
  }
  %l = sum %y dims [0, 1]
  return %l
}
func @step(count = 8, batch = 8, width = 8, layers = 8)
    (%x: f32[count, batch, width], %v: f32[layers, width, width@model] parameter,
     %w: f32[layers, width@model, width] parameter)
    -> (f32[], f32[layers, width, width@model], f32[layers, width@model, width]) on @m {
  %none = constant value 0 to f32[]
  %none_v = constant value 0 to %v
  %none_w = constant value 0 to %w
  %l, %d_v, %d_w = repeat count carry(%s = %none, %s_v = %none_v, %s_w = %none_w)
      slice(%x = %x) with(%v = %v, %w = %w) {
    %own, %own_v, %own_w =
        gradient @loss(batch = batch, width = width, layers = layers)(%x, %v, %w) wrt %v, %w
    %0 = add %s, %own
    %1 = add %s_v, %own_v
    %2 = add %s_w, %own_w
    yield %0, %1, %2
  }
  return %l, %d_v, %d_w
}
"""


@pytest.mark.turns
@pytest.mark.parametrize("schedule", some([*RULES], 3, "pipelines of formulas"))
def test_steps_that_are_cut_into_stages(schedule: str) -> None:
    """Sizes are parameters of a pipeline that the pass makes of a step."""
    module = collir.run_passes(collir.parse(STEP), f"differentiate,pipeline{{schedule={schedule}}}")
    costs = collir.cost_function(module, "step")
    assert set(costs.values) == {"batch", "width", "pipe", "model"}
    for values in ({}, {"batch": 64}, {"batch": 8192, "width": 512}, {"width": 10}):
        own = collir.instantiate(module.clone(), "step", **values) if values else module
        _ = check(costs, simulated(own, "step"), values)
    with pytest.raises(ValueError, match="@step has steps at places on pipe"):
        costs(pipe=2)


PARAMETRIC = """\
machine @row {
  device { compute f32 = 1 TFLOP/s; memory = 80 GB }
  level node[2] { port = 4 GB/s, latency = 5 us, fabric = network }
}
mesh @m on @row { pipe = node:2 }
func @forward(size = 64)(%a: f32[size, 64]) -> f32[size, 64] on @m {
  %y = einsum "a b, c b -> a c" %a, %a
  %z = einsum "a c, c b -> a b" %y, %a
  return %z
}
func @f(k = 8, size = 32)(%x: f32[k, size, 64] root(pipe)) -> f32[k, size, 64] root(pipe) on @m {
  %r = repeat k slice(%x = %x) schedule "1f1b" {
    %F0 = call @forward(size = size)(%x) task F0
    %s = send %F0 over pipe from 0 to 1
    %F1 = call @forward(size = size)(%s) task F1
    %B1 = call @forward(size = size)(%F1) task B1
    %r = send %B1 over pipe from 1 to 0
    %B0 = call @forward(size = size)(%r) task B0
    yield %B0
  }
  return %r
}
"""


def test_numbers_of_microbatches() -> None:
    """Formulas are made for each number of microbatches; tasks have the sizes of their calls."""
    module = collir.parse(PARAMETRIC)
    costs = collir.cost_function(module, "f")
    assert costs.formulas.fixed == {"k": 8}
    found = costs(k=[4, 8, 20, 4], size=[32, 64, 32, 1024])
    for row, (k, size) in enumerate([(4, 32), (8, 64), (20, 32), (4, 1024)]):
        one = simulated(collir.instantiate(module.clone(), "f", k=k, size=size), "f")
        assert found.time[row] == pytest.approx(one.time, rel=1e-12)
        assert found.memory[row] >= one.peak


@pytest.mark.parametrize(("name", "function"), [("layers", "step"), ("stages", "two_stages")])
def test_examples(name: str, function: str) -> None:
    module = collir.parse(EXAMPLES / f"{name}.coll")
    assert check(collir.cost_function(module, function), simulated(module, function), {}) < 1.5
