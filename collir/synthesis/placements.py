"""The best placements: on which levels of its machine each axis of a mesh should live.

What a program computes does not depend on that; what it costs does. A placement is costed with
every collective of every function under the cheapest program for it, since that is another one on
each placement. Matrices are filled axis by axis; what is known of the rows bounds what the
operations take, so that few are filled to the end.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import NamedTuple

from xdsl.dialects.builtin import ModuleOp, StringAttr, SymbolRefAttr
from xdsl.dialects.func import FuncOp

from collir.cost.group import CostError
from collir.cost.model import CostModel, step_cost
from collir.cost.program import collective
from collir.dialects import coll
from collir.dialects.coll import AxesAttr, CollOp
from collir.dialects.machine import MESH_ATTRIBUTE, MeshOp
from collir.layout import Mesh
from collir.layout.numbers import divisors
from collir.machine import Level, LinkKind
from collir.search import Problem, k_best
from collir.syntax.diagnostics import DiagnosticError
from collir.syntax.mlir import check_programs, functions_of
from collir.synthesis.demand import Demand, Room, order
from collir.synthesis.meshes import placed, renamed_type
from collir.synthesis.p2.matrices import Matrix, count, rows
from collir.synthesis.search import synthesise
from collir.synthesis.strategies import searched


@dataclass(frozen=True)
class Placement:
    """A mesh on the levels of its machine (or of a part of it), and what its functions take.

    Attributes:
        functions: seconds of each, under the cheapest programs.
        time: their sum, each times its weight.
    """

    mesh: Mesh
    matrix: Matrix
    functions: dict[str, float]
    time: float


@dataclass(frozen=True)
class Placements:
    """The best placements of a mesh.

    Attributes:
        found: best first.
        count: how many the mesh has.
        proven: whether these are the best.
        gap: how much better than the first one another may be, relative to it; None: not known.
    """

    name: str
    found: tuple[Placement, ...]
    count: int
    proven: bool
    gap: float | None


class Partial(NamedTuple):
    """The rows of the first axes, and what is left of each level for the others.

    ``left`` is None where it is not decided which part of the machine is used.
    """

    rows: Matrix = ()
    left: tuple[int, ...] | None = None


_ORDERED = (coll.AllToAllOp, coll.PermuteOp, coll.RedistributeOp)
"""What may cost something else where sub-axes change places."""


class Matrices(Problem[Partial]):
    """All matrices, row by row; a whole one is worth what its functions take."""

    sense = "min"
    sorted_by_bound = True

    def __init__(
        self, functions: list[FuncOp], mesh: Mesh, model: CostModel, weights: Mapping[str, float]
    ):
        self.mesh, self._model, self._weights = mesh, model, weights
        self._demands = [
            (function.sym_name.data, Demand(op, mesh, model))
            for function in functions
            for op in function.body.ops
            if isinstance(op, CollOp) and isinstance(op, (*coll.COLLECTIVES, coll.RedistributeOp))
        ]
        self._names = [function.sym_name.data for function in functions]
        self._order = order([(weights.get(f, 1.0), d) for f, d in self._demands], mesh)
        self._sizes = {axis.name: axis.size for axis in mesh.axes}
        self.parts = list(_parts(mesh.machine.levels, mesh.devices))
        kinds = {level.kind for level in mesh.machine.levels}
        railed = any(level.rails > 1 for level in mesh.machine.levels)
        self._symmetric = kinds <= {LinkKind.SWITCH, LinkKind.BUS} and not railed
        self._times: dict[object, float | None] = {}
        self._bounds: dict[Partial, float] = {}
        self.costed: dict[Partial, Placement | None] = {}
        self.refused: DiagnosticError | None = None
        self.exact = True
        self.until = math.inf

    def root(self) -> Partial:
        """No axis has a row."""
        return Partial()

    def children(self, node: Partial) -> list[Partial]:
        """One axis more, or a part of the machine; the most promising first."""
        return sorted(self._children(node), key=self.bound)

    def _children(self, node: Partial) -> Iterator[Partial]:
        if node.left is None:
            yield from (Partial((), part) for part in self.parts)
        elif len(node.rows) < len(self._order):
            for row in rows(node.left, self._sizes[self._order[len(node.rows)]]):
                left = tuple(size // own for size, own in zip(node.left, row, strict=True))
                yield Partial((*node.rows, row), left)

    def bound(self, node: Partial) -> float:
        """Seconds that the functions take at least."""
        if node.left is None:
            return 0.0
        known = self._bounds.get(node)
        if known is None:
            rows = dict(zip(self._order, node.rows, strict=False))
            sizes = {name: size for name, size in self._sizes.items() if name not in rows}
            room = Room(self.mesh.machine.levels, node.left, rows, sizes)
            known = sum(
                self._weights.get(name, 1.0) * demand.least(room) for name, demand in self._demands
            )
            known = self._bounds[node] = known * (1 - 1e-9)
        return known

    def objective(self, node: Partial) -> float | None:
        """Seconds, where all axes have rows."""
        if node.left is None or len(node.rows) < len(self._order):
            return None
        if node not in self.costed:
            self.costed[node] = self._placement(node)
        found = self.costed[node]
        return None if found is None else found.time

    def identity(self) -> object:
        """Never checkpointed."""
        return id(self)

    def _placement(self, node: Partial) -> Placement | None:
        by_name = dict(zip(self._order, node.rows, strict=True))
        matrix = tuple(by_name[axis.name] for axis in self.mesh.axes)
        mesh = placed(self.mesh, matrix)
        times = dict.fromkeys(self._names, 0.0)
        for number, (function, demand) in enumerate(self._demands):
            key = (number, self._key(demand, by_name))
            if key not in self._times:
                self._times[key] = self._cheapest(demand, mesh)
            if (time := self._times[key]) is None:
                return None
            times[function] += time
        total = sum(self._weights.get(name, 1.0) * time for name, time in times.items())
        return Placement(mesh, matrix, times, total)

    def _key(self, demand: Demand, rows: dict[str, tuple[int, ...]]) -> object:
        """What the cost of an operation depends on: on each level, factors and what becomes of
        them; on links that are not all alike, also which is which."""
        listed = [(name, rows[name]) for name in demand.states]
        if not self._symmetric or isinstance(demand.op, _ORDERED):
            return tuple(listed)
        each = [
            sorted((demand.states[name], row[index]) for name, row in listed if row[index] > 1)
            for index in range(len(self.mesh.machine.levels))
        ]
        return tuple(map(tuple, each))

    def _cheapest(self, demand: Demand, mesh: Mesh) -> float | None:
        """Seconds of an operation; None if it has no cost on a mesh."""
        names = {axis.name: mesh.of_axis[axis.name] for axis in mesh.axes}
        source, target = (renamed_type(x, names) for x in (demand.source, demand.target))
        op = demand.op
        try:
            if searched(op):
                seconds = max(0.1, min(_EACH, self.until - monotonic()))
                found = synthesise(mesh, source, target, self._model, seconds=seconds)
                self.exact &= found.proven
                if found.candidates:
                    return found.candidates[0].time
                raise CostError("none of the programs for this has a cost")
            axes, algorithm = op.properties.get("axes"), op.properties.get("algorithm")
            assert isinstance(axes, AxesAttr) and isinstance(algorithm, StringAttr)
            over = tuple(sub for axis in axes.data for sub in names[axis])
            if not over:
                return 0.0
            step = collective(op.mnemonic, mesh, source, target, over, algorithm.data)
            return step_cost(step, self._model).time
        except CostError as error:
            self.refused = self.refused or DiagnosticError.at(op, str(error))
            return None


_DIVE = 0.2
"""Of the time: for a search that goes deep first."""

_EACH = 5.0
"""Seconds for the program of one operation on one placement."""

_ENDED = ("optimal", "infeasible")


def _parts(levels: tuple[Level, ...], devices: int) -> Iterator[tuple[int, ...]]:
    """Which first children of every level make up so many devices.

    Rings, full meshes and ports of several rails are taken whole, or one child of them.
    """
    if not levels:
        if devices == 1:
            yield ()
        return
    first, *rest = levels
    inner = math.prod(level.size for level in rest)
    for size in reversed(divisors(devices)):
        whole = size in (1, first.size) if first.kind in (LinkKind.RING, LinkKind.FULL) else True
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
    search = Matrices(functions, mesh, model, weights or {})
    if not search.parts:
        raise DiagnosticError.at(op, _no_part(mesh))
    sizes = [axis.size for axis in mesh.axes]
    number = sum(count(part, sizes) for part in search.parts)
    outcome = None
    if seconds is not None:
        search.until = monotonic() + seconds
        # Depth first finds some soon, best first finds what bounds them
        outcome = k_best(search, top, time_limit=seconds * _DIVE, progress=False)
        seconds = max(0.0, search.until - monotonic())
    if outcome is None or outcome.status not in _ENDED:
        order = "best-first"
        outcome = k_best(search, top, order=order, time_limit=seconds, progress=False)
    if search.refused and not any(search.costed.values()):
        raise search.refused
    costed = sorted(filter(None, search.costed.values()), key=lambda one: one.time)
    proven = outcome.status in _ENDED and search.exact
    gap = 0.0 if proven else None
    if costed and costed[0].time and isinstance(outcome.bound, float) and not proven:
        gap = max(0.0, 1 - outcome.bound / costed[0].time)
    return Placements(mesh.name, tuple(costed[:top]), number, proven, gap)


def _no_part(mesh: Mesh) -> str:
    levels = " x ".join(str(level.size) for level in mesh.machine.levels)
    return (
        f"no part of machine @{mesh.machine.name} ({levels}) has the {mesh.devices} devices of "
        f"mesh @{mesh.name}, as many below one child of a level as below another: the nearest "
        f"sizes that fill the machine are {mesh.nearest_sizes()}"
    )
