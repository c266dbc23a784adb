"""Measure training steps of models in ten shardings each: ``python benchmarks/testbed/models.py``.

The steps run as the Python that `-t mpi4py` prints: as `propagate` writes them, and behind the
passes of `default` but `overlap`, as MPI makes no progress on requests while ranks compute. The
network is the one that ``run.py`` has calibrated. What ranks compute is calibrated with the
programs of `collir calibrate --device`, which all ranks run at once, as they do in steps. Nothing
is fitted to the steps. ``--page`` writes docs/testbed-models.md.
"""

import argparse
import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import Any

import launch
import network
import numpy as np
from library import SETTINGS, chosen_algorithms
from metrics import errors, middle_and_worst, pairs, regret
from programs import MODEL, machine
from results import read
from run import RESULTS, compact
from shardings import MODELS, Model
from tables import percent, signed, table
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp

from collir.cost.calibration.device.calibration import calibrate_device
from collir.cost.calibration.device.probes import Probe, default_probes
from collir.cost.calibration.device.probes import page as probes_page
from collir.cost.calibration.device.times import DeviceTimes, ProbeTiming, parse_times
from collir.cost.programs.simulate import simulate_function
from collir.dialects import coll
from collir.dialects.machine import LevelAttr, MachineOp, device_properties, mesh_of
from collir.dialects.tensor import dist_type
from collir.ir.functions import functions_of
from collir.machine import Device, Machine
from collir.passes.pipelines import PIPELINES
from collir.semantics.reference.buffers import distribute
from collir.syntax.reader import read as read_coll
from collir.syntax.writer import write
from collir.targets.code.mpi4py import emit_mpi4py
from collir.targets.code.python_text import class_name
from collir.tools.api import run_passes

PAGE = Path(__file__).parents[2] / "docs" / "testbed-models.md"
NETWORK = "two_nodes"
FILE, DEVICE_FILE = "models.json", "device.txt"
RUNS, PROBE_RUNS = 5, 2
"""Runs of a step and of a small program, besides the first."""
PASSES = {
    "as written": "differentiate,propagate",
    "default": ",".join(
        entry.written for entry in PIPELINES["default"].positions if entry.written != "overlap"
    ),
}
"""Name of a variant -> its passes."""


# --- the programs -------------------------------------------------------------------------------


def machine_text(given: Machine) -> str:
    """Return the text of a machine."""
    properties = {
        "sym_name": StringAttr(given.name),
        "levels": ArrayAttr(map(LevelAttr.of, given.levels)),
        **device_properties(given),
    }
    return write(ModuleOp([MachineOp.create(properties=properties)]))


def page(model: Model, given: Machine, device: Device) -> str:
    """Return the page of a model on a network with a device."""
    text = machine_text(replace(given, device=device))
    return text + model.page().replace("@M", f"@{given.name}")


def module_of(model: Model, given: Machine, device: Device, passes: str) -> ModuleOp:
    """Return the steps of a model behind passes, with the algorithms that MPICH is set to."""
    return as_set(run_passes(read_coll(page(model, given, device)), passes))


def as_set(module: ModuleOp) -> ModuleOp:
    """Give the collectives of a module the algorithms that MPICH is set to, and return it."""
    known = chosen_algorithms()
    for op in module.walk():
        if isinstance(op, coll.COLLECTIVES) and op.mnemonic in known:
            op.properties["algorithm"] = StringAttr(known[op.mnemonic])
    return module


def steps_of(module: ModuleOp) -> list[FuncOp]:
    """Return the training steps among the functions of a module."""
    return [f for f in functions_of(module) if f.sym_name.data[:1] == "f"]


def digest(function: FuncOp) -> str:
    """Return a name of what a step does, to see whether it is the one that was measured."""
    return sha256(str(function).encode()).hexdigest()[:12]


# --- measuring ----------------------------------------------------------------------------------


def calls_of(functions: Sequence[FuncOp], ranks: int) -> list[list[tuple[str, str, list[Any]]]]:
    """Return for every rank its calls; all functions get the same random numbers."""
    calls: list[list[tuple[str, str, list[Any]]]] = [[] for _ in range(ranks)]
    for function in functions:
        rng, mesh = np.random.default_rng(0), mesh_of(function)
        arguments = [
            distribute(mesh, 0.05 * rng.standard_normal(x.shape, np.float32), x, rng)
            for x in map(dist_type, function.args)
        ]
        for rank in range(ranks):
            own = [argument[rank % mesh.devices] for argument in arguments]
            calls[rank].append((class_name(mesh.name), function.sym_name.data, own))
    return calls


def run(module: ModuleOp, functions: Sequence[FuncOp], protocol: str) -> list[list[float]]:
    """Return the seconds of the slowest rank in the runs of every function (``run_on``)."""
    times = run_on(machine(NETWORK).devices, module, functions, protocol)
    return [[max(ranks) for ranks in runs] for runs in times]


