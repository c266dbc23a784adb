"""Measure collir against peers, as ratios: ``make bench``.

All times are CPU seconds of this process or of its children, the best of several runs. The two
peers take turns, so that both see the same load.
"""

import gc
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from generate import every_rule, training, two_levels
from predict import predictions
from support.cost.messages import Network, groups, time_of
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser
from xdsl.printer import Printer

import collir
from collir.cost.collectives.collective import Collective
from collir.cost.model import CostModel, step_cost
from collir.ir.verification import verify
from collir.layout import Mesh
from collir.syntax.reader import read
from collir.syntax.writer import write
from collir.tools.api import context


@dataclass(frozen=True)
class Row:
    """A line of the table: the seconds of collir, the seconds of the peer, and a note."""

    what: str
    ours: float
    peer: str
    theirs: float
    note: str

    def __str__(self) -> str:
        return (
            f"{self.what:<26} {_seconds(self.ours):>9}   {self.peer:<24} "
            f"{_seconds(self.theirs):>9}   {self.ours / self.theirs:>5.2f}   {self.note}"
        )


def _seconds(value: float) -> str:
    if value < 1e-3:
        return f"{value * 1e6:.0f} us"
    return f"{value:.3f} s" if value >= 0.1 else f"{value * 1e3:.2f} ms"


def stages(*works: Callable[[Any], Any]) -> list[float]:
    """Return the CPU seconds of each work; each work gets the result of the previous work."""
    times: list[float] = []
    value = None
    for work in works:
        gc.collect()
        start = time.process_time()
        value = work(value)
        times.append(time.process_time() - start)
    return times


def least(runs: list[list[float]]) -> list[float]:
    """Return the best total of several runs, then the best time of each stage."""
    return [min(map(sum, runs)), *map(min, zip(*runs, strict=True))]


# ---------------------------------------------------------------------------------------------
# Throughput
# ---------------------------------------------------------------------------------------------


def _ours(text: str) -> list[float]:
    def verified(module: ModuleOp) -> ModuleOp:
        verify(module)
        return module

    return stages(lambda _: read(text), verified, write)


def _xdsl(text: str) -> list[float]:
    def verified(module: ModuleOp) -> ModuleOp:
        module.verify()
        return module

    return stages(lambda _: Parser(context(), text).parse_module(), verified, in_mlir)


def in_mlir(module: ModuleOp) -> str:
    """Return a module as xDSL's printer writes it."""
    output = StringIO()
    Printer(output).print_op(module)
    return output.getvalue()


def throughput() -> list[Row]:
    """Return rows for parsing, verifying and printing a module, against xDSL on its MLIR form."""
    text = training(200)
    mlir = in_mlir(read(text))
    runs = [(_ours(text), _xdsl(mlir)) for _ in range(5)]
    ours, theirs = (least([run[i] for run in runs]) for i in (0, 1))
    names = [
        ("parse, verify, print", "xDSL, the same module"),
        ("  parse and infer types", "xDSL Parser"),
        ("  verify", "xDSL verify"),
        ("  print", "xDSL Printer"),
    ]
    lines, mlir_lines = text.count("\n"), mlir.count("\n")

    def row(what: str, our_seconds: float, peer: str, peer_seconds: float) -> Row:
        rates = f"{lines / our_seconds:,.0f} against {mlir_lines / peer_seconds:,.0f} lines/s"
        return Row(what, our_seconds, peer, peer_seconds, rates)

    return [
        row(what, our_seconds, peer, peer_seconds)
        for (what, peer), our_seconds, peer_seconds in zip(names, ours, theirs, strict=True)
    ]


# ---------------------------------------------------------------------------------------------
# Start-up
# ---------------------------------------------------------------------------------------------


def _children_seconds(command: list[str]) -> float:
    def used() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    start = used()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return used() - start


COMMANDS = (
    "collopt --version",
    "collopt --help",
    "collrun --help",
    "collir --help",
    "collir calibrate --help",
    "collir compare --help",
    "collir search --help",
)


