"""The price of algorithms that are rounds of moves: their messages on the links of a machine.

On a flat network these are the formulas of the field (docs/costs.md): with p ranks, n bytes of the
full buffer, a the latency, b seconds per byte sent and g per byte reduced, a ring all_reduce takes
2 (p-1) a + 2 n (p-1)/p b + n (p-1)/p g.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from collir.algorithms.moves import Algorithm, LocalCopy, Round, Waits
from collir.algorithms.patterns import (
    AllPairs,
    AroundLevel,
    BothWays,
    Exchange,
    GroupShape,
    Pattern,
    Ranks,
    Shift,
    Star,
)
from collir.cost.collectives.meter import Meter, round_cost
from collir.cost.network.group import Array, CostError, Group
from collir.cost.network.traffic import (
    Traffic,
    check_listed,
    listed_messages,
    listed_traffic,
    shape_of,
    traffic_of,
)


@dataclass(frozen=True)
class PricedRound:
    """A round as its price needs it.

    Attributes:
        traffic: the messages on the group: the pattern itself, or a list.
        part: the part of the full buffer of which a rank sends a message.
        reduced: the part of the full buffer that a rank reduces.
        times: how many rounds alike there are.
        latencies: how many of them a round waits for, where ranks wait for rounds.
    """

    pattern: Pattern
    traffic: Pattern | Traffic
    part: float
    reduced: float
    times: int
    waits: Waits
    latencies: int = 1


@dataclass(frozen=True)
class ByRounds:
    """Adds the time of an algorithm to a meter, for a full buffer in bytes.

    Attributes:
        pieces: into how many pieces it cuts the buffer, if it is a pipeline.
    """

    algorithm: Algorithm
    pieces: int = 1

    def __call__(self, meter: Meter, size: float) -> None:
        for priced in priced_rounds(self.algorithm, meter.group, meter.root, self.pieces):
            part, reduced = priced.part * size, priced.reduced * size
            if priced.waits is Waits.ROUND:
                meter.add_rounds(priced.traffic, part, priced.times, reduced, priced.latencies)
            else:
                latency = _pipeline_latency(priced, meter.group, meter.root)
                if meter.is_printed and priced.waits is Waits.DATA:
                    latency = priced.times * round_cost(priced.traffic, meter.group, False).latency
                whole = part * priced.times
                meter.add_pipeline(latency, [(priced.traffic, whole)], reduced * priced.times)


@lru_cache(maxsize=1024)
def priced_rounds(
    algorithm: Algorithm, group: Group, root: int = 0, pieces: int = 1
) -> tuple[PricedRound, ...]:
    """Return what the price of an algorithm needs to know of its rounds on a group.

    Args:
        root: the rank that is rank 0 of the algorithm; the next one is rank 1, and so on.

    Raises:
        CostError: the algorithm does not fit the group.
    """
    shape = replace(shape_of(group), pieces=pieces)
    try:
        algorithm.check(shape.ranks)
    except ValueError as error:
        raise CostError(str(error)) from None
    blocks = algorithm.blocks(shape)
    return tuple(
        _priced(round_, blocks, group, shape, root)
        for round_ in algorithm.rounds(shape)
        if not isinstance(round_, LocalCopy)
    )


_ALIKE = (Shift, BothWays, AllPairs)
"""The patterns that are the same whichever rank is the first."""


def _priced(each: Round, blocks: int, group: Group, shape: GroupShape, root: int) -> PricedRound:
    if (sized := each.pattern.sized_messages(shape)) is not None:
        return _priced_messages(each, *sized, blocks, group, root)
    sender = each.pattern.sender(shape)
    peer = int(each.pattern.targets(np.array([sender]), 0, shape)[0])
    length = each.length if each.length is not None else len(each.blocks(0, sender, peer))
    part = length / blocks
    pattern: Pattern | Traffic = each.pattern
    messages, is_round = each.pattern.turns(shape), each.waits is Waits.ROUND
    if root and not isinstance(pattern, _ALIKE):
        pattern = listed_traffic(pattern, group, each.counts, root)
    elif isinstance(pattern, Exchange):
        pattern = _alike(pattern, group)
    elif each.counts:
        pattern = traffic_of(pattern, group, each.counts)
    reduced = part * messages if each.reduces else 0.0
    whole = part / each.pattern.part
    latencies = _latencies(*each.pattern.messages(shape)) if messages > 1 and is_round else 1
    return PricedRound(each.pattern, pattern, whole, reduced, each.times, each.waits, latencies)


def _latencies(sources: Ranks, targets: Ranks) -> int:
    """Return how many latencies messages at the same time take.

    With m messages of one rank a tree of messages reaches as many in lg (m+1), rounded up. So data
    reach p ranks in no less than lg p latencies, which bounds rely on.
    """
    most = max(int(np.bincount(ends).max(initial=0)) for ends in (sources, targets))
    return max(1, most.bit_length())


def _priced_messages(
    each: Round, sources: Ranks, targets: Ranks, sizes: Ranks, blocks: int, group: Group, root: int
) -> PricedRound:
    """Return a round of messages of any sizes, in blocks."""
    check_listed(group.size)
    most = int(sizes.max(initial=0))
    received = np.bincount(targets, sizes).max() if each.reduces and most else 0
    listed = listed_messages(sources, targets, sizes, group, root)
    part, reduced = most / blocks, float(received) / blocks
    times = each.times if most else 0
    latencies = _latencies(sources, targets)
    return PricedRound(each.pattern, listed, part, reduced, times, each.waits, latencies)


def _alike(exchange: Exchange, group: Group) -> Exchange:
    """Return the exchange that loads the machine as much as another one.

    On a switch or bus all bits of one digit do so; it is that in the first of them. So there are
    only as many different rounds as digits.
    """
    digit, _ = group.bits[exchange.bit]
    if not group.levels[digit.level].uniform:
        return exchange
    return Exchange(next(n for n, (owner, _) in enumerate(group.bits) if owner is digit))


def _pipeline_latency(each: PricedRound, group: Group, root: int) -> float:
    """Return the latency of the longest chain of messages of rounds that overlap."""
    match each.pattern:
        case Shift(distance=1) | BothWays() if each.waits is Waits.DATA:
            return ring_latency(group)
        case AroundLevel(level=level) if each.waits is Waits.DATA:
            return _around_latency(group, level)
        case AllPairs() if each.waits is Waits.NOTHING:
            return _messages(group)
        case Star() if each.waits is Waits.NOTHING:
            return _messages(group, root)
        case _:
            raise NotImplementedError(f"the latency of {each.pattern} that waits for {each.waits}")


def _around_latency(group: Group, level: int) -> float:
    """Return the latency of a chunk's way round a ring on a level: that of all hops but the
    fastest."""
    hops, between = group.across[level], 0
    if level == 0 and group.levels[0].parents:
        following = AroundLevel(0).targets(np.arange(group.size), 0, shape_of(group))
        changes = group.parents_of_ranks != group.parents_of_ranks[:, following]
        between = _most_in_a_ring(changes, group, following)
    slow, fast = group.latency_between_parents, group.latencies[level]
    return between * slow + (hops - between) * fast - (fast if between < hops else slow)


def _most_in_a_ring(changes: Array, group: Group, following: Array) -> int:
    """Return the most changes of parents on the way round a ring of a level."""
    counts, at = np.zeros(changes.shape, dtype=np.int64), np.arange(group.size)
    for _ in range(group.across[0]):
        counts += changes[:, at]
        at = following[at]
    return int(counts.max())


def ring_hops(group: Group) -> list[tuple[int, float]]:
    """Return the hops of a ring through a group, as (number, latency) for every level and, first,
    between parents that differ in size."""
    loads = round_cost(Shift(1), group).loads
    hops: list[tuple[int, float]] = []
    between = group.hops_between_parents if group.levels[0].parents else 0
    if between:
        hops.append((between, group.latency_between_parents))
    parents = 1
    ranks = group.size
    for level, load in enumerate(loads):
        groups = group.beside[level] * group.groups_across[level]
        count = round(load.inside / groups) * parents - (between if level == 0 else 0)
        if count:
            hops.append((count, group.latencies[level]))
        ranks = group.below[level]
        parents = group.size // ranks
    return hops


def ring_latency(group: Group) -> float:
    """Return the latency of a chunk's way round a ring: that of all hops but the fastest."""
    hops = ring_hops(group)
    return math.fsum(n * a for n, a in hops) - min((a for _, a in hops), default=0.0)


def _messages(group: Group, root: int | None = None) -> float:
    """Return the latency of messages from a root, or any rank, to all others, one after another."""
    counts = [n * (across - 1) for n, across in zip(group.below, group.across, strict=True)]
    apart = group.ranks_apart(root) if group.levels[0].parents else 0
    counts[0] -= apart
    inside = math.fsum(n * a for n, a in zip(counts, group.latencies, strict=True))
    return inside + apart * group.latency_between_parents
