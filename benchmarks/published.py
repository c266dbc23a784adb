"""What a sweep picks beside what others ran: ``python benchmarks/published.py --page``.

Tables of measured iterations of GPT (vTrain's on several nodes, and table 5 of arXiv 2205.05198)
are read from --data. For each model, number of devices and batch there, every configuration that
was measured is simulated, and the sweep looks for the fastest one under the same constraints:
layers are computed again, and nothing is divided as ZeRO does. The machine is @a100 of
benchmarks/models/training; the model is examples/models/sweep.coll with the kernels of Megatron-LM,
which has no biases and no dropout.
"""

import argparse
import csv
import math
import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

from measured.published_steps import placed

from collir import search
from collir.cost.programs.exposed import Spent
from collir.cost.programs.simulation import Simulation
from collir.dialects.machine import MachineOp
from collir.ir.diagnostics import DiagnosticError
from collir.syntax.units import bytes_text, seconds_text
from collir.synthesis.sweeping.configuration import UNSTAGED, Configuration
from collir.synthesis.sweeping.groups import ConfigurationEstimate
from collir.tools.api import parse
from collir.tools.sweep_model import Model, busiest
from collir.tools.sweep_search import Sweep, bound_of, memory_margin

ROOT = Path(__file__).parents[1]
PROGRAM = ROOT / "examples" / "models" / "sweep.coll"
MACHINE = ROOT / "benchmarks" / "models" / "training" / "a100.coll"
DATA = ROOT.parent / "shared" / "data" / "training"
MEMORY = 80e9
SECONDS = 240
"""The longest that a sweep may simulate."""

PAGE = ROOT / "docs" / "published.md"
HEAD = """\
# Sweeps beside configurations that were measured

See how close simulated iterations of GPT are to published ones, and what a sweep would have picked.
Iterations on A100 were measured by the authors of vTrain (Megatron-DeepSpeed; 27 rows of
their table) and by Korthikanti et al. (arXiv 2205.05198, table 5, full recomputation). Each
configuration is a program here, and is simulated on
[@a100](../benchmarks/models/training/a100.coll), whose constants were fitted to vTrain's iterations
with another program, as [training](training.md) has it; nothing is fitted to the programs here, nor
to the table of Korthikanti et al. The model is
[sweep.coll](../examples/models/sweep.coll) with the kernels of Megatron-LM. It has no biases and no
dropout, and its optimiser is not one kernel, which shows where a step is short (22B).

Written by `python benchmarks/published.py --page`; do not edit.

Frameworks of that time hid little of what they sent, so measured times are beside simulations
without `overlap`; the next column is with it, as the sweep compares. The shares of the rows are
those without it, of the pick those with it.

[collir sweep](sweep.md) looks for the fastest configuration under the same constraints: devices,
batch, 80 GB, full recomputation and no ZeRO, with any sizes of tensor, data and pipeline
parallelism, microbatches, and `1f1b` or `interleaved` with 2 to 4 chunks. Configurations are
tensor/data/stages, and the sequences of a microbatch.

**Why the picks differ.** With stages, the picks have less tensor parallelism, whose all_reduces
every layer waits for, and several chunks of a stage make up for the longer pipeline; the measured
ones all ran `1f1b`. Picks use up the memory; `--memory "64 GB"` leaves more to the framework. The
rows of Korthikanti et al. are simulated 9 to 19 % too slow: the constants are those of vTrain's
cluster and its software.
"""

KERNELS = """\
func @norm(%x: f16[...], %gain: f16[...]) -> f16[...] on any {
  %y = rms_norm %x, %gain dims [2] eps 1e-5
  return %y
}

func @attention_weights(seq = 1024, size = 64)(%scores: f16[...]) -> f16[...] on any {
  %number = constant value size to f16[]
  %factor = rsqrt %number
  %scaled = mul %scores, %factor
  %query = iota dim 0 to i32[seq, seq]
  %key = iota dim 1 to i32[seq, seq]
  %seen = less_equal %key, %query
  %low = constant value -1e4 to f16[]
  %masked = where %seen, %scaled, %low
  %weights = softmax %masked dims [3]
  return %weights
}

func @attention(seq = 1024, size = 64)(%q: f16[...], %k: f16[...], %v: f16[...])
    -> f16[...] on any {
  %scores = einsum "b i a d, b j a d -> b a i j" %q, %k
  %weights = call @attention_weights(seq = seq, size = size)(%scores) fused
  %mixed = einsum "b a i j, b j a d -> b i a d" %weights, %v
  return %mixed
}
"""
"""What Megatron-LM runs as kernels of its own."""

