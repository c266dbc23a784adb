"""The parts of configurations of one kind, which bound the time of tasks and of steps around them.

Configurations are of one kind if their programs have the same steps: the same axes are larger than
1, and they agree on what is computed again and divided. The steps of a kind come from a small
program with few stages and layers, each axis at a level of its own. Their bytes and operations are
formulas of the batch and of the sizes of axes, linear in the number of layers. So two such programs
give the cost of all configurations of the kind: `estimates` puts them together.

Steps will be put into another order, so that collectives run beside computations. Three times,
which no order changes, bound the time of steps between two loops: the device's own, the time of the
collectives on each stream, and the time of steps that wait for each other.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain as chained
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import sympy
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

from collir.cost.collectives.collective import Route
from collir.cost.formulas.compiled import compiled
from collir.cost.formulas.constants import constants_of
from collir.cost.formulas.functions import Array, Expr, expression, expression_of, symbol
from collir.cost.formulas.memory import bytes_at, largest, peak_bytes, totals
from collir.cost.formulas.opening import Opened, opened_functions
from collir.cost.formulas.sent import packing_seconds
from collir.cost.formulas.times import local_seconds
from collir.cost.model import CostModel
from collir.cost.programs.local_steps import LocalStep
from collir.cost.programs.memory import Buffer
from collir.cost.programs.simulation import SimulatedStep, Simulation
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.layout import Mesh
from collir.layout.coll import STEPS

LAYERS = 2, 4
"""The layers of a stage in the two programs of a kind."""

AXIS = 2
"""The size of the axes in the programs of a kind."""

MICROBATCHES = 8
"""The microbatches in the programs of a kind."""

STAGES = 3
"""The stages in the programs of a kind with stages: the first, one between, and the last."""

Mask = NDArray[np.bool_]

_WEIGHTS = 1.0, 16.0
"""How much longer collectives may take in a configuration than in the program of its kind."""


@dataclass(frozen=True)
class PartCollective:
    """A collective in a part of a program.

    Attributes:
        kind: its name.
        axes: the names of the axes that it is over.
        at_root, replicated: the names of axes, as of ``Collective``.
        size: the number of the formula of its bytes.
        copies: the number of the formula of the seconds in which its blocks are packed.
        route: the stages that a send is from and to; None for others.
    """

    kind: str
    axes: tuple[str, ...]
    at_root: frozenset[str]
    replicated: frozenset[str]
    size: int
    copies: int
    route: Route | None = None


@dataclass(frozen=True)
class Path:
    """Steps that follow each other in any order of the program: collectives that need one another,
    with the work of a device before, between and behind them.

    Attributes:
        local: the number of the formula of the seconds of the steps that send nothing.
        sent: the numbers of its collectives in their run.
    """

    local: int
    sent: tuple[int, ...]


@dataclass(frozen=True)
class StepRun:
    """Steps between two loops.

    Attributes:
        local: the number of the formula of the seconds in which they send nothing.
        sent: their collectives, in order.
        paths: paths through them.
    """

    local: int
    sent: tuple[PartCollective, ...]
    paths: tuple[Path, ...]


@dataclass(frozen=True)
class PartLoop:
    """A loop in a part of a program."""

    times: int
    body: "ProgramPart"


@dataclass(frozen=True)
class ProgramPart:
    """A part of a program: a task, or the steps in front of a loop or behind it."""

    items: tuple[StepRun | PartLoop, ...] = ()


@dataclass(frozen=True)
class PlaceMemory:
    """The memory of a place, as numbers of formulas.

    Attributes:
        throughout: the bytes held while the loop over microbatches runs, for the whole batch.
        kept: the bytes of one microbatch from its forward task to its backward task.
        inside: the bytes that a backward task needs besides, or any step of a program without
            stages.
        others: the most bytes held while steps around the loop run, for the whole batch.
    """

    throughout: int
    kept: int
    inside: int
    others: int


@dataclass
class Ingredients:
    """The parts of a program of one kind.

    Attributes:
        tasks: for each name of a task, as ``F0``, its part; of a program without stages the part of
            one microbatch, ``step``.
        before, after: for each place, the steps in front of the loop over microbatches and behind.
        moves: the bytes that are sent from a stage to the next one, forward and backward.
        memory: for each place.
        formulas: the expressions to which the numbers in parts refer.
        quotients: sizes of blocks, which have to be integers.
        ahead: the axes over which gathers in loops may be ahead.
        places: the paths of each run, if given by another program.
        chosen: the paths of each run, as places among its steps.
    """

    mesh: Mesh
    ahead: Sequence[str]
    places: list[list[tuple[int, ...]]] = field(default_factory=list[list[tuple[int, ...]]])
    chosen: list[list[tuple[int, ...]]] = field(default_factory=list[list[tuple[int, ...]]])
    tasks: dict[str, ProgramPart] = field(default_factory=dict[str, ProgramPart])
    before: list[ProgramPart] = field(default_factory=list[ProgramPart])
    after: list[ProgramPart] = field(default_factory=list[ProgramPart])
    moves: list[int] = field(default_factory=list[int])
    memory: list[PlaceMemory] = field(default_factory=list[PlaceMemory])
    formulas: list[Expr] = field(default_factory=list[Expr])
    quotients: list[Expr] = field(default_factory=list[Expr])

    def part(self, name: str, place: int) -> ProgramPart:
        """Return the part with a name at a place; an empty one if there is none."""
        if name in ("before", "after"):
            return (self.before if name == "before" else self.after)[place]
        return self.tasks.get("step" if name == "step" else f"{name}{place}", ProgramPart())

    def number(self, formula: Expr) -> int:
        """Return the number of a formula, which is added."""
        self.formulas.append(formula)
        return len(self.formulas) - 1

    def values(self, given: dict[str, Array]) -> tuple[Array, list[bool]]:
        """Return the values of all formulas (formulas x rows) for arrays of parameters and axes,
        and for each row whether all sizes divide."""
        constants, names = constants_of(self.mesh), [*given]
        with np.errstate(divide="ignore", invalid="ignore"):  # of rows that do not divide
            columns = compiled(self.formulas, names, [*constants])({**constants, **given})
        whole = np.ones(len(columns[0]), dtype=bool)
        if self.quotients:
            for size in compiled([*map(sympy.together, self.quotients)], names)(given):
                whole &= (np.rint(size) == size) & (size >= 1)
        return np.stack(columns), whole.tolist()


class Costs(NamedTuple):
    """The costs of the two programs of a kind, for some batches and sizes of axes.

    Attributes:
        made: the parts of both programs.
        tables: the values of their formulas, for each row.
        whole: for each row, whether all sizes divide.
    """

    made: Sequence[Ingredients]
    tables: Sequence[Array]
    whole: Sequence[bool]


def ingredients_of(
    module: ModuleOp,
    function: str,
    once: bool,
    ahead: Sequence[str],
    like: Ingredients | None = None,
) -> Ingredients:
    """Return the parts of a program that has been cut into microbatches.

    Args:
        once: whether there is one microbatch.
        ahead: the axes over which gathers may be an iteration ahead in loops.
        like: the parts of the program with fewer layers, whose paths these parts take.

    Raises:
        DiagnosticError, FormulaMissingError: a cost is no formula.
    """
    [opened] = opened_functions(module, CostModel(), function)
    places = [*like.chosen] if like is not None else []
    made = Ingredients(opened.simulation.mesh, ahead, places)
    quotients = map(expression_of, opened.quotients)
    # A size with as many parts as axes have coordinates, such as the batch, always divides.
    ones = {symbol(f"@{name}"): AXIS for name in opened.simulation.mesh.of_axis}
    parted = (x for x in map(sympy.together, quotients) if sympy.denom(x).free_symbols)
    made.quotients = [x for x in parted if x.subs(ones) != 1]
    if any(step.pipelined for step in opened.simulation.program):
        _add_stages(made, opened.simulation)
    elif once:
        _add_steps(made, opened)
    else:
        _add_loop(made, opened)
    return made


def _add_stages(made: Ingredients, simulation: Simulation) -> None:
    program = simulation.program
    staged = [number for number, step in enumerate(program) if step.of_pipeline]
    first, last = staged[0], staged[-1]
    for number in staged:
        step = program[number]
        if step.pipelined is not None and step.kind not in made.tasks:
            made.tasks[step.kind] = _part(made, enumerate(step.pipelined.body.program))
        elif step.sent is not None and step.iterations == (0,):
            made.moves.append(made.number(expression(step.size)))
    for place in range(len(simulation.places)):
        own = [(n, s) for n, s in enumerate(program) if place in s.task.on and not s.of_pipeline]
        begun = next(program[n] for n in staged if place in program[n].task.on)
        before = [(n, s) for n, s in own if n < first]
        made.before.append(_part(made, before, begun.task.after))
        made.after.append(_part(made, [(n, s) for n, s in own if n > last]))
        made.memory.append(_memory(made, simulation, place, first, last))


def _add_steps(made: Ingredients, opened: Opened) -> None:
    made.tasks["step"] = _part(made, enumerate(opened.simulation.program))
    made.before, made.after = [ProgramPart()], [ProgramPart()]
    zero, peak = made.number(sympy.S.Zero), made.number(peak_bytes(opened.simulation))
    made.memory = [PlaceMemory(peak, zero, zero, zero)]


def _add_loop(made: Ingredients, opened: Opened) -> None:
    simulation = opened.simulation
    loops = [n for n, step in enumerate(simulation.program) if step.loop is not None]
    if len(loops) != 1:
        text = "a step that is swept has one loop, that over microbatches, and this one has others"
        raise DiagnosticError(Diagnostic(text))
    [number] = loops
    loop = simulation.program[number].loop
    assert loop is not None
    steps = [*enumerate(simulation.program)]
    made.tasks["step"] = _part(made, enumerate(loop.body.program), in_loop=True)
    made.before, made.after = [_part(made, steps[:number])], [_part(made, steps[number + 1 :])]
    around, inside = bytes_at(simulation, number)
    others = totals(simulation, False, steps={-1, *range(len(steps) + 1)} - {number})
    formulas = around, sympy.S.Zero, inside, largest(others)
    made.memory = [PlaceMemory(*map(made.number, formulas))]


def _part(
    made: Ingredients,
    steps: Iterable[tuple[int, SimulatedStep]],
    needed: Collection[int] | None = None,
    in_loop: bool = False,
) -> ProgramPart:
    """Return the part of steps, each with its number in the program.

    Args:
        needed: the numbers of the steps that later steps wait for; None: all.
        in_loop: whether they are the body of a loop.
    """
    items: list[StepRun | PartLoop] = []
    run: list[tuple[int, SimulatedStep]] = []
    for number, step in steps:
        if step.loop is None:
            run.append((number, step))
            continue
        items.append(_run(made, run, needed, in_loop))
        run = []
        body = _part(made, enumerate(step.loop.body.program), in_loop=True)
        items.append(PartLoop(int(step.loop.times), body))
    items.append(_run(made, run, needed, in_loop))
    return ProgramPart(
        tuple(item for item in items if isinstance(item, PartLoop) or item.local >= 0)
    )


def _run(
    made: Ingredients,
    steps: Sequence[tuple[int, SimulatedStep]],
    needed: Collection[int] | None,
    in_loop: bool,
) -> StepRun:
    if not steps:
        return StepRun(-1, (), ())
    machine = made.mesh.machine
    local = {
        place: local_seconds(step.does, machine, step.kinds)
        for place, (_, step) in enumerate(steps)
        if isinstance(step.does, LocalStep)
    }
    order = StepsBetween.of(steps, needed, made.ahead if in_loop else ())
    collectives = [n for n, (_, step) in enumerate(steps) if step.sent and order.waited[n]]
    sent = tuple(_sent(made, steps[place][1]) for place in collectives)
    places = made.places.pop(0) if made.places else None
    if places is None or max(chained(*places), default=-1) >= len(steps):
        places = [order.longest(weight) for weight in _WEIGHTS] if collectives else []
    made.chosen.append(places)
    paths = (
        Path(
            made.number(sympy.Add(*(local[n] for n in path if n in local))),
            tuple(collectives.index(n) for n in path if n in collectives),
        )
        for path in places
    )
    return StepRun(made.number(sympy.Add(*local.values())), sent, tuple(paths))


@dataclass(frozen=True)
class StepsBetween:
    """Steps between two loops, with the facts that hold in any order of them.

    Attributes:
        sent: the places of collectives among the steps.
        local: for each step, the seconds in which it sends nothing.
        times: the seconds of each step.
        above: whether a step needs another one (steps x steps).
        waited: for each step, whether the steps behind the loop wait for it.
    """

    sent: Sequence[int]
    local: Array
    times: Array
    above: Mask
    waited: Mask

    @staticmethod
    def of(
        steps: Sequence[tuple[int, SimulatedStep]],
        needed: Collection[int] | None,
        early: Sequence[str],
    ) -> "StepsBetween":
        """Return the needs of steps, each with its number in the program.

        Args:
            needed: the numbers of the steps that later steps wait for; None: all.
            early: axes over which gathers may come before these steps.
        """
        place_of = {number: place for place, (number, _) in enumerate(steps)}
        above = np.zeros((len(steps), len(steps)), dtype=bool)
        sent: list[int] = []
        for place, (_, step) in enumerate(steps):
            if step.sent is not None:
                over = {*map(step.sent.collective.mesh.label, step.sent.collective.axes)}
                if STEPS[step.kind].gathers and over <= {*early}:
                    continue
                sent.append(place)
            for earlier in (place_of[n] for n in step.task.after if n in place_of):
                above[place] |= above[earlier]
                above[place, earlier] = True
        waited = np.ones(len(steps), dtype=bool)
        if needed is not None:
            ends = [place_of[number] for number in needed if number in place_of]
            waited = np.asarray(above[ends].any(axis=0))
            waited[ends] = True
        times = np.array([step.task.time for _, step in steps])
        local = np.where([step.sent is None for _, step in steps], times, 0.0)
        return StepsBetween([n for n in sent if waited[n]], local, times, above, waited)

    def longest(self, weight: float) -> tuple[int, ...]:
        """Return the places of the steps on the longest path through all orders: collectives that
        need one another, with the work of the device before, between and behind them. Collectives
        count ``weight`` times as long."""
        if not self.sent:
            return ()
        before = self.above[self.sent]
        behind = self.above[:, self.sent].T & self.waited
        between = behind * self.local @ before.T
        best: list[tuple[float, tuple[int, ...]]] = []  # paths that end with each collective
        for index, place in enumerate(self.sent):
            chains: list[tuple[float, tuple[int, ...]]] = [(before[index] @ self.local, ())]
            for earlier in np.flatnonzero(before[index, self.sent]):
                seconds, chain = best[earlier]
                chains.append((seconds + between[earlier, index], chain))
            seconds, chain = max(chains)
            best.append((seconds + weight * self.times[place], (*chain, index)))
        _, chain = max((best[n][0] + x @ self.local, best[n][1]) for n, x in enumerate(behind))
        places = before[chain[0]] | behind[chain[-1]]
        for earlier, later in pairwise(chain):
            places |= behind[earlier] & before[later]
        places &= self.local > 0
        places[[self.sent[n] for n in chain]] = True
        return tuple(np.flatnonzero(places).tolist())


def _sent(made: Ingredients, step: SimulatedStep) -> PartCollective:
    assert step.sent is not None
    collective, mesh = step.sent.collective, made.mesh
    return PartCollective(
        collective.kind,
        tuple(map(mesh.label, collective.axes)),
        frozenset(map(mesh.label, collective.at_root)),
        frozenset(map(mesh.label, collective.replicated)),
        made.number(expression(collective.size)),
        made.number(packing_seconds(collective)),
        collective.sent_by if isinstance(collective.sent_by, Route) else None,
    )


def _memory(
    made: Ingredients, simulation: Simulation, place: int, first: int, last: int
) -> PlaceMemory:
    held, program = simulation.held[place], simulation.program
    kind = {
        n: step.kind[0]
        for n, step in enumerate(program)
        if step.pipelined is not None and step.iterations == (0,) and place in step.task.on
    }

    def until(buffer: Buffer) -> int:
        return max(buffer.until or (len(program),))

    kept = (
        b
        for b in held
        if not b.of_loop and kind.get(b.first or 0) == "F" and kind.get(until(b)) in ("B", "W")
    )
    backward = (program[n].pipelined for n, letter in kind.items() if letter == "B")
    inside = largest(peak_bytes(task.body, inside=True) for task in backward if task is not None)
    throughout = (b for b in held if not b.of_loop and _is_there(b, first, last))
    formulas = _total(throughout), _total(kept), inside, sympy.S.Zero
    return PlaceMemory(*map(made.number, formulas))


def _is_there(buffer: Buffer, first: int, last: int) -> bool:
    """Return whether a buffer is held from one step to another."""
    begins = buffer.first is None or 0 <= buffer.first <= first
    return begins and (buffer.until is None or max(buffer.until, default=-1) >= last)


def _total(buffers: Iterable[Buffer]) -> Expr:
    return sympy.Add(*(expression(buffer.size) for buffer in buffers))