def run_on(
    ranks: int,
    module: ModuleOp,
    functions: Sequence[FuncOp],
    protocol: str,
    runs: int = RUNS,
    least: float = 0.0,
) -> list[list[list[float]]]:
    """Return the seconds of each rank of the network in the runs of every function.

    A function on one device runs on all ranks at once, and again until ``least`` seconds are over.

    Raises:
        RuntimeError: a rank fails, or steps of the same model give another loss.
    """
    folder = network.FOLDER / "model"
    folder.mkdir(exist_ok=True)
    names = [function.sym_name.data for function in functions]
    (folder / "program.py").write_text(emit_mpi4py(module, names), encoding="utf-8")
    for rank, calls in enumerate(calls_of(functions, ranks)):
        (folder / f"{rank}.in").write_bytes(pickle.dumps(calls))
    script, alone = str(Path(__file__).with_name("rank.py")), mesh_of(functions[0]).devices == 1
    command = [sys.executable, "-W", "ignore", "-m", "mpi4py", script, str(folder)]
    # Single numbers, such as losses, are too few to be divided among the ranks.
    settings = {**SETTINGS[protocol], "MPIR_CVAR_COLLECTIVE_FALLBACK": "silent"}
    command += [str(PROBE_RUNS), "alone", str(least)] if alone else [str(runs), "together"]
    done = launch.start(command, ranks, settings, 1200)
    if done.returncode:
        raise RuntimeError(f"the ranks failed: {done.stdout}{done.stderr}")
    times, losses = pickle.loads((folder / "times").read_bytes())
    if not alone and not np.allclose(losses, losses[0], rtol=1e-5):
        raise RuntimeError(f"the losses differ: {losses}")
    return times


def probing(probes: Sequence[Probe]) -> ModuleOp:
    """Return a module with a function for each probe."""
    return read_coll(probes_page(probes, "device { compute f32 = 1 GFLOP/s }"))


def times_text(ranks: int, probes: Sequence[Probe], times: Sequence[Sequence[float]]) -> str:
    """Return a file of the times of probes, each the median of its runs."""
    timings = (ProbeTiming(p, median(own)) for p, own in zip(probes, times, strict=True))
    about = f"numpy {np.__version__}, {ranks} ranks on {os.cpu_count()} cores"
    return DeviceTimes(about, "CPU", 1, 2**31, tuple(timings)).text


def measure(results: Path) -> None:
    """Measure what is not in ``results`` yet, in this network name space."""
    given, folder = machine(NETWORK), results / NETWORK
    network.build(given)
    protocol = json.loads((folder / "singles.json").read_text())["protocol"]
    if not (folder / DEVICE_FILE).exists():
        probes = list(default_probes(("f32",)))
        module = probing(probes)
        times = run(module, functions_of(module), protocol)
        text = times_text(given.devices, probes, times)
        (folder / DEVICE_FILE).write_text(text, encoding="utf-8")
        print("device: done", flush=True)
    if (folder / FILE).exists():
        return
    device, fitted = device_of(results), fitted_network(results)
    entry: dict[str, Any] = {"machine": NETWORK, "date": time.strftime("%Y-%m-%d %H:%M")}
    for model in MODELS:
        for name, passes in PASSES.items():
            module = module_of(model, fitted, device, passes)
            steps = steps_of(module)
            entry[f"{model.name}, {name}"] = [
                {"program": digest(step), "seconds": [round(second, 6) for second in runs]}
                for step, runs in zip(steps, run(module, steps, protocol), strict=True)
            ]
            print(f"{time.strftime('%H:%M:%S')} {model.name}, {name}: done", flush=True)
    (folder / FILE).write_text(compact(entry), encoding="utf-8")


# --- predictions --------------------------------------------------------------------------------


def device_of(results: Path) -> Device:
    """Return the device that explains the times of small programs."""
    return device_at(results / NETWORK / DEVICE_FILE)


@cache
def device_at(path: Path) -> Device:
    """Return the device that explains the times of small programs of a file."""
    device = calibrate_device(parse_times(path.read_text(encoding="utf-8"), str(path))).device
    # numpy runs one operation after the other.
    return replace(device, execution=replace(device.execution, maps=True))


@cache
def fitted_network(results: Path) -> Machine:
    """Return the machine that explains the times of single collectives."""
    machined = read(results / NETWORK)
    if machined is None:
        raise SystemExit(f"no single collectives in {results}: run.py measures them")
    return machined.calibration.machine


@dataclass(frozen=True)
class Group:
    """The steps of a model behind the same passes: names, and predicted and measured seconds."""

    model: Model
    passes: str
    names: list[str]
    predicted: list[float]
    measured: list[float]


