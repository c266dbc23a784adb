"""How long each algorithm of each collective takes: rounds of messages, or pipelines of chunks.

An algorithm of rounds takes the sum over its rounds of latency + bytes over the most loaded link;
a pipelined one (rings, chains, trees) the latency of its longest chain of messages + the bytes of
all messages over the most loaded link. ``size`` is the n of the formulas: the full buffer in
bytes. Sources: the files of MPICH named in each function (src/mpi/coll), and the papers.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import cast

import numpy as np

from collir.cost.collectives.phases import Rounds
from collir.cost.network.group import CostError, Group
from collir.cost.network.loads import (
    Array,
    Load,
    check_wired_pairs,
    load_seconds,
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
from collir.cost.network.wires import has_wires
from collir.machine import LinkKind


@dataclass(frozen=True)
class Estimate:
    """What a step costs: seconds, the bytes through the busiest port of every level, and, where
    the model counts them, the rounds in which it sends."""

    time: float
    port_bytes: tuple[float, ...]
    rounds: tuple[Rounds, ...] = ()


@dataclass
class _Round:
    """A pattern's loads, its latency, its seconds per byte, and the bytes of all its rounds."""

    loads: tuple[Load, ...]
    latency: float
    per_byte: float
    size: float = 0.0


@lru_cache(maxsize=1024)
def _round(pattern: Pattern, group: Group) -> _Round:
    loads = pattern.loads(group)
    each = zip(group.latencies, loads, strict=True)
    latency = next((a for a, load in each if load.port), 0.0)
    return _Round(loads, latency, load_seconds(group, loads))


@dataclass
class Meter:
    """Adds up an algorithm's rounds and pipelines on a group."""

    group: Group
    time: float = 0.0
    rounds: dict[Pattern, _Round] = field(default_factory=dict[Pattern, _Round])
    pipelines: list[tuple[tuple[Load, ...], float]] = field(
        default_factory=list[tuple[tuple[Load, ...], float]]
    )
    listed: list[Rounds] = field(default_factory=list[Rounds])

    def round(self, pattern: Pattern, size: float, times: float = 1, reduced: float = 0.0) -> None:
        """``times`` rounds of messages of ``size`` bytes, of which a rank reduces ``reduced``."""
        known = self.rounds.get(pattern)
        if known is None:
            known = self.rounds[pattern] = replace(_round(pattern, self.group))
        reduction = self.reduction(reduced)
        self.time += times * (known.latency + known.per_byte * size + reduction)
        known.size += size * times
        self.listed.append(Rounds(times, known.latency, known.loads, size, size, reduction))

    def exchange(self, bit: int, size: float, reduced: float = 0.0) -> None:
        """A round in which all exchange with the rank that differs in a bit.

        On a switch or bus all bits of one digit load the machine alike, so the first stands for
        them: the number of different rounds is that of the digits.
        """
        digit, _ = self.group.bits[bit]
        if self.group.levels[digit.level].kind in (LinkKind.SWITCH, LinkKind.BUS):
            bit = next(i for i, (other, _) in enumerate(self.group.bits) if other is digit)
        self.round(Exchange(bit), size, 1, reduced)

    def pipeline(
        self,
        latency: float,
        parts: Sequence[tuple[Pattern, float]],
        reduced: float = 0.0,
    ) -> None:
        """Messages that overlap."""
        loads = [(_round(pattern, self.group).loads, size) for pattern, size in parts]
        self.add(latency, summed_loads(loads), max(size * one.part for one, size in parts), reduced)

    def add(
        self, latency: float, loads: tuple[Load, ...], message: float, reduced: float = 0.0
    ) -> None:
        """Loads in bytes that overlap; a rank sends another ``message`` bytes in all."""
        reduction = self.reduction(reduced)
        self.time += latency + load_seconds(self.group, loads) + reduction
        self.pipelines.append((loads, 1.0))
        self.listed.append(Rounds(1, latency, loads, 1.0, message, reduction))

    def reduction(self, size: float) -> float:
        """The seconds a rank takes to reduce so many bytes."""
        device = self.group.machine.device
        return size / device.reduction if device and device.reduction else 0.0

    @property
    def estimate(self) -> Estimate:
        """All so far."""
        rounds = [(each.loads, each.size) for each in self.rounds.values()]
        return Estimate(self.time, port_bytes([*rounds, *self.pipelines]), tuple(self.listed))


