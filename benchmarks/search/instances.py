"""What the benchmarks search: generated here, the same each time."""

import random

from collir.problems.knapsack import Knapsack
from collir.problems.tsp import TSP


def narrow(items: int, seed: int) -> Knapsack:
    """Return a knapsack of half the weight of all items, which weigh about the same and are worth
    100 more than they weigh: bounds tell little apart."""
    generator = random.Random(seed)
    weights = [generator.randint(900, 1000) for _ in range(items)]
    return Knapsack([w + 100 for w in weights], weights, sum(weights) // 2)


def plane(cities: int, seed: int, dominance: bool = False) -> TSP:
    """Cities anywhere in a square, at straight distances rounded to whole numbers."""
    generator = random.Random(seed)
    points = [(generator.randint(0, 999), generator.randint(0, 999)) for _ in range(cities)]
    matrix = [[round(((x - u) ** 2 + (y - v) ** 2) ** 0.5) for u, v in points] for x, y in points]
    return TSP(matrix, dominance=dominance)
