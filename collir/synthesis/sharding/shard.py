"""Layouts for all values of ``auto`` functions, so that they take the least time."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.dialects.func import FuncOp

from collir.cost.model import CostModel
from collir.cost.programs.simulate import simulate_function
from collir.dialects.machine import AxisAttr, module_of
from collir.ir.auto import AUTO
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import meshes_of
from collir.ir.remarks import listening, remark
from collir.layout import Axis, Mesh, unplaced_message
from collir.syntax.units import bytes_text, seconds_text
from collir.synthesis.placement.meshes import functions_on
from collir.synthesis.propagation.accumulate import reduce_behind_loops
from collir.synthesis.propagation.estimate import Assignment, Choice
from collir.synthesis.propagation.graph import Graph
from collir.synthesis.propagation.propagate import lay_out
from collir.synthesis.propagation.rewrite import rewrite
from collir.synthesis.searching import gap_of
from collir.synthesis.sharding.explain import Reason, explanation
from collir.synthesis.sharding.fitting import DoesNotFitError, least_that_fits
from collir.synthesis.sharding.memory import Memory
from collir.synthesis.sharding.moves import Moves
from collir.synthesis.sharding.problem import Sharding
from collir.synthesis.sharding.solver import Solution, least_sum
from collir.synthesis.sharding.symbolic.halving import Halving
from collir.synthesis.sharding.uneven import recut, unlike_axes
from collir.synthesis.sharding.ways import Ways
from collir.synthesis.sharding.work import Work

_RETRIES = 3
"""How often layouts are chosen anew where a simulation does not fit."""

_LESS = 0.98
"""The part of the memory that is tried next, of that in which a simulation would fit."""


@dataclass(frozen=True)
class ShardOptions:
    """Options of a search for layouts.

    Attributes:
        model: the cost model of collectives.
        seconds: the limit of the search of each function; None: no limit.
        memory: the bytes that a function may need on a device; None: those that it has.
        explain: whether remarks say why the layouts are as they are.
    """

    model: CostModel
    seconds: float | None = None
    memory: float | None = None
    explain: bool = False

    def limit_on(self, mesh: Mesh) -> float | None:
        """Return the bytes that a function may need on a device of a mesh; None: any number."""
        device = mesh.machine.slowest
        return self.memory or (device and device.memory)


def shard_by_amounts(module: ModuleOp, options: ShardOptions) -> None:
    """Choose the layouts of all values of the ``auto`` functions of a module by the amounts of data
    alone, in place. A remark says if a simulation does not fit into memory.

    Raises:
        DiagnosticError: a function has a step that cannot be where layouts are chosen, or its mesh
            has weights.
    """
    lay_out(module, lambda f, closed: _shard_by_amounts(f, closed, options), callees=False)


def _shard_by_amounts(function: FuncOp, closed: bool, options: ShardOptions) -> None:
    graph = Graph.build(function, closed)
    if graph.mesh.uneven:
        text = "amounts of data say nothing about weights of axes: leave out method=symbolic"
        raise DiagnosticError.at(function, text)
    plan = Halving(graph)
    plan.run()
    layouts = [plan.layout(tensor) for tensor in graph.tensors]
    with listening(lambda _: None):
        rewrite(function, graph, layouts, lambda step: [*_less_and_less(plan.axes(step))])
    reduce_behind_loops(function)
    del function.attributes[AUTO]
    name = function.sym_name.data
    remark(
        function, f"the layouts of @{name} are chosen by the amounts of data that they send alone"
    )
    limit = options.limit_on(graph.mesh)
    try:
        peak = simulate_function(function, options.model).peak if limit else 0.0
    except DiagnosticError:  # without rates, no simulation says what is held when
        return
    if limit and peak > limit:
        text = _above(peak, limit) + ": method=exact looks for layouts that fit"
        remark(function, text)


def _less_and_less(axes: Assignment) -> Iterator[Choice]:
    """Yield the division of a step, and less and less of it: some steps have rules of their own."""
    left = dict(axes)
    yield Choice(left, 0.0, 0.0)
    for index in reversed([*axes]):
        left = {i: own for i, own in left.items() if i != index}
        yield Choice(left, 0.0, 0.0)


def shard(module: ModuleOp, options: ShardOptions) -> None:
    """Choose the layouts of all values of the ``auto`` functions of a module, in place.

    Raises:
        DiagnosticError: a function has a step that cannot be where layouts are chosen, its mesh is
            not placed on levels, a device has no rate for what it computes, or no layouts fit into
            memory.
    """
    lay_out(module, lambda f, closed: _Shard(f, closed, options).run(), callees=False)


class _Shard:
    """The search for the layouts of a function."""

    def __init__(self, function: FuncOp, closed: bool, options: ShardOptions):
        self.function, self.closed, self.options = function, closed, options
        self.graph = Graph.build(function, closed)
        if not self.graph.mesh.placed:
            raise DiagnosticError.at(function, unplaced_message(self.graph.mesh))
        match unlike_axes(self.graph.mesh):
            case [axis]:
                self._cut(axis)
            case [_, *_] as several:
                names = ", ".join(f"`{axis.name}`" for axis in several)
                text = "give the level of unlike devices to one axis, and it has weights"
                remark(function, f"{names} keep equal shares: {text}")
            case _:
                pass
        self.sharding = sharding_of(function, self.graph, options.model)
        self.limit = options.limit_on(self.graph.mesh)

    def _cut(self, axis: Axis) -> None:
        """Give the axis along which devices are unlike the best weights, if the function is the
        only one of its mesh."""
        mesh, module = self.graph.mesh, module_of(self.function)
        if len(functions_on(module, mesh.name)) > 1:
            text = f"`{axis.name}` keeps equal shares: other functions are on @{mesh.name}"
            remark(self.function, text)
            return
        found = recut(self.function, self.graph, axis, self.options.model, self.options.seconds)
        if found is None:
            return
        op = next(op for op in meshes_of(module) if op.sym_name.data == mesh.name)
        op.axes = ArrayAttr([AxisAttr.of(axis) for axis in found.mesh.axes])
        self.graph = Graph.build(self.function, self.closed)
        time, bound = found.solution.sum, found.bound
        weights = ", ".join(map(str, found.axis.weights or ()))
        gap = 100 * (1 - bound / time)
        ideal = f"; the best shares of each step alone would save {gap:.2g} %" if gap > 0.01 else ""
        remark(self.function, f"`{axis.name}` has weights [{weights}]{ideal}")

    def run(self) -> None:
        """Choose the layouts, in place. If a simulation needs more memory than there is, they are
        chosen anew for so much less."""
        before, limit = self.function.clone(), self.limit
        solution = first = self._solution(limit)
        reasons = self._reasons(solution)
        self._rewrite(solution)
        for _ in range(_RETRIES):
            peak = simulate_function(self.function, self.options.model).peak if limit else 0.0
            if not limit or not self.limit or peak <= self.limit:
                break
            limit *= _LESS * self.limit / peak
            self._restore(before.clone())
            try:
                solution = self._solution(limit)
                bound = min(first.bound, solution.sum)
                solution = replace(solution, bound=bound, ended="less memory was tried")
                reasons = self._reasons(solution)
            except DiagnosticError:
                limit = None
                reasons.append(Reason(self.function, _above(peak, self.limit)))
            self._rewrite(solution)
        for item, text in reasons:
            remark(item, text)
        del self.function.attributes[AUTO]

    def _restore(self, before: FuncOp) -> None:
        """Give the function its steps from before."""
        self.function.properties["function_type"] = before.function_type
        old = self.function.body.detach_block(self.function.body.block)
        old.drop_all_references()
        self.function.body.add_block(before.body.detach_block(before.body.block))
        self.graph = Graph.build(self.function, self.closed)
        self.sharding = sharding_of(self.function, self.graph, self.options.model)

    def _reasons(self, solution: Solution) -> list[Reason]:
        """Return what remarks say about a solution."""
        first = Reason(self.function, self._text(solution))
        if not self.options.explain:
            return [first]
        return [first, *explanation(self.graph, self.sharding, solution, self.options.seconds)]

    def _solution(self, limit: float | None) -> Solution:
        """Return the best layouts of those that fit into so much memory.

        Raises:
            DiagnosticError: none fit.
        """
        first = least_sum(self.sharding.sum, self.options.seconds)
        if not limit:
            return first
        memory = Memory(self.function, self.graph, self.sharding)
        try:
            return least_that_fits(self.sharding.sum, memory, limit, first, self.options.seconds)
        except DoesNotFitError as error:
            raise self._does_not_fit(error, memory) from error

    def _does_not_fit(self, error: DoesNotFitError, memory: Memory) -> DiagnosticError:
        assert self.limit
        op = memory.operation(error.step) or self.function
        least, bound = bytes_text(error.least), bytes_text(error.bound)
        proof = f"all need at least {bound}" if error.bound > self.limit else "others may fit"
        name = self.function.sym_name.data
        return DiagnosticError.at(
            op,
            f"no layouts of @{name} fit into the {bytes_text(self.limit)} of a device: the "
            f"smallest found need {least} here, and {proof}; `recompute` layers, take a smaller "
            f"batch (-p microbatch), or more devices",
        )

    def _rewrite(self, solution: Solution) -> None:
        values, sharding = solution.values, self.sharding
        layouts = [sharding.layout(values, tensor) for tensor in self.graph.tensors]
        with listening(lambda _: None):  # that a step brings operands elsewhere was chosen
            rewrite(
                self.function,
                self.graph,
                layouts,
                lambda step: [Choice(sharding.way(values, step).axes, 0.0, 0.0)],
            )
        reduce_behind_loops(self.function)

    def _text(self, solution: Solution) -> str:
        text = f"the layouts of @{self.function.sym_name.data} take {seconds_text(solution.sum)}"
        others = "no others" + " with equal layers alike" * self.sharding.is_tied
        if not solution.ended:
            return f"{text}, and {others} take less"
        gap = gap_of(solution.sum, solution.bound)
        others = (
            "others may take less" if gap is None else f"none take more than {100 * gap:.2g} % less"
        )
        return f"{text}, and {others} (the search ended: {solution.ended})"


def _above(peak: float, limit: float) -> str:
    return f"a simulation needs {bytes_text(peak)} on a device, more than {bytes_text(limit)}"


def sharding_of(function: FuncOp, graph: Graph, model: CostModel) -> Sharding:
    """Return the choices of layouts in a function and their costs under a model.

    Raises:
        DiagnosticError: a device has no rate for what a step computes.
    """
    moves = Moves(graph.mesh, model)
    ways = Ways(graph.mesh, Work(function, graph.mesh), moves.seconds)
    return Sharding(graph, ways, moves.seconds, moves.split).tie()
