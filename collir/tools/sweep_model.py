"""A training step that is swept: its configurations compiled, simulated and estimated."""

import math
import signal
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import chain, groupby
from multiprocessing import Pool

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from collir.cost.model import CostModel
from collir.cost.programs.exposed import Spent, spent
from collir.cost.programs.local_steps import LocalStep
from collir.cost.programs.simulate import simulate
from collir.cost.programs.simulation import SimulatedStep, Simulation, TaskStep
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import functions_of
from collir.ir.parameters import parameters_of
from collir.ir.remarks import listening
from collir.ir.retyping import fix_parameters
from collir.ir.selection import erase_other_functions
from collir.machine import Machine
from collir.synthesis.searching import session
from collir.synthesis.sweeping.axes import ADDED, divide_arguments
from collir.synthesis.sweeping.configuration import PREFETCHED, SUMMED, Configuration
from collir.synthesis.sweeping.dividing import Division
from collir.synthesis.sweeping.estimates import Estimator, ProgramKind, Rows
from collir.synthesis.sweeping.ingredients import (
    LAYERS,
    STAGES,
    Costs,
    Ingredients,
    ingredients_of,
)
from collir.synthesis.sweeping.programs import program_of
from collir.synthesis.sweeping.steps import TrainingStep
from collir.tools.api import context, emit, parse, pass_pipeline
from collir.tools.functions import for_report
from collir.tools.sweep_cache import keep, key_of, read
from collir.transforms.instantiation import instantiate

Given = tuple[str, str, str, tuple[tuple[str, int], ...], str, Division | None, tuple[str, ...]]
"""The arguments of ``step_of``: the attributes of a model without its machine."""


@dataclass(frozen=True)
class Model:
    """The subject of a sweep, as text, so that workers of a search can be given it.

    Attributes:
        path, text: the file of the program.
        function: the name of the training step; empty: the only one.
        sizes: values of its parameters.
        machine: the machine.
        pipeline: the name of the axis of stages.
        division: what an axis divides that no type of the file names.
        added: axes of copies or of words that no type of the file names.
        causal: whether products that kernels skip, as they are masked, do not count as a part of
            the model.
    """

    path: str
    text: str
    function: str
    sizes: tuple[tuple[str, int], ...]
    machine: Machine
    pipeline: str
    division: Division | None = None
    added: tuple[str, ...] = ()
    causal: bool = False

    @property
    def step(self) -> TrainingStep:
        """The training step."""
        return step_of(*self._given)

    @property
    def _given(self) -> Given:
        """The arguments that its training step is made of."""
        path, text, function = self.path, self.text, self.function
        return path, text, function, self.sizes, self.pipeline, self.division, self.added

    def program(self, configuration: Configuration) -> ModuleOp:
        """Return the program of a configuration, before its passes."""
        return self._program(self.machine, configuration)

    def _program(self, machine: Machine, configuration: Configuration) -> ModuleOp:
        step = self.step
        return program_of(
            step.module, step.function, machine, configuration, step.batch, step.shards
        )

    def simulated(self, configuration: Configuration, passes: str = "") -> Simulation:
        """Return the simulation of a configuration, behind its passes or others.

        Raises:
            DiagnosticError: it has no program.
        """
        return self._simulated(self.compiled(configuration, passes))

    def compiled(self, configuration: Configuration, passes: str = "") -> ModuleOp:
        """Return the program of a configuration, behind its passes or others.

        Raises:
            DiagnosticError: it has no program.
        """
        return _passed(self.program(configuration), passes or configuration.passes)

    def _simulated(self, module: ModuleOp) -> Simulation:
        [simulation] = simulate(for_report(module, [self.step.function]), CostModel())
        return simulation

    def estimator(self, workers: int, executor: Executor | None = None) -> Estimator:
        """Return the estimator of its configurations, which uses so many processes, or an
        executor."""
        step = self.step

        def costs(asked: Sequence[tuple[ProgramKind, Rows]]) -> Iterator[Costs | str]:
            groups = [[*group] for _, group in groupby(asked, lambda each: each[0].unstaged)]
            if executor is not None:
                yield from chain.from_iterable(executor.map(self.costs, groups))
                return
            if workers == 1 or len(groups) < 2:
                yield from chain.from_iterable(map(self.costs, groups))
                return
            with Pool(workers, ignore_interrupts) as pool:  # which ends them, also on Ctrl-C
                yield from chain.from_iterable(pool.imap(self.costs, groups))

        return Estimator(self.machine, step.parameters[step.layers], step.data[0], costs)

    def costs(self, asked: Sequence[tuple[ProgramKind, Rows]]) -> list[Costs | str]:
        """Return the costs of the programs of kinds, for values of the batch and of axes, or why
        there are none.

        The kinds differ in stages alone.
        """
        step = self.step
        machine, small = step.small(self.machine, asked[0][0])
        text = _text_of(*self._given)

        @cache
        def program() -> ModuleOp | str:
            try:  # its layers are a parameter
                module = _passed(self._program(machine, small), small.cut)
            except DiagnosticError as error:
                return _reason(error)
            erase_other_functions(module, [step.function])  # its calls are steps now
            return module

        def costs(kind: ProgramKind, rows: Rows) -> Costs | str:
            key = key_of(text, step.batch, step.function, machine, kind, step.pipeline)
            if (two := read(key)) is None:
                module = program()
                if isinstance(module, str):
                    return module
                try:
                    two = [*self._ingredients(module, kind)]
                except DiagnosticError as error:
                    return _reason(error)
                if len({len(made.formulas) for made in two}) > 1:
                    return "no estimate: another layer has other steps"
                keep(key, two)
            return self._costs(two, kind, rows)

        return [costs(kind, rows) for kind, rows in asked]

    def _costs(self, two: Sequence[Ingredients], kind: ProgramKind, rows: Rows) -> Costs:
        columns = np.array([(STAGES, *row) for row in rows], dtype=float).T
        names = [self.step.pipeline, self.step.batch, self.step.data[0], *kind.wide]
        given = dict(zip(names, columns, strict=True))
        values, whole = zip(*(made.values(given) for made in two), strict=True)
        for made in two:  # workers return numbers alone
            made.formulas.clear()
            made.quotients.clear()
        both = [a and b for a, b in zip(*whole, strict=True)]
        return Costs(two, values, both)

    def _ingredients(self, program: ModuleOp, kind: ProgramKind) -> Iterator[Ingredients]:
        """Yield the parts of the two programs of a kind, which one without stages becomes."""
        step = self.step
        stages = STAGES if kind.staged else 1
        schedule = "zb-h1" if kind.splits else "1f1b"
        made: Ingredients | None = None
        for layers in LAYERS:
            module = program.clone()
            instantiate(module, {step.layers: layers * stages}, step.function)
            if kind.staged:
                module = _passed(module, f"pipeline{{axis={step.pipeline} schedule={schedule}}}")
            elif not kind.once:
                module = _passed(module, SUMMED)
            module = for_report(module, [step.function])
            for function in functions_of(module):
                others = [name for name in parameters_of(function) if name != step.batch]
                fix_parameters(function, others)
            ahead = step.shards if kind.zero >= PREFETCHED else ()
            made = ingredients_of(module, step.function, kind.once, ahead, made)
            yield made

    @cached_property
    def least_seconds(self) -> float:
        """The seconds in which one device runs the products of a step on the whole batch at its
        full rate, without recomputed products; 0 if a rate is not known.

        Those of kernels count three times, as their gradient has twice as many, and in full, also
        where they are masked: 6 N + 12 L h s operations for each word (Chowdhery 2022, PaLM,
        appendix B); 6 N + 6 L h s or so if masked ones do not count.
        """
        step = self.step
        machine, small = step.small(self.machine, ProgramKind((), False, 0))
        simulation = self._simulated(_passed(self._program(machine, small), small.cut))
        rates = dict(machine.device.compute) if machine.device else {}
        steps = [
            (simulated.does, count)
            for simulated, count in _runs(simulation.program)
            if isinstance(simulated.does, LocalStep)
        ]
        work = [
            (dtype, count * amount)
            for does, count in steps
            if does.product
            for dtype, amount in does.work
        ]
        work += [
            (dtype, 3 * count * n)
            for does, count in steps
            if does.counted
            for dtype, n, *_ in (does.inner if self.causal else does.counted)
        ]
        if not all(rates.get(dtype) for dtype, _ in work):
            return 0.0
        scale = step.parameters[step.batch] * small.degrees[step.data[0]] / small.batch
        return scale * math.fsum(amount / rates[dtype] for dtype, amount in work)