CLOSE = 0.05
"""Pairs of measured times that are closer than this part have no order."""


@dataclass(frozen=True)
class Row:
    """A measured iteration.

    Attributes:
        model: the name, number of devices and batch.
        sizes: the parameters of the program.
        degrees: the sizes of the axes model, data and pipe.
        micro: the sequences of a microbatch.
        chunks: the chunks of a stage.
    """

    name: str
    devices: int
    sizes: tuple[tuple[str, int], ...]
    degrees: tuple[int, int, int]
    micro: int
    chunks: int
    seconds: float


def program() -> str:
    """Return the text of the model with Megatron-LM's kernels."""
    text = PROGRAM.read_text(encoding="utf-8").replace("bf16", "f16")
    edits = (
        (r"rms_norm (%\w+, %[\w.]+) dims \[2\] eps 1e-6", r"call @norm(\1) fused"),
        (r"@causal_attention(\(seq = .*\)\(.*\)) fused", r"@attention\1"),
        (r"func @causal_attention = .*", KERNELS),
    )
    for old, new in edits:
        text, count = re.subn(old, new, text)
        assert count, old
    return text


def rows(folder: Path) -> Iterator[Row]:
    """Yield the rows of both tables, with layers computed again."""
    with (folder / "vtrain_multi.csv").open(encoding="utf-8") as file:
        for each in csv.DictReader(file):
            numbers = [float(x) for x in each.values()]
            size, (devices, batch, micro, hidden, heads, layers, seq, t, d, p) = (
                numbers[0],
                map(int, numbers[1:11]),
            )
            sizes = _sizes(batch, seq, hidden, heads, layers)
            yield Row(f"GPT {size:g}B", devices, sizes, (t, d, p), micro, 1, numbers[11] / 1e3)
    with (folder / "megatron_2205.05198_table5.csv").open(encoding="utf-8") as file:
        for each in csv.DictReader(file):
            if each["mode"] == "full recompute":
                names = "global_batch", "seq", "hidden", "heads", "layers"
                sizes = _sizes(*(int(each[name]) for name in names))
                t, d, p = (int(each[name]) for name in ("tp", "dp", "pp"))
                micro, chunks = int(each["micro_batch"]), int(each["interleave"])
                seconds = float(each["iteration_time_s"])
                name, devices = f"GPT {each['model']}", int(each["gpus"])
                yield Row(name, devices, sizes, (t, d, p), micro, chunks, seconds)


def _sizes(
    batch: int, seq: int, hidden: int, heads: int, layers: int
) -> tuple[tuple[str, int], ...]:
    named = {"batch": batch, "seq": seq, "hidden": hidden, "heads": heads, "layers": layers}
    return tuple(named.items())


def configuration_of(model: Model, row: Row) -> Configuration:
    """Return the configuration of a row: tensor parallelism innermost, stages outermost."""
    degrees = dict(zip(("model", "data", "pipe"), row.degrees, strict=True))
    factors = placed(model, row.devices, degrees)
    batch = dict(row.sizes)["batch"]
    stages = row.degrees[2]
    schedule = UNSTAGED if stages == 1 else "1f1b" if row.chunks == 1 else "interleaved"
    axes = tuple((name, factors[name]) for name in model.step.axes)
    microbatches = batch // row.degrees[1] // row.micro
    return Configuration(axes, "pipe", batch, microbatches, schedule, row.chunks, True)


def best_of(model: Model, devices: int) -> tuple[Configuration, float, float, Spent, int] | None:
    """Return the fastest configuration that fits, its seconds and bytes, how a device spends them,
    and how many configurations there are; None if none is simulated in time."""
    space = replace(
        model.step.space(model.machine, (devices,)),
        chunks=(2, 3, 4),
        recompute=(True,),
        zero=(0,),
        sequence=(False,),
    )
    configurations = [*space.configurations(Counter())]
    workers = os.cpu_count() or 1
    found = model.estimator(workers).estimates(configurations)
    data = model.step.data[0]
    entries = [
        (c, e)
        for c, e in found
        if isinstance(e, ConfigurationEstimate)
        and e.memory <= MEMORY * (1 + memory_margin(c, data))
    ]
    entries.sort(key=lambda entry: bound_of(*entry))
    problem = Sweep(model, entries, MEMORY)
    outcome = search.k_best(problem, 1, order="best-first", workers=workers, time_limit=SECONDS)
    if not outcome.solutions:
        return None
    node = outcome.solutions[0].node
    assert node.spent is not None
    return entries[node.number][0], node.time, node.memory, node.spent, len(configurations)


