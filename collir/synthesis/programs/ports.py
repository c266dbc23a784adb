"""Lower bounds on the load that a step puts on the ports of a machine, which guide searches.

Sets of sub-axes are integers in this module, a bit for each sub-axis, so that a bound takes
microseconds: a search looks at thousands of steps, and costs only those that may be on the best
path.
"""

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from collir.cost.collectives import nccl
from collir.cost.collectives.collective import Collective
from collir.cost.collectives.table import COSTS, NcclKind
from collir.cost.model import CostModel, step_estimate
from collir.cost.network.group import Group
from collir.layout import Mesh
from collir.machine import Machine

Array = npt.NDArray[Any]


def _in_rings(kind: str, model: str) -> bool:
    """Return whether a model always uses rings (an all_reduce of NCCL may be a tree)."""
    entry = COSTS[kind]
    if model == "p2":
        return entry.p2[0] == "ring"
    return model == "nccl" and isinstance(entry.nccl, NcclKind) and not entry.nccl.tree


class Ports:
    """The levels of a placed mesh, as the bounds need them.

    Attributes:
        levels: the numbers of the levels that have several children, outermost first.
        per_byte: for each of these levels, the seconds of a byte on the fastest port.
        latency: for each of these levels, the latency that bounds count, in seconds.
        bit: for each sub-axis the set of it alone.
        all: the set of all sub-axes.

    Raises:
        CostError: the mesh is not placed on levels.
    """

    def __init__(self, mesh: Mesh, model: CostModel):
        group = Group.of(mesh, tuple(mesh.by_name))
        self.mesh = mesh
        self.names = tuple(mesh.by_name)
        self.bit = {name: 1 << place for place, name in enumerate(self.names)}
        self.all = (1 << len(self.names)) - 1
        used = [index for index, level in enumerate(group.levels) if level.size > 1]
        self._level = [digit.level for digit in group.digits]
        self._size = [digit.size for digit in group.digits]
        self._stride = [digit.stride for digit in group.digits]
        self.levels = used
        self.per_byte = [1 / group.levels[index].fastest for index in used]
        concrete = model.on(mesh.machine)
        own = {"p2": 0.0, "nccl": nccl.LEAST_BASE}.get(concrete.model)
        self.latency = [group.latencies[index] if own is None else own for index in used]
        self._model = model
        self._name = concrete.model
        self._symmetric = group.machine.symmetric
        self._as_written = (concrete.model, concrete.order) == ("alpha-beta", "written")
        self._empty: dict[tuple[str, int], float] = {}
        self._times = times_on(mesh.machine, model)
        self._inner: dict[int, tuple[int, ...]] = {}
        self._sizes: dict[int, int] = {}

    def mask(self, axes: Iterable[str]) -> int:
        """Return the set of some sub-axes."""
        return sum(self.bit[axis] for axis in axes)

    def axes(self, mask: int) -> tuple[str, ...]:
        """Return the sub-axes of a set in the order of the hardware: the largest stride first."""
        places = [place for place in range(len(self.names)) if mask >> place & 1]
        places.sort(key=lambda place: -self._stride[place])
        return tuple(self.names[place] for place in places)

    def orders(self, mask: int) -> list[tuple[str, ...]]:
        """Return orders of ranks that may differ in cost: the hardware order and its reverse."""
        axes = self.axes(mask)
        return [axes, axes[::-1]] if self._as_written and len(axes) > 1 else [axes]

    def size(self, mask: int) -> int:
        """Return the product of the sizes of the sub-axes of a set."""
        known = self._sizes.get(mask)
        if known is None:
            known = math.prod(n for place, n in enumerate(self._size) if mask >> place & 1)
            self._sizes[mask] = known
        return known

    def inner(self, mask: int) -> tuple[int, ...]:
        """Return for every level the product of the sizes of the sub-axes further inside."""
        known = self._inner.get(mask)
        if known is None:
            known = tuple(
                math.prod(
                    size
                    for place, (size, own) in enumerate(zip(self._size, self._level, strict=True))
                    if mask >> place & 1 and own > level
                )
                for level in self.levels
            )
            self._inner[mask] = known
        return known

    def share(self, kind: str, ranks: Array, parts: Array) -> Array:
        """Return the share of a buffer that passes through the busiest port.

        Rings of n ranks send (n-1)/n.

        Args:
            kind: the collective; the buffer is the ``size`` of ``Collective``.
            ranks: the sizes of groups.
            parts: the numbers of children of a level over which each group extends.
        """
        if _in_rings(kind, self._name):
            parts = ranks
        return COSTS[kind].into(1.0, parts, ranks / parts, False, False)

    def least(self, kind: str, group: int, at_root: int, size: float) -> float:
        """Return a lower bound on the seconds of a collective by any algorithm.

        The bound is the latency of an empty collective, and the time that the bytes of all groups
        behind the busiest port take on it.

        Args:
            kind: the collective.
            group: the sub-axes that it is over.
            at_root: the sub-axes on which only coordinate 0 takes part.
            size: bytes, as of ``Collective``.
        """
        if COSTS[kind].listed:  # blocks may be where they belong
            return 0.0
        busy = self.busy(kind, group, at_root, size)
        return float(busy.max(initial=0.0)) + self.empty(kind, group)

    def busy(self, kind: str, group: int, at_root: int, size: float) -> Array:
        """Return the least seconds that the bytes take on the busiest port of every level.

        The arguments are those of ``least``.
        """
        ranks = float(self.size(group))
        below = np.array(self.inner(group))
        beside = np.array(self.inner(self.all & ~group & ~at_root))
        share = np.where(
            below < ranks, self.share(kind, np.full(len(below), ranks), ranks / below), 0
        )
        return share * size * beside * np.array(self.per_byte)

    def outermost(self, group: int) -> int:
        """Return the place in ``levels`` of the outermost level that a group extends over."""
        ranks = self.size(group)
        return next(place for place, below in enumerate(self.inner(group)) if below < ranks)

    def empty(self, kind: str, group: int) -> float:
        """Return a lower bound on the seconds of a collective of no bytes.

        A message that reaches n children of a level one by one, or by doubling, goes through their
        ports lg n times or more.
        """
        if self._name == "p2":
            return 0.0
        known = self._empty.get((kind, group))
        if known is None:
            if self._name == "nccl":
                known = nccl.least_latency(kind, Group.of(self.mesh, self.axes(group)))
            else:
                inner = self.inner(group)
                outer = [self.size(group), *inner[:-1]]
                known = sum(
                    math.log2(ranks / below) * latency
                    for ranks, below, latency in zip(outer, inner, self.latency, strict=True)
                )
            self._empty[kind, group] = known
        return known

    def time(self, collective: Collective) -> float:
        """Return the seconds of a collective under the model.

        On switches and buses the time does not depend on where in a level the sub-axes are, so a
        time that is known on one mesh serves other meshes of the machine too.

        Raises:
            CostError: see ``step_cost``.
        """
        if not self._symmetric or collective.listed:
            return step_estimate(collective, self._model)[1].time
        group = collective.group()
        digits = tuple((digit.level, digit.size) for digit in group.digits)
        others = tuple(sorted((digit.level, digit.size) for digit in group.others))
        sizes = collective.size, collective.uneven
        key = (collective.kind, collective.algorithm, digits, others, *sizes)
        if key not in self._times:
            if len(self._times) >= _MOST_TIMES:
                self._times.clear()
            self._times[key] = step_estimate(collective, self._model)[1].time
        return self._times[key]


_MOST_TIMES = 200_000


@lru_cache(maxsize=8)
def times_on(machine: Machine, model: CostModel) -> dict[object, float]:
    """Return the times on a machine that are known: its meshes share them."""
    return {}


@lru_cache(maxsize=256)
def ports_of(mesh: Mesh, model: CostModel) -> Ports:
    """Return the ports of a mesh, with the bounds that are known already."""
    return Ports(mesh, model)
