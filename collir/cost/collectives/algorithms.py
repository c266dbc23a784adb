"""The time of each algorithm of each collective: rounds of messages, or pipelines of chunks.

The time of rounds is the sum over the rounds of latency + bytes over the most loaded link. The time
of a pipeline (rings, chains, trees) is the latency of its longest chain of messages + the bytes of
all messages over the most loaded link.

An algorithm is a function that adds its time to a meter. Its docstring gives the seconds that it
adds on a flat network, where p is the number of ranks, n the bytes of the full buffer (the argument
``size``), a the latency, b the seconds per byte sent, g the seconds per byte reduced, and lg the
logarithm to base 2. Sources are the named files of MPICH (src/mpi/coll) and the papers.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import cast

import numpy as np

from collir.cost.collectives.phases import Latencies, Rounds
from collir.cost.network.group import CostError, Group
from collir.cost.network.loads import (
    Array,
    Load,
    ResourceSeconds,
    check_wired_pairs,
    load_latency,
    load_seconds,
    parent_seconds,
    port_bytes,
    summed_loads,
)
from collir.cost.network.rings import Ring
from collir.cost.network.traffic import (
    AllPairs,
    BinomialRound,
    Exchange,
    Listed,
    Offset,
    Pattern,
    Shift,
    Star,
    check_listed,
)
from collir.machine import LinkKind


@dataclass(frozen=True)
class Estimate:
    """The cost of a collective.

    Attributes:
        time: seconds.
        port_bytes: the bytes through the busiest port of every level, outermost first.
        rounds: the rounds in which it sends, where the model counts them.
        parents: the seconds of bytes through each port of parents that differ in size.
        latencies: the part of the time that no bytes take, where the model counts no rounds.
    """

    time: float
    port_bytes: tuple[float, ...]
    rounds: tuple[Rounds, ...] = ()
    parents: ResourceSeconds = ()
    latencies: Latencies = ()


@dataclass
class _RoundCost:
    """The cost of rounds of one pattern.

    Attributes:
        loads: messages on every level.
        latency: seconds of latency of one round.
        per_byte: seconds per byte of a message.
        size: the bytes of a message, summed over all rounds so far.
    """

    loads: tuple[Load, ...]
    latency: float
    per_byte: float
    size: float = 0.0


@lru_cache(maxsize=1024)
def _round_cost(pattern: Pattern, group: Group) -> _RoundCost:
    loads = pattern.loads(group)
    return _RoundCost(loads, load_latency(group, loads), load_seconds(group, loads))


@dataclass
class Meter:
    """Adds up an algorithm's rounds and pipelines on a group."""

    group: Group
    time: float = 0.0
    rounds: dict[Pattern, _RoundCost] = field(default_factory=dict[Pattern, _RoundCost])
    pipelines: list[tuple[tuple[Load, ...], float]] = field(
        default_factory=list[tuple[tuple[Load, ...], float]]
    )
    listed: list[Rounds] = field(default_factory=list[Rounds])

    def add_rounds(
        self, pattern: Pattern, size: float, times: float = 1, reduced: float = 0.0
    ) -> None:
        """Add ``times`` rounds of messages of ``size`` bytes; a rank reduces ``reduced`` bytes."""
        cost = self.rounds.get(pattern)
        if cost is None:
            cost = self.rounds[pattern] = replace(_round_cost(pattern, self.group))
        reduction = self.reduction_seconds(reduced)
        self.time += times * (cost.latency + cost.per_byte * size + reduction)
        cost.size += size * times
        self.listed.append(Rounds(times, cost.latency, cost.loads, size, size, reduction))

    def add_exchange(self, bit: int, size: float, reduced: float = 0.0) -> None:
        """Add a round in which all ranks exchange with the rank whose index differs in ``bit``.

        On a switch or bus all bits of one digit load the machine alike, so the first of them is
        used for all: there are only as many different rounds as digits.
        """
        digit, _ = self.group.bits[bit]
        if self.group.levels[digit.level].uniform:
            bit = next(i for i, (owner, _) in enumerate(self.group.bits) if owner is digit)
        self.add_rounds(Exchange(bit), size, 1, reduced)

    def add_pipeline(
        self,
        latency: float,
        parts: Sequence[tuple[Pattern, float]],
        reduced: float = 0.0,
    ) -> None:
        """Add messages that overlap: patterns, each with the bytes of a message."""
        loads = [(_round_cost(pattern, self.group).loads, size) for pattern, size in parts]
        message = max(size * pattern.part for pattern, size in parts)
        self.add_loads(latency, summed_loads(loads), message, reduced)

    def add_loads(
        self, latency: float, loads: tuple[Load, ...], message: float, reduced: float = 0.0
    ) -> None:
        """Add loads in bytes that overlap; one rank sends another ``message`` bytes in all."""
        reduction = self.reduction_seconds(reduced)
        self.time += latency + load_seconds(self.group, loads) + reduction
        self.pipelines.append((loads, 1.0))
        self.listed.append(Rounds(1, latency, loads, 1.0, message, reduction))

    def reduction_seconds(self, size: float) -> float:
        """Return the seconds a rank takes to reduce ``size`` bytes."""
        device = self.group.machine.slowest
        return size / device.reduction if device and device.reduction else 0.0

    @property
    def estimate(self) -> Estimate:
        """The cost of all that was added."""
        parts = [(cost.loads, cost.size) for cost in self.rounds.values()] + self.pipelines
        parents = parent_seconds(self.group, parts)
        return Estimate(self.time, port_bytes(parts), tuple(self.listed), parents)


