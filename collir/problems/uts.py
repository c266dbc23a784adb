"""Unbalanced tree search: trees of unpredictable shape, to measure how work is shared.

The trees of the UTS benchmark (Olivier, Huan, Liu, Prins, Dinan, Sadayappan and Tseng, "UTS: An
Unbalanced Tree Search Benchmark", LCPC 2006). The number of children of a node is drawn with random
bits: the SHA-1 digest of its parent's bits and its index, so that a tree is the same everywhere.
"""

import hashlib
import math
from collections.abc import Iterator
from typing import Literal, NamedTuple, get_args

from collir.search.core.goals import Nodes, NodesByDepth
from collir.search.core.problem import Dive, Kernel, Kind, Problem, SearchError

TreeKind = Literal["geometric", "binomial", "hybrid"]
TreeShape = Literal["fixed", "linear", "exponential", "cyclic"]

MAX_CHILDREN = 100
"""The maximum number of children, except of the root of a binomial tree."""

MAX_ROOT_CHILDREN = 10**6
MAX_DEPTH = 10**6
_sha1 = hashlib.sha1


class Twig(NamedTuple):
    """A node: 20 random bytes, and its depth."""

    state: bytes
    depth: int


class PublishedTree(NamedTuple):
    """A published tree of the benchmark: its settings, and its size and height."""

    settings: dict[str, str | int | float]
    nodes: int
    leaves: int
    height: int

    def problem(self) -> "UTS":
        """Return the tree as a problem."""
        return UTS(**self.settings)  # pyright: ignore[reportArgumentType]


class UTS(Problem[Twig]):
    """A tree to enumerate.

    A geometric tree draws the number of children from the geometric distribution of mean b(depth),
    which is ``b0`` at the root and below it, by shape, up to ``depth``: ``b0`` (fixed), falling
    linearly to 0, falling with a power of the depth (exponential), or a power of ``b0`` that swings
    (cyclic, five times as deep). A binomial tree has ``b0`` children at the root, and elsewhere
    ``m`` with probability ``q``, else none. A hybrid tree is geometric down to the fraction
    ``shift`` of ``depth``, then binomial.

    Args:
        tree: geometric, binomial or hybrid.
        shape: the taper of a geometric tree.
        depth: the depth of a geometric tree; for a hybrid tree, see above.
        b0: the (mean) number of children of the root.
        seed: the seed of the random bits of the root, from 0 to 2**32 - 1.
        q: the probability that a node of a binomial tree has children.
        m: the number of children it then has, at most 100.
        shift: where a hybrid tree becomes binomial, as a fraction of ``depth``.
        kernel: whether to count nodes in one loop, about twice as fast; not for other folds.
    """

    def __init__(
        self,
        depth: int = 10,
        b0: float = 4.0,
        seed: int = 19,
        tree: TreeKind = "geometric",
        shape: TreeShape = "fixed",
        q: float = 15 / 64,
        m: int = 4,
        shift: float = 0.5,
        kernel: bool = False,
    ):
        self.depth, self.b0, self.seed, self.q, self.m = depth, b0, seed, q, m
        self.tree: TreeKind = tree
        self.shape: TreeShape = shape
        self._check(shift)
        self._shift = math.inf if tree == "geometric" else shift * depth if tree == "hybrid" else 0
        self._rates: list[float] = []
        self._kernel = kernel
        self._index = [
            i.to_bytes(4, "big")
            for i in range(max(MAX_CHILDREN, int(b0) if tree == "binomial" else 0))
        ]

    def _check(self, shift: float) -> None:
        """Raise an error for settings that define no tree, or an endless tree."""
        if self.tree not in get_args(TreeKind):
            raise SearchError(f"there is no tree {self.tree!r}; there is {_listed(TreeKind)}")
        if self.shape not in get_args(TreeShape):
            raise SearchError(f"there is no shape {self.shape!r}; there is {_listed(TreeShape)}")
        if not 1 <= self.depth <= MAX_DEPTH:
            raise SearchError(f"the depth must be from 1 to {MAX_DEPTH}, not {self.depth}")
        if not 0 <= self.b0 <= MAX_ROOT_CHILDREN:  # not NaN either
            raise SearchError(f"b0 must be from 0 to {MAX_ROOT_CHILDREN}, not {self.b0}")
        if not 0 <= self.seed < 2**32:
            raise SearchError(f"the seed must be from 0 to 2**32 - 1, not {self.seed}")
        if not 0 <= self.q <= 1:
            raise SearchError(f"q is a probability, from 0 to 1, not {self.q}")
        if not 0 <= self.m <= MAX_CHILDREN:
            raise SearchError(f"m must be from 0 to {MAX_CHILDREN}, not {self.m}")
        if not 0 <= shift <= 1:
            raise SearchError(f"shift is a fraction, from 0 to 1, not {shift}")
        if self.tree != "geometric" and self.q * self.m >= 1:
            raise SearchError(
                f"a {self.tree} tree with q * m = {self.q * self.m:g} may have no end; "
                "q * m must be less than 1"
            )
        if self.tree == "binomial" or self.shape in ("fixed", "linear"):
            return
        if self.b0 <= 1 or self.depth == 1:
            raise SearchError(f"a tree of {self.shape} shape needs b0 and depth greater than 1")

    def root(self) -> Twig:
        """Return the root: the digest of the seed."""
        return Twig(_sha1(bytes(16) + self.seed.to_bytes(4, "big")).digest(), 0)

    def count(self, state: bytes, depth: int) -> int:
        """Return the number of children of a node."""
        uniform = (int.from_bytes(state[16:], "big") & 0x7FFFFFFF) / 2**31  # in [0, 1)
        if depth < self._shift:
            if depth >= len(self._rates):
                new = range(len(self._rates), depth + 1)
                self._rates += [_rate(self._mean(level)) for level in new]
            return min(int(math.log(1 - uniform) / self._rates[depth]), MAX_CHILDREN)
        if depth == 0 and self.tree == "binomial":
            return int(self.b0)
        return self.m if uniform < self.q else 0

    def children(self, node: Twig) -> Iterator[Twig]:
        """Yield the children: the digests of the random bytes of the node and the index, from 0."""
        state, below = node.state, node.depth + 1
        for index in self._index[: self.count(*node)]:
            yield Twig(_sha1(state + index).digest(), below)

    def states(self, state: bytes, depth: int) -> list[bytes]:
        """Return the random bytes of all children of a node."""
        count = self.count(state, depth)
        return [_sha1(state + index).digest() for index in self._index[:count]] if count else []

    def kernel(self, kind: Kind, fold: object) -> Kernel[Twig] | None:
        """Return the loop that counts nodes, or nodes by depth, if it was requested."""
        if not self._kernel or not isinstance(fold, Nodes | NodesByDepth):
            return None
        return _Counter(self, fold)

    def show(self, node: Twig) -> dict[str, str | int]:
        """Return the random bytes in hexadecimal, and the depth."""
        return {"state": node.state.hex(), "depth": node.depth}

    def _mean(self, depth: int) -> float:
        """Return the mean number of children of a node of a geometric tree."""
        if depth == 0:
            return self.b0
        match self.shape:
            case "fixed":
                return self.b0 if depth < self.depth else 0.0
            case "linear":
                return self.b0 * (1.0 - depth / self.depth)
            case "exponential":
                return self.b0 * float(depth ** (-math.log(self.b0) / math.log(self.depth)))
            case "cyclic":
                turn = math.sin(2.0 * math.pi * depth / self.depth)
                return self.b0**turn if depth <= 5 * self.depth else 0.0


