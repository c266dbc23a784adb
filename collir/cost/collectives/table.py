"""The costs of collectives: one entry for every row of the table of steps that sends.

An entry lists the algorithms, what must be sent whatever the algorithm is, and what the runtimes
choose. ``size`` is the full buffer in bytes, as ``Collective`` has it; ``parts`` are the children
of a level over which a group extends, and ``below`` the ranks of the group below each of them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from collir.cost.collectives import algorithms as by
from collir.cost.collectives import mpich
from collir.cost.collectives.algorithms import Algorithm, Meter
from collir.cost.network import link_bounds
from collir.cost.network.group import Group
from collir.cost.network.traffic import Shift
from collir.machine import Level

Bytes = Any
"""Bytes: a number, or an array of them for many groups at once."""


@dataclass(frozen=True)
class UnevenPorts:
    """The bandwidths of the ports of a level, where they differ.

    Attributes:
        parts: the children over which a group extends.
        copied: whether other children hold copies of the operand.
        everyone: the ports of all children.
        roots: the port of one child for each group: where its root is.
        others: those of the children that are no roots.
    """

    parts: int
    copied: bool
    everyone: Sequence[float]
    roots: Sequence[float]
    others: Sequence[float]


@dataclass(frozen=True)
class NcclKind:
    """A collective in NCCL's model.

    Attributes:
        steps: how many steps a ring of some ranks takes.
        tree: whether NCCL has trees for it.
    """

    steps: Callable[[int], int]
    tree: bool


@dataclass(frozen=True, kw_only=True)
class CollectiveCost:
    """The entry of a collective.

    Attributes:
        algorithms: by the names that the table of steps gives them.
        ways: how often the buffer goes around the group: 2, where what is reduced goes back to all.
            It counts in NCCL's latency, and in what may go around a level by other ways: for
            bounds, 2 is never wrong.
        into: the bytes that one group's data must send into (or out of) one child of a level at
            least; ``copied``: other children hold copies of the operand; ``helped``: or nothing, so
            that they may reduce for those that do.
        between: the bytes that the children of a level must send each other for one group.
        slowest: the seconds for ``into`` bytes over ports that differ.
        links: the seconds over links that are a group's own, given the level, the bytes per second
            that go around it by other ways, ``size`` and ``below``.
        busbw: busbw / algbw for some ranks, as nccl-tests define it (PERFORMANCE.md).
        perf: the name of its program in nccl-tests, without ``_perf``; None if there is none.
        mpich: the algorithm that MPICH takes.
        p2: what the model of P² counts the bytes of, and its name.
        nccl: what NCCL's model knows; an algorithm for what NCCL does by sends and receives.
        listed: whether its messages depend on the layouts: they are listed, and nothing else of the
            entry but ``busbw`` is asked for.
    """

    algorithms: Mapping[str, Algorithm]
    ways: int
    into: Callable[[float, Bytes, Bytes, bool, bool], Bytes]
    between: Callable[[float, int, int], float]
    slowest: Callable[[float, UnevenPorts], float]
    links: Callable[[Level, float, float, int], float]
    busbw: Callable[[int], float]
    mpich: Callable[[Group, float], str]
    p2: tuple[str, Algorithm]
    nccl: NcclKind | Algorithm
    listed: bool = False
    perf: str | None = None


# ---------------------------------------------------------------------------------------------
# Bytes into a child, and between all
# ---------------------------------------------------------------------------------------------


def _there_and_back(size: float, parts: Bytes, below: Bytes, copied: bool, helped: bool) -> Bytes:
    return size + 0 * parts if helped else 2 * ((parts - 1) / parts) * size


def _a_share(size: float, parts: Bytes, below: Bytes, copied: bool, helped: bool) -> Bytes:
    return size / parts if copied else (parts - 1) / parts * size


def _the_rest(size: float, parts: Bytes, below: Bytes, copied: bool, helped: bool) -> Bytes:
    return (parts - 1) / parts * size


def _for_each_below(size: float, parts: Bytes, below: Bytes, copied: bool, helped: bool) -> Bytes:
    return below * ((parts - 1) / parts) * size


def _the_whole(size: float, parts: Bytes, below: Bytes, copied: bool, helped: bool) -> Bytes:
    return size + 0 * parts


def _twice_to_all(size: float, parts: int, below: int) -> float:
    return 2 * (parts - 1) * size


def _to_all(size: float, parts: int, below: int) -> float:
    return (parts - 1) * size


def _once(size: float, parts: int, below: int) -> float:
    return (parts - 1) / parts * size


def _each_to_all(size: float, parts: int, below: int) -> float:
    return below * (parts - 1) * size


# ---------------------------------------------------------------------------------------------
# Seconds over ports that differ
# ---------------------------------------------------------------------------------------------


def _over_the_slowest(into: float, ports: UnevenPorts) -> float:
    return into / min(ports.everyone)


def _over_all_or_one(into: float, ports: UnevenPorts) -> float:
    """The sum over all children; by itself, each gets what it has not."""
    alone = into / max(1.0, 2 * (ports.parts - 1) / ports.parts)
    together = into * len(ports.everyone) / sum(ports.everyone)
    return max(together, alone / min(ports.everyone))


def _from_the_root(into: float, ports: UnevenPorts) -> float:
    return into / min(ports.others if ports.copied else ports.everyone)


def _to_the_root(into: float, ports: UnevenPorts) -> float:
    return into / min(ports.roots if ports.copied else ports.everyone)


def _gathered(into: float, ports: UnevenPorts) -> float:
    """All of it goes to one child; a copy elsewhere may be what is sent."""
    once = 0.0 if ports.copied else into / (ports.parts - 1) / min(ports.others)
    return max(into / min(ports.roots), once)


def _scattered(into: float, ports: UnevenPorts) -> float:
    if ports.copied:
        return into / min(ports.others)
    return max(into / min(ports.roots), into / (ports.parts - 1) / min(ports.others))


# ---------------------------------------------------------------------------------------------
# Seconds over links
# ---------------------------------------------------------------------------------------------


def _by_cuts(cut: link_bounds.CutBound) -> Callable[[Level, float, float, int], float]:
    def seconds(level: Level, escape: float, size: float, below: int) -> float:
        return link_bounds.cut_seconds(level, cut, escape, escape > 0) * size

    return seconds


def _by_distances(level: Level, escape: float, size: float, below: int) -> float:
    return link_bounds.exchange_seconds(level, escape) * size * below / level.size


# ---------------------------------------------------------------------------------------------
# Bandwidths as nccl-tests have them
# ---------------------------------------------------------------------------------------------


def _twice_the_rest(ranks: int) -> float:
    return 2 * (ranks - 1) / ranks


def _but_its_own(ranks: int) -> float:
    return (ranks - 1) / ranks


def _all_of_it(ranks: int) -> float:
    return 1.0


def _passed_on(meter: Meter, size: float) -> None:
    """All of the buffer goes from rank to rank, around a ring."""
    meter.pipeline(0.0, [(Shift(1), size)])


def _listed(*_: object) -> NoReturn:
    raise AssertionError("the messages of a permute are listed")


# ---------------------------------------------------------------------------------------------
# The entries
# ---------------------------------------------------------------------------------------------

COSTS: dict[str, CollectiveCost] = {
    "all_reduce": CollectiveCost(
        algorithms={
            "ring": by.ring_all_reduce,
            "recursive_doubling": by.doubling_all_reduce,
            "halving_doubling": by.halving_doubling_all_reduce,
            "binary_tree": by.binary_tree_all_reduce,
            "double_binary_tree": by.double_tree_all_reduce,
            "direct": by.direct_all_reduce,
        },
        ways=2,
        into=_there_and_back,
        between=_twice_to_all,
        slowest=_over_all_or_one,
        links=_by_cuts(link_bounds.reduced_to_all),
        busbw=_twice_the_rest,
        perf="all_reduce",
        mpich=mpich.all_reduce,
        p2=("ring", by.ring_all_reduce),
        nccl=NcclKind(steps=lambda ranks: 2 * (ranks - 1), tree=True),
    ),
    "all_gather": CollectiveCost(
        algorithms={
            "ring": by.ring_all_gather,
            "recursive_doubling": by.doubling_all_gather,
            "bruck": by.bruck_all_gather,
            "pat": by.pat_all_gather,
            "direct": by.direct_exchange,
        },
        ways=1,
        into=_the_rest,
        between=_to_all,
        slowest=_over_the_slowest,
        links=_by_cuts(link_bounds.gathered_by_all),
        busbw=_but_its_own,
        perf="all_gather",
        mpich=mpich.all_gather,
        p2=("ring", by.ring_all_gather),
        nccl=NcclKind(steps=lambda ranks: ranks - 1, tree=False),
    ),
    "reduce_scatter": CollectiveCost(
        algorithms={
            "ring": by.ring_reduce_scatter,
            "recursive_halving": by.halving_reduce_scatter,
            "pat": by.pat_reduce_scatter,
            "pairwise": by.pairwise_reduce_scatter,
            "direct": by.direct_reduce_scatter,
        },
        ways=1,
        into=_a_share,
        between=_to_all,
        slowest=_over_the_slowest,
        links=_by_cuts(link_bounds.gathered_by_all),
        busbw=_but_its_own,
        perf="reduce_scatter",
        mpich=mpich.reduce_scatter,
        p2=("ring", by.ring_reduce_scatter),
        nccl=NcclKind(steps=lambda ranks: ranks - 1, tree=False),
    ),
    "all_to_all": CollectiveCost(
        algorithms={
            "pairwise": by.pairwise_all_to_all,
            "bruck": by.bruck_all_to_all,
            "direct": by.direct_exchange,
        },
        ways=1,
        into=_for_each_below,
        between=_each_to_all,
        slowest=_over_the_slowest,
        links=_by_distances,
        busbw=_but_its_own,
        perf="alltoall",
        mpich=mpich.all_to_all,
        p2=("direct", by.direct_exchange),
        nccl=by.direct_exchange,
    ),
    "broadcast": CollectiveCost(
        algorithms={
            "binomial": by.binomial_broadcast,
            "scatter_all_gather": by.scatter_all_gather_broadcast,
            "chain": by.chain_broadcast,
            "binary_tree": by.binary_tree_one_way,
            "double_binary_tree": by.double_tree_one_way,
        },
        ways=1,
        into=_the_whole,
        between=_to_all,
        slowest=_from_the_root,
        links=_by_cuts(link_bounds.one_to_all),
        busbw=_all_of_it,
        perf="broadcast",
        mpich=mpich.broadcast,
        p2=("ring", _passed_on),
        nccl=NcclKind(steps=lambda ranks: ranks, tree=False),
    ),
    "reduce": CollectiveCost(
        algorithms={
            "binomial": by.binomial_reduce,
            "halving_doubling": by.halving_gather_reduce,
            "chain": by.chain_reduce,
            "binary_tree": by.binary_tree_reduce,
            "double_binary_tree": by.double_tree_reduce,
        },
        ways=1,
        into=_the_whole,
        between=_to_all,
        slowest=_to_the_root,
        links=_by_cuts(link_bounds.one_to_all),
        busbw=_all_of_it,
        perf="reduce",
        mpich=mpich.reduce,
        p2=("ring", _passed_on),
        nccl=NcclKind(steps=lambda ranks: ranks, tree=False),
    ),
    "gather": CollectiveCost(
        algorithms={"binomial": by.binomial_gather, "direct": by.direct_rooted},
        ways=1,
        into=_the_rest,
        between=_once,
        slowest=_gathered,
        links=_by_cuts(link_bounds.gathered_by_one),
        busbw=_but_its_own,
        perf="gather",
        mpich=mpich.rooted,
        p2=("direct", by.direct_rooted),
        nccl=by.direct_rooted,
    ),
    "scatter": CollectiveCost(
        algorithms={"binomial": by.binomial_scatter, "direct": by.direct_rooted},
        ways=1,
        into=_a_share,
        between=_once,
        slowest=_scattered,
        links=_by_cuts(link_bounds.gathered_by_one),
        busbw=_but_its_own,
        perf="scatter",
        mpich=mpich.rooted,
        p2=("direct", by.direct_rooted),
        nccl=by.direct_rooted,
    ),
    "permute": CollectiveCost(
        algorithms={},
        ways=1,
        into=_listed,
        between=_listed,
        slowest=_listed,
        links=_listed,
        busbw=_all_of_it,
        mpich=_listed,
        p2=("direct", _listed),
        nccl=_listed,
        listed=True,
    ),
}
"""The entries by the names of collectives."""
