"""The best placements: on which levels of its machine each axis of a mesh should live.

What a program computes does not depend on that; what it costs does. A placement is costed with
every collective of every function under the cheapest program for it, since that is another one on
each placement. Matrices are filled level by level, the outermost first; what is known of the
columns bounds what the operations take, so that few are filled to the end.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import NamedTuple

from xdsl.dialects.builtin import ModuleOp, SymbolRefAttr
from xdsl.dialects.func import FuncOp

from collir.cost.model import CostModel, step_cost
from collir.cost.network.group import CostError
from collir.cost.programs.cost import collective_between
from collir.dialects.machine import MESH_ATTRIBUTE, MeshOp
from collir.dialects.operation import DistOp
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.ir.functions import check_programs, functions_of
from collir.layout import DistType, Mesh
from collir.layout.numbers import divisors
from collir.machine import Level, LinkKind
from collir.search import Optimum, Problem
from collir.search.core.plan import Order
from collir.synthesis.p2.matrices import Matrix, count, rows
from collir.synthesis.placement.bounds import PartialPlacement, PlacementBounds, Rows
from collir.synthesis.placement.meshes import mesh_of_matrix, renamed_type
from collir.synthesis.programs.cheapest import synthesise
from collir.synthesis.programs.states import StatePaths
from collir.synthesis.searching import TIME, best_of, gap_of, interrupted, remark_cut_off, workers


@dataclass(frozen=True)
class Placement:
    """A mesh on the levels of its machine (or of a part of it), and what its functions take.

    Attributes:
        functions: seconds of each, under the cheapest programs.
        time: their sum, each times its weight.
        bound: seconds that no programs take less than there, by the bounds of the operations; of
            redistributions nothing is counted.
    """

    mesh: Mesh
    matrix: Matrix
    functions: dict[str, float]
    time: float
    bound: float = 0.0


@dataclass(frozen=True)
class Placements:
    """The best placements of a mesh.

    Attributes:
        found: best first.
        count: how many the mesh has.
        costed: how many of these were costed with their cheapest programs; the others are no
            better by their bounds, if that is proven.
        ended: why the search was cut off, so that there may be better ones; or "".
        gap: how much less than the first one another may take, as a part of it; None: not known.
    """

    name: str
    found: tuple[Placement, ...]
    count: int
    costed: int
    ended: str
    gap: float | None

    @property
    def proven(self) -> bool:
        """Whether these are the best."""
        return not self.ended


class PartialMatrix(NamedTuple):
    """The factors of all axes on the first levels.

    Attributes:
        part: the sizes of the levels that are used; None where that is not decided.
        looked: how often costs were looked at more closely, where all levels have factors.
    """

    columns: Matrix = ()
    part: tuple[int, ...] | None = None
    looked: int = 0


@dataclass
class KnownCost:
    """What is known of an operation on a placement.

    Attributes:
        least: seconds that it takes at least.
        closer: whether that is more than the closed form of ``PlacementBounds``.
        time: seconds of the best program that was found; infinite if none has a cost; None if none
            was looked for.
    """

    least: float
    closer: bool = False
    time: float | None = None


class PlacementProblem(Problem[PartialMatrix]):
    """All matrices, column by column; a whole one is worth what its functions take.

    What an operation takes at least is first a closed form, then the least way through the graph of
    its programs, and only where that decides nothing what its cheapest program takes. Each step is
    a node of its own, so that no more is computed than what the order of placements asks for.
    """

    sense = "min"
    sorted_by_bound = True

    def __init__(
        self, functions: list[FuncOp], mesh: Mesh, model: CostModel, weights: Mapping[str, float]
    ):
        self.mesh, self._model = mesh, model
        self._demands = [
            (function.sym_name.data, PlacementBounds(op, mesh, model))
            for function in functions
            for op in function.body.ops
            if isinstance(op, DistOp) and not op.kind.local
        ]
        self._names = [function.sym_name.data for function in functions]
        self._weights = {name: weights.get(name, 1.0) for name in self._names}
        self.parts = list(_parts(mesh.machine.levels, mesh.devices))
        self._symmetric = mesh.machine.symmetric
        self._known: dict[object, KnownCost] = {}
        self._bounds: dict[PartialMatrix, float] = {}
        self.costed: dict[Matrix, Placement | None] = {}
        self.refused: DiagnosticError | None = None
        self.unproven = math.inf
        self.until = math.inf
        self.each = _EACH

    def root(self) -> PartialMatrix:
        """No level has factors."""
        return PartialMatrix()

    def children(self, node: PartialMatrix) -> list[PartialMatrix]:
        """One level more, or a part of the machine, the most promising first; or the same one,
        looked at more closely."""
        if node.part is None:
            return sorted((PartialMatrix((), part) for part in self.parts), key=self.bound)
        if len(node.columns) == len(node.part):
            return [node._replace(looked=node.looked + 1)] if self._look(node) else []
        room = self._room(node)
        left = tuple(room.left.values())
        columns = rows(left, node.part[len(node.columns)])
        after = [node._replace(columns=(*node.columns, column)) for column in columns]
        return sorted(after, key=self.bound)

    def bound(self, node: PartialMatrix) -> float:
        """Seconds that the functions take at least: what is known when it is first asked for, so
        that the order of children stays what it was."""
        if node.part is None:
            return 0.0
        if node not in self._bounds:
            room = self._room(node)
            if len(node.columns) == len(node.part):
                each = [known.least for known in self._all_known(node, room)]
            else:
                each = [demand.least(room) for _, demand in self._demands]
            self._bounds[node] = self._sum(each) * (1 - SLACK)
        return self._bounds[node]

    def objective(self, node: PartialMatrix) -> float | None:
        """Seconds, where all operations are costed."""
        if node.part is None or len(node.columns) < len(node.part):
            return None
        found = self._all_known(node, self._room(node))
        times = [known.time for known in found if known.time is not None]
        if len(times) < len(found):
            return None
        if node.columns not in self.costed:
            self.costed[node.columns] = self._placement(node, times)
            if any(known.least < time for known, time in zip(found, times, strict=True)):
                self.unproven = min(self.unproven, self._now(node))
        placement = self.costed[node.columns]
        return None if placement is None else placement.time

    def identity(self) -> object:
        """Never checkpointed."""
        return id(self)

    def finish(self) -> None:
        """Costs whole matrices until the time is over; one at least, if there is any.

        Those first that promise the most; of about as good ones, those that split axes the least:
        their programs have fewer steps, and are found sooner.
        """
        leaves: dict[Matrix, float] = {}
        for node, bound in self._bounds.items():
            if node.part is not None and len(node.columns) == len(node.part):
                leaves[node.columns] = max(bound, leaves.get(node.columns, 0.0))
        best = min((one.time for one in self.costed.values() if one), default=math.inf)

        def promise(columns: Matrix) -> tuple[int, int]:
            split = sum(factor > 1 for column in columns for factor in column)
            return round(math.log(leaves[columns] or 1.0) / _ABOUT), split

        open_ = [columns for columns, bound in leaves.items() if bound < best]
        for columns in sorted(open_, key=promise):
            if monotonic() > self.until and best < math.inf:
                return
            node = PartialMatrix(columns, tuple(map(math.prod, columns)))
            while self._now(node) < best and self._look(node):
                pass
            time = self.objective(node)
            best = min(best, math.inf if time is None else time)

    def take_over(self, node: PartialMatrix) -> None:
        """Costs a whole matrix that another process has costed."""
        while node.columns not in self.costed and self._look(node):
            self.objective(node)

    def _now(self, node: PartialMatrix) -> float:
        """Seconds that a whole matrix takes at least, as far as is known by now."""
        found = self._all_known(node, self._room(node))
        return self._sum(known.least for known in found) * (1 - SLACK)

    def _sum(self, each: Iterable[float]) -> float:
        """Seconds of all operations, as often as their functions run."""
        both = zip(self._demands, each, strict=True)
        return sum(self._weights[name] * seconds for (name, _), seconds in both)

    def _room(self, node: PartialMatrix) -> PartialPlacement:
        """The machine, as far as it is shared out at a node."""
        assert node.part is not None
        shared = len(node.columns)
        factors = [*zip(*node.columns, strict=True)] or [()] * len(self.mesh.axes)
        each = {axis.name: own for axis, own in zip(self.mesh.axes, factors, strict=True)}
        left = {axis.name: axis.size // math.prod(each[axis.name]) for axis in self.mesh.axes}
        return PartialPlacement(self.mesh.machine.levels, node.part, each, left, shared)

    def _all_known(self, node: PartialMatrix, room: PartialPlacement) -> list[KnownCost]:
        """Of every operation, on the placement of a node."""
        found: list[KnownCost] = []
        for number, (_, demand) in enumerate(self._demands):
            key = (number, node.part, self._key(demand, room.rows))
            if key not in self._known:
                self._known[key] = KnownCost(demand.least(room))
            found.append(self._known[key])
        return found

    def _key(self, demand: PlacementBounds, rows: Rows) -> object:
        """What the cost of an operation depends on: on each level, factors and what becomes of
        them; on links that are not all alike, also which is which."""
        if demand.ordered or not self._symmetric:
            return tuple(rows.values())
        changes = demand.changes.items()
        listed = [(change, rows[axis]) for axis, change in changes if axis not in demand.inert]
        each = (
            sorted((change, row[level]) for change, row in listed if row[level] > 1)
            for level in range(len(self.mesh.machine.levels))
        )
        return tuple(map(tuple, each))

    def _look(self, node: PartialMatrix) -> bool:
        """Whether an operation was looked at more closely: of those that are known the least, the
        one that takes the most."""
        mesh = self._placed(node)
        found = self._all_known(node, self._room(node))
        each = [
            (not known.closer, known.least * self._weights[name], number)
            for number, ((name, _), known) in enumerate(zip(self._demands, found, strict=True))
            if known.time is None
        ]
        if not each:
            return False
        number = max(each)[-1]
        demand, known = self._demands[number][1], found[number]
        if known.closer or demand.ordered or len(mesh.machine.levels) <= _FEW:
            known.time, proven = self._cheapest(demand, mesh)
            known.least = known.time if proven else known.least
        else:
            known.least, known.closer = max(known.least, self._least(demand, mesh)), True
        return True

    def _placed(self, node: PartialMatrix) -> Mesh:
        return mesh_of_matrix(self.mesh, tuple(zip(*node.columns, strict=True)))

    def bounded(self, mesh: Mesh) -> float:
        """Seconds that no programs take less than on a placement."""
        return sum(self._weights[name] * self._bounded(one, mesh) for name, one in self._demands)

    def _bounded(self, demand: PlacementBounds, mesh: Mesh) -> float:
        over = _over(demand, mesh)
        if over == () or demand.placeholder:
            return 0.0
        step = collective_between(demand.name, mesh, *_renamed(demand, mesh), over)
        try:
            return step_cost(step, self._model).shared_bound
        except CostError:
            return 0.0

    def _placement(self, node: PartialMatrix, each: Sequence[float]) -> Placement | None:
        if math.inf in each:
            return None
        times = dict.fromkeys(self._names, 0.0)
        for (function, _), time in zip(self._demands, each, strict=True):
            times[function] += time
        mesh, matrix = self._placed(node), tuple(zip(*node.columns, strict=True))
        return Placement(mesh, matrix, times, self._sum(each))

    def _least(self, demand: PlacementBounds, mesh: Mesh) -> float:
        """Seconds that no way through the graph of an operation's programs takes less than.

        What is padded may be less in a program that scatters over less.
        """
        source, target = _renamed(demand, mesh)
        try:
            paths = StatePaths(mesh, source, target, self._model)
        except CostError:  # as the search will say
            return 0.0
        return paths.root().bound / paths.padding

    def _cheapest(self, demand: PlacementBounds, mesh: Mesh) -> tuple[float, bool]:
        """Seconds of an operation, infinite if it has no cost on a mesh; and whether that is
        proven."""
        source, target = _renamed(demand, mesh)
        try:
            if demand.searched:
                seconds = max(0.1, min(self.each, self.until - monotonic()))
                if math.isinf(seconds):
                    seconds = None
                found = synthesise(mesh, source, target, self._model, seconds=seconds)
                if found.candidates:
                    return found.candidates[0].time, found.proven
                if not found.proven:
                    return math.inf, False
                raise CostError("none of the programs for this has a cost")
            over = _over(demand, mesh)
            if not over:
                return 0.0, True
            step = collective_between(demand.name, mesh, source, target, over, demand.algorithm)
            return step_cost(step, self._model).time, True
        except CostError as error:
            refused = DiagnosticError(Diagnostic(str(error), demand.position))
            self.refused = self.refused or refused
            return math.inf, True


def _over(demand: PlacementBounds, mesh: Mesh) -> tuple[str, ...] | None:
    """The sub-axes that an operation names on a placement; None if it names none."""
    if demand.over is None:
        return None
    return tuple(sub for axis in demand.over for sub in mesh.of_axis[axis])


def _renamed(demand: PlacementBounds, mesh: Mesh) -> tuple[DistType, DistType]:
    """The layouts of operand and result on a placement."""
    names = {axis.name: mesh.of_axis[axis.name] for axis in mesh.axes}
    return renamed_type(demand.source, names), renamed_type(demand.target, names)


SLACK = 1e-8
"""Of a bound: what sums of many times are rounded by, and what the graph counts for a step."""

_FEW = 3
"""On so many levels programs are found about as fast as bounds for them."""

_DIVE = 0.05
"""Of the time: for a search that goes deep first."""

_FINISH = 0.15
"""Of the rest: for costs of what the search thought best, if it has not ended; what is left of that
is for the search again."""

_ABOUT = 0.05
"""By how much bounds may differ, as a part of them, that are about as good."""

_EACH = 5.0
"""Seconds for the program of one operation on one placement."""


def _parts(levels: tuple[Level, ...], devices: int) -> Iterator[tuple[int, ...]]:
    """Which first children of every level make up so many devices.

    Where children have links of their own (rings, full meshes), and ports of several rails, all are
    taken, or one child.
    """
    if not levels:
        if devices == 1:
            yield ()
        return
    first, *rest = levels
    inner = math.prod(level.size for level in rest)
    for size in reversed(divisors(devices)):
        whole = first.kind in (LinkKind.SWITCH, LinkKind.BUS) or size in (1, first.size)
        if size <= first.size and devices // size <= inner and whole:
            for below in _parts(tuple(rest), devices // size):
                if first.rails == 1 or math.prod(below) == inner:
                    yield (size, *below)


def functions_on(module: ModuleOp, mesh: str) -> list[FuncOp]:
    """The functions on a mesh."""
    reference = SymbolRefAttr(mesh)
    return [f for f in functions_of(module) if f.attributes[MESH_ATTRIBUTE] == reference]


def best_placements(
    module: ModuleOp,
    op: MeshOp,
    model: CostModel,
    top: int = 10,
    seconds: float | None = None,
    weights: Mapping[str, float] | None = None,
) -> Placements:
    """The cheapest placements of a mesh for the functions on it, best first.

    Args:
        seconds: after which the best so far are returned; None: the search ends by itself.
        weights: how often each function runs; those that are not named run once.

    Raises:
        DiagnosticError: a function has no cost on any placement (see ``cost``), or no part of the
            machine has as many devices as the mesh.
    """
    functions = functions_on(module, op.sym_name.data)
    check_programs(functions, "has no cost", redistributions=True)
    mesh = op.value()
    search = PlacementProblem(functions, mesh, model, weights or {})
    if not search.parts:
        raise DiagnosticError.at(op, _no_part(mesh))
    sizes = [axis.size for axis in mesh.axes]
    number = sum(count(part, sizes) for part in search.parts)
    if workers() > 1:  # a process does not hear which programs another one has not found
        search.each = math.inf
    ended, bound = _searched(search, top, seconds)
    if not ended and search.unproven < math.inf:
        ended = TIME
    if search.refused and not any(search.costed.values()):
        raise search.refused
    costed = sorted(filter(None, search.costed.values()), key=lambda one: one.time)
    gap = gap_of(costed[0].time if costed else None, bound) if ended else 0.0
    if ended:
        remark_cut_off(op, f"placements of mesh @{mesh.name}", ended, seconds, gap)
    found = tuple(replace(one, bound=search.bounded(one.mesh)) for one in costed[:top])
    return Placements(mesh.name, found, number, len(search.costed), ended, gap)


def _searched(search: PlacementProblem, top: int, seconds: float | None) -> tuple[str, float]:
    """Why the search was cut off, or "", and seconds that no placement takes less than; 0: not
    known."""
    if seconds is None:
        outcome = _best(search, top, None, order="best-first")
        if outcome.statistics.reason:
            search.until = monotonic()
            search.finish()
        return outcome.statistics.reason, _least_of(search, outcome)
    search.until = monotonic() + seconds
    # Depth first finds some soon, best first finds what bounds them
    outcome = _best(search, top, seconds * _DIVE)
    bound = 0.0
    for share in (1 - _FINISH, 1.0):
        left = search.until - monotonic()
        if not outcome.statistics.reason or (bound and left <= 0):
            break
        limit = max(0.0, left * share)
        outcome = _best(search, top, limit, order="best-first")
        bound = max(bound, _least_of(search, outcome))
        if interrupted():
            search.until = monotonic()
        if outcome.statistics.reason:
            search.finish()
    return outcome.statistics.reason, min(bound, search.unproven)


def _best(
    search: PlacementProblem, top: int, seconds: float | None, order: Order = "depth-first"
) -> Optimum[PartialMatrix]:
    """What a search has found, with its costs here; if it has found nothing, of one more matrix."""
    outcome = best_of(search, top, seconds, order=order)
    for solution in outcome.solutions:
        search.take_over(solution.node)
    if workers() > 1 and not outcome.solutions:
        search.finish()
    return outcome


def _least_of(search: PlacementProblem, outcome: Optimum[PartialMatrix]) -> float:
    """Seconds that no placement takes less than, by a search; 0: not known."""
    bound = outcome.bound if isinstance(outcome.bound, float) else 0.0
    return max(0.0, min(bound, search.unproven))


def _no_part(mesh: Mesh) -> str:
    levels = " x ".join(str(level.size) for level in mesh.machine.levels)
    return (
        f"no part of machine @{mesh.machine.name} ({levels}) has the {mesh.devices} devices of "
        f"mesh @{mesh.name}, as many below one child of a level as below another: the nearest "
        f"sizes that fill the machine are {mesh.nearest_sizes()}"
    )