class _Counter:
    """A kernel that counts the nodes of a subtree without an iterator for each node."""

    def __init__(self, problem: UTS, fold: Nodes | NodesByDepth):
        self._states = problem.states
        self._by_depth = isinstance(fold, NodesByDepth)

    def __call__(self, node: Twig, cut: object, limit: int) -> Dive[Twig]:
        states, start = self._states, node.depth
        visited = [1]  # by depth below the node
        levels = [states(*node)]
        nodes, backtracks = 1, 0
        while levels and nodes < limit:
            if not (level := levels[-1]):
                levels.pop()
                backtracks += 1
                continue
            depth = len(levels)
            if depth == len(visited):
                visited.append(0)
            visited[depth] += 1
            nodes += 1
            if below := states(level.pop(), start + depth):
                levels.append(below)
            else:
                backtracks += 1
        return Dive(
            nodes,
            backtracks=backtracks,
            deepest=len(visited) - 1,
            total=[0] * start + visited if self._by_depth else nodes,
            rest=tuple(
                tuple(Twig(state, start + depth) for state in level)
                for depth, level in enumerate(levels, start=1)
            ),
        )


def _listed(names: object) -> str:
    return ", ".join(get_args(names))


def _rate(mean: float) -> float:
    """Return the logarithm of the probability of one more child, by the mean number of children."""
    more = 1.0 - 1.0 / (1.0 + mean)
    return math.log(more) if more > 0 else -math.inf


SAMPLES: dict[str, PublishedTree] = {
    "T1": PublishedTree({"depth": 10, "b0": 4, "seed": 19}, 4130071, 3305118, 10),
    "T2": PublishedTree(
        {"shape": "cyclic", "depth": 16, "b0": 6, "seed": 502}, 4117769, 2342762, 81
    ),
    "T3": PublishedTree(
        {"tree": "binomial", "b0": 2000, "q": 0.124875, "m": 8, "seed": 42}, 4112897, 3599034, 1572
    ),
    "T4": PublishedTree(
        {
            "tree": "hybrid",
            "shape": "linear",
            "depth": 16,
            "b0": 6,
            "seed": 1,
            "q": 0.234375,
            "m": 4,
        },
        4132453,
        3108986,
        134,
    ),
    "T5": PublishedTree(
        {"shape": "linear", "depth": 20, "b0": 4, "seed": 34}, 4147582, 2181318, 20
    ),
}
"""The small published trees, by name; the larger ones take hours in Python."""
