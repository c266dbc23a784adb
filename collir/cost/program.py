"""What the functions of a module cost: their collectives, one after the other.

Operations that send nothing are free here; so is packing the blocks of a later dimension.
"""

from dataclasses import dataclass
from functools import cached_property

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp

from collir.cost.collective import Collective
from collir.cost.group import CostError
from collir.cost.model import CostModel, StepCost, step_cost
from collir.dialects import coll
from collir.dialects.coll import AxesAttr, CollOp, dist_type
from collir.dialects.machine import mesh_of, meshes_remembered
from collir.layout import DistType, Mesh
from collir.syntax.diagnostics import DiagnosticError
from collir.syntax.mlir import check_programs, functions_of


@dataclass(frozen=True)
class FunctionCost:
    """What a function costs under a model; seconds. ``bound`` is that of these steps in a row."""

    name: str
    mesh: Mesh
    model: CostModel
    steps: tuple[StepCost, ...]

    @cached_property
    def time(self) -> float:
        """The sum of the steps' times."""
        return sum(step.time for step in self.steps)

    @cached_property
    def bound(self) -> float:
        """The sum of the steps' bounds."""
        return sum(step.bound for step in self.steps)

    def scaled(self, factor: float) -> "FunctionCost":
        """The cost with all buffers ``factor`` times as large.

        Raises:
            CostError: see ``step_cost``.
        """
        steps = (step_cost(step.collective.scaled(factor), self.model) for step in self.steps)
        return FunctionCost(self.name, self.mesh, self.model, tuple(steps))


def cost(module: ModuleOp, model: CostModel | None = None) -> list[FunctionCost]:
    """What every function of a module costs, in order.

    Raises:
        DiagnosticError: an operation that is not of the coll dialect, a mesh that is not placed on
            levels, an algorithm that does not fit its group; with its position.
    """
    functions = functions_of(module)
    check_programs(functions, "has no cost")
    with meshes_remembered():
        return [function_cost(function, model or CostModel()) for function in functions]


def function_cost(function: FuncOp, model: CostModel) -> FunctionCost:
    """What one function costs.

    Raises:
        DiagnosticError: see ``cost``.
    """
    mesh = mesh_of(function)
    steps: list[StepCost] = []
    for op in function.body.ops:
        if isinstance(op, coll.COLLECTIVES):
            try:
                steps.append(step_cost(collective_of(op, mesh), model))
            except CostError as error:
                raise DiagnosticError.at(op, str(error)) from error
    return FunctionCost(function.sym_name.data, mesh, model, tuple(steps))


def collective_of(op: CollOp, mesh: Mesh) -> Collective:
    """A collective operation as the cost models see it."""
    x, y = dist_type(op.operands[0]), dist_type(op.result)
    listed, algorithm = op.properties.get("axes"), op.properties.get("algorithm")
    axes = listed.data if isinstance(listed, AxesAttr) else None
    name = algorithm.data if isinstance(algorithm, StringAttr) else None
    return collective(op.mnemonic, mesh, x, y, axes, name)


def collective(
    kind: str,
    mesh: Mesh,
    x: DistType,
    y: DistType,
    axes: tuple[str, ...] | None,
    algorithm: str | None = None,
) -> Collective:
    """A collective from a layout to another; ``axes`` are None of a permute."""
    size = max(x.local_bytes(mesh), y.local_bytes(mesh))
    moves = None
    if kind == "all_to_all":
        size = x.local_bytes(mesh)
    if axes is None:
        axes = mesh.ordered({axis for z in (x, y) for dim in z.dims for axis in dim.axes})
        moves = (x, y)
    return Collective(
        kind,
        mesh,
        axes,
        float(size),
        at_root=x.root - frozenset(axes),
        replicated=frozenset(mesh.by_name) - frozenset(x.axes) - frozenset(axes),
        algorithm=algorithm,
        moves=moves,
    )
