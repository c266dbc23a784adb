"""Schedules of trees for a collective, with their predicted times, and the choice among them.

The time of a schedule is that of a pipeline with small pieces: the latency of its deepest tree, and
the bytes of a tree divided by its bandwidth. An all_reduce takes both twice: up and down the trees.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from collir.synthesis.trees.bound import (
    TreeScale,
    carries,
    exact_scale,
    fixed_scale,
    root_bandwidth,
)
from collir.synthesis.trees.graph import CapacityGraph, Link
from collir.synthesis.trees.overlapping import overlapped_scale
from collir.synthesis.trees.packing import SpanningTree, packed_trees
from collir.synthesis.trees.reducing import all_reduce_rate, root_weights
from collir.synthesis.trees.shortest import shortest_trees
from collir.synthesis.trees.splitting import DirectLinks, without_switches

MOST_SPREAD = 64
"""The most trees that trees of less depth are tried with."""

FEW_TREES = 4
"""The most trees of each root that are tried before as many as all links take."""

MOST_TREES = 1024
"""The most trees of a root."""

MANY_TREES = (16, 24, 32, 48, 64)
"""Numbers of trees of each root that are tried where all links would take more than that."""


@dataclass(frozen=True)
class TreeSchedule:
    """Spanning trees that all run at the same time.

    Attributes:
        latency: in seconds, of one chunk on the way that takes longest.
        bandwidth: bytes/second of the whole buffer: its size divided by the time, without latency.
    """

    name: str
    trees: tuple[SpanningTree, ...]
    latency: float
    bandwidth: float

    @property
    def count(self) -> int:
        """The number of all trees."""
        return sum(tree.count for tree in self.trees)

    @property
    def depth(self) -> int:
        """The largest number of links from a root to a rank."""
        return max(tree.depth for tree in self.trees)

    def seconds(self, size: float) -> float:
        """Return the predicted time for a buffer of some bytes."""
        return self.latency + size / self.bandwidth


@dataclass(frozen=True)
class TreeProblem:
    """A collective of all devices of a graph.

    Attributes:
        root: of a broadcast or reduce.
    """

    graph: CapacityGraph
    collective: str
    root: int = 0

    @property
    def roots(self) -> Sequence[int]:
        """The ranks whose data all others get, or get to."""
        if self.collective in ("broadcast", "reduce"):
            return [self.root]
        return range(self.graph.ranks)

    @property
    def passes(self) -> int:
        """The number of times that data cross the trees: 2, up and down, for an all_reduce."""
        return 2 if self.collective == "all_reduce" else 1

    @property
    def per_bus(self) -> float:
        """The busbw of nccl-tests for each byte/second of the whole buffer."""
        n = self.graph.ranks
        return self.passes * (n - 1) / n if len(self.roots) > 1 else 1.0

    @cached_property
    def bound(self) -> float:
        """The bytes/second of the whole buffer that no schedule exceeds."""
        if self.collective == "all_reduce":
            return all_reduce_rate(self.graph)
        return float(len(self.roots) * self._rate)

    @cached_property
    def _rate(self) -> Fraction:
        """The bytes/second of the trees of a root, if all roots are alike."""
        return root_bandwidth(self.graph, self.roots)

    @cached_property
    def _rates(self) -> dict[int, Fraction]:
        """The bytes/second of the trees of each root."""
        alike = dict.fromkeys(self.roots, self._rate)
        half = float(sum(alike.values())) / 2
        if self.collective != "all_reduce" or half >= self.bound * (1 - 1e-9):
            return alike
        return max(alike, root_weights(self.graph) or {}, key=lambda rates: sum(rates.values()))

    @cached_property
    def _scale(self) -> TreeScale:
        """The scale of the largest bandwidth: with a few trees if they reach it, as links beside
        the bottleneck need not be used up; with many, if an exact number would be too large."""
        exact = exact_scale(self.graph, self._rates)
        most = max(exact.demands.values())
        for count in range(1, min(FEW_TREES + 1, most)):
            few = self._fixed(count)
            if few.total == exact.total:
                return few
        if most <= MOST_TREES:
            return exact
        return max(map(self._fixed, MANY_TREES), key=lambda scale: scale.total)

    def _fixed(self, count: int) -> TreeScale:
        """Return the fastest trees with a number for each root; on average, if that is faster."""
        alike = self._alike(count)
        if len(set(self._rates.values())) == 1 and len(self._rates) == len(self.roots):
            return alike
        unlike = fixed_scale(self.graph, _divided(count * len(self.roots), self._rates))
        return max(alike, unlike, key=lambda scale: scale.total)

    def _alike(self, count: int) -> TreeScale:
        """Return the fastest trees with the same number for each root."""
        return fixed_scale(self.graph, dict.fromkeys(self.roots, count))

    def fastest(self) -> TreeSchedule:
        """Return trees of the largest bandwidth."""
        return self._packed("full bandwidth", self._scale)

    def overlapped(self) -> TreeSchedule | None:
        """Return trees of an all_reduce that are faster as links divide their bandwidth unequally
        between the ways up and down; None if none are known, or two equal passes reach the
        bound."""
        rate = float(self._scale.total) / self.passes
        if self.collective != "all_reduce" or rate >= self.bound * (1 - 1e-9):
            return None
        scale = overlapped_scale(self.graph)
        if scale is None or float(scale.total) <= rate * (1 + 1e-9):
            return None
        direct = without_switches(self.graph, scale.capacities, scale.demands)
        ranks = self.graph.ranks
        if not carries(ranks, ranks, direct.capacities, scale.demands):
            return None
        return self._packed("both ways at once", scale, direct, float(scale.total))

    def spread(self) -> TreeSchedule | None:
        """Return more trees from one root, of the same bandwidth in all, which may be less deep;
        None for several roots, or too many trees.

        The root of a switch then sends another part to each rank, which passes it on.
        """
        scale = self._scale
        times = self.graph.ranks - 1
        if len(self.roots) > 1 or scale.demands[self.root] * times > MOST_SPREAD:
            return None
        demands = {root: count * times for root, count in scale.demands.items()}
        capacities = {link: c * times for link, c in scale.capacities.items()}
        more = TreeScale(demands, scale.bandwidth / times, capacities)
        return self._packed("full bandwidth, less deep", more)

    def with_trees(self, count: int) -> TreeSchedule:
        """Return the fastest trees with a number for each root; on average, if that is faster, as
        it may be for an all_reduce."""
        scale = self._fixed(count)
        if set(scale.demands.values()) == {count} and len(scale.demands) == len(self.roots):
            return self.with_trees_of_each(count)
        return self._packed(f"{sum(scale.demands.values())} trees", scale)

    def with_trees_of_each(self, count: int) -> TreeSchedule:
        """Return the fastest trees with the same number for each root."""
        return self._packed(f"{count} tree{'s' * (count > 1)} per root", self._alike(count))

    def shortest(self) -> TreeSchedule:
        """Return trees of least latency, one from each root."""
        trees, bandwidth, latencies = shortest_trees(self.graph, self.roots)
        whole = float(len(self.roots) * bandwidth) / self.passes
        return self._schedule("least latency", trees, latencies, whole)

    def _packed(
        self, name: str, scale: TreeScale, direct: DirectLinks | None = None,
        bandwidth: float | None = None,
    ) -> TreeSchedule:  # fmt: skip
        """Return trees of a scale; of links between devices and a bandwidth, if these are known."""
        direct = direct or without_switches(self.graph, scale.capacities, scale.demands)
        trees = packed_trees(self.graph.ranks, direct.capacities, scale.demands)
        latencies = {
            (a, b): max(self.graph.latency(a, b, switch) for switch in ways)
            for (a, b), ways in direct.through.items()
        }
        whole = bandwidth or float(scale.total) / self.passes
        return self._schedule(name, trees, latencies, whole)

    def _schedule(
        self, name: str, trees: Sequence[SpanningTree], latencies: Mapping[Link, float],
        bandwidth: float,
    ) -> TreeSchedule:  # fmt: skip
        longest = max(tree.latency(latencies) for tree in trees)
        return TreeSchedule(name, tuple(trees), self.passes * longest, bandwidth)


def _divided(count: int, rates: Mapping[int, Fraction]) -> dict[int, int]:
    """Return a number of trees divided among roots by their rates."""
    whole = sum(rates.values())
    demands: dict[int, int] = {}
    passed, given = Fraction(0), 0
    for root, rate in rates.items():
        passed += count * rate / whole
        if more := round(passed) - given:
            demands[root] = more
            given += more
    return demands
