"""Simulation of a network of devices and links, and of the messages of algorithms over it.

It shares only the plain values of machines and meshes with collir. Every port of every child is a
link in either direction; a bus and a tapered interconnect are links that all messages below a
parent share; the children of a ring or a full mesh have links of their own. Messages flow at the
same time, and share each link fairly (max-min). Algorithms are written as the blocks that ranks
hold and send, so that their results can be checked (``play``). Times are in seconds, sizes in
bytes.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple, cast

import numpy as np

from collir.layout import Mesh
from collir.machine import LinkKind, Machine, Parents

# ---------------------------------------------------------------------------------------------
# Algorithms, by the blocks that ranks send
# ---------------------------------------------------------------------------------------------

Block = tuple[int, ...]


class Send(NamedTuple):
    """Blocks that a rank sends to another, which stores them or, with ``adds``, adds them up."""

    source: int
    target: int
    blocks: tuple[Block, ...]
    adds: bool = False


Rounds = list[list[Send]]


class Moves(NamedTuple):
    """The messages of the ranks of a group, by rounds, and the number of blocks of a buffer."""

    rounds: Rounds
    blocks: int


def _bits(p: int) -> list[int]:
    """Return 1, 2, 4, ... below p."""
    return [1 << k for k in range(32) if 1 << k < p]


def _all(count: int) -> tuple[Block, ...]:
    return tuple((b,) for b in range(count))


def _ring(p: int, gathers: bool, ways: int = 2) -> Rounds:
    """Return rounds in which blocks go around a ring, one half of each in either direction, or
    both halves in one."""
    rounds: Rounds = []
    for k in range(p - 1):
        offset = k if gathers else k + 1
        if ways == 1:
            halves = [tuple(((i - offset) % p, half) for half in (0, 1)) for i in range(p)]
            rounds.append([Send(i, (i + 1) % p, halves[i], not gathers) for i in range(p)])
            continue
        ahead = [Send(i, (i + 1) % p, (((i - offset) % p, 0),), not gathers) for i in range(p)]
        back = [Send(i, (i - 1) % p, (((i + offset) % p, 1),), not gathers) for i in range(p)]
        rounds.append(ahead + back)
    return rounds


def _doubling(p: int, blocks: Callable[[int, int], Iterable[int]], far_first: bool) -> Rounds:
    """Return rounds of exchanges with the rank that differs in a bit.

    Args:
        blocks: function from a rank and a bit to the blocks that the rank sends.
    """
    bits = _bits(p)[::-1] if far_first else _bits(p)
    return [[Send(i, i ^ d, tuple((b,) for b in blocks(i, d))) for i in range(p)] for d in bits]


def _adding(rounds: Rounds) -> Rounds:
    return [[send._replace(adds=True) for send in sends] for sends in rounds]


def _halving_and_doubling(core: int) -> tuple[Rounds, Rounds]:
    """Return rounds that halve the buffers, nearest rank first, and rounds that double them."""
    down = _doubling(
        core, lambda i, d: (b for b in range(core) if (b ^ i ^ d) % (2 * d) == 0), False
    )
    up = _doubling(core, lambda i, d: (b for b in range(core) if (b ^ i) % (2 * d) == 0), True)
    return _adding(down), up


def _folded(p: int, core: int, rounds: Rounds) -> Rounds:
    """Return rounds for p ranks from rounds for ``core`` ranks, the largest power of two.

    Of the first ranks, the even ones send their buffers to the odd ones, and get the result.
    """
    extra = p - core
    rank = [2 * i + 1 if i < extra else i + extra for i in range(core)]
    inner = [
        [send._replace(source=rank[send.source], target=rank[send.target]) for send in sends]
        for sends in rounds
    ]
    if not extra:
        return inner
    first = [Send(2 * i, 2 * i + 1, _all(core), True) for i in range(extra)]
    last = [Send(2 * i + 1, 2 * i, _all(core)) for i in range(extra)]
    return [first, *inner, last]


def _core(p: int) -> int:
    return 1 << p.bit_length() - 1


def _binomial(p: int, blocks: Callable[[int, int], Iterable[int]]) -> Rounds:
    """Return the rounds of a binomial tree from rank 0, the farthest rank first.

    Args:
        blocks: function from a rank and the number of ranks of its subtree to the blocks it gets.
    """
    rounds: Rounds = []
    for d in _bits(p)[::-1]:
        pairs = [(i, i + d) for i in range(0, p, 2 * d) if i + d < p]
        rounds.append([Send(a, b, tuple((x,) for x in blocks(b, d))) for a, b in pairs])
    return rounds


def _backwards(rounds: Rounds, adds: bool = False) -> Rounds:
    return [
        [Send(send.target, send.source, send.blocks, adds) for send in sends]
        for sends in reversed(rounds)
    ]


def _subtree(p: int) -> Rounds:
    return _binomial(p, lambda b, d: range(b, min(b + d, p)))


def _bruck_gather(p: int) -> Rounds:
    rounds: Rounds = []
    for d in _bits(p):
        count = min(d, p - d)
        blocks = [tuple(((i + b) % p,) for b in range(count)) for i in range(p)]
        rounds.append([Send(i, (i - d) % p, blocks[i]) for i in range(p)])
    return rounds


def _bruck_exchange(p: int) -> Rounds:
    """Return rounds that move every block by its distance from source to target, bit by bit."""
    rounds: Rounds = []
    for d in _bits(p):
        sends: list[Send] = []
        for i in range(p):
            distances = [x for x in range(p) if x & d]
            blocks = (((i - x % d) % p, (i - x % d + x) % p) for x in distances)
            sends.append(Send(i, (i + d) % p, tuple(blocks)))
        rounds.append(sends)
    return rounds


def _spread(p: int) -> Rounds:
    """Return rounds that send every block down a binomial tree of its own, farthest ranks first."""
    rounds: Rounds = []
    reached = [0]
    for d in _bits(p)[::-1]:
        new = [x for x in reached if x + d < p]
        blocks = [tuple(((i - x) % p,) for x in new) for i in range(p)]
        rounds.append([Send(i, (i + d) % p, blocks[i]) for i in range(p)])
        reached += [x + d for x in new]
    return rounds


def _pairs(p: int, block: Callable[[int, int], Block], adds: bool = False) -> Rounds:
    return [
        [Send(i, (i + s) % p, (block(i, (i + s) % p),), adds) for i in range(p)]
        for s in range(1, p)
    ]


def _ring_all_reduce(p: int, ways: int = 2) -> Rounds:
    return _ring(p, False, ways) + _ring(p, True, ways)


def _halving_doubling(p: int) -> Rounds:
    down, up = _halving_and_doubling(_core(p))
    return _folded(p, _core(p), down + up)


def _doubling_all_reduce(p: int) -> Rounds:
    core = _core(p)
    return _folded(p, core, _adding(_doubling(core, lambda i, d: range(core), False)))


def _halves(p: int, far_first: bool) -> Rounds:
    """Return rounds that halve the buffers, farthest rank first, or rounds that double them."""
    if far_first:
        return _adding(
            _doubling(p, lambda i, d: (b for b in range(p) if b // d == (i ^ d) // d), True)
        )
    return _doubling(p, lambda i, d: (b for b in range(p) if b // d == i // d), False)


def _to_root(p: int) -> Rounds:
    """Return rounds of a reduce to rank 0: halving, nearest rank first, then a binomial gather."""
    down, _ = _halving_and_doubling(p)
    up: Rounds = []
    for d in _bits(p)[::-1]:
        holders = range(d, 2 * d)
        blocks = [tuple((b,) for b in range(p) if (b ^ i) % (2 * d) == 0) for i in holders]
        up.append([Send(i, i - d, blocks[i - d]) for i in holders])
    return down + up


_POWERS_OF_TWO = (
    ("reduce_scatter", "recursive_halving"),
    ("all_gather", "recursive_doubling"),
    ("reduce", "halving_doubling"),
)


def moves(kind: str, name: str, p: int, ways: int = 2) -> Moves | None:
    """Return the messages of a group of p ranks, and rings in one direction or two; None if the
    algorithm is not known here for p."""
    if (kind, name) in _POWERS_OF_TWO and p & (p - 1):
        return None
    match kind, name:
        case "all_reduce", "ring":
            return Moves(_ring_all_reduce(p, ways), 2 * p)
        case "all_reduce", "recursive_doubling":
            return Moves(_doubling_all_reduce(p), _core(p))
        case "all_reduce", "halving_doubling":
            return Moves(_halving_doubling(p), _core(p))
        case "all_reduce", "direct":
            gather = _pairs(p, lambda i, _: (i,))
            return Moves(_pairs(p, lambda _, j: (j,), True) + gather, p)
        case "reduce_scatter", "ring":
            return Moves(_ring(p, False, ways), 2 * p)
        case "reduce_scatter", "recursive_halving":
            return Moves(_halves(p, True), p)
        case "reduce_scatter", "pairwise" | "direct":
            return Moves(_pairs(p, lambda _, j: (j,), True), p)
        case "all_gather", "ring":
            return Moves(_ring(p, True, ways), 2 * p)
        case "all_gather", "recursive_doubling":
            return Moves(_halves(p, False), p)
        case "all_gather", "bruck":
            return Moves(_bruck_gather(p), p)
        case "all_gather", "pat":
            return Moves(_spread(p), p)
        case "reduce_scatter", "pat":
            return Moves(_backwards(_spread(p), True), p)
        case "all_gather", "direct":
            return Moves(_pairs(p, lambda i, _: (i,)), p)
        case "broadcast", "binomial":
            return Moves(_binomial(p, lambda _, __: [0]), 1)
        case "reduce", "binomial":
            return Moves(_backwards(_binomial(p, lambda _, __: [0]), True), 1)
        case "reduce", "halving_doubling":
            return Moves(_to_root(p), p)
        case "scatter", "binomial":
            return Moves(_subtree(p), p)
        case "gather", "binomial":
            return Moves(_backwards(_subtree(p)), p)
        case "all_to_all", "pairwise" | "direct":
            return Moves(_pairs(p, lambda i, j: (i, j)), p)
        case "all_to_all", "bruck":
            return Moves(_bruck_exchange(p), p)
        case _:
            return None


Held = list[dict[Block, frozenset[int]]]
"""The blocks of every rank, each with the ranks whose contributions it has."""


def play(moves: Moves, start: Held) -> Held:
    """Return the blocks of all ranks in the end.

    Checks that ranks send only blocks that they hold, and add no contribution twice.
    """
    held = [dict(blocks) for blocks in start]
    for sends in moves.rounds:
        before = [dict(blocks) for blocks in held]
        for send in sends:
            for block in send.blocks:
                parts = before[send.source][block]
                old = held[send.target].get(block, frozenset[int]())
                if send.adds:
                    assert not parts & old, (send, block)
                    parts |= old
                held[send.target][block] = parts
    return held


# ---------------------------------------------------------------------------------------------
# The network
# ---------------------------------------------------------------------------------------------

Link = tuple[object, ...]


class Network:
    """The links of a machine, and the routes of messages over them."""

    def __init__(self, machine: Machine):
        self.levels = machine.levels
        sizes = [level.size for level in machine.levels]
        self.below = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
        self.speed: dict[Link, float] = {}

    def top(self, a: int, b: int) -> int:
        """Return the outermost level on which two devices differ."""
        return next(i for i, n in enumerate(self.below) if a // n != b // n)

    def latency(self, a: int, b: int) -> float:
        latencies = [level.latency for level in self.levels[self.top(a, b) :]]
        if parents := self.parents(a, b):
            latencies.append(parents[0].level.latency)
        return max(latencies)

    def parents(self, a: int, b: int) -> tuple[Parents, int, int] | None:
        """Return the parents of two devices if these are different ones, which differ in size."""
        if (parents := self.levels[0].parents) is None:
            return None
        of = [number for number, count in enumerate(parents.children) for _ in range(count)]
        source, target = of[a // self.below[0]], of[b // self.below[0]]
        return None if source == target else (parents, source, target)

    def route(self, a: int, b: int) -> dict[Link, float]:
        """Return the links that a message uses, each with the part of the message that uses it."""
        route: dict[Link, float] = {}
        top = self.top(a, b)
        for i, level in list(enumerate(self.levels))[top:]:
            children = a // self.below[i], b // self.below[i]
            for child, way in zip(children, ("out", "in"), strict=True):
                port = level.ports[child % level.size] if level.ports else level.port
                self._add(route, (way, i, child), port)
            if level.kind is LinkKind.BUS:
                for parent in {child // level.size for child in children}:
                    self._add(route, ("bus", i, parent), level.port)
        if found := self.parents(a, b):
            outer = found[0].level
            for parent, way in zip(found[1:], ("out", "in"), strict=True):
                self._add(
                    route,
                    ("parent", way, parent),
                    outer.ports[parent] if outer.ports else outer.port,
                )
            if outer.taper > 1:
                self._add(route, ("parents",), outer.port * outer.size / outer.taper)
        level = self.levels[top]
        source, target = a // self.below[top], b // self.below[top]
        parent, size = source // level.size, level.size
        if level.taper > 1:
            self._add(route, ("core", top, parent), level.port * size / level.taper)
        if level.kind is LinkKind.FULL:
            self._add(route, ("wire", top, source, target), level.port / (size - 1))
        elif level.kind is LinkKind.RING:
            ahead = (target - source) % size
            ways = [w for w, hops in ((1, ahead), (-1, size - ahead)) if 2 * hops <= size]
            for way in ways:
                child = source % size
                while child != target % size:
                    link = ("wire", top, parent, child, way)
                    self._add(route, link, level.port / 2, 1 / len(ways))
                    child = (child + way) % size
        return route

    def _add(self, route: dict[Link, float], link: Link, speed: float, part: float = 1.0) -> None:
        """Add a part of a message over a link to a route."""
        self.speed[link] = speed
        route[link] = route.get(link, 0.0) + part


def rates(routes: Sequence[dict[Link, float]], speed: dict[Link, float]) -> list[float]:
    """Return the bytes per second of messages that share links fairly.

    The rates of all messages rise together, until a link of a message is full.
    """
    numbers = {link: n for n, link in enumerate({link for route in routes for link in route})}
    used = np.zeros((len(routes), len(numbers)))
    for row, route in zip(used, routes, strict=True):
        for link, part in route.items():
            row[numbers[link]] = part
    free = np.array([speed[link] for link in numbers])
    speeds = np.zeros(len(routes))
    rising = np.ones(len(routes), dtype=bool)
    while rising.any():
        pull = used[rising].sum(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = np.where(pull > 0, free / pull, np.inf)
        step = steps.min()
        speeds[rising] += step
        free = np.maximum(0.0, free - step * pull)
        full = steps <= step * (1 + 1e-12)
        rising &= ~(used[:, full] > 0).any(axis=1)
    return [float(x) for x in cast(Iterable[float], speeds)]


# ---------------------------------------------------------------------------------------------
# Collectives on it
# ---------------------------------------------------------------------------------------------


def coordinates(mesh: Mesh, device: int) -> dict[str, int]:
    """Return the coordinates of a device by sub-axis, from its mixed-radix number."""
    coordinate: dict[str, int] = {}
    for level in reversed(mesh.machine.levels):
        for axis in reversed(mesh.axes):
            size = math.prod(f.size for f in axis.factors or () if f.level == level.name)
            if size > 1:
                coordinate[f"{axis.name}.{level.name}"] = device % size
            device //= size
    return coordinate


def groups(mesh: Mesh, axes: Sequence[str], at_root: Iterable[str] = ()) -> list[list[int]]:
    """Return the devices of every group, in the order of its ranks."""
    members: defaultdict[tuple[int, ...], dict[tuple[int, ...], int]] = defaultdict(dict)
    for device in range(math.prod(level.size for level in mesh.machine.levels)):
        at = coordinates(mesh, device)
        if not any(at[axis] for axis in at_root):
            key = tuple(x for axis, x in at.items() if axis not in axes)
            members[key][tuple(at[axis] for axis in axes)] = device
    return [[group[at] for at in sorted(group)] for group in members.values()]


class Message(NamedTuple):
    """A message from a device to another, in a round of a collective."""

    source: int
    target: int
    size: float
    adds: bool


@dataclass(frozen=True)
class Job:
    """The messages of all groups of a collective, by rounds."""

    rounds: list[list[Message]]

    @staticmethod
    def of(moves: Moves, members: Sequence[Sequence[int]], size: float) -> "Job":
        """Return the messages of groups that all run the same algorithm."""
        part = size / moves.blocks
        return Job(
            [
                [
                    Message(group[s.source], group[s.target], part * len(s.blocks), s.adds)
                    for group in members
                    for s in sends
                ]
                for sends in moves.rounds
            ]
        )


def pairwise(mesh: Mesh, axes: Sequence[str], members: Sequence[Sequence[int]], size: float) -> Job:
    """Return an exchange in rounds, each with the rank at an offset added digit by digit."""
    sizes = [1 + max(coordinates(mesh, d)[axis] for d in members[0]) for axis in axes]
    index = {at: n for n, at in enumerate(product(*map(range, sizes)))}
    rounds: list[list[Message]] = []
    for offset in list(index)[1:]:
        to = {
            n: index[tuple((x + o) % s for x, o, s in zip(at, offset, sizes, strict=True))]
            for at, n in index.items()
        }
        part = size / len(index)
        rounds.append([Message(g[i], g[j], part, False) for g in members for i, j in to.items()])
    return Job(rounds)


@dataclass
class _Flow:
    job: int
    round: int
    message: Message
    begins: float
    left: float
    route: dict[Link, float]


@dataclass(frozen=True)
class Rules:
    """The rules by which devices go from round to round.

    Attributes:
        barriers: whether the devices of a collective begin a round together, when the last of them
            has ended the round before, and wait for the slowest latency; otherwise each device
            begins a round when it has ended its own round before.
        sends_on: whether a sender is done when its bytes have left, and a receiver a latency later;
            otherwise both wait for a latency and then for the bytes.
        per_byte: seconds that a device takes to add a received byte.
    """

    barriers: bool = False
    sends_on: bool = False
    per_byte: float = 0.0


def run(network: Network, jobs: Sequence[Job], rules: Rules) -> list[float]:
    """Return the end times of collectives that all begin at 0."""
    devices = sorted({d for j in jobs for r in j.rounds for m in r for d in (m.source, m.target)})
    runs = [_RunningJob(number, job, network, rules, devices) for number, job in enumerate(jobs)]
    flows = [flow for running in runs for flow in running.begin(0.0)]
    arriving: list[tuple[float, _Flow]] = []
    now: float = 0.0
    while flows or arriving:
        flowing = [flow for flow in flows if flow.begins <= now]
        speeds = rates([flow.route for flow in flowing], network.speed)
        ends: list[float] = [now + f.left / speed for f, speed in zip(flowing, speeds, strict=True)]
        begins = [flow.begins for flow in flows if flow.begins > now]
        then: float = min([*ends, *begins, *(time for time, _ in arriving)])
        for flow, speed in zip(flowing, speeds, strict=True):
            flow.left -= speed * (then - now)
        now = then
        ended = [
            flow
            for flow, end in zip(flowing, ends, strict=True)
            if end <= now or flow.left <= 1e-11 * flow.message.size
        ]
        gone = set(map(id, ended))
        flows = [flow for flow in flows if id(flow) not in gone]
        for flow in ended:
            flows += runs[flow.job].on_sent(flow, now)
        arriving += [(now + runs[flow.job].delay_after(flow.message), flow) for flow in ended]
        for flow in [flow for time, flow in arriving if time <= now]:
            flows += runs[flow.job].on_received(flow, now)
        arriving = [(time, flow) for time, flow in arriving if time > now]
    return [running.end for running in runs]


class _RunningJob:
    """A collective under way.

    Attributes:
        busy: messages that each device has yet to send or receive, by rounds.
        added: bytes that each device has received to add, by rounds.
        left: messages that have not arrived, by rounds.
        current: the current round, with barriers.
        position, free: the round that each device is in and the time it entered it.
    """

    def __init__(
        self, number: int, job: Job, network: Network, rules: Rules, devices: Sequence[int]
    ):
        self.number, self.network, self.rules = number, network, rules
        self.rounds = job.rounds
        self.end = 0.0
        self.devices = devices
        self.busy = [defaultdict[int, int](int) for _ in job.rounds]
        self.added = [defaultdict[int, float](float) for _ in job.rounds]
        for messages, busy in zip(job.rounds, self.busy, strict=True):
            for message in messages:
                busy[message.source] += 1
                busy[message.target] += 1
        self.of_source = [defaultdict[int, list[Message]](list) for _ in job.rounds]
        for messages, sent in zip(job.rounds, self.of_source, strict=True):
            for message in messages:
                sent[message.source].append(message)
        self.left = [len(messages) for messages in job.rounds]
        self.current = 0
        self.position: dict[int, int] = {}
        self.free: dict[int, float] = {}

    def begin(self, now: float) -> list[_Flow]:
        """Begin the first round; return its flows."""
        if self.rules.barriers:
            return self._begin_round(now)
        return [flow for device in self.devices for flow in self._advance(device, 0, now)]

    def _flow(self, number: int, message: Message, begins: float) -> _Flow:
        route = self.network.route(message.source, message.target)
        return _Flow(self.number, number, message, begins, message.size, route)

    def _begin_round(self, now: float) -> list[_Flow]:
        """Begin the current round on all devices, with barriers."""
        self.end = now
        if self.current == len(self.rounds):
            return []
        messages = self.rounds[self.current]
        begins = now + max(map(self._delay_before, messages))
        return [self._flow(self.current, message, begins) for message in messages]

    def _advance(self, device: int, number: int, now: float) -> list[_Flow]:
        """Begin a round on a device; skip rounds in which it has nothing to send or receive."""
        while number < len(self.rounds):
            self.position[device], self.free[device] = number, now
            if self.busy[number][device]:
                sent = self.of_source[number][device]
                return [self._flow(number, m, now + self._delay_before(m)) for m in sent]
            now += self.added[number][device] * self.rules.per_byte
            number += 1
        self.position[device] = number
        self.end = max(self.end, now)
        return []

    def _delay_before(self, message: Message) -> float:
        """Return the seconds before the bytes of a message flow."""
        sends_on = self.rules.sends_on
        return 0.0 if sends_on else self.network.latency(message.source, message.target)

    def delay_after(self, message: Message) -> float:
        """Return the seconds from the departure of the last byte of a message to its arrival."""
        sends_on = self.rules.sends_on
        return self.network.latency(message.source, message.target) if sends_on else 0.0

    def on_sent(self, flow: _Flow, now: float) -> list[_Flow]:
        """Record that the bytes of a message have left; return the flows that begin then."""
        if self.rules.barriers:
            return []
        return self._end_message(flow.message.source, flow.round, now)

    def on_received(self, flow: _Flow, now: float) -> list[_Flow]:
        """Record that a message has arrived; return the flows that begin then."""
        _, target, size, adds = flow.message
        if adds:
            self.added[flow.round][target] += size
        if not self.rules.barriers:
            return self._end_message(target, flow.round, now)
        self.left[flow.round] -= 1
        if self.left[flow.round]:
            return []
        self.current += 1
        most = max(self.added[flow.round].values(), default=0.0)
        return self._begin_round(now + most * self.rules.per_byte)

    def _end_message(self, device: int, number: int, now: float) -> list[_Flow]:
        """Record that a device has sent or received a message of a round."""
        self.busy[number][device] -= 1
        if self.busy[number][device] or self.position[device] != number:
            return []
        adding = self.added[number][device] * self.rules.per_byte
        return self._advance(device, number + 1, max(now, self.free[device]) + adding)
