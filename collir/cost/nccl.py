"""NCCL's own model of its collectives: latency + bytes / bandwidth, the best of its protocols.

From NCCL 2.30, src/graph/tuning.cc and topo.h, for Intel hosts. The limits it sets per channel are
left out: how many channels it makes is not in the description of a machine. A node is what lies
below the innermost level that is a network; ``fabric`` says which those are, else all but the
innermost level. Sends and receives (all_to_all, gather, scatter, permute) are not in NCCL's
model: here they take the base latency, a hop, and their bytes over the busiest port.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from collir.cost.collectives import COSTS, NcclKind
from collir.cost.group import CostError, Group
from collir.machine import Fabric, Level

_US = 1e-6
_PROTOCOLS = ("LL", "LL128", "Simple")
_BASE = {"tree": (6.8, 14.0, 8.4), "ring": (6.6, 14.0, 8.4)}
_HOP = {
    Fabric.NVLINK: {"tree": (0.6, 1.25, 4.0), "ring": (0.6, 1.9, 3.4)},
    Fabric.PCI: {"tree": (1.0, 1.9, 4.0), "ring": (1.0, 2.5, 5.7)},
    Fabric.NETWORK: {"tree": (5.0, 8.5, 14.0), "ring": (2.7, 4.0, 14.0)},
}
_OVERHEAD = (1.0, 1.0, 3.0)
"""What a hop costs at least where there are several nodes (Intel)."""

_LL_MAX = {1: 87.7e9, 2: 39.0e9}
_LL_MAX_MORE = 20.4e9
"""The most that LL carries, by nodes: of an A100 (one node), of an Intel host (more)."""


@dataclass(frozen=True)
class NcclEstimate:
    """What NCCL expects: the algorithm with its protocol, and seconds."""

    algorithm: str
    time: float


@dataclass(frozen=True)
class _Shape:
    """What NCCL looks at: ranks, nodes, the links inside a node, and the bandwidth of a ring."""

    ranks: int
    nodes: int
    intra: Fabric
    bus: float


def fabrics(levels: Sequence[Level]) -> list[Fabric]:
    """What each level is made of: as said, or NVLink innermost and network outside of it."""
    last = len(levels) - 1
    return [
        level.fabric or (Fabric.NVLINK if index == last else Fabric.NETWORK)
        for index, level in enumerate(levels)
    ]


def _shape(group: Group) -> _Shape:
    kinds = fabrics(group.levels)
    networks = [index for index, kind in enumerate(kinds) if kind is Fabric.NETWORK]
    nodes = group.spread(networks[-1]) if networks else 1
    intra = Fabric.PCI if Fabric.PCI in kinds else Fabric.NVLINK
    bus = min(
        port / beside
        for level, (port, beside) in enumerate(zip(group.ports, group.beside, strict=True))
        if group.spread(level) > 1
    )
    return _Shape(group.size, nodes, intra, bus)


def latency(
    algorithm: str, protocol: str, ranks: int, nodes: int, intra: Fabric, kind: str
) -> float:
    """NCCL's latency of a collective in seconds; ``algorithm`` is ``ring`` or ``tree``."""
    index = _PROTOCOLS.index(protocol)
    hop = _HOP[intra][algorithm][index]
    inter = _HOP[Fabric.NETWORK][algorithm][index]
    ways = COSTS[kind].ways
    if algorithm == "tree":
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


def _bandwidth(algorithm: str, protocol: str, shape: _Shape, kind: str) -> float:
    """Bytes of the full buffer per second."""
    share = {"LL": 0.5, "LL128": 0.92, "Simple": 1.0}[protocol]
    bus = shape.bus * (min(share, 0.92) if algorithm == "tree" else share)
    if protocol == "LL":
        bus = min(bus, _LL_MAX.get(shape.nodes, _LL_MAX_MORE))
    if algorithm == "tree":
        return bus / 2
    known = _known(kind)
    return bus * shape.ranks / known.steps(shape.ranks)


def estimate(kind: str, group: Group, size: float, algorithm: str | None = None) -> NcclEstimate:
    """The fastest algorithm and protocol for a full buffer of ``size`` bytes.

    ``algorithm`` is ``ring`` or ``double_binary_tree``, to have that one.

    Raises:
        CostError: NCCL does not have the algorithm for this collective.
    """
    names = {"ring": "ring"} | ({"double_binary_tree": "tree"} if _known(kind).tree else {})
    if algorithm is not None and algorithm not in names:
        raise CostError(f"NCCL's model has no {algorithm} for {kind}: it has {' and '.join(names)}")
    shape = _shape(group)
    found = [
        NcclEstimate(
            f"{shown}/{protocol}",
            latency(name, protocol, shape.ranks, shape.nodes, shape.intra, kind)
            + size / _bandwidth(name, protocol, shape, kind),
        )
        for shown, name in names.items()
        for protocol in _PROTOCOLS
        if algorithm in (None, shown)
    ]
    return min(found, key=lambda one: one.time)


def send_latency(group: Group) -> float:
    """The latency of a send and receive: the base, and a hop of the slowest link in between."""
    kinds = fabrics(group.levels)
    crossed = [kinds[level] for level in range(len(kinds)) if group.spread(level) > 1]
    hop = max((_HOP[kind]["ring"][2] for kind in crossed), default=0.0)
    return (_BASE["ring"][2] + hop) * _US
