"""Measure uneven plans on unlike devices: ``python benchmarks/testbed/unlike.py``.

Ranks have quotas of CPU: four have 1.8 times as much as the others. A training step runs in the
best layouts with equal shares, which are those on eight slow devices, and in those that `shard`
chooses, with weights; one after the other, in turns. Steps run as the Python that `-t mpi4py`
prints. Under the same quotas, the network is calibrated with single collectives, and the device of
each kind with programs of `collir calibrate --device`. Nothing is fitted to the steps. ``--page``
writes docs/testbed-unlike.md. It needs the CPU controller of version 1 of cgroups, and root.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import models
import network
from metrics import errors, middle_and_worst
from programs import MODEL, machine
from results import read
from run import RESULTS, Bench, compact
from tables import percent, signed, table
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.cost.calibration.device.probes import Probe, default_probes
from collir.cost.programs.simulate import simulate_function
from collir.dialects.machine import MachineOp, mesh_of
from collir.dialects.tensor import dist_type
from collir.ir.functions import functions_of
from collir.machine import DeviceKind, Machine
from collir.syntax.reader import read as read_coll
from collir.tools.api import run_passes

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "testbed-unlike.md"
PROGRAM = ROOT / "examples" / "models" / "shard.coll"
NETWORK, FILE = "unlike", "unlike.json"
QUOTAS, PERIOD = {"fast": 1980, "slow": 1100}, 10_000
"""Microseconds of CPU by kind, and those of the period in which a rank has them."""
CGROUPS = Path("/sys/fs/cgroup/cpu")
MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**30), "MALLOC_TRIM_THRESHOLD_": str(2**32)}
"""Settings by which arrays reuse the memory of others: new pages take a quarter of some steps."""
RUNS, PROBE_SECONDS = 15, 0.3
"""Runs of a step besides the first, and the least seconds of a small program: many periods."""
MAPS = ("add", "mul", "sub", "relu", "sum")
ELEMENTS = 2**20
"""Numbers of 4 bytes in single collectives."""
CASES = (
    {"batch": 7168, "hidden": 256},
    {"batch": 28672, "hidden": 256},
    {"batch": 7168, "hidden": 512},
    {"batch": 512, "hidden": 896},
    {"batch": 1024, "hidden": 1024},
    {"batch": 1024, "hidden": 1792},
)
"""The sizes of steps."""


@contextmanager
def quotas(given: Machine) -> Generator[str]:
    """Make a cgroup with the quota of its kind for every rank, and give the folder of all."""
    folder = CGROUPS / f"collir-{os.getpid()}"
    kinds = [kind for kind, count in given.levels[0].kinds for _ in range(count)]
    ranks = {folder / f"r{rank}": QUOTAS[kind] for rank, kind in enumerate(kinds)}
    try:
        folder.mkdir()
        # All ranks together weigh more than what else runs here, so that they get their quotas.
        (folder / "cpu.shares").write_text(str(2**16))
        for rank, quota in ranks.items():
            rank.mkdir()
            (rank / "cpu.cfs_period_us").write_text(str(PERIOD))
            (rank / "cpu.cfs_quota_us").write_text(str(quota))
        yield str(folder)
    finally:
        time.sleep(1)  # until processes have gone
        for path in (*ranks, folder):
            if path.exists():
                path.rmdir()


# --- the programs -------------------------------------------------------------------------------


def with_devices(given: Machine, measured: Mapping[str, str], results: Path) -> Machine:
    """Return a machine with devices that compute as was measured of ranks: kind -> their kind."""
    paths = {kind: results / NETWORK / f"device-{of}.txt" for kind, of in measured.items()}
    kinds = (DeviceKind(kind, models.device_at(path)) for kind, path in paths.items())
    return replace(given, kinds=tuple(kinds))


def page(plan: str) -> str:
    """Return the functions of the model and a mesh, named after a plan."""
    text = PROGRAM.read_text(encoding="utf-8")
    text = text[text.index("func @loss") :].replace("@m ", f"@{plan} ")
    text = text.replace("@loss(", f"@loss_{plan}(").replace("@step(", f"@f_{plan}(")
    return f"mesh @{plan} on @{NETWORK} {{ x = rank:8 }}\n{text}"


def compiled(sizes: Mapping[str, int], results: Path) -> ModuleOp:
    """Return a module with a step in the best layouts of equal shares, and in those of `shard`."""
    calibrated = read(results / NETWORK, ("all_reduce", "reduce_scatter", "all_gather"))
    if calibrated is None:
        raise SystemExit(f"no single collectives in {results / NETWORK}")
    links, own = calibrated.calibration.machine, {kind: kind for kind in QUOTAS}
    joint = read_coll(models.machine_text(with_devices(links, own, results)))
    text = ",".join(f"{name}={size}" for name, size in sizes.items())
    passes = f'instantiate{{sizes="{text}"}},shard{{model=alpha-beta}}'
    # On slow devices alone, no weights are better than equal shares.
    for plan, kinds in (("even", dict.fromkeys(QUOTAS, "slow")), ("uneven", own)):
        given = models.machine_text(with_devices(links, kinds, results))
        for op in list(run_passes(read_coll(given + page(plan)), passes).ops):
            if not isinstance(op, MachineOp):
                op.detach()
                joint.body.block.add_op(op)
    return models.as_set(joint)


# --- measuring ----------------------------------------------------------------------------------


def probes() -> list[Probe]:
    """Return the programs that a device is calibrated with, without maps that steps lack."""
    listed = default_probes(("f32",))
    return [p for p in listed if p.kind not in ("map", "along") or p.word in MAPS]


def calibrate(bench: Bench) -> None:
    """Measure the network and both kinds of ranks, all at once, where they are not measured yet."""
    path, ranks = bench.folder / "singles.json", bench.machine.devices
    if not path.exists():
        bench.calibrate()
    bench.protocol = json.loads(path.read_text(encoding="utf-8"))["protocol"]
    files = {kind: bench.folder / f"device-{kind}.txt" for kind in QUOTAS}
    if all(file.exists() for file in files.values()):
        return
    listed = probes()
    module = models.probing(listed)
    functions = functions_of(module)
    times = models.run_on(ranks, module, functions, bench.protocol, least=PROBE_SECONDS)
    first = 0
    for kind, count in bench.machine.levels[0].kinds:
        own = [[median(run[first : first + count]) for run in runs] for runs in times]
        files[kind].write_text(models.times_text(ranks, listed, own), encoding="utf-8")
        first += count
    bench.log("devices: done")


def measure(results: Path) -> None:
    """Measure what is not in ``results`` yet, in this network name space."""
    bench = Bench(NETWORK, results, elements=ELEMENTS)
    calibrate(bench)
    entry: dict[str, Any] = {"date": time.strftime("%Y-%m-%d %H:%M"), "quotas": QUOTAS, "cases": []}
    for sizes in CASES:
        module = compiled(sizes, results)
        steps = models.steps_of(module)
        times = models.run_on(bench.machine.devices, module, steps, bench.protocol, RUNS)
        seconds = [[round(max(run), 6) for run in runs] for runs in times]
        programs = [models.digest(step) for step in steps]
        entry["cases"].append({"sizes": sizes, "programs": programs, "seconds": seconds})
        bench.log(f"{sizes}: {[round(median(runs), 3) for runs in seconds]}")
    (results / NETWORK / FILE).write_text(compact(entry), encoding="utf-8")


# --- the page -----------------------------------------------------------------------------------

TEXT = """\
# Uneven plans beside a real network

