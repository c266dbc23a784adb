"""The search problem of placements: matrices filled column by column, bounded by their operations.

The results of a program do not depend on its placement, but its cost does. A placement is costed
with every collective of every function under its cheapest program, which differs from placement to
placement. Matrices are filled level by level, outermost first. The columns that are filled bound
the times of the operations, so that few matrices are filled to the end.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import NamedTuple

from xdsl.dialects.func import FuncOp

from collir.cost.model import CostModel, step_cost
from collir.cost.network.group import CostError
from collir.cost.programs.collectives import collective_between
from collir.cost.steps import seconds_sent
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.ir.loops import steps_with_times
from collir.ir.renaming import renamed_type
from collir.layout import DistType, Mesh
from collir.layout.numbers import divisors
from collir.layout.steps import USING
from collir.machine import Level
from collir.search import Problem
from collir.synthesis.placement.bounds import PartialPlacement, PlacementBounds, Rows
from collir.synthesis.placement.matrices import Matrix, rows
from collir.synthesis.placement.meshes import mesh_of_matrix
from collir.synthesis.programs.pricing import Pricing
from collir.synthesis.programs.search_options import SearchOptions
from collir.synthesis.programs.states import StatePaths
from collir.transforms.inlining import function_without_calls

SLACK = 1e-8
"""Relative slack of a bound: rounding of sums of many times, and the penalty per step of the graph
of programs."""

_FEW_LEVELS = 3
"""Number of levels up to which finding a program is about as fast as bounding it."""

_SIMILAR = 0.05
"""Relative difference up to which bounds count as equally promising."""

_PROGRAM_LIMIT = 5.0
"""Seconds to find the program of one operation on one placement."""


@dataclass(frozen=True)
class Placement:
    """A mesh on the levels of its machine (or of a part of it), and the times of its functions.

    Attributes:
        functions: seconds that each function sends under the cheapest programs, by name; what
            devices compute takes the same on every placement, and is left out.
        time: sum of these, each times the weight of its function.
        bound: lower bound in seconds for any programs on this placement, from the bounds of the
            operations; redistributions count as 0.
    """

    mesh: Mesh
    matrix: Matrix
    functions: dict[str, float]
    time: float
    bound: float = 0.0


class PartialMatrix(NamedTuple):
    """The factors of all axes on the outermost levels.

    Attributes:
        part: number of children used on each level; None if not decided yet.
        refinements: how often a cost was refined, once all levels have factors.
    """

    columns: Matrix = ()
    part: tuple[int, ...] | None = None
    refinements: int = 0

    @property
    def complete(self) -> bool:
        """Return whether all levels have factors."""
        return self.part is not None and len(self.columns) == len(self.part)


@dataclass
class KnownCost:
    """The known bounds of the time of an operation on a placement.

    Attributes:
        least: lower bound in seconds.
        refined: whether the bound is better than the closed form of ``PlacementBounds``.
        time: seconds of the best program found; infinite if no program has a cost; None if the
            search for one has not run.
    """

    least: float
    refined: bool = False
    time: float | None = None


class PlacementProblem(Problem[PartialMatrix]):
    """The matrices of a mesh, filled column by column; the objective is the time they send.

    The lower bound of an operation is first a closed form, then the shortest path through the graph
    of its programs, and the time of its cheapest program only where these bounds do not decide.
    Each refinement is a node of its own, so that no cost is computed before the search order asks
    for it.

    Attributes:
        parts: numbers of children per level that together have as many devices as the mesh.
        costed: placements whose operations are all costed, by matrix; None for those without cost.
        refused: the first error of an operation that has no cost.
        unproven: least lower bound in seconds among placements whose cost is not proven.
        deadline: value of ``monotonic()`` at which ``finish`` and searches for programs end.
        program_limit: seconds for each search for a program.
    """

    sense = "min"
    sorted_by_bound = True

    def __init__(
        self, functions: list[FuncOp], mesh: Mesh, model: CostModel, weights: Mapping[str, float]
    ):
        self.mesh, self._model = mesh, model
        self._operations = [
            (function.sym_name.data, times, PlacementBounds(op, mesh, model))
            for function in functions
            for op, times in steps_with_times(function_without_calls(function).body.ops)
            if not op.kind.local
        ]
        self._names = [function.sym_name.data for function in functions]
        self._weights = {name: weights.get(name, 1.0) for name in self._names}
        self.parts = list(_parts(mesh.machine.levels, mesh.devices))
        self._symmetric = mesh.machine.symmetric
        self._known: dict[object, KnownCost] = {}
        self._node_bounds: dict[PartialMatrix, float] = {}
        self.costed: dict[Matrix, Placement | None] = {}
        self.refused: DiagnosticError | None = None
        self.unproven = math.inf
        self.deadline = math.inf
        self.program_limit = _PROGRAM_LIMIT

    def root(self) -> PartialMatrix:
        """Return the matrix in which no level has factors."""
        return PartialMatrix()

    def children(self, node: PartialMatrix) -> list[PartialMatrix]:
        """Return the matrices with one level more, the most promising first.

        The root's children are the parts of the machine. The child of a complete matrix is the
        same matrix with one cost refined.
        """
        if node.part is None:
            return sorted((PartialMatrix((), part) for part in self.parts), key=self.bound)
        if node.complete:
            return [node._replace(refinements=node.refinements + 1)] if self._refine(node) else []
        left = tuple(self._partial_placement(node).left.values())
        columns = rows(left, node.part[len(node.columns)])
        children = [node._replace(columns=(*node.columns, column)) for column in columns]
        return sorted(children, key=self.bound)

    def bound(self, node: PartialMatrix) -> float:
        """Return a lower bound in seconds for the functions.

        The bound of a node is fixed when it is first asked for, so that the order of children does
        not change later.
        """
        if node.part is None:
            return 0.0
        if node not in self._node_bounds:
            placement = self._partial_placement(node)
            if node.complete:
                least = [known.least for known in self._known_costs(node, placement)]
            else:
                least = [bounds.least(placement) for _, _, bounds in self._operations]
            self._node_bounds[node] = self._weighted_sum(least) * (1 - SLACK)
        return self._node_bounds[node]

    def objective(self, node: PartialMatrix) -> float | None:
        """Return the seconds of the functions, or None unless all operations are costed."""
        if not node.complete:
            return None
        costs = self._known_costs(node, self._partial_placement(node))
        times = [known.time for known in costs if known.time is not None]
        if len(times) < len(costs):
            return None
        if node.columns not in self.costed:
            self.costed[node.columns] = self._placement(node, times)
            if any(known.least < time for known, time in zip(costs, times, strict=True)):
                self.unproven = min(self.unproven, self._current_bound(node))
        placement = self.costed[node.columns]
        return None if placement is None else placement.time

    def identity(self) -> object:
        """Return a value that no other problem has: searches are never checkpointed."""
        return id(self)

    def finish(self) -> None:
        """Cost complete matrices until the deadline; at least one, if there is any.

        Matrices that the search has reached are costed; if it has reached none, it follows the most
        promising child. The most promising matrices come first; among similarly promising ones, the
        matrices that split axes least: their programs have fewer steps, and are found sooner.
        """
        node = self.root()
        while not any(reached.complete for reached in self._node_bounds):
            node = min(self.children(node), key=self.bound)
        leaves: dict[Matrix, float] = {}
        for node, bound in self._node_bounds.items():
            if node.complete:
                leaves[node.columns] = max(bound, leaves.get(node.columns, 0.0))
        best = min((p.time for p in self.costed.values() if p), default=math.inf)

        def promise(columns: Matrix) -> tuple[int, int]:
            split = sum(factor > 1 for column in columns for factor in column)
            return round(math.log(leaves[columns] or 1.0) / _SIMILAR), split

        candidates = [columns for columns, bound in leaves.items() if bound < best]
        for columns in sorted(candidates, key=promise):
            if monotonic() > self.deadline and best < math.inf:
                return
            node = PartialMatrix(columns, tuple(map(math.prod, columns)))
            while self._current_bound(node) < best and self._refine(node):
                pass
            time = self.objective(node)
            best = min(best, math.inf if time is None else time)

    def take_over(self, node: PartialMatrix) -> None:
        """Cost a complete matrix that another process has costed."""
        while node.columns not in self.costed and self._refine(node):
            self.objective(node)

    def lower_bound(self, mesh: Mesh) -> float:
        """Return a lower bound in seconds for any programs on a placement."""
        return sum(
            self._weights[name] * times * self._shared_bound(bounds, mesh)
            for name, times, bounds in self._operations
        )

    def _current_bound(self, node: PartialMatrix) -> float:
        """Return a lower bound in seconds for a complete matrix, by what is known now."""
        costs = self._known_costs(node, self._partial_placement(node))
        return self._weighted_sum(known.least for known in costs) * (1 - SLACK)

    def _weighted_sum(self, seconds: Iterable[float]) -> float:
        """Return the sum of the seconds of all operations, weighted by their functions."""
        pairs = zip(self._operations, seconds, strict=True)
        return sum(self._weights[name] * times * time for (name, times, _), time in pairs)

    def _partial_placement(self, node: PartialMatrix) -> PartialPlacement:
        assert node.part is not None
        factors = [*zip(*node.columns, strict=True)] or [()] * len(self.mesh.axes)
        rows = {axis.name: row for axis, row in zip(self.mesh.axes, factors, strict=True)}
        left = {axis.name: axis.size // math.prod(rows[axis.name]) for axis in self.mesh.axes}
        return PartialPlacement(
            self.mesh.machine.levels, node.part, rows, left, shared=len(node.columns)
        )

    def _known_costs(self, node: PartialMatrix, placement: PartialPlacement) -> list[KnownCost]:
        """Return what is known of every operation on the placement of a node."""
        costs: list[KnownCost] = []
        for number, (_, _, bounds) in enumerate(self._operations):
            key = (number, node.part, self._key(bounds, placement.rows))
            if key not in self._known:
                self._known[key] = KnownCost(bounds.least(placement))
            costs.append(self._known[key])
        return costs

    def _key(self, bounds: PlacementBounds, rows: Rows) -> object:
        """Return all that the cost of an operation depends on.

        On a symmetric machine these are the factors on each level and the changes of their axes;
        on other machines, and where order matters, also which axis is which.
        """
        if bounds.ordered or not self._symmetric:
            return tuple(rows.values())
        changes = bounds.changes.items()
        changing = [(change, rows[axis]) for axis, change in changes if axis not in bounds.inert]
        return tuple(
            tuple(sorted((change, row[level]) for change, row in changing if row[level] > 1))
            for level in range(len(self.mesh.machine.levels))
        )

    def _refine(self, node: PartialMatrix) -> bool:
        """Refine the cost of one operation on a complete matrix; return whether there was any.

        The operation is the longest of those with the coarsest bounds.
        """
        mesh = self._mesh(node)
        costs = self._known_costs(node, self._partial_placement(node))
        open_ = [
            (not known.refined, known.least * self._weights[name] * times, number)
            for number, ((name, times, _), known) in enumerate(
                zip(self._operations, costs, strict=True)
            )
            if known.time is None
        ]
        if not open_:
            return False
        number = max(open_)[-1]
        bounds, known = self._operations[number][2], costs[number]
        if known.refined or bounds.ordered or len(mesh.machine.levels) <= _FEW_LEVELS:
            known.time, proven = self._cheapest(bounds, mesh)
            known.least = known.time if proven else known.least
        else:
            known.least = max(known.least, self._shortest_path(bounds, mesh))
            known.refined = True
        return True

    def _mesh(self, node: PartialMatrix) -> Mesh:
        return mesh_of_matrix(self.mesh, tuple(zip(*node.columns, strict=True)))

    def _shared_bound(self, bounds: PlacementBounds, mesh: Mesh) -> float:
        over = _over(bounds, mesh)
        if over == () or bounds.placeholder:
            return 0.0
        ends = _types(bounds, self.mesh, mesh)
        arguments = {n: value for n, value in bounds.arguments.items() if n != USING.name}
        step = collective_between(bounds.name, mesh, *ends, over, arguments)
        try:
            return step_cost(step, self._model).shared_bound
        except CostError:
            return 0.0

    def _placement(self, node: PartialMatrix, times: Sequence[float]) -> Placement | None:
        """Return the placement of a node whose operations take some seconds; None if infinite."""
        if math.inf in times:
            return None
        functions = dict.fromkeys(self._names, 0.0)
        for (name, count, _), time in zip(self._operations, times, strict=True):
            functions[name] += count * time
        matrix = tuple(zip(*node.columns, strict=True))
        return Placement(self._mesh(node), matrix, functions, self._weighted_sum(times))

    def _shortest_path(self, bounds: PlacementBounds, mesh: Mesh) -> float:
        """Return a lower bound in seconds for any path through the graph of programs.

        The padding of a value may be less in a program that scatters over fewer devices.
        """
        source, target = _types(bounds, self.mesh, mesh)
        try:
            paths = StatePaths(mesh, source, target, self._model)
        except CostError:  # the search for a program raises it again
            return 0.0
        return paths.root().bound / paths.padding

    def _cheapest(self, bounds: PlacementBounds, mesh: Mesh) -> tuple[float, bool]:
        """Return the seconds of an operation, and whether they are proven.

        The seconds are infinite if the operation has no cost on the mesh.
        """
        source, target = _types(bounds, self.mesh, mesh)
        try:
            if bounds.searched:
                return self._searched_time(mesh, source, target)
            over = _over(bounds, mesh)
            if not over:
                return 0.0, True
            step = collective_between(bounds.name, mesh, source, target, over, bounds.arguments)
            return seconds_sent(step_cost(step, self._model)), True
        except CostError as error:
            refused = DiagnosticError(Diagnostic(str(error), bounds.position))
            self.refused = self.refused or refused
            return math.inf, True

    def _searched_time(self, mesh: Mesh, source: DistType, target: DistType) -> tuple[float, bool]:
        limit = max(0.1, min(self.program_limit, self.deadline - monotonic()))
        seconds = None if math.isinf(limit) else limit
        options = SearchOptions(self._model, 1, seconds=seconds)
        synthesis = Pricing(mesh, source, target, options).searched()
        proven = not synthesis.cut
        if synthesis.candidates:
            return synthesis.candidates[0].time, proven
        if not proven:
            return math.inf, False
        raise CostError("none of the programs for this has a cost")


def _over(bounds: PlacementBounds, mesh: Mesh) -> tuple[str, ...] | None:
    """Return the sub-axes that an operation names on a placement; None if it takes no axes."""
    if bounds.over is None:
        return None
    return tuple(sub for axis in bounds.over for sub in mesh.of_axis[axis])


def _types(bounds: PlacementBounds, old: Mesh, mesh: Mesh) -> tuple[DistType, DistType]:
    """Return the types of operand and result on a placement of a mesh."""
    names = {axis.name: mesh.of_axis[axis.name] for axis in mesh.axes}
    source = renamed_type(bounds.source, names, old, mesh)
    return source, renamed_type(bounds.target, names, old, mesh)


def _parts(levels: tuple[Level, ...], devices: int) -> Iterator[tuple[int, ...]]:
    """Yield the numbers of first children of every level that together have so many devices.

    Where children have links of their own (rings, full meshes), and below ports of several rails,
    a part has either all children or one child.
    """
    if not levels:
        if devices == 1:
            yield ()
        return
    first, *rest = levels
    inner = math.prod(level.size for level in rest)
    for size in reversed(divisors(devices)):
        divisible = first.uniform or first.parents or size in (1, first.size)
        if size <= first.size and devices // size <= inner and divisible:
            for below in _parts(tuple(rest), devices // size):
                if first.rails == 1 or math.prod(below) == inner:
                    yield (size, *below)
