"""Tests of the constants of machines in formulas of costs: they equal simulations of machines with
other constants."""

import random
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from support.harness.seeds import fresh

import collir
from collir.cost.formulas.constants import constants_of, with_links
from collir.cost.formulas.fastest import ParameterSpan, changes, plane
from collir.cost.formulas.function import CostFunction
from collir.cost.formulas.functions import symbol
from collir.cost.formulas.terms import in_regime, text_of, value_of
from collir.cost.model import StepCost
from collir.cost.programs.simulation import Simulation
from collir.dialects.machine import mesh_of
from collir.ir.functions import functions_of

MODELS = Path(__file__).parents[3] / "examples" / "models"

LAYER = """
machine @grid {{
  device {{ compute f32 = {f32!r} FLOP/s; memory = 40 GB @ {memory!r} B/s }}
  level node[{data}] {{ port = {node_port!r} B/s, latency = {node_latency!r} s, fabric = {fabric} }}
  level gpu[{model}] {{ port = {gpu_port!r} B/s, latency = {gpu_latency!r} s, fabric = nvlink }}
}}
mesh @m on @grid {{ data = node:{data}, model = gpu:{model} }}
func @layer(batch = {batch}, width = 480)
    (%x: f32[batch@data, width], %v: f32[width, width@model], %w: f32[width@model, width])
    -> (f32[batch@data, width], f32[width, width]) on @m {{
  %0 = einsum "b i, i j -> b j" %x, %v
  %1 = gelu %0
  %2 = einsum "b i, i j -> b j" %1, %w
  %y = all_reduce %2 over model
  %g = einsum "b i, b j -> i j" %x, %y
  %r = reduce_scatter %g over data dim 0
  %a = all_gather %r over data dim 0
  return %y, %a
}}
"""

DEFAULTS = {
    "node.port": 25e9,
    "node.latency": 5e-6,
    "gpu.port": 270e9,
    "gpu.latency": 3e-6,
    "device.f32": 19.5e12,
    "device.memory": 1.5e12,
}


def simulated(fabric: str, batch: int, data: int, model: int, **values: float) -> Simulation:
    constants = {name.removeprefix("device.").replace(".", "_"): x for name, x in values.items()}
    text = LAYER.format(fabric=fabric, batch=batch, data=data, model=model, **constants)
    return collir.simulate(collir.parse(text))[0]


@cache
def layer(fabric: str) -> CostFunction:
    constants = {name.removeprefix("device.").replace(".", "_"): x for name, x in DEFAULTS.items()}
    text = LAYER.format(fabric=fabric, batch=96, data=4, model=2, **constants)
    return collir.cost_function(collir.parse(text))


def other(value: float, rng: random.Random) -> float:
    return value * 10 ** rng.uniform(-1.5, 1.5)


@pytest.mark.parametrize("fabric", ["network", "pci", "memory"])
def test_times_are_those_of_the_machine(fabric: str) -> None:
    rng = fresh("constants", fabric)
    rows = [{name: other(value, rng) for name, value in DEFAULTS.items()} for _ in range(12)]
    sizes = [(rng.choice([2, 3, 4, 16]), rng.choice([2, 4, 8])) for _ in rows]
    batches = [96 * rng.choice([1, 7, 256, 2**13]) for _ in rows]
    data, model = np.array(sizes).T
    columns = {name: [row[name] for row in rows] for name in DEFAULTS}
    found = layer(fabric)(batch=batches, data=data, model=model, **columns)
    algorithms: set[str] = set()
    for row, constants in enumerate(rows):
        simulation = simulated(fabric, batches[row], *sizes[row], **constants)
        assert found.time[row] == pytest.approx(simulation.time, rel=1e-12)
        costs = [step.does for step in simulation.program]
        algorithms |= {cost.algorithm for cost in costs if isinstance(cost, StepCost)}
    assert len(algorithms) > 1


