"""The price of pipelines of segments: chains and trees, which are not written as rounds.

An algorithm is a function that adds its time to a meter. Its docstring gives the seconds that it
adds on a flat network, where p is the number of ranks, n the bytes of the full buffer (the argument
``size``), a the latency, b the seconds per byte sent, g the seconds per byte reduced, and lg the
logarithm to base 2.
"""

import math
from dataclasses import dataclass

from collir.algorithms.patterns import Shift
from collir.cost.collectives.meter import Meter, round_cost
from collir.cost.collectives.rounds import ring_hops, ring_latency
from collir.cost.network.group import CostError
from collir.cost.network.loads import Load
from collir.machine import LinkKind


def _chain(meter: Meter, size: float, reduced: float) -> None:
    """Add a chain with the best number of segments.

    With k segments it takes (p-2+k) (a + n b/k) seconds, which is least for
    k = sqrt((p-2) n b / a).
    """
    group = meter.group
    latency = ring_latency(group)
    slowest = max((a for _, a in ring_hops(group)), default=0.0)
    busy = round_cost(Shift(1), group).per_byte * size + meter.reduction_seconds(reduced)
    fill = max(group.size - 2, 0) * busy
    best = math.sqrt(fill / slowest) if slowest else math.inf

    def time(k: float) -> float:
        return latency + (k - 1) * slowest + busy + fill / k

    if math.isinf(best):
        meter.add_pipeline(latency, [(Shift(1), size)], reduced)
        return
    segments = min((max(1.0, float(k)) for k in (math.floor(best), math.ceil(best))), key=time)
    meter.add_pipeline(time(segments) - busy, [(Shift(1), size)], reduced)


def chain_broadcast(meter: Meter, size: float) -> None:
    """Add (p-2+k) (a + n b/k): a pipeline of k segments from rank to rank, for the best k."""
    _chain(meter, size, 0.0)


def chain_reduce(meter: Meter, size: float) -> None:
    """Add (p-2+k) (a + n (b+g)/k): the chain broadcast in reverse."""
    _chain(meter, size, size)


@dataclass(frozen=True)
class _PipelinedTrees:
    """Pipelined trees over the children of every level, between one rank below each child.

    Attributes:
        own: the buffers that go through the busiest port of 2, 3, and 4 or more children, in its
            busier direction.
        passing: the buffers of them that also go through the ports inside, on the way to one rank.
        ways: 1 for trees up or down, 2 for trees up and then down.
        reduced: the buffers that a rank reduces at most.
    """

    own: tuple[float, float, float]
    passing: tuple[float, float, float]
    ways: int
    reduced: float

    def port_buffers(self, children: int) -> float:
        """Return the buffers through the busiest port of 2 or more children."""
        return self.own[min(children, 4) - 2]

    def __call__(self, meter: Meter, size: float) -> None:
        group = meter.group
        for level, across in zip(group.levels, group.across, strict=True):
            if across > 1 and not level.uniform:
                what = "in a matrix" if level.kind is LinkKind.LINKS else f"a {level.kind}"
                what = "has a list of sizes" if level.parents else f"links are {what}"
                whose = "which" if level.parents else "whose"
                raise CostError(f"trees are not costed on level '{level.name}', {whose} {what}")
        # ``buffers`` go through the ports of a parent; ``passing`` of them go to one rank below it.
        latency, buffers, passing = 0.0, 0.0, 0.0
        loads: list[Load] = []
        for level, across in enumerate(group.across):
            groups = group.beside[level] * group.groups_across[level]
            inside = self.ways * (across - 1) * groups
            leaving = buffers * groups * 2  # out and in
            if across > 1:
                latency += self.ways * (across - 1).bit_length() * group.latencies[level]
                buffers = passing + self.port_buffers(across)
                passing += self.passing[min(across, 4) - 2]
            port = buffers * group.beside[level]
            loads.append(Load(port * size, inside * size, (inside + leaving) * size))
        message = min(self.own[0], self.passing[0]) * size
        meter.add_loads(latency, tuple(loads), message, self.reduced * size)


binary_tree_all_reduce = _PipelinedTrees((1, 2, 3), (1, 2, 3), 2, 2)
"""2 ceil(lg p) a + 3 n b: chunks go up one binary tree and down again."""

double_tree_all_reduce = _PipelinedTrees((1, 1.5, 2), (0.5, 1, 1.5), 2, 1)
"""2 ceil(lg p) a + 2 n b: two trees with half of the buffer each; inner nodes of either tree are
leaves of the other (Sanders, Speck, Traeff 2009)."""

binary_tree_one_way = _PipelinedTrees((1, 2, 2), (1, 2, 2), 1, 0)
"""ceil(lg p) a + 2 n b: a broadcast of chunks down one binary tree."""

double_tree_one_way = _PipelinedTrees((1, 1, 1), (0.5, 1, 1), 1, 0)
"""ceil(lg p) a + n b: a broadcast down two trees (Sanders, Speck, Traeff 2009)."""

binary_tree_reduce = _PipelinedTrees((1, 2, 2), (1, 2, 2), 1, 2)
"""ceil(lg p) a + 2 n (b + g): the broadcast down one binary tree, in reverse."""

double_tree_reduce = _PipelinedTrees((1, 1, 1), (0.5, 1, 1), 1, 1)
"""ceil(lg p) a + n (b + g): the broadcast down two trees, in reverse."""
