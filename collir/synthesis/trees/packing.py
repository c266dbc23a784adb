"""Edge-disjoint spanning trees, as many from each root as it demands (Edmonds 1973).

Trees grow in batches of equal ones. A link x -> y may be added to trees of a batch as long as every
set of nodes can still be entered by all trees that have no node in it. A minimum cut says how many
may take it (Berczi and Frank 2010; ForestColl, arXiv 2402.06787, section 5.4). A link that none may
take stays so, so it is tried once for each batch. All batches grow by one depth before the next.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from collir.synthesis.trees.flows import FlowNetwork
from collir.synthesis.trees.graph import Link


@dataclass(frozen=True)
class SpanningTree:
    """Equal trees from a root to all ranks.

    Attributes:
        count: how many trees are alike.
        parents: the parent of each rank; -1 for the root.
    """

    root: int
    count: int
    parents: tuple[int, ...]

    @property
    def links(self) -> list[Link]:
        """The links, those near the root first."""
        return [(self.parents[x], x) for x in self.order[1:]]

    @property
    def order(self) -> list[int]:
        """The ranks, those near the root first."""
        children: dict[int, list[int]] = {}
        for rank, parent in enumerate(self.parents):
            children.setdefault(parent, []).append(rank)
        order = [self.root]
        for rank in order:  # the loop appends to the order
            order += children.get(rank, [])
        return order

    @property
    def depths(self) -> list[int]:
        """The number of links from the root to each rank."""
        depths = [0] * len(self.parents)
        for parent, rank in self.links:
            depths[rank] = depths[parent] + 1
        return depths

    @property
    def depth(self) -> int:
        """The largest number of links from the root to a rank."""
        return max(self.depths)

    def latency(self, latencies: Mapping[Link, float]) -> float:
        """Return the latency in seconds from the root to the rank that is reached last.

        Args:
            latencies: of each link.
        """
        times = [0.0] * len(self.parents)
        for parent, rank in self.links:
            times[rank] = times[parent] + latencies[parent, rank]
        return max(times)


@dataclass
class _Batch:
    """Equal trees that grow.

    Attributes:
        parents: of the ranks in them, in the order in which they were added.
        node: their node of the flow network, with a link to each of their ranks.
        entrance: the link to that node.
        tried: the links from ranks of the current depth that are yet to be tried, the best last.
    """

    root: int
    count: int
    parents: dict[int, int]
    depths: dict[int, int]
    node: int
    entrance: int
    tried: list[Link] = field(default_factory=list[Link])


def packed_trees(
    ranks: int, capacities: Mapping[Link, int], demands: Mapping[int, int]
) -> list[SpanningTree]:
    """Return spanning trees that use each link at most as often as its capacity.

    Args:
        capacities: of links between ranks; enough for trees to exist, as ``carries`` tells.
        demands: the trees of each root.
    """
    return _Packing(ranks, capacities, demands).run()


class _Packing:
    """Trees as they grow, and the capacities that are left."""

    def __init__(self, ranks: int, capacities: Mapping[Link, int], demands: Mapping[int, int]):
        self.ranks = ranks
        self.unlimited = sum(capacities.values()) + sum(demands.values()) + 1
        # The network has the links that are left, and a source before the trees that grow.
        self.network = FlowNetwork(ranks + 1)
        self.links = {link: self.network.add(*link, c) for link, c in capacities.items() if c}
        self.starts = [self.network.add(ranks, rank, 0) for rank in range(ranks)]
        self.batches = [self._batch(r, n, {r: -1}, {r: 0}) for r, n in demands.items() if n]

    def _batch(
        self, root: int, count: int, parents: dict[int, int], depths: dict[int, int]
    ) -> _Batch:
        """Return a batch of trees with some ranks."""
        node = self.network.add_node()
        batch = _Batch(root, count, parents, depths, node, self.network.add(self.ranks, node, 0))
        for rank in parents:
            self.network.add(node, rank, self.unlimited)
        return batch

    def _left(self, x: int, y: int) -> int:
        """Return the capacity of a link that is left."""
        return self.network.capacities[self.links[x, y]]

    def run(self) -> list[SpanningTree]:
        """Grow all trees, and return them in the order of their roots."""
        for depth in range(self.ranks - 1):
            growing = deque(b for b in self.batches if len(b.parents) < self.ranks)
            for batch in growing:
                batch.tried = self._links_at(batch, depth)
            while growing:
                batch = growing.popleft()
                if rest := self._grow(batch, depth):
                    self.batches.append(rest)
                    growing.append(rest)
                if batch.tried and len(batch.parents) < self.ranks:
                    growing.append(batch)
        assert all(len(b.parents) == self.ranks for b in self.batches), "a tree does not span"
        trees = [
            SpanningTree(b.root, b.count, tuple(b.parents[x] for x in range(self.ranks)))
            for b in self.batches
        ]
        return sorted(_merged(trees), key=lambda tree: tree.root)

    def _links_at(self, batch: _Batch, depth: int) -> list[Link]:
        """Return the links from ranks at a depth of a batch to others, the widest last."""
        n, root = self.ranks, batch.root
        links = [
            (x, y) for x, at in batch.depths.items() if at == depth
            for y in range(n) if y not in batch.parents and (x, y) in self.links
        ]  # fmt: skip
        return sorted(
            links,
            key=lambda link: (
                min(self._left(*link), batch.count), -((link[1] - root) % n), (link[0] - root) % n
            ),
        )  # fmt: skip

    def _grow(self, batch: _Batch, depth: int) -> _Batch | None:
        """Add one link to a batch, if possible; return the trees that could not take it, if any."""
        while batch.tried:
            x, y = batch.tried.pop()
            if y in batch.parents or not (most := min(batch.count, self._left(x, y))):
                continue
            count = self._allowed(batch, x, y, most)
            if not count:
                continue
            rest: _Batch | None = None
            if count < batch.count:
                more = batch.count - count
                rest = self._batch(batch.root, more, {**batch.parents}, {**batch.depths})
                rest.tried = [*batch.tried]
            batch.count = count
            batch.parents[y], batch.depths[y] = x, depth + 1
            self.network.add(batch.node, y, self.unlimited)
            self.network.capacities[self.links[x, y]] -= count
            return rest
        return None

    def _allowed(self, batch: _Batch, x: int, y: int, most: int) -> int:
        """Return how many trees of a batch may take a link, ``most`` at most.

        For each set of nodes with y and without x, the capacity into it must suffice for the trees
        of other batches that have no node in it. Sets without a node of this batch always have
        enough capacity; if x is its only node, there are no other sets.
        """
        if len(batch.parents) == 1:
            return most
        capacities = self.network.capacities
        outside = [b for b in self.batches if b is not batch and y not in b.parents]
        for batch_outside in outside:
            capacities[batch_outside.entrance] = batch_outside.count
        capacities[self.starts[x]] = self.unlimited
        needed = sum(batch_outside.count for batch_outside in outside)
        flow = self.network.flow(self.ranks, y, needed + most)
        capacities[self.starts[x]] = 0
        for batch_outside in outside:
            capacities[batch_outside.entrance] = 0
        return max(0, flow - needed)


def _merged(trees: list[SpanningTree]) -> list[SpanningTree]:
    """Return trees with equal ones together."""
    counts: dict[tuple[int, tuple[int, ...]], int] = {}
    for tree in trees:
        key = tree.root, tree.parents
        counts[key] = counts.get(key, 0) + tree.count
    return [SpanningTree(root, count, parents) for (root, parents), count in counts.items()]
