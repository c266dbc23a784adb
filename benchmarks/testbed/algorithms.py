"""Measure the code of `using NAME` beside MPICH: ``python benchmarks/testbed/algorithms.py``.

Every collective runs by each of its algorithms, as the C that `-t mpi` prints, and as MPICH runs
it: as it chooses, and by each algorithm that its settings know. Three networks are regular, and
are those that ``run.py`` has calibrated. Three are irregular, and there the trees of `collir
synthesize` run, too. Nothing is fitted to what is reported. ``--page`` writes
docs/testbed-algorithms.md.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import algorithms_page
import launch
import network
import timer
import trees
from algorithm_cases import (
    APART,
    AS_BLOCKS,
    FILE,
    IN_ROUNDS,
    IRREGULAR,
    LIBRARY,
    SIZES,
    Case,
    cases,
    costs,
    module_of,
)
from library import PROTOCOLS, SETTINGS
from run import RESULTS, Bench, figures

from collir.machine import Machine

COMMAND = "python benchmarks/testbed/algorithms.py"


def runs_of(seconds: float) -> int:
    """Return the number of runs of a case with these predicted seconds, besides the first."""
    return 7 if seconds < 0.05 else 5 if seconds < 0.3 else 2


def protocol_settings(protocol: str) -> dict[str, str]:
    """Return MPICH's settings of a protocol, without those of algorithms."""
    algorithms = SETTINGS[PROTOCOLS[0]]
    return {k: v for k, v in SETTINGS[protocol].items() if k not in algorithms}


def library_settings(number: int) -> dict[str, str]:
    """Return the settings by which each collective runs by its algorithm of a number."""
    chosen = {
        f"MPIR_CVAR_{name}_INTRA_ALGORITHM": names[number]
        for name, *names in LIBRARY.values()
        if number < len(names)
    }
    return chosen | {
        "MPIR_CVAR_DEVICE_COLLECTIVES": "none",
        "MPIR_CVAR_COLLECTIVE_FALLBACK": "error",
    }


def measure(name: str, results: Path) -> None:
    """Measure what is not in ``results`` yet of a machine, in this network name space."""
    sizes = SIZES[name]
    bench = Bench(name, results, elements=max(sizes) // 4)
    path, singles = bench.folder / FILE, bench.folder / "singles.json"
    if not singles.exists():
        bench.calibrate()
    protocol = json.loads(singles.read_text(encoding="utf-8"))["protocol"]
    ranks = Ranks(bench, protocol, algorithms_page.fit_of(results, name, protocol))
    every = cases(bench.machine, sizes)
    entry: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    entry |= {"protocol": protocol, "command": COMMAND}
    if "collectives" not in entry:
        entry["collectives"] = ranks.run(every, {})
    if "library" not in entry:
        entry["library"] = list(ranks.library(every))
    if name in IRREGULAR and "trees" not in entry:
        entry["trees"] = ranks.run_trees(max(sizes))
    if protocol == "rendezvous" and "other" not in entry:
        again = Ranks(bench, "eager", ranks.fit)
        entry["other"] = {"protocol": "eager", "collectives": again.run(every, {})}
        entry["trees"] += again.run_trees(max(sizes))
    bench.write(path, entry)


@dataclass(frozen=True)
class Ranks:
    """The ranks of a machine, on which collectives run.

    Attributes:
        protocol: by which MPICH sends messages.
        fit: the machine with fitted numbers, by which the number of runs goes.
    """

    bench: Bench
    protocol: str
    fit: Machine

    def run(self, listed: Sequence[Case], settings: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return the figures of each case under settings of MPICH."""
        given = self.bench.machine
        runs = [runs_of(price.time) for price in costs(listed, given, self.fit)]
        code = timer.emit(module_of(listed, given), self.bench.elements, runs)
        return self._figures(listed, code, settings)

    def library(self, every: Sequence[Case]) -> list[dict[str, Any]]:
        """Return the figures of MPICH's algorithms for the collectives of cases."""
        found: list[dict[str, Any]] = []
        for number in range(max(map(len, LIBRARY.values())) - 1):
            kinds = [kind for kind, row in LIBRARY.items() if number + 1 < len(row)]
            plain = [case for case in every if not case.algorithm and case.kind in kinds]
            for case in self.run(plain, library_settings(number)):
                found.append(case | {"algorithm": LIBRARY[case["kind"]][number + 1]})
        return found

    def run_trees(self, size: int) -> list[dict[str, Any]]:
        """Return the figures of trees, of each collective that they implement."""
        given = self.bench.machine
        plain = [Case(kind, "", size) for kind in trees.COLLECTIVES]
        functions, listed, timed = [*plain], list[Case](), list[timer.Timed]()
        code = [trees.ENGINE.read_text(encoding="utf-8")]
        for number, kind in enumerate(trees.COLLECTIVES):
            made = trees.trees_of(given, kind, size)
            runs, text = runs_of(made.predicted), made.declared(self.fit.levels[-1].latency)
            listed.append(plain[number])
            timed.append(timer.Timed(f"f{number}", 1, is_first=True))
            if text:
                listed.append(Case(kind, IN_ROUNDS, size, text))
                timed.append(timer.Timed(f"f{len(functions)}", runs, is_first=False))
                functions.append(listed[-1])
            for algorithm, apart in ((AS_BLOCKS, False), (APART, True)):
                name = f"trees{number}_{int(apart)}"
                listed.append(Case(kind, algorithm, size))
                timed.append(timer.Timed(name, runs, is_first=False))
                code.append(trees.emit(name, made, apart))
        module = module_of(functions, given)
        text = timer.emit_all(module, self.bench.elements, timed, "\n".join(code))
        measured = self._figures(listed, text, {})
        return [each | {"protocol": self.protocol} for each in measured if each["algorithm"]]

    def _figures(
        self, listed: Sequence[Case], code: str, settings: Mapping[str, str]
    ) -> list[dict[str, Any]]:
        given, settings = self.bench.machine, {**protocol_settings(self.protocol), **settings}
        levels = len(given.levels)
        measured = launch.run(code, len(listed), given.devices, levels, settings, 600)
        self.bench.log(f"{len(listed)} collectives measured")
        return [
            {"kind": case.kind, "algorithm": case.algorithm, "size": case.size} | figures(own)
            for case, own in zip(listed, measured, strict=True)
        ]


def main() -> int:
    """Measure what is not measured yet, and print or write the page."""
    parser = argparse.ArgumentParser(description="Measures algorithms of `using` on the testbed.")
    parser.add_argument(
        "--machines", nargs="+", default=list(SIZES), choices=SIZES, help="default: %(default)s"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="default: %(default)s")
    page = algorithms_page.PAGE
    parser.add_argument("--page", action="store_true", help=f"write {page.name}")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        for name in options.machines:
            measure(name, options.results)
        return 0
    for name in options.machines:
        if not algorithms_page.is_whole(options.results, name):
            command = [sys.executable, __file__, "--inside", "--machines", name]
            command += ["--results", str(options.results)]
            subprocess.run(network.isolated(command), check=True)
    text = algorithms_page.text_of(options.results)
    if options.page:
        page.write_text(text, encoding="utf-8")
    print(page if options.page else text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
