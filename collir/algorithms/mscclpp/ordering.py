"""Signals, semaphores and barriers: the waits of thread blocks, and the knowledge they bring."""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from collir.algorithms.mscclpp.clocks import Clock
from collir.algorithms.mscclpp.operations import WAITS
from collir.algorithms.mscclpp.running import Agents, RunningBlock


class OrderKey(NamedTuple):
    """An end of a channel, a semaphore, or a barrier of a rank: what a block may wait for."""

    kind: str
    rank: int
    number: int


class Signalled(NamedTuple):
    """A signal that was sent, with what its sender knows.

    Attributes:
        launched: what the sender knew when its launch began: all that a relaxed signal tells.
        relaxed: whether it tells no more.
        block: the agent that sent it.
    """

    clock: Clock
    launched: Clock
    relaxed: bool
    block: int


@dataclass
class Releases:
    """The clocks of blocks when they released a semaphore, each time.

    Attributes:
        dropped: how many of the first are not needed any more.
    """

    clocks: deque[Clock] = field(default_factory=deque[Clock])
    dropped: int = 0

    @property
    def count(self) -> int:
        """The number of its releases."""
        return self.dropped + len(self.clocks)

    def at(self, number: int) -> Clock | None:
        """Return what was known at a release, counted from 1, and drop those before it."""
        while self.clocks and self.dropped + 1 < number:
            _ = self.clocks.popleft()
            self.dropped += 1
        return self.clocks[0] if self.dropped + 1 == number and self.clocks else None


@dataclass
class OrderState:
    """The state of an end of a channel, or of a semaphore.

    Attributes:
        sent: the signals that were not waited for.
        tokens: the value of the semaphore.
        sender, taker: the agent that sent or took last, with its time and thread.
        releases: the releases of the semaphore, by the agents that made them.
    """

    sent: deque[Signalled] = field(default_factory=deque[Signalled])
    tokens: int = 0
    sender: tuple[int, int, int] = (-1, 0, 0)
    taker: tuple[int, int, int] = (-1, 0, 0)
    releases: dict[int, Releases] = field(default_factory=dict[int, Releases])


