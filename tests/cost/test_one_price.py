"""Whoever asks how long a step takes gets one number: simulations, reports, passes, formulas."""

import json
import random
import re
from collections.abc import Callable, Iterator

import pytest
from hypothesis import event, given, settings
from support.programs.by_rounds import KEYS, WRITTEN, function_of, machine_of
from support.programs.collectives import RANDOM
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import collir
from collir.cost.formulas.terms import value_of
from collir.cost.model import CostModel
from collir.cost.programs.simulate import simulate
from collir.cost.steps import seconds_of
from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.diagnostics import Diagnostic
from collir.ir.functions import functions_of
from collir.ir.remarks import listening
from collir.passes.table import PASSES
from collir.synthesis.programs.choices import choices, needs_search
from collir.synthesis.programs.fusion import time_of
from collir.synthesis.programs.search_options import SearchOptions
from collir.synthesis.propagation.moves import Moves
from collir.synthesis.propagation.work import DeviceWork
from collir.synthesis.reorder.prices import StepPrices
from collir.synthesis.scheduling.ordering import work_of

MACHINES = {
    "cores on a bus": """
machine @k { device { compute f32 = 72 GFLOP/s; memory = 4 GiB @ 6.4 GB/s }
             level node[2] { port = 12.5 GB/s, latency = 1.3 us }
             level core[4] { port = 100 GB/s, latency = 500 ns, kind = bus } }
mesh @m on @k { x = core:4, y = node:2 }
""",
    "GPUs with launches": """
machine @k { device { compute f32 = 60 TFLOP/s; memory = 80 GiB @ 2 TB/s;
                      launch = 4 us; efficiency memory = 0.6 }
             level node[2] { port = 50 GB/s, latency = 10 us }
             level gpu[4] { port = 300 GB/s, latency = 2 us } }
mesh @m on @k { x = gpu:4, y = node:2 }
""",
    "DGX": "machine @k = @dgx_a100_80gb(nodes=2)\nmesh @m on @k { x = gpu:8, y = node:2 }\n",
}

X = "f32[4096, 1024]"
STEPS = {
    "cast %v to bf16": (X, "bf16[4096, 1024]"),
    "add %v, %v": (X, X),
    "transpose %v order [1, 0]": (X, "f32[1024, 4096]"),
    "slice %v over x dim 1": (X, "f32[4096, 1024@x]"),
    "all_reduce %v over x": (f"{X} partial(sum: x)", X),
    "all_gather %v over x dim 0": ("f32[4096@x, 1024]", X),
    "all_gather %v over x dim 1": ("f32[4096, 1024@x]", X),
    "reduce_scatter %v over x dim 1": (f"{X} partial(sum: x)", "f32[4096, 1024@x]"),
    "all_to_all %v over x dim 0 to 1": ("f32[4096@x, 1024]", "f32[4096, 1024@x]"),
    'einsum "i j, k j -> i k" %v, %v': (X, "f32[4096, 4096]"),
}


def asked(module: ModuleOp, function: FuncOp, op: DistOp) -> Iterator[tuple[str, float]]:
    """Yield who asks, and the seconds of the only step of a function."""
    mesh, model = mesh_of(function), CostModel()
    options, types = SearchOptions(model, top=20), [dist_type(x) for x in op.operands]
    [report] = json.loads(collir.emit(module, "cost-json"))["functions"]
    yield "cost", report["time_s"]
    yield "steps", seconds_of(op, mesh, model)
    yield "fuse", time_of(op, mesh, options)
    prices = StepPrices(mesh, options)
    price = prices.price(prices.of(op), *types)
    assert price is not None
    yield "reorder-by-hierarchy", price.time
    yield "overlap", work_of(function, model).best()[0]
    [formulas] = collir.cost_formulas(module)
    values = {name.removeprefix("@"): float(x) for name, x in formulas.values.items()}
    values.update(formulas.constants)
    yield "formulas", value_of(formulas.time, values)
    if needs_search(op):
        yield "decompose", next(time for time, x in choices(op, options).listed if x is None)
    if op.kind.layout_only:
        yield "shard, a move", Moves(mesh, model).seconds(types[0], dist_type(op.result))
    elif op.mnemonic in ("cast", "add", "einsum"):
        work = DeviceWork(function, mesh)
        yield "shard, a step", work.seconds(work.times(op, types, dict(op.properties)))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("step", STEPS)
