"""NCCL's collectives: the algorithm and the protocol that NCCL chooses, and the time they take.

NCCL chooses the algorithm and protocol for which it expects the shortest time. Its estimate is that
of NCCL 2.30 (src/graph/tuning.cc and topo.h), for Intel hosts: latency + bytes / bandwidth, with
constants for NVLink, PCIe and networks. Its limits per channel are left out, as the description of
a machine does not say how many channels there are; so is the wider tree that it may find between
two nodes.

The reported time is that of the machine. It replaces NCCL's constants by the machine's latencies:
a level's latency stands for NCCL's hop of a ring under the protocol Simple. Other hops change in
proportion; hops of a slower network all take longer by one amount, the time of its software for a
message. The bytes of trees follow from their structure. A node is the part of the machine below the
innermost level that is a network. NCCL does not estimate sends and receives (all_to_all, gather,
scatter, permute): here they take the base latency, one hop, and their bytes over the busiest port.

NCCL sends chunks, and the last one leaves a hop when it has come over the one before. So the time
includes that of one chunk of all channels. A ring has one more hop between nodes than NCCL counts,
back to the first of them.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from operator import itemgetter

from collir.algorithms.patterns import BothWays
from collir.cost.collectives.phases import Latencies
from collir.cost.collectives.pipelines import double_tree_all_reduce
from collir.cost.collectives.table import COSTS, NcclKind
from collir.cost.network.group import CostError, Group
from collir.cost.network.loads import ResourceKind, resource_seconds
from collir.cost.network.rings import loads_of
from collir.machine import Fabric, level_fabrics, parents_fabric

RING, TREE, NVLS, NVLS_TREE = "ring", "double_binary_tree", "nvls", "nvls_tree"
ALGORITHMS = (RING, TREE, NVLS, NVLS_TREE)
"""NCCL's algorithms, by the names in the table of steps where they are in it."""

_US = 1e-6
_PROTOCOLS = ("LL", "LL128", "Simple")

# Latencies in microseconds, by algorithm and protocol (tuning.cc: baseLatencies, hwLatencies).
_BASE = {TREE: (6.8, 14.0, 8.4), RING: (6.6, 14.0, 8.4)}
LEAST_BASE = min(min(row) for row in _BASE.values()) * _US
"""The least latency of any step, in seconds."""
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
"""Smallest latency of a hop if there are several nodes, in microseconds, by protocol (Intel)."""

_NVLS_RANKS = 5
"""The ranks of a node from which on its switches reduce: four H200 take a ring (nccl-tests)."""

_NVLS_HOP = 25.0
_NVLS_TREE_HOP = 20.9
"""Latencies of NVLS inside a node and of a hop of its tree between nodes, in microseconds."""

_IN_FLIGHT = {"LL": 1.8e6, "LL128": 3.2e6, "Simple": 7.1e6}
"""The bytes of one chunk of all channels, by protocol: fitted to nccl-tests of 28 clusters, sizes
from 8 B to 16 GB on 2 to 32 GPUs (benchmarks/nccl.py)."""

_NVLS_IN_FLIGHT = 16.8e6
"""The bytes of the chunks in switches that reduce: 128 KB of each of 16 channels and 8 ranks
(nvls.cc: NVLS_CHUNKSIZE, NVLS_NCHANNELS)."""

_CHUNK = 35e-6
"""The longest that a chunk takes, in seconds: slower links have fewer channels. So long take 512 KB
at the 15 GB/s or so of a channel."""

_SHARE = {"LL": 0.5, "LL128": 0.92, "Simple": 1.0}
"""The part of the bandwidth that carries data in a ring, by protocol."""

_LL_MAX = {1: 87.7e9, 2: 39.0e9}
_LL_MAX_MORE = 20.4e9
"""Largest bandwidth of LL in bytes/second by number of nodes: of an A100 for one node, of an Intel
host for more."""

_TREE_EFFICIENCY = 0.92
"""The part of the bandwidth inside a node that trees use."""