def groups(results: Path) -> Iterator[Group]:
    """Yield measured steps beside their predictions; those are left out that are others by now."""
    entries = json.loads((results / NETWORK / FILE).read_text(encoding="utf-8"))
    device, fitted = device_of(results), fitted_network(results)
    for model in MODELS:
        for name, passes in PASSES.items():
            group = Group(model, name, [], [], [])
            steps = steps_of(module_of(model, fitted, device, passes))
            listed = zip(model.shardings, steps, entries[f"{model.name}, {name}"], strict=True)
            for sharding, step, entry in listed:
                if digest(step) == entry["program"]:
                    group.names.append(sharding.name)
                    group.predicted.append(simulate_function(step, MODEL).time)
                    group.measured.append(median(entry["seconds"]))
            yield group


# --- the page -----------------------------------------------------------------------------------

TEXT = """\
# Sharded models beside a real network

See whether the sharding that is predicted to be the fastest is the fastest. Training steps (loss,
gradients, an update of the weights) of two models run in ten shardings each on the 8 ranks of the
network `two_nodes` of [the testbed](testbed.md): two nodes of four ranks, uplinks of 50 Mbit/s,
rank links of 200 Mbit/s. The [types of a few values](parallelism.md) say the sharding. `propagate`
writes the program, which runs as the Python that `-t mpi4py` prints. All steps of a model give the
same loss.

Written by `python benchmarks/testbed/models.py --page` from the measurements of {date};
do not edit.

- **Models**: {models}.
- **Programs**: as `propagate` writes them, and behind the passes of [default](pipelines.md#default)
  but `overlap`.
- **Predictions**: the network is calibrated with single collectives, as on [that page](testbed.md).
  The device is calibrated with the programs of `collir calibrate --device`, all ranks at once: 8
  ranks share 2 cores. Nothing is fitted to the steps.
- **Times** are medians of {runs} runs of the slowest rank.

As written, an all_gather over both levels is one collective of the library, whose algorithm sends
whole shards between nodes again and again; `decompose` takes the levels one by one.

## Summary

*Pairs* are two shardings of a model whose measured times differ by more than 5 %; *right* are those
predicted in that order. *Pick* says how much longer the predicted fastest sharding takes than the
measured fastest.

{summary}

Where the pick is not the fastest, the two are predicted to be within 0.5 % of each other: the same
bytes go through the uplinks. Steps take a little longer than predicted where all 8 ranks reduce
together, likely as ranks add what they have received while others still compute on the same cores.

## Shardings

{shardings}
"""


def _summary(listed: Sequence[Group]) -> str:
    rows: list[list[str]] = []
    for group in listed:
        right, count = pairs(group.predicted, group.measured)
        middle, worst = middle_and_worst(errors(group.predicted, group.measured))
        rows.append(
            [
                f"{group.model.name}, {group.passes}",
                str(len(group.names)),
                f"{right:g} of {count}",
                percent(regret(group.predicted, group.measured)),
                percent(middle),
                signed(worst),
            ]
        )
    return table(["", "shardings", "pairs right", "pick", "median error", "worst"], rows)


def _shardings(listed: Sequence[Group]) -> str:
    rows: list[list[str]] = []
    for group in listed:
        for number, name in enumerate(group.names):
            predicted, measured = group.predicted[number], group.measured[number]
            rows.append(
                [
                    "" if number else f"{group.model.name}, {group.passes}",
                    name,
                    f"{1e3 * predicted:.0f} ms",
                    f"{1e3 * measured:.0f} ms",
                    signed(predicted / measured - 1),
                ]
            )
    return table(["", "", "predicted", "measured", "error"], rows, left=2)


def text_of(results: Path) -> str:
    """Return the text of the page."""
    listed = list(groups(results))
    entries = json.loads((results / NETWORK / FILE).read_text(encoding="utf-8"))
    return TEXT.format(
        date=entries["date"].split()[0],
        models="; ".join(
            f"{model.about} ({', '.join(f'{n} {size}' for n, size in model.sizes.items())})"
            for model in MODELS
        ),
        runs=RUNS,
        summary=_summary(listed),
        shardings=_shardings(listed),
    )


def main() -> int:
    """Measure if nothing is measured yet, and print or write the page."""
    parser = argparse.ArgumentParser(description="Measures shardings of models on the testbed.")
    parser.add_argument("--results", type=Path, default=RESULTS, help="default: %(default)s")
    parser.add_argument("--page", action="store_true", help=f"write {PAGE.name}")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        measure(options.results)
        return 0
    if not (options.results / NETWORK / FILE).exists():
        command = [sys.executable, __file__, "--inside", "--results", str(options.results)]
        subprocess.run(network.isolated(command), check=True)
    text = text_of(options.results)
    if options.page:
        PAGE.write_text(text, encoding="utf-8")
    print(PAGE if options.page else text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
