"""NCCL's collectives: the algorithm and protocol that NCCL takes, and how long these take.

NCCL takes what it expects to be fastest. Its estimate is that of NCCL 2.30 (src/graph/tuning.cc and
topo.h), for Intel hosts: latency + bytes / bandwidth, with constants for NVLink, PCIe and networks.
The limits it sets per channel are left out, as the description of a machine does not say how many
channels there are; so is the wider tree that it may find between two nodes.

The time is that of the machine: its latencies take the place of NCCL's constants (the hop of a ring
under the protocol Simple; other hops in proportion), and trees send what their structure says. A
node is what lies below the innermost level that is a network. Sends and receives (all_to_all,
gather, scatter, permute) are not in NCCL's estimate: here they take the base latency, a hop, and
their bytes over the busiest port.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from collir.cost.collectives.algorithms import double_tree_all_reduce
from collir.cost.collectives.table import COSTS, NcclKind
from collir.cost.network.group import CostError, Group
from collir.cost.network.loads import resource_seconds
from collir.cost.network.rings import Ring
from collir.machine import Fabric, level_fabrics

RING, TREE, NVLS, NVLS_TREE = "ring", "double_binary_tree", "nvls", "nvls_tree"
ALGORITHMS = (RING, TREE, NVLS, NVLS_TREE)
"""The algorithms that NCCL has; the names of those in the table of steps are the same."""

_US = 1e-6
_PROTOCOLS = ("LL", "LL128", "Simple")
_BASE = {TREE: (6.8, 14.0, 8.4), RING: (6.6, 14.0, 8.4)}
_NVLINK = {TREE: (0.6, 1.25, 4.0), RING: (0.6, 1.9, 3.4)}
_PCI = {TREE: (1.0, 1.9, 4.0), RING: (1.0, 2.5, 5.7)}
_HOP = {
    Fabric.NVLINK: _NVLINK,
    Fabric.ICI: _NVLINK,
    Fabric.PCI: _PCI,
    Fabric.MEMORY: _PCI,
    Fabric.NETWORK: {TREE: (5.0, 8.5, 14.0), RING: (2.7, 4.0, 14.0)},
}
_OVERHEAD = (1.0, 1.0, 3.0)
"""What a hop costs at least where there are several nodes (Intel)."""

_NVLS_HOP = 25.0
_NVLS_TREE_HOP = 20.9
"""Latencies of NVLS inside a node, and of each hop of its tree between nodes."""

_SHARE = {"LL": 0.5, "LL128": 0.92, "Simple": 1.0}
_LL_MAX = {1: 87.7e9, 2: 39.0e9}
_LL_MAX_MORE = 20.4e9
"""The most that LL carries, by nodes: of an A100 (one node), of an Intel host (more)."""

_TREE_EFFICIENCY = 0.92
"""The part of the links inside a node that trees use."""


@dataclass(frozen=True)
class NcclEstimate:
    """The algorithm that NCCL runs, with its protocol, and the seconds that it takes."""

    algorithm: str
    time: float


@dataclass(frozen=True)
class _Shape:
    """A group as NCCL sees it.

    Attributes:
        ranks, nodes: how many there are.
        fabric: the links inside a node.
        inside, between: seconds in which a byte passes once through the busiest port inside a node,
            and between nodes.
        hops: the latencies of the machine as multiples of NCCL's, inside a node and between nodes.
        nvls: bytes per second of an all_reduce in the switches of a node (busbw); 0: they do not
            reduce.
    """

    ranks: int
    nodes: int
    fabric: Fabric
    inside: float
    between: float
    hops: tuple[float, float]
    nvls: float

    @property
    def ring(self) -> float:
        """Seconds in which a byte goes around a ring once."""
        return max(self.inside, self.between)

    @property
    def below(self) -> int:
        """The ranks of a node."""
        return self.ranks // self.nodes


@lru_cache(maxsize=4096)
def _shape(group: Group) -> _Shape:
    kinds = level_fabrics(group.levels)
    outside = max((i for i, kind in enumerate(kinds) if kind is Fabric.NETWORK), default=-1) + 1
    crossed = [index for index in range(len(kinds)) if group.spread(index) > 1]
    inner = [index for index in crossed if index >= outside]
    passing = [0.0, 0.0]
    for (level, _), seconds in resource_seconds(group, Ring().loads(group)):
        place = int(level < outside)
        passing[place] = max(passing[place], seconds)
    hops = [1.0, 1.0]
    for place in (0, 1):
        ratios = [
            group.levels[index].latency / (_HOP[kinds[index]][RING][-1] * _US)
            for index in crossed
            if (index < outside) == place
        ]
        hops[place] = max(ratios, default=1.0)
    reducing = [group.levels[index].nvls or 0.0 for index in inner]
    ranks, nodes = group.size, group.spread(outside - 1) if outside else 1
    return _Shape(
        ranks,
        nodes,
        Fabric.PCI if Fabric.PCI in (kinds[i] for i in inner) else Fabric.NVLINK,
        passing[0],
        passing[1],
        (hops[0], hops[1]),
        min(reducing, default=0.0) if ranks // nodes > 2 else 0.0,
    )


def latency(
    algorithm: str,
    protocol: str,
    kind: str,
    ranks: int,
    nodes: int,
    fabric: Fabric,
    hops: tuple[float, float] = (1.0, 1.0),
) -> float:
    """Return NCCL's latency of a collective in seconds.

    ``fabric`` is that inside a node; ``hops`` are factors of the latencies inside a node and
    between nodes.
    """
    ways = COSTS[kind].ways
    if algorithm in (NVLS, NVLS_TREE):
        tree = 2 * math.log2(nodes) * _NVLS_TREE_HOP * hops[1]
        return (_NVLS_HOP * hops[0] + tree) * _US
    index = _PROTOCOLS.index(protocol)
    hop = _HOP[fabric][algorithm][index] * hops[0]
    inter = _HOP[Fabric.NETWORK][algorithm][index] * hops[1]
    if algorithm == TREE:
        rest = ways * ((ranks / nodes - 1) * hop + math.log2(nodes) * inter)
    else:
        crossing = ways * (nodes - 1)
        overhead = _OVERHEAD[index] if nodes > 1 else 0.0
        rest = (ways * (ranks - 1) - crossing) * max(hop, overhead) + crossing * inter
    return (_BASE[algorithm][index] + rest) * _US


def _known(kind: str) -> NcclKind:
    known = COSTS[kind].nccl
    assert isinstance(known, NcclKind), f"NCCL has no model of {kind}"
    return known


def has_algorithm(kind: str, algorithm: str) -> bool:
    """Return whether NCCL's model has an algorithm for a collective."""
    known = COSTS[kind].nccl
    return isinstance(known, NcclKind) and (algorithm == RING or known.tree)


