"""What passes save: the cost of every function before the first pass and after each."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.passes import ModulePass

from collir.cost.model import CostModel
from collir.cost.programs.simulation import Simulation, simulate_function
from collir.dialects.machine import meshes_remembered
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import check_programs, functions_of
from collir.targets.reports.cost import mesh_title
from collir.targets.reports.text import bytes_text, ratio_text, seconds_text, table

WRITTEN = "no pass"
"""The name of the stage before the first pass."""


@dataclass(frozen=True)
class FunctionAt:
    """What a function costs at one stage, by simulation.

    Attributes:
        where: its mesh, machine and number of devices, and how it is costed, as a report says it.
        time: seconds.
        outermost: bytes through the busiest port of the outermost level with several children, of
            all its collectives together.
        level: the name of that level.
        peak: the most bytes that a device holds at any time.
        collectives: how many it has.
    """

    where: str
    time: float
    outermost: float
    level: str
    peak: float
    collectives: int

    @staticmethod
    def of(found: Simulation) -> "FunctionAt":
        """The figures of a simulation."""
        mesh, machine = found.mesh, found.mesh.machine
        level = next((i for i, one in enumerate(machine.levels) if one.size > 1), 0)
        sent = [step.sent for step in found.steps if step.sent]
        return FunctionAt(
            f"{mesh_title(mesh)}, costed {found.model.how(machine)}",
            found.time,
            sum(step.port_bytes[level] for step in sent),
            machine.levels[level].name,
            found.peak,
            len(sent),
        )


Figure = FunctionAt | str
"""What a function costs, or why that cannot be said."""


@dataclass(frozen=True)
class Stage:
    """All functions after a pass (or before the first one), by name."""

    done: str
    functions: dict[str, Figure]


@dataclass
class PassCosts:
    """What functions cost before the first pass and after each, under a model."""

    model: CostModel = field(default_factory=CostModel)
    stages: list[Stage] = field(default_factory=list[Stage])

    def measure(self, done: str, module: ModuleOp) -> None:
        """Costs a module, behind a pass of this name."""
        with meshes_remembered():
            found = {f.sym_name.data: self._figure(f) for f in functions_of(module)}
        self.stages.append(Stage(done, found))

    def _figure(self, function: FuncOp) -> Figure:
        try:
            check_programs([function], "cannot be simulated")
            return FunctionAt.of(simulate_function(function, self.model))
        except DiagnosticError as error:
            return error.diagnostics[0].message

    @property
    def saved(self) -> list[tuple[str, float, float]]:
        """For every pass its name, the seconds that it saved, and those that there were before it.

        Both are sums over the functions that have a cost before and behind it.
        """
        found: list[tuple[str, float, float]] = []
        for before, after in pairwise(self.stages):
            both = _times(before, after)
            spent = sum(time for time, _ in both)
            found.append((after.done, spent - sum(time for _, time in both), spent))
        return found

    @property
    def text(self) -> str:
        """A table for each function, and what each pass saved of all of them together."""
        names = dict.fromkeys(name for stage in self.stages for name in stage.functions)
        parts = [self._function(name) for name in names]
        if any(_times(before, after) for before, after in pairwise(self.stages)):
            parts.append(self._summary())
        return "\n".join("\n".join(lines) + "\n" for lines in parts)

    def _function(self, name: str) -> list[str]:
        figures = [(s.done, s.functions[name]) for s in self.stages if name in s.functions]
        known = [one for _, one in figures if isinstance(one, FunctionAt)]
        where = f" on {known[-1].where}" if known else ""
        level = known[-1].level if known else "the outermost level"
        head = ["after", "time", "change", f"through {level}", "memory", "collectives"]
        rows: list[list[str]] = []
        before: float | None = None
        for done, figure in figures:
            if isinstance(figure, str):
                rows.append([done, *["-"] * 5])
                before = None
                continue
            change = "" if before is None else _change(before, figure.time)
            sizes = [bytes_text(figure.outermost), bytes_text(figure.peak)]
            rows.append([done, seconds_text(figure.time), change, *sizes, str(figure.collectives)])
            before = figure.time
        title = f"@{name}{where}:"
        lines = [title, *(f"  {line}" for line in table(head, rows, left=1))]
        return [*lines, *(f"  {line}" for line in _reasons(figures))]

    def _summary(self) -> list[str]:
        rows = [
            [name, _signed(saved), _change(spent, spent - saved)] if spent else [name, "-", ""]
            for name, saved, spent in self.saved
        ]
        lines = table(["pass", "saved", "change"], rows, left=1)
        if not (both := _times(self.stages[0], self.stages[-1])):
            return lines
        before, after = (sum(each) for each in zip(*both, strict=True))
        total = f"all passes: {seconds_text(before)} before, {seconds_text(after)} after"
        return [*lines, f"{total} ({ratio_text(before, after)})" if after else total]


def _times(before: Stage, after: Stage) -> list[tuple[float, float]]:
    """The times at two stages of the functions that have one at both."""
    return [
        (first.time, second.time)
        for name, first in before.functions.items()
        if isinstance(first, FunctionAt)
        and isinstance(second := after.functions.get(name), FunctionAt)
    ]


def _change(before: float, after: float) -> str:
    """Such as ``-12.3%``; ``=`` where nothing has changed but the last digits."""
    if not before or abs(after - before) < 1e-9 * before:
        return "="
    return f"{100 * (after - before) / before:+.1f}%"


def _signed(seconds: float) -> str:
    if abs(seconds) < 5e-13:
        return "0"
    return seconds_text(seconds) if seconds > 0 else f"-{seconds_text(-seconds)}"


def _reasons(figures: Sequence[tuple[str, Figure]]) -> list[str]:
    """Why there is no cost, and at which stages."""
    stages: dict[str, list[str]] = {}
    for done, figure in figures:
        if isinstance(figure, str):
            stages.setdefault(figure, []).append(done)
    return [f"no cost after {', '.join(done)}: {reason}" for reason, done in stages.items()]


def model_of(passes: Iterable[ModulePass]) -> CostModel:
    """The model that passes are told to cost by; the default if they are told several, or none."""
    told = {
        CostModel(one.model, one.algorithm, one.order)  # pyright: ignore
        for one in passes
        if all(hasattr(one, name) for name in ("model", "algorithm", "order"))
    }
    return told.pop() if len(told) == 1 else CostModel()