_TREE_PARTS = {
    "LL": (1, 1, 1, 1, 0.9, 0.8, *[0.7] * 4, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1),
    "LL128": (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, *[0.6] * 6, 0.8, *[0.9] * 4, 1),
    "Simple": (
        *[0.9] * 7,
        0.8,
        0.7,
        0.6,
        0.6,
        *[0.5] * 4,
        0.6,
        0.7,
        0.8,
        0.7,
        0.7,
        0.8,
        0.9,
        0.9,
        1,
    ),
}  # fmt: skip
"""The part of their bandwidth that trees reach, by protocol, for all_reduces of 64 B, 128 B, ...
(tuning.cc: treeCorrectionFactor); larger ones reach the last part."""


@dataclass(frozen=True)
class NcclEstimate:
    """The algorithm and protocol that NCCL runs, as ``algorithm/protocol``, its seconds, and the
    seconds of its latencies."""

    algorithm: str
    time: float
    latencies: Latencies = ()


@dataclass(frozen=True)
class _Shape:
    """A group as NCCL sees it.

    Attributes:
        ranks, nodes: their numbers.
        fabric: the fabric inside a node.
        inside, between: seconds per byte of a ring through its busiest port inside a node, and
            between nodes.
        hops: the latencies of the machine divided by NCCL's, inside a node and between nodes.
        software: seconds that a hop between nodes takes longer than NCCL's.
        slowest: the levels of these latencies.
        nvls: bytes per second of the buffers of an all_reduce in the switches of a node; 0 if they
            do not reduce.
    """

    ranks: int
    nodes: int
    fabric: Fabric
    inside: float
    between: float
    hops: tuple[float, float]
    software: float
    slowest: tuple[int | None, int | None]
    nvls: float

    @property
    def ring(self) -> float:
        """Seconds per byte that goes around a ring once."""
        return max(self.inside, self.between)

    @property
    def below(self) -> int:
        """The ranks of a node."""
        return self.ranks // self.nodes


@lru_cache(maxsize=4096)
def _shape(group: Group) -> _Shape:
    fabrics = level_fabrics(group.levels)
    networks = max((i for i, kind in enumerate(fabrics) if kind is Fabric.NETWORK), default=-1) + 1
    crossed = [index for index in range(len(fabrics)) if group.spread(index) > 1]
    inner = [index for index in crossed if index >= networks]
    outer = [index for index in crossed if index < networks]
    inside = between = 0.0
    parents = group.levels[0].parents
    hosts = parents_fabric(group.levels) is Fabric.NETWORK
    for (level, kind, _), seconds in resource_seconds(group, loads_of(BothWays(), group)):
        if level < networks or (hosts and kind is ResourceKind.PARENT):
            between = max(between, seconds)
        else:
            inside = max(inside, seconds)

    def slowest(levels: list[int]) -> tuple[float, int | None]:
        """Return the largest latency of levels, divided by NCCL's, and its outermost level."""
        nccl_hops = ((index, _HOP[fabrics[index]][RING][-1] * _US) for index in levels)
        factors = ((group.levels[index].latency / hop, index) for index, hop in nccl_hops)
        return max(factors, key=itemgetter(0), default=(1.0, None))

    ranks, nodes = group.size, group.spread(networks - 1) if networks else 1
    in_nodes, between_nodes = slowest(inner), slowest(outer)
    if parents and hosts and not networks:
        nodes = group.parents_reached
        between_nodes = parents.level.latency / (_HOP[Fabric.NETWORK][RING][-1] * _US), 0
    nvls = min((group.levels[index].reduced for index in inner), default=0.0)
    network = _HOP[Fabric.NETWORK][RING][-1] * _US
    software = max(0.0, (between_nodes[0] - 1) * network) if nodes > 1 else 0.0
    return _Shape(
        ranks,
        nodes,
        Fabric.PCI if Fabric.PCI in (fabrics[i] for i in inner) else Fabric.NVLINK,
        inside,
        between,
        (in_nodes[0], min(1.0, between_nodes[0])),
        software,
        (in_nodes[1], between_nodes[1]),
        nvls if ranks // nodes >= _NVLS_RANKS else 0.0,
    )


