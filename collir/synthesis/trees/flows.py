"""Maximum flows in integers, by Dinic's algorithm."""

from collections.abc import Iterable


class FlowNetwork:
    """A directed network, on which flows between several pairs of nodes are asked for.

    Links may be added between flows. Nodes are numbers from 0 on.
    """

    def __init__(self, nodes: int, links: Iterable[tuple[int, int, int]] = ()):
        self.ends: list[int] = []
        self.capacities: list[int] = []
        self.links_of: list[list[int]] = [[] for _ in range(nodes)]
        self.left: list[int] = []
        for a, b, capacity in links:
            self.add(a, b, capacity)

    def add_node(self) -> int:
        """Add a node and return its number."""
        self.links_of.append([])
        return len(self.links_of) - 1

    def add(self, a: int, b: int, capacity: int) -> int:
        """Add a link from ``a`` to ``b`` and return its number; the next one leads back."""
        number = len(self.ends)
        self.links_of[a].append(number)
        self.links_of[b].append(number + 1)
        self.ends += b, a
        self.capacities += capacity, 0
        return number

    def flow(self, source: int, sink: int, limit: int) -> int:
        """Return the maximum flow, or ``limit`` if it is larger."""
        left = self.left = self.capacities.copy()
        total = 0
        while total < limit and (levels := self._levels(source, sink)):
            begun = [0] * len(levels)
            while total < limit and (path := self._path(source, sink, levels, begun)):
                pushed = min(limit - total, *(left[link] for link in path))
                for link in path:
                    left[link] -= pushed
                    left[link ^ 1] += pushed
                total += pushed
        return total

    def source_side(self, source: int) -> set[int]:
        """Return the nodes that the last flow leaves within reach of its source: the side of a
        minimum cut."""
        seen, queue = {source}, [source]
        for node in queue:  # the loop appends to the queue
            for link in self.links_of[node]:
                if self.left[link] and self.ends[link] not in seen:
                    seen.add(self.ends[link])
                    queue.append(self.ends[link])
        return seen

    def _levels(self, source: int, sink: int) -> list[int]:
        """Return the distances of nodes from the source (-1: unknown); empty if the sink is cut
        off."""
        ends, left = self.ends, self.left
        levels = [-1] * len(self.links_of)
        levels[source] = 0
        queue = [source]
        for node in queue:  # the loop appends to the queue
            for link in self.links_of[node]:
                if left[link] and levels[end := ends[link]] < 0:
                    levels[end] = levels[node] + 1
                    if end == sink:
                        return levels
                    queue.append(end)
        return []

    def _path(self, source: int, sink: int, levels: list[int], begun: list[int]) -> list[int]:
        """Return the links of a way to the sink, each to the next level; empty if there is none.

        Args:
            begun: for each node, the number of its links that lead nowhere.
        """
        ends, left, links_of = self.ends, self.left, self.links_of
        path: list[int] = []
        node = source
        while node != sink:
            links = links_of[node]
            level = levels[node] + 1
            for at in range(begun[node], len(links)):
                link = links[at]
                if left[link] and levels[ends[link]] == level:
                    begun[node] = at
                    path.append(link)
                    node = ends[link]
                    break
            else:
                begun[node] = len(links)
                if not path:
                    return path
                node = ends[path.pop() ^ 1]
                begun[node] += 1
        return path