def test_a_step_has_one_price(machine: str, step: str) -> None:
    operand, result = STEPS[step]
    body = f"func @f(%v: {operand}) -> {result} on @m {{\n  %r = {step}\n  return %r\n}}\n"
    module = collir.parse(MACHINES[machine] + body)
    (function,) = functions_of(module)
    op = next(op for op in function.body.ops if isinstance(op, DistOp))
    [simulation] = collir.simulate(module)
    assert simulation.time > 0
    for who, seconds in asked(module, function, op):
        assert seconds == pytest.approx(simulation.time, rel=1e-9), who


def test_a_step_of_a_library_is_not_priced_as_code() -> None:
    """Code waits for the slowest hop in each round, a library's ring for one journey."""
    text = """
machine @c { level node[4] { port = 1 GB/s, latency = 20 us }
             level core[4] { port = 9 GB/s, latency = 2 us } }
mesh @m on @c { d = node:4 * core:4 }
func @f(%x: f32[4096] partial(sum: d)) -> f32[4096] on @m {
  %y = all_reduce %x over d using ring WORDS
  return %y
}"""
    code, library, option = (
        simulate(collir.parse(text.replace("using ring WORDS", words)), model)[0].time
        for words, model in (
            ("using ring", CostModel()),
            ("using ring async", CostModel()),
            ("async", CostModel(algorithm="ring")),
        )
    )
    assert library == option < code


def _remarked(text: str, stage: Callable[[ModuleOp], object]) -> set[tuple[int, str]]:
    """Return the lines of a program at which remarks are made, and the reasons that they give."""
    heard: list[Diagnostic] = []
    with listening(heard.append):
        _ = stage(collir.parse(text))
    lines = [(x.position.line if x.position else 0, x.message) for x in heard]
    return {(line, said.split("`")[-1].split(": ")[1]) for line, said in lines if "`using" in said}


@given(rng=RANDOM)
@settings(max_examples=20)
def test_rounds_are_priced_as_code_where_they_are_printed_as_code(rng: random.Random) -> None:
    ranks = rng.choice([4, 6, 8, 66])
    inner = rng.choice([x for x in (1, 2) if ranks % x == 0])
    text = machine_of(ranks // inner, inner, 2, rng)
    text = re.sub(", kind = .*? }", " }", text).replace("gpu", "core")
    if is_uneven := rng.random() < 0.3:
        text = text.replace("e = core:2", "e = core:2 weights [3, 1]")
    keys = [key for key in KEYS if WRITTEN[key].fits(ranks)]
    for number, key in enumerate(rng.sample(keys, 3)):
        function = function_of(key, ranks, rng, f"f{number}")
        if rng.random() < 0.3:
            function = function.replace(f"using {key[1]}", f"using {key[1]} async")
        if rng.random() < 0.2 and any(x in function for x in ("max", "min")):
            function = function.replace("f32", "bool")
        if is_uneven and rng.random() < 0.5 and key[0] in ("all_reduce", "reduce", "broadcast"):
            size, by = function.split("[")[1].split("]")[0], rng.randint(1, 5)
            function = function.replace(f"[{size}]", f"[{4 * by}@e]")
        text += function
    printed = _remarked(text, lambda module: PASSES["localize"]()().apply(Context(), module))
    assert _remarked(text, lambda module: [*simulate(module, CostModel())]) == printed
    event(f"left to a library: {len(printed)}")