def latencies(
    algorithm: str,
    protocol: str,
    kind: str,
    ranks: int,
    nodes: int,
    fabric: Fabric,
    hops: tuple[float, float] = (1.0, 1.0),
    software: float = 0.0,
    around: bool = False,
) -> tuple[float, float, float]:
    """Return NCCL's latencies of a collective in seconds: of its start, of the hops inside nodes,
    and of those between nodes.

    Args:
        fabric: the fabric inside a node.
        hops: factors of the latencies of hops inside a node and between nodes.
        software: seconds that each hop between nodes takes longer.
        around: count the hop back to the first node of a ring, which NCCL leaves out: what the
            second rank of a node sends to the first goes over it.
    """
    ways = COSTS[kind].ways
    if algorithm in (NVLS, NVLS_TREE):
        tree = 2 * math.log2(nodes) * (_NVLS_TREE_HOP * hops[1] * _US + software)
        return 0.0, _NVLS_HOP * hops[0] * _US, tree
    index = _PROTOCOLS.index(protocol)
    hop = _HOP[fabric][algorithm][index] * hops[0]
    inter = _HOP[Fabric.NETWORK][algorithm][index] * hops[1]
    if algorithm == TREE:
        inside, between = ways * (ranks / nodes - 1), ways * math.log2(nodes)
    else:
        between = ways * (nodes - 1)
        if around and nodes > 1:  # all edges in each round but one, as far inside nodes as can be
            between = ways * nodes - ways // (ranks // nodes)
        inside = ways * (ranks - 1) - between
        hop = max(hop, _OVERHEAD[index] if nodes > 1 else 0.0)
    return _BASE[algorithm][index] * _US, inside * hop * _US, between * (inter * _US + software)


def _own_latencies(
    algorithm: str, protocol: str, kind: str, shape: _Shape
) -> tuple[float, float, float]:
    """Return the latencies of a collective on the machine of a group."""
    place = shape.ranks, shape.nodes, shape.fabric
    return latencies(algorithm, protocol, kind, *place, shape.hops, shape.software, around=True)


def _nccl_kind(kind: str) -> NcclKind:
    entry = COSTS[kind].nccl
    assert isinstance(entry, NcclKind), f"NCCL has no model of {kind}"
    return entry


def has_algorithm(kind: str, algorithm: str) -> bool:
    """Return whether NCCL's model has an algorithm for a collective."""
    entry = COSTS[kind].nccl
    known = ALGORITHMS if isinstance(entry, NcclKind) and entry.tree else (RING,)
    return isinstance(entry, NcclKind) and algorithm in known


def _tree_share(protocol: str, nodes: int) -> float:
    """Return the part of the bandwidth that carries data in a tree."""
    return {"LL": 1 / 3.8, "LL128": 120 / 128 if nodes > 1 else 7 / 9}.get(protocol, 1.0)


def _per_byte(algorithm: str, protocol: str, shape: _Shape, kind: str) -> tuple[float, float]:
    """Return seconds per byte of a buffer of any size: as NCCL expects them, and on the machine.

    A ring sends steps/ranks buffers around. A tree sends two buffers in NCCL's estimate; on the
    machine, as many as the double binary tree sends through the busiest port.
    """
    share = _SHARE[protocol]
    least = 1 / _LL_MAX.get(shape.nodes, _LL_MAX_MORE) if protocol == "LL" else 0.0
    if algorithm == RING:
        turns = _nccl_kind(kind).steps(shape.ranks) / shape.ranks
        time = turns * max(shape.ring / share, least)
        return time, time
    buffers = double_tree_all_reduce.port_buffers(shape.nodes) if shape.nodes > 1 else 0.0
    between = buffers * shape.between
    if algorithm == TREE:
        share = _tree_share(protocol, shape.nodes)
        passes = 2 if shape.below > 1 else buffers
        inside = passes * shape.inside / (share * _TREE_EFFICIENCY)
        expected = 2 * max(shape.ring / (share * _TREE_EFFICIENCY), least)
        return expected, max(inside, between / share, 2 * least)
    assert shape.nvls
    time = max(1 / shape.nvls, between)
    return time, time


def _tree_parts(protocol: str, size: float) -> tuple[float, float]:
    """Return the part of its bandwidth that a tree reaches for a buffer: as NCCL expects, of the
    power of two below its size, and in between those of two powers."""
    parts = _TREE_PARTS[protocol]
    place = min(max(math.log2(max(size, 1.0) / 64), 0.0), len(parts) - 1.0)
    below = int(place)
    above = min(below + 1, len(parts) - 1)
    return parts[below], parts[below] + (place - below) * (parts[above] - parts[below])


