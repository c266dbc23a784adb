"""Gains of programs and differences of placements for all systems of P², by default costs.

The systems are those of the paper: 2 and 4 nodes of 16 A100 (``@gcp_a2``) or of 8 V100
(``@gcp_v100x8``). The cases have one axis, two axes of which one is reduced, or three axes of which
the first and the last are reduced. All sizes are powers of two.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import median

from collir.cost.collectives.collective import Collective
from collir.cost.model import CostModel, step_cost
from collir.dialects.machine import MachineOp
from collir.layout import Axis, Dim, DistType, DType, Mesh, Reduction
from collir.machine import Machine
from collir.syntax.reader import read
from collir.synthesis.placement.matrices import Matrix, matrices
from collir.synthesis.placement.meshes import mesh_of_matrix
from collir.synthesis.programs.cheapest import synthesise

BYTES = 2.0**31
ALGORITHMS = {"Ring": "ring", "Tree": "double_binary_tree"}
SYSTEMS = (
    ("2 x 16 A100", "gcp_a2", 2),
    ("4 x 16 A100", "gcp_a2", 4),
    ("2 x 8 V100", "gcp_v100x8", 2),
    ("4 x 8 V100", "gcp_v100x8", 4),
)
GAIN = 1.01
"""A program that is faster by less than this counts as equal."""


@dataclass(frozen=True)
class Placed:
    """A placement of a case.

    Attributes:
        case: The system, the axes, and the indices of the reduced axes.
        flat, best: Seconds of the AllReduce and of the best program, by NCCL's algorithm.
    """

    case: tuple[str, tuple[int, ...], tuple[int, ...]]
    flat: dict[str, float]
    best: dict[str, float]

    def gain(self, algorithm: str) -> float:
        """Return the time of the AllReduce over the time of the best program."""
        return self.flat[algorithm] / self.best[algorithm]


def cases(devices: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield the axes and the indices of the reduced axes of all cases on ``devices`` devices."""
    yield (devices,), (0,)
    powers = [2**k for k in range(1, devices.bit_length() - 1)]
    for first in powers:
        yield from (((first, devices // first), (axis,)) for axis in (0, 1))
    for first in powers:
        if (last := devices // (2 * first)) > 1:
            yield (first, 2, last), (0, 2)


@cache
def placements() -> list[Placed]:
    """Return all placements of all cases of all systems."""
    results: list[Placed] = []
    for name, preset, nodes in SYSTEMS:
        machine = _machine(preset, nodes)
        sizes = tuple(level.size for level in machine.levels)
        for axes, reduced in cases(math.prod(sizes)):
            names = [f"axis{index}" for index in range(len(axes))]
            mesh = Mesh("m", machine, tuple(map(Axis, names, axes)))
            for matrix in matrices(sizes, axes):
                whole = _reduction(
                    mesh_of_matrix(mesh, matrix), {names[index] for index in reduced}
                )
                results.append(_costed((name, axes, reduced), whole))
    return results


def _machine(preset: str, nodes: int) -> Machine:
    ops = read(f"machine @c = @{preset}(nodes = {nodes})").ops
    [machine] = [op.value() for op in ops if isinstance(op, MachineOp)]
    return machine


def _reduction(mesh: Mesh, over: set[str]) -> Collective:
    axes = tuple(sub.name for sub in mesh.sub_axes if sub.axis in over)
    return Collective("all_reduce", mesh, axes, BYTES)


def _costed(
    case: tuple[str, tuple[int, ...], tuple[int, ...]],
    whole: Collective,
    algorithms: dict[str, str] = ALGORITHMS,
) -> Placed:
    mesh = whole.mesh
    idle = tuple(sub.name for sub in mesh.sub_axes if sub.name not in whole.axes)
    elements = int(whole.size) // DType.F32.bytes * mesh.group_size(idle)
    target = DistType(DType.F32, (Dim(elements, idle),))
    source = replace(target, partial=frozenset(whole.axes), reduction=Reduction.SUM)
    flat: dict[str, float] = {}
    best: dict[str, float] = {}
    for shown, algorithm in algorithms.items():
        model = CostModel(algorithm=algorithm)
        flat[shown] = step_cost(whole, model).time
        best[shown] = min(flat[shown], synthesise(mesh, source, target, model).candidates[0].time)
    return Placed(case, flat, best)


@dataclass(frozen=True)
class Decision:
    """A published placement, as measured and as predicted by default.

    Attributes:
        measured, predicted: Seconds of AllReduce and of the best program, by ``ALGORITHMS``;
            ``predicted`` also has NCCL's own choice (``auto``).
    """

    measured: dict[str, tuple[float, float]]
    predicted: dict[str, tuple[float, float]]

    def right(self, measured: str, predicted: str) -> bool:
        """Return whether both agree on whether a program gains 5 % or more."""
        pairs = self.measured[measured], self.predicted[predicted]
        first, second = (flat / best >= LEAST - 1e-9 for flat, best in pairs)
        return first == second


LEAST = 1.05
BETTER = "better of both"


def decision(
    matrix: Matrix, reduced: Sequence[int], seconds: dict[tuple[str, str], float], runs: int
) -> Decision:
    """Return a published placement beside the prediction for ``@gcp_a2``.

    ``seconds`` are the times of ``runs`` runs, by ``allreduce`` or ``optimal`` and ``ring`` or
    ``tree``.
    """
    machine = _machine("gcp_a2", 2)
    names = [f"axis{index}" for index in range(len(matrix))]
    axes = tuple(Axis(name, math.prod(row)) for name, row in zip(names, matrix, strict=True))
    mesh = mesh_of_matrix(Mesh("m", machine, axes), matrix)
    whole = _reduction(mesh, {names[index] for index in reduced})
    costs = _costed(("2 x 16 A100", (), ()), whole, ALGORITHMS | {"auto": "auto"})
    measured = {
        shown: (seconds["allreduce", shown.lower()], seconds["optimal", shown.lower()])
        for shown in ALGORITHMS
    }
    ring, tree = measured["Ring"], measured["Tree"]
    measured[BETTER] = min(ring[0], tree[0]), min(ring[1], tree[1])
    return Decision(
        measured,
        {shown: (runs * costs.flat[shown], runs * costs.best[shown]) for shown in costs.flat},
    )


def decisions_table(all_: Sequence[Decision]) -> list[str]:
    """Return the lines of a table of decisions and of the medians of absolute errors."""
    lines = ["| measured with | costed as | decided right | AllReduce | best program |"]
    lines.append("| --- | --- | --: | --: | --: |")
    for measured, predicted, how in (
        ("Ring", "auto", "NCCL chooses (the default)"),
        (BETTER, "auto", "NCCL chooses (the default)"),
        ("Tree", "Tree", "`algorithm=double_binary_tree`"),
    ):
        right = sum(row.right(measured, predicted) for row in all_)
        cells = [measured, how, f"{right} of {len(all_)}"]
        for place in (0, 1):
            off = [
                abs(row.predicted[predicted][place] / row.measured[measured][place] - 1)
                for row in all_
            ]
            cells.append(f"{median(off):.0%} (at most {max(off):.0%})")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _spread(all_: Sequence[Placed], algorithm: str) -> float:
    """Return the largest ratio between AllReduces on two placements of a case."""
    times: dict[object, list[float]] = {}
    for placement in all_:
        times.setdefault(placement.case, []).append(placement.flat[algorithm])
    return max(max(seconds) / min(seconds) for seconds in times.values())


def table() -> list[str]:
    """Return the lines of the table, a row for each system and one for all."""
    head = [
        "system",
        "cases",
        "placements",
        "improve",
        "mean gain",
        "largest",
        "between placements",
    ]
    lines = [f"| {' | '.join(head)} |", "| --- |" + " --: |" * 6]
    names = [name for name, _, _ in SYSTEMS]
    for name in [*names, "all"]:
        part = [placement for placement in placements() if name in ("all", placement.case[0])]
        gains = [placement.gain(shown) for placement in part for shown in ALGORITHMS]
        better = [gain for gain in gains if gain >= GAIN]
        ratio = max(_spread(part, shown) for shown in ALGORITHMS)
        cells = [
            name,
            len({placement.case for placement in part}),
            len(part),
            f"{len(better) / len(gains):.0%}",
            f"{sum(better) / len(better):.2f}x",
            f"{max(gains):.2f}x",
            f"{ratio:.0f}x",
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return [*lines, "| *measured by P²* | 42 | 200 | 69% | 1.27x | 2.04x | 448x |"]
