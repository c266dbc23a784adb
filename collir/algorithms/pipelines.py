"""Pipelines of pieces: chains, and binary trees on every level of a machine.

In each round every rank passes on the piece that came before, so that all links are busy. The time
of these is a closed form, in which the number of pieces is the best one; these rounds are for code.

Sanders, Speck and Traeff, Two-tree algorithms for full bandwidth broadcast, reduction and scan,
2009.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from collir.algorithms.hierarchical import places_of, rank_at
from collir.algorithms.moves import Algorithm, Round
from collir.algorithms.patterns import GroupShape, Pattern, Ranks
from collir.machine import Level


@dataclass(frozen=True)
class ChainLinks(Pattern):
    """Rank i sends to rank i + 1, and the last one to none; or to rank i - 1, and the first one to
    none."""

    back: bool = False

    def targets(self, ranks: Ranks, turn: int, shape: GroupShape) -> Ranks:
        return np.maximum(ranks - 1, 0) if self.back else np.minimum(ranks + 1, shape.ranks - 1)


MOST_PIECES = 16
"""The most pieces of a pipeline in code: each is rounds of text."""


def best_pieces(name: str, shape: GroupShape, levels: Sequence[Level], size: float) -> int:
    """Return into how many pieces a pipeline cuts a buffer of some bytes.

    With h hops, latency a and t seconds for all bytes, (h - 1 + k) (a + t/k) is least for
    k = sqrt((h - 1) t / a).
    """
    reached = [levels[n] for n in shape.levels]
    seconds = size / min((level.port for level in reached), default=math.inf)
    latency = max((level.latency for level in reached), default=0.0)
    hops = shape.ranks - 1 if name == "chain" else 2 * shape.ranks.bit_length()
    best = math.sqrt((hops - 1) * seconds / latency) if latency else MOST_PIECES
    return max(1, min(MOST_PIECES, round(best)))


def chain_broadcast(shape: GroupShape) -> Iterator[Round]:
    """Yield the rounds in which pieces go from rank 0 along the chain."""

    def piece(turn: int, rank: int, _: int) -> range:
        return _piece(turn - rank, shape.pieces, 0)

    yield Round(ChainLinks(), piece, times=shape.pieces + shape.ranks - 2, length=1)


def chain_reduce(shape: GroupShape) -> Iterator[Round]:
    """Yield the rounds in which pieces go along the chain to rank 0, and are summed."""

    def piece(turn: int, rank: int, _: int) -> range:
        return _piece(turn - (shape.ranks - 1 - rank), shape.pieces, 0)

    times = shape.pieces + shape.ranks - 2
    yield Round(ChainLinks(back=True), piece, reduces=True, times=times, length=1)


def _piece(number: int, pieces: int, tree: int) -> range:
    """Return the block of a piece of a tree; none if there is no such piece."""
    first = tree * pieces + number
    return range(first, first + 1) if 0 <= number < pieces else range(0)


@dataclass(frozen=True)
class TreeNode:
    """A rank in a tree.

    Attributes:
        parent: the rank above it, or -1.
        turn: in which turn of a round its link is used.
        depth: the number of links to the root.
    """

    parent: int
    turn: int
    depth: int


@lru_cache(maxsize=256)
def tree_nodes(shape: GroupShape, tree: int, trees: int) -> tuple[TreeNode, ...]:
    """Return each rank in one of the trees of a group, whose root is rank 0.

    On each level the first ranks below the children are a binary tree. Of two trees, the second one
    has the children in reverse, so that a rank with children in one tree has none in the other.
    """
    nodes: list[TreeNode] = []
    for rank in range(shape.ranks):
        places, depth = places_of(shape, rank), 0
        parent, turn = -1, 0
        for number, level in enumerate(shape.levels):
            own, across = places[level], shape.across(level)
            above, side, far = _above(own, across, tree, trees)
            depth += far
            if own and all(places[n] == 0 for n in shape.levels[number + 1 :]):
                parent = rank_at(shape, places | {level: above})
                turn = (number * trees + tree) * 2 + side
        nodes.append(TreeNode(parent, turn, depth))
    return tuple(nodes)


def _above(own: int, across: int, tree: int, trees: int) -> tuple[int, int, int]:
    """Return the parent of a child in a tree of the children of a level, the side on which the
    child is below it, and the depth of the child."""
    if own == 0:
        return 0, 0, 0
    if trees == 1:
        return (own - 1) // 2, (own - 1) % 2, (own + 1).bit_length() - 1
    place = across - 1 - own if tree else own - 1
    if place == 0:
        return 0, 0, 1
    above = (place - 1) // 2
    return (across - 1 - above if tree else above + 1), (place - 1) % 2, (place + 1).bit_length()


@dataclass(frozen=True)
class TreeLinks(Pattern):
    """Ranks send to those below them in trees, or above."""

    trees: int
    up: bool = False

    def turns(self, shape: GroupShape) -> int:
        return 2 * self.trees * len(shape.levels)

    def tree(self, turn: int, shape: GroupShape) -> int:
        """Return the number of the tree whose links a turn has."""
        return turn % self.turns(shape) // 2 % self.trees

    def targets(self, ranks: Ranks, turn: int, shape: GroupShape) -> Ranks:
        nodes = tree_nodes(shape, self.tree(turn, shape), self.trees)
        to = np.arange(shape.ranks)
        for rank, node in enumerate(nodes):
            if node.parent >= 0 and node.turn == turn % self.turns(shape):
                sender, receiver = (rank, node.parent) if self.up else (node.parent, rank)
                to[sender] = receiver
        return to[ranks]


def _along(trees: int, up: bool, shape: GroupShape) -> Iterator[Round]:
    """Yield the rounds in which pieces go down trees, or up and are summed."""
    pattern = TreeLinks(trees, up)
    turns = pattern.turns(shape)
    nodes = [tree_nodes(shape, tree, trees) for tree in range(trees)]
    height = max(node.depth for own in nodes for node in own)

    def piece(turn: int, rank: int, _: int) -> range:
        tree = pattern.tree(turn, shape)
        depth = nodes[tree][rank].depth
        return _piece(turn // turns - (height - depth if up else depth), shape.pieces, tree)

    yield Round(pattern, piece, reduces=up, times=shape.pieces + height - 1, length=1)


def _all_reduce(trees: int, shape: GroupShape) -> Iterator[Round]:
    yield from _along(trees, True, shape)
    yield from _along(trees, False, shape)


def _pieces(trees: int, shape: GroupShape) -> int:
    return trees * shape.pieces


ALGORITHMS = [
    Algorithm("chain", "broadcast", chain_broadcast, blocks=partial(_pieces, 1)),
    Algorithm("chain", "reduce", chain_reduce, blocks=partial(_pieces, 1)),
    *(
        Algorithm(name, collective, rounds, blocks=partial(_pieces, trees))
        for name, trees in (("binary_tree", 1), ("double_binary_tree", 2))
        for collective, rounds in (
            ("all_reduce", partial(_all_reduce, trees)),
            ("broadcast", partial(_along, trees, False)),
            ("reduce", partial(_along, trees, True)),
        )
    ),
]