Algorithm = Callable[[Meter, float], None]
"""A function that adds the cost of a collective on a full buffer, in bytes, to a meter."""


# ---------------------------------------------------------------------------------------------
# Rings and chains
# ---------------------------------------------------------------------------------------------


def ring_hops(group: Group) -> list[tuple[int, float]]:
    """Return the hops of a ring through a group, as (number, latency) for every level and, first,
    between parents that differ in size."""
    loads = _round_cost(Shift(1), group).loads
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


def _ring_latency(group: Group) -> float:
    """Return the latency of a chunk's way round a ring: that of all hops but the fastest."""
    hops = ring_hops(group)
    return math.fsum(n * a for n, a in hops) - min((a for _, a in hops), default=0.0)


def _ring(meter: Meter, size: float, reduced: float = 0.0) -> None:
    """Add p-1 rounds in which every rank passes a block on to the next rank.

    Half of each block goes round in either direction, as ports are full duplex.
    """
    p = meter.group.size
    meter.add_pipeline(_ring_latency(meter.group), [(Ring(), size * (p - 1) / p)], reduced)


def ring_all_gather(meter: Meter, size: float) -> None:
    """Add (p-1) a + n (p-1)/p b (allgather_intra_ring.c)."""
    _ring(meter, size)


def ring_reduce_scatter(meter: Meter, size: float) -> None:
    """Add (p-1) a + n (p-1)/p (b + g): the ring of an all_gather in reverse."""
    _ring(meter, size, size * _rest(meter))


def ring_all_reduce(meter: Meter, size: float) -> None:
    """Add 2 (p-1) a + 2 n (p-1)/p b + n (p-1)/p g: a ring reduce_scatter and a ring all_gather."""
    ring_reduce_scatter(meter, size)
    ring_all_gather(meter, size)


def _rest(meter: Meter) -> float:
    """Return (p-1)/p."""
    return (meter.group.size - 1) / meter.group.size


def _chain(meter: Meter, size: float, reduced: float) -> None:
    """Add a chain with the best number of segments.

    With k segments it takes (p-2+k) (a + n b/k) seconds, which is least for
    k = sqrt((p-2) n b / a).
    """
    group = meter.group
    latency = _ring_latency(group)
    slowest = max((a for _, a in ring_hops(group)), default=0.0)
    busy = _round_cost(Shift(1), group).per_byte * size + meter.reduction_seconds(reduced)
    fill = max(group.size - 2, 0) * busy
    best = math.sqrt(fill / slowest) if slowest else math.inf

    def time(k: float) -> float:
        return latency + (k - 1) * slowest + busy + fill / k

    if math.isinf(best):
        meter.add_pipeline(latency, [(Shift(1), size)], reduced)
        return
    segments = min((max(1.0, float(k)) for k in (math.floor(best), math.ceil(best))), key=time)
    meter.add_pipeline(time(segments) - busy, [(Shift(1), size)], reduced)