def _tree_share(protocol: str, nodes: int) -> float:
    """Return the part of what a tree sends that is data, as NCCL counts it."""
    return {"LL": 1 / 3.8, "LL128": 120 / 128 if nodes > 1 else 7 / 9}.get(protocol, 1.0)


def _per_byte(algorithm: str, protocol: str, shape: _Shape, kind: str) -> tuple[float, float]:
    """Return seconds per byte of the full buffer: as NCCL expects them, and on the machine."""
    share = _SHARE[protocol]
    least = 1 / _LL_MAX.get(shape.nodes, _LL_MAX_MORE) if protocol == "LL" else 0.0
    if algorithm == RING:
        turns = _known(kind).steps(shape.ranks) / shape.ranks
        time = turns * max(shape.ring / share, least)
        return time, time
    times = double_tree_all_reduce.own[min(shape.nodes, 4) - 2] if shape.nodes > 1 else 0.0
    between = times * shape.between
    if algorithm == TREE:
        share = _tree_share(protocol, shape.nodes)
        passes = 2 if shape.below > 1 else times
        inside = passes * shape.inside / (share * _TREE_EFFICIENCY)
        expected = 2 * max(shape.ring / (share * _TREE_EFFICIENCY), least)
        return expected, max(inside, between / share, 2 * least)
    assert shape.nvls
    time = max(2 * (shape.below - 1) / shape.below / shape.nvls, between)
    return time, time


def _ways(kind: str, shape: _Shape, algorithm: str | None) -> Iterator[tuple[str, str]]:
    """The algorithms and protocols that NCCL may take."""
    for name in (RING, TREE) if _known(kind).tree else (RING,):
        if algorithm in (None, name):
            yield from ((name, protocol) for protocol in _PROTOCOLS)
    if _known(kind).tree and shape.nvls:
        name = NVLS if shape.nodes == 1 else NVLS_TREE
        if algorithm in (None, NVLS, NVLS_TREE):
            yield name, "Simple"


def estimate(kind: str, group: Group, size: float, algorithm: str | None = None) -> NcclEstimate:
    """Return what NCCL takes for a full buffer of ``size`` bytes.

    ``algorithm`` is one of ``ALGORITHMS``, to have that one.

    Raises:
        CostError: NCCL does not have the algorithm for this collective.
    """
    shape = _shape(group)
    place = (shape.ranks, shape.nodes, shape.fabric)
    ways = list(_ways(kind, shape, algorithm))
    if not ways:
        known = dict.fromkeys(name for name, _ in _ways(kind, shape, None))
        raise CostError(f"NCCL's model has no {algorithm} for {kind}: it has {' and '.join(known)}")
    found: list[tuple[float, NcclEstimate]] = []
    for name, protocol in ways:
        expected, per_byte = _per_byte(name, protocol, shape, kind)
        guess = latency(name, protocol, kind, *place) + size * expected
        time = latency(name, protocol, kind, *place, shape.hops) + size * per_byte
        found.append((guess, NcclEstimate(f"{name}/{protocol}", time)))
    return min(found, key=lambda one: one[0])[1]


def switch_advantage(group: Group) -> float:
    """Return how many times as many bytes an all_reduce counts on the ports of a node as in its
    switches, where they reduce; 0 where they do not."""
    shape = _shape(group)
    if not shape.nvls:
        return 0.0
    return (1 - 1 / shape.ranks) / (1 - 1 / shape.below)


def least_latency(kind: str, group: Group) -> float:
    """Return the seconds that a collective takes at least, however small it is."""
    if not isinstance(COSTS[kind].nccl, NcclKind):
        return send_latency(group)
    shape = _shape(group)
    return min(
        latency(name, protocol, kind, shape.ranks, shape.nodes, shape.fabric, shape.hops)
        for name, protocol in _ways(kind, shape, None)
    )


def send_latency(group: Group) -> float:
    """Return the latency of a send and receive: the base, and the longest hop in between."""
    crossed = [level for index, level in enumerate(group.levels) if group.spread(index) > 1]
    hop = max((level.latency for level in crossed), default=0.0)
    return _BASE[RING][-1] * _US + hop
