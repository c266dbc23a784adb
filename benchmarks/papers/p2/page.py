"""Write README.md, the measurements of P² beside predictions.

    python benchmarks/papers/p2/page.py

The predictions use the bandwidths that the paper states for its machine, and nothing fitted to the
measurements. Only the section on calibration uses bandwidths that were fitted to three of the
measurements (calibrated.py).
"""

import argparse
import csv
import gc
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, groupby
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import collir
from collir.cost.calibration import FittedParameter
from collir.cost.collectives.collective import Collective
from collir.cost.model import CostModel, StepCost, step_cost
from collir.dialects.machine import MachineOp
from collir.layout import Axis, Dim, DistType, DType, Mesh, Reduction
from collir.syntax.reader import read
from collir.synthesis.placement.matrices import Matrix
from collir.synthesis.placement.meshes import mesh_of_matrix
from collir.synthesis.programs import graph, ports
from collir.synthesis.programs.cheapest import synthesise

sys.path.insert(0, str(Path(__file__).parents[1]))
from p2 import calibrated, candidates, lower, systems
from p2 import enumerate as enumeration
from p2.candidates import StepSequence, p2_candidates
from p2.enumerate import programs

DATA = Path(__file__).parent / "measured_a100_2nodes.csv"
PAGE = Path(__file__).parent / "README.md"
MACHINE = """\
machine @a100 {
  level node[2] { port =   8 GB/s, latency = 0 us }
  level gpu[16] { port = 270 GB/s, latency = 0 us }
}
"""
MODEL = CostModel("p2")
BYTES = 2.0**31
RUNS = 10
SIZE = 5
"""The largest number of steps of a program."""
REPEATS = 5
ALGORITHMS = ("ring", "tree")
KINDS = ("allreduce", "optimal")
WHERE = ("over both levels", "over nodes only", "inside nodes")


