"""The costs of a function as expressions: times, operations, bytes, messages and memory."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import sympy
from xdsl.dialects.builtin import ModuleOp

from collir.cost.collectives.table import COSTS
from collir.cost.formulas.bounds import BoundedTimes
from collir.cost.formulas.constants import constants_of
from collir.cost.formulas.functions import (
    Expr,
    FormulaMissingError,
    as_number,
    expression,
    expression_of,
    symbol,
)
from collir.cost.formulas.memory import bytes_by_use, is_exact, largest, peak_bytes
from collir.cost.formulas.opening import Opened, opened_functions
from collir.cost.model import CostModel, StepCost
from collir.cost.programs.local_steps import LocalStep
from collir.cost.programs.memory import BufferUse
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
        at: the numbers of the places of the devices that run it.
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
    at: tuple[int, ...] = (0,)


@dataclass(frozen=True, repr=False)
class CostFormulas:
    """The costs of a function as expressions of its parameters and of the sizes of axes.

    Where devices at several places run steps of their own, operations, bytes and messages are
    counted at the place with the most of them.

    Attributes:
        values: the values of the parameters and of the axes in the program.
        constants: the constants of the machine in the program, such as ``node.port``; see
            ``collir.cost.formulas.constants``.
        time: seconds; if steps slow each other down as they share ports, a lower bound.
        most: an upper bound of the seconds, which is the same where the time is exact.
        peaks: the most bytes of a device at each place.
        peaks_exact: whether they are exact; else they are upper bounds.
        held: the bytes of arguments, by their use.
        quotients: the sizes of blocks that are quotients, which have to be integers.
        fixed: the values of parameters that stay numbers, as steps or their order depend on them.
        places: the places of devices; one without a name if all run the same steps.
        rigid: the axes whose sizes stay numbers, as steps are at places on them.
    """

    name: str
    mesh: Mesh
    model: CostModel
    values: Mapping[str, int]
    constants: Mapping[str, float]
    steps: tuple[StepFormula, ...]
    time: Expr
    most: Expr
    peaks: tuple[Expr, ...]
    peaks_exact: bool
    held: Mapping[BufferUse, Expr]
    quotients: tuple[Expr, ...] = ()
    fixed: Mapping[str, int] = field(default_factory=dict[str, int])
    places: tuple[str, ...] = ("",)
    rigid: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"<CostFormulas of @{self.name} in {self.symbols_text}>"

    @property
    def symbols_text(self) -> str:
        """The names of the parameters and axes, and the number of constants, in a few words."""
        names = ", ".join([*self.values, f"{len(self.constants)} constants"])
        return f"{names} of @{self.mesh.machine.name}"

    @property
    def is_exact(self) -> bool:
        """True if the time is exact; else it is between ``time`` and ``most``."""
        return self.time == self.most

    @property
    def memory(self) -> Expr:
        """The most bytes of a device; see ``peaks_exact``."""
        return largest(self.peaks)

    @property
    def axes(self) -> dict[str, int]:
        """The sizes of the axes of the mesh, by their names in expressions."""
        return {self.mesh.label(sub.name): sub.size for sub in self.mesh.sub_axes}

    @property
    def work(self) -> dict[str, Expr]:
        """The floating-point operations of a device, by dtype."""
        dtypes = dict.fromkeys(dtype for step in self.steps for dtype in step.work)
        zero = sympy.S.Zero
        return {d: self._most(lambda step, d=d: step.work.get(d, zero)) for d in dtypes}

    @property
    def moved(self) -> Expr:
        """The bytes that a device reads and writes."""
        return self._most(lambda step: step.moved)

    @property
    def sent(self) -> dict[tuple[str, ...], Expr]:
        """The bytes that a device sends, by axes."""
        return self._by_axes(lambda step: step.sent)

    @property
    def messages(self) -> dict[tuple[str, ...], Expr]:
        """The number of collectives, by axes."""
        return self._by_axes(lambda step: sympy.S.One)

    def _by_axes(self, of: Callable[[StepFormula], Expr]) -> dict[tuple[str, ...], Expr]:
        axes = dict.fromkeys(step.over for step in self.steps if step.over)
        return {over: self._most(of, over) for over in axes}

    def _most(self, of: Callable[[StepFormula], Expr], over: tuple[str, ...] | None = None) -> Expr:
        """Return the sum of a quantity over all steps, or over the steps along some axes, at the
        place with the largest sum."""
        steps = [step for step in self.steps if over in (None, step.over)]
        sums = (
            sympy.Add(*(step.count * of(step) for step in steps if place in step.at))
            for place in range(len(self.places))
        )
        return largest(map(sympy.factor if over else sympy.expand, sums))


def cost_formulas(
    module: ModuleOp, model: CostModel | None = None, function: str = ""
) -> list[CostFormulas]:
    """Return the costs of the functions of a module, or of the named function, as expressions.

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
    simulation, mesh = opened.simulation, opened.simulation.mesh
    if mesh.uneven:
        raise FormulaMissingError("blocks over an axis with weights differ in size")
    sizes = {mesh.label(sub.name): sub.size for sub in mesh.sub_axes}
    times = BoundedTimes()
    constants = constants_of(mesh)
    if both := {**opened.values, **sizes}.keys() & constants:
        raise FormulaMissingError(f"an axis has the name of a constant: {', '.join(both)}")
    return CostFormulas(
        simulation.name,
        mesh,
        simulation.model,
        {**opened.values, **sizes},
        constants,
        tuple(_steps(simulation, times)),
        *times.of(simulation),
        tuple(peak_bytes(simulation, device_class=n) for n in range(len(simulation.places))),
        is_exact(simulation),
        bytes_by_use(simulation),
        tuple(expression_of(formula) for formula in opened.quotients),
        opened.fixed,
        simulation.places,
        opened.rigid,
    )