def chain_broadcast(meter: Meter, size: float) -> None:
    """Add (p-2+k) (a + n b/k): a pipeline of k segments from rank to rank, for the best k."""
    _chain(meter, size, 0.0)


def chain_reduce(meter: Meter, size: float) -> None:
    """Add (p-2+k) (a + n (b+g)/k): the chain broadcast in reverse."""
    _chain(meter, size, size)


# ---------------------------------------------------------------------------------------------
# Doubling and halving
# ---------------------------------------------------------------------------------------------


def _check_power_of_two(group: Group, name: str, instead: str) -> None:
    if not group.is_power_of_two:
        raise CostError(
            f"{name} needs a group of 2^k ranks, and this one has {group.size}: use {instead}"
        )


def doubling_all_gather(meter: Meter, size: float) -> None:
    """Add lg p a + n (p-1)/p b (allgather_intra_recursive_doubling.c), for 2^k ranks."""
    _check_power_of_two(meter.group, "the recursive_doubling all_gather", "bruck or ring")
    for bit in range(len(meter.group.bits)):
        meter.add_exchange(bit, size / meter.group.size * 2**bit)


def halving_reduce_scatter(meter: Meter, size: float) -> None:
    """Add lg p a + n (p-1)/p (b + g) (reduce_scatter_block_intra_recursive_halving.c).

    It needs 2^k ranks. The first round exchanges the largest part, with the farthest rank.
    """
    _check_power_of_two(
        meter.group, "the recursive_halving reduce_scatter", "pairwise, pat or ring"
    )
    for bit in reversed(range(len(meter.group.bits))):
        part = size / meter.group.size * 2**bit
        meter.add_exchange(bit, part, part)


def _folded(
    meter: Meter, size: float, core: Callable[[int, Callable[[int, float, float], None]], None]
) -> None:
    """Add the exchanges of ``core`` among 2^k ranks of a group of any size.

    Each rank beyond 2^k first sends all of its data to a neighbour that takes part, and receives
    the result from it at the end. ``core`` takes the number of bits and a function that adds the
    exchange in a bit: (bit, bytes, bytes reduced).
    """
    group = meter.group
    if group.is_power_of_two:
        core(len(group.bits), meter.add_exchange)
        return
    first, last, exchanges = _fold(group.size)
    meter.add_rounds(first, size, reduced=size)
    core(
        len(exchanges),
        lambda bit, part, reduced: meter.add_rounds(exchanges[bit], part, 1, reduced),
    )
    meter.add_rounds(last, size)


@lru_cache(maxsize=8)
def _fold(size: int) -> tuple[Listed, Listed, tuple[Listed, ...]]:
    """Return the rounds of ``_folded`` for a number of ranks that is no power of two.

    They are the messages before and after, and the exchanges among 2^k ranks, one for each bit.
    """
    check_listed(size)
    steps = size.bit_length() - 1
    extra = size - 2**steps
    index = cast(Array, np.arange(2**steps))
    pairs = index[:extra] * 2
    ranks = index + np.minimum(index + 1, extra)
    exchanges = (Listed(ranks, ranks[index ^ (1 << bit)]) for bit in range(steps))
    return Listed(pairs, pairs + 1), Listed(pairs + 1, pairs), tuple(exchanges)


def doubling_all_reduce(meter: Meter, size: float) -> None:
    """Add lg p (a + n b + n g) (allreduce_intra_recursive_doubling.c)."""

    def core(steps: int, exchange: Callable[[int, float, float], None]) -> None:
        for bit in range(steps):
            exchange(bit, size, size)

    _folded(meter, size, core)