@dataclass(frozen=True)
class Published:
    """A row of the paper's tables.

    Attributes:
        reduced: Indices of the axes that are reduced.
        seconds: Seconds of ``RUNS`` runs, by program (``KINDS``) and NCCL's algorithm.
        gains: Time of AllReduce over time of the best program, by NCCL's algorithm.
        programs: Number of programs of all placements of the case.
        better: Number of these programs that took less than AllReduce, by NCCL's algorithm.
        synthesis: Seconds of the paper's synthesis for the case.
        simulation: Seconds of the paper's simulation for the case, for Ring.
    """

    axes: tuple[int, ...]
    reduced: tuple[int, ...]
    matrix: Matrix
    seconds: dict[tuple[str, str], float]
    gains: dict[str, float]
    programs: int
    better: dict[str, int]
    synthesis: float
    simulation: float

    @property
    def case(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The axes and the reduced axes; placements of a case differ only in the matrix."""
        return self.axes, self.reduced


def published() -> list[Published]:
    """Return all rows of the paper's tables."""
    with DATA.open(encoding="utf-8", newline="") as file:
        return [_published(row) for row in csv.DictReader(file)]


def _published(row: dict[str, str]) -> Published:
    better = {
        algorithm: row[f"progs_{algorithm}_better/total"].split("/") for algorithm in ALGORITHMS
    }
    totals = {int(total) for _, total in better.values()}
    return Published(
        tuple(_numbers(row["parallelism_axes"])),
        tuple(_numbers(row["reduction_axes"])),
        tuple(map(tuple, _numbers(row["matrix"]))),
        {
            (kind, algorithm): float(row[f"{kind}_{algorithm}_s"])
            for kind in KINDS
            for algorithm in ALGORITHMS
        },
        {algorithm: float(row[f"speedup_{algorithm}"]) for algorithm in ALGORITHMS},
        totals.pop(),
        {algorithm: int(number) for algorithm, (number, _) in better.items()},
        float(row["synthesis_s"]),
        float(row["sim_s_ring"]),
    )


def _numbers(text: str) -> list[Any]:
    """Parse a list such as ``[[1 2] [2 8]]``."""
    return json.loads(text.replace(" ", ","))


@dataclass(frozen=True)
class Predicted:
    """A placement, as measured and as predicted.

    Attributes:
        flat: Seconds of the AllReduce as one step, for all runs, as in ``Published``.
        found: All programs, cheapest first.
    """

    measured: Published
    flat: float
    found: list[StepSequence]

    @property
    def best(self) -> float:
        """Seconds of the cheapest program, for all runs."""
        return RUNS * self.found[0].time

    @property
    def gain(self) -> float:
        """Time of the AllReduce over time of the cheapest program."""
        return self.flat / self.best

    @property
    def better(self) -> int:
        """The number of programs that take less than AllReduce."""
        return sum(RUNS * candidate.time < self.flat * (1 - 1e-9) for candidate in self.found)

    @property
    def where(self) -> str:
        """One of ``WHERE``: the levels of the reduction."""
        rows = [self.measured.matrix[axis] for axis in self.measured.reduced]
        nodes, gpus = (any(row[level] > 1 for row in rows) for level in (0, 1))
        return WHERE[0] if nodes and gpus else WHERE[1] if nodes else WHERE[2]

    def seconds(self, kind: str) -> float:
        """Return the predicted seconds of a kind of program, one of ``KINDS``."""
        return self.flat if kind == "allreduce" else self.best

    def error(self, kind: str, algorithm: str) -> float:
        """Return the error of the prediction relative to the measurement."""
        return self.seconds(kind) / self.measured.seconds[kind, algorithm] - 1

    def gain_error(self, algorithm: str) -> float:
        """Return the error of the gain relative to the measured gain."""
        return self.gain / self.measured.gains[algorithm] - 1


def collective(row: Published) -> Collective:
    """Return the reduction of a placement."""
    [machine] = [op.value() for op in read(MACHINE).ops if isinstance(op, MachineOp)]
    names = [f"axis{index}" for index in range(len(row.axes))]
    axes = tuple(Axis(name, size) for name, size in zip(names, row.axes, strict=True))
    mesh = mesh_of_matrix(Mesh("m", machine, axes), row.matrix)
    over = {names[index] for index in row.reduced}
    reduced = tuple(sub.name for sub in mesh.sub_axes if sub.axis in over)
    return Collective("all_reduce", mesh, reduced, BYTES)


def predict(row: Published) -> Predicted:
    """Return the prediction for a placement."""
    whole = collective(row)
    return Predicted(row, RUNS * step_cost(whole, MODEL).time, p2_candidates(whole, MODEL, SIZE))


@cache
def predictions() -> list[Predicted]:
    """Return the predictions for all placements, in the order of the data."""
    return [predict(row) for row in published()]


def decisions() -> list[systems.Decision]:
    """Return the decision for every row, as measured and as predicted by default."""
    return [systems.decision(row.matrix, row.reduced, row.seconds, RUNS) for row in published()]


def cases(all_: Iterable[Predicted]) -> list[list[Predicted]]:
    """Return the placements of every case."""
    return [
        list(group) for _, group in groupby(all_, key=lambda placement: placement.measured.case)
    ]


# --- statistics over placements -------------------------------------------------------------


def ordered(pairs: Iterable[tuple[Predicted, Predicted]], kind: str, algorithm: str) -> list[bool]:
    """Return whether prediction and measurement agree on the order of each pair.

    Pairs whose predicted or measured times are equal are left out.
    """
    agreements: list[bool] = []
    for first, second in pairs:
        predicted = first.seconds(kind) - second.seconds(kind)
        real = first.measured.seconds[kind, algorithm] - second.measured.seconds[kind, algorithm]
        if abs(predicted) > 1e-9 and real:
            agreements.append((predicted > 0) == (real > 0))
    return agreements


def apart(all_: Sequence[Predicted]) -> float:
    """Return the smallest measured ratio between the slowest and fastest placement of a case."""
    return min(
        max(times) / min(times)
        for case in cases(all_)
        if len(case) > 1
        for kind in KINDS
        for algorithm in ALGORITHMS
        for times in [[placement.measured.seconds[kind, algorithm] for placement in case]]
    )


def rate(placement: Predicted, kind: str) -> float:
    """Return the bandwidth of the NIC, in GB/s, that explains the measured time of Ring.

    It is exact for an AllReduce over nodes. For programs with steps inside nodes it is an
    approximation, because these steps are short.
    """
    return 8 * (1 + placement.error(kind, "ring"))


def crossings(placement: Predicted) -> float:
    """Return how many times Tree sent the buffer over the NIC, assuming the rate of Ring."""
    times = placement.measured.seconds
    ranks = collective(placement.measured).ranks
    return times["allreduce", "tree"] / times["allreduce", "ring"] * 2 * (ranks - 1) / ranks


# --- calibrated -----------------------------------------------------------------------------------


def chosen(all_: Sequence[Predicted]) -> list[Predicted]:
    """Return the placements to fit to: the first of each kind, whatever its error."""
    return [next(placement for placement in all_ if placement.where == where) for where in WHERE]


@dataclass(frozen=True)
class Recalibrated:
    """A placement, as predicted with the fitted bandwidths, and with trees for Tree."""

    before: Predicted
    programs: calibrated.Programs

    def seconds(self, kind: str, algorithm: str) -> float:
        """Return the predicted seconds of all runs, as in ``Published``."""
        of = self.programs.flat if kind == "allreduce" else self.programs.best
        return RUNS * of[algorithm]

    def error(self, kind: str, algorithm: str) -> float:
        """Relative to the measurement."""
        return self.seconds(kind, algorithm) / self.before.measured.seconds[kind, algorithm] - 1

    def gain_error(self, algorithm: str) -> float:
        """Relative to the measured gain."""
        return self.programs.gain(algorithm) / self.before.measured.gains[algorithm] - 1


@cache
def recalibrated() -> tuple[tuple[FittedParameter, ...], tuple[Recalibrated, ...]]:
    """Return the fitted bandwidths, and the predictions for all placements with them."""
    all_ = predictions()
    wholes = [collective(placement.measured) for placement in all_]
    times = [
        (wholes[all_.index(placement)], placement.measured.seconds["allreduce", "ring"] / RUNS)
        for placement in chosen(all_)
    ]
    fit = calibrated.fitted(wholes[0].mesh.machine, times)
    placements = [
        Recalibrated(placement, calibrated.programs(calibrated.on(fit.machine, whole), SIZE))
        for placement, whole in zip(all_, wholes, strict=True)
    ]
    return fit.parameters, tuple(placements)


@cache
def choices() -> list[calibrated.Choice]:
    """Return all choices of three placements to fit to."""
    all_ = predictions()
    trees = [RUNS * calibrated.double_tree(collective(placement.measured)) for placement in all_]
    flat = KINDS[0]
    ratios = {
        "ring": [1 + placement.error(flat, "ring") for placement in all_],
        "tree": [
            tree / placement.measured.seconds[flat, "tree"]
            for tree, placement in zip(trees, all_, strict=True)
        ],
    }
    node, gpu = collective(all_[0].measured).mesh.machine.levels
    over_nodes = [placement.where != "inside nodes" for placement in all_]
    return calibrated.choices(ratios, over_nodes, (node.port, gpu.port))


def _others() -> list[Recalibrated]:
    """Return the placements that the bandwidths are not fitted to."""
    used = chosen(predictions())
    return [
        placement
        for placement in recalibrated()[1]
        if not any(placement.before is used_placement for used_placement in used)
    ]


def calibrated_summary_table() -> list[str]:
    """Return median and worst errors of the placements not fitted to, before and after."""
    others = _others()
    parts = [
        (name, [placement for placement in others if placement.before.where == name])
        for name in WHERE
    ]
    parts.append(("all", others))
    lines = _head(
        ["", "bandwidths", "placements"],
        [f"{what}, {name}" for what in ("AllReduce", "best", "gain") for name in ("Ring", "Tree")],
    )
    for name, part in parts:
        for title, errors in (
            ("stated", list(_errors([placement.before for placement in part]))),
            ("fitted", list(_errors(part))),
        ):
            shown = [
                f"{100 * median(map(abs, values)):.0f}% ({_percent(max(values, key=abs))})"
                for values in errors
            ]
            lines.append(_row([name, title, len(part), *shown]))
    return lines


def calibrated_table() -> list[str]:
    """Return the AllReduce and gains of every placement, with fitted bandwidths and trees."""
    used = chosen(predictions())
    head = [f"{name}{what}" for name in ("Ring", "Tree") for what in (" predicted", "", " error")]
    gains = [f"gain, {name}" for name in ("Ring", "Tree")]
    lines = _head(["", "where", "fitted to"], [*head, *gains])
    for number, placement in enumerate(recalibrated()[1], 1):
        row = placement.before.measured
        mark = "yes" if any(placement.before is used_placement for used_placement in used) else ""
        cells: list[object] = [number, placement.before.where, mark]
        for algorithm in ALGORITHMS:
            cells.append(f"{placement.seconds('allreduce', algorithm):.2f}")
            cells.append(f"{row.seconds['allreduce', algorithm]:.2f}")
            cells.append(_percent(placement.error("allreduce", algorithm)))
        for algorithm in ALGORITHMS:
            cells.append(f"{placement.programs.gain(algorithm):.2f} ({row.gains[algorithm]:.2f})")
        lines.append(_row(cells))
    return lines


def calibrated_order_table() -> list[str]:
    """Return how many pairs are in the right order, with a row of placements not fitted to."""
    placements = recalibrated()[1]
    kinds = [(kind, algorithm) for kind in KINDS for algorithm in ALGORITHMS]
    lines = _head(
        ["pairs"],
        [f"{what}, {name}" for what in ("AllReduce", "best") for name in ("Ring", "Tree")],
    )
    groups = [
        list(group)
        for _, group in groupby(placements, lambda placement: placement.before.measured.case)
    ]
    for name, pairs in (
        ("of one case", [pair for group in groups for pair in combinations(group, 2)]),
        ("of all placements", list(combinations(placements, 2))),
        ("of those not fitted to", list(combinations(_others(), 2))),
    ):
        right = [orders_agree(pairs, *kind) for kind in kinds]
        lines.append(
            _row([name, *(f"{sum(agreements)} of {len(agreements)}" for agreements in right)])
        )
    return lines


def orders_agree(
    pairs: Iterable[tuple[Recalibrated, Recalibrated]], kind: str, algorithm: str
) -> list[bool]:
    """Return whether prediction and measurement agree on the order of each pair.

    Pairs whose predicted or measured times are equal are left out.
    """
    agreements: list[bool] = []
    for first, second in pairs:
        predicted = first.seconds(kind, algorithm) - second.seconds(kind, algorithm)
        real = [placement.before.measured.seconds[kind, algorithm] for placement in (first, second)]
        if abs(predicted) > 1e-9 and real[0] != real[1]:
            agreements.append((predicted > 0) == (real[0] > real[1]))
    return agreements


def choices_table() -> list[str]:
    """Return how much the choice of the three placements to fit to matters."""
    all_ = choices()
    kinds = {
        name: {at for at, placement in enumerate(predictions()) if placement.where == name}
        for name in WHERE
    }
    mixed = [choice for choice in all_ if all(kind & set(choice.chosen) for kind in kinds.values())]
    rule = tuple(sorted(predictions().index(placement) for placement in chosen(predictions())))
    lines = _head(
        ["chosen", "choices"],
        ["NIC, GB/s", "NVSwitch, GB/s", "AllReduce, Ring", "AllReduce, Tree"],
    )
    for name, part in (
        ("the first of each kind", [choice for choice in all_ if choice.chosen == rule]),
        ("any of each kind", mixed),
        ("any three", all_),
    ):
        cells: list[object] = [name, len(part)]
        for values, digits, unit in (
            ([choice.nic / 1e9 for choice in part], 1, ""),
            ([choice.switch / 1e9 for choice in part], 0, ""),
            ([100 * choice.errors["ring"] for choice in part], 0, "%"),
            ([100 * choice.errors["tree"] for choice in part], 0, "%"),
        ):
            middle, low, high = np.percentile(values, (50, 5, 95))
            spread = f" ({low:.{digits}f} to {high:.{digits}f})" if len(part) > 1 else ""
            cells.append(f"{middle:.{digits}f}{unit}{spread}")
        lines.append(_row(cells))
    return lines


def calibrated_claims() -> dict[str, str]:
    """Return the figures in the text of the section on calibration."""
    parameters, placements = recalibrated()
    value = {parameter.name: parameter.value for parameter in parameters}
    odd = placements[0]
    flat = KINDS[0]
    over = [placement for placement in placements[1:] if placement.before.where != "inside nodes"]
    inside = [placement for placement in placements if placement.before.where == "inside nodes"]
    pairs = [placement for placement in inside if collective(placement.before.measured).ranks == 2]
    larger = [placement for placement in inside if placement not in pairs]
    both = [placement for placement in over if placement.before.where == "over both levels"]
    all_ = predictions()
    chains = [
        placement.before.measured.seconds[flat, "tree"]
        / placement.before.measured.seconds[flat, "ring"]
        for placement in pairs
    ]
    return {
        "fitted_to": ", ".join(str(all_.index(placement) + 1) for placement in chosen(all_)),
        "cal_chain": _range(chains, 1),
        "cal_odd_gain": f"{odd.before.measured.gains['tree']:.2f}",
        "nic": f"{value['node.port'] / 1e9:.1f}",
        "switch": f"{value['gpu.port'] / 1e9:.0f}",
        "cal_ring": _percents([placement.error(flat, "ring") for placement in over]),
        "cal_tree": _percents([placement.error(flat, "tree") for placement in over]),
        "cal_odd": _percent(odd.error(flat, "tree")),
        "cal_inside": _percents([placement.error(flat, "ring") for placement in larger]),
        "cal_pairs": _percents([placement.error(flat, "tree") for placement in pairs]),
        "cal_gain": _range([placement.before.measured.gains["tree"] for placement in both], 2),
        "cal_rate": f"{value['node.port'] / 1e9 * (1 + odd.error(flat, 'tree')):.1f}",
    }


def _percents(errors: Sequence[float]) -> str:
    low, high = _percent(min(errors)), _percent(max(errors))
    return low if low == high else f"{low} to {high}"


# --- the page -----------------------------------------------------------------------------------


def _row(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _head(left: Sequence[str], right: Sequence[str]) -> list[str]:
    return [_row([*left, *right]), _row([*["---"] * len(left), *["--:"] * len(right)])]


def _percent(error: float) -> str:
    return f"{100 * error:+.0f}%"


def _sizes(sizes: Iterable[int]) -> str:
    return " x ".join(map(str, sizes))


def _reduced(row: Published) -> str:
    return ", ".join(map(str, row.reduced))


def _matrix(matrix: Matrix) -> str:
    rows = (f"[{' '.join(map(str, row))}]" for row in matrix)
    return f"[{' '.join(rows)}]"


def _range(values: Sequence[float], digits: int) -> str:
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return low if low == high else f"{low} to {high}"


def _program(steps: Iterable[StepCost]) -> str:
    def over(step: StepCost) -> str:
        subs = step.collective.mesh.by_name
        return " ".join(subs[axis].level or axis for axis in step.collective.axes)

    return "; ".join(f"{step.collective.kind} {over(step)}" for step in steps)


def times_table(all_: Sequence[Predicted], kind: str) -> list[str]:
    """Return the predicted and measured seconds of every placement."""
    lines = _head(
        ["", "axes", "reduced", "matrix"],
        ["predicted", "Ring", "error", "Tree", "error"],
    )
    for number, placement in enumerate(all_, 1):
        row = placement.measured
        cells = [number, _sizes(row.axes), _reduced(row), f"`{_matrix(row.matrix)}`"]
        cells.append(f"{placement.seconds(kind):.2f}")
        for algorithm in ALGORITHMS:
            cells += [
                f"{row.seconds[kind, algorithm]:.2f}",
                _percent(placement.error(kind, algorithm)),
            ]
        lines.append(_row(cells))
    return lines


def gains_table(all_: Sequence[Predicted]) -> list[str]:
    """Return the best programs and their gains."""
    lines = _head(["", "best program"], ["predicted", "Ring", "error", "Tree", "error"])
    for number, placement in enumerate(all_, 1):
        cells = [number, _program(placement.found[0].costs), f"{placement.gain:.2f}"]
        for algorithm in ALGORITHMS:
            gain = placement.measured.gains[algorithm]
            cells += [f"{gain:.2f}", _percent(placement.gain_error(algorithm))]
        lines.append(_row(cells))
    return lines


def programs_table(all_: Sequence[Predicted]) -> list[str]:
    """Return the numbers of programs of every case."""
    lines = _head(
        ["axes", "reduced"],
        ["programs", "theirs", "faster, predicted", "Ring", "Tree"],
    )
    for case in cases(all_):
        row = case[0].measured
        counts = [len(placement.found) for placement in case]
        total = " + ".join(map(str, counts)) + (f" = {sum(counts)}" if len(counts) > 1 else "")
        better = sum(placement.better for placement in case)
        cells = [_sizes(row.axes), _reduced(row), total, row.programs, better]
        lines.append(_row([*cells, *(row.better[algorithm] for algorithm in ALGORITHMS)]))
    return lines


def summary_table(all_: Sequence[Predicted]) -> list[str]:
    """Return median and worst errors, over the network and inside nodes."""
    parts = [(name, [placement for placement in all_ if placement.where == name]) for name in WHERE]
    parts.append(("all", list(all_)))
    lines = _head(
        ["", "placements"],
        [f"{what}, {name}" for what in ("AllReduce", "best", "gain") for name in ("Ring", "Tree")],
    )
    for name, part in parts:
        cells: list[object] = [name, len(part)]
        for errors in _errors(part):
            middle = 100 * median(map(abs, errors))
            cells.append(f"{middle:.0f}% ({_percent(max(errors, key=abs))})")
        lines.append(_row(cells))
    return lines


def _errors(part: Sequence["Predicted | Recalibrated"]) -> Iterator[list[float]]:
    for kind in KINDS:
        for algorithm in ALGORITHMS:
            yield [placement.error(kind, algorithm) for placement in part]
    for algorithm in ALGORITHMS:
        yield [placement.gain_error(algorithm) for placement in part]


def _over_nodes(all_: Iterable[Predicted]) -> list[Predicted]:
    return [placement for placement in all_ if placement.where != "inside nodes"]


def _inside(all_: Iterable[Predicted]) -> list[Predicted]:
    return [placement for placement in all_ if placement.where == "inside nodes"]


def order_table(all_: Sequence[Predicted]) -> list[str]:
    """Return how many pairs of placements are in the right order."""
    inside = [pair for case in cases(all_) for pair in combinations(case, 2)]
    lines = _head(
        ["pairs"],
        [f"{what}, {name}" for what in ("AllReduce", "best") for name in ("Ring", "Tree")],
    )
    for name, pairs in (
        ("of one case", inside),
        ("of all placements", list(combinations(all_, 2))),
        ("of those over nodes", list(combinations(_over_nodes(all_), 2))),
        ("of those inside nodes", list(combinations(_inside(all_), 2))),
    ):
        right = [ordered(pairs, kind, algorithm) for kind in KINDS for algorithm in ALGORITHMS]
        lines.append(
            _row([name, *(f"{sum(agreements)} of {len(agreements)}" for agreements in right)])
        )
    return lines


def searched(whole: Collective) -> float:
    """Return the seconds of the cheapest program by search, for all runs, as in ``Published``."""
    mesh = whole.mesh
    idle = [sub.name for sub in mesh.sub_axes if sub.name not in whole.axes]
    elements = int(whole.size) // DType.F32.bytes
    dims = (Dim(elements * mesh.group_size(idle), tuple(idle)),)
    target = DistType(DType.F32, dims)
    source = replace(target, partial=frozenset(whole.axes), reduction=Reduction.SUM)
    return RUNS * synthesise(mesh, source, target, MODEL).candidates[0].time


def _forget() -> None:
    """Clear all caches, so that earlier runs do not help."""
    step_cost.cache_clear()
    ports.ports_of.cache_clear()
    ports.times_on.cache_clear()
    graph.graph.cache_clear()
    candidates.costs_on.cache_clear()
    enumeration.listed_programs.cache_clear()
    gc.collect()


def _medians(works: Sequence[Callable[[], object]]) -> list[float]:
    """Return the CPU seconds of each work: the median of several runs, in turns."""
    seconds: list[list[float]] = [[] for _ in works]
    for _ in range(REPEATS):
        for work, own in zip(works, seconds, strict=True):
            _forget()
            start = time.process_time()
            work()
            own.append(time.process_time() - start)
    return list(map(median, seconds))


def seconds_table(all_: Sequence[Predicted]) -> list[str]:
    """Return the times to find programs, measured in this process."""
    assert all(
        abs(searched(collective(placement.measured)) / placement.best - 1) < 1e-9
        for placement in all_
    )
    lines = _head(
        ["axes", "reduced"],
        [
            "search",
            "enumerate",
            "enumerate and cost",
            "their synthesis",
            "their simulation, Ring",
            "their both",
        ],
    )
    total = [0.0] * 6
    for case in cases(all_):
        row = case[0].measured
        wholes = [collective(placement.measured) for placement in case]
        ours = _medians(
            [
                lambda wholes=wholes: [searched(whole) for whole in wholes],
                lambda wholes=wholes: [_programs(whole) for whole in wholes],
                lambda wholes=wholes: [p2_candidates(whole, MODEL, SIZE) for whole in wholes],
            ]
        )
        seconds = [*ours, row.synthesis, row.simulation, row.synthesis + row.simulation]
        total = [before + own for before, own in zip(total, seconds, strict=True)]
        lines.append(_row([_sizes(row.axes), _reduced(row), *_milliseconds(seconds)]))
    return [*lines, _row(["all of them", "", *_milliseconds(total)])]


def _programs(whole: Collective) -> int:
    axes = whole.mesh.ordered(whole.axes)
    reduction = lower.ReducedFactors.of_mesh(whole.mesh, axes, lower.Numbering.HARDWARE)
    return sum(1 for _ in programs(reduction.hierarchy, SIZE))


def _milliseconds(seconds: Sequence[float]) -> list[str]:
    """Return our times, and those of the paper, which are known to the millisecond."""
    digits = (1, 1, 1, 0, 0, 0)
    return [f"{value * 1e3:.{places}f} ms" for value, places in zip(seconds, digits, strict=True)]


def claims(all_: Sequence[Predicted]) -> dict[str, str]:
    """Return the figures in the text."""
    flat, best = KINDS
    both = [placement for placement in all_ if placement.where == "over both levels"]
    rates = [rate(placement, flat) for placement in _over_nodes(all_)]
    odd = max(both, key=lambda placement: abs(placement.gain_error("ring")))
    rest = [placement for placement in both if placement is not odd]
    misses = [
        placement.measured.seconds[flat, "ring"] - placement.flat for placement in _inside(all_)
    ]
    equal = {
        sum(abs(RUNS * candidate.time / placement.flat - 1) < 1e-9 for candidate in placement.found)
        - 1
        for placement in both
    }
    return {
        "apart": f"{apart(all_):.0f}",
        "rates": _range(rates, 1),
        "odd": str(all_.index(odd) + 1),
        "odd_gain": f"{odd.gain:.2f}",
        "odd_real": f"{odd.measured.gains['ring']:.2f}",
        "odd_flat": f"{rate(odd, flat):.1f}",
        "odd_best": f"{rate(odd, best):.1f}",
        "odd_crossings": f"{crossings(odd):.1f}",
        "rest": f"{100 * max(abs(placement.gain_error('ring')) for placement in rest):.0f}%",
        "crossings": _range([crossings(placement) for placement in rest], 1),
        "misses": _range([1e3 * miss / RUNS for miss in misses], 0),
        "tree_high": f"{max(1 + placement.error(flat, 'tree') for placement in both):.1f}",
        "tree_gains": _range([placement.measured.gains["tree"] for placement in both], 2),
        "tree_predicted": _range([placement.gain for placement in both], 2),
        "tree_inside": _range([placement.measured.gains["tree"] for placement in _inside(all_)], 2),
        "better": _range([placement.better for placement in both], 0),
        "equal": _range(list(equal), 0),
    }


TEXT = """\
# The measurements of P² beside predictions

Written by `python benchmarks/papers/p2/page.py` (collir {version}); do not edit.

P² (Xie, Norman, Grewe, Vytiniotis: "Synthesizing optimal parallelism placement and reduction
strategies on hierarchical systems for deep learning", MLSys 2022) was measured on 2 nodes of 16
A100 GPUs. The GPUs of a node share one NIC and are joined by NVSwitch, with the bandwidths that
the paper states:

```coll
{machine}```

A *placement* says on which hardware levels each axis of a mesh lies. The placements of one mesh
with the same reduced axes form a *case*. For each placement, the paper measured two times with
NCCL's Ring and with its Tree: the time of the AllReduce, and the time of the fastest of all
programs of at most {size} steps. Times are seconds of {runs} runs on 2 GiB (2^31 bytes) per GPU.
The predictions come from the cost model `p2` ([costs](../../../docs/costs.md)): bytes over
bandwidth, of rings in hardware order. The model has the two stated bandwidths, and nothing was
fitted to the measurements. Errors are relative to the measurement. Measurements are rounded to
0.01 s, which is up to 5% of the shortest.

## Summary

Each cell has the median of the absolute errors, and in brackets the largest error:

{summary}

Pairs of placements in the right order (of the pairs whose times differ, both as predicted and as
measured):

{order}

The order of the placements of a case is easy to predict: their measured times differ by factors of
{apart} and more. The pairs of the last two rows are closer.

The model does not explain these observations:

- **Tree.** The model has rings only. A ring of n ranks sends the buffer over the NIC 2(n-1)/n
  times. At the rate of Ring, the times of Tree correspond to sending it {crossings} times (over
  all 32 GPUs, placement {odd}: {odd_crossings} times). So the predicted time of the AllReduce is
  up to {tree_high} times the time of Tree. The predicted gain of the best program is
  {tree_predicted}, and the measured gain with Tree is {tree_gains}. Inside nodes Tree is slower
  than Ring, and programs without its AllReduce gain {tree_inside}, where the prediction is no
  gain. The predictions are for Ring.
- **The rate of the NIC.** The times of the AllReduces by Ring over nodes correspond to {rates}
  GB/s: more than the stated 8 GB/s, less than the line rate (100 Gb/s, which is 12.5 GB/s). So the
  predicted times are too long. In gains this error cancels: with Ring, the gains of the placements
  over both levels are predicted within {rest}, except for one.
- **That placement**, placement {odd}, gains {odd_real} and not {odd_gain}. The time of its
  AllReduce corresponds to {odd_flat} GB/s, and the time of its best program to {odd_best} GB/s.
  The model has no reason for that.
- **A constant inside nodes.** AllReduce by Ring takes {misses} ms a run more than predicted, for
  every size of the group. That is too much for latency, and the measurements do not say what it
  is. It is a large part of such short times, and a larger part for smaller groups.
- **Small gains.** For each placement over both levels, {better} programs are predicted to take
  less than the AllReduce, and {equal} to take the same time. With Ring more than {better} took
  less, with Tree fewer ([numbers](#numbers-of-programs)).

## By default

Without options, a user gets the machine [`@gcp_a2`](../../../docs/machines.md#gcp_a2) that ships
with collir, costed [as NCCL runs it](../../../docs/costs.md#the-library-that-runs-it). Its two
bandwidths were fitted to the AllReduces by Ring on this page. Nothing was fitted to Tree, or to
any other program. *Decided right* counts the placements for which prediction and measurement agree
whether some program gains 5 % or more over the AllReduce. Errors are medians of the absolute
errors.

{decisions}

NCCL's own estimate prefers rings for 2 GiB. So against the better of both, the default predicts
gains over several nodes that Tree does not leave. With Tree, `algorithm=double_binary_tree`
predicts right.

The next table has all systems of the paper, by Ring and by Tree. Its meshes have one axis, two
axes of which one is reduced, or three axes of which the first and the last are reduced
(`systems.py`). The paper has 42 cases but does not list all of them, so these are
the cases of the same kinds. *Improve* is the share of placements and algorithms for which a
program is faster than the AllReduce (by 1 % or more), and *mean gain* is the mean of these gains.
*Between placements* is the largest ratio between the AllReduces of a case.

{systems}

## Calibrated

This section fits the two bandwidths, as [`collir calibrate`](../../../docs/calibration.md) does,
to the AllReduce by Ring of three placements: the first of each kind in the table below
({fitted_to}).
This rule does not look at errors. The fitted bandwidths are {nic} GB/s for the NIC (stated: 8) and
{switch} GB/s for NVSwitch (stated: 270). The errors in this section are those of the other
placements, and nothing was fitted to any measurement with Tree.

With **Tree**, the prediction for an AllReduce follows the structure of NCCL's trees
(`calibrated.py`). Between two nodes there are two trees with half of the buffer
each, up and down. They send the buffer once through each port and direction, for every size of the
group. Inside a node there is a chain, which sends the buffer once for two GPUs and twice for more.
In the best program, steps other than AllReduce are rings, as NCCL has no trees for them. *Stated*
is as above, with rings for both.

{cal_summary}

{cal_order}

The next table shows how much the choice of the three placements matters. It has the median over
all choices, and in brackets the range that contains nine of ten choices. Errors are the medians
over the placements that were not chosen. (This is least squares on three placements, even if
`collir calibrate` would say that the three do not determine a bandwidth.)

{cal_choices}

The calibrated model explains some of the observations:

- **Over nodes**, except for placement 1, AllReduce is predicted within {cal_ring} with Ring and
  {cal_tree} with Tree. There Tree sends about half of the bytes of Ring, and steps inside nodes
  gain nothing: predicted 1.00, measured {cal_gain}.
- **Placement 1 with Tree** has an error of {cal_odd}. In this placement all 32 GPUs are one group,
  alone on the NICs, and its time corresponds to {cal_rate} GB/s. By its structure Tree sends no
  more than in any other group on two nodes. In the model, only their bytes matter when groups
  share a NIC, and not their number. The measurements do not tell whether more connections at a
  time use this NIC better. The error in the gain has the same cause: {cal_odd_gain} was measured,
  none is predicted.
- **Inside nodes**, the rule fits to a group of two GPUs. The constant {misses} ms are the largest
  part of this group's time. So the predictions for larger groups are too slow, {cal_inside} with
  Ring. No single bandwidth fits both. A constant time per call could, but a machine has no such
  setting.
- **Tree inside nodes** with two GPUs has an error of {cal_pairs}. By structure their chain sends
  as much as a ring, but the measured time is {cal_chain} times that of Ring.

{cal_table}

Gains are predicted, and in brackets measured.

## AllReduce

{allreduce}

## The best program

{optimal}

The next table has the gain of the best program over the AllReduce. The measurements do not say
which program was the fastest. The table has the predicted best program, and the shortest of
several with the same cost:

{gains}

## Numbers of programs

The numbers of programs of at most {size} steps, for the placements of a case, and the numbers of
those that take less time than the AllReduce of their placement, as predicted and as measured.
*theirs* is the number in the paper.

{programs}

## Seconds

The table has CPU times in Python for all placements of a case: the median of {repeats} runs, in
turns, on one core of the computer that wrote this page. The caches of the cost models and of the
search are cleared before each run.

- *search* finds the cheapest program of each placement, as `decompose` does. On all {placements}
  placements that program takes as long as the cheapest program of the enumeration.
- *enumerate* lists all programs of at most {size} steps.
- *enumerate and cost* also costs and sorts them.
- *their* columns are the times that the paper reports for its own tool on its own computer. These
  are different computers, so nothing is claimed about which tool is faster.

{seconds}
"""


def page() -> str:
    """Return the text of the page."""
    all_ = predictions()
    return TEXT.format(
        version=collir.__version__,
        machine=MACHINE,
        size=SIZE,
        runs=RUNS,
        repeats=REPEATS,
        placements=len(all_),
        seconds="\n".join(seconds_table(all_)),
        **tables(all_),
        **claims(all_),
        **calibrated_claims(),
    )


def tables(all_: Sequence[Predicted]) -> dict[str, str]:
    """Return all tables that are the same on every computer."""
    all_lines = {
        "summary": summary_table(all_),
        "order": order_table(all_),
        "allreduce": times_table(all_, "allreduce"),
        "optimal": times_table(all_, "optimal"),
        "gains": gains_table(all_),
        "programs": programs_table(all_),
        "cal_summary": calibrated_summary_table(),
        "cal_order": calibrated_order_table(),
        "cal_choices": choices_table(),
        "cal_table": calibrated_table(),
        "decisions": systems.decisions_table(decisions()),
        "systems": systems.table(),
    }
    return {name: "\n".join(lines) for name, lines in all_lines.items()}


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description="Writes README.md.")
    parser.add_argument("-o", "--output", type=Path, default=PAGE, help="default: %(default)s")
    options = parser.parse_args()
    options.output.write_text(page(), encoding="utf-8")
    print(options.output)


if __name__ == "__main__":
    main()