def _choices(kind: str, shape: _Shape, algorithm: str | None) -> Iterator[tuple[str, str]]:
    """Yield the pairs of algorithm and protocol that NCCL may choose."""
    trees = _nccl_kind(kind).tree
    for name in (RING, TREE) if trees else (RING,):
        if algorithm in (None, name):
            yield from ((name, protocol) for protocol in _PROTOCOLS)
    if trees and shape.nvls:
        name = NVLS if shape.nodes == 1 else NVLS_TREE
        if algorithm in (None, NVLS, NVLS_TREE):
            yield name, "Simple"


def estimate(kind: str, group: Group, size: float, algorithm: str | None = None) -> NcclEstimate:
    """Return NCCL's choice for a full buffer of ``size`` bytes, and its time on the machine.

    If ``algorithm``, one of ``ALGORITHMS``, is given, NCCL only chooses the protocol.

    Raises:
        CostError: NCCL does not have the algorithm for this collective.
    """
    return min(estimates(kind, group, size, algorithm), key=itemgetter(0))[1]


def estimates(
    kind: str, group: Group, size: float, algorithm: str | None = None
) -> list[tuple[float, NcclEstimate]]:
    """Return the estimates of all algorithms and protocols, each behind the seconds that NCCL
    expects it to take.

    Raises:
        CostError: NCCL does not have the algorithm for this collective.
    """
    shape = _shape(group)
    place = (shape.ranks, shape.nodes, shape.fabric)
    choices = list(_choices(kind, shape, algorithm))
    if not choices:
        known = dict.fromkeys(name for name, _ in _choices(kind, shape, None))
        raise CostError(f"NCCL's model has no {algorithm} for {kind}: it has {' and '.join(known)}")
    candidates: list[tuple[float, NcclEstimate]] = []
    for name, protocol in choices:
        nccl_per_byte, per_byte = _per_byte(name, protocol, shape, kind)
        if name == TREE:
            step, part = _tree_parts(protocol, size)
            nccl_per_byte, per_byte = nccl_per_byte / step, per_byte / part
        expected = sum(latencies(name, protocol, kind, *place)) + size * nccl_per_byte
        own = _own_latencies(name, protocol, kind, shape)
        transfer = size * per_byte + _chunk_seconds(kind, name, protocol, size, per_byte)
        priced = _estimate(f"{name}/{protocol}", shape, own, transfer)
        candidates.append((expected, priced))
    return candidates


def nodes_of(group: Group) -> int:
    """Return the number of nodes over which a group extends, as NCCL counts them."""
    return _shape(group).nodes


def bends(kind: str, group: Group) -> list[int]:
    """Return the sizes in bytes, from 0 up, at which estimates bend or jump.

    From each of them to the byte before the next one, and after the last, an estimate is a straight
    line, except that of a tree: its bandwidth follows the logarithm of the size.
    """
    powers = (64 << place for place in range(max(map(len, _TREE_PARTS.values()))))
    fixed = sorted({0, *powers, *map(int, (*_IN_FLIGHT.values(), _NVLS_IN_FLIGHT))})
    shape = _shape(group)
    own = set[int]()
    for name, protocol in _choices(kind, shape, None):
        if name in (RING, TREE):  # the chunks of NVLS have no longest time
            per_byte = _per_byte(name, protocol, shape, kind)[1]
            capped = partial(_is_capped, kind, name, protocol, per_byte)
            for low, high in itertools.pairwise(fixed):
                before, after = capped(low), capped(high - 1)
                if before != after:
                    while high - low > 1:
                        middle = (low + high) // 2
                        low, high = (middle, high) if capped(middle) == before else (low, middle)
                    own.add(high)
    return sorted({*fixed, *own})


def _is_capped(kind: str, name: str, protocol: str, per_byte: float, size: int) -> bool:
    """Return whether a chunk of a ring or tree takes the longest time that a chunk takes."""
    part = _tree_parts(protocol, size)[1] if name == TREE else 1.0
    return _chunk_seconds(kind, name, protocol, size, per_byte / part) >= _CHUNK


