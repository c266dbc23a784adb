"""The savings of passes: the cost of every function before the first pass and after each."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.passes import ModulePass

from collir.cost.model import CostModel
from collir.cost.programs.simulate import simulate_function
from collir.cost.programs.simulation import Simulation
from collir.dialects.machine import meshes_remembered
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import check_programs, functions_of
from collir.targets.reports.cost import mesh_title
from collir.targets.reports.text import bytes_text, ratio_text, seconds_text, table
from collir.transforms.as_run import as_run

WRITTEN = "no pass"
"""The name of the stage before the first pass."""


@dataclass(frozen=True)
class FunctionAt:
    """The cost of a function at a stage, by simulation.

    Attributes:
        where: the mesh, machine and number of devices, and the cost model, as a report says it.
        time: time in seconds.
        outermost: bytes of all collectives through the busiest port of the outermost level with
            several children.
        level: the name of that outermost level.
        peak: the largest number of bytes that a device holds at any time.
        collectives: the number of collectives.
    """

    where: str
    time: float
    outermost: float
    level: str
    peak: float
    collectives: int

    @staticmethod
    def of(simulation: Simulation) -> "FunctionAt":
        """Return the figures of a simulation."""
        mesh, machine = simulation.mesh, simulation.mesh.machine
        level = next((i for i, x in enumerate(machine.levels) if x.size > 1), 0)
        sent = [*simulation.all_collectives()]
        return FunctionAt(
            f"{mesh_title(mesh)}, costed {simulation.model.how(machine)}",
            simulation.time,
            sum(times * step.port_bytes[level] for step, times in sent),
            machine.levels[level].name,
            simulation.peak,
            sum(times for _, times in sent),
        )


Figure = FunctionAt | str
"""The cost of a function, or the reason why it has none."""


@dataclass(frozen=True)
class CostsAfterPass:
    """The costs of all functions by name, after a pass or before the first pass."""

    done: str
    functions: dict[str, Figure]


@dataclass(repr=False)
class PassCosts:
    """The costs of functions before the first pass and after each, under a model."""

    model: CostModel = field(default_factory=CostModel)
    stages: list[CostsAfterPass] = field(default_factory=list[CostsAfterPass])

    def __repr__(self) -> str:
        names = ", ".join(name for name, _, _ in self.saved)
        saved = sum(seconds for _, seconds, _ in self.saved)
        return f"<PassCosts of {names or WRITTEN}: {_signed(saved)} saved>"

    def measure(self, done: str, module: ModuleOp, names: Collection[str]) -> None:
        """Record the costs of some functions of a module after the pass named ``done``."""
        functions = [f for f in functions_of(as_run(module)) if f.sym_name.data in names]
        with meshes_remembered():
            figures = {function.sym_name.data: self._figure(function) for function in functions}
        self.stages.append(CostsAfterPass(done, figures))

    def _figure(self, function: FuncOp) -> Figure:
        try:
            check_programs([function], "cannot be simulated", nested=True)
            return FunctionAt.of(simulate_function(function, self.model))
        except DiagnosticError as error:
            return error.diagnostics[0].message

    @property
    def saved(self) -> list[tuple[str, float, float]]:
        """For each pass its name, the seconds that it saved, and the seconds before the pass.

        Both are sums over the functions that have a cost before and after the pass.
        """
        savings: list[tuple[str, float, float]] = []
        for before, after in pairwise(self.stages):
            both = _times(before, after)
            spent = sum(time for time, _ in both)
            savings.append((after.done, spent - sum(time for _, time in both), spent))
        return savings

    @property
    def text(self) -> str:
        """A table for each function, and the savings of each pass over all functions."""
        names = dict.fromkeys(name for stage in self.stages for name in stage.functions)
        parts = [self._function(name) for name in names]
        if any(_times(before, after) for before, after in pairwise(self.stages)):
            parts.append(self._summary())
        return "\n".join("\n".join(lines) + "\n" for lines in parts)

    def _function(self, name: str) -> list[str]:
        figures = [(s.done, s.functions[name]) for s in self.stages if name in s.functions]
        known = [figure for _, figure in figures if isinstance(figure, FunctionAt)]
        place = f" on {known[-1].where}" if known else ""
        level = known[-1].level if known else "the outermost level"
        head = ["after", "time", "change", f"through {level}", "memory", "collectives"]
        rows: list[list[str]] = []
        before: float | None = None
        for done, figure in figures:
            if isinstance(figure, str):
                before = None
                continue
            change = "" if before is None else change_text(before, figure.time)
            sizes = [bytes_text(figure.outermost), bytes_text(figure.peak)]
            rows.append([done, seconds_text(figure.time), change, *sizes, str(figure.collectives)])
            before = figure.time
        title = f"@{name}{place}:"
        lines = [title, *(f"  {line}" for line in (table(head, rows, left=1) if rows else ()))]
        return [*lines, *(f"  {line}" for line in _reasons(figures))]

    def _summary(self) -> list[str]:
        rows = [
            [name, _signed(saved), change_text(spent, spent - saved)]
            for name, saved, spent in self.saved
            if spent
        ]
        lines = table(["pass", "saved", "change"], rows, left=1)
        if not (both := _times(self.stages[0], self.stages[-1])):
            return lines
        before, after = (sum(times) for times in zip(*both, strict=True))
        total = f"all passes: {seconds_text(before)} before, {seconds_text(after)} after"
        return [*lines, f"{total} ({ratio_text(before, after)})" if after else total]


def _times(before: CostsAfterPass, after: CostsAfterPass) -> list[tuple[float, float]]:
    """Return the times at two stages of the functions that have a time at both."""
    return [
        (first.time, second.time)
        for name, first in before.functions.items()
        if isinstance(first, FunctionAt)
        and isinstance(second := after.functions.get(name), FunctionAt)
    ]


def change_text(before: float, after: float) -> str:
    """Return a change of seconds such as ``-12.3%``; ``=`` if only the last digits differ."""
    if not before or abs(after - before) < 1e-9 * before:
        return "="
    return f"{100 * (after - before) / before:+.1f}%"


def _signed(seconds: float) -> str:
    if abs(seconds) < 5e-13:
        return "0"
    return seconds_text(seconds) if seconds > 0 else f"-{seconds_text(-seconds)}"


def _reasons(figures: Sequence[tuple[str, Figure]]) -> list[str]:
    """Return the reasons for missing costs, each with its stages."""
    stages: dict[str, list[str]] = {}
    for done, figure in figures:
        if isinstance(figure, str):
            stages.setdefault(figure, []).append(done)
    return [f"no cost {_when(done)}: {reason}" for reason, done in stages.items()]


def _when(stages: Sequence[str]) -> str:
    """Return the words for stages: as written, and after passes."""
    passes = ", ".join(stage for stage in stages if stage != WRITTEN)
    words = ["as written"] * (WRITTEN in stages) + [f"after {passes}"] * bool(passes)
    return " and ".join(words)


def model_of(passes: Iterable[ModulePass]) -> CostModel:
    """Return the cost model of the passes, or the default if they have several, or none."""
    models = {
        CostModel(module_pass.model, module_pass.algorithm, module_pass.order)  # pyright: ignore
        for module_pass in passes
        if all(hasattr(module_pass, name) for name in ("model", "algorithm", "order"))
    }
    return models.pop() if len(models) == 1 else CostModel()