Algorithm = Callable[[Meter, float], None]
"""Adds the cost of a collective on a full buffer of so many bytes to a meter."""


# ---------------------------------------------------------------------------------------------
# Rings and chains
# ---------------------------------------------------------------------------------------------


def ring_hops(group: Group) -> list[tuple[int, float]]:
    """The hops of a ring through a group: (how many, latency) by the level they cross."""
    loads = _round(Shift(1), group).loads
    found: list[tuple[int, float]] = []
    parents = 1
    ranks = group.size
    for level, load in enumerate(loads):
        groups = group.beside[level] * group.groups_across[level]
        count = round(load.inside / groups) * parents
        if count:
            found.append((count, group.latencies[level]))
        ranks = group.below[level]
        parents = group.size // ranks
    return found


def _journey(group: Group) -> float:
    """The latency of a chunk's way round a ring: all hops but the fastest one."""
    each = ring_hops(group)
    return math.fsum(n * a for n, a in each) - min((a for _, a in each), default=0.0)


def _ring(meter: Meter, size: float, reduced: float = 0.0) -> None:
    """Every rank's block goes round; half of it in either direction, as ports are full duplex."""
    p = meter.group.size
    meter.pipeline(_journey(meter.group), [(Ring(), size * (p - 1) / p)], reduced)


def ring_all_gather(meter: Meter, size: float) -> None:
    """(p-1) a + n (p-1)/p b (allgather_intra_ring.c)."""
    _ring(meter, size)


def ring_reduce_scatter(meter: Meter, size: float) -> None:
    """(p-1) a + n (p-1)/p (b + g): the ring of an all_gather backwards."""
    _ring(meter, size, size * _share(meter))


def ring_all_reduce(meter: Meter, size: float) -> None:
    """2 (p-1) a + 2 n (p-1)/p b + n (p-1)/p g: a reduce_scatter and an all_gather."""
    ring_reduce_scatter(meter, size)
    ring_all_gather(meter, size)


def _share(meter: Meter) -> float:
    return (meter.group.size - 1) / meter.group.size


def _chain(meter: Meter, size: float, reduced: float) -> None:
    """(p-2+k) (a + n b/k) with the best number of segments k = sqrt((p-2) n b / a)."""
    group = meter.group
    each = ring_hops(group)
    slowest = max((a for _, a in each), default=0.0)
    busy = _round(Shift(1), group).per_byte * size + meter.reduction(reduced)
    fill = max(group.size - 2, 0) * busy
    best = math.sqrt(fill / slowest) if slowest else math.inf

    def time(k: float) -> float:
        return _journey(group) + (k - 1) * slowest + busy + fill / k

    if math.isinf(best):
        meter.pipeline(_journey(group), [(Shift(1), size)], reduced)
        return
    segments = min((max(1.0, float(k)) for k in (math.floor(best), math.ceil(best))), key=time)
    meter.pipeline(time(segments) - busy, [(Shift(1), size)], reduced)


def chain_broadcast(meter: Meter, size: float) -> None:
    """(p-2+k) (a + n b/k), pipelined in the best number of segments (textbook)."""
    _chain(meter, size, 0.0)


def chain_reduce(meter: Meter, size: float) -> None:
    """(p-2+k) (a + n (b+g)/k): a broadcast backwards."""
    _chain(meter, size, size)


# ---------------------------------------------------------------------------------------------
# Doubling and halving
# ---------------------------------------------------------------------------------------------


def _power_of_two(group: Group, name: str, instead: str) -> None:
    if not group.is_power_of_two:
        raise CostError(
            f"{name} needs a group of 2^k ranks, and this one has {group.size}: use {instead}"
        )


def doubling_all_gather(meter: Meter, size: float) -> None:
    """lg p a + n (p-1)/p b (allgather_intra_recursive_doubling.c), for 2^k ranks."""
    _power_of_two(meter.group, "the recursive_doubling all_gather", "bruck or ring")
    for bit in range(len(meter.group.bits)):
        meter.exchange(bit, size / meter.group.size * 2**bit)