def _reason(error: DiagnosticError) -> str:
    """Return why configurations have no estimate."""
    return f"no estimate: {error.diagnostics[0].message}"


def ignore_interrupts() -> None:
    """Leave Ctrl-C to the process that has the workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _passed(module: ModuleOp, passes: str) -> ModuleOp:
    """Return a module after passes, whose remarks are dropped."""
    with listening(lambda _: None), session():
        for each in pass_pipeline(passes).passes:
            each.apply(context(), module)
    return module


@lru_cache(maxsize=16)
def _text_of(*given: *Given) -> str:
    """Return the text of the module of a training step, with all that it is read from."""
    return emit(step_of(*given).module)


@lru_cache(maxsize=16)
def step_of(
    path: str,
    text: str,
    function: str,
    sizes: tuple[tuple[str, int], ...],
    pipeline: str,
    division: Division | None = None,
    added: tuple[str, ...] = (),
) -> TrainingStep:
    """Return the training step of a file with other values of its parameters.

    Raises:
        DiagnosticError: see ``collir.parse``, ``TrainingStep.of`` and ``collir.instantiate``.
    """
    module = parse(text, path)
    step = TrainingStep.of(module, function, pipeline)
    if sizes:
        instantiate(module, dict(sizes), step.function)
    if division and not division.reason:
        divide_arguments(step, division.axis, division.pairs)
    for axis in added:
        ADDED[axis](TrainingStep.of(module, function, pipeline))
    return TrainingStep.of(module, function, pipeline)


def busiest(simulation: Simulation) -> Spent:
    """Return how a device of the stage that computes longest spends its time."""
    places = range(len(simulation.places))
    return max((spent(simulation, place) for place in places), key=lambda each: each.compute)


def bound_of_time(found: Spent) -> str:
    """Return what a device does most of the time."""
    names = {"compute": found.compute, "communication": found.exposed, "bubble": found.idle}
    return max(names, key=names.__getitem__)


def _runs(steps: Iterable[SimulatedStep], count: int = 1) -> Iterator[tuple[SimulatedStep, int]]:
    """Yield steps, and those of loops and tasks, each with how often it runs."""
    tasks: dict[int, tuple[TaskStep, int]] = {}  # with the number of their microbatches
    for step in steps:
        if step.loop is not None:
            yield from _runs(step.loop.body.program, count * int(step.loop.times))
        elif (task := step.pipelined) is not None:
            tasks[id(task)] = task, tasks.get(id(task), (task, 0))[1] + 1
        else:
            yield step, count
    for task, runs in tasks.values():
        yield from _runs(task.body.program, count * runs)
