"""Measure training steps of models in ten shardings each: ``python benchmarks/testbed/models.py``.

The steps run as the Python that `-t mpi4py` prints, as written (the program of `propagate`) and
behind the pipeline `default` without `overlap`, whose requests MPI does not progress by itself. The
network is the calibrated one of ``run.py``. What a rank computes is calibrated with single
operations that all ranks run at once, as they do in the steps; no step is used for that.
"""

import argparse
import json
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import launch
import network
import numpy as np
from library import SETTINGS, chosen_algorithms
from programs import MODEL, machine
from results import read
from run import RESULTS, compact
from shardings import MODELS, Model
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp

from collir.cost.programs.simulate import simulate_function
from collir.dialects import coll
from collir.dialects.machine import mesh_of
from collir.dialects.tensor import dist_type
from collir.ir.functions import functions_of
from collir.machine import Machine
from collir.semantics.reference.buffers import distribute
from collir.syntax.reader import read as read_coll
from collir.targets.code.mpi4py import emit_mpi4py
from collir.targets.code.python_text import class_name
from collir.tools.api import run_passes

NETWORK = "two_nodes"
FILE = "models.json"
RUNS = 5
PASSES = {
    "as written": "differentiate,propagate",
    "default": "differentiate,propagate,canonicalize,reorder-by-hierarchy,fuse,cse,bucket,"
    "decompose,cse,canonicalize",
}
"""Name of a variant -> its passes."""
DEVICE = "device { compute f32 = 8 GFLOP/s; memory = 2 GB @ 2 GB/s }"
"""A device to propagate with; only its order of magnitude counts."""


def page(model: Model, given: Machine, device: str = DEVICE) -> str:
    """Return the page of a model on a network with a device."""
    levels = "\n".join(
        f"  level {level.name}[{level.size}] {{ port = {level.port} B/s, "
        f"latency = {level.latency} s }}"
        for level in given.levels
    )
    text = f"machine @{given.name} {{\n  {device}\n{levels}\n}}\n\n"
    return text + model.page().replace("@M", f"@{given.name}")


def module_of(model: Model, given: Machine, passes: str, device: str = DEVICE) -> ModuleOp:
    """Return the steps of a model behind passes, with the algorithms that MPICH is set to."""
    module = run_passes(read_coll(page(model, given, device)), passes)
    known = chosen_algorithms()
    for op in module.walk():
        if isinstance(op, coll.COLLECTIVES) and op.mnemonic in known:
            op.properties["algorithm"] = StringAttr(known[op.mnemonic])
    return module


def steps_of(module: ModuleOp) -> list[FuncOp]:
    """Return the training steps among the functions of a module."""
    return [f for f in functions_of(module) if f.sym_name.data[:1] == "f"]


def calls_of(functions: Sequence[FuncOp]) -> list[list[tuple[str, str, list[Any]]]]:
    """Return for every rank its calls; functions of a model get the same numbers."""
    ranks = mesh_of(functions[0]).devices
    calls: list[list[tuple[str, str, list[Any]]]] = [[] for _ in range(ranks)]
    for function in functions:
        rng = np.random.default_rng(0)
        arguments = []
        for argument in function.args:
            x = dist_type(argument)
            tensor = 0.05 * rng.standard_normal(x.shape, np.float32)
            arguments.append(distribute(mesh_of(function), np.asarray(tensor), x, rng))
        for rank in range(ranks):
            own = [argument[rank] for argument in arguments]
            calls[rank].append((class_name(mesh_of(function).name), function.sym_name.data, own))
    return calls


def run(module: ModuleOp, functions: Sequence[FuncOp], protocol: str) -> list[list[float]]:
    """Return the seconds of the runs of every function on the ranks of the network.

    Raises:
        RuntimeError: a rank fails, or steps of the same model give another loss.
    """
    folder = network.FOLDER / "model"
    folder.mkdir(exist_ok=True)
    names = [function.sym_name.data for function in functions]
    (folder / "program.py").write_text(emit_mpi4py(module, names), encoding="utf-8")
    for rank, calls in enumerate(calls_of(functions)):
        (folder / f"{rank}.in").write_bytes(pickle.dumps(calls))
    script = str(Path(__file__).with_name("rank.py"))
    command = [sys.executable, "-W", "ignore", "-m", "mpi4py", script, str(folder), str(RUNS)]
    # Single numbers, such as losses, are too few to be divided among the ranks.
    settings = {**SETTINGS[protocol], "MPIR_CVAR_COLLECTIVE_FALLBACK": "silent"}
    done = launch.start(command, mesh_of(functions[0]).devices, settings, 1200)
    if done.returncode:
        raise RuntimeError(f"the ranks failed: {done.stdout}{done.stderr}")
    times, first = pickle.loads((folder / "times").read_bytes())
    losses = [values[0] for values in first]
    if not np.allclose(losses, losses[0], rtol=1e-5):
        raise RuntimeError(f"the losses differ: {losses}")
    return times


def measure(results: Path) -> None:
    """Run all steps in this network name space, and write their times."""
    given = machine(NETWORK)
    network.build(given)
    protocol = json.loads((results / NETWORK / "singles.json").read_text())["protocol"]
    entry: dict[str, Any] = {
        "machine": NETWORK,
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "settings": SETTINGS[protocol],
        "models": {},
    }
    for model in MODELS:
        entry["models"][model.name] = {"sizes": model.sizes, "seconds": {}}
        for name, passes in PASSES.items():
            module = module_of(model, given, passes)
            times = run(module, steps_of(module), protocol)
            entry["models"][model.name]["seconds"][name] = [
                [round(second, 6) for second in runs] for runs in times
            ]
            print(f"{time.strftime('%H:%M:%S')} {model.name}, {name}: done", flush=True)
    (results / NETWORK / FILE).write_text(compact(entry), encoding="utf-8")


def predictions(given: Machine, device: str) -> dict[tuple[str, str], list[float]]:
    """Return the predicted seconds of all steps, by model and variant."""
    listed: dict[tuple[str, str], list[float]] = {}
    for model in MODELS:
        for name, passes in PASSES.items():
            module = module_of(model, given, passes, device)
            listed[model.name, name] = [
                simulate_function(function, MODEL).time for function in steps_of(module)
            ]
    return listed


def main() -> int:
    """Measure if nothing is measured yet, and print measurements beside predictions."""
    parser = argparse.ArgumentParser(description="Measures shardings of models on the testbed.")
    parser.add_argument("--results", type=Path, default=RESULTS, help="default: %(default)s")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        measure(options.results)
        return 0
    if not (options.results / NETWORK / FILE).exists():
        command = [sys.executable, __file__, "--inside", "--results", str(options.results)]
        subprocess.run(network.isolated(command), check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
