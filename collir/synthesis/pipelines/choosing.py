"""The best way to cut a step into stages and to schedule it, by the price of the simulator.

The chunks may be at places in several ways, with gradients of weights apart or not. For each way,
the named schedules, lists by priority, and the best schedule without contention are simulated, and
the fastest of all that fits into memory is taken. Then schedules are made for the delays of sends
that its simulation shows.

The bound ignores contention, which only makes schedules slower: tasks and sends take at least as
long as alone, and all sends between two places share a stream.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import monotonic

from xdsl.dialects.builtin import StringAttr
from xdsl.dialects.func import FuncOp

from collir.cost.model import CostModel
from collir.cost.programs.simulate import TaskSimulations, simulate_function
from collir.cost.programs.simulation import Simulation
from collir.dialects.machine import meshes_remembered, module_of
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.ir.functions import functions_of
from collir.ir.pipelines import pipelines_in
from collir.ir.remarks import listening
from collir.layout.pipelines.rules import RULES
from collir.layout.pipelines.schedule import Schedule
from collir.layout.pipelines.text import schedule_text
from collir.synthesis.pipelines.candidates import PRIORITIES, priority_schedule, rule_schedule
from collir.synthesis.pipelines.improve import improved_schedule
from collir.synthesis.pipelines.measured import (
    decompose_placeholders,
    delays_of,
    links_bound,
    outside_of,
    shortage,
    work_of,
)
from collir.synthesis.pipelines.optimal import NoScheduleError, best_schedule
from collir.synthesis.pipelines.problem import SLACK, SchedulingProblem
from collir.synthesis.searching import TIME, gap_of
from collir.transforms.as_run import as_run
from collir.transforms.stages.outlining import PipelineAxis
from collir.transforms.stages.staged import StagePlan, stage

_ROUNDS = 4
"""How often schedules are made for the delays of sends in the best simulation, at most."""

_TRIALS = 200
"""The number of exchanges that are tried for such delays, in each round of exchanges."""


@dataclass(frozen=True)
class PlanChoice:
    """A plan with the fastest schedule that was found.

    Attributes:
        plan: how the step is cut, with the schedule.
        origin: the rule of the schedule; "" if a search found it.
        time: the seconds of the function in a simulation.
        bound: no schedule takes less, in seconds.
        ended: why a search ended early; "" if none did.
        is_limited: whether memory has no room for the activations of all microbatches.
        remarks: what is to be said about the plan.
    """

    plan: StagePlan
    origin: str
    time: float
    bound: float
    ended: str
    is_limited: bool
    remarks: Sequence[Diagnostic] = ()

    @property
    def proven(self) -> bool:
        """True if no schedule is faster."""
        return self.bound >= self.time * (1 - 2 * SLACK)

    @property
    def gap(self) -> float:
        """The largest relative saving of another schedule."""
        return 0.0 if self.proven else gap_of(self.time, self.bound) or 0.0


def best_choice(
    function: FuncOp,
    axis: PipelineAxis,
    plans: Sequence[StagePlan],
    model: CostModel,
    seconds: float | None = None,
    laid_out: Callable[[StagePlan], StagePlan] = lambda plan: plan,
) -> PlanChoice:
    """Return the plan and the schedule with which the simulation of a function is fastest.

    Args:
        plans: ways to cut the step, each with a schedule that suits it; the most usual one first.
        seconds: limit for all searches; the named schedules are simulated in any case.
        laid_out: a function that gives a plan the layers of its chunks.

    Raises:
        DiagnosticError: the step cannot be cut, or no schedule fits into memory.
    """
    until = math.inf if seconds is None else monotonic() + seconds
    trials: list[_Trials] = []
    errors: list[DiagnosticError] = []
    for plan in plans:
        try:
            trials.append(_Trials(function, axis, plan, model, laid_out))
        except DiagnosticError as error:
            errors.append(error)
    if not trials:
        raise errors[0]
    ended = ""
    for trial in trials:
        ended = ended if trial.simulate_lists(until) else TIME
    for number, trial in enumerate(sorted(trials, key=lambda trial: trial.bound)):
        share = (until - monotonic()) / (len(trials) - number)
        ended = trial.search(_least(trials), max(0.0, share)) or ended
    finite = [trial for trial in trials if trial.time < math.inf]
    if not finite:
        raise trials[0].no_schedule()
    best = min(finite, key=lambda trial: trial.time)
    best.improve(until)
    bound = min(best.time, *(trial.bound for trial in trials))
    limited = any(trial.is_limited for trial in trials)
    return PlanChoice(best.chosen, best.origin, best.time, bound, ended, limited, best.remarks)


def _least(trials: Sequence["_Trials"]) -> float:
    return min(trial.time for trial in trials)


class _Trials:
    """Simulated schedules of a function that is cut in one way.

    Attributes:
        plan: the way.
        time: the seconds of the fastest schedule that fits; infinite without one.
        origin: the rule that this is from; "" for another.
        bound: no schedule takes less, in seconds.
        remarks: what is to be said about the layers of the plan.
    """

    def __init__(
        self,
        function: FuncOp,
        axis: PipelineAxis,
        plan: StagePlan,
        model: CostModel,
        laid_out: Callable[[StagePlan], StagePlan],
    ):
        self.remarks: list[Diagnostic] = []
        with listening(self.remarks.append):
            self.plan = laid_out(plan)
        self.model, self.known = model, TaskSimulations()
        name = function.sym_name.data
        copy = module_of(function).clone()
        with meshes_remembered():
            [own] = [f for f in functions_of(copy) if f.sym_name.data == name]
            _ = stage(own, axis, self.plan)
        with meshes_remembered():
            decompose_placeholders(copy, model)
            ready = as_run(copy)
            [self.function] = [f for f in functions_of(ready) if f.sym_name.data == name]
            [self.loop] = pipelines_in(self.function)
            first = self._simulation(self.plan.schedule)
            self.work = work_of(self.loop, first)
        self.outside = outside_of(first)
        root = SchedulingProblem(self.work).root().bound
        least = max(links_bound(self.work, first), root if root < math.inf else 0.0)
        self.bound = max([self.outside + least, *first.busy.values()])
        self.time, self.origin, self.none_fits = math.inf, "", False
        self.best = self.simulation = None
        self.seen: set[Schedule] = set()

    @property
    def chosen(self) -> StagePlan:
        """The plan with the fastest schedule."""
        assert self.best is not None
        return replace(self.plan, schedule=self.origin or schedule_text(self.best))

    @property
    def is_limited(self) -> bool:
        """True if memory has no room for the activations of all microbatches."""
        work = self.work
        kept = [0.0] * work.places
        for (kind, chunk), place in work.graph.places.items():
            kept[place] += max(work.kept[chunk]) * work.microbatches if kind == "F" else 0.0
        return any(all_kept > limit for all_kept, limit in zip(kept, work.limits, strict=True))

    def _simulation(self, schedule: str) -> Simulation:
        self.loop.properties["schedule"] = StringAttr(schedule)
        return simulate_function(self.function, self.model, self.known)

    def _simulate(self, schedule: Schedule | None, origin: str = "") -> None:
        """Simulate a schedule, and keep it if it fits and is the fastest."""
        if schedule is None or schedule in self.seen:
            return
        self.seen.add(schedule)
        with meshes_remembered():
            simulation = self._simulation(origin or schedule_text(schedule))
        if simulation.time < self.time * (1 - SLACK) and _fits(simulation):
            self.time, self.origin = simulation.time, origin
            self.best, self.simulation = schedule, simulation

    def simulate_lists(self, until: float) -> bool:
        """Simulate the named schedules, and lists by priority; return whether there was time."""
        for rule in RULES.values():
            self._simulate(rule_schedule(self.work, rule), rule.name)
        for priority in PRIORITIES.values():
            if monotonic() > until:
                return False
            self._simulate(priority_schedule(self.work, priority))
        return True

    def search(self, known: float, seconds: float) -> str:
        """Simulate the best schedule without contention, unless none is faster than a known one;
        return why its search ended early, or ""."""
        if self.bound >= known * (1 - SLACK):
            return ""
        try:
            schedule = best_schedule(self.work, None if seconds == math.inf else seconds)
        except NoScheduleError as error:
            self.none_fits = error.proven and self.time == math.inf
            self.bound = math.inf if self.none_fits else self.bound
            return "" if error.proven else TIME
        self._simulate(schedule.schedule, schedule.origin if schedule.origin in RULES else "")
        self.bound = max(self.bound, self.outside + schedule.bound)
        return schedule.reason

    def improve(self, until: float) -> None:
        """Look for schedules that are faster with the delays of sends in the best simulation."""
        for _ in range(_ROUNDS):
            assert self.best is not None and self.simulation is not None
            delays, before = delays_of(self.work.graph, self.simulation), self.time
            left = until - monotonic()
            if not delays or left <= 0 or self.bound >= before * (1 - SLACK):
                return
            work = replace(self.work, sends=delays)
            for priority in PRIORITIES.values():
                self._simulate(priority_schedule(work, priority))
            self._simulate(improved_schedule(work, self.best, _TRIALS, seconds=left)[0])
            if self.time >= before:
                return

    def no_schedule(self) -> DiagnosticError:
        """Return the error that no schedule fits into memory."""
        error = NoScheduleError(self.none_fits)
        return DiagnosticError.at(self.loop, f"{error}{shortage(self.work)}")


def _fits(simulation: Simulation) -> bool:
    """Return whether all devices have the memory that they need."""
    for kinds, peak in zip(simulation.kinds, simulation.peaks, strict=True):
        device = simulation.mesh.machine.slowest_of(kinds)
        if device is not None and device.memory is not None and peak > device.memory:
            return False
    return True
