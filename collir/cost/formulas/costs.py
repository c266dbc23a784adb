# pyright: basic
"""The costs of a function as expressions: times, operations, bytes, messages and memory."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

import sympy
from xdsl.dialects.builtin import ModuleOp

from collir.cost.collectives.table import COSTS
from collir.cost.formulas.constants import constants_of
from collir.cost.formulas.functions import Expr, Larger, expression, expression_of, symbol
from collir.cost.formulas.memory import bytes_by_use, peak_bytes
from collir.cost.formulas.opening import Opened, opened_functions
from collir.cost.formulas.sent import FormulaMissingError, sent_seconds
from collir.cost.formulas.times import local_seconds
from collir.cost.model import CostModel, StepCost
from collir.cost.programs.local_steps import LocalStep
from collir.cost.programs.memory import Use
from collir.cost.programs.simulation import SimulatedStep, Simulation
from collir.layout import Mesh


@dataclass(frozen=True)
class StepFormula:
    """The cost of a step.

    Attributes:
        kind: its operation.
        over: the axes that a collective is over; empty for other steps.
        count: how often it runs, in loops.
        time: seconds of one run.
        work: the floating-point operations of one run, by dtype.
        moved: the bytes that one run reads and writes.
        sent: the bytes that a device sends in one run, at least.
        is_product: whether it multiplies matrices.
        is_issued: whether the host issues it.
    """

    name: str
    kind: str
    over: tuple[str, ...]
    count: Expr
    time: Expr
    work: Mapping[str, Expr] = field(default_factory=dict[str, Expr])
    moved: Expr = sympy.S.Zero
    sent: Expr = sympy.S.Zero
    is_product: bool = False
    is_issued: bool = True


@dataclass(frozen=True)
class CostFormulas:
    """The costs of a function as expressions of its parameters and of the sizes of axes.

    Attributes:
        values: the values of the parameters and of the axes in the program.
        constants: the constants of the machine in the program, such as ``node.port``; see
            ``collir.cost.formulas.constants``.
        time: seconds.
        memory: the most bytes of a device.
        held: the bytes of arguments, by their use.
        quotients: the sizes of blocks that are quotients, which have to be integers.
        fixed: parameters that keep their values, as sizes are rounded quotients of them.
    """

    name: str
    mesh: Mesh
    model: CostModel
    values: Mapping[str, int]
    constants: Mapping[str, float]
    steps: tuple[StepFormula, ...]
    time: Expr
    memory: Expr
    held: Mapping[Use, Expr]
    quotients: tuple[Expr, ...] = ()
    fixed: frozenset[str] = frozenset()

    @property
    def axes(self) -> dict[str, int]:
        """The sizes of the axes of the mesh, by their names in expressions."""
        return {self.mesh.label(sub.name): sub.size for sub in self.mesh.sub_axes}

    @property
    def work(self) -> dict[str, Expr]:
        """The floating-point operations of a device, by dtype."""
        total: dict[str, Expr] = {}
        for step in self.steps:
            for dtype, count in step.work.items():
                total[dtype] = total.get(dtype, sympy.Integer(0)) + step.count * count
        return {dtype: sympy.expand(count) for dtype, count in total.items()}

    @property
    def moved(self) -> Expr:
        """The bytes that a device reads and writes."""
        return sympy.expand(sympy.Add(*(step.count * step.moved for step in self.steps)))

    @property
    def sent(self) -> dict[tuple[str, ...], Expr]:
        """The bytes that a device sends, by axes."""
        return self._by_axes(lambda step: step.sent)

    @property
    def messages(self) -> dict[tuple[str, ...], Expr]:
        """The number of collectives, by axes."""
        return self._by_axes(lambda step: sympy.Integer(1))

    def _by_axes(self, of: Callable[[StepFormula], Expr]) -> dict[tuple[str, ...], Expr]:
        total: dict[tuple[str, ...], Expr] = {}
        for step in self.steps:
            if step.over:
                own = step.count * of(step)
                total[step.over] = total.get(step.over, sympy.Integer(0)) + own
        return {axes: sympy.factor(x) for axes, x in total.items()}


def cost_formulas(
    module: ModuleOp, model: CostModel | None = None, function: str = ""
) -> list[CostFormulas]:
    """Return the costs of the functions of a module, or of that of a name, as expressions.

    Raises:
        DiagnosticError: a function cannot be simulated.
        FormulaMissingError: a cost is no formula.
    """
    return [*map(formulas_of, opened_functions(module, model or CostModel(), function))]


def formulas_of(opened: Opened) -> CostFormulas:
    """Return the costs of a function with open sizes.

    Raises:
        FormulaMissingError: a cost is no formula.
    """
    simulation = opened.simulation
    if len(simulation.places) > 1:
        raise FormulaMissingError("devices at different places do not run the same steps")
    mesh = simulation.mesh
    if mesh.uneven:
        raise FormulaMissingError("blocks over an axis with weights differ in size")
    sizes = {mesh.label(sub.name): sub.size for sub in mesh.sub_axes}
    constants = constants_of(mesh)
    if both := {**opened.values, **sizes}.keys() & constants:
        raise FormulaMissingError(f"an axis has the name of a constant: {', '.join(both)}")
    return CostFormulas(
        simulation.name,
        mesh,
        simulation.model,
        {**opened.values, **sizes},
        constants,
        tuple(_steps(simulation, sympy.Integer(1))),
        _seconds(simulation),
        peak_bytes(simulation),
        bytes_by_use(simulation),
        tuple(expression_of(formula) for formula in opened.quotients),
        opened.fixed,
    )


def _seconds(simulation: Simulation) -> Expr:
    """Return the seconds of a program whose steps follow each other, which are at least those in
    which the host issues them."""
    parts: list[Expr] = []
    for step in simulation.program:
        if step.loop is not None:
            parts.append(expression(step.loop.times) * _seconds(step.loop.body))
        else:
            if not step.task.waited:
                raise FormulaMissingError(f"{step.name} overlaps with other steps")
            parts.append(_seconds_of(step, simulation))
    time = sympy.Add(*parts)
    device = simulation.mesh.machine.slowest
    if device is None or not device.execution.issue:
        return time
    issued = sympy.Add(*(s.count for s in _steps(simulation, sympy.Integer(1)) if s.is_issued))
    return Larger(time, device.execution.issue * issued)


def _seconds_of(step: SimulatedStep, simulation: Simulation) -> Expr:
    match step.does:
        case LocalStep():
            return local_seconds(step.does, simulation.mesh.machine.slowest)
        case StepCost():
            return sent_seconds(step.does, simulation.model)
        case _:
            raise FormulaMissingError(f"{step.name} has no formula yet")


def _steps(simulation: Simulation, count: Expr) -> Iterator[StepFormula]:
    mesh = simulation.mesh
    for step in simulation.program:
        if step.loop is not None:
            yield from _steps(step.loop.body, count * expression(step.loop.times))
        elif isinstance(does := step.does, StepCost):
            axes = does.collective.axes
            ranks = sympy.Mul(*(symbol(f"@{mesh.label(axis)}") for axis in axes))
            sent = COSTS[does.collective.kind].busbw(cast("int", ranks)) * expression(
                does.collective.size
            )
            yield StepFormula(
                step.name,
                step.kind,
                tuple(mesh.label(axis) for axis in axes),
                count,
                _seconds_of(step, simulation),
                sent=sent,
            )
        elif isinstance(does, LocalStep):
            yield StepFormula(
                step.name,
                step.kind,
                (),
                count,
                _seconds_of(step, simulation),
                {dtype: expression(number) for dtype, number in does.work},
                expression(does.size),
                sympy.S.Zero,
                does.product is not None,
                step.is_issued,
            )
