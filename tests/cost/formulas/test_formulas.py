"""Tests of costs as formulas: they equal those of the simulation, for any values."""

import random
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from support.harness.seeds import fresh, some
from support.programs.collectives import RANDOM
from support.programs.training_steps import random_step
from xdsl.dialects.builtin import ModuleOp

import collir
from collir.cost.collectives.table import COSTS
from collir.cost.formulas.function import CostFunction, CostValues
from collir.cost.formulas.functions import expression
from collir.cost.formulas.opening import opened_functions
from collir.cost.formulas.terms import value_of
from collir.cost.model import CostModel, StepCost
from collir.cost.network.group import CostError
from collir.cost.programs.local_steps import LocalStep
from collir.cost.programs.simulation import Simulation
from collir.ir.diagnostics import DiagnosticError

MODELS = Path(__file__).parents[3] / "examples" / "models"

STEPS = [
    (name, function)
    for name in ("mlp", "gpt", "llama", "mixtral", "vit", "bert")
    for function in ("loss", "step")
]


@cache
def module_of(name: str) -> ModuleOp:
    return collir.parse(MODELS / f"{name}.coll")


@cache
def costs_of(name: str, function: str) -> CostFunction:
    return collir.cost_function(module_of(name), function)


def simulated(module: ModuleOp, function: str) -> Simulation:
    return next(s for s in collir.simulate(module) if s.name == function)


def runs(simulation: Simulation, times: int = 1) -> Iterator[tuple[object, int]]:
    """Yield what each step does, and how often."""
    for step in simulation.program:
        if step.loop is None:
            yield step.does, times
        else:
            yield from runs(step.loop.body, times * step.loop.times)


def plain_costs(simulation: Simulation) -> dict[str, float]:
    """Return the costs of a simulation, added up."""
    found = dict.fromkeys(CostValues._fields, 0.0)
    found |= {"time": simulation.time, "most": simulation.time, "memory": simulation.peak}
    for does, times in runs(simulation):
        if isinstance(does, LocalStep):
            found["flops"] += times * sum(count for _, count in does.work)
            found["moved"] += times * does.size
        elif isinstance(does, StepCost):
            collective = does.collective
            factor = COSTS[collective.kind].busbw(collective.ranks)
            found["sent"] += times * factor * collective.size
            found["messages"] += times
    return found


def assert_equal(costs: CostValues, row: int, right: Mapping[str, float]) -> None:
    for name, values in costs._asdict().items():
        assert values[row] == pytest.approx(right[name], rel=1e-12), name


def values_near(costs: CostFunction, rng: random.Random) -> dict[str, int]:
    """Return multiples of the parameters of a program."""
    chosen = {name: n * rng.choice([1, 1, 2, 3]) for name, n in costs.values.items()}
    return {name: n for name, n in chosen.items() if name not in costs.formulas.axes}


@pytest.mark.turns
@pytest.mark.parametrize(
    ("name", "function"),
    [("gpt", "loss"), pytest.param("mixtral", "loss", marks=pytest.mark.slow)],
)
def test_sizes_of_1(name: str, function: str) -> None:
    """Formulas are made for sizes that become views."""
    costs, checked = costs_of(name, function), 0
    found = costs(seq=[costs.values["seq"], 1])
    assert found.time[0] == costs().time[0]
    for parameter in costs.values.keys() - costs.formulas.axes.keys():
        try:
            module = collir.instantiate(module_of(name).clone(), function, **{parameter: 1})
        except DiagnosticError:  # 1 does not divide
            assert np.isnan(costs(**{parameter: 1}).time[0])
            continue
        assert_equal(costs(**{parameter: 1}), 0, plain_costs(simulated(module, function)))
        checked += 1
    assert checked


@pytest.mark.turns
@pytest.mark.parametrize(("name", "function"), some(STEPS, 4, "formulas"))
def test_costs_are_those_of_the_simulation(name: str, function: str) -> None:
    costs = costs_of(name, function)
    rng = fresh("formulas", name)
    checked = 0
    for _ in range(60):
        if checked == 4:
            break
        values = values_near(costs, rng)
        try:
            module = collir.instantiate(module_of(name).clone(), function, **values)
        except DiagnosticError:  # sizes that do not divide
            continue
        assert_equal(costs(**values), 0, plain_costs(simulated(module, function)))
        checked += 1
    assert checked


# --- other sizes of axes ------------------------------------------------------------------------

