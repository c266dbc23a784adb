"""The problems that the benchmarks search, generated from seeds."""

import random

from collir.problems.knapsack import Knapsack
from collir.problems.tsp import TSP


def narrow(items: int, seed: int) -> Knapsack:
    """Return a knapsack for half the weight of all items, whose bounds tell little apart.

    The items weigh about the same, and the value of an item is its weight plus 100.
    """
    generator = random.Random(seed)
    weights = [generator.randint(900, 1000) for _ in range(items)]
    return Knapsack([w + 100 for w in weights], weights, sum(weights) // 2)


def plane(cities: int, seed: int, dominance: bool = False) -> TSP:
    """Return random cities in a square, with Euclidean distances rounded to whole numbers."""
    generator = random.Random(seed)
    points = [(generator.randint(0, 999), generator.randint(0, 999)) for _ in range(cities)]
    matrix = [[round(((x - u) ** 2 + (y - v) ** 2) ** 0.5) for u, v in points] for x, y in points]
    return TSP(matrix, dominance=dominance)
