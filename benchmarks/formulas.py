"""Costs as formulas: the time to derive them, and rows per second beside simulations.

Rows are of random batches, lengths and layers; each simulation reads a program at other values and
simulates it. The largest relative difference of the times of both is printed too.
"""

import random
import time
from pathlib import Path

import numpy as np
from xdsl.dialects.builtin import ModuleOp

import collir
from collir.cost.formulas.function import CostFunction

MODELS = Path(__file__).parents[1] / "examples" / "models"
CASES = (
    ("mlp", "loss", "width"),
    ("mlp", "step", "width"),
    ("gpt", "loss", "seq"),
    ("gpt", "step", "seq"),
    ("llama", "step", "seq"),
    ("mixtral", "loss", "seq"),
    ("vit", "step", "hidden"),
    ("resnet50", "step", "side"),
)
"""Models, functions, and a parameter that is varied beside the batch."""

ROWS = 200_000
CHECKED = 5


def main() -> None:
    """Print a line for each case."""
    print("model        derive   rows/s, few sizes   rows/s, all different   simulations/s   error")
    for name, function, other in CASES:
        module = collir.parse(MODELS / f"{name}.coll")
        start = time.perf_counter()
        costs = collir.cost_function(module, function)
        derived = time.perf_counter() - start
        rng = np.random.default_rng(0)
        few = {p: costs.values[p] * rng.integers(1, 9, ROWS) for p in ("batch", other)}
        many = {p: costs.values[p] * rng.integers(1, 1000, ROWS) for p in ("batch", other)}
        rates = [rate(costs, rows) for rows in (few, many)]
        simulated, error = compared(module, function, costs, few)
        print(
            f"{name} {function}".ljust(12),
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


if __name__ == "__main__":
    main()
