"""Measure programs on a real network of shaped links: ``make testbed``.

Every machine of ``machines/`` becomes a network of name spaces (``network.py``), in which MPICH
runs many programs for every placement of every case (``programs.py``). The measurements go to
``results/``. A case with a file in ``results/`` is not measured again. ``report.py`` writes the
page.
"""

import argparse
import ctypes
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import launch
import network
import singles
import timer
from library import PROTOCOLS, SETTINGS
from programs import (
    CASES,
    MACHINES,
    Case,
    Timed,
    Wish,
    chosen,
    flat,
    machine,
    module_of,
    ordered,
    placements,
)

from collir.tools.mpi_run import find

RESULTS = Path(__file__).parent / "results"
WEIGHTS = {"two_nodes": 2.5, "four_nodes": 5, "two_racks": 10, "uneven": 4}
"""Machine -> its weight; the remaining time is divided by the weights of remaining machines."""
ELEMENTS = 65536
"""Numbers of 4 bytes on every rank."""
MOST = (60, 52, 44, 36, 32, 28, 24, 20, 16, 12, 8)
"""Numbers of programs to measure per placement; the first number with enough time is used."""
SINGLE_RUNS = 7
"""Number of runs of collectives in several sizes, which are short."""
PR_SET_PDEATHSIG = 1
"""Constant of prctl(2)."""
OVERHEAD = 0.01
"""Seconds of a run besides the program itself."""


def runs_of(seconds: float) -> int:
    """Return the number of runs of a program with these predicted seconds."""
    return 5 if seconds < 0.1 else 3 if seconds < 0.3 else 2


def needed(timed: Sequence[Timed]) -> float:
    """Return the seconds of all runs of programs."""
    return sum((1 + runs_of(seconds)) * (seconds * 1.05 + OVERHEAD) for _, seconds in timed)


class Bench:
    """The measurements of one machine, as a network."""

    def __init__(
        self, name: str, results: Path, until: float = 0.0, elements: int = ELEMENTS
    ) -> None:
        self.elements = elements
        self.machine = machine(name)
        self.folder = results / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.until = until
        self.protocol = PROTOCOLS[0]
        network.build(self.machine)

    def log(self, text: str) -> None:
        """Print a line of progress."""
        print(f"{time.strftime('%H:%M:%S')} {self.machine.name}: {text}", flush=True)

    def measure(self) -> None:
        """Measure everything that is not in ``results`` yet, as far as time allows."""
        path = self.folder / "singles.json"
        if not path.exists():
            self.calibrate()
        self.protocol = json.loads(path.read_text(encoding="utf-8"))["protocol"]
        cases = [case for case in CASES[self.machine.devices] if not self._path(case).exists()]
        listed = {
            case: [
                ordered(case, self.machine, matrix, ELEMENTS)
                for matrix in placements(case, self.machine)
            ]
            for case in cases
        }
        for number, case in enumerate(cases):
            left = self.until - time.time()
            for most in MOST:
                total = sum(
                    needed(chosen(timed, most)) + 3 * needed(timed[:1])
                    for open_case in cases[number:]
                    for timed in listed[open_case]
                )
                if total < left:
                    break
            else:
                self.log(f"no time for {len(cases) - number} cases")
                return
            self.log(f"{case.text}: {total:.0f} s for what is left, {most} programs a placement")
            self._case(case, [chosen(timed, most) for timed in listed[case]])

    def _path(self, case: Case) -> Path:
        return self.folder / f"{case.name}.json"

    def calibrate(self) -> None:
        """Measure single collectives by both protocols; programs then use the faster protocol."""
        listed = singles.singles(self.machine, self.elements)
        measured = {name: self._each(listed, name) for name in PROTOCOLS}
        totals = {
            name: sum(
                median(entry["seconds"]) for entry in entries if entry["elements"] == self.elements
            )
            for name, entries in measured.items()
        }
        protocol = min(PROTOCOLS, key=totals.__getitem__)
        self.log(
            f"{protocol}: " + ", ".join(f"{name} {total:.3f} s" for name, total in totals.items())
        )
        self.write(self.folder / "singles.json", {"protocol": protocol, "collectives": measured})

    def _each(self, listed: Sequence[singles.Single], setting: str) -> list[dict[str, Any]]:
        module = singles.module_of(listed, self.machine, MACHINES)
        runs = [SINGLE_RUNS if single.kind == singles.SIZED else 2 for single in listed]
        code = timer.emit(module, self.elements, runs, alike=False)
        measured = self._run(code, len(listed), setting, 300)
        return [
            {"kind": single.kind, "over": single.levels, "elements": single.elements}
            | figures(measurement)
            for single, measurement in zip(listed, measured, strict=True)
        ]

    def _case(self, case: Case, timed: Sequence[Sequence[Timed]]) -> None:
        every = [program for listed in timed for program in listed]
        measured = self._wishes(every, self.protocol)
        matrices = [listed[0][0].matrix for listed in timed]
        whole = [(flat(case, self.machine, matrix), 0.1) for matrix in matrices]
        others = {name: self._wishes(whole, name) for name in ("ring", "default")}
        placements: list[dict[str, Any]] = []
        for number, (matrix, listed) in enumerate(zip(matrices, timed, strict=True)):
            own = [measured.pop(0) for _ in listed]
            programs = [
                {"steps": wish.steps} | figures(run)
                for (wish, _), run in zip(listed, own, strict=True)
            ]
            library = {name: figures(runs[number]) for name, runs in others.items()}
            placements.append({"matrix": matrix, "programs": programs, "flat": library})
        case_entry = {"axes": case.axes, "reduced": case.reduced}
        self.write(self._path(case), {"case": case_entry, "placements": placements})

    def _wishes(self, timed: Sequence[Timed], setting: str) -> list[launch.Measured]:
        wishes: list[Wish] = [wish for wish, _ in timed]
        module = module_of(wishes, self.machine, ELEMENTS)
        code = timer.emit(module, ELEMENTS, [runs_of(seconds) for _, seconds in timed])
        return self._run(code, len(wishes), setting, 60 + 4 * needed(timed))

    def _run(
        self, code: str, functions: int, setting: str, timeout: float
    ) -> list[launch.Measured]:
        ranks, levels = self.machine.devices, len(self.machine.levels)
        return launch.run(code, functions, ranks, levels, setting, timeout)

    def write(self, path: Path, entry: dict[str, Any]) -> None:
        """Write a file of results, with the facts of the machine and of MPICH."""
        version = subprocess.run(
            [find("mpiexec"), "--version"], capture_output=True, text=True, check=True
        )
        about = {
            "machine": self.machine.name,
            "elements": self.elements,
            "date": time.strftime("%Y-%m-%d %H:%M"),
            "mpich": version.stdout.split("Version:")[1].split()[0],
            "kernel": platform.release(),
            "cores": os.cpu_count(),
            "settings": SETTINGS,
        }
        partial = path.with_suffix(".partial")
        partial.write_text(compact(about | entry), encoding="utf-8")
        partial.rename(path)
        self.log(f"wrote {path.name}")


