"""A network of devices and links, and what algorithms send over it, message by message.

Apart from the product: it shares only the plain values of machines and meshes with it. Every port
of every child is a link in either direction; a bus and a tapered interconnect are links that all
messages below a parent share; the children of a ring or a full mesh have links of their own.
Messages flow at once, as fast as links let them, each link shared fairly (max-min). Algorithms are
written as the blocks that ranks hold and send, so that one can see whether they do what they
should (``play``). Seconds and bytes.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple, cast

import numpy as np

from collir.layout import Mesh
from collir.machine import LinkKind, Machine

# ---------------------------------------------------------------------------------------------
# Algorithms, by the blocks that ranks send
# ---------------------------------------------------------------------------------------------

Block = tuple[int, ...]


class Send(NamedTuple):
    """Blocks from a rank to another, which adds them to its own or keeps them (``adds``)."""

    source: int
    target: int
    blocks: tuple[Block, ...]
    adds: bool = False


Rounds = list[list[Send]]


class Moves(NamedTuple):
    """What the ranks of a group send: round by round, and into how many blocks a buffer is cut."""

    rounds: Rounds
    blocks: int


def _bits(p: int) -> list[int]:
    """1, 2, 4, ... below p."""
    return [1 << k for k in range(32) if 1 << k < p]


def _all(count: int) -> tuple[Block, ...]:
    return tuple((b,) for b in range(count))


def _ring(p: int, gathers: bool) -> Rounds:
    """Blocks go round, one half of each in either direction."""
    rounds: Rounds = []
    for k in range(p - 1):
        at = k if gathers else k + 1
        ahead = [Send(i, (i + 1) % p, (((i - at) % p, 0),), not gathers) for i in range(p)]
        back = [Send(i, (i - 1) % p, (((i + at) % p, 1),), not gathers) for i in range(p)]
        rounds.append(ahead + back)
    return rounds


def _doubling(p: int, blocks: Callable[[int, int], Iterable[int]], far_first: bool) -> Rounds:
    """All exchange with the rank that differs in a bit; ``blocks``: which, of a rank and bit."""
    bits = _bits(p)[::-1] if far_first else _bits(p)
    return [[Send(i, i ^ d, tuple((b,) for b in blocks(i, d))) for i in range(p)] for d in bits]


def _adding(rounds: Rounds) -> Rounds:
    return [[send._replace(adds=True) for send in each] for each in rounds]


def _there_and_back(core: int) -> tuple[Rounds, Rounds]:
    """Halves with the nearest rank first; then the way back."""
    down = _doubling(
        core, lambda i, d: (b for b in range(core) if (b ^ i ^ d) % (2 * d) == 0), False
    )
    up = _doubling(core, lambda i, d: (b for b in range(core) if (b ^ i) % (2 * d) == 0), True)
    return _adding(down), up


def _folded(p: int, core: int, rounds: Rounds) -> Rounds:
    """Of the first ranks, the even ones give what they have to the odd ones, and get the result."""
    extra = p - core
    rank = [2 * i + 1 if i < extra else i + extra for i in range(core)]
    inner = [[one._replace(source=rank[one[0]], target=rank[one[1]]) for one in r] for r in rounds]
    if not extra:
        return inner
    first = [Send(2 * i, 2 * i + 1, _all(core), True) for i in range(extra)]
    last = [Send(2 * i + 1, 2 * i, _all(core)) for i in range(extra)]
    return [first, *inner, last]


def _core(p: int) -> int:
    return 1 << p.bit_length() - 1


def _binomial(p: int, blocks: Callable[[int, int], Iterable[int]]) -> Rounds:
    """From rank 0 outwards, the farthest first; ``blocks``: of a rank and how many it stands for"""
    rounds: Rounds = []
    for d in _bits(p)[::-1]:
        pairs = [(i, i + d) for i in range(0, p, 2 * d) if i + d < p]
        rounds.append([Send(a, b, tuple((x,) for x in blocks(b, d))) for a, b in pairs])
    return rounds


def _backwards(rounds: Rounds, adds: bool = False) -> Rounds:
    return [
        [Send(send.target, send.source, send.blocks, adds) for send in each]
        for each in reversed(rounds)
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
    """A block has as far to go as its target is from its source; it goes bit by bit."""
    rounds: Rounds = []
    for d in _bits(p):
        each: list[Send] = []
        for i in range(p):
            far = [x for x in range(p) if x & d]
            blocks = (((i - x % d) % p, (i - x % d + x) % p) for x in far)
            each.append(Send(i, (i + d) % p, tuple(blocks)))
        rounds.append(each)
    return rounds


def _spread(p: int) -> Rounds:
    """Every block down a binomial tree of its own, all at once, over far ranks first."""
    rounds: Rounds = []
    there = [0]
    for d in _bits(p)[::-1]:
        new = [x for x in there if x + d < p]
        blocks = [tuple(((i - x) % p,) for x in new) for i in range(p)]
        rounds.append([Send(i, (i + d) % p, blocks[i]) for i in range(p)])
        there += [x + d for x in new]
    return rounds


def _pairs(p: int, block: Callable[[int, int], Block], adds: bool = False) -> Rounds:
    return [
        [Send(i, (i + s) % p, (block(i, (i + s) % p),), adds) for i in range(p)]
        for s in range(1, p)
    ]


def _ring_all_reduce(p: int) -> Rounds:
    return _ring(p, False) + _ring(p, True)


def _halving_doubling(p: int) -> Rounds:
    down, up = _there_and_back(_core(p))
    return _folded(p, _core(p), down + up)


def _doubling_all_reduce(p: int) -> Rounds:
    core = _core(p)
    return _folded(p, core, _adding(_doubling(core, lambda i, d: range(core), False)))


def _halves(p: int, far_first: bool) -> Rounds:
    """Of a rank's partner, the blocks of the half that this is in; or all that a rank has."""
    if far_first:
        return _adding(
            _doubling(p, lambda i, d: (b for b in range(p) if b // d == (i ^ d) // d), True)
        )
    return _doubling(p, lambda i, d: (b for b in range(p) if b // d == i // d), False)


def _to_root(p: int) -> Rounds:
    """Halves with the nearest first; whoever has what rank 0 lacks hands it down."""
    down, _ = _there_and_back(p)
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


def moves(kind: str, name: str, p: int) -> Moves | None:
    """What a group of p ranks sends; None: not known here, or not for so many ranks."""
    if (kind, name) in _POWERS_OF_TWO and p & (p - 1):
        return None
    match kind, name:
        case "all_reduce", "ring":
            return Moves(_ring_all_reduce(p), 2 * p)
        case "all_reduce", "recursive_doubling":
            return Moves(_doubling_all_reduce(p), _core(p))
        case "all_reduce", "halving_doubling":
            return Moves(_halving_doubling(p), _core(p))
        case "all_reduce", "direct":
            gather = _pairs(p, lambda i, _: (i,))
            return Moves(_pairs(p, lambda _, j: (j,), True) + gather, p)
        case "reduce_scatter", "ring":
            return Moves(_ring(p, False), 2 * p)
        case "reduce_scatter", "recursive_halving":
            return Moves(_halves(p, True), p)
        case "reduce_scatter", "pairwise" | "direct":
            return Moves(_pairs(p, lambda _, j: (j,), True), p)
        case "all_gather", "ring":
            return Moves(_ring(p, True), 2 * p)
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
"""Which blocks every rank holds, and from which ranks there is something in them."""


def play(found: Moves, start: Held) -> Held:
    """What ranks hold in the end. They send only what they hold, and add nothing twice."""
    held = [dict(each) for each in start]
    for each in found.rounds:
        before = [dict(one) for one in held]
        for send in each:
            for block in send.blocks:
                parts = before[send.source][block]
                there = held[send.target].get(block, frozenset[int]())
                if send.adds:
                    assert not parts & there, (send, block)
                    parts |= there
                held[send.target][block] = parts
    return held


# ---------------------------------------------------------------------------------------------
# The network
# ---------------------------------------------------------------------------------------------

Link = tuple[object, ...]


class Network:
    """The links of a machine, and which of them a message goes over."""

    def __init__(self, machine: Machine):
        self.levels = machine.levels
        sizes = [level.size for level in machine.levels]
        self.below = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
        self.speed: dict[Link, float] = {}

    def top(self, a: int, b: int) -> int:
        """The outermost level on which two devices differ."""
        return next(i for i, n in enumerate(self.below) if a // n != b // n)

    def latency(self, a: int, b: int) -> float:
        return max(level.latency for level in self.levels[self.top(a, b) :])

    def route(self, a: int, b: int) -> dict[Link, float]:
        """What part of a message goes over each link."""
        found: dict[Link, float] = {}
        top = self.top(a, b)
        for i, level in list(enumerate(self.levels))[top:]:
            children = a // self.below[i], b // self.below[i]
            for child, way in zip(children, ("out", "in"), strict=True):
                port = level.ports[child % level.size] if level.ports else level.port
                self._over(found, (way, i, child), port)
            if level.kind is LinkKind.BUS:
                for parent in {child // level.size for child in children}:
                    self._over(found, ("bus", i, parent), level.port)
        level = self.levels[top]
        source, target = a // self.below[top], b // self.below[top]
        parent, size = source // level.size, level.size
        if level.taper > 1:
            self._over(found, ("core", top, parent), level.port * size / level.taper)
        if level.kind is LinkKind.FULL:
            self._over(found, ("wire", top, source, target), level.port / (size - 1))
        elif level.kind is LinkKind.RING:
            ahead = (target - source) % size
            ways = [w for w, hops in ((1, ahead), (-1, size - ahead)) if 2 * hops <= size]
            for way in ways:
                at = source % size
                while at != target % size:
                    self._over(found, ("wire", top, parent, at, way), level.port / 2, 1 / len(ways))
                    at = (at + way) % size
        return found

    def _over(self, found: dict[Link, float], link: Link, speed: float, part: float = 1.0) -> None:
        self.speed[link] = speed
        found[link] = found.get(link, 0.0) + part


def rates(routes: Sequence[dict[Link, float]], speed: dict[Link, float]) -> list[float]:
    """How fast messages flow that share links fairly: all become faster until a link is full."""
    numbers = {link: n for n, link in enumerate({link for route in routes for link in route})}
    used = np.zeros((len(routes), len(numbers)))
    for row, route in zip(used, routes, strict=True):
        for link, part in route.items():
            row[numbers[link]] = part
    free = np.array([speed[link] for link in numbers])
    found = np.zeros(len(routes))
    rising = np.ones(len(routes), dtype=bool)
    while rising.any():
        pull = used[rising].sum(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = np.where(pull > 0, free / pull, np.inf)
        step = steps.min()
        found[rising] += step
        free = np.maximum(0.0, free - step * pull)
        full = steps <= step * (1 + 1e-12)
        rising &= ~(used[:, full] > 0).any(axis=1)
    return [float(one) for one in cast(Iterable[float], found)]


# ---------------------------------------------------------------------------------------------
# Collectives on it
# ---------------------------------------------------------------------------------------------


def coordinates(mesh: Mesh, device: int) -> dict[str, int]:
    """Of a device, by sub-axis: a mixed-radix number over levels, and axes in each."""
    found: dict[str, int] = {}
    for level in reversed(mesh.machine.levels):
        for axis in reversed(mesh.axes):
            size = math.prod(f.size for f in axis.factors or () if f.level == level.name)
            if size > 1:
                found[f"{axis.name}.{level.name}"] = device % size
            device //= size
    return found


def groups(mesh: Mesh, axes: Sequence[str], at_root: Iterable[str] = ()) -> list[list[int]]:
    """The devices of every group, in the order of its ranks."""
    found: defaultdict[tuple[int, ...], dict[tuple[int, ...], int]] = defaultdict(dict)
    for device in range(math.prod(level.size for level in mesh.machine.levels)):
        at = coordinates(mesh, device)
        if not any(at[axis] for axis in at_root):
            key = tuple(x for axis, x in at.items() if axis not in axes)
            found[key][tuple(at[axis] for axis in axes)] = device
    return [[each[at] for at in sorted(each)] for each in found.values()]


class Message(NamedTuple):
    """From a device to another, in a round of a collective."""

    source: int
    target: int
    size: float
    adds: bool


@dataclass(frozen=True)
class Job:
    """A collective: the messages of all of its groups, round by round."""

    rounds: list[list[Message]]

    @staticmethod
    def of(found: Moves, members: Sequence[Sequence[int]], size: float) -> "Job":
        part = size / found.blocks
        return Job(
            [
                [
                    Message(group[s.source], group[s.target], part * len(s.blocks), s.adds)
                    for group in members
                    for s in each
                ]
                for each in found.rounds
            ]
        )


def pairwise(mesh: Mesh, axes: Sequence[str], members: Sequence[Sequence[int]], size: float) -> Job:
    """Rounds with the ranks at one offset, digit by digit of their coordinates."""
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
    """How devices go from round to round.

    Attributes:
        barriers: all of a collective begin a round together, when the last has ended the one
            before, and wait for the slowest latency of it; else each device begins when it has
            ended its own.
        sends_on: a device has sent when its bytes are gone, and the other has received a latency
            later; else both have to wait for a latency, then for the bytes.
        per_byte: seconds that a device takes to add a byte that it has received.
    """

    barriers: bool = False
    sends_on: bool = False
    per_byte: float = 0.0


def run(network: Network, jobs: Sequence[Job], rules: Rules) -> list[float]:
    """When collectives end that begin at 0 together."""
    devices = sorted({d for j in jobs for r in j.rounds for m in r for d in (m.source, m.target)})
    runs = [_Job(number, job, network, rules, devices) for number, job in enumerate(jobs)]
    flows = [flow for one in runs for flow in one.begin(0.0)]
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
            flows += runs[flow.job].sent(flow, now)
        arriving += [(now + runs[flow.job].behind(flow.message), flow) for flow in ended]
        for flow in [flow for time, flow in arriving if time <= now]:
            flows += runs[flow.job].received(flow, now)
        arriving = [one for one in arriving if one[0] > now]
    return [one.end for one in runs]


class _Job:
    """A collective under way."""

    def __init__(
        self, number: int, job: Job, network: Network, rules: Rules, devices: Sequence[int]
    ):
        self.number, self.network, self.rules = number, network, rules
        self.rounds = job.rounds
        self.end = 0.0
        self.devices = devices
        self.busy = [defaultdict[int, int](int) for _ in job.rounds]
        self.added = [defaultdict[int, float](float) for _ in job.rounds]
        for each, busy in zip(job.rounds, self.busy, strict=True):
            for message in each:
                busy[message.source] += 1
                busy[message.target] += 1
        self.of_source = [defaultdict[int, list[Message]](list) for _ in job.rounds]
        for each, sent in zip(job.rounds, self.of_source, strict=True):
            for message in each:
                sent[message.source].append(message)
        self.left = [len(each) for each in job.rounds]
        self.at = 0
        self.position: dict[int, int] = {}
        self.free: dict[int, float] = {}

    def begin(self, now: float) -> list[_Flow]:
        if self.rules.barriers:
            return self._round(now)
        return [flow for device in self.devices for flow in self._device(device, 0, now)]

    def _flow(self, number: int, message: Message, begins: float) -> _Flow:
        route = self.network.route(message.source, message.target)
        return _Flow(self.number, number, message, begins, message.size, route)

    def _round(self, now: float) -> list[_Flow]:
        self.end = now
        if self.at == len(self.rounds):
            return []
        each = self.rounds[self.at]
        begins = now + max(map(self._before, each))
        return [self._flow(self.at, message, begins) for message in each]

    def _device(self, device: int, number: int, now: float) -> list[_Flow]:
        """A device begins a round; or a later one, where all it does in it has ended by then."""
        while number < len(self.rounds):
            self.position[device], self.free[device] = number, now
            if self.busy[number][device]:
                sent = self.of_source[number][device]
                return [self._flow(number, m, now + self._before(m)) for m in sent]
            now += self.added[number][device] * self.rules.per_byte
            number += 1
        self.position[device] = number
        self.end = max(self.end, now)
        return []

    def _before(self, message: Message) -> float:
        """Seconds that pass before the bytes of a message flow."""
        sends_on = self.rules.sends_on
        return 0.0 if sends_on else self.network.latency(message.source, message.target)

    def behind(self, message: Message) -> float:
        """Seconds from when the bytes of a message have left to when it is there."""
        sends_on = self.rules.sends_on
        return self.network.latency(message.source, message.target) if sends_on else 0.0

    def sent(self, flow: _Flow, now: float) -> list[_Flow]:
        """The bytes of a message have left."""
        return [] if self.rules.barriers else self._ended(flow.message.source, flow.round, now)

    def received(self, flow: _Flow, now: float) -> list[_Flow]:
        """A message is there."""
        _, target, size, adds = flow.message
        if adds:
            self.added[flow.round][target] += size
        if not self.rules.barriers:
            return self._ended(target, flow.round, now)
        self.left[flow.round] -= 1
        if self.left[flow.round]:
            return []
        self.at += 1
        most = max(self.added[flow.round].values(), default=0.0)
        return self._round(now + most * self.rules.per_byte)

    def _ended(self, device: int, number: int, now: float) -> list[_Flow]:
        """A device has sent or received a message of a round."""
        self.busy[number][device] -= 1
        if self.busy[number][device] or self.position[device] != number:
            return []
        adding = self.added[number][device] * self.rules.per_byte
        return self._device(device, number + 1, max(now, self.free[device]) + adding)