class Ordering:
    """All channels, semaphores and barriers of a run."""

    def __init__(self, agents: Agents):
        self.agents, self.plan = agents, agents.plan
        self.other_end = {
            OrderKey(kind, *here): OrderKey(kind, *there)
            for kind in ("memory", "port") for here, there in self.plan.ends(kind).items()
        }  # fmt: skip
        self.states: dict[OrderKey, OrderState] = {}
        self.arrived: dict[OrderKey, list[RunningBlock]] = {}
        self._releasers = _releasers(agents)

    def state(self, key: OrderKey) -> OrderState:
        """Return the state of an end of a channel, or of a semaphore."""
        known = self.states.get(key)
        if known is None:
            known = self.states[key] = OrderState()
            if key.kind == "semaphore":
                known.tokens = self.plan.ranks[key.rank].semaphores[key.number]
        return known

    def missing(self, x: RunningBlock) -> OrderKey | None:
        """Return what the next step of a block has to wait for, if it orders others."""
        operation = x.step.operation
        if operation.name in WAITS:
            keys = [OrderKey(operation.channel_type, x.rank, n) for n in operation.channels]
        elif operation.name == "sem_acquire":
            keys = [OrderKey("semaphore", x.rank, n) for n in operation.semaphores]
        else:
            return None
        for key in keys:
            state = self.state(key)
            there = state.tokens if key.kind == "semaphore" else len(state.sent)
            if there < keys.count(key):
                return key
        return None

    # --- channels --------------------------------------------------------------------------------

    def signal(self, x: RunningBlock, thread: int, channel: int, relaxed: bool) -> OrderKey | None:
        """Send a signal; return the end of the channel that it comes to, if there is one."""
        key = OrderKey(x.step.operation.channel_type, x.rank, channel)
        clock = x.knows(thread)
        if key.kind == "port":
            # It follows what was sent over the channel.
            clock = self.agents.port_clocks[x.rank, channel]
            np.maximum(clock, x.knows(thread), out=clock)
            relaxed = False
        end = self.other_end.get(key)
        if end is None:
            return None
        state = self.state(end)
        self._take_turns(x, thread, state.sender, "signals", key)
        state.sender = x.index, x.time + 1, thread
        launched = self.agents.launched[x.rank]
        state.sent.append(Signalled(clock.copy(), launched, relaxed, x.index))
        self.agents.found.messages += 1
        return end

    def wait(self, x: RunningBlock, thread: int, channel: int, relaxed: bool) -> None:
        """Take a signal."""
        key = OrderKey(x.step.operation.channel_type, x.rank, channel)
        state = self.state(key)
        self._take_turns(x, thread, state.taker, "waits for signals", key)
        state.taker = x.index, x.time + 1, thread
        signal = state.sent.popleft()
        relaxed = (relaxed and key.kind == "memory") or signal.relaxed
        x.learn(thread, signal.launched if relaxed else signal.clock)

    def _take_turns(
        self, x: RunningBlock, thread: int, last: tuple[int, int, int], does: str, key: OrderKey
    ) -> None:
        """Note it if another thread may use an end of a channel, or a semaphore, meanwhile."""
        agent, time, last_thread = last
        same = agent == x.index and (last_thread == thread or time == x.time + 1)
        if agent < 0 or same or x.knows(thread)[agent] >= time:
            return
        what = f"{key.kind}{' channel' * (key.kind != 'semaphore')} {key.number}"
        done = self.agents.doing(agent, time)
        message = f"{does} on {what} of its rank, as {done} does; neither waits for the other"
        self.agents.note(x, "race", message)

    # --- semaphores ------------------------------------------------------------------------------

    def is_unsure(self, x: RunningBlock) -> bool:
        """Return whether the next step acquires a semaphore that several blocks release."""
        operation = x.step.operation
        return operation.name == "sem_acquire" and any(
            len(self._releasers[x.rank, number]) > 1 for number in operation.semaphores
        )

    def release(self, x: RunningBlock, thread: int, number: int) -> OrderKey:
        """Release a semaphore."""
        key = OrderKey("semaphore", x.rank, number)
        state = self.state(key)
        state.tokens += 1
        state.releases.setdefault(x.index, Releases()).clocks.append(x.knows(thread).copy())
        return key

    def acquire(self, x: RunningBlock, sure: bool) -> None:
        """Take from semaphores, and learn what the releases before are certain to tell.

        Args:
            sure: whether all releases that do not wait for this acquire have been made.
        """
        for thread, number in enumerate(x.step.operation.semaphores):
            key = OrderKey("semaphore", x.rank, number)
            state = self.state(key)
            self._take_turns(x, thread, state.taker, "acquires", key)
            state.taker = x.index, x.time + 1, thread
            state.tokens -= 1
            total = sum(releases.count for releases in state.releases.values())
            # The acquires up to this one took what was there first, and as many releases; of a
            # block they took at least what the other blocks cannot have given.
            needed = total - state.tokens
            turns = self.agents.launch + 1
            given = {
                agent: state.releases[agent].count if sure and agent in state.releases
                else 0 if sure else count * turns
                for agent, count in self._releasers[x.rank, number].items()
            }  # fmt: skip
            most = sum(given.values())
            for agent, releases in state.releases.items():
                clock = releases.at(needed - (most - given[agent]))
                if clock is not None:
                    x.learn(thread, clock)

    # --- barriers --------------------------------------------------------------------------------

    def arrive(self, x: RunningBlock) -> list[RunningBlock]:
        """Bring a block to a barrier; return those that may go on, once all are there."""
        operation = x.step.operation
        arrived = self.arrived.setdefault(OrderKey("barrier", x.rank, operation.barrier), [])
        if x not in arrived:
            arrived.append(x)
        if len(arrived) < operation.blocks:
            return []
        for block in arrived:
            block.synchronise(block.time + 1)
        together = np.maximum.reduce([block.clock for block in arrived])
        for block in arrived:
            np.maximum(block.clock, together, out=block.clock)
        gone = [*arrived]
        arrived.clear()
        return gone

    # --- ends of launches ------------------------------------------------------------------------

    def note_left(self) -> None:
        """Note signals that nobody takes, and semaphores that do not end as they begin."""
        for (kind, rank, number), state in self.states.items():
            own = self.plan.ranks[rank]
            if kind == "semaphore":
                first = own.semaphores[number]
                if state.tokens != first:
                    message = f"semaphore {number} of rank {rank} begins with {first}, and ends "
                    self.agents.found.add("form", f"{message}with {state.tokens}", own.line)
            elif state.sent and state.taker[0] >= 0:
                x = self.agents.blocks[state.sent[0].block]
                message = f"rank {x.rank}, block {x.block.number} signals more often than rank "
                self.agents.found.add(
                    "form", f"{message}{rank} waits: the next launch takes it", x.block.line
                )


def _releasers(agents: Agents) -> dict[tuple[int, int], dict[int, int]]:
    """Return how often blocks release each semaphore in a launch, by rank, number and agent."""
    releasers: dict[tuple[int, int], dict[int, int]] = {}
    for x in agents.blocks:
        for step in x.steps:
            for number in step.operation.semaphores:
                own = releasers.setdefault((x.rank, number), {})
                if step.operation.name == "sem_release":
                    own[x.index] = own.get(x.index, 0) + 1
    return releasers
