"""Placements: on which levels of its machine each axis of a mesh should live.

A placement is a parallelism matrix (P², Xie et al., MLSys 2022): a row per axis, a column per
level. What a program computes does not depend on it; what it costs does. Each is costed with
every function under the cheapest of the strategies of ``decompose``, since the best strategy is
another on each.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from xdsl.dialects.builtin import ArrayAttr, FunctionType, ModuleOp, SymbolRefAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block
from xdsl.pattern_rewriter import PatternRewriterListener

from collir.cost.model import CostModel
from collir.cost.program import function_cost
from collir.dialects.coll import AxesAttr, DistTensorType
from collir.dialects.machine import MESH_ATTRIBUTE, AxisAttr, MeshOp, meshes_remembered
from collir.layout import Axis, Dim, DistType, Factor, Mesh
from collir.search import Problem, k_best
from collir.syntax.diagnostics import DiagnosticError
from collir.syntax.mlir import check_programs, functions_of
from collir.synthesis.p2.matrices import Matrix, count, rows
from collir.synthesis.strategies import STRATEGIES, decompose


@dataclass(frozen=True)
class Placement:
    """A mesh on the levels of its machine, and what its functions take; seconds.

    Attributes:
        strategies: the cheapest one of each function.
    """

    mesh: Mesh
    matrix: Matrix
    functions: dict[str, float]
    strategies: dict[str, str]

    @property
    def time(self) -> float:
        """The sum over the functions."""
        return sum(self.functions.values())


@dataclass(frozen=True)
class Placements:
    """The best placements of a mesh.

    Attributes:
        found: best first.
        count: how many the mesh has.
        proven: whether all of them were looked at.
    """

    name: str
    found: tuple[Placement, ...]
    count: int
    proven: bool


def unplaced(module: ModuleOp) -> list[MeshOp]:
    """The meshes of a module whose axes are not on levels."""
    meshes = [op for op in module.ops if isinstance(op, MeshOp)]
    return [op for op in meshes if not op.value().placed]


def placed(mesh: Mesh, matrix: Matrix) -> Mesh:
    """A mesh with its axes on levels, as a matrix says."""
    levels = mesh.machine.levels
    axes: list[Axis] = []
    for axis, row in zip(mesh.axes, matrix, strict=True):
        factors = [Factor(level.name, size) for level, size in zip(levels, row, strict=True)]
        used = [factor for factor in factors if factor.size > 1]
        axes.append(Axis.placed(axis.name, used or factors[-1:]))
    return Mesh(mesh.name, mesh.machine, tuple(axes))


def place(op: MeshOp, mesh: Mesh) -> None:
    """Puts the axes of a mesh on levels, and renames the sub-axes of all programs on it.

    An axis that was one sub-axis becomes several, in the order of the levels, outermost first: the
    index along the axis stays what it was, so programs compute what they did.
    """
    names = {axis.name: mesh.of_axis[axis.name] for axis in mesh.axes}
    module = op.parent_op()
    assert isinstance(module, ModuleOp)
    for function in functions_of(module):
        if function.attributes[MESH_ATTRIBUTE] == SymbolRefAttr(op.sym_name.data):
            _rename(function, names)
    op.axes = ArrayAttr([AxisAttr.of(axis) for axis in mesh.axes])


Names = dict[str, tuple[str, ...]]


def _rename(function: FuncOp, names: Names) -> None:
    signature = function.function_type
    function.properties["function_type"] = FunctionType.from_lists(
        [_renamed(x, names) for x in signature.inputs],
        [_renamed(x, names) for x in signature.outputs],
    )
    for op in function.walk():
        for name, attribute in op.properties.items():
            if name != "function_type":
                op.properties[name] = _renamed(attribute, names)
        for block in (block for region in op.regions for block in region.blocks):
            _retype(block, names)
        for result in op.results:
            result._type = _renamed(result.type, names)  # pyright: ignore[reportPrivateUsage]


def _retype(block: Block, names: Names) -> None:
    for argument in block.args:
        argument._type = _renamed(argument.type, names)  # pyright: ignore[reportPrivateUsage]


def _renamed(attribute: Attribute, names: Names) -> Attribute:
    """An attribute with every axis replaced by its sub-axes."""
    if isinstance(attribute, AxesAttr):
        return AxesAttr(_all(attribute.data, names))
    if not isinstance(attribute, DistTensorType):
        return attribute
    x = attribute.data
    partial = frozenset(_all(x.partial, names))
    return DistTensorType(
        DistType(
            x.dtype,
            tuple(Dim(dim.size, _all(dim.axes, names)) for dim in x.dims),
            partial,
            x.reduction if partial else None,
            frozenset(_all(x.root, names)),
        )
    )


def _all(axes: Iterable[str], names: Names) -> tuple[str, ...]:
    return tuple(sub for axis in axes for sub in names[axis])


class Partial(NamedTuple):
    """The rows of the first axes, and what is left of each level for the others."""

    rows: Matrix
    left: tuple[int, ...]


class _Search(Problem[Partial]):
    """All matrices, row by row; a whole one is worth what its functions take."""

    sense = "min"

    def __init__(self, module: ModuleOp, op: MeshOp, model: CostModel):
        self._module, self._model = module, model
        self._name = op.sym_name.data
        self.mesh = op.value()
        self.costed: dict[Matrix, Placement] = {}
        self.refused: DiagnosticError | None = None

    def root(self) -> Partial:
        """No axis has a row."""
        return Partial((), tuple(level.size for level in self.mesh.machine.levels))

    def children(self, node: Partial) -> Iterator[Partial]:
        """One axis more."""
        if len(node.rows) == len(self.mesh.axes):
            return
        for row in rows(node.left, self.mesh.axes[len(node.rows)].size):
            left = tuple(size // own for size, own in zip(node.left, row, strict=True))
            yield Partial((*node.rows, row), left)

    def objective(self, node: Partial) -> float | None:
        """Seconds, where all axes have rows."""
        if len(node.rows) < len(self.mesh.axes):
            return None
        if node.rows not in self.costed:
            try:
                self.costed[node.rows] = self._cost(node.rows)
            except DiagnosticError as error:  # an algorithm that a step asks for does not fit here
                self.refused = self.refused or error
                return None
        return self.costed[node.rows].time

    def _cost(self, matrix: Matrix) -> Placement:
        mesh = placed(self.mesh, matrix)
        times: dict[str, float] = {}
        chosen: dict[str, str] = {}
        for strategy in sorted(STRATEGIES, key=lambda name: name != "flat"):  # of equal ones: flat
            module = self._module.clone()
            op = next(op for op in unplaced(module) if op.sym_name.data == self._name)
            place(op, mesh)
            functions = _functions_on(module, self._name)
            others = [function for function in functions_of(module) if function not in functions]
            for function in others:
                function.detach()
                function.erase()
            decompose(module, strategy, PatternRewriterListener())
            with meshes_remembered():
                for function in _functions_on(module, self._name):
                    name = function.sym_name.data
                    time = function_cost(function, self._model).time
                    if name not in times or time < times[name]:
                        times[name], chosen[name] = time, strategy
        return Placement(mesh, matrix, times, chosen)


def _functions_on(module: ModuleOp, mesh: str) -> list[FuncOp]:
    reference = SymbolRefAttr(mesh)
    return [f for f in functions_of(module) if f.attributes[MESH_ATTRIBUTE] == reference]


def best_placements(
    module: ModuleOp,
    op: MeshOp,
    model: CostModel,
    top: int = 10,
    seconds: float | None = None,
) -> Placements:
    """The cheapest placements of a mesh for the functions on it, best first.

    Args:
        seconds: after which the best so far are returned; None: all are looked at.

    Raises:
        DiagnosticError: a function has no cost on any placement (see ``cost``).
        MatrixError: the axes do not fit the machine.
    """
    check_programs(_functions_on(module, op.sym_name.data), "has no cost")
    search = _Search(module, op, model)
    mesh = search.mesh
    sizes = [level.size for level in mesh.machine.levels], [axis.size for axis in mesh.axes]
    number = count(*sizes)
    outcome = k_best(search, top, time_limit=seconds)
    if search.refused and not search.costed:
        raise search.refused
    found = tuple(search.costed[one.node.rows] for one in outcome.solutions)
    return Placements(mesh.name, found, number, outcome.status == "optimal")
