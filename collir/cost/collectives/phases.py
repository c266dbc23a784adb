"""The phases of a collective while it runs: waiting for messages, sending, reducing.

Each phase says how much of every port, link and interconnect it uses.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from collir.cost.network.group import Group
from collir.cost.network.loads import (
    Load,
    Resource,
    ResourceKind,
    ResourceSeconds,
    resource_seconds,
)
from collir.machine import LinkKind

Latencies = tuple[tuple[int | None, float], ...]
"""Seconds in which no bytes flow, each with the level of its messages, or None for a start."""


@dataclass(frozen=True)
class EqualRounds:
    """A part of an algorithm: a number of equal rounds, or one pipeline.

    Attributes:
        times: the number of rounds.
        latency: seconds of each round before its bytes flow.
        loads: for every level, the load of one round, in messages of ``size`` bytes.
        size: bytes of one message of ``loads``; 1 for a pipeline, whose loads are in bytes.
        message: bytes that one rank sends another in a round, or in all of a pipeline.
        reduction: seconds of each round after its bytes have arrived.
    """

    times: float
    latency: float
    loads: tuple[Load, ...]
    size: float
    message: float
    reduction: float


@dataclass(frozen=True)
class Phase:
    """A part of a task during which its use of the machine does not change.

    Attributes:
        latencies: the times until messages arrive, if it runs alone.
        transfer: seconds for the bytes of messages, if it runs alone.
        work: seconds for the work of a device itself, if it runs alone.
        uses: the resources that it uses, each with the part of it used at full speed, 0 to 1.
        rate: bytes per second of each of its messages, if it runs alone. Phases that share a port
            get equal rates.
    """

    latencies: Latencies = ()
    transfer: float = 0.0
    work: float = 0.0
    uses: tuple[tuple[Resource, float], ...] = ()
    rate: float = 1.0

    @property
    def latency(self) -> float:
        """The sum of its latencies."""
        return math.fsum(seconds for _, seconds in self.latencies)

    @property
    def is_local(self) -> bool:
        """True if devices work by themselves, and wait for no message."""
        return not (self.latencies or self.uses)

    @property
    def narrowest(self) -> Resource | None:
        """The resource that limits its transfer."""
        return max(self.uses, key=lambda use: use[1], default=(None, 0.0))[0]

    @cached_property
    def time(self) -> float:
        """Seconds that it takes alone."""
        return self.latency + self.transfer + self.work


def phases_of(group: Group, rounds: Iterable[EqualRounds]) -> tuple[Phase, ...]:
    """Return the phases of an algorithm on a group.

    A single round has three phases: waiting, sending and reducing. Several equal rounds are one
    phase, in which these alternate.
    """
    return tuple(phase for part in rounds for phase in _phases(group, part) if phase.time)


def _phases(group: Group, rounds: EqualRounds) -> Iterator[Phase]:
    seconds: dict[Resource, float] = {}
    for resource, time in resource_seconds(group, rounds.loads):
        seconds[resource] = max(time * rounds.size, seconds.get(resource, 0.0))
    sending = max(seconds.values(), default=0.0)
    level = next((n for n, load in enumerate(rounds.loads) if load.port), None)
    if rounds.times == 1:
        yield Phase(((level, rounds.latency),))
        uses = _uses(seconds, sending)
        yield Phase(transfer=sending, uses=uses, rate=_rate(rounds, sending))
        yield Phase(work=rounds.reduction)
    else:
        round_time = rounds.latency + sending + rounds.reduction
        yield Phase(
            ((level, rounds.times * rounds.latency),),
            rounds.times * sending,
            rounds.times * rounds.reduction,
            _uses(seconds, round_time),
            _rate(rounds, round_time),
        )


def _rate(rounds: EqualRounds, time: float) -> float:
    return rounds.message / time if time and rounds.message else 1.0


def _uses(seconds: dict[Resource, float], time: float) -> tuple[tuple[Resource, float], ...]:
    """Return the part of the time that each resource is busy."""
    return tuple((resource, min(1.0, busy / time)) for resource, busy in seconds.items() if busy)


def single_phase(
    group: Group,
    time: float,
    port_bytes: Sequence[float],
    parents: ResourceSeconds = (),
    latencies: Latencies = (),
) -> tuple[Phase, ...]:
    """Return the one phase of a collective of which the rounds are not known.

    Its ``rate`` is that of all bytes through the busiest port together. On levels that are not
    plain switches it is assumed to use all links all the time.
    """
    uses: list[tuple[Resource, float]] = []
    for index, (level, port, size) in enumerate(
        zip(group.levels, group.ports, port_bytes, strict=True)
    ):
        plain = level.kind is LinkKind.SWITCH and level.taper == 1
        if size and time:
            uses.append(
                (Resource(index, ResourceKind.PORT), min(1.0, size / port / time) if plain else 1.0)
            )
    uses += [(resource, min(1.0, busy / time)) for resource, busy in parents if time]
    rate = max(port_bytes) / time if time and max(port_bytes) else 1.0
    transfer = max(0.0, time - math.fsum(seconds for _, seconds in latencies))
    return (Phase(latencies, transfer, uses=tuple(uses), rate=rate),) if time else ()
