"""Rewrites that pay alone but not together; those that make a function slower are left out."""

import math
from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple

from xdsl.dialects.func import FuncOp

from collir.ir.remarks import remark
from collir.synthesis.programs.search_options import TIE

Kinds = frozenset[Hashable]
"""Kinds of rewrites: those of one kind replace equal steps by equal ones."""

MOST_KINDS = 32
"""The most kinds of rewrites that are left out in turn, if they make a function slower."""


class Rewrites:
    """The kinds of rewrites of a function.

    Attributes:
        left_out: the kinds that are not made.
        made: the kinds that were made, in order.
    """

    def __init__(self, left_out: Kinds):
        self.left_out, self.made = left_out, dict[Hashable, None]()

    def makes(self, *kind: Hashable) -> bool:
        """Return whether rewrites of a kind are made; note it if they are."""
        if kind in self.left_out:
            return False
        self.made[kind] = None
        return True


class RewriteRank(NamedTuple):
    """The rank of a function with rewrites, compared with the function before.

    Attributes:
        slower: the ratio of its time to the time before; 1 if it is no slower.
        time: its seconds.
    """

    slower: float
    time: float

    @staticmethod
    def of(time: float, before: float) -> "RewriteRank":
        """Return the rank of a function, by its seconds and its seconds before."""
        if time <= before * (1 + TIE):
            return RewriteRank(1.0, time)
        return RewriteRank(time / before if before else math.inf, time)


def left_out_of(
    function: FuncOp,
    name: str,
    tried: Callable[[Kinds], tuple[RewriteRank, Iterable[Hashable]]],
    otherwise: str = "be slower",
) -> Kinds | None:
    """Return the kinds of rewrites that a pass has to leave out so that a function gets no slower,
    with a remark if there are some; None if no rewrite pays.

    Where all together do not pay, each kind without which the function is faster is left out.

    Args:
        name: the name of the pass.
        tried: a function from the kinds left out to the rank with all others, and these others.
        otherwise: the effect of all rewrites on the function, in words.
    """
    left_out: Kinds = frozenset()
    rank, listed = tried(left_out)
    made = list(listed)
    if rank.slower == 1:
        return left_out
    kinds = len(made)
    for kind in made[:MOST_KINDS]:
        trial, others = tried(left_out | {kind})
        if trial < rank:
            left_out, rank, made = left_out | {kind}, trial, list(others)
    label = f"@{function.sym_name.data}"
    if rank.slower == 1 and made:
        what = f"leaves {kinds - len(made)} of {kinds} kinds of rewrites out of {label}"
    else:
        what = f"keeps {label}"
    remark(function, f"{name} {what}: as a whole it would {otherwise}")
    return left_out if rank.slower == 1 and made else None
