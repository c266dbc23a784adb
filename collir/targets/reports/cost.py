"""What every collective of a program costs, as a table and as JSON."""

import json
from dataclasses import dataclass
from typing import IO, Any

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target

from collir.cost.model import CostModel
from collir.cost.programs.cost import FunctionCost, cost
from collir.cost.programs.simulation import Simulation
from collir.layout import Mesh
from collir.machine.model import devices_text
from collir.targets.reports.text import (
    bytes_text,
    percent_text,
    rate_text,
    ratio_text,
    seconds_text,
    table,
)


@dataclass(frozen=True)
class CostingTarget(Target):
    """The options of every target that costs."""

    model: str = "auto"
    """The cost model: `auto` (that of the library which runs the program: NCCL on GPUs, MPICH on
    CPUs), `alpha-beta` (latency and bandwidth), `p2` (bandwidth only, as in P²) or `nccl`."""
    algorithm: str = "auto"
    """The algorithm of the steps that name none: `auto` (the library's choice; of `alpha-beta`, the
    cheapest), `cheapest`, `runtime` (MPICH's choice), or the name of one."""
    order: str = "auto"
    """The order of the ranks in a group: as `written` behind `over`, or that of the `hardware`;
    `auto` is the hardware's on GPUs, as NCCL lays its rings."""

    def __post_init__(self) -> None:
        self.cost_model()

    def cost_model(self) -> CostModel:
        """The model that the options say.

        Raises:
            ValueError: an option has a value that does not exist.
        """
        return CostModel(self.model, self.algorithm, self.order)


@dataclass(frozen=True)
class CostTarget(CostingTarget):
    """What every collective costs: time, bytes through each level's busiest port, and the bound."""

    name = "cost"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        found = cost(module, self.cost_model())
        output.write("\n".join("\n".join(cost_table(each)) + "\n" for each in found))


@dataclass(frozen=True)
class CostJsonTarget(CostingTarget):
    """The table of the target cost for programs, in JSON: seconds and bytes."""

    name = "cost-json"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        found = cost(module, self.cost_model())
        json.dump({"functions": [cost_json(each) for each in found]}, output, indent=2)
        output.write("\n")


def mesh_title(mesh: Mesh) -> str:
    """Return how reports name a mesh: ``@m (@machine, 8 devices)``."""
    return f"@{mesh.name} (@{mesh.machine.name}, {devices_text(mesh.devices)})"


def title_of(found: FunctionCost | Simulation) -> str:
    """The first line of a report: what takes how long, and how much that is over its bound."""
    title = (
        f"@{found.name} on {mesh_title(found.mesh)}: "
        f"{seconds_text(found.time)}, bound {seconds_text(found.bound)}"
    )
    title += f" ({ratio_text(found.time, found.bound)})" if found.bound else ""
    return f"{title}, costed {found.model.how(found.mesh.machine)}"


def cost_table(found: FunctionCost) -> list[str]:
    """The lines of a function's table."""
    title = title_of(found)
    if not found.steps:
        return [title, "  no collectives"]
    levels = [level.name for level in found.mesh.machine.levels]
    head = ["step", "over", "algorithm", "bytes/rank", *levels, "time", "share", "busbw", "bound"]
    if found.overlaps:
        head.insert(head.index("time"), "start")
    rows = [_row(found, number) for number in range(len(found.steps))]
    lines = table([*head, ""], rows, left=3)
    notes = [_copies(found, number) for number in range(len(found.steps))]
    return [title, *(f"  {line}" for line in (*lines, *filter(None, notes)))]


def _copies(found: FunctionCost, number: int) -> str:
    """What could be saved where the groups of a step hold copies of the same data."""
    step = found.steps[number]
    if step.shared_bound > 0.99 * step.bound:
        return ""
    axes = ", ".join(found.mesh.short(found.mesh.ordered(step.collective.replicated)))
    return (
        f"step {number + 1}: replicated over {axes}; a program that sends copies only once is "
        f"bounded by {seconds_text(step.shared_bound)}"
    )


def _row(found: FunctionCost, number: int) -> list[str]:
    step = found.steps[number]
    sent = step.collective
    return [
        sent.kind,
        ", ".join(found.mesh.short(sent.axes)),
        step.algorithm,
        bytes_text(sent.size),
        *(bytes_text(size) if size else "-" for size in step.port_bytes),
        *([seconds_text(found.spans[number][0])] if found.overlaps else []),
        seconds_text(step.time),
        percent_text(step.time, found.time),
        rate_text(sent.busbw(step.time)),
        seconds_text(step.bound),
        ratio_text(step.time, step.bound),
    ]


def heading_json(found: FunctionCost) -> dict[str, Any]:
    """Return what is costed and how, as plain values."""
    machine = found.mesh.machine
    return {
        "name": found.name,
        "machine": machine.name,
        "mesh": found.mesh.name,
        "model": found.model.on(machine).model,
        "costed": found.model.how(machine),
    }


def cost_json(found: FunctionCost) -> dict[str, Any]:
    """A function's costs as plain values: seconds and bytes."""
    levels = [level.name for level in found.mesh.machine.levels]
    return {
        **heading_json(found),
        "time_s": found.time,
        "bound_s": found.bound,
        "steps": [
            {
                "op": step.collective.kind,
                "over": list(step.collective.axes),
                "algorithm": step.algorithm,
                "bytes": _whole(step.collective.size),
                "port_bytes": {
                    level: _whole(size) for level, size in zip(levels, step.port_bytes, strict=True)
                },
                **({"start_s": start, "end_s": end} if found.overlaps else {}),
                "time_s": step.time,
                "bound_s": step.bound,
            }
            for step, (start, end) in zip(found.steps, found.spans, strict=True)
        ],
    }


def _whole(size: float) -> float:
    """A size without a fraction as an integer."""
    return int(size) if size == int(size) else size
