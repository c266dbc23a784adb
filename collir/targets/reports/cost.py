"""The costs of the steps of a program, as a table and as JSON: a view of its simulation."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import IO, Any

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target

from collir.cost.model import StepCost
from collir.cost.options import CostOptions
from collir.cost.programs.accuracy import accuracy_of
from collir.cost.programs.loops import least_time
from collir.cost.programs.schedule import TimeSpan
from collir.cost.programs.simulate import simulate
from collir.cost.programs.simulation import SimulatedStep, Simulation, bounds_of, nodes_of
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
    wrapped,
)


@dataclass(frozen=True)
class CostTarget(CostOptions, Target):
    """The cost of every collective: time, bytes through each level's busiest port, lower bound.

    Steps between two collectives that send nothing are one row. The time of a function is the
    simulated one, as in the target `simulate`, which shows when each step runs.
    """

    name = "cost"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        simulations = simulate(module, self.cost_model())
        output.write("\n".join("\n".join([*cost_table(x), ""]) for x in simulations))
        output.writelines(f"{line}\n" for line in accuracy_of(simulations))


@dataclass(frozen=True)
class CostJsonTarget(CostOptions, Target):
    """The table of the target cost for programs, in JSON: seconds and bytes."""

    name = "cost-json"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        simulations = simulate(module, self.cost_model())
        json.dump({"functions": [cost_json(x) for x in simulations]}, output, indent=2)
        output.write("\n")


def mesh_title(mesh: Mesh) -> str:
    """Return how reports name a mesh: ``@m (@machine, 8 devices)``."""
    return f"@{mesh.name} (@{mesh.machine.name}, {devices_text(mesh.devices)})"


def title_of(simulation: Simulation) -> str:
    """Return the first line of a report: function, mesh, time, and the ratio to the lower bound."""
    title = (
        f"@{simulation.name} on {mesh_title(simulation.mesh)}: "
        f"{seconds_text(simulation.time)}, bound {seconds_text(simulation.bound)}"
    )
    ratio = ratio_text(simulation.time, simulation.bound)
    title += f" ({ratio})" if ratio != "-" else ""
    return f"{title}, costed {simulation.model.how(simulation.mesh.machine)}"


# ---------------------------------------------------------------------------------------------
# Rows
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CostRow:
    """A collective, a loop, or the tasks of a pipeline that are alike; or local steps in a row.

    Attributes:
        steps: the steps.
        spans: the time span of each.
        bound: a lower bound of the seconds of each step; 0 for local steps.
    """

    steps: tuple[SimulatedStep, ...]
    spans: tuple[TimeSpan, ...]
    bound: float = 0.0

    @property
    def first(self) -> SimulatedStep:
        """The first step."""
        return self.steps[0]

    @property
    def sent(self) -> StepCost | None:
        """The cost of a collective alone; None for other steps."""
        return self.first.sent

    @property
    def body(self) -> Simulation | None:
        """The program inside of a loop or a task."""
        inside = self.first.loop or self.first.pipelined
        return inside.body if inside else None

    @property
    def name(self) -> str:
        """The kind of the steps, and their number if they are several."""
        kinds, count = {step.kind for step in self.steps}, len(self.steps)
        if len(kinds) > 1:
            return f"{count} local steps"
        return f"{self.first.kind} x{count}" if count > 1 else self.first.kind

    @property
    def alone(self) -> float:
        """The seconds of a step, or of local steps together, that run alone."""
        if self.body:
            start, end = self.spans[0]
            return end - start
        steps = self.steps[:1] if self.sent else self.steps
        return sum(step.task.time for step in steps)

    @property
    def whole(self) -> float:
        """The seconds of all steps of the row together."""
        return self.alone * (len(self.steps) if self.sent or self.body else 1)


def rows_of(simulation: Simulation) -> Iterator[CostRow]:
    """Yield the rows of a function, in program order."""
    timed = zip(simulation.program, simulation.timeline.outer_spans, strict=True)
    alike: dict[tuple[str, str, str], list[tuple[SimulatedStep, TimeSpan]]] = {}
    listed: list[list[tuple[SimulatedStep, TimeSpan]]] = []
    for step, span in timed:
        key = step.result, step.kind, step.at
        if step.of_pipeline and key in alike:
            alike[key].append((step, span))
        elif step.sent or step.loop or step.pipelined or step.task.time:
            listed.append([(step, span)])
            if step.of_pipeline:
                alike[key] = listed[-1]
    for local_on, rows in groupby(listed, lambda row: _local_on(row[0][0])):
        if local_on:
            yield _row([pair for row in rows for pair in row])
            continue
        for row in rows:
            yield _row(row, _bound(simulation, row[0][0]))


def _row(timed: Sequence[tuple[SimulatedStep, TimeSpan]], bound: float = 0.0) -> CostRow:
    return CostRow(tuple(step for step, _ in timed), tuple(span for _, span in timed), bound)


def _local_on(step: SimulatedStep) -> tuple[int, ...]:
    """Return the classes of devices that run a local step; none for another step."""
    return () if step.sent or step.loop or step.pipelined else step.task.on


def _bound(simulation: Simulation, step: SimulatedStep) -> float:
    """Return a lower bound of the seconds of a step.

    For a loop that several classes run, it is the bound of each class by itself.
    """
    if step.loop and len(simulation.places) > 1:
        return least_time(nodes_of([step]), bounds_of([step]))
    return step.bound


# ---------------------------------------------------------------------------------------------
# Text
# ---------------------------------------------------------------------------------------------


def cost_table(simulation: Simulation) -> list[str]:
    """Return the lines of a function's table."""
    rows = list(rows_of(simulation))
    if not rows:
        return [*wrapped(title_of(simulation)), "  no step takes time"]
    levels = [level.name for level in simulation.mesh.machine.levels]
    head = ["step", "over", "algorithm", "bytes/rank", *levels, "time", "share", "busbw", "bound"]
    if simulation.overlaps:
        head.insert(head.index("time"), "start")
    cells = list(_cells(simulation, rows, simulation.time, simulation.overlaps))
    lines = table([*head, ""], cells, left=3)
    notes = [line for note in _notes(simulation.mesh, rows) for line in wrapped(note, 2)]
    return [*wrapped(title_of(simulation)), *(f"  {line}" for line in (*lines, *notes))]