def halving_doubling_all_reduce(meter: Meter, size: float) -> None:
    """Add 2 lg p a + 2 n (p-1)/p b + n (p-1)/p g (allreduce_intra_reduce_scatter_allgather.c).

    Rabenseifner's algorithm is a reduce_scatter by recursive halving, nearest rank first, and then
    an all_gather by the same exchanges in reverse.
    """

    def core(steps: int, exchange: Callable[[int, float, float], None]) -> None:
        for bit in range(steps):
            exchange(bit, size / 2 ** (bit + 1), size / 2 ** (bit + 1))
        for bit in reversed(range(steps)):
            exchange(bit, size / 2 ** (bit + 1), 0.0)

    _folded(meter, size, core)


def bruck_all_gather(meter: Meter, size: float) -> None:
    """Add ceil(lg p) a + n (p-1)/p b (allgather_intra_brucks.c)."""
    p = meter.group.size
    for distance in _powers(p):
        meter.add_rounds(Shift(p - distance), min(distance, p - distance) * size / p)


def bruck_all_to_all(meter: Meter, size: float) -> None:
    """Add ceil(lg p) a + (n/2) lg p b (alltoall_intra_brucks.c)."""
    p = meter.group.size
    for distance in _powers(p):
        blocks = p // (2 * distance) * distance + max(0, p % (2 * distance) - distance)
        meter.add_rounds(Shift(distance), blocks * size / p)


def _pat(meter: Meter, size: float, reducing: bool) -> None:
    """Add the rounds of NCCL's parallel aggregated trees (PAT, arXiv 2506.20252)."""
    p = meter.group.size
    for distance in _powers(p) if reducing else reversed(list(_powers(p))):
        part = math.ceil((p - distance) / (2 * distance)) * size / p
        meter.add_rounds(Shift(distance), part, reduced=part if reducing else 0.0)


def pat_all_gather(meter: Meter, size: float) -> None:
    """Add ceil(lg p) a + n (p-1)/p b: PAT, which sends small messages to far ranks first."""
    _pat(meter, size, reducing=False)


def pat_reduce_scatter(meter: Meter, size: float) -> None:
    """Add ceil(lg p) a + n (p-1)/p (b + g): the all_gather by PAT in reverse."""
    _pat(meter, size, reducing=True)


def _powers(p: int) -> Iterable[int]:
    """Return the powers of two below p: 1, 2, 4, ..."""
    return (1 << k for k in range((p - 1).bit_length()))


# ---------------------------------------------------------------------------------------------
# Every rank with every other rank
# ---------------------------------------------------------------------------------------------


def _pairwise(meter: Meter, size: float, reducing: bool) -> None:
    """Add p-1 rounds; in each, a rank exchanges with the rank at one offset, digit by digit."""
    group = meter.group
    part = size / group.size
    for level, across in enumerate(group.across):
        inside = group.below[level]
        wired = not group.levels[level].uniform
        if wired:
            check_wired_pairs(group, level)
        offsets = range(1, across if wired else min(across, 2))
        for offset in offsets:
            times = inside * (1 if wired else across - 1)
            meter.add_rounds(Offset(level, offset), part, times, part if reducing else 0.0)


def pairwise_all_to_all(meter: Meter, size: float) -> None:
    """Add (p-1) a + n (p-1)/p b (alltoall_intra_pairwise.c)."""
    _pairwise(meter, size, reducing=False)


def pairwise_reduce_scatter(meter: Meter, size: float) -> None:
    """Add (p-1) a + n (p-1)/p (b + g) (reduce_scatter_block_intra_pairwise.c)."""
    _pairwise(meter, size, reducing=True)


def _messages(group: Group, root: int | None = None) -> float:
    """Return the latency of messages from a root, or any rank, to all others, one after another."""
    counts = [n * (across - 1) for n, across in zip(group.below, group.across, strict=True)]
    apart = group.ranks_apart(root) if group.levels[0].parents else 0
    counts[0] -= apart
    inside = math.fsum(n * a for n, a in zip(counts, group.latencies, strict=True))
    return inside + apart * group.latency_between_parents