def halving_reduce_scatter(meter: Meter, size: float) -> None:
    """lg p a + n (p-1)/p (b + g) (reduce_scatter_block_intra_recursive_halving.c), for 2^k ranks;
    the farthest half first."""
    _power_of_two(meter.group, "the recursive_halving reduce_scatter", "pairwise, pat or ring")
    for bit in reversed(range(len(meter.group.bits))):
        part = size / meter.group.size * 2**bit
        meter.exchange(bit, part, part)


def _folded(
    meter: Meter, size: float, core: Callable[[int, Callable[[int, float, float], None]], None]
) -> None:
    """The exchanges of 2^k ranks, where the ranks too many first give all they have to a neighbour
    and get the result in the end."""
    group = meter.group
    if group.is_power_of_two:
        core(len(group.bits), meter.exchange)
        return
    first, last, exchanges = _fold(group.size)
    meter.round(first, size, reduced=size)
    core(
        len(exchanges),
        lambda bit, part, reduced: meter.round(exchanges[bit], part, 1, reduced),
    )
    meter.round(last, size)


@lru_cache(maxsize=8)
def _fold(size: int) -> tuple[Listed, Listed, tuple[Listed, ...]]:
    """For groups that are not of 2^k ranks: the messages before, those after, and the exchanges of
    the 2^k ranks in between, a bit each."""
    check_listed(size)
    steps = size.bit_length() - 1
    extra = size - 2**steps
    index = cast(Array, np.arange(2**steps))
    pairs = index[:extra] * 2
    ranks = index + np.minimum(index + 1, extra)
    exchanges = (Listed(ranks, ranks[index ^ (1 << bit)]) for bit in range(steps))
    return Listed(pairs, pairs + 1), Listed(pairs + 1, pairs), tuple(exchanges)


def doubling_all_reduce(meter: Meter, size: float) -> None:
    """lg p (a + n b + n g) (allreduce_intra_recursive_doubling.c)."""

    def core(steps: int, exchange: Callable[[int, float, float], None]) -> None:
        for bit in range(steps):
            exchange(bit, size, size)

    _folded(meter, size, core)


def halving_doubling_all_reduce(meter: Meter, size: float) -> None:
    """2 lg p a + 2 n (p-1)/p b + n (p-1)/p g (Rabenseifner; allreduce_intra_reduce_scatter_
    allgather.c): halves with the nearest rank first, then the way back."""

    def core(steps: int, exchange: Callable[[int, float, float], None]) -> None:
        for bit in range(steps):
            exchange(bit, size / 2 ** (bit + 1), size / 2 ** (bit + 1))
        for bit in reversed(range(steps)):
            exchange(bit, size / 2 ** (bit + 1), 0.0)

    _folded(meter, size, core)


def bruck_all_gather(meter: Meter, size: float) -> None:
    """ceil(lg p) a + n (p-1)/p b (allgather_intra_brucks.c)."""
    p = meter.group.size
    for distance in _powers(p):
        meter.round(Shift(p - distance), min(distance, p - distance) * size / p)


def bruck_all_to_all(meter: Meter, size: float) -> None:
    """ceil(lg p) a + (n/2) lg p b (alltoall_intra_brucks.c)."""
    p = meter.group.size
    for distance in _powers(p):
        blocks = p // (2 * distance) * distance + max(0, p % (2 * distance) - distance)
        meter.round(Shift(distance), blocks * size / p)


def _pat(meter: Meter, size: float, reducing: bool) -> None:
    p = meter.group.size
    for distance in _powers(p) if reducing else reversed(list(_powers(p))):
        part = math.ceil((p - distance) / (2 * distance)) * size / p
        meter.round(Shift(distance), part, reduced=part if reducing else 0.0)


def pat_all_gather(meter: Meter, size: float) -> None:
    """ceil(lg p) a + n (p-1)/p b: far ranks first, while it is little (arXiv 2506.20252)."""
    _pat(meter, size, reducing=False)


def pat_reduce_scatter(meter: Meter, size: float) -> None:
    """ceil(lg p) a + n (p-1)/p (b + g): the all_gather backwards (arXiv 2506.20252)."""
    _pat(meter, size, reducing=True)


