"""Trees as an algorithm that a ``.coll`` file declares: pieces of a block that follow each other.

Each tree has blocks of its own, cut into pieces. In a step every link of every tree carries a
piece: each link is one piece ahead of the links behind it, so that all links are busy.
"""

import math
from collections.abc import Iterator, Sequence

from collir.synthesis.trees.packing import SpanningTree
from collir.synthesis.trees.program import gathers, reduces
from collir.synthesis.trees.schedules import TreeSchedule

MOST_PIECES = 32
"""The most pieces of a block."""


def pieces_for(schedule: TreeSchedule, size: float) -> int:
    """Return the number of pieces per block with which a buffer of some bytes takes least time.

    With k pieces and trees of depth d it takes (k + d - 1) (a + t/k), which is least for
    k = sqrt((d - 1) t / a), where a is the latency of a link and t the time of all bytes.
    """
    latency = schedule.latency / schedule.depth
    best = math.sqrt((schedule.depth - 1) * size / schedule.bandwidth / latency) if latency else 1
    return max(1, min(MOST_PIECES, round(best)))


def declared_text(name: str, collective: str, trees: Sequence[SpanningTree], pieces: int) -> str:
    """Return the declaration of an algorithm of trees; the root of a rooted one is rank 0."""
    blocks = pieces * sum(tree.count for tree in trees)
    lines = [f"algorithm @{name} {collective}(rank of ranks) blocks {blocks} {{"]
    deepest = max(tree.depth for tree in trees)
    ways = [up for up in (True, False) if (reduces if up else gathers)(collective)]
    for up in ways:
        lines.append(f"  for step = 0 to {pieces + deepest - 2} {{")
        lines.append("    together {")
        lines += (f"      {line}" for line in _sends(trees, pieces, deepest, up))
        lines += ["    }", "  }"]
    return "\n".join([*lines, "}"]) + "\n"


def _sends(trees: Sequence[SpanningTree], pieces: int, deepest: int, up: bool) -> Iterator[str]:
    """Yield a send for each link of each tree."""
    first = 0
    for tree in sorted(trees, key=lambda tree: tree.root):
        for parent, rank in tree.links:
            depth = tree.depths[rank]
            wait = deepest - depth if up else depth - 1
            sender, receiver = (rank, parent) if up else (parent, rank)
            behind = f"step - {wait}" if wait else "step"
            times = f"{tree.count} * ({behind})" if tree.count > 1 else behind
            begin = f"{first} + {times}" if first else times
            count = f" count {tree.count}" if tree.count > 1 else ""
            adds = " reduce" if up else ""
            when = f"rank == {sender} and step >= {wait} and step < {wait + pieces}"
            yield f"send block {begin}{count} to {receiver}{adds} if {when}"
        first += tree.count * pieces


_TYPES = {
    "all_gather": ("f32[{n}@rank]", "f32[{n}]", "over rank dim 0"),
    "reduce_scatter": ("f32[{n}] partial(sum: rank)", "f32[{n}@rank]", "over rank dim 0"),
    "all_reduce": ("f32[{n}] partial(sum: rank)", "f32[{n}]", "over rank"),
    "broadcast": ("f32[{n}] root(rank)", "f32[{n}]", "over rank"),
    "reduce": ("f32[{n}] partial(sum: rank)", "f32[{n}] root(rank)", "over rank"),
}
"""The types of operand and result of each collective, and its clauses."""


def program_using(collective: str, elements: int, name: str) -> str:
    """Return a function on a mesh ``@all`` with an axis ``rank`` that uses an algorithm."""
    taken, given, clauses = (text.format(n=elements) for text in _TYPES[collective])
    return (
        f"func @{collective}(%x: {taken}) -> {given} on @all {{\n"
        f"  %y = {collective} %x {clauses} using @{name}\n"
        "  return %y\n}\n"
    )