def direct_exchange(meter: Meter, size: float) -> None:
    """Add (p-1) a + n (p-1)/p b, without waiting between messages (alltoall_intra_scattered.c)."""
    meter.add_pipeline(_messages(meter.group), [(AllPairs(), size / meter.group.size)])


def direct_reduce_scatter(meter: Meter, size: float) -> None:
    """Add (p-1) a + n (p-1)/p (b + g): every rank sends every other rank the block it reduces."""
    meter.add_pipeline(
        _messages(meter.group),
        [(AllPairs(), size / meter.group.size)],
        size * _rest(meter),
    )


def direct_all_reduce(meter: Meter, size: float) -> None:
    """Add 2 (p-1) a + 2 n (p-1)/p b + n (p-1)/p g: a direct reduce_scatter, then an all_gather."""
    direct_reduce_scatter(meter, size)
    direct_exchange(meter, size)


def direct_rooted(meter: Meter, size: float) -> None:
    """Add (p-1) a + n (p-1)/p b: one message between the root and every other rank."""
    meter.add_pipeline(_messages(meter.group, 0), [(Star(), size / meter.group.size)])


# ---------------------------------------------------------------------------------------------
# Trees
# ---------------------------------------------------------------------------------------------


def _binomial(
    meter: Meter,
    part: Callable[[int], float],
    reducing: bool = False,
    subtrees: bool = False,
    to_root: bool = True,
) -> None:
    """Add the rounds of a binomial tree, one for each bit of the rank.

    Args:
        part: a function of the distance between sender and receiver that returns the bytes.
        reducing: True if receivers reduce.
        subtrees: True if a message holds blocks of a subtree, so that the last subtree, which may
            be smaller, gets a smaller message.
        to_root: True if data goes to the root, near ranks first; False if it comes from the root,
            to far ranks first.
    """
    group = meter.group
    rounds = list(enumerate(_powers(group.size)))
    for bit, distance in rounds if to_root else reversed(rounds):
        size = part(distance)
        if group.is_power_of_two:
            pattern: Pattern = BinomialRound(bit)
        else:
            pattern = _listed_tree(group.size, distance, subtrees)
        meter.add_rounds(pattern, size, reduced=size if reducing else 0.0)


@lru_cache(maxsize=256)
def _listed_tree(size: int, distance: int, subtrees: bool) -> Listed:
    """Return a round of a binomial tree for any number of ranks."""
    check_listed(size)
    sources = np.arange(0, size - distance, 2 * distance)
    share = np.minimum(1.0, (size - sources - distance) / distance)
    return Listed(sources, sources + distance, share if subtrees else None)


def binomial_broadcast(meter: Meter, size: float) -> None:
    """Add ceil(lg p) (a + n b) (bcast_intra_binomial.c)."""
    _binomial(meter, lambda _: size, to_root=False)


def binomial_reduce(meter: Meter, size: float) -> None:
    """Add ceil(lg p) (a + n b + n g) (reduce_intra_binomial.c)."""
    _binomial(meter, lambda _: size, reducing=True)


def binomial_gather(meter: Meter, size: float) -> None:
    """Add ceil(lg p) a + n (p-1)/p b (gather_intra_binomial.c)."""
    _binomial(meter, lambda distance: distance * size / meter.group.size, subtrees=True)


def binomial_scatter(meter: Meter, size: float) -> None:
    """Add ceil(lg p) a + n (p-1)/p b (scatter_intra_binomial.c): the binomial gather in reverse."""
    part = size / meter.group.size
    _binomial(meter, lambda distance: distance * part, subtrees=True, to_root=False)


def scatter_all_gather_broadcast(meter: Meter, size: float) -> None:
    """Add (lg p + p-1) a + 2 n (p-1)/p b (bcast_intra_scatter_ring_allgather.c)."""
    binomial_scatter(meter, size)
    ring_all_gather(meter, size)