def _steps(simulation: Simulation, times: BoundedTimes) -> Iterator[StepFormula]:
    """Yield the steps of a program, with those inside loops and tasks and the number of runs."""
    mesh = simulation.mesh
    for step, on, count in _runs(simulation):
        seconds = times.of_step(step, simulation).least
        common = StepFormula(step.name, step.kind, (), count, seconds, at=on)
        if isinstance(does := step.does, StepCost):
            axes = does.collective.axes
            ranks = sympy.Mul(*(symbol(f"@{mesh.label(axis)}") for axis in axes))
            factor = sympy.nsimplify(COSTS[does.collective.kind].busbw(as_number(ranks)))
            sent = factor * expression(does.collective.size)
            yield replace(common, over=tuple(map(mesh.label, axes)), sent=sent)
        elif isinstance(does, LocalStep):
            yield replace(
                common,
                work={dtype: expression(number) for dtype, number in does.work},
                moved=expression(does.size),
                is_product=does.product is not None,
            )


def _runs(simulation: Simulation) -> Iterator[tuple[SimulatedStep, tuple[int, ...], Expr]]:
    """Yield the steps of a program, with those inside loops and tasks, each with the classes of
    devices that run it and the number of its runs."""
    alike: dict[tuple[str, int, tuple[int, ...]], list[SimulatedStep]] = {}
    for step in simulation.program:
        alike.setdefault((step.result, id(step.does), step.task.on), []).append(step)
    for (_, _, on), (step, *others) in alike.items():
        count = expression(1 + len(others))
        if step.loop is not None:
            times = count * expression(step.loop.times)
            yield from ((inner, own, times * n) for inner, own, n in _runs(step.loop.body))
        elif step.pipelined is not None:
            yield from ((inner, on, count * n) for inner, _, n in _runs(step.pipelined.body))
        else:
            yield (replace(step, iterations=()) if others else step), on, count
