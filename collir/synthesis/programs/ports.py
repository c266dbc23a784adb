"""What a step puts on the ports of a machine at least: bounds that guide the search for strategies.

Sets of sub-axes are integers here, a bit each, so that a bound takes microseconds: a search looks
at thousands of steps, and costs only those that may be on the best way.
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
from collir.machine import LinkKind

Array = npt.NDArray[Any]

_NCCL_BASE = 6.6e-6
"""The least latency of any step in NCCL's model (collir.cost.collectives.nccl)."""


def _in_rings(kind: str, model: str) -> bool:
    """Whether a model does a collective in rings always (an all_reduce of NCCL may be a tree)."""
    entry = COSTS[kind]
    if model == "p2":
        return entry.p2[0] == "ring"
    return model == "nccl" and isinstance(entry.nccl, NcclKind) and not entry.nccl.tree


class Ports:
    """The levels of a placed mesh, as the bounds need them.

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
        own = {"p2": 0.0, "nccl": _NCCL_BASE}.get(concrete.model)
        self.latency = [group.latencies[index] if own is None else own for index in used]
        self._model = model
        self._name = concrete.model
        kinds = {level.kind for level in group.levels}
        told_apart = any(level.rails > 1 or level.ports for level in group.levels)
        self._symmetric = kinds <= {LinkKind.SWITCH, LinkKind.BUS} and not told_apart
        self._as_written = (concrete.model, concrete.order) == ("alpha-beta", "written")
        self._empty: dict[tuple[str, int], float] = {}
        self._inner: dict[int, tuple[int, ...]] = {}
        self._sizes: dict[int, int] = {}

    def mask(self, axes: Iterable[str]) -> int:
        """A set of sub-axes."""
        return sum(self.bit[axis] for axis in axes)

    def axes(self, mask: int) -> tuple[str, ...]:
        """The sub-axes of a set, in the order of the hardware: the largest stride first."""
        places = [place for place in range(len(self.names)) if mask >> place & 1]
        places.sort(key=lambda place: -self._stride[place])
        return tuple(self.names[place] for place in places)

    def orders(self, mask: int) -> list[tuple[str, ...]]:
        """The orders of ranks that may cost something else: of the hardware, and backwards."""
        axes = self.axes(mask)
        return [axes, axes[::-1]] if self._as_written and len(axes) > 1 else [axes]

    def size(self, mask: int) -> int:
        """The product of the sizes of a set."""
        known = self._sizes.get(mask)
        if known is None:
            known = math.prod(n for place, n in enumerate(self._size) if mask >> place & 1)
            self._sizes[mask] = known
        return known

    def inner(self, mask: int) -> tuple[int, ...]:
        """For every level the product of the sizes of those of a set that lie further inside."""
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
        """Of a buffer (``size`` of ``Collective``), what passes through the busiest port.

        ``parts`` are the children of a level over which a group of ``ranks`` extends. Rings of n
        ranks send (n-1)/n.
        """
        if _in_rings(kind, self._name):
            parts = ranks
        return COSTS[kind].into(1.0, parts, ranks / parts, False, False)

    def least(self, kind: str, group: int, at_root: int, size: float) -> float:
        """Seconds that a collective takes at least, by any algorithm; ``size`` as ``Collective``'s.

        The latency of an empty one, and the bytes over the busiest port, of all groups behind it.
        """
        if COSTS[kind].listed:  # blocks may be where they belong
            return 0.0
        busy = self.busy(kind, group, at_root, size)
        return float(busy.max(initial=0.0)) + self.empty(kind, group)

    def busy(self, kind: str, group: int, at_root: int, size: float) -> Array:
        """Seconds that its bytes take on the busiest port of every level at least; as ``least``."""
        ranks = float(self.size(group))
        below = np.array(self.inner(group))
        beside = np.array(self.inner(self.all & ~group & ~at_root))
        share = np.where(
            below < ranks, self.share(kind, np.full(len(below), ranks), ranks / below), 0
        )
        return share * size * beside * np.array(self.per_byte)

    def outermost(self, group: int) -> int:
        """The place in ``levels`` of the outermost one that a group extends over."""
        ranks = self.size(group)
        return next(place for place, below in enumerate(self.inner(group)) if below < ranks)

    def empty(self, kind: str, group: int) -> float:
        """Seconds that a collective of no bytes takes at least.

        Whatever reaches n children of a level one by one, or by doubling, goes through their ports
        lg n times or more.
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
        """Seconds of a collective under the model.

        On switches and buses it is the same wherever in a level its sub-axes are, so what is known
        of one mesh serves others of the machine too.

        Raises:
            CostError: see ``step_cost``.
        """
        if not self._symmetric or collective.listed:
            return step_estimate(collective, self._model)[1].time
        group = Group.of(self.mesh, collective.axes, collective.at_root)
        digits = tuple((digit.level, digit.size) for digit in group.digits)
        others = tuple(sorted((digit.level, digit.size) for digit in group.others))
        key = (self.mesh.machine, self._model, collective.kind, digits, others, collective.size)
        known = _TIMES.get(key)
        if known is None:
            if len(_TIMES) >= _MOST_TIMES:
                _TIMES.clear()
            known = _TIMES[key] = step_estimate(collective, self._model)[1].time
        return known


_TIMES: dict[object, float] = {}
_MOST_TIMES = 200_000


def forget_times() -> None:
    """Drops what is known of collectives."""
    _TIMES.clear()


@lru_cache(maxsize=256)
def ports_of(mesh: Mesh, model: CostModel) -> Ports:
    """The ports of a mesh, with what is known of them already."""
    return Ports(mesh, model)