def halving_gather_reduce(meter: Meter, size: float) -> None:
    """Add 2 lg p a + 2 n (p-1)/p b + n (p-1)/p g (reduce_intra_reduce_scatter_gather.c).

    It is a reduce_scatter by recursive halving and then a binomial gather, and needs 2^k ranks.
    """
    _check_power_of_two(meter.group, "the halving_doubling reduce", "binomial or chain")
    for bit in range(len(meter.group.bits)):
        part = size / 2 ** (bit + 1)
        meter.add_exchange(bit, part, part)
    for bit in reversed(range(len(meter.group.bits))):
        meter.add_rounds(BinomialRound(bit, leading=True), size / 2 ** (bit + 1))


@dataclass(frozen=True)
class _PipelinedTrees:
    """Pipelined trees over the children of every level, between one rank below each child.

    Attributes:
        own: the buffers that go through the busiest port of 2, 3, and 4 or more children, in its
            busier direction.
        passing: the buffers of them that also go through the ports inside, on the way to one rank.
        ways: 1 for trees up or down, 2 for trees up and then down.
        reduced: the buffers that a rank reduces at most.
    """

    own: tuple[float, float, float]
    passing: tuple[float, float, float]
    ways: int
    reduced: float

    def port_buffers(self, children: int) -> float:
        """Return the buffers through the busiest port of 2 or more children."""
        return self.own[min(children, 4) - 2]

    def __call__(self, meter: Meter, size: float) -> None:
        group = meter.group
        for level, across in zip(group.levels, group.across, strict=True):
            if across > 1 and not level.uniform:
                what = "in a matrix" if level.kind is LinkKind.LINKS else f"a {level.kind}"
                what = "has a list of sizes" if level.parents else f"links are {what}"
                whose = "which" if level.parents else "whose"
                raise CostError(f"trees are not costed on level '{level.name}', {whose} {what}")
        # ``buffers`` go through the ports of a parent; ``passing`` of them go to one rank below it.
        latency, buffers, passing = 0.0, 0.0, 0.0
        loads: list[Load] = []
        for level, across in enumerate(group.across):
            groups = group.beside[level] * group.groups_across[level]
            inside = self.ways * (across - 1) * groups
            leaving = buffers * groups * 2  # out and in
            if across > 1:
                latency += self.ways * (across - 1).bit_length() * group.latencies[level]
                buffers = passing + self.port_buffers(across)
                passing += self.passing[min(across, 4) - 2]
            port = buffers * group.beside[level]
            loads.append(Load(port * size, inside * size, (inside + leaving) * size))
        message = min(self.own[0], self.passing[0]) * size
        meter.add_loads(latency, tuple(loads), message, self.reduced * size)


binary_tree_all_reduce = _PipelinedTrees((1, 2, 3), (1, 2, 3), 2, 2)
"""2 ceil(lg p) a + 3 n b: chunks go up one binary tree and down again."""

double_tree_all_reduce = _PipelinedTrees((1, 1.5, 2), (0.5, 1, 1.5), 2, 1)
"""2 ceil(lg p) a + 2 n b: two trees with half of the buffer each; inner nodes of either tree are
leaves of the other (Sanders, Speck, Traeff 2009)."""

binary_tree_one_way = _PipelinedTrees((1, 2, 2), (1, 2, 2), 1, 0)
"""ceil(lg p) a + 2 n b: a broadcast of chunks down one binary tree."""

double_tree_one_way = _PipelinedTrees((1, 1, 1), (0.5, 1, 1), 1, 0)
"""ceil(lg p) a + n b: a broadcast down two trees (Sanders, Speck, Traeff 2009)."""

binary_tree_reduce = _PipelinedTrees((1, 2, 2), (1, 2, 2), 1, 2)
"""ceil(lg p) a + 2 n (b + g): the broadcast down one binary tree, in reverse."""

double_tree_reduce = _PipelinedTrees((1, 1, 1), (0.5, 1, 1), 1, 1)
"""ceil(lg p) a + n (b + g): the broadcast down two trees, in reverse."""
