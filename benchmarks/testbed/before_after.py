"""Measure programs before and after passes: ``python benchmarks/testbed/before_after.py``.

There are three programs: gradients that are reduced one by one, weights that are gathered when they
are needed, and layers with steps that undo each other. Each is simulated and measured as written
and after passes, on the machines that ``run.py`` has calibrated. Computations take time but no
processor, and MPI makes progress meanwhile.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import launch
import network
import timer
from library import SETTINGS, chosen_algorithms
from programs import machine
from results import read
from run import RESULTS, compact
from xdsl.dialects.builtin import ModuleOp, StringAttr

from collir.cost.programs.simulate import simulate
from collir.dialects import coll
from collir.ir.functions import functions_of
from collir.machine import Machine
from collir.syntax.reader import read as read_coll
from collir.tools.api import run_passes

NETWORKS = ("two_nodes", "two_racks")
ELEMENTS = 262144
"""Numbers of 4 bytes on every rank; programs work on pieces of them."""
RUNS = 7
FILE = "passes.json"

VARIANTS = {
    "gradients": {
        "as written": "",
        "overlap": "overlap",
        "as DDP (64 KiB)": "bucket{rule=ddp size=65536},overlap",
        "as XLA (128 KiB)": "bucket{rule=xla size=131072},overlap",
        "bucket, overlap": "bucket,overlap",
        "and in programs": "bucket,decompose,overlap",
    },
    "weights": {
        "as written": "",
        "overlap": "overlap",
        "bucket, overlap": "bucket,overlap",
    },
    "layers": {
        "as written": "",
        "fuse": "fuse",
        "fuse, overlap": "fuse,overlap",
        "and buckets": "fuse,bucket,overlap",
    },
}
"""For each program, the passes of its variants."""


# --- the programs -------------------------------------------------------------------------------


def gradients(shares: int, seconds: float) -> str:
    """Return the gradients of layers, from the last to the first.

    Each layer has a large gradient and two small ones. A gradient is available once it has been
    computed, and is summed over all ranks.
    """
    sizes = [size for _ in range(32) for size in (4096, 64, 64)]
    lines: list[str] = []
    start = 0
    for number, size in enumerate(sizes):
        behind = ELEMENTS - start - size
        before = f", %c{number - 1}" if number else ""
        flops = 1e9 * seconds * size / sum(sizes)
        lines += [
            f"%g{number} = pad %x dim 0 low -{start} high -{behind}",
            f"%c{number} = compute %g{number}{before} flops {flops:.0f}",
            f"%r{number} = all_reduce %c{number} over a",
        ]
        start += size
    names = ", ".join(f"%r{number}" for number in range(len(sizes)))
    lines += [f"%y = concat {names} dim 0", "return %y"]
    return function(f"f32[{ELEMENTS}] partial(sum: a)", f"f32[{start}]", lines)


def weights(shares: int, seconds: float) -> str:
    """Return layers whose weights are sharded over all ranks and gathered per layer (ZeRO-3)."""
    layers = 12
    size = ELEMENTS // layers // shares * shares
    block = size // shares
    lines = [f"%w = split %x dim 0 into [{shares}, {ELEMENTS // shares}]"]
    for number in range(layers):
        behind = ELEMENTS // shares - (number + 1) * block
        lines += [
            f"%p{number} = pad %w dim 1 low -{number * block} high -{behind}",
            f"%q{number} = merge %p{number} dim 0",
            f"%g{number} = all_gather %q{number} over a dim 0",
        ]
    for number in range(layers):
        before = f"%h{number - 1}" if number else "%q0"
        flops = 1e9 * seconds / layers
        lines.append(f"%h{number} = compute {before}, %g{number} flops {flops:.0f}")
    lines.append(f"return %h{layers - 1}")
    return function(f"f32[{ELEMENTS}@a]", f"f32[{size}@a]", lines)


def layers(shares: int, seconds: float) -> str:
    """Return layers with activations that are sharded over the ranks.

    Each layer is written for complete activations: they are summed, sliced, computed on and
    gathered (tensor and sequence parallel parts put together).
    """
    lines: list[str] = []
    count = 4
    x = "%x"
    for number in range(count):
        lines += [
            f"%s{number} = all_reduce {x} over a",
            f"%t{number} = slice %s{number} over a dim 0",
            f"%u{number} = compute %t{number} flops {1e9 * seconds / 2 / count:.0f}",
            f"%v{number} = all_gather %u{number} over a dim 0",
            f"%z{number} = slice %v{number} over a dim 0",
            f"%c{number} = compute %z{number} flops {1e9 * seconds / 2 / count:.0f}",
        ]
        if number + 1 < count:
            lines.append(f"%m{number} = all_gather %c{number} over a dim 0")
            lines.append(f"%d{number} = compute %m{number} flops {1e9 * seconds / 2 / count:.0f}")
            lines.append(f"%n{number} = mask %d{number} over a op sum")
            x = f"%n{number}"
    lines.append(f"return %c{count - 1}")
    return function(f"f32[{ELEMENTS // 4}] partial(sum: a)", f"f32[{ELEMENTS // 4}@a]", lines)


def function(argument: str, result: str, lines: Iterable[str]) -> str:
    """Return the text of a function of one argument, without its name."""
    body = "\n".join(f"  {line}" for line in lines)
    return f"(%x: {argument}) -> {result} on @m {{\n{body}\n}}"


PROGRAMS = {"gradients": (gradients, 0.4), "weights": (weights, 0.3), "layers": (layers, 0.2)}
"""The programs, and their seconds of computation."""


@dataclass(frozen=True)
class Entry:
    """A program after passes, with its simulated and measured seconds."""

    program: str
    variant: str
    predicted: float
    measured: float


def module_of(calibrated: Machine, program: str) -> ModuleOp:
    """Return a function for each variant; every collective names its algorithm."""
    make, seconds = PROGRAMS[program]
    levels = [
        f"level {level.name}[{level.size}] {{ port = {level.port:.6g} B/s, "
        f"latency = {level.latency:.6g} s }}"
        for level in calibrated.levels
    ]
    device = calibrated.device
    adds = f"; reduction = {device.reduction:.6g} B/s" if device and device.reduction else ""
    factors = " * ".join(f"{level.name}:{level.size}" for level in calibrated.levels)
    head = [
        f"machine @{calibrated.name} {{",
        f"  device {{ compute f32 = 1 GFLOP/s{adds} }}",
        *(f"  {level}" for level in levels),
        "}",
        f"mesh @m on @{calibrated.name} {{ a = {factors} }}",
    ]
    whole: ModuleOp | None = None
    for number, passes in enumerate(VARIANTS[program].values()):
        body = make(calibrated.devices, seconds)
        module = read_coll("\n".join([*head, f"func @f{number}{body}"]))
        if passes:
            run_passes(module, passes)
        if whole is None:
            whole = module
        else:
            [variant] = functions_of(module)
            variant.detach()
            whole.body.block.add_op(variant)
    assert whole is not None
    for op in whole.walk():
        if isinstance(op, coll.COLLECTIVES):
            op.properties["algorithm"] = StringAttr(chosen_algorithms()[op.mnemonic])
    return whole


def entries(folder: Path) -> Iterator[Entry]:
    """Yield the measured programs of a machine, with the predictions of that time."""
    entry = json.loads((folder / FILE).read_text(encoding="utf-8"))
    for program, variants in entry["programs"].items():
        for variant, measurement in variants.items():
            yield Entry(program, variant, measurement["predicted"], median(measurement["seconds"]))


# --- measuring ----------------------------------------------------------------------------------


def measure(name: str, results: Path) -> None:
    """Run the programs of a machine in this network name space."""
    given = machine(name)
    network.build(given)
    machined = read(results / name)
    assert machined is not None
    protocol = json.loads((results / name / "singles.json").read_text(encoding="utf-8"))["protocol"]
    programs: dict[str, dict[str, Any]] = {}
    for program in VARIANTS:
        module = module_of(machined.calibration.machine, program)
        count = len(functions_of(module))
        code = timer.emit(module, ELEMENTS, [RUNS] * count)
        runs = launch.run(code, count, given.devices, len(given.levels), protocol, 900)
        programs[program] = {
            variant: {
                "passes": passes,
                "predicted": round(simulation.time, 6),
                "seconds": [round(second, 6) for second in measured.seconds],
            }
            for (variant, passes), simulation, measured in zip(
                VARIANTS[program].items(), simulate(module), runs, strict=True
            )
        }
    entry: dict[str, Any] = {
        "machine": name,
        "elements": ELEMENTS,
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "settings": SETTINGS[protocol],
        "programs": programs,
    }
    (results / name / FILE).write_text(compact(entry), encoding="utf-8")


def main() -> int:
    """Measure, print measurements beside predictions, and return the exit status."""
    parser = argparse.ArgumentParser(description="Measures passes on the testbed.")
    parser.add_argument(
        "--machines", nargs="+", default=NETWORKS, choices=NETWORKS, help="default: %(default)s"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="default: %(default)s")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        [name] = options.machines
        measure(name, options.results)
        return 0
    for name in options.machines:
        command = [sys.executable, __file__, "--inside", "--machines", name]
        command += ["--results", str(options.results)]
        if not (options.results / name / FILE).exists():
            subprocess.run(network.isolated(command), check=True)
        first: dict[str, Entry] = {}
        for entry in entries(options.results / name):
            first.setdefault(entry.program, entry)
            start = first[entry.program]
            print(
                f"{name:10} {entry.program:9} {entry.variant:18} "
                f"predicted {1e3 * entry.predicted:6.1f} ms "
                f"({start.predicted / entry.predicted:.2f}x)  "
                f"measured {1e3 * entry.measured:6.1f} ms "
                f"({start.measured / entry.measured:.2f}x)  "
                f"{100 * (entry.predicted / entry.measured - 1):+.1f} %"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