def start_up() -> list[Row]:
    """Return a row for each command that asks for help, beside the imports of xDSL and numpy."""
    folder = Path(sys.executable).parent
    peer = [sys.executable, "-c", "import xdsl.dialects.builtin, numpy"]
    commands = [peer, *([str(folder / word), *words] for word, *words in map(str.split, COMMANDS))]
    runs = [[_children_seconds(command) for command in commands] for _ in range(8)]
    theirs, *ours = (min(times) for times in zip(*runs, strict=True))
    return [
        Row(command, seconds, "import xDSL and numpy", theirs, "a whole process")
        for command, seconds in zip(COMMANDS, ours, strict=True)
    ]


# ---------------------------------------------------------------------------------------------
# Verification does not depend on the devices
# ---------------------------------------------------------------------------------------------


def _verify_seconds(text: str) -> float:
    """Return the CPU seconds of verifying a module that was just read, with its meshes."""
    module = read(text)
    gc.collect()
    start = time.process_time()
    verify(module)
    return time.process_time() - start


def verification() -> list[Row]:
    """Return a row for the verifier on a program of 69 steps, on a large and a small machine."""
    large, small = every_rule(32, 64, 64), every_rule(2, 2, 2)
    runs = [(_verify_seconds(large), _verify_seconds(small)) for _ in range(40)]
    ours, theirs = (min(times) for times in zip(*runs, strict=True))
    return [
        Row("verify on 131,072 devices", ours, "the same, on 8 devices", theirs, "69 steps"),
    ]


# ---------------------------------------------------------------------------------------------
# Costs do not depend on the devices
# ---------------------------------------------------------------------------------------------


def _query_seconds(work: Callable[[float], object], queries: int) -> float:
    """Return the CPU seconds of a query; each of the queries has a different size."""
    gc.collect()
    step_cost.cache_clear()
    start = time.process_time()
    for query in range(queries):
        work(1e6 + query)
    return (time.process_time() - start) / queries


def costs() -> list[Row]:
    """Return rows for the cost of an all_reduce.

    They compare a large machine with a small one, and the closed form with a list of all messages
    of all devices (on 64 devices).
    """

    def closed(mesh: Mesh, model: CostModel) -> Callable[[float], object]:
        axes = tuple(mesh.by_name)
        return lambda size: step_cost(Collective("all_reduce", mesh, axes, size), model)

    def listed(mesh: Mesh) -> Callable[[float], object]:
        axes = tuple(mesh.by_name)

        def work(size: float) -> object:
            network = Network(mesh, groups(mesh, axes, frozenset()))
            return time_of(network, "all_reduce", "ring", size, 0.0)

        return work

    large, middle, small = two_levels(16384, 8), two_levels(8, 8), two_levels(2, 4)
    cheapest, ring = (
        CostModel("alpha-beta", order="written"),
        CostModel("alpha-beta", order="written", algorithm="ring"),
    )
    pairs = [
        ("cost, best of 6 algorithms", closed(large, cheapest), closed(small, cheapest)),
        ("cost of a ring", closed(large, ring), closed(small, ring)),
        ("cost of a ring, 64 devices", closed(middle, ring), listed(middle)),
    ]
    rows: list[Row] = []
    for what, query, peer_query in pairs:
        runs = [(_query_seconds(query, 200), _query_seconds(peer_query, 20)) for _ in range(10)]
        ours, theirs = (min(times) for times in zip(*runs, strict=True))
        peer = "every message listed" if "64" in what else "8 devices, not 131,072"
        rows.append(Row(what, ours, peer, theirs, f"{1 / ours:,.0f} queries/s"))
    return rows


def main() -> None:
    """Print the tables."""
    print(f"collir {collir.__version__}, CPU time, best of several runs")
    print(f"{'collir':<26} {'':>9}   {'peer':<24} {'':>9}   ratio")
    for measure in (throughput, start_up, verification, costs):
        for row in measure():
            print(row, flush=True)
    print()
    for line in predictions():
        print(line, flush=True)


if __name__ == "__main__":
    main()
