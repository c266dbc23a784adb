"""Layouts for all values of ``auto`` functions, so that they take the least time."""

from dataclasses import replace

from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.dialects.func import FuncOp

from collir.cost.model import CostModel
from collir.dialects.machine import AxisAttr, module_of
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import meshes_of
from collir.ir.remarks import remark
from collir.layout import Axis, unplaced_message
from collir.syntax.units import bytes_text, seconds_text
from collir.synthesis.placement.meshes import functions_on
from collir.synthesis.propagation.graph import TensorGraph
from collir.synthesis.propagation.moves import Moves
from collir.synthesis.propagation.propagate import lay_out
from collir.synthesis.propagation.work import DeviceWork
from collir.synthesis.searching import gap_of
from collir.synthesis.sharding.descent.descent import Descent
from collir.synthesis.sharding.explain import Reason, explanation
from collir.synthesis.sharding.fitting import DoesNotFitError, least_that_fits
from collir.synthesis.sharding.layouts import Layouts, ShardOptions, choose_layouts
from collir.synthesis.sharding.memory import SolutionMemory
from collir.synthesis.sharding.problem import Sharding
from collir.synthesis.sharding.solver import VariableValues, least_sum
from collir.synthesis.sharding.uneven import recut, unlike_axes
from collir.synthesis.sharding.ways import Ways


def shard(module: ModuleOp, options: ShardOptions) -> None:
    """Choose the layouts of all values of the ``auto`` functions of a module, in place.

    Raises:
        DiagnosticError: a function has a step that cannot be where layouts are chosen, its mesh is
            not placed on levels, a device has no rate for what it computes, or no layouts fit into
            memory.
    """
    lay_out(module, lambda f, closed: choose_layouts(LeastTime, f, closed, options), callees=False)


class LeastTime(Layouts):
    """The search for the fastest layouts of a function."""

    def _amount(self, solution: VariableValues) -> str:
        """Return the cost of the layouts, as a phrase for remarks."""
        return f"take {seconds_text(solution.sum)}"

    def _check(self) -> None:
        """Check that axes are placed, and give weights to an axis along which devices differ.

        Raises:
            DiagnosticError: some axes are not placed.
        """
        if not self.graph.mesh.placed:
            raise DiagnosticError.at(self.function, unplaced_message(self.graph.mesh))
        match unlike_axes(self.graph.mesh):
            case [axis]:
                self._cut(axis)
            case [_, *_] as several:
                names = ", ".join(f"`{axis.name}`" for axis in several)
                text = "give the level of unlike devices to one axis, and it has weights"
                remark(self.function, f"{names} keep equal shares: {text}")
            case _:
                pass

    def _cut(self, axis: Axis) -> None:
        """Give an axis with unlike devices its best weights, if no other function is on the
        mesh."""
        mesh, module = self.graph.mesh, module_of(self.function)
        if len(functions_on(module, mesh.name)) > 1:
            text = f"`{axis.name}` keeps equal shares: other functions are on @{mesh.name}"
            remark(self.function, text)
            return
        recutting = recut(self.function, self.graph, axis, self.options.model, self.time)
        if recutting is None:
            return
        op = next(op for op in meshes_of(module) if op.sym_name.data == mesh.name)
        op.axes = ArrayAttr([AxisAttr.of(axis) for axis in recutting.mesh.axes])
        self.graph = TensorGraph.build(self.function, self.closed)
        time, bound = recutting.solution.sum, recutting.bound
        weights = ", ".join(map(str, recutting.axis.weights or ()))
        gap = 100 * (1 - bound / time)
        ideal = f"; the best shares of each step alone would save {gap:.2g} %" if gap > 0.01 else ""
        remark(self.function, f"`{axis.name}` has weights [{weights}]{ideal}")

    def _choices(self) -> Sharding:
        return sharding_of(self.function, self.graph, self.options.model)

    def _reasons(self, solution: VariableValues) -> list[Reason]:
        """Return what remarks say about a solution."""
        first = Reason(self.function, self._text(solution))
        if not self.options.explain:
            return [first]
        return [first, *explanation(self.graph, self.sharding, solution, self.time.left)]

    def _solution(self, limit: float | None) -> VariableValues:
        """Return the best layouts among those that fit into so much memory.

        Raises:
            DiagnosticError: none fit.
        """
        first = self._lowered(least_sum(self.sharding.sum, self.time.left))
        if not limit:
            return first
        memory = SolutionMemory(self.function, self.graph, self.sharding)
        try:
            return least_that_fits(self.sharding.sum, memory, limit, first, self.time.left)
        except DoesNotFitError as error:
            assert self.limit
            bound = bytes_text(error.bound)
            others = f"all need at least {bound}" if error.bound > self.limit else "others may fit"
            op = memory.operation(error.step)
            raise self._does_not_fit(op, error.least, others) from error

    def _lowered(self, solution: VariableValues) -> VariableValues:
        """Return a solution improved by descents, if its search ended without a proof: on three
        axes, tables may be too large for good solutions."""
        if not solution.ended:
            return solution
        values = Descent(self.graph, self.sharding, list(self.graph.mesh.by_name)).run()
        least = self.sharding.sum.value(values)
        return replace(solution, values=values, sum=least) if least < solution.sum else solution

    def _text(self, solution: VariableValues) -> str:
        amount = self._amount(solution)
        text, verb = f"the layouts of @{self.function.sym_name.data} {amount}", amount.split()[0]
        others = "no others" + " with equal layers alike" * self.sharding.is_tied
        if not solution.ended:
            return f"{text}, and {others} {verb} less"
        gap = gap_of(solution.sum, solution.bound)
        others = (
            f"others may {verb} less"
            if gap is None
            else f"none {verb} more than {100 * gap:.2g} % less"
        )
        return f"{text}, and {others} (the search ended: {solution.ended})"


def sharding_of(function: FuncOp, graph: TensorGraph, model: CostModel) -> Sharding:
    """Return the choices of layouts in a function and their costs under a model.

    Raises:
        DiagnosticError: a device has no rate for what a step computes.
    """
    moves = Moves(graph.mesh, model)
    ways = Ways(graph.mesh, DeviceWork(function, graph.mesh), moves.seconds)
    return Sharding(graph, ways, moves.seconds, moves.split).tie()
