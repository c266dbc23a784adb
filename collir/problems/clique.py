"""Maximum clique: the greatest set of vertices of a graph that are all adjacent to each other.

Branch and bound with greedy colouring (Tomita and Seki, *An efficient branch-and-bound algorithm
for finding a maximum clique*, 2003) on sets held as bits (San Segundo, Rodriguez-Losada and
Jimenez, *An exact bit-parallel algorithm for the maximum clique problem*, 2011), made a tree whose
nodes know of no incumbent (Archibald, Maier, Stewart and Trinder, *Implementing YewPar*, 2019).
"""

from collections.abc import Iterator
from importlib.util import find_spec

from collir.problems.clique_node import CliqueNode
from collir.problems.graphs import UndirectedGraph, set_bits
from collir.search.core.problem import Kernel, Kind, Problem, SearchError, make_node


class MaxClique(Problem[CliqueNode]):
    """The search for the greatest clique of ``graph``; the objective is the size of a clique.

    The candidates of a node are coloured so that no edge joins vertices of one colour: a clique has
    at most one vertex of each colour. A child adds one candidate, in the order of falling colours.
    After it, at most one vertex of each smaller colour can follow: bounds fall from child to child.

    With ``kernel``, compiled code searches subtrees; this needs the numba extra.
    """

    sorted_by_bound = True

    def __init__(self, graph: UndirectedGraph, *, kernel: bool = False):
        if kernel and find_spec("numba") is None:
            raise SearchError(_NO_NUMBA)
        order = sorted(range(graph.n), key=lambda v: (-graph.degrees[v], v))
        vertices = (1 << graph.n) - 1
        self.graph = graph
        self.compiled = kernel
        self.order = order
        self.adjacent = graph.renumbered(order)
        self.apart = tuple(vertices ^ row ^ 1 << v for v, row in enumerate(self.adjacent))

    def root(self) -> CliqueNode:
        """Return the empty clique; its bound is the number of colours of the graph."""
        vertices = (1 << self.graph.n) - 1
        colours = self.colours(vertices)
        return CliqueNode(0, vertices, 0, colours[-1][1] if colours else 0)

    def colours(self, candidates: int) -> list[tuple[int, int]]:
        """Return the candidates with their colours 1, 2, ...: colour by colour, lowest first."""
        apart = self.apart
        coloured: list[tuple[int, int]] = []
        colour = 0
        while candidates:
            colour += 1
            free, used = candidates, 0
            while free:
                low = free & -free
                v = low.bit_length() - 1
                coloured.append((v, colour))
                used |= low
                free &= apart[v]
            candidates ^= used
        return coloured

    def children(self, node: CliqueNode) -> Iterator[CliqueNode]:
        """Yield the cliques with one more vertex, the greatest bound first."""
        members, candidates, size, _ = node
        adjacent = self.adjacent
        for v, colour in reversed(self.colours(candidates)):
            bit = 1 << v
            child = members | bit, candidates & adjacent[v], size + 1, size + colour
            yield make_node(CliqueNode, child)
            candidates ^= bit

    def objective(self, node: CliqueNode) -> int:
        """Return the size of the clique."""
        return node.size

    def bound(self, node: CliqueNode) -> int:
        """Return the size of the clique plus the number of colours that can still join it."""
        return node.bound

    def show(self, node: CliqueNode) -> list[int]:
        """Return the vertices of the clique, by their numbers in the file, in increasing order."""
        return self.graph.numbers(self.order[v] for v in set_bits(node.members))

    def kernel(self, kind: Kind, fold: object) -> Kernel[CliqueNode] | None:
        """Return the compiled search, if it was requested and ``kind`` is not ``enumerate``.

        Raises:
            SearchError: numba is not installed, or does not work.
        """
        if not self.compiled or kind == "enumerate":
            return None
        try:
            from collir.problems.clique_kernel import CliqueKernel
        except (ImportError, RuntimeError) as error:  # numba may find no folder for compiled code
            raise SearchError(f"{_NO_NUMBA} ({error})") from error
        return CliqueKernel(self.adjacent, first_only=kind == "decide")


class KClique(MaxClique):
    """The decision whether ``graph`` has a clique of ``k`` vertices or more."""

    def __init__(self, graph: UndirectedGraph, k: int, *, kernel: bool = False):
        if k < 0:
            raise SearchError(f"a clique has 0 vertices or more, not {k}")
        super().__init__(graph, kernel=kernel)
        self.target = k


_NO_NUMBA = (
    "the compiled clique search needs numba: install it (pip install 'collir[numba]'), or search "
    "without it (kernel=False), which finds the same"
)