def _powers(p: int) -> Iterable[int]:
    """1, 2, 4, ... below p."""
    return (1 << k for k in range((p - 1).bit_length()))


# ---------------------------------------------------------------------------------------------
# Everyone with everyone
# ---------------------------------------------------------------------------------------------


def _pairwise(meter: Meter, size: float, reducing: bool) -> None:
    """p-1 rounds, each with the ranks at one offset, digit by digit of the rank."""
    group = meter.group
    part = size / group.size
    for level, across in enumerate(group.across):
        inside = group.below[level]
        wired = has_wires(group.levels[level])
        if wired:
            check_wired_pairs(group, level)
        offsets = range(1, across if wired else min(across, 2))
        for offset in offsets:
            times = inside * (1 if wired else across - 1)
            meter.round(Offset(level, offset), part, times, part if reducing else 0.0)


def pairwise_all_to_all(meter: Meter, size: float) -> None:
    """(p-1) a + n (p-1)/p b (alltoall_intra_pairwise.c)."""
    _pairwise(meter, size, reducing=False)


def pairwise_reduce_scatter(meter: Meter, size: float) -> None:
    """(p-1) a + n (p-1)/p (b + g) (reduce_scatter_block_intra_pairwise.c)."""
    _pairwise(meter, size, reducing=True)


def _messages(group: Group) -> float:
    """The latency of a message to every other rank, one after the other."""
    return math.fsum(
        group.below[level] * (across - 1) * group.latencies[level]
        for level, across in enumerate(group.across)
    )


def direct_exchange(meter: Meter, size: float) -> None:
    """(p-1) a + n (p-1)/p b, without waiting between messages (alltoall_intra_scattered.c)."""
    meter.pipeline(_messages(meter.group), [(AllPairs(), size / meter.group.size)])


def direct_reduce_scatter(meter: Meter, size: float) -> None:
    """(p-1) a + n (p-1)/p (b + g): every rank sends all others their blocks."""
    meter.pipeline(
        _messages(meter.group),
        [(AllPairs(), size / meter.group.size)],
        size * _share(meter),
    )


def direct_all_reduce(meter: Meter, size: float) -> None:
    """2 (p-1) a + 2 n (p-1)/p b + n (p-1)/p g."""
    direct_reduce_scatter(meter, size)
    direct_exchange(meter, size)


def direct_rooted(meter: Meter, size: float) -> None:
    """(p-1) a + n (p-1)/p b: a message between the root and every other rank."""
    meter.pipeline(_messages(meter.group), [(Star(), size / meter.group.size)])


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
    """A round for each bit of the rank; ``part`` gives the bytes of a message for a bit's value.

    With ``subtrees``, the last subtree, which may be smaller, gets less. What goes to the root does
    so over near ranks first, what comes from it over far ones.
    """
    group = meter.group
    rounds = list(enumerate(_powers(group.size)))
    for bit, distance in rounds if to_root else reversed(rounds):
        size = part(distance)
        if group.is_power_of_two:
            pattern: Pattern = BinomialRound(bit)
        else:
            pattern = _listed_tree(group.size, distance, subtrees)
        meter.round(pattern, size, reduced=size if reducing else 0.0)


@lru_cache(maxsize=256)
def _listed_tree(size: int, distance: int, subtrees: bool) -> Listed:
    """A round of a binomial tree on any number of ranks."""
    check_listed(size)
    sources = np.arange(0, size - distance, 2 * distance)
    share = np.minimum(1.0, (size - sources - distance) / distance)
    return Listed(sources, sources + distance, share if subtrees else None)


def binomial_broadcast(meter: Meter, size: float) -> None:
    """ceil(lg p) (a + n b) (bcast_intra_binomial.c)."""
    _binomial(meter, lambda _: size, to_root=False)


def binomial_reduce(meter: Meter, size: float) -> None:
    """ceil(lg p) (a + n b + n g) (reduce_intra_binomial.c)."""
    _binomial(meter, lambda _: size, reducing=True)


