"""Measure what `collir sweep` chooses from: ``python benchmarks/testbed/sweeps.py``.

All configurations of a training step of DistIR's MLP-xs (8 layers of width 512) run on the 8 ranks
of the network that ``run.py`` has calibrated, as the Python that `-t mpi4py` prints. Ranks compute
as ``models.py`` has calibrated them. Nothing is fitted to the steps. The sweep is timed against
running them all. ``--page`` writes docs/testbed-sweep.md.
"""

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import models
import network
from metrics import errors, middle_and_worst, pairs, regret
from models import NETWORK
from programs import machine
from run import RESULTS, compact
from scipy.stats import spearmanr
from tables import percent, signed, table
from xdsl.dialects.builtin import ModuleOp

from collir import search
from collir.synthesis.propagation.propagate import make_explicit
from collir.synthesis.sweeping.configuration import UNSTAGED, Configuration
from collir.synthesis.sweeping.groups import ConfigurationEstimate
from collir.synthesis.sweeping.programs import named
from collir.synthesis.sweeping.space import ConfigurationSpace
from collir.tools.sweep_model import Model
from collir.tools.sweep_search import Sweep, bound_of

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "testbed-sweep.md"
PROGRAM = ROOT / "examples" / "models" / "distir_mlp.coll"
FILE = "sweep.json"
BATCH, ROWS = 256, (16, 32, 64)
"""The batch, and the rows of a device in a microbatch."""

EDITS = (
    ("f16", "f32"),
    ("layers = 8", "pairs = 4"),
    ("layers = layers", "pairs = pairs"),
    ("layers / 2", "pairs"),
)
"""The changes of the program: what is cut into stages are pairs of layers."""


@dataclass(frozen=True)
class Testbed(Model):
    """A model whose collectives run by the algorithms that MPICH is set to."""

    def compiled(self, configuration: Configuration) -> ModuleOp:
        """Return the program of a configuration, behind its passes."""
        return models.as_set(super().compiled(configuration))


def model_of(results: Path) -> Testbed:
    """Return the model on the calibrated machine."""
    calibrated = replace(models.fitted_network(results), device=models.device_of(results))
    text = PROGRAM.read_text(encoding="utf-8")
    for old, new in EDITS:
        text = text.replace(old, new)
    return Testbed(str(PROGRAM), text, "step", (("batch", BATCH),), calibrated, "pipe")


def as_measured(c: Configuration) -> str:
    """Return the passes with which configurations ran, in which no order hides what is sent."""
    if c.stages == 1:
        return f"microbatch{{microbatches={c.microbatches}}},propagate"
    return f"pipeline{{axis={c.pipeline} microbatches={c.microbatches} schedule={c.schedule}}}"


def space_of(model: Model) -> ConfigurationSpace:
    """Return the configurations that are measured."""
    return replace(
        model.step.space(model.machine, (8,)),
        microbatch=ROWS,
        schedules=("1f1b",),
        recompute=(False,),
        zero=(0,),
    )


def swept(model: Model, space: ConfigurationSpace) -> tuple[Configuration, float]:
    """Return what the sweep picks, and the seconds that it takes on one core."""
    start = time.perf_counter()
    estimates = model.estimator(1).estimates(space.configurations(Counter()))
    entries = [(c, e) for c, e in estimates if isinstance(e, ConfigurationEstimate)]
    entries.sort(key=lambda entry: bound_of(*entry))
    problem = Sweep(model, entries, float("inf"))
    [solution] = search.k_best(problem, 1, order="best-first", workers=1).solutions
    return entries[solution.node.number][0], time.perf_counter() - start


def measure(results: Path) -> None:
    """Measure all configurations, in this network name space."""
    network.build(machine(NETWORK))
    protocol = json.loads((results / NETWORK / "singles.json").read_text())["protocol"]
    model = model_of(results)
    entry: dict[str, Any] = {"date": time.strftime("%Y-%m-%d %H:%M"), "steps": []}
    for configuration in space_of(model).configurations(Counter()):
        module = model.compiled(configuration)
        make_explicit(module)
        step = named(module, model.step.function)
        start = time.perf_counter()
        [seconds] = models.run(module, [step], protocol)
        entry["steps"].append(
            {
                "configuration": words(configuration),
                "program": models.digest(step),
                "seconds": [round(second, 6) for second in seconds],
                "took": round(time.perf_counter() - start, 1),
            }
        )
        print(words(configuration), round(median(seconds), 3), flush=True)
    (results / NETWORK / FILE).write_text(compact(entry), encoding="utf-8")


