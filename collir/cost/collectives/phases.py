"""What a collective does while it runs, one phase after the other: it waits for messages, sends,
reduces; and how much of each port, link and interconnect it uses meanwhile."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from collir.cost.network.group import Group
from collir.cost.network.loads import Load, Resource, ResourceKind, resource_seconds
from collir.machine import LinkKind


@dataclass(frozen=True)
class Rounds:
    """A stretch of an algorithm, as it counts it: rounds that are alike, or one pipeline.

    Attributes:
        times: how many.
        latency: seconds of each before its bytes flow.
        loads: of each level, of each round; in messages.
        size: bytes of a message, of which the loads are counted.
        message: bytes of a message that is on its way: of a pipeline, whose loads are counted in
            bytes, what one rank sends another in all.
        reduction: seconds of each after its bytes have arrived.
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
        latency, transfer, work: what it takes alone, in seconds: until messages arrive, for their
            bytes, and for what a device does itself.
        uses: of each resource that it uses, what part it takes when nothing slows it down; 0 to 1.
        rate: bytes per second of each of its messages, alone: those of several phases that share a
            port rise to the same rates.
        level: the outermost level that its messages go through, if it has any.
    """

    latency: float = 0.0
    transfer: float = 0.0
    work: float = 0.0
    uses: tuple[tuple[Resource, float], ...] = ()
    rate: float = 1.0
    level: int | None = None

    @property
    def narrowest(self) -> Resource | None:
        """What its bytes take longest to go through."""
        return max(self.uses, key=lambda use: use[1], default=(None, 0.0))[0]

    @cached_property
    def time(self) -> float:
        """Seconds alone."""
        return self.latency + self.transfer + self.work


def phases_of(group: Group, rounds: Iterable[Rounds]) -> tuple[Phase, ...]:
    """The phases of an algorithm on a group: each round is waiting, sending and reducing; many
    rounds that are alike are one phase, in which these alternate."""
    return tuple(phase for each in rounds for phase in _phases(group, each) if phase.time)


def _phases(group: Group, rounds: Rounds) -> Iterator[Phase]:
    seconds: dict[Resource, float] = {}
    for resource, time in resource_seconds(group, rounds.loads):
        seconds[resource] = max(time * rounds.size, seconds.get(resource, 0.0))
    sending = max(seconds.values(), default=0.0)
    level = next((n for n, load in enumerate(rounds.loads) if load.port), None)
    if rounds.times == 1:
        yield Phase(latency=rounds.latency, level=level)
        uses = _uses(seconds, sending)
        yield Phase(transfer=sending, uses=uses, rate=_rate(rounds, sending), level=level)
        yield Phase(work=rounds.reduction)
    else:
        whole = rounds.latency + sending + rounds.reduction
        yield Phase(
            rounds.times * rounds.latency,
            rounds.times * sending,
            rounds.times * rounds.reduction,
            _uses(seconds, whole),
            _rate(rounds, whole),
            level,
        )


def _rate(rounds: Rounds, time: float) -> float:
    return rounds.message / time if time and rounds.message else 1.0


def _uses(seconds: dict[Resource, float], time: float) -> tuple[tuple[Resource, float], ...]:
    """How much of its time each resource is busy."""
    return tuple((resource, min(1.0, one / time)) for resource, one in seconds.items() if one)


def single_phase(group: Group, time: float, port_bytes: Sequence[float]) -> tuple[Phase, ...]:
    """The one phase of a collective of which only its time and its bytes are known. What is said of
    a message is said of all that goes through the busiest port.

    On levels that are not plain switches it is taken to need all links for all of its time.
    """
    uses: list[tuple[Resource, float]] = []
    for index, (level, port, size) in enumerate(
        zip(group.levels, group.ports, port_bytes, strict=True)
    ):
        plain = level.kind is LinkKind.SWITCH and level.taper == 1
        if size and time:
            uses.append(
                ((index, ResourceKind.PORT), min(1.0, size / port / time) if plain else 1.0)
            )
    outermost = uses[0][0][0] if uses else None
    rate = max(port_bytes) / time if time and max(port_bytes) else 1.0
    return (Phase(transfer=time, uses=tuple(uses), rate=rate, level=outermost),) if time else ()
