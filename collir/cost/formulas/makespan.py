"""The time of tasks that may overlap, as an expression of their times: that of the longest chain.

Where all tasks before a point end before any task behind it starts, the program is cut into parts,
and the times of the parts are added up. The time of a part is the largest sum over its chains, if
these are few. Otherwise it is a ``Makespan``: a function of the times of its tasks that is computed
in linear time.
"""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import sympy

from collir.cost.formulas.functions import Column, Expr, Larger, Valued, new_function
from collir.cost.formulas.memory import largest
from collir.cost.formulas.overlaps import last_before

MOST_CHAINS = 4
"""Up to how many chains are written as sums."""

Plan = tuple[tuple[int, tuple[int, ...]], ...]
"""For each task the number of its time, and the tasks right before it."""


class Makespan(Valued):
    """The seconds from the first start to the last end of some tasks; the arguments are the
    distinct times of tasks."""

    @classmethod
    def chain(cls, *seconds: float) -> Counter[int]:
        """Return how often each argument is in the longest chain."""
        raise NotImplementedError


def makespan(seconds: Sequence[Expr], behind: Sequence[int]) -> Expr:
    """Return the seconds of tasks.

    Args:
        seconds: the time of each task, not negative.
        behind: for each task, the set of tasks that have ended when it starts.
    """
    parts: list[Expr] = []
    before = last_before(behind)
    ends = _parts(behind)
    for first, end in zip([0, *ends], ends, strict=False):
        own = [tuple(n - first for n in before[k] if n >= first) for k in range(first, end)]
        parts.append(_of_part(seconds[first:end], own))
    return sympy.Add(*parts)


def _parts(behind: Sequence[int]) -> list[int]:
    """Return the ends of the parts of a list of tasks; a part begins when all before it have
    ended."""
    ends: list[int] = []
    shared = -1  # the tasks that have ended when any later task starts
    for number in reversed(range(len(behind))):
        if shared & (2 << number) - 1 == (2 << number) - 1:
            ends.append(number + 1)
        shared &= behind[number]
    return ends[::-1]


def _of_part(seconds: Sequence[Expr], before: Sequence[Sequence[int]]) -> Expr:
    """Return the seconds of tasks, each with the tasks right before it."""
    chains: list[list[Expr]] = []
    for number, time in enumerate(seconds):
        chains.append(
            [chain + time for n in before[number] for chain in chains[n]] or [sympy.sympify(time)]
        )
        if len(chains[-1]) > MOST_CHAINS:
            break
    else:
        inner = {n for numbers in before for n in numbers}
        whole = {c for n, own in enumerate(chains) if n not in inner for c in own}
        if len(whole) <= MOST_CHAINS:
            return largest(sorted(whole, key=sympy.default_sort_key))
    distinct = {time: number for number, time in enumerate(dict.fromkeys(seconds))}
    plan = tuple((distinct[time], tuple(n)) for time, n in zip(seconds, before, strict=True))
    return _makespan_of(plan)(*distinct)


@lru_cache(maxsize=256)
def _makespan_of(plan: Plan) -> type[Makespan]:
    """Return the function from the distinct times of tasks to the time of them all."""
    last_use = {n: number for number, (_, before) in enumerate(plan) for n in before}
    freed: list[list[int]] = [[] for _ in plan]
    for number, user in last_use.items():
        freed[user].append(number)
    sinks = [number for number in range(len(plan)) if number not in last_use]

    def values(_: type[Valued], *seconds: Column) -> Column:
        ends: dict[int, Column] = {}
        for number, (time, before) in enumerate(plan):
            if before:
                start = Larger.values(*(ends[n] for n in before))
                ends[number] = start + seconds[time]
            else:
                ends[number] = seconds[time]
            for n in freed[number]:
                del ends[n]
        return Larger.values(*(ends[n] for n in sinks))

    def chain(_: type[Valued], *seconds: float) -> Counter[int]:
        ends: list[float] = []
        for time, before in plan:
            ends.append(max((ends[n] for n in before), default=0.0) + seconds[time])
        counts = Counter[int]()
        number = max(range(len(plan)), key=ends.__getitem__)
        while True:
            time, before = plan[number]
            counts[time] += 1
            if not before:
                return counts
            number = max(before, key=ends.__getitem__)

    return new_function(Makespan, values=values, chain=chain)
