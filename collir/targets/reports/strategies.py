"""Which sequences of collectives could take the place of each all_reduce, cheapest first."""

import json
from dataclasses import dataclass
from typing import IO, Any

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from collir.cost.group import CostError
from collir.cost.model import StepCost, step_cost
from collir.cost.program import collective_of
from collir.dialects import coll
from collir.dialects.coll import dist_type
from collir.dialects.machine import mesh_of, meshes_remembered
from collir.layout import Mesh
from collir.syntax.diagnostics import DiagnosticError
from collir.syntax.mlir import check_programs, functions_of
from collir.synthesis.candidates import Candidate, enumerated
from collir.synthesis.p2.enumerate import Reading
from collir.targets.reports.cost import CostingTarget
from collir.targets.reports.text import ratio_text, seconds_text, table

_ALONG = ("reduce_scatter", "all_gather")
"""The collectives that have a dimension."""


@dataclass(frozen=True)
class Strategies:
    """The candidates for one collective of a function, on a value of this local shape."""

    function: str
    collective: str
    mesh: Mesh
    local: tuple[int, ...]
    baseline: StepCost
    candidates: list[Candidate]


@dataclass(frozen=True)
class StrategiesBase(CostingTarget):
    """The options of both targets."""

    method: str = "enumerate"
    top: int = 10
    size: int = 5
    reading: str = Reading.MASTER_ALL_REDUCE.value

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.method != "enumerate":
            raise ValueError(f"method is enumerate, not '{self.method}'")
        if self.top < 1 or not 1 <= self.size <= 6:
            raise ValueError("top is 1 or more, size 1 to 6 steps")
        if self.reading not in list(Reading):
            raise ValueError(f"reading is one of {', '.join(Reading)}, not '{self.reading}'")

    def found(self, module: ModuleOp) -> list[Strategies]:
        """The candidates for every all_reduce of a module.

        Raises:
            DiagnosticError: a mesh is not placed, or an all_reduce has no cost.
        """
        functions = functions_of(module)
        check_programs(functions, "has no cost")
        found: list[Strategies] = []
        model = self.cost_model()
        with meshes_remembered():
            for function in functions:
                mesh = mesh_of(function)
                for op in function.body.ops:
                    if not isinstance(op, coll.AllReduceOp):
                        continue
                    if not mesh.placed:
                        raise DiagnosticError.at(
                            op, f"mesh @{mesh.name} is not on levels: -p place chooses a placement"
                        )
                    collective = collective_of(op, mesh)
                    try:
                        baseline = step_cost(collective, model)
                    except CostError as error:
                        raise DiagnosticError.at(op, str(error)) from error
                    candidates = enumerated(collective, model, self.size, Reading(self.reading))
                    name, local = function.sym_name.data, dist_type(op.input).local_shape(mesh)
                    found.append(Strategies(name, op.mnemonic, mesh, local, baseline, candidates))
        return found


@dataclass(frozen=True)
class StrategiesTarget(StrategiesBase):
    """Sequences of collectives for every all_reduce of a placed mesh, cheapest first.

    method: `enumerate`, all programs of P² up to a size. top: how many to show. size: steps, at
    most. reading: of P²'s rules: `master-all-reduce`, `literal`, `no-master`.
    model, algorithm, order: as of the target cost.
    """

    name = "strategies"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        tables = ["\n".join(_lines(one, self.top)) + "\n" for one in self.found(module)]
        output.write("\n".join(tables) or "there is no all_reduce\n")


@dataclass(frozen=True)
class StrategiesJsonTarget(StrategiesBase):
    """The sequences as JSON: an entry for each all_reduce, candidates cheapest first; seconds."""

    name = "strategies-json"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        json.dump([_json(one, self.top) for one in self.found(module)], output, indent=2)
        output.write("\n")


def _lines(found: Strategies, top: int) -> list[str]:
    over = ", ".join(found.mesh.short(found.baseline.collective.axes))
    one, bound = seconds_text(found.baseline.time), seconds_text(found.baseline.bound)
    title = (
        f"@{found.function}: {found.collective} over {over}: {len(found.candidates)} candidates, "
        f"as one step {one}, bound {bound}"
    )
    rows = [
        ["; ".join(_step(step) for step in one.steps), seconds_text(one.time), _times(found, one)]
        for one in found.candidates[:top]
    ]
    return [title, *(f"  {line}" for line in table(["program", "time", ""], rows, left=1))]


def _times(found: Strategies, one: Candidate) -> str:
    return ratio_text(found.baseline.time, one.time) if one.time else ""


def _step(step: StepCost) -> str:
    sent = step.collective
    root = f" root {', '.join(sorted(sent.at_root))}" if sent.at_root else ""
    return f"{sent.kind} {', '.join(sent.mesh.short(sent.axes))}{root}"


def _json(found: Strategies, top: int) -> dict[str, Any]:
    return {
        "function": found.function,
        "collective": found.collective,
        "count": len(found.candidates),
        "candidates": [
            {
                "program": [
                    {
                        "op": step.collective.kind,
                        "over": list(step.collective.axes),
                        "dim": one.dim(found.local) if step.collective.kind in _ALONG else None,
                        "root": sorted(step.collective.at_root),
                    }
                    for step in one.steps
                ],
                "time_s": one.time,
            }
            for one in found.candidates[:top]
        ],
        "baseline_s": found.baseline.time,
        "bound_s": found.baseline.bound,
    }
