"""Measure programs in chunks, whose steps overlap: ``python benchmarks/testbed/overlap.py``.

The collective is an all_reduce over all ranks. It is measured and simulated as one step, and as the
best program that takes the levels one by one, on 1, 2, 4, ... chunks. The machines are those that
``run.py`` has calibrated. Non-blocking collectives use the algorithms of the blocking ones.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import launch
import network
import timer
from library import SETTINGS, chosen_algorithms
from programs import MACHINES, MODEL, machine
from results import read
from run import RESULTS, WEIGHTS, compact
from xdsl.dialects.builtin import ModuleOp, StringAttr

from collir.cost.model import StepCost
from collir.cost.programs.simulate import simulate
from collir.cost.programs.simulation import Simulation
from collir.dialects import coll
from collir.dialects.machine import mesh_of
from collir.dialects.tensor import dist_type
from collir.ir.functions import functions_of
from collir.machine import Machine
from collir.syntax.reader import read as read_coll
from collir.synthesis.programs.cheapest import synthesise
from collir.synthesis.programs.pipelines import in_chunks
from collir.synthesis.programs.rewriting import rewrite, searched_in
from collir.synthesis.programs.steps import Program

ELEMENTS = 262144
"""Numbers of 4 bytes on every rank; a chunk of a sixteenth still gives long messages."""
CHUNKS = (1, 2, 4, 8, 16)
TRIED = 100
"""Number of programs per chunk in which to look for one that takes the levels one by one."""
RUNS = 7
FILE = "overlap.json"


@dataclass(frozen=True)
class Overlap:
    """A program: its number of chunks (0: one step), its simulated and its measured seconds."""

    chunks: int
    predicted: float
    measured: float


def module_of(given: Machine) -> ModuleOp:
    """Return a function for the one step, and one for each number of chunks.

    Every collective names its algorithm.
    """
    factors = " * ".join(f"{level.name}:{level.size}" for level in given.levels)
    lines = [
        (MACHINES / f"{given.name}.coll").read_text(encoding="utf-8"),
        f"mesh @m on @{given.name} {{ a = {factors} }}",
    ]
    for number in range(1 + len(CHUNKS)):
        lines.append(
            f"func @f{number}(%g: f32[{ELEMENTS}] partial(sum: a)) -> f32[{ELEMENTS}] on @m {{\n"
            "  %r = all_reduce %g over a\n  return %r\n}"
        )
    module = read_coll("\n".join(lines))
    functions = functions_of(module)
    for function, chunks in zip(functions[1:], CHUNKS, strict=True):
        [op] = searched_in(function)
        mesh, source, target = mesh_of(op), dist_type(op.operands[0]), dist_type(op.result)
        listed = synthesise(mesh, source, target, MODEL, TRIED, scale=1 / chunks).candidates
        # A single all_reduce over all levels has nothing to overlap.
        best = next(
            candidate
            for candidate in listed
            if all(_on_one_level(cost) for cost in candidate.costs)
        )
        best = best if chunks == 1 else in_chunks(best, chunks)
        rewrite(function, (Program(best.steps, best.pipeline),), None)
    for op in module.walk():
        if isinstance(op, coll.COLLECTIVES):
            op.properties["algorithm"] = StringAttr(chosen_algorithms()[op.mnemonic])
    return module


def _on_one_level(cost: StepCost) -> bool:
    sent = cost.collective
    return len({sent.mesh.by_name[axis].level for axis in sent.axes}) == 1


def simulations(calibrated: Machine) -> list[Simulation]:
    """Return the simulations of all programs, on a machine with fitted numbers."""
    return [
        simulation.on(calibrated)
        for simulation in simulate(module_of(machine(calibrated.name)), MODEL)
    ]


def overlaps(folder: Path, calibrated: Machine) -> Iterator[Overlap]:
    """Yield the measured programs of a machine."""
    entry = json.loads((folder / FILE).read_text(encoding="utf-8"))
    for chunks, runs, simulation in zip(
        (0, *CHUNKS), entry["seconds"], simulations(calibrated), strict=True
    ):
        yield Overlap(chunks, simulation.time, median(runs))


def measure(name: str, results: Path) -> None:
    """Run the programs of a machine in this network name space."""
    given = machine(name)
    network.build(given)
    protocol = json.loads((results / name / "singles.json").read_text(encoding="utf-8"))["protocol"]
    module = module_of(given)
    count = len(functions_of(module))
    code = timer.emit(module, ELEMENTS, [RUNS] * count)
    measurements = launch.run(code, count, given.devices, len(given.levels), protocol, 600)
    entry: dict[str, Any] = {
        "machine": name,
        "elements": ELEMENTS,
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "settings": SETTINGS[protocol],
        "seconds": [[round(second, 6) for second in measured.seconds] for measured in measurements],
    }
    (results / name / FILE).write_text(compact(entry), encoding="utf-8")


def main() -> int:
    """Measure, print measurements beside predictions, and return the exit status."""
    parser = argparse.ArgumentParser(description="Measures programs in chunks on the testbed.")
    parser.add_argument(
        "--machines", nargs="+", default=list(WEIGHTS), choices=WEIGHTS, help="default: %(default)s"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="default: %(default)s")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        [name] = options.machines
        measure(name, options.results)
        return 0
    for name in options.machines:
        machined = read(options.results / name)
        if machined is None:
            continue
        command = [sys.executable, __file__, "--inside", "--machines", name]
        command += ["--results", str(options.results)]
        if not (options.results / name / FILE).exists():
            subprocess.run(network.isolated(command), check=True)
        for program in overlaps(options.results / name, machined.calibration.machine):
            error = program.predicted / program.measured - 1
            print(
                f"{name:12} {program.chunks:3} chunks  "
                f"predicted {1e3 * program.predicted:7.1f} ms  "
                f"measured {1e3 * program.measured:7.1f} ms  {100 * error:+.1f} %"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
