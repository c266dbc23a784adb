"""Costs as formulas: the time to derive them, and rows per second beside simulations.

Rows are of random batches, lengths and layers; each simulation reads a program at other values and
simulates it. The largest relative difference of the times of both is printed too.

With ``--checks N``, about N simulations with random values of all parameters, sizes of axes and
constants of the machine are compared with formulas: times, bytes of memory, operations.
"""

import argparse
import random
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from xdsl.dialects.builtin import ModuleOp

import collir
from collir.cost.formulas.function import CostFunction
from collir.cost.programs.local_steps import LocalStep
from collir.cost.programs.simulation import Simulation
from collir.ir.diagnostics import DiagnosticError

MODELS = Path(__file__).parents[1] / "examples" / "models"
PIPELINE = "pipeline{microbatches=8}"
CASES = (
    ("mlp", "loss", "width", ""),
    ("mlp", "step", "width", ""),
    ("gpt", "loss", "seq", ""),
    ("gpt", "step", "seq", ""),
    ("llama", "step", "seq", ""),
    ("mixtral", "loss", "seq", ""),
    ("vit", "step", "hidden", ""),
    ("resnet50", "step", "side", ""),
    ("pipeline", "step", "seq", PIPELINE),
    ("pipeline", "step", "seq", "pipeline{microbatches=32 schedule=zb-h1}"),
)
"""Models, functions, a parameter that is varied beside the batch, and passes."""

LAYER = """
machine @grid {{
  device {{ compute f32 = {f32} FLOP/s; memory = 40 GB @ 1.5 TB/s }}
  level node[{data}] {{ port = {port} B/s, latency = {latency} s, fabric = {fabric} }}
  level gpu[{model}] {{ port = 270 GB/s, latency = 3 us, fabric = nvlink }}
}}
mesh @m on @grid {{ data = node:{data}, model = gpu:{model} }}
func @layer(batch = {batch}, seq = {seq}, hidden = {hidden}, heads = {heads})
    (%x: f32[batch@data, seq, hidden], %q: f32[hidden, heads@model, hidden / heads],
     %k: f32[hidden, heads@model, hidden / heads], %v: f32[hidden, heads@model, hidden / heads],
     %o: f32[heads@model, hidden / heads, hidden], %up: f32[hidden, 4 * hidden@model],
     %down: f32[4 * hidden@model, hidden])
    -> (f32[batch@data, seq, hidden], f32[hidden, hidden]) on @m {{
  %0 = einsum "b s h, h a d -> b s a d" %x, %q
  %1 = einsum "b s h, h a d -> b s a d" %x, %k
  %2 = einsum "b s h, h a d -> b s a d" %x, %v
  %3 = einsum "b s a d, b t a d -> b a s t" %0, %1
  %4 = softmax %3 dims [3]
  %5 = einsum "b a s t, b t a d -> b s a d" %4, %2
  %6 = einsum "b s a d, a d h -> b s h" %5, %o
  %7 = all_reduce %6 over model
  %8 = add %x, %7
  %9 = einsum "b s h, h f -> b s f" %8, %up
  %10 = gelu %9
  %11 = einsum "b s f, f h -> b s h" %10, %down
  %12 = all_reduce %11 over model
  %13 = add %8, %12
  %g = einsum "b s h, b s i -> h i" %8, %13
  %r = all_reduce %g over data
  return %13, %r
}}
"""
"""A layer of a transformer on a machine of any size and speed, with one of its gradients."""

LAYER_VALUES = {"data": 2, "model": 2, "batch": 16, "seq": 128, "hidden": 96, "heads": 12}
MACHINE = {"f32": 19.5e12, "port": 25e9, "latency": 5e-6}

ROWS = 200_000
CHECKED = 5


