"""Layouts for all values of ``auto`` functions, so that they take the least time."""

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.cost.model import CostModel
from collir.ir.auto import AUTO
from collir.ir.remarks import listening, remark
from collir.syntax.units import seconds_text
from collir.synthesis.propagation.accumulate import reduce_behind_loops
from collir.synthesis.propagation.estimate import Choice
from collir.synthesis.propagation.graph import Graph
from collir.synthesis.propagation.propagate import lay_out
from collir.synthesis.propagation.rewrite import rewrite
from collir.synthesis.sharding.moves import Moves
from collir.synthesis.sharding.problem import Sharding
from collir.synthesis.sharding.solver import Solution, least_sum
from collir.synthesis.sharding.ways import Ways
from collir.synthesis.sharding.work import Work


@dataclass(frozen=True)
class ShardOptions:
    """Options of a search for layouts.

    Attributes:
        model: the cost model of collectives.
        seconds: the limit of the search of each function; None: no limit.
    """

    model: CostModel
    seconds: float | None = None


def shard(module: ModuleOp, options: ShardOptions) -> None:
    """Choose the layouts of all values of the ``auto`` functions of a module, in place.

    Raises:
        DiagnosticError: a function has a step that cannot be where layouts are chosen.
    """
    lay_out(module, lambda function, closed: _shard(function, closed, options), callees=False)


def _shard(function: FuncOp, closed: bool, options: ShardOptions) -> None:
    graph = Graph.build(function, closed)
    sharding = sharding_of(function, graph, options.model)
    solution = least_sum(sharding.sum, options.seconds)
    remark(function, _text(function.sym_name.data, solution))
    values = solution.values
    layouts = [sharding.layout(values, tensor) for tensor in graph.tensors]
    with listening(lambda _: None):  # that a step brings operands elsewhere is what was chosen
        rewrite(
            function,
            graph,
            layouts,
            lambda step: [Choice(sharding.way(values, step).axes, 0.0, 0.0)],
        )
    reduce_behind_loops(function)
    del function.attributes[AUTO]


def sharding_of(function: FuncOp, graph: Graph, model: CostModel) -> Sharding:
    """Return the choices of layouts in a function and their costs under a model."""
    moves = Moves(graph.mesh, model)
    ways = Ways(graph.mesh, Work(function, graph.mesh))
    return Sharding(graph, ways, moves.seconds, moves.split)


def _text(name: str, solution: Solution) -> str:
    text = f"the layouts of @{name} take {seconds_text(solution.sum)}"
    if not solution.ended:
        return f"{text}, and no others take less"
    gap = 100 * (1 - solution.bound / solution.sum)
    return f"{text}: when the search ended ({solution.ended}), others might take {gap:.2g} % less"
