"""Searches written by hand: the trees of ``MaxClique`` and ``Knapsack``, in the same order.

Each is a recursive function without an engine, node objects, or calls except to itself.
"""

from bisect import bisect_right

from collir.problems.clique import MaxClique
from collir.problems.knapsack import Knapsack


def max_clique(problem: MaxClique) -> tuple[int, int, int]:
    """Return the size of the greatest clique, the clique as bits, and the nodes visited."""
    adjacent, apart = problem.adjacent, problem.apart
    best = clique = nodes = 0

    def expand(members: int, candidates: int, size: int) -> None:
        nonlocal best, clique, nodes
        nodes += 1
        if size > best:
            best, clique = size, members
        order: list[tuple[int, int]] = []
        colour, left = size, candidates
        while left:
            colour += 1
            free, used = left, 0
            while free:
                low = free & -free
                v = low.bit_length() - 1
                order.append((v, colour))
                used |= low
                free &= apart[v]
            left ^= used
        for v, colour in reversed(order):
            if colour <= best:
                return
            bit = 1 << v
            expand(members | bit, candidates & adjacent[v], size + 1)
            candidates ^= bit

    expand(0, (1 << problem.graph.n) - 1, 0)
    return best, clique, nodes


def max_clique_with_incumbent(problem: MaxClique) -> tuple[int, int, int]:
    """Return the same as ``max_clique``, without listing vertices of colours too low to matter.

    A node generator cannot do so, because it does not know the incumbent.
    """
    adjacent, apart = problem.adjacent, problem.apart
    best = clique = nodes = 0

    def expand(members: int, candidates: int, size: int) -> None:
        nonlocal best, clique, nodes
        nodes += 1
        if size > best:
            best, clique = size, members
        order: list[tuple[int, int]] = []
        colour, left = size, candidates
        while left:
            colour += 1
            free, used = left, 0
            if colour <= best:
                while free:
                    low = free & -free
                    used |= low
                    free &= apart[low.bit_length() - 1]
            else:
                while free:
                    low = free & -free
                    v = low.bit_length() - 1
                    order.append((v, colour))
                    used |= low
                    free &= apart[v]
            left ^= used
        for v, colour in reversed(order):
            if colour <= best:
                return
            bit = 1 << v
            expand(members | bit, candidates & adjacent[v], size + 1)
            candidates ^= bit

    expand(0, (1 << problem.graph.n) - 1, 0)
    return best, clique, nodes


def knapsack(problem: Knapsack) -> tuple[int, int, int]:
    """Return the greatest value, the items (by density) as bits, and the nodes visited."""
    # the items in the order in which the problem sorts them
    order = problem.__dict__["_order"]
    value_of = [problem.values[i] for i in order]
    weight_of = [problem.weights[i] for i in order]
    values_before, weights_before = [0], [0]
    for v, w in zip(value_of, weight_of, strict=True):
        values_before.append(values_before[-1] + v)
        weights_before.append(weights_before[-1] + w)
    n = len(order)
    best, packed, nodes = -1, 0, 0

    def expand(index: int, value: int, remaining: int, chosen: int) -> None:
        nonlocal best, packed, nodes
        nodes += 1
        if value > best:
            best, packed = value, chosen
        for i in range(index, n):
            weight = weight_of[i]
            if weight > remaining:
                continue
            left, worth, first = remaining - weight, value + value_of[i], i + 1
            room = weights_before[first] + left
            split = bisect_right(weights_before, room, first) - 1
            bound = worth + values_before[split] - values_before[first]
            if split < n:
                bound += (room - weights_before[split]) * value_of[split] // weight_of[split]
            if bound <= best:
                return
            expand(first, worth, left, chosen | 1 << i)

    expand(0, 0, problem.capacity, 0)
    return best, packed, nodes