GRID = """
machine @grid {{
  device {{ compute f32 = 19.5 TFLOP/s; memory = 40 GB @ 1.5 TB/s }}
  level node[{nodes}] {{ port = 25 GB/s, latency = 5 us, fabric = {fabric} }}
  level gpu[{gpus}] {{ port = 270 GB/s, latency = 3 us, fabric = nvlink }}
}}
mesh @m on @grid {{ data = node:{nodes}, model = gpu:{gpus} }}
func @layer(batch = 96, width = 96, layers = 3)
    (%x: f32[batch@data, width], %v: f32[layers, width, width@model],
     %w: f32[layers, width@model, width]) -> (f32[batch@data, width], f32[width, width]) on @m {{
  %y = repeat layers carry(%h = %x) slice(%v = %v, %w = %w) {{
    %0 = einsum "b i, i j -> b j" %h, %v
    %1 = gelu %0
    %2 = einsum "b i, i j -> b j" %1, %w
    %3 = all_reduce %2 over model
    yield %3
  }}
  %g = einsum "b i, b j -> i j" %x, %y
  %r = reduce_scatter %g over data dim 0
  %a = all_gather %r over data dim 0
  return %y, %a
}}
"""


@pytest.mark.turns
@pytest.mark.parametrize("fabric", ["network", "pci"])
def test_other_sizes_of_axes(fabric: str) -> None:
    costs = collir.cost_function(collir.parse(GRID.format(nodes=4, gpus=2, fabric=fabric)))
    sizes = [(2, 2), (3, 8), (16, 4), (4, 2), (8, 3)]
    batches = [96 * n for n in (1, 5, 2**10, 2**12, 7)]
    nodes, gpus = np.array(sizes).T
    found = costs(batch=batches, width=480, data=nodes, model=gpus)
    for row, ((data, model), batch) in enumerate(zip(sizes, batches, strict=True)):
        module = collir.parse(GRID.format(nodes=data, gpus=model, fabric=fabric))
        module = collir.instantiate(module, batch=batch, width=480)
        assert_equal(found, row, plain_costs(simulated(module, "layer")))


def test_axes_of_one_device_send_nothing() -> None:
    costs = collir.cost_function(collir.parse(GRID.format(nodes=4, gpus=2, fabric="network")))
    alone, beside = costs(data=1, model=1), costs(data=1)
    assert alone.sent == 0
    assert alone.time < beside.time


# --- random programs ----------------------------------------------------------------------------


@pytest.mark.turns
@given(rng=RANDOM)
@settings(max_examples=4)
def test_random_steps(rng: random.Random) -> None:
    module = collir.run_passes(collir.parse(random_step(rng).text), "propagate,decompose")
    costs = collir.cost_function(module, "step")
    values = values_near(costs, rng)
    assert_equal(costs(), 0, plain_costs(simulated(module, "step")))
    try:
        module = collir.instantiate(module, "step", **values)
    except DiagnosticError:
        return
    assert_equal(costs(**values), 0, plain_costs(simulated(module, "step")))


# --- bad values ---------------------------------------------------------------------------------


