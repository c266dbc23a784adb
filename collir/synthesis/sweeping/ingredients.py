# pyright: basic
"""The parts of configurations of one kind: the costs of tasks, and of the steps around them.

Configurations are of one kind if their programs have the same steps: the same axes are larger than
1, and layers are computed again, and states divided, in the same way. The steps of a kind are those
of a small program with few stages and layers, each axis at a level of its own. Their bytes and
operations are formulas of the batch and of the sizes of axes, and linear in the number of layers,
so that two such programs say what all configurations of the kind cost: `estimates` puts them
together.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import sympy
from xdsl.dialects.builtin import ModuleOp

from collir.cost.formulas.compiled import compiled
from collir.cost.formulas.constants import constants_of
from collir.cost.formulas.functions import Array, Expr, expression, expression_of
from collir.cost.formulas.memory import bytes_once, largest, peak_bytes
from collir.cost.formulas.opening import Opened, opened_functions
from collir.cost.formulas.sent import packing_seconds
from collir.cost.formulas.times import local_seconds
from collir.cost.model import CostModel
from collir.cost.programs.local_steps import LocalStep
from collir.cost.programs.memory import Buffer
from collir.cost.programs.simulation import SimulatedStep, Simulation
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.layout import Mesh

LAYERS = 2, 3
"""The layers of a stage in the two programs of a kind."""

AXIS = 2
"""The size of the axes in the programs of a kind."""

MICROBATCHES = 8
"""The microbatches in the programs of a kind."""

STAGES = 3
"""The stages in the programs of a kind with stages: the first, one between, and the last."""


@dataclass(frozen=True)
class Sent:
    """A collective in a part of a program.

    Attributes:
        kind: its name.
        axes: the names of the axes that it is over.
        at_root, replicated: the names of axes, as of ``Collective``.
        count: how often it runs.
        size: the number of the formula of its bytes.
        route: the stages that a send is from and to; None for others.
    """

    kind: str
    axes: tuple[str, ...]
    at_root: frozenset[str]
    replicated: frozenset[str]
    count: int
    size: int
    route: tuple[int, int] | None = None


@dataclass(frozen=True)
class Part:
    """A part of a program: a task, or the steps in front of a loop or behind it.

    Attributes:
        local: the number of the formula of the seconds in which it sends nothing.
        sent: its collectives, in order.
    """

    local: int
    sent: tuple[Sent, ...]


@dataclass(frozen=True)
class Memory:
    """The memory of a place, as numbers of formulas.

    Attributes:
        throughout: the bytes that are there while the loop over microbatches runs.
        kept: the bytes of one microbatch from its forward task to its backward task.
        inside: the bytes that a backward task needs besides.
        once: of a program without stages, the bytes with one microbatch, which adds up nothing.
    """

    throughout: int
    kept: int
    inside: int
    once: int


@dataclass
class Ingredients:
    """The parts of a program of one kind.

    Attributes:
        tasks: for each name of a task, as ``F0``, its part; of a program without stages the part of
            one microbatch, ``step``.
        before, after: for each place, the steps in front of the loop over microbatches and behind.
        moves: the bytes that are sent from a stage to the next one, forward and backward.
        memory: for each place.
        formulas: the expressions that parts have numbers of.
        quotients: sizes of blocks, which have to be integers.
    """

    mesh: Mesh
    tasks: dict[str, Part] = field(default_factory=dict[str, Part])
    before: list[Part] = field(default_factory=list[Part])
    after: list[Part] = field(default_factory=list[Part])
    moves: list[int] = field(default_factory=list[int])
    memory: list[Memory] = field(default_factory=list[Memory])
    formulas: list[Expr] = field(default_factory=list[Expr])
    quotients: list[Expr] = field(default_factory=list[Expr])

    def part(self, name: str, place: int) -> Part:
        """Return the part of a name at a place, which is empty if there is none."""
        if name in ("before", "after"):
            return (self.before if name == "before" else self.after)[place]
        return self.tasks.get("step" if name == "step" else f"{name}{place}", Part(-1, ()))

    def number(self, formula: Expr) -> int:
        """Return the number of a formula, which is added."""
        self.formulas.append(formula)
        return len(self.formulas) - 1

    def values(self, given: dict[str, Array]) -> tuple[Array, list[bool]]:
        """Return the values of all formulas (formulas x rows) for those of parameters and axes,
        arrays of one length, and for each row whether all sizes divide."""
        constants, names = constants_of(self.mesh), [*given]
        with np.errstate(divide="ignore", invalid="ignore"):  # of rows that do not divide
            found = compiled(self.formulas, names, [*constants])({**constants, **given})
        whole = np.ones(len(found[0]), dtype=bool)
        if self.quotients:
            for size in compiled([*map(sympy.together, self.quotients)], names)(given):
                whole &= (np.rint(size) == size) & (size >= 1)
        return np.stack(found), whole.tolist()


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


def ingredients_of(module: ModuleOp, function: str) -> Ingredients:
    """Return the parts of a program that has been cut into microbatches.

    Raises:
        DiagnosticError, FormulaMissingError: a cost is no formula.
    """
    [opened] = opened_functions(module, CostModel(), function)
    made = Ingredients(opened.simulation.mesh)
    quotients = map(expression_of, opened.quotients)
    # Whatever the size of its axis, the batch is cut into as many parts as it has here.
    parts = AXIS, MICROBATCHES
    parted = (x for x in quotients if sympy.denom(x).free_symbols)
    made.quotients = [x for x in parted if sympy.numer(x) not in parts]
    if any(step.pipelined for step in opened.simulation.program):
        _add_stages(made, opened.simulation)
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
            made.tasks[step.kind] = _part(made, step.pipelined.body.program, simulation.mesh)
        elif step.sent is not None and step.iterations == (0,):
            made.moves.append(made.number(expression(step.size)))
    for place in range(len(simulation.places)):
        own = [(n, s) for n, s in enumerate(program) if place in s.task.on and not s.of_pipeline]
        made.before.append(_part(made, [s for n, s in own if n < first], simulation.mesh))
        made.after.append(_part(made, [s for n, s in own if n > last], simulation.mesh))
        made.memory.append(_memory(made, simulation, place, first, last))


def _add_loop(made: Ingredients, opened: Opened) -> None:
    simulation = opened.simulation
    loops = [n for n, step in enumerate(simulation.program) if step.loop is not None]
    if len(loops) != 1:
        text = "a step that is swept has one loop, that over microbatches, and this one has others"
        raise DiagnosticError(Diagnostic(text))
    [number] = loops
    loop = simulation.program[number].loop
    assert loop is not None
    made.tasks["step"] = _part(made, loop.body.program, simulation.mesh)
    made.before = [_part(made, simulation.program[:number], simulation.mesh)]
    made.after = [_part(made, simulation.program[number + 1 :], simulation.mesh)]
    zero = made.number(sympy.S.Zero)
    once = made.number(bytes_once(simulation, number))
    made.memory = [Memory(made.number(peak_bytes(simulation)), zero, zero, once)]


def _part(made: Ingredients, steps: Iterable[SimulatedStep], mesh: Mesh) -> Part:
    local, sent = [], []
    for step, count in _runs(steps, 1):
        if isinstance(step.does, LocalStep):
            local.append(count * local_seconds(step.does, mesh.machine, step.kinds))
        elif step.sent is not None:
            sent.append(_sent(made, step, count, mesh))
            local.append(count * packing_seconds(step.sent.collective))
    return Part(made.number(sympy.Add(*local)), tuple(sent))


def _runs(steps: Iterable[SimulatedStep], count: int) -> Iterator[tuple[SimulatedStep, int]]:
    """Yield steps and those in loops, each with how often it runs."""
    for step in steps:
        if step.loop is not None:
            yield from _runs(step.loop.body.program, count * int(step.loop.times))
        else:
            yield step, count


def _sent(made: Ingredients, step: SimulatedStep, count: int, mesh: Mesh) -> Sent:
    assert step.sent is not None
    collective = step.sent.collective
    return Sent(
        collective.kind,
        tuple(map(mesh.label, collective.axes)),
        frozenset(map(mesh.label, collective.at_root)),
        frozenset(map(mesh.label, collective.replicated)),
        count,
        made.number(expression(collective.size)),
        collective.route,
    )


def _memory(made: Ingredients, simulation: Simulation, place: int, first: int, last: int) -> Memory:
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
    return Memory(*map(made.number, formulas))


def _is_there(buffer: Buffer, first: int, last: int) -> bool:
    """Return whether a buffer is there from one step to another."""
    begins = buffer.first is None or 0 <= buffer.first <= first
    return begins and (buffer.until is None or max(buffer.until, default=-1) >= last)


def _total(buffers: Iterable[Buffer]) -> Expr:
    return sympy.Add(*(expression(buffer.size) for buffer in buffers))
