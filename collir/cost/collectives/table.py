"""The costs of collectives: one entry for every row of the table of steps that sends.

An entry lists the algorithms, lower bounds of the bytes that any algorithm sends, and the choices
of the runtimes. Throughout, ``size`` is the full buffer in bytes, as in ``Collective``; ``parts``
is the number of children of a level over which a group extends, and ``below`` the number of ranks
of the group below each of these children.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from collir.algorithms.patterns import Shift
from collir.algorithms.table import ALGORITHMS
from collir.cost.collectives import mpich
from collir.cost.collectives import pipelines as by
from collir.cost.collectives.meter import Estimated, Meter
from collir.cost.collectives.rounds import ByRounds
from collir.cost.network import link_bounds
from collir.cost.network.group import Group
from collir.layout.operation_table import OperationTable
from collir.machine import Level

Bytes = Any
"""Bytes: a number, or an array for many groups at once."""


@dataclass(frozen=True)
class UnevenPorts:
    """The ports of a level with bandwidths that differ, in bytes/second.

    Attributes:
        parts: the number of children over which a group extends; of all ranks, the inverse of the
            part that is below the child, where children differ in size.
        copied: True if other children hold copies of the operand.
        everyone: the ports of all children.
        roots: the port of one child of each group, that of the group's root.
        others: the ports of the children without roots.
    """

    parts: float
    copied: bool
    everyone: Sequence[float]
    roots: Sequence[float]
    others: Sequence[float]


@dataclass(frozen=True)
class NcclKind:
    """A collective in NCCL's model.

    Attributes:
        steps: a function of the ranks that returns the steps of a ring.
        tree: True if NCCL has trees for it.
        grouped: the rooted collective that, run once for each block, does the same for blocks that
            differ in size; empty if there is none.
    """

    steps: Callable[[int], int]
    tree: bool
    grouped: str = ""


@dataclass(frozen=True, kw_only=True)
class CollectiveCost:
    """The entry of a collective.

    Attributes:
        algorithms: the algorithms, by their names in the table of steps.
        ways: the number of times that the buffer goes around the group: 2 if the reduced data
            returns to all ranks, else 1. NCCL's latency depends on it, as do bounds with a way
            around a level (where 2 is always valid).
        into: a lower bound of the bytes into (or out of) one child of a level for one group, as a
            function (size, parts, below, copied, helped). ``copied`` is True if children outside
            the group hold copies of the operand; ``helped`` is True if children outside the group
            hold copies or nothing, so that they may reduce for the group.
        between: a lower bound of the bytes that the children of a level send each other for one
            group, as a function (size, parts, below).
        slowest: the seconds of ``into`` bytes over ports that differ.
        links: a lower bound in seconds over links that a group has to itself, as a function of the
            level, the bytes/second of a way around the level, ``size`` and ``below``.
        busbw: a function of the ranks that returns busbw / algbw of nccl-tests (PERFORMANCE.md).
        around: the algorithms that send every block around a ring once; a link then carries all
            blocks but one, even if blocks differ in size.
        perf: the name of its program in nccl-tests, without ``_perf``, or None.
        mpich: MPICH's choice of an algorithm for a group and a size.
        p2: the algorithm whose bytes the model of P² counts, with its name.
        nccl: the parameters of NCCL's model, or the algorithm of a collective that NCCL runs by
            sends and receives.
        listed: True if its messages depend on the layouts or arguments. They are then listed, and
            of the entry only ``busbw`` is used.
    """

    algorithms: Mapping[str, Estimated]
    ways: int
    into: Callable[[float, Bytes, Bytes, bool, bool], Bytes]
    between: Callable[[float, int, int], float]
    slowest: Callable[[float, UnevenPorts], float]
    links: Callable[[Level, float, float, int], float]
    busbw: Callable[[int], float]
    mpich: Callable[[Group, float], str]
    p2: tuple[str, Estimated]
    nccl: NcclKind | Estimated
    listed: bool = False
    around: tuple[str, ...] = ()
    perf: str | None = None

    @property
    def rooted(self) -> bool:
        """True if a root sends to all others, or receives from them."""
        return self.slowest not in (_over_slowest, _all_reduce_over)


# ---------------------------------------------------------------------------------------------
# Bytes into a child, and between all children
# ---------------------------------------------------------------------------------------------


def _rest(parts: Bytes) -> Bytes:
    """Return the part of a buffer outside one of ``parts`` equal parts."""
    return (parts - 1) / parts


def _into_scattered(size: float, parts: Bytes, below: Bytes, copied: bool, helped: bool) -> Bytes:
    """Return the bytes of the other children's parts, or of a child's own part if there are copies
    elsewhere."""
    return size / parts if copied else _rest(parts) * size


def _into_gathered(size: float, parts: Bytes, below: Bytes, copied: bool, helped: bool) -> Bytes:
    return _rest(parts) * size


def _into_whole(size: float, parts: Bytes, below: Bytes, copied: bool, helped: bool) -> Bytes:
    return size + 0 * parts


def _buffer_to_all(size: float, parts: int, below: int) -> float:
    return (parts - 1) * size


def _parts_to_one(size: float, parts: int, below: int) -> float:
    return _rest(parts) * size


# ---------------------------------------------------------------------------------------------
# Seconds over ports that differ
# ---------------------------------------------------------------------------------------------


def _over_slowest(into: float, ports: UnevenPorts) -> float:
    return into / min(ports.everyone)


def _all_reduce_over(into: float, ports: UnevenPorts) -> float:
    """Return the larger bound: of all ports together, and of the data that one child lacks."""
    alone = into / max(1.0, 2 * (ports.parts - 1) / ports.parts)
    together = into * len(ports.everyone) / sum(ports.everyone)
    return max(together, alone / min(ports.everyone))


def _broadcast_over(into: float, ports: UnevenPorts) -> float:
    return into / min(ports.others if ports.copied else ports.everyone)


def _reduce_over(into: float, ports: UnevenPorts) -> float:
    return into / min(ports.roots if ports.copied else ports.everyone)


def _gather_over(into: float, ports: UnevenPorts) -> float:
    """Return the larger bound: of a root, and of a child that must send its own part.

    A child need not send its part if other children hold copies.
    """
    part = 0.0 if ports.copied else into / (ports.parts - 1) / min(ports.others)
    return max(into / min(ports.roots), part)


def _scatter_over(into: float, ports: UnevenPorts) -> float:
    """Return the larger bound: of a root, and of a child that must receive its own part."""
    if ports.copied:
        return into / min(ports.others)
    return max(into / min(ports.roots), into / (ports.parts - 1) / min(ports.others))


# ---------------------------------------------------------------------------------------------
# Seconds over links
# ---------------------------------------------------------------------------------------------


def _by_cuts(cut: link_bounds.CutBound) -> Callable[[Level, float, float, int], float]:
    """Return the bound ``links`` of an entry that follows from cuts."""

    def seconds(level: Level, escape: float, size: float, below: int) -> float:
        return link_bounds.cut_seconds(level, cut, escape, escape > 0) * size

    return seconds


def _by_distances(level: Level, escape: float, size: float, below: int) -> float:
    return link_bounds.exchange_seconds(level, escape) * size * below / level.size


# ---------------------------------------------------------------------------------------------
# Other fields
# ---------------------------------------------------------------------------------------------


def _algbw(ranks: int) -> float:
    """Return busbw / algbw of a collective whose busiest link carries the full buffer."""
    return 1.0


def _pass_around(meter: Meter, size: float) -> None:
    """Add the full buffer going from rank to rank around a ring."""
    meter.add_pipeline(0.0, [(Shift(1), size)])


def _algorithms(collective: str, **priced: Estimated) -> dict[str, Estimated]:
    """Return the algorithms of a collective: algorithms of rounds, and others with their price."""
    rounds = {name: ByRounds(x) for (of, name), x in ALGORITHMS.items() if of == collective}
    return {**rounds, **priced}


def _rounds(collective: str, name: str) -> Estimated:
    return ByRounds(ALGORITHMS[collective, name])


def _listed(*_: object) -> NoReturn:
    raise AssertionError("its messages are listed")


_MESSAGES = CollectiveCost(
    algorithms={},
    ways=1,
    into=_listed,
    between=_listed,
    slowest=_listed,
    links=_listed,
    busbw=_algbw,
    mpich=_listed,
    p2=("direct", _listed),
    nccl=_listed,
    listed=True,
)
"""The entry of a collective whose messages are listed."""


# ---------------------------------------------------------------------------------------------
# The entries
# ---------------------------------------------------------------------------------------------

_ENTRIES: dict[str, CollectiveCost] = {
    "all_reduce": CollectiveCost(
        algorithms=_algorithms(
            "all_reduce",
            binary_tree=by.binary_tree_all_reduce,
            double_binary_tree=by.double_tree_all_reduce,
        ),
        ways=2,
        into=lambda size, parts, below, copied, helped: (
            size + 0 * parts if helped else 2 * _rest(parts) * size
        ),
        between=lambda size, parts, below: 2 * (parts - 1) * size,
        slowest=_all_reduce_over,
        links=_by_cuts(link_bounds.reduced_to_all),
        busbw=lambda ranks: 2 * (ranks - 1) / ranks,
        perf="all_reduce",
        mpich=mpich.all_reduce,
        p2=("ring", _rounds("all_reduce", "ring")),
        nccl=NcclKind(steps=lambda ranks: 2 * (ranks - 1), tree=True),
    ),
    "all_gather": CollectiveCost(
        algorithms=_algorithms("all_gather"),
        ways=1,
        into=_into_gathered,
        between=_buffer_to_all,
        slowest=_over_slowest,
        links=_by_cuts(link_bounds.gathered_by_all),
        busbw=_rest,
        around=("ring",),
        perf="all_gather",
        mpich=mpich.all_gather,
        p2=("ring", _rounds("all_gather", "ring")),
        nccl=NcclKind(steps=lambda ranks: ranks - 1, tree=False, grouped="broadcast"),
    ),
    "reduce_scatter": CollectiveCost(
        algorithms=_algorithms("reduce_scatter"),
        ways=1,
        into=_into_scattered,
        between=_buffer_to_all,
        slowest=_over_slowest,
        links=_by_cuts(link_bounds.gathered_by_all),
        busbw=_rest,
        around=("ring",),
        perf="reduce_scatter",
        mpich=mpich.reduce_scatter,
        p2=("ring", _rounds("reduce_scatter", "ring")),
        nccl=NcclKind(steps=lambda ranks: ranks - 1, tree=False, grouped="reduce"),
    ),
    "all_to_all": CollectiveCost(
        algorithms=_algorithms("all_to_all"),
        ways=1,
        into=lambda size, parts, below, copied, helped: below * _rest(parts) * size,
        between=lambda size, parts, below: below * (parts - 1) * size,
        slowest=_over_slowest,
        links=_by_distances,
        busbw=_rest,
        perf="alltoall",
        mpich=mpich.all_to_all,
        p2=("direct", _rounds("all_to_all", "direct")),
        nccl=_rounds("all_to_all", "direct"),
    ),
    "broadcast": CollectiveCost(
        algorithms=_algorithms(
            "broadcast",
            chain=by.chain_broadcast,
            binary_tree=by.binary_tree_one_way,
            double_binary_tree=by.double_tree_one_way,
        ),
        ways=1,
        into=_into_whole,
        between=_buffer_to_all,
        slowest=_broadcast_over,
        links=_by_cuts(link_bounds.one_to_all),
        busbw=_algbw,
        perf="broadcast",
        mpich=mpich.broadcast,
        p2=("ring", _pass_around),
        nccl=NcclKind(steps=lambda ranks: ranks, tree=False),
    ),
    "reduce": CollectiveCost(
        algorithms=_algorithms(
            "reduce",
            chain=by.chain_reduce,
            binary_tree=by.binary_tree_reduce,
            double_binary_tree=by.double_tree_reduce,
        ),
        ways=1,
        into=_into_whole,
        between=_buffer_to_all,
        slowest=_reduce_over,
        links=_by_cuts(link_bounds.one_to_all),
        busbw=_algbw,
        perf="reduce",
        mpich=mpich.reduce,
        p2=("ring", _pass_around),
        nccl=NcclKind(steps=lambda ranks: ranks, tree=False),
    ),
    "gather": CollectiveCost(
        algorithms=_algorithms("gather"),
        ways=1,
        into=_into_gathered,
        between=_parts_to_one,
        slowest=_gather_over,
        links=_by_cuts(link_bounds.gathered_by_one),
        busbw=_rest,
        perf="gather",
        mpich=mpich.rooted,
        p2=("direct", _rounds("gather", "direct")),
        nccl=_rounds("gather", "direct"),
    ),
    "scatter": CollectiveCost(
        algorithms=_algorithms("scatter"),
        ways=1,
        into=_into_scattered,
        between=_parts_to_one,
        slowest=_scatter_over,
        links=_by_cuts(link_bounds.gathered_by_one),
        busbw=_rest,
        perf="scatter",
        mpich=mpich.rooted,
        p2=("direct", _rounds("scatter", "direct")),
        nccl=_rounds("scatter", "direct"),
    ),
    "permute": _MESSAGES,
    "send": _MESSAGES,
    "shift": _MESSAGES,
}

COSTS = OperationTable(
    "COSTS",
    __name__,
    _ENTRIES,
    row="its CollectiveCost: algorithms, bytes, and the choices of the runtimes",
)
"""The entries by the names of collectives."""