def words(c: Configuration) -> str:
    """Return a configuration in words."""
    levels = ("node", "rank")
    parts = [
        f"{name} = {' * '.join(f'{at}:{n}' for at, n in zip(levels, sizes, strict=True) if n > 1)}"
        for name, sizes in c.axes
        if max(sizes) > 1
    ]
    schedule = "" if c.schedule == UNSTAGED else f", {c.schedule}"
    return f"{', '.join(parts)}; {c.microbatches} microbatches{schedule}"


TEXT = """\
# A sweep beside a real network

See whether the configuration that [collir sweep](sweep.md) picks is the fastest. A training step of
DistIR's MLP-xs (8 layers of width 512 in pairs, batch {batch}, f32) runs in all {count}
configurations of data, tensor and pipeline parallelism, at each placement on the 8 ranks of the
network `two_nodes` of [the testbed](testbed.md), with microbatches of {rows} rows of a device where
these divide: two nodes of four ranks, uplinks of 50 Mbit/s, rank links of 200 Mbit/s. The programs
are those that the sweep writes, and run as the Python that `-t mpi4py` prints. The network is
calibrated with single collectives, and the device with small programs, as on
[that page](testbed-models.md); nothing is fitted to the steps. Times are medians of {runs} runs of
the slowest rank.

Written by `python benchmarks/testbed/sweeps.py --page` from the measurements of {date};
do not edit.

{summary}

Predicted times are too long where few ranks compute at a time, as in pipelines across nodes: the
device is calibrated with all 8 ranks at once on 2 cores, and a rank that computes alone has more.

{rows_of_all}
"""


def text_of(results: Path) -> str:
    """Return the text of the page."""
    entry = json.loads((results / NETWORK / FILE).read_text(encoding="utf-8"))
    model = model_of(results)
    space = space_of(model)
    configurations = {words(c): c for c in space.configurations(Counter())}
    names = [each["configuration"] for each in entry["steps"]]
    measured = [median(each["seconds"]) for each in entry["steps"]]
    predicted = [
        model.simulated(configurations[name], as_measured(configurations[name])).time
        for name in names
    ]
    pick, seconds = swept(model, space)
    own = measured[names.index(words(pick))]
    right, count = pairs(predicted, measured)
    middle, worst = middle_and_worst(errors(predicted, measured))
    all_of_them = sum(each["took"] for each in entry["steps"])
    summary = table(
        ["", ""],
        [
            ["configurations", str(len(names))],
            ["the pick of the sweep", words(pick)],
            ["it takes longer than the fastest by", percent(own / min(measured) - 1)],
            ["the least simulated time, the same", percent(regret(predicted, measured))],
            ["Spearman's rank correlation", f"{spearmanr(predicted, measured).statistic:.3f}"],
            ["pairs in the right order", f"{right:g} of {count}"],
            ["median error, worst", f"{percent(middle)}, {signed(worst)}"],
            ["seconds of the sweep, on one core", f"{seconds:.0f}"],
            ["seconds of running all", f"{all_of_them:.0f} ({all_of_them / seconds:.0f} times)"],
        ],
        left=2,
    )
    order = sorted(range(len(names)), key=measured.__getitem__)
    rows = [
        [
            names[n],
            f"{1e3 * predicted[n]:.0f} ms",
            f"{1e3 * measured[n]:.0f} ms",
            signed(predicted[n] / measured[n] - 1),
        ]
        for n in order
    ]
    return TEXT.format(
        date=entry["date"].split()[0],
        batch=BATCH,
        count=len(names),
        rows=", ".join(map(str, ROWS)),
        runs=models.RUNS,
        summary=summary,
        rows_of_all=table(["", "simulated", "measured", "error"], rows),
    )


def main() -> int:
    """Measure if nothing is measured yet, and print or write the page."""
    parser = argparse.ArgumentParser(description="Measures the configurations of a sweep.")
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