def test_sizes_that_do_not_divide_have_no_costs() -> None:
    found = costs_of("mlp", "loss")(batch=[64, 63], width=512)
    assert np.isfinite(found.time[0])
    assert all(np.isnan(cost[1]) for cost in found)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (
            {"rows": 3},
            "no parameter, axis or constant 'rows': batch, width, layers, data, model",
        ),
        ({"batch": 1.5}, "the values of batch are integers of at least 1"),
        ({"batch": [0, 2]}, "the values of batch are integers of at least 1"),
        ({"batch": [[2]]}, "the values of batch have 2 dimensions, and at most 1 is possible"),
        ({"batch": [2, 4], "width": [2, 4, 8]}, "arrays have one length, not 2 and 3"),
    ],
)
def test_bad_values(values: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        costs_of("mlp", "loss")(**values)


def test_machines_that_cannot_be() -> None:
    with pytest.raises(CostError, match="there is no machine for data = 1099511627776, model = 4"):
        costs_of("mlp", "step")(data=2**40)


def test_costs_without_formulas() -> None:
    module = collir.parse(MODELS.parent / "uneven.coll")
    with pytest.raises(DiagnosticError, match="differ in size"):
        collir.cost_function(module, "whole")


def test_unknown_functions() -> None:
    with pytest.raises(DiagnosticError, match="there is no function @none"):
        collir.cost_function(module_of("mlp"), "none")


# --- the literature -----------------------------------------------------------------------------


@pytest.mark.turns
def test_operations_of_a_transformer() -> None:
    """72 b s L h^2 (1 + s / 6h + V / 12 L h): Narayanan et al. (SC 2021), eq. 3 without
    recomputation."""
    costs = costs_of("gpt", "step")
    work = costs.formulas.work["bf16"]
    values = {name: 10**6 if name in ("seq", "hidden", "vocab") else 8 for name in costs.values}
    b, s, h, v, n = (values[name] for name in ("batch", "seq", "hidden", "vocab", "layers"))
    found = value_of(work, values) * values["data"] * values["model"]
    assert found == pytest.approx(
        72 * b * s * n * h**2 * (1 + s / (6 * h) + v / (12 * n * h)), rel=1e-4
    )


# --- sizes of any form --------------------------------------------------------------------------

BOX = """\
machine @box {
  device { compute f32 = 10 TFLOP/s; memory = 80 GB @ 1 TB/s }
  level gpu[4] { port = 270 GB/s, latency = 3 us }
}
mesh @m on @box { data = gpu:4 }
"""


def test_operations_of_compute_steps() -> None:
    module = collir.parse(MODELS.parent / "layer.coll")
    for function in ("layer", "data_parallel"):
        costs = collir.cost_function(module, function)(batch=32, hidden=64)
        changed = collir.instantiate(module.clone(), function, batch=32, hidden=64)
        assert costs.time[0] == pytest.approx(simulated(changed, function).time, rel=1e-12)
        assert costs.flops[0] == 4 * 32 * 64 * 64 / 8


def test_quotients_by_numbers_have_to_be_integers() -> None:
    text = "func @f(batch = 4)(%x: f32[8]) -> f32[8] on @m {\n  %y = compute %x flops 3 * batch / 4"
    costs = collir.cost_function(collir.parse(f"{BOX}{text}\n  return %y\n}}\n"))
    assert list(costs(batch=[4, 8]).flops) == [3, 6]
    assert np.isnan(costs(batch=6).time[0])
    text = "func @f(rows = 8)(%x: f32[rows / 2]) -> f32[rows / 2] on @m {\n  %y = relu %x"
    costs = collir.cost_function(collir.parse(f"{BOX}{text}\n  return %y\n}}\n"))
    assert list(np.isnan(costs(rows=[8, 9]).time)) == [False, True]


def test_parameters_of_long_formulas_keep_their_values() -> None:
    """A product of five sums of three terms has too many terms."""
    shape = ", ".join(f"{a} + {b} + 1" for a, b in ("ab", "bc", "cd", "de", "eg"))
    head = f"func @f(a = 4, b = 4, c = 4, d = 4, e = 4, g = 4)(%x: f32[{shape}]) -> f32[{shape}]"
    module = collir.parse(f"{BOX}{head} on @m {{\n  %y = relu %x\n  return %y\n}}\n")
    costs = collir.cost_function(module)
    assert {*costs.formulas.fixed} == {*"abcdeg"}
    changed = simulated(collir.instantiate(module.clone(), "f", a=5), "f")
    assert_equal(costs(a=[4, 5]), 1, plain_costs(changed))
    assert "a = 4 is no symbol" in collir.emit(module, "cost-symbolic")


# --- LaTeX --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mlp", "switch"])
def test_latex_has_no_functions_of_ours(name: str) -> None:
    text = collir.emit(module_of(name), "cost-symbolic{latex=true}")
    assert "operatorname" not in text
    assert text.count("{") == text.count("}")
    assert text.count(r"\left") == text.count(r"\right")


def test_latex_escapes_names() -> None:
    head = "func @f(my_rows = 4)(%x: f32[my_rows] partial(sum: my_data)) -> f32[my_rows] on @m"
    body = "%y = all_reduce %x over my_data\n  return %y"
    text = f"{BOX.replace('data =', 'my_data =')}{head} {{\n  {body}\n}}\n"
    _, *lines = collir.emit(collir.parse(text), "cost-symbolic{latex=true}").splitlines()
    assert r"  \text{bytes sent over my\_data} &= " in "\n".join(lines)
    assert all(line.count("_") == line.count(r"\_") for line in lines)


def test_lines_of_the_report_are_broken_before_operators() -> None:
    """Check that no line is too long, and that broken lines have the same words."""
    names = [f"a_parameter_with_a_long_name_{letter}" for letter in "abc"]
    sizes = ", ".join(f"{name} = 8" for name in names)
    text = f"""\
machine @box {{
  device {{ compute f32 = 10 TFLOP/s; memory = 16 GB @ 1 TB/s }}
  level node[2] {{ port = 10 GB/s, latency = 5 us }}
}}
mesh @m on @box {{ data = node:2 }}
func @f({sizes})(%x: f32[{" * ".join(names)}, {names[0]}@data],
    %y: f32[{names[0]}@data, {names[1]} * {names[2]}])
    -> f32[{" * ".join(names)}, {names[1]} * {names[2]}] on @m {{
  %p = einsum "i k, k j -> i j" %x, %y
  %r = all_reduce %p over data
  return %r
}}
"""
    report = collir.emit(collir.parse(text), "cost-symbolic")
    assert max(map(len, report.splitlines())) <= 120
    assert re.search(r"\n +[*/+-] a_parameter", report)
    assert not re.search(r" [*/+-]\n", report)


OF_THREE = """
machine @box {
  device { compute f32 = 10 TFLOP/s; memory = 40 GB @ 1000 TB/s }
  level gpu[3] { port = 1 GB/s, latency = 1 us }
}
mesh @m on @box { a = gpu:3 }
"""

PARTS_OF_WORK = {
    "groups": """
func @f(batch = 7)(%x: f32[batch, 50], %w: f32[6@a, 50, 50], %e: i32[batch])
    -> f32[batch, 50] partial(sum: a) on @m {
  %y = grouped_matmul %x, %w, %e
  return %y
}
""",
    "masks": """
func @seen_scores = @seen_scores on any
func @grouped_attention = @grouped_attention on any
func @f(batch = 6)(%q: f32[batch@a, 577, 1, 1, 1], %k: f32[batch@a, 577, 1, 1])
    -> f32[batch@a, 577, 1, 1, 1] on @m {
  %y = call @grouped_attention(seq = 577, size = 1, window = 577)(%q, %k, %k) fused
  return %y
}
""",
}


@pytest.mark.parametrize("name", PARTS_OF_WORK)
def test_parts_of_the_work_are_formulas(name: str) -> None:
    """Parts that do not divide the work are neither refused nor constants."""
    module = collir.parse(OF_THREE + PARTS_OF_WORK[name])
    costs, batches = collir.cost_function(module, "f"), [3, 6, 9, 60]
    found = costs(batch=batches)
    for row, batch in enumerate(batches):
        again = collir.instantiate(module.clone(), "f", batch=batch)
        assert_equal(found, row, plain_costs(simulated(again, "f")))


TWO_AXES = """machine @box { level gpu[4] { port = 8 GB/s, latency = 3 us } }
mesh @m on @box { data = gpu:2, model = gpu:2 }
func @f(%x: f32[64@model, 8] partial(sum: data), %y: f32[64@data, 8] partial(sum: model))
    -> (f32[64@(model, data), 8], f32[64@(data, model), 8]) on @m {
  %a = reduce_scatter %x over data dim 0
  %b = reduce_scatter %y over model dim 0
  return %a, %b
}
"""


def test_sizes_that_are_equal_at_the_defaults_have_their_own_formulas() -> None:
    """Costs are kept: those of other sizes, with the same values now, are not those of a step."""
    module = collir.parse(TWO_AXES)
    collir.simulate(module)
    [opened] = opened_functions(module, CostModel())
    sent = [step.sent for step in opened.simulation.program if step.sent is not None]
    formulas = [str(expression(step.collective.size)) for step in sent]
    assert formulas == ["2048/model", "2048/data"]


FUSED = """machine @box {
  device {
    compute f32 = 1 TFLOP/s; memory = 8 GB @ 1 TB/s; efficiency compute = 0.9, fused = 0.5
  }
  level gpu[2] { port = 8 GB/s, latency = 3 us }
}
mesh @m on @box { data = gpu:2 }
func @scores(batch = 8)(%x: f32[batch, 64, 64]) -> f32[batch, 64, 64] on @m {
  %y = einsum "b i j, b k j -> b i k" %x, %x
  %z = softmax %y dims [2]
  return %z
}
func @f(batch = 8)(%x: f32[batch, 64, 64]) -> f32[batch, 64, 64] on @m {
  %y = call @scores(batch = batch)(%x) fused
  return %y
}
"""


def test_products_inside_of_kernels_are_formulas() -> None:
    """The time that they take longer than other products grows with their sizes."""
    module, batches = collir.parse(FUSED), [8, 64, 4096]
    found = collir.cost_function(module, "f")(batch=batches)
    for row, batch in enumerate(batches):
        again = collir.instantiate(module.clone(), "f", batch=batch)
        assert_equal(found, row, plain_costs(simulated(again, "f")))