def main() -> None:
    """Print a line for each case, or for each set of checks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checks", type=int, default=0, help="compare so many simulations")
    arguments = parser.parse_args()
    if arguments.checks:
        print_checks(arguments.checks)
    else:
        print_rates()


def print_rates() -> None:
    """Print the speed of each case."""
    print(
        "model         derive   rows/s, few sizes   rows/s, all different   simulations/s   error"
    )
    layer = collir.parse(LAYER.format(**LAYER_VALUES, **MACHINE, fabric="network"))
    cases = [("layer", "layer", "seq", layer)]
    for name, function, other, passes in CASES:
        module = collir.parse(MODELS / f"{name}.coll")
        cases.append((name, function, other, collir.run_passes(module, passes)))
    for name, function, other, module in cases:
        start = time.perf_counter()
        costs = collir.cost_function(module, function)
        derived = time.perf_counter() - start
        rng = np.random.default_rng(0)
        few = {p: costs.values[p] * rng.integers(1, 9, ROWS) for p in ("batch", other)}
        many = {p: costs.values[p] * rng.integers(1, 1000, ROWS) for p in ("batch", other)}
        rates = [rate(costs, rows) for rows in (few, many)]
        simulated, error = compared(module, function, costs, few)
        print(
            f"{name} {function}".ljust(13),
            f"{derived:6.2f} s {rates[0]:19,.0f} {rates[1]:23,.0f} {simulated:15.2f} {error:7.0e}",
            flush=True,
        )


def rate(costs: CostFunction, rows: dict[str, np.ndarray]) -> float:
    """Return the rows per second of a function; the first call is not timed."""
    costs(**{name: values[:100] for name, values in rows.items()})
    start = time.perf_counter()
    costs(**rows)
    return ROWS / (time.perf_counter() - start)


def compared(
    module: ModuleOp, function: str, costs: CostFunction, rows: dict[str, np.ndarray]
) -> tuple[float, float]:
    """Return the simulations per second of some rows, and the largest difference of times."""
    seconds, error = 0.0, 0.0
    for row in random.Random(0).sample(range(ROWS), CHECKED):
        values = {name: int(column[row]) for name, column in rows.items()}
        own = collir.instantiate(module.clone(), function, **values)
        start = time.perf_counter()
        found = next(s for s in collir.simulate(own) if s.name == function).time
        seconds += time.perf_counter() - start
        error = max(error, abs(float(costs(**values).time[0]) / found - 1))
    return CHECKED / seconds, error


# --- checks -------------------------------------------------------------------------------------

SHARES = {"mlp loss": 0.15, "mlp step": 0.05, "gpt loss": 0.005, "llama step": 0.01}
"""The parts of the checks of models; all others are of the layer."""

Difference = tuple[float, float, float]
"""The relative differences of the time, of the peak of memory and of operations."""


def print_checks(count: int) -> None:
    """Print the largest relative differences of formulas from simulations."""
    print("model        checks     time   memory   operations")
    rng = random.Random(0)
    for name, share in SHARES.items():
        model, function = name.split()
        print_worst(name, checks_of_model(model, function, round(count * share), rng))
    print_worst("layer", checks_of_layer(round(count * (1 - sum(SHARES.values()))), rng))


def print_worst(name: str, checks: Iterator[Difference]) -> None:
    """Print the largest differences of some checks."""
    found = np.array([*checks])
    time, memory, work = found.max(axis=0)
    print(f"{name:<12} {len(found):6} {time:8.0e} {memory:8.0e} {work:12.0e}", flush=True)


def checks_of_model(
    name: str, function: str, count: int, rng: random.Random
) -> Iterator[Difference]:
    """Yield the differences for random multiples of all parameters."""
    module = collir.parse(MODELS / f"{name}.coll")
    costs = collir.cost_function(module, function)
    names = [name for name in costs.values if name not in costs.formulas.axes]
    while count:
        values = {name: costs.values[name] * rng.choice([1, 2, 3, 5, 7, 8]) for name in names}
        try:
            own = collir.instantiate(module.clone(), function, **values)
        except DiagnosticError:  # sizes that do not divide
            continue
        yield difference(costs, values, next(s for s in collir.simulate(own) if s.name == function))
        count -= 1


def checks_of_layer(count: int, rng: random.Random) -> Iterator[Difference]:
    """Yield the differences for random parameters, sizes of axes and machines."""
    fabrics = ("network", "pci", "nvlink")
    functions = {
        fabric: collir.cost_function(
            collir.parse(LAYER.format(**LAYER_VALUES, **MACHINE, fabric=fabric))
        )
        for fabric in fabrics
    }
    for _ in range(count):
        fabric, (data, model) = rng.choice(fabrics), (rng.choice([2, 3, 4, 8]) for _ in "ab")
        heads = model * rng.randint(1, 8)
        values = {
            "data": data,
            "model": model,
            "batch": data * rng.randint(1, 64),
            "seq": rng.randint(2, 4096),
            "hidden": heads * rng.randint(2, 128),
            "heads": heads,
        }
        machine = {name: x * rng.uniform(0.2, 5) for name, x in MACHINE.items()}
        module = collir.parse(LAYER.format(**values, **machine, fabric=fabric))
        names = {"f32": "device.f32", "port": "node.port", "latency": "node.latency"}
        constants = {names[name]: x for name, x in machine.items()}
        [simulation] = collir.simulate(module)
        yield difference(functions[fabric], {**values, **constants}, simulation)


def difference(
    costs: CostFunction, values: Mapping[str, float], simulation: Simulation
) -> Difference:
    """Return the relative differences of the costs for some values from those of a simulation."""
    found = costs(**values)
    work = plain_work(simulation)
    pairs = (found.time, simulation.time), (found.memory, simulation.peak), (found.flops, work)
    time, memory, flops = (abs(float(x[0]) / right - 1) for x, right in pairs)
    return time, memory, flops


def plain_work(simulation: Simulation) -> float:
    """Return the operations of a simulation, added up."""
    total = 0.0
    for step in simulation.program:
        if step.loop is not None:
            total += step.loop.times * plain_work(step.loop.body)
        elif isinstance(step.does, LocalStep):
            total += sum(count for _, count in step.does.work)
    return total


if __name__ == "__main__":
    main()
