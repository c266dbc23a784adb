"""A problem of one's own: the fewest coins that make an amount.

collir search examples/search/coins.py:Coins 63 '[1, 5, 10, 21, 25]'
"""

from collections.abc import Iterator, Sequence

from collir.search import Problem

Chosen = tuple[int, ...]


class Coins(Problem[Chosen]):
    """The fewest coins that make an amount; a node is the coins chosen so far."""

    sense = "min"

    def __init__(self, amount: int, coins: Sequence[int]):
        self.amount, self.coins = amount, sorted(coins, reverse=True)

    def root(self) -> Chosen:
        return ()

    def children(self, node: Chosen) -> Iterator[Chosen]:
        left = self.amount - sum(node)
        return ((*node, coin) for coin in self.coins if coin <= left)

    def objective(self, node: Chosen) -> int | None:
        return len(node) if sum(node) == self.amount else None

    def bound(self, node: Chosen) -> int:
        return len(node) + -(-(self.amount - sum(node)) // self.coins[0])

    def key(self, node: Chosen) -> int:
        return sum(node)

    def cost(self, node: Chosen) -> int:
        return len(node)
