"""The cost of every collective of a program, as a table and as JSON."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target

from collir.cost.options import CostOptions
from collir.cost.programs.cost import FunctionCost, LoopCost, cost
from collir.cost.programs.simulation import Simulation
from collir.dialects.nested import RepeatOp
from collir.layout import Mesh
from collir.machine.counts import devices_text
from collir.targets.reports.text import (
    bytes_text,
    percent_text,
    rate_text,
    ratio_text,
    seconds_text,
    table,
)


@dataclass(frozen=True)
class CostTarget(CostOptions, Target):
    """The cost of every collective: time, bytes through each level's busiest port, lower bound."""

    name = "cost"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        costs = cost(module, self.cost_model())
        output.write("\n".join("\n".join([*cost_table(function), ""]) for function in costs))


@dataclass(frozen=True)
class CostJsonTarget(CostOptions, Target):
    """The table of the target cost for programs, in JSON: seconds and bytes."""

    name = "cost-json"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        costs = cost(module, self.cost_model())
        json.dump({"functions": [cost_json(function) for function in costs]}, output, indent=2)
        output.write("\n")


def mesh_title(mesh: Mesh) -> str:
    """Return how reports name a mesh: ``@m (@machine, 8 devices)``."""
    return f"@{mesh.name} (@{mesh.machine.name}, {devices_text(mesh.devices)})"


def title_of(result: FunctionCost | Simulation) -> str:
    """Return the first line of a report: function, mesh, time, and the ratio to the lower bound."""
    title = (
        f"@{result.name} on {mesh_title(result.mesh)}: "
        f"{seconds_text(result.time)}, bound {seconds_text(result.bound)}"
    )
    ratio = ratio_text(result.time, result.bound)
    title += f" ({ratio})" if ratio != "-" else ""
    return f"{title}, costed {result.model.how(result.mesh.machine)}"


def cost_table(costs: FunctionCost) -> list[str]:
    """Return the lines of a function's table."""
    title = title_of(costs)
    if not costs.items:
        return [title, "  no collectives"]
    levels = [level.name for level in costs.mesh.machine.levels]
    head = ["step", "over", "algorithm", "bytes/rank", *levels, "time", "share", "busbw", "bound"]
    if costs.overlaps:
        head.insert(head.index("time"), "start")
    rows = list(_rows(costs, costs.time, costs.overlaps))
    lines = table([*head, ""], rows, left=3)
    notes = [_copies(costs, number) for number in range(len(costs.steps))]
    return [title, *(f"  {line}" for line in (*lines, *filter(None, notes)))]


def _copies(costs: FunctionCost, number: int) -> str:
    """Return a note if the groups of a step hold copies of the same data, which cost time."""
    step = costs.steps[number]
    if step.shared_bound >= 0.99 * step.bound:
        return ""
    axes = ", ".join(costs.mesh.short(costs.mesh.ordered(step.collective.replicated)))
    return (
        f"step {number + 1}: replicated over {axes}; a program that sends copies only once is "
        f"bounded by {seconds_text(step.shared_bound)}"
    )


def _rows(
    costs: FunctionCost, total: float, starts: bool, times: int = 1, prefix: str = ""
) -> Iterator[list[str]]:
    """Yield the rows of steps and loops; the steps of an iteration stand below their loop.

    Args:
        total: the seconds of which the shares are.
        starts: whether there is a column for the start.
        times: how often these steps run.
    """
    for number, (item, span) in enumerate(zip(costs.items, costs.item_spans, strict=True)):
        when = [seconds_text(span[0])] if starts else []
        if isinstance(item, LoopCost):
            time, bound = span[1] - span[0], costs.loop_bound(number)
        else:
            time, bound = item.time, item.bound
        tail = [percent_text(times * time, total)]
        bounds = [seconds_text(bound), ratio_text(time, bound)]
        if isinstance(item, LoopCost):
            blank = [""] * (3 + len(costs.mesh.machine.levels))
            name = f"{prefix}{RepeatOp.WORD} {item.times}"
            yield [name, *blank, *when, seconds_text(time), *tail, "", *bounds]
            yield from _rows(item.body, total, starts, times * item.times, f"{prefix}- ")
            continue
        yield [
            f"{prefix}{item.collective.kind}",
            ", ".join(costs.mesh.short(item.collective.axes)),
            item.algorithm,
            bytes_text(item.collective.size),
            *(bytes_text(size) if size else "-" for size in item.port_bytes),
            *when,
            seconds_text(time),
            *tail,
            rate_text(item.collective.busbw(time)),
            *bounds,
        ]


def heading_json(result: FunctionCost | Simulation, **figures: int) -> dict[str, Any]:
    """Return the function, its machine, mesh and cost model as plain values.

    ``figures`` of the mesh stand behind its name.
    """
    machine = result.mesh.machine
    return {
        "name": result.name,
        "machine": machine.name,
        "mesh": result.mesh.name,
        **figures,
        "model": result.model.on(machine).model,
        "costed": result.model.how(machine),
    }


def cost_json(costs: FunctionCost) -> dict[str, Any]:
    """Return a function's costs as plain values: seconds and bytes."""
    levels = [level.name for level in costs.mesh.machine.levels]
    return {
        **heading_json(costs),
        "time_s": costs.time,
        "bound_s": costs.bound,
        "steps": [
            {
                "op": step.collective.kind,
                "over": list(step.collective.axes),
                "algorithm": step.algorithm,
                "bytes": _whole(step.collective.size),
                "port_bytes": {
                    level: _whole(size) for level, size in zip(levels, step.port_bytes, strict=True)
                },
                **({"start_s": start, "end_s": end} if costs.overlaps else {}),
                "time_s": step.time,
                "bound_s": step.bound,
            }
            for step, (start, end) in zip(costs.steps, costs.spans, strict=True)
        ],
        **({"loops": [*_loops_json(costs)]} if costs.loops else {}),
    }


def _loops_json(costs: FunctionCost) -> Iterator[dict[str, Any]]:
    steps = 0
    for number, (item, (start, end)) in enumerate(zip(costs.items, costs.item_spans, strict=True)):
        if isinstance(item, LoopCost):
            yield {
                "before_step": steps,
                "times": item.times,
                "time_s": end - start,
                "bound_s": costs.loop_bound(number),
                "iteration": cost_json(item.body),
            }
        else:
            steps += 1


def _whole(size: float) -> float:
    """Return a size without a fraction as an integer."""
    return int(size) if size == int(size) else size
