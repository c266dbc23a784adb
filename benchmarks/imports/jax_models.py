"""Import small models of JAX, and compare what they compute with JAX.

    python benchmarks/imports/jax_models.py [MODEL ...]

A table: for each model of the tests the lines of its jaxpr, of its StableHLO and of the program in
``.coll``, seconds of ``jax.make_jaxpr`` and of the rest of the import, the operations of its
products over those that XLA's cost analysis counts, and the largest error of results and gradients
beside JAX in f64; those with ``shard_map`` run on 8 devices.
"""

import os
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.importing import jax_meshes
from support.importing import jax_models as plain
from support.importing.jax_flops import counted_by_xla, in_program
from support.importing.jax_gradients import compared

import collir
from collir.importing.models.jax_functions import JaxArguments

jax: Any = import_module("jax")


def row(name: str) -> str:
    """Return the row of a model."""
    on_mesh = name in jax_meshes.MODELS
    function, args = (jax_meshes.MODELS if on_mesh else plain.MODELS)[name]()
    axes = {"data": 2, "model": 4} if on_mesh else None
    given = JaxArguments(function, args)
    start = time.perf_counter()
    closed = jax.make_jaxpr(given.calling(function))(*given.arrays)
    middle = time.perf_counter()
    imported = collir.import_jax(function, *args)
    seconds = middle - start, time.perf_counter() - middle - (middle - start)
    text = jax.jit(given.calling(function)).lower(*given.arrays).as_text()
    lines = (str(x).strip().count("\n") + 1 for x in (closed, text, imported.text))
    counted = counted_by_xla(function, args)
    products = in_program(function, args, axes) / counted if counted else 1.0
    error = compared(function, *args, axes=axes).worst
    listed = " | ".join(str(n) for n in lines)
    times = " | ".join(f"{max(x, 0.0):.2f}" for x in seconds)
    return f"| {name} | {listed} | {times} | {products:.4g} | {error:.0e} |"


def main() -> None:
    """Print the table."""
    print("| model | jaxpr | StableHLO | `.coll` | s of JAX | s | products | error |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    for name in sys.argv[1:] or [*plain.MODELS, *jax_meshes.MODELS]:
        print(row(name), flush=True)


if __name__ == "__main__":
    main()
