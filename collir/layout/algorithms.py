"""The names of the algorithms that a collective can be asked to use; ``collir.cost`` knows them."""

from collir.layout.errors import LayoutError

ALGORITHMS: dict[str, tuple[str, ...]] = {
    "all_reduce": (
        "ring",
        "recursive_doubling",
        "halving_doubling",
        "binary_tree",
        "double_binary_tree",
        "direct",
    ),
    "reduce_scatter": ("ring", "recursive_halving", "pat", "pairwise", "direct"),
    "all_gather": ("ring", "recursive_doubling", "bruck", "pat", "direct"),
    "broadcast": ("binomial", "scatter_all_gather", "chain", "binary_tree", "double_binary_tree"),
    "reduce": ("binomial", "halving_doubling", "chain", "binary_tree", "double_binary_tree"),
    "gather": ("binomial", "direct"),
    "scatter": ("binomial", "direct"),
    "all_to_all": ("pairwise", "bruck", "direct"),
}
"""Collective -> its algorithms."""


def check_algorithm(collective: str, algorithm: str) -> None:
    """Whether there is such an algorithm.

    Raises:
        LayoutError: there is not.
    """
    known = ALGORITHMS[collective]
    if algorithm not in known:
        raise LayoutError(
            f"there is no algorithm '{algorithm}' for {collective}: use {', '.join(known)}",
            parameter="algorithm",
        )