def _estimate(
    name: str, shape: _Shape, own: tuple[float, float, float], transfer: float
) -> NcclEstimate:
    """Return the estimate of latencies, at the start, inside nodes and between them, and bytes."""
    levels = zip((None, *shape.slowest), own, strict=True)
    return NcclEstimate(name, sum(own) + transfer, tuple(x for x in levels if x[1]))


def _chunk_seconds(kind: str, algorithm: str, protocol: str, size: float, per_byte: float) -> float:
    """Return the seconds in which a chunk of all channels goes around once, or up to the switches
    that reduce and back."""
    if algorithm in (NVLS, NVLS_TREE):
        return min(size, _NVLS_IN_FLIGHT) * per_byte
    return min(min(size, _IN_FLIGHT[protocol]) * per_byte / COSTS[kind].ways, _CHUNK)


GROUPED = "grouped"
"""The word in front of the algorithm of a group of collectives with one root each."""


def grouped_estimate(kind: str, group: Group, size: float) -> NcclEstimate:
    """Return the estimate of a group of collectives with one root, one for each block.

    The blocks, which differ in size, are ``size`` bytes together. All go around one ring after the
    other, in one launch. The time is infinite if there is no such collective.
    """
    rooted = _nccl_kind(kind).grouped
    if not rooted:
        return NcclEstimate(GROUPED, math.inf)
    shape = _shape(group)
    best = NcclEstimate(GROUPED, math.inf)
    for protocol in _PROTOCOLS:
        start, inside, between = _own_latencies(RING, protocol, rooted, shape)
        own = start, shape.ranks * inside, shape.ranks * between
        per_byte = _per_byte(RING, protocol, shape, rooted)[1]
        transfer = size * per_byte + _chunk_seconds(rooted, RING, protocol, size, per_byte)
        candidate = _estimate(f"{GROUPED} {rooted} {RING}/{protocol}", shape, own, transfer)
        best = min(best, candidate, key=lambda estimate: estimate.time)
    return best


def switch_advantage(group: Group) -> float:
    """Return the bandwidth of ports that would be as fast as switches that reduce, divided by the
    ``nvls`` of these; 0 if no switch reduces.

    Ports count 2 (n-1)/n of a buffer for n ranks in all, and ``nvls`` those of all children.
    """
    shape = _shape(group)
    if not shape.nvls:
        return 0.0
    least = min(level.size for level in group.levels if level.reduced)
    return (1 - 1 / shape.ranks) / (1 - 1 / least)


def least_latency(kind: str, group: Group) -> float:
    """Return the seconds that even an empty collective takes, of the group or of a part of its
    groups: none of these may have ranks below several parents."""
    groups = [group]
    if group.levels[0].parents:
        groups.append(replace(group, machine=group.machine.without_parents))
    if not isinstance(COSTS[kind].nccl, NcclKind):
        return min(sum(seconds for _, seconds in send_latencies(part)) for part in groups)
    return min(
        sum(_own_latencies(name, protocol, kind, shape))
        for shape in map(_shape, groups)
        for name, protocol in _choices(kind, shape, None)
    )


def shared_chunk(size: float, seconds: float, ranks: int) -> float:
    """Return the seconds of the bytes under way in sends between all ranks, which share channels;
    two ranks share none.

    Args:
        size, seconds: the bytes that a rank sends, and their time.
    """
    if ranks < 3 or not size:
        return 0.0
    chunk = min(1.0, _IN_FLIGHT["Simple"] / size) * seconds
    return min(chunk, _CHUNK) * (1 - 1 / (ranks - 1))


def send_latencies(group: Group, port_bytes: Sequence[float] | None = None) -> Latencies:
    """Return the latencies of a send and receive: of its start, and of the longest hop.

    Args:
        port_bytes: the bytes through the ports of each level, if not all levels are crossed over
            which the group extends.
    """
    crossed = [
        (level.latency, index)
        for index, level in enumerate(group.levels)
        if (group.spread(index) > 1 if port_bytes is None else port_bytes[index])
    ]
    if parents := group.levels[0].parents:
        crossed.append((parents.level.latency, 0))
    hop, level = max(crossed, key=itemgetter(0), default=(0.0, 0))
    return (None, _BASE[RING][-1] * _US), (level, hop)
