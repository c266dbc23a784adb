"""The nodes of a search for cliques."""

from typing import NamedTuple


class CliqueNode(NamedTuple):
    """A clique and the vertices that may still join it, as sets of bits.

    Vertices are numbered by falling degree; ``show`` gives them back by their numbers in the file.

    Attributes:
        members: the clique.
        candidates: vertices adjacent to all of it, tried neither before nor at an earlier sibling.
        size: how many members there are.
        bound: no clique of members and candidates is greater.
    """

    members: int
    candidates: int
    size: int
    bound: int
