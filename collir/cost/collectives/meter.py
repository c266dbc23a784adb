"""The meter on which algorithms add up: rounds of messages, and pipelines of chunks.

The time of rounds is the sum over the rounds of latency + bytes over the most loaded link. The time
of a pipeline is the latency of its longest chain of messages + the bytes of all messages over the
most loaded link.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from collir.algorithms.patterns import Pattern
from collir.cost.collectives.phases import EqualRounds, Latencies
from collir.cost.network.group import Group
from collir.cost.network.loads import (
    Load,
    ResourceSeconds,
    load_latency,
    load_seconds,
    parent_seconds,
    port_bytes,
    summed_loads,
)
from collir.cost.network.rings import loads_of
from collir.cost.network.traffic import Traffic


@dataclass(frozen=True)
class CollectiveEstimate:
    """The cost of a collective.

    Attributes:
        time: seconds.
        port_bytes: the bytes through the busiest port of every level, outermost first.
        rounds: the rounds in which it sends, where the model counts them.
        parents: for each port the seconds that its bytes take, where parents differ in size.
        latencies: the part of the time that is latency, where the model counts no rounds.
    """

    time: float
    port_bytes: tuple[float, ...]
    rounds: tuple[EqualRounds, ...] = ()
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
def round_cost(pattern: Pattern | Traffic, group: Group, along_links: bool = True) -> _RoundCost:
    loads = loads_of(pattern, group, along_links)
    return _RoundCost(loads, load_latency(group, loads), load_seconds(group, loads))


@dataclass
class Meter:
    """Adds up an algorithm's rounds and pipelines on a group.

    Attributes:
        root: the rank that is the root of the algorithm.
        is_printed: whether printed code runs the rounds, and no library: rings are in the order of
            ranks and not laid along links, and ranks wait in each round.
    """

    group: Group
    root: int = 0
    is_printed: bool = False
    time: float = 0.0
    rounds: dict[Pattern | Traffic, _RoundCost] = field(
        default_factory=dict[Pattern | Traffic, _RoundCost]
    )
    pipelines: list[tuple[tuple[Load, ...], float]] = field(
        default_factory=list[tuple[tuple[Load, ...], float]]
    )
    listed: list[EqualRounds] = field(default_factory=list[EqualRounds])

    def add_rounds(
        self,
        pattern: Pattern | Traffic,
        size: float,
        times: float = 1,
        reduced: float = 0.0,
        latencies: int = 1,
    ) -> None:
        """Add ``times`` rounds of messages of ``size`` bytes, each of which waits for some
        latencies; a rank reduces ``reduced`` bytes."""
        cost = self.rounds.get(pattern)
        if cost is None:
            cost = self.rounds[pattern] = replace(
                round_cost(pattern, self.group, not self.is_printed)
            )
        reduction, latency = self.reduction_seconds(reduced), latencies * cost.latency
        self.time += times * (latency + cost.per_byte * size + reduction)
        cost.size += size * times
        self.listed.append(EqualRounds(times, latency, cost.loads, size, size, reduction))

    def add_pipeline(
        self,
        latency: float,
        parts: Sequence[tuple[Pattern | Traffic, float]],
        reduced: float = 0.0,
    ) -> None:
        """Add messages that overlap: patterns, each with the bytes of a message."""
        loads = [
            (round_cost(pattern, self.group, not self.is_printed).loads, size)
            for pattern, size in parts
        ]
        message = max(
            size * (pattern.part if isinstance(pattern, Pattern) else 1.0)
            for pattern, size in parts
        )
        self.add_loads(latency, summed_loads(loads), message, reduced)

    def add_loads(
        self, latency: float, loads: tuple[Load, ...], message: float, reduced: float = 0.0
    ) -> None:
        """Add loads in bytes that overlap; one rank sends another ``message`` bytes in all."""
        reduction = self.reduction_seconds(reduced)
        self.time += latency + load_seconds(self.group, loads) + reduction
        self.pipelines.append((loads, 1.0))
        self.listed.append(EqualRounds(1, latency, loads, 1.0, message, reduction))

    def reduction_seconds(self, size: float) -> float:
        """Return the seconds a rank takes to reduce ``size`` bytes."""
        device = self.group.machine.slowest
        return size / device.reduction if device and device.reduction else 0.0

    @property
    def estimate(self) -> CollectiveEstimate:
        """The cost of all that was added."""
        parts = [(cost.loads, cost.size) for cost in self.rounds.values()] + self.pipelines
        parents = parent_seconds(self.group, parts)
        return CollectiveEstimate(self.time, port_bytes(parts), tuple(self.listed), parents)


Estimated = Callable[[Meter, float], None]
"""A function that adds the cost of a collective on a full buffer, in bytes, to a meter."""