See how much faster unlike devices are with the [weights](sharding.md#unlike-devices) that `shard`
chooses, and whether the prediction is right. Eight ranks have links of 200 Mbit/s, and quotas of
CPU: four have {fast} us of every {period} us, and four {slow} us. The training step of
[shard.coll](../examples/models/shard.coll) runs with equal shares, in the layouts that are the best
on eight slow devices, and as `shard` divides it for these ranks; in turns, as the Python that `-t
mpi4py` prints.

Written by `python benchmarks/testbed/unlike.py --page` from the measurements of {date};
do not edit.

- **Predictions** are simulations. The network is calibrated with single collectives, and both kinds
  of ranks with the programs of `collir calibrate --device`, under the same quotas and all ranks at
  once. Nothing is fitted to the steps.
- **Times** are medians of {runs} runs of the slowest rank. *Gain* is the time with equal shares
  divided by that with weights.

{rows}

Predicted gains are {middle} off (the median), {worst} at worst; times are {times_middle} off, and
{times_worst} at worst. With hidden 256, more is measured for two reasons. The `where` of numpy in
the gradient of relu takes a slow rank 128 ms with batch 28672, and 11 ms are predicted, as no
program of a calibration has it. And a rank that has used up its quota answers in the next period:
the sum of the loss takes 17 ms beside 4 ms, and all_gathers, which only equal shares need, 55 ms
beside 40 ms.
"""


def plan_of(step: FuncOp) -> str:
    """Return what a step divides, and the weights of both kinds."""
    what = "batch" if dist_type(step.args[0]).dims[0].axes else "columns"
    return f"{what}, {' : '.join(map(str, dict.fromkeys(mesh_of(step).axes[0].weights or ())))}"


def text_of(results: Path) -> str:
    """Return the text of the page; steps are left out that are others by now."""
    entry = json.loads((results / NETWORK / FILE).read_text(encoding="utf-8"))
    rows: list[list[str]] = []
    gains: list[tuple[float, float]] = []
    times: list[tuple[float, float]] = []
    for case in entry["cases"]:
        steps = models.steps_of(compiled(case["sizes"], results))
        if [models.digest(step) for step in steps] != case["programs"]:
            continue
        predicted = [simulate_function(step, MODEL).time for step in steps]
        measured = [median(runs) for runs in case["seconds"]]
        gains.append((predicted[0] / predicted[1], measured[0] / measured[1]))
        times += zip(predicted, measured, strict=True)
        name = ", ".join(f"{name} {size}" for name, size in case["sizes"].items())
        ms = [f"{1e3 * seconds:.0f} ms" for pair in times[-2:] for seconds in pair]
        gain = [*(f"{gain:.2f}" for gain in gains[-1]), signed(gains[-1][0] / gains[-1][1] - 1)]
        rows.append([name, plan_of(steps[1]), *ms, *gain])
    if not gains:
        raise SystemExit("all steps are others by now: remove the results, and measure again")
    head = ["", "divided", "equal, predicted", "measured", "weights, predicted", "measured"]
    middle, worst = middle_and_worst(errors(*zip(*gains, strict=True)))
    times_middle, times_worst = middle_and_worst(errors(*zip(*times, strict=True)))
    return TEXT.format(
        date=entry["date"].split()[0],
        **entry["quotas"],
        period=PERIOD,
        runs=RUNS,
        rows=table([*head, "gain, predicted", "measured", "error"], rows, left=2),
        middle=percent(middle),
        worst=signed(worst),
        times_middle=percent(times_middle),
        times_worst=signed(times_worst),
    )


def main() -> int:
    """Measure if nothing is measured yet, and print or write the page."""
    parser = argparse.ArgumentParser(description="Measures uneven plans on unlike devices.")
    parser.add_argument("--results", type=Path, default=RESULTS, help="default: %(default)s")
    parser.add_argument("--page", action="store_true", help=f"write {PAGE.name}")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        measure(options.results)
        return 0
    if not (options.results / NETWORK / FILE).exists():
        command = [sys.executable, __file__, "--inside", "--results", str(options.results)]
        with quotas(machine(NETWORK)) as folder:
            environment = {**os.environ, **MEMORY, "QUOTAS": folder}
            subprocess.run(network.isolated(command), check=True, env=environment)
    text = text_of(options.results)
    if options.page:
        PAGE.write_text(text, encoding="utf-8")
    print(PAGE if options.page else text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