def test_many_sizes_on_another_machine() -> None:
    batches = 96 * np.arange(1, 30) ** 2
    found = layer("network")(batch=batches, **{"gpu.port": 20e9, "device.memory": 1e12})
    constants = {**DEFAULTS, "gpu.port": 20e9, "device.memory": 1e12}
    for row in (0, 10, 28):
        simulation = simulated("network", int(batches[row]), 4, 2, **constants)
        assert found.time[row] == pytest.approx(simulation.time, rel=1e-12)


def test_volumes_do_not_depend_on_constants() -> None:
    plain, varied = (layer("pci")(**x) for x in ({}, {"node.port": 1e9, "device.f32": 1e12}))
    assert plain[1:6] == varied[1:6]
    assert plain.time < varied.time


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("node.port", 0.0, "the values of node.port are finite and above 0.001"),
        ("gpu.latency", -1e-6, "the values of gpu.latency are finite and above 0"),
        ("device.f32", float("inf"), "the values of device.f32 are finite and above 0"),
        ("device.bf16", 1e12, "no parameter, axis or constant 'device.bf16': batch, .*node.port"),
    ],
)
def test_bad_constants(name: str, value: float, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        layer("pci")(**{name: value})


# --- names --------------------------------------------------------------------------------------

MACHINE = """
machine @odd {
  device a { compute f32 = 1 TFLOP/s }
  level node[2] { port = [10 GB/s, 5 GB/s], latency = 2 us }
  level board[1] { port = 5 GB/s, latency = 2 us }
  level gpu[4, 8] { port = 20 GB/s, latency = 0 us }
}
mesh @m on @odd { data = gpu:12 }
func @f(batch = 12)(%x: f32[batch@data]) -> f32[batch@data] on @m { return %x }
"""


def test_constants_of_machines() -> None:
    module = collir.parse(
        MACHINE.replace("  level board[1] { port = 5 GB/s, latency = 2 us }\n", "")
    )
    mesh = mesh_of(functions_of(module)[0])
    assert constants_of(mesh) == {"node.latency": 2e-6, "gpu.port": 20e9, "device.f32": 1e12}
    [level] = with_links(mesh, {"node.latency": 1e-6, "gpu.port": 1e9}).machine.levels
    assert level.parents
    assert (level.port, level.latency, level.parents.level.latency) == (1e9, 0, 1e-6)


# --- terms of levels ----------------------------------------------------------------------------


@pytest.mark.turns
@pytest.mark.parametrize("name", ["gpt3", "switch", "mlp"])
def test_terms_of_levels(name: str) -> None:
    formulas = collir.cost_formulas(collir.parse(MODELS / f"{name}.coll"))[-1]
    values = {**formulas.values, **formulas.constants}
    for step in formulas.steps:
        if step.over:
            near = in_regime(step.time, values)
            assert value_of(near, values) == pytest.approx(value_of(step.time, values), rel=1e-9)
            assert {x.name for x in near.free_symbols} & formulas.constants.keys()


def test_texts() -> None:
    batch, port, latency = map(symbol, ("batch", "gpu.port", "gpu.latency"))
    names = ("gpu.port", "gpu.latency")
    assert text_of(3.0 * batch / port, names) == "3 * batch / gpu.port"
    assert text_of((batch + 1) * latency, names) == "(batch + 1) * gpu.latency"
    assert text_of(latency, names) == "gpu.latency"


# --- the fastest --------------------------------------------------------------------------------


@pytest.mark.turns
def test_fastest_by_a_constant() -> None:
    functions = {fabric: layer(fabric) for fabric in ("pci", "network")}
    found = changes(functions, ParameterSpan("node.port", 1e9, 1e12), batch=96 * 256)
    for value, name in found:
        times = {x: f(batch=96 * 256, **{"node.port": value}).time for x, f in functions.items()}
        assert times[name] == min(times.values())
    table = plane(
        functions,
        ParameterSpan("node.port", 1e9, 1e12),
        ParameterSpan("data", 2, 16),
        points=5,
        batch=96 * 64,
    )
    assert table.costs["pci"].shape == (4, 5)