def figures(measurement: launch.Measured) -> dict[str, Any]:
    """Return what a file keeps of a measurement."""
    seconds = [round(second, 6) for second in measurement.seconds]
    return {"seconds": seconds, "sent": measurement.sent, "total": measurement.total}


def compact(entry: dict[str, Any]) -> str:
    """Return JSON text with one program per line."""
    text = json.dumps(entry, separators=(",", ":"))
    for start in ('{"steps"', '{"kind"', '{"matrix"', '"placements"'):
        text = text.replace(start, "\n" + start)
    return text + "\n"


def main() -> int:
    """Measure all machines, and return the exit status."""
    parser = argparse.ArgumentParser(description="Measures programs on a network of shaped links.")
    parser.add_argument("--minutes", type=float, default=35, help="default: %(default)s")
    parser.add_argument(
        "--machines", nargs="+", default=list(WEIGHTS), choices=WEIGHTS, help="default: %(default)s"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="default: %(default)s")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if missing := [name for name in ("unshare", "ip", "tc", "cc") if not shutil.which(name)]:
        parser.error(f"{missing[0]} is missing: this needs Linux, iproute2 and a C compiler")
    until = time.time() + 60 * options.minutes
    if options.inside:
        [name] = options.machines
        Bench(name, options.results, until).measure()
        return 0
    if (load := os.getloadavg()[0]) > 0.5:
        print(f"the load is {load:.1f}: what else runs here makes links slower", file=sys.stderr)
    for number, name in enumerate(options.machines):
        weights = [WEIGHTS[remaining] for remaining in options.machines[number:]]
        share = (until - time.time()) / 60 * weights[0] / sum(weights)
        command = [sys.executable, __file__, "--inside", "--machines", name]
        command += ["--minutes", f"{share:.3f}", "--results", str(options.results)]
        with subprocess.Popen(network.isolated(command), preexec_fn=_die_with_parent) as inside:
            status = inside.wait()
        if status:
            return status
    return 0


def _die_with_parent() -> None:
    """Make Linux kill this child process when its parent is killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