def _notes(mesh: Mesh, rows: Sequence[CostRow]) -> Iterator[str]:
    """Yield a note on each step whose groups hold copies of the same data, which cost time."""
    for number, row in enumerate(rows):
        cost = row.sent
        if cost and cost.shared_bound < 0.99 * cost.bound:
            axes = ", ".join(mesh.short(mesh.ordered(cost.collective.replicated)))
            yield (
                f"step {number + 1}: replicated over {axes}; a program that sends copies only once "
                f"is bounded by {seconds_text(cost.shared_bound)}"
            )


def _cells(
    simulation: Simulation,
    rows: Sequence[CostRow],
    total: float,
    starts: bool,
    times: int = 1,
    prefix: str = "",
) -> Iterator[list[str]]:
    """Yield the cells of rows; the steps of an iteration stand below their loop.

    Args:
        total: the seconds of which the shares are.
        starts: whether there is a column for the start.
        times: how often these steps run.
    """
    for row in rows:
        cost = row.sent
        when = [seconds_text(row.spans[0][0])] if starts else []
        yield [
            f"{prefix}{row.name}",
            row.first.over(simulation.mesh),
            cost.algorithm if cost else "",
            bytes_text(row.first.size) if cost else "",
            *_port_cells(simulation, cost),
            *when,
            seconds_text(row.alone),
            percent_text(times * row.whole, total),
            rate_text(cost.collective.busbw(cost.time)) if cost else "",
            *(
                [seconds_text(row.bound), ratio_text(row.alone, row.bound)]
                if row.bound
                else ["", ""]
            ),
        ]
        if row.body:
            inner = times * (row.first.loop.times if row.first.loop else len(row.steps))
            body = list(rows_of(row.body))
            yield from _cells(row.body, body, total, starts, inner, f"{prefix}- ")


def _port_cells(simulation: Simulation, cost: StepCost | None) -> list[str]:
    """Return the bytes through the busiest port of each level; those of a local step are none."""
    if cost is None:
        return [""] * len(simulation.mesh.machine.levels)
    return [bytes_text(size) if size else "-" for size in cost.port_bytes]


# ---------------------------------------------------------------------------------------------
# JSON
# ---------------------------------------------------------------------------------------------


def heading_json(simulation: Simulation, **figures: int) -> dict[str, Any]:
    """Return the function, its machine, mesh and cost model as plain values.

    ``figures`` of the mesh stand behind its name.
    """
    machine = simulation.mesh.machine
    return {
        "name": simulation.name,
        "machine": machine.name,
        "mesh": simulation.mesh.name,
        **figures,
        "model": simulation.model.on(machine).model,
        "costed": simulation.model.how(machine),
    }


def cost_json(simulation: Simulation) -> dict[str, Any]:
    """Return a function's costs as plain values: seconds and bytes."""
    return {
        **heading_json(simulation),
        "time_s": simulation.time,
        "bound_s": simulation.bound,
        "steps": [_row_json(simulation, row) for row in rows_of(simulation)],
    }


def _row_json(simulation: Simulation, row: CostRow) -> dict[str, Any]:
    cost, levels = row.sent, [level.name for level in simulation.mesh.machine.levels]
    sending: dict[str, Any] = {}
    if cost:
        ports = zip(levels, cost.port_bytes, strict=True)
        sending = {
            "over": list(cost.collective.axes),
            "algorithm": cost.algorithm,
            "bytes": _whole(cost.collective.size),
            "port_bytes": {level: _whole(size) for level, size in ports},
        }
    start, end = row.spans[0][0], row.spans[-1][1]
    kinds = {step.kind for step in row.steps}
    loop = row.first.loop
    return {
        "op": RepeatOp.WORD if loop else kinds.pop() if len(kinds) == 1 else "local steps",
        **({"times": loop.times} if loop else {}),
        **({"count": len(row.steps)} if len(row.steps) > 1 else {}),
        **sending,
        **({"start_s": start, "end_s": end} if simulation.overlaps else {}),
        "time_s": row.alone,
        **({"bound_s": row.bound} if not _local_on(row.first) else {}),
        **({"iteration": cost_json(row.body)} if row.body else {}),
    }


def _whole(size: float) -> float:
    """Return a size without a fraction as an integer."""
    return int(size) if size == int(size) else size