def _text(c: Configuration) -> str:
    degrees = c.degrees
    schedule = "" if c.schedule == UNSTAGED else f", {c.schedule}"
    chunks = f" x{c.chunks}" if c.chunks > 1 else ""
    rows = c.batch // degrees["data"] // c.microbatches
    return f"{degrees['model']}/{degrees['data']}/{degrees['pipe']}, {rows}{schedule}{chunks}"


def _shares(spent: Spent) -> str:
    parts = spent.compute, spent.exposed, spent.idle
    return " / ".join(f"{part / spent.time:.0%}" for part in parts)


def _as_it_ran(model: Model, configuration: Configuration) -> Simulation:
    """Return the simulation of a configuration that hides nothing that it sends."""
    return model.simulated(configuration, configuration.passes.removesuffix(",overlap"))


def _with_overlap(model: Model, configuration: Configuration) -> float:
    """Return the seconds of a configuration behind its passes; infinity if it lacks the memory."""
    try:
        return model.simulated(configuration).time
    except DiagnosticError:
        return math.inf


def main() -> None:
    """Print a table for each model."""
    parser = argparse.ArgumentParser(description="Sweeps beside configurations that were measured.")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of the tables")
    parser.add_argument("--page", action="store_true", help=f"write {PAGE.name}")
    parser.add_argument("--only", default="", help="the models whose name has this in it")
    options = parser.parse_args()
    module = parse(MACHINE.read_text(encoding="utf-8"), str(MACHINE))
    [machine] = [op.value() for op in module.ops if isinstance(op, MachineOp)]
    text = program()
    groups: dict[tuple[str, int, tuple[tuple[str, int], ...]], list[Row]] = {}
    for row in rows(options.data):
        groups.setdefault((row.name, row.devices, row.sizes), []).append(row)
    lines = [HEAD]
    for (name, devices, sizes), own in groups.items():
        if options.only in name:
            model = Model(str(PROGRAM), text, "", sizes, machine, "pipe")
            lines += _report(model, f"{name}, {devices} A100, batch {dict(sizes)['batch']}", own)
    text = "\n".join(lines) + "\n"
    if options.page:
        PAGE.write_text(text, encoding="utf-8")
    else:
        print(text)


def _report(model: Model, title: str, own: Sequence[Row]) -> Iterator[str]:
    """Yield the lines of a table."""
    yield f"\n## {title}\n"
    yield "| | measured | simulated | with overlap | memory | computing / sending / waiting |"
    yield "|---|--:|--:|--:|--:|--:|"
    times: list[tuple[float, float]] = []
    best_known = math.inf
    for row in sorted(own, key=lambda row: row.seconds):
        configuration = configuration_of(model, row)
        simulation = _as_it_ran(model, configuration)
        hidden = _with_overlap(model, configuration)
        times.append((row.seconds, simulation.time))
        best_known = min(best_known, hidden)
        columns = [
            _text(configuration),
            seconds_text(row.seconds),
            seconds_text(simulation.time),
            seconds_text(hidden) if math.isfinite(hidden) else "no memory",
            bytes_text(simulation.peak),
            _shares(busiest(simulation)),
        ]
        yield "| " + " | ".join(columns) + " |"
    start = time.perf_counter()
    picked = best_of(model, own[0].devices)
    if picked is None:
        yield f"\nThe sweep has simulated no configuration within {SECONDS} s."
        return
    best, seconds, memory, spent, count = picked
    alone = seconds_text(_as_it_ran(model, best).time)
    took = time.perf_counter() - start
    columns = [_text(best), "-", alone, seconds_text(seconds), bytes_text(memory), _shares(spent)]
    yield "| **sweep**: " + " | ".join(columns) + " |"
    pairs = [(a, b) for a, b in combinations(times, 2) if abs(a[0] - b[0]) > CLOSE * a[0]]
    right = sum((a[0] < b[0]) == (a[1] < b[1]) for a, b in pairs)
    errors = sorted(abs(simulated / measured - 1) for measured, simulated in times)
    yield (
        f"\nThe sweep of {count:,} configurations took {took:.0f} s. Its pick takes "
        f"{seconds / best_known:.0%} of the time of the best measured one, both with overlap. "
        f"Median error of the simulations: {errors[len(errors) // 2]:.1%}."
    )
    if pairs:
        fastest = min(times, key=lambda each: each[1])[0] / min(times)[0] - 1
        yield (
            f"{right} of {len(pairs)} pairs are in the measured order; the one that is simulated "
            f"to be the fastest took {fastest:.1%} longer than the fastest."
        )


if __name__ == "__main__":
    main()