def binomial_gather(meter: Meter, size: float) -> None:
    """ceil(lg p) a + n (p-1)/p b (gather_intra_binomial.c)."""
    _binomial(meter, lambda distance: distance * size / meter.group.size, subtrees=True)


def binomial_scatter(meter: Meter, size: float) -> None:
    """ceil(lg p) a + n (p-1)/p b (scatter_intra_binomial.c): a gather backwards."""
    part = size / meter.group.size
    _binomial(meter, lambda distance: distance * part, subtrees=True, to_root=False)


def scatter_all_gather_broadcast(meter: Meter, size: float) -> None:
    """(lg p + p-1) a + 2 n (p-1)/p b (bcast_intra_scatter_ring_allgather.c)."""
    binomial_scatter(meter, size)
    ring_all_gather(meter, size)


def halving_gather_reduce(meter: Meter, size: float) -> None:
    """2 lg p a + 2 n (p-1)/p b + n (p-1)/p g (reduce_intra_reduce_scatter_gather.c), 2^k ranks."""
    _power_of_two(meter.group, "the halving_doubling reduce", "binomial or chain")
    for bit in range(len(meter.group.bits)):
        part = size / 2 ** (bit + 1)
        meter.exchange(bit, part, part)
    for bit in reversed(range(len(meter.group.bits))):
        meter.round(BinomialRound(bit, leading=True), size / 2 ** (bit + 1))


@dataclass(frozen=True)
class _PipelinedTrees:
    """Trees of chunks over the children of every level, between one rank below each of them.

    ``own[n]`` is how many buffers go through the busiest port of n children, in its busier
    direction, and ``passing[n]`` how many through the ports on the way to one rank below.
    """

    own: tuple[float, float, float]
    passing: tuple[float, float, float]
    ways: int
    reduced: float

    def __call__(self, meter: Meter, size: float) -> None:
        group = meter.group
        for level, across in zip(group.levels, group.across, strict=True):
            if across > 1 and has_wires(level):
                what = "in a matrix" if level.kind is LinkKind.LINKS else f"a {level.kind}"
                raise CostError(
                    f"trees are not costed on level '{level.name}', whose links are {what}"
                )
        # Buffers through the ports of a parent, and of those how many to one rank below it.
        latency, whole, passing = 0.0, 0.0, 0.0
        loads: list[Load] = []
        for level, across in enumerate(group.across):
            groups = group.beside[level] * group.groups_across[level]
            inside = self.ways * (across - 1) * groups
            leaving = whole * groups * 2  # out and in
            if across > 1:
                which = min(across, 4) - 2
                latency += self.ways * (across - 1).bit_length() * group.latencies[level]
                whole = passing + self.own[which]
                passing += self.passing[which]
            port = whole * group.beside[level]
            loads.append(Load(port * size, inside * size, (inside + leaving) * size))
        message = min(self.own[0], self.passing[0]) * size
        meter.add(latency, tuple(loads), message, self.reduced * size)


binary_tree_all_reduce = _PipelinedTrees((1, 2, 3), (1, 2, 3), 2, 2)
"""2 ceil(lg p) a + 3 n b: one binary tree up and down, in chunks."""

double_tree_all_reduce = _PipelinedTrees((1, 1.5, 2), (0.5, 1, 1.5), 2, 1)
"""2 ceil(lg p) a + 2 n b: two trees with half of the buffer each, whose inner nodes are the other's
leaves (Sanders, Speck, Traeff 2009)."""

binary_tree_one_way = _PipelinedTrees((1, 2, 2), (1, 2, 2), 1, 0)
"""ceil(lg p) a + 2 n b: a broadcast down one binary tree, in chunks."""

double_tree_one_way = _PipelinedTrees((1, 1, 1), (0.5, 1, 1), 1, 0)
"""ceil(lg p) a + n b: a broadcast down two trees (Sanders, Speck, Traeff 2009)."""

binary_tree_reduce = _PipelinedTrees((1, 2, 2), (1, 2, 2), 1, 2)
"""ceil(lg p) a + 2 n (b + g): a broadcast backwards."""

double_tree_reduce = _PipelinedTrees((1, 1, 1), (0.5, 1, 1), 1, 1)
"""ceil(lg p) a + n (b + g): a broadcast backwards."""
