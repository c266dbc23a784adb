"""The messages of algorithms, device by device: the oracle for the closed forms of ``collir.cost``.

It lists every message of every group and counts the load of every port. It shares only the plain
values of machines and meshes with the code that it checks.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations, pairwise, permutations
from typing import TypeVar

from collir.layout import Mesh
from collir.machine import Level, LinkKind, Parents
from collir.machine.level import Matrix

Key = TypeVar("Key")
Loads = defaultdict[Key, float]
"""Bytes by port, wire or interconnect."""

Messages = list[tuple[int, int, float]]
"""(sender in the group, receiver in the group, bytes)."""

Wire = tuple[int, tuple[int, ...]]
"""The level, and the parent and the link below it."""

Link = tuple[int, ...]


# ---------------------------------------------------------------------------------------------
# Links between the children of a level
# ---------------------------------------------------------------------------------------------


def links_of_a_port(level: Level) -> int:
    """Return the number of links that share a port's bandwidth."""
    if level.kind is LinkKind.FULL:
        return level.size - 1
    if level.shape:
        return sum(1 if size == 2 else 2 for size in level.shape)
    return max(sum(row) for row in level.links) if level.links else 2


def ways_of(level: Level, a: int, b: int) -> list[tuple[list[Link], float]]:
    """Return the paths of a message between two children, link by link, each with its share."""
    if level.kind is LinkKind.FULL:
        return [([(a, b)], 1.0)]
    if level.kind is LinkKind.RING:
        return _around_ring(level.size, a, b)
    if level.shape:
        return _through_torus(level.shape, a, b)
    return _fewest_hops(level.links, a, b) if level.links else []


def _around_ring(size: int, a: int, b: int) -> list[tuple[list[Link], float]]:
    ahead = (b - a) % size
    ways: list[list[Link]] = []
    if 2 * ahead <= size:
        ways.append([((a + hop) % size, 1) for hop in range(ahead)])
    if 2 * ahead >= size:
        ways.append([((a - hop) % size, 0) for hop in range(size - ahead)])
    return [(way, 1 / len(ways)) for way in ways]


def _through_torus(shape: tuple[int, ...], a: int, b: int) -> list[tuple[list[Link], float]]:
    """Return the paths along the dimensions in order, and in reverse order."""

    def split(child: int) -> list[int]:
        digits: list[int] = []
        for size in reversed(shape):
            digits.insert(0, child % size)
            child //= size
        return digits

    ways: list[tuple[list[Link], float]] = []
    for order in (list(range(len(shape))), list(reversed(range(len(shape))))):
        paths: list[tuple[list[Link], float]] = [([], 0.5)]
        at, end = split(a), split(b)
        for dimension in order:
            size = shape[dimension]
            around = _around_ring(size, at[dimension], end[dimension])
            if size == 2 and len(around) == 2:  # both ways are the same link
                around = [(around[0][0], 1.0)]
            links = [
                ([(dimension, way, *at[:dimension], x, *at[dimension + 1 :]) for x, way in hops], w)
                for hops, w in around
            ]
            paths = [(old + new, w * v) for old, w in paths for new, v in links]
            at[dimension] = end[dimension]
        ways += paths
    return ways


def _fewest_hops(matrix: Matrix, a: int, b: int) -> list[tuple[list[Link], float]]:
    """Return all shortest paths; parallel links make different paths."""
    paths: list[list[Link]] = [[]]
    while paths:
        ends = [path for path in paths if (path[-1][1] if path else a) == b]
        if ends:
            return [(path, 1 / len(ends)) for path in ends]
        paths = [
            [*path, (at, neighbour, number)]
            for path in paths
            for at in [path[-1][1] if path else a]
            for neighbour, count in enumerate(matrix[at])
            if neighbour not in [link[0] for link in path]
            for number in range(count)
        ]
    raise AssertionError("all children are connected")


_FEW = 6
"""The most children of a full mesh of which all choices of rings are tried."""


@lru_cache(maxsize=4096)
def rings_of(level: Level) -> int:
    """Return the largest number of edge-disjoint rings, of few children by trying all choices."""
    full = level.kind is LinkKind.FULL
    if level.shape or (full and level.size > _FEW):
        return links_of_a_port(level) // 2
    children = range(level.size)
    matrix = tuple(tuple(int(a != b) for b in children) for a in children) if full else level.links
    if not matrix or level.size < 3:
        return 0
    rings = list[Counter[tuple[int, int]]]()
    for order in permutations(range(1, level.size)):
        if order[0] < order[-1]:
            ring = (0, *order, 0)
            used = Counter((min(link), max(link)) for link in pairwise(ring))
            if all(matrix[x][y] >= count for (x, y), count in used.items()):
                rings.append(used)

    def most(left: Matrix, start: int) -> int:
        best = 0
        for number in range(start, len(rings)):
            used = rings[number]
            if all(left[x][y] >= count for (x, y), count in used.items()):
                rest = [list(row) for row in left]
                for (x, y), count in used.items():
                    rest[x][y] -= count
                best = max(best, 1 + most(tuple(map(tuple, rest)), number))
        return best

    return most(matrix, 0)


def coordinates(mesh: Mesh, device: int) -> dict[str, int]:
    return {sub.name: device // sub.stride % sub.size for sub in mesh.sub_axes}


def groups(mesh: Mesh, axes: tuple[str, ...], at_root: frozenset[str]) -> list[list[int]]:
    """Return the devices of every group, in the order of its ranks."""
    members: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for device in range(mesh.devices):
        at = coordinates(mesh, device)
        if any(at[axis] for axis in at_root):
            continue
        index = 0
        for axis in axes:
            index = index * mesh.by_name[axis].size + at[axis]
        key = tuple(x for axis, x in at.items() if axis not in axes)
        members.setdefault(key, []).append((index, device))
    return [[device for _, device in sorted(group)] for group in members.values()]


@dataclass
class Network:
    """A counter of the load that messages put on a machine, and of the seconds it takes."""

    mesh: Mesh
    members: list[list[int]]

    def __post_init__(self) -> None:
        self.levels = self.mesh.machine.levels
        self.inside = [1] * len(self.levels)
        for i in reversed(range(len(self.levels) - 1)):
            self.inside[i] = self.inside[i + 1] * self.levels[i + 1].size
        self.active = {device for group in self.members for device in group}
        self.totals: Loads[tuple[int, int, str]] = defaultdict(float)

    def latency(self, a: int, b: int) -> float:
        """Return the latency of a message between two devices."""
        top = self._top(a, b)
        latencies = [level.latency for level in self.levels[top:]]
        if parents := self._parents(a, b):
            latencies.append(parents[0].level.latency)
        return max(latencies)

    def _parents(self, a: int, b: int) -> tuple[Parents, int, int] | None:
        """Return the parents of two devices if these are different ones, which differ in size."""
        parents = self.levels[0].parents
        if parents is None:
            return None
        of = [p for p, count in enumerate(parents.children) for _ in range(count)]
        source, target = of[a // self.inside[0]], of[b // self.inside[0]]
        return None if source == target else (parents, source, target)

    def _top(self, a: int, b: int) -> int:
        return next(i for i, n in enumerate(self.inside) if a // n != b // n)

    def load(self, messages: Messages, rings: frozenset[int] = frozenset()) -> tuple[float, float]:
        """Add messages of every group at once; return (seconds of the most loaded link, latency).

        On the levels of ``rings`` messages do not take links one by one: see ``_add_rings``.
        """
        loads = _Loads()
        slowest = 0.0
        for group in self.members:
            for source, target, size in messages:
                a, b = group[source], group[target]
                if a != b and size:
                    slowest = max(slowest, self.latency(a, b))
                    self._add_message(loads, a, b, size, rings)
            for i in rings:
                self._add_rings(loads.wires, i, group, messages)
        for port, size in loads.ports.items():
            self.totals[port] += size
        times = [0.0]
        for (i, child, _), size in loads.ports.items():
            times.append(size / self._port(i, child))
        for (i, _), size in loads.wires.items():
            times.append(size * links_of_a_port(self.levels[i]) / self.levels[i].port)
        for (i, _), size in loads.buses.items():
            times.append(size / self.levels[i].port)
        for (i, _), size in loads.cores.items():
            level = self.levels[i]
            if level.taper > 1:
                times.append(size * level.taper / (level.size * level.port))
        if parents := self.levels[0].parents:
            outer = parents.level
            for (parent, _), size in loads.parents.items():
                times.append(size / (outer.ports[parent] if outer.ports else outer.port))
            sent = sum(size for (_, way), size in loads.parents.items() if way == "out")
            if outer.taper > 1:
                times.append(sent * outer.taper / (outer.size * outer.port))
        return max(times), slowest

    def _add_message(
        self, loads: "_Loads", a: int, b: int, size: float, rings: frozenset[int]
    ) -> None:
        top = self._top(a, b)
        for i, n in enumerate(self.inside):
            if i < top:
                continue
            loads.ports[i, a // n, "out"] += size
            loads.ports[i, b // n, "in"] += size
            if self.levels[i].kind is LinkKind.BUS:
                for parent in {a // n // self.levels[i].size, b // n // self.levels[i].size}:
                    loads.buses[i, parent] += size
        if parents := self._parents(a, b):
            loads.parents[parents[1], "out"] += size
            loads.parents[parents[2], "in"] += size
        n = self.inside[top]
        loads.cores[top, a // n // self.levels[top].size] += size
        if top not in rings:
            self._add_wires(loads.wires, top, a // n, b // n, size)

    def _port(self, i: int, child: int) -> float:
        level, n = self.levels[i], self.inside[i]
        used = {d % n // (n // level.rails) for d in self.active if d // n == child}
        port = level.ports[child % level.size] if level.ports else level.port
        return port * len(used) / level.rails

    def _add_wires(self, wires: Loads[Wire], i: int, a: int, b: int, size: float) -> None:
        level = self.levels[i]
        parent = a // level.size
        ways = ways_of(level, a % level.size, b % level.size)
        for way, share in ways:
            for link in way:
                wires[i, (parent, *link)] += size * share

    def _add_rings(self, wires: Loads[Wire], i: int, group: list[int], messages: Messages) -> None:
        """Add hops, each of which is a hop with an equal share on every ring through the children.

        The rings go through the children in any order in which there are links.
        """
        level, n = self.levels[i], self.inside[i]
        rings = rings_of(level)
        for source, target, size in messages:
            a, b = group[source], group[target]
            if size and a != b and self._top(a, b) == i:
                for ring in range(rings):  # the children of the hop name a link of the ring
                    wires[i, (a // n // level.size, ring, a // n, b // n)] += size / rings

    def passes_through(self, i: int, messages: Messages) -> bool:
        """Return whether messages in one direction visit all children of each parent of a level in
        turn, with equally many messages on every hop."""
        level, n = self.levels[i], self.inside[i]
        hops: defaultdict[int, set[tuple[int, int]]] = defaultdict(set)
        counts: defaultdict[tuple[int, int], int] = defaultdict(int)
        for group in self.members:
            children = {device // n for device in group}
            for source, target, _ in messages:
                a, b = group[source], group[target]
                if a != b and self._top(a, b) == i:
                    hops[a // n // level.size].add((a // n, b // n))
                    counts[a // n, b // n] += 1
            for child in children:
                parent = child // level.size
                if not {parent * level.size + k for k in range(level.size)} <= children:
                    return False
        if len(set(counts.values())) != 1:
            return False
        for pairs in hops.values():
            after = dict(pairs)
            at = next(iter(set(after) - set(after.values()) or set(after)))
            seen = [at]
            while (at := after.get(at, seen[0])) not in seen:
                seen.append(at)
            if len(after) < len(pairs) or len(seen) < level.size:
                return False
        return True

    def port_bytes(self) -> tuple[float, ...]:
        """Return the bytes of all messages through the busiest port of every level."""
        return tuple(
            max((size for (level, _, _), size in self.totals.items() if level == i), default=0.0)
            for i in range(len(self.levels))
        )


@dataclass
class _Loads:
    """Bytes by port, wire, (level, parent of a bus), (level, parent of an interconnect), and port
    of a parent."""

    ports: Loads[tuple[int, int, str]] = field(default_factory=lambda: defaultdict(float))
    wires: Loads[Wire] = field(default_factory=lambda: defaultdict(float))
    buses: Loads[tuple[int, int]] = field(default_factory=lambda: defaultdict(float))
    cores: Loads[tuple[int, int]] = field(default_factory=lambda: defaultdict(float))
    parents: Loads[tuple[int, str]] = field(default_factory=lambda: defaultdict(float))


def rounds(network: Network, listed: Iterable[tuple[Messages, float]]) -> float:
    """Return the time of rounds: messages, and the seconds that a rank reduces after them."""
    time = 0.0
    for messages, reducing in listed:
        busy, latency = network.load(messages)
        time += busy + latency + reducing
    return time


def pipelined(network: Network, messages: Messages, latency: float, reducing: float) -> float:
    """Return the time of messages that overlap."""
    busy, _ = network.load(messages)
    return busy + latency + reducing


# ---------------------------------------------------------------------------------------------
# The algorithms, as in their papers
# ---------------------------------------------------------------------------------------------


def time_of(network: Network, kind: str, name: str, n: float, g: float) -> float | None:
    """Return the time of a collective on ``n`` bytes with ``g`` seconds per byte reduced, or None
    for algorithms that are not in this file."""
    p = len(network.members[0])
    time = _TIMES.get((kind, name))
    return None if time is None else time(network, p, n, g)


def _ring_latency(network: Network, p: int) -> float:
    """Return the latency of the slowest ring: of all hops but the fastest."""
    rings = [
        [network.latency(group[i], group[(i + 1) % p]) for i in range(p)]
        for group in network.members
    ]
    return max(sum(hops) - min(hops) for hops in rings)


def _ring(network: Network, p: int, n: float, g: float) -> float:
    part = n * (p - 1) / p / 2
    ways: list[Messages] = [[(i, (i + step) % p, part) for i in range(p)] for step in (1, p - 1)]
    free = [
        i
        for i, level in enumerate(network.levels)
        if rings_of(level) and network.passes_through(i, ways[0])
    ]
    choices = [frozenset(c) for k in range(len(free) + 1) for c in combinations(free, k)]
    messages = [message for way in ways for message in way]
    latency, reducing = _ring_latency(network, p), g * n * (p - 1) / p
    before = network.totals
    times: list[float] = []
    for choice in choices:
        network.totals = before.copy()
        busy, _ = network.load(messages, choice)
        times.append(busy + latency + reducing)
    return min(times)


def _levels(network: Network, p: int, n: float, g: float, reduces: bool) -> float:
    """Return the time of a ring on each level, the innermost first, over what is left of a buffer;
    without reduction the outermost is first, over what is there."""
    mesh, group = network.mesh, network.members[0]
    order = {level.name: i for i, level in enumerate(network.levels)}
    extended = next(i for i, level in enumerate(network.levels) if level.size > 1)
    at = [coordinates(mesh, device) for device in group]
    axes = [axis for axis in at[0] if len({c[axis] for c in at}) > 1]
    level_of = {axis: order.get(mesh.by_name[axis].level or "", extended) for axis in axes}
    size, time = n if reduces else n / p, 0.0
    levels = sorted(set(level_of.values()), reverse=reduces)
    for level in levels:
        inside = [axis for axis in axes if level_of[axis] == level]
        # A ring has the ranks that differ on this level alone, in the order of the group.
        rings: dict[tuple[int, ...], list[int]] = {}
        for rank, place in enumerate(at):
            rings.setdefault(tuple(place[a] for a in axes if a not in inside), []).append(rank)
        across = len(next(iter(rings.values())))
        part = size / across if reduces else size
        messages = [
            (ring[k], ring[(k + 1) % across], part * (across - 1))
            for ring in rings.values()
            for k in range(across)
        ]
        hops = [
            [
                network.latency(members[ring[k]], members[ring[(k + 1) % across]])
                for k in range(across)
            ]
            for members in network.members
            for ring in rings.values()
        ]
        latency = max(sum(way) - min(way) for way in hops)
        reducing = g * part * (across - 1) if reduces else 0.0
        time += pipelined(network, messages, latency, reducing)
        size = size / across if reduces else size * across
    return time


def _exchanges(p: int, parts: Iterable[tuple[int, float]]) -> list[Messages]:
    return [[(i, i ^ distance, size) for i in range(p)] for distance, size in parts]


def _distances(p: int) -> list[int]:
    return [1 << k for k in range((p - 1).bit_length())]


def _doubling_all_reduce(network: Network, p: int, n: float, g: float) -> float:
    return _folded(network, p, n, g, [(d, n, n) for d in _distances(1 << p.bit_length() - 1)])


def _halving_doubling(network: Network, p: int, n: float, g: float) -> float:
    down = [(d, n / (2 * d), n / (2 * d)) for d in _distances(1 << p.bit_length() - 1)]
    up = [(d, size, 0.0) for d, size, _ in reversed(down)]
    return _folded(network, p, n, g, down + up)


def _folded(
    network: Network, p: int, n: float, g: float, steps: list[tuple[int, float, float]]
) -> float:
    """Return the time of exchanges, for which even ranks of the first 2r fold into odd ranks."""
    core = 1 << p.bit_length() - 1
    extra = p - core
    ranks = [2 * i + 1 if i < extra else i + extra for i in range(core)]
    listed: list[tuple[Messages, float]] = []
    if extra:
        listed.append(([(2 * i, 2 * i + 1, n) for i in range(extra)], g * n))
    for distance, size, reduced in steps:
        messages = [(ranks[i], ranks[i ^ distance], size) for i in range(core)]
        listed.append((messages, g * reduced))
    if extra:
        listed.append(([(2 * i + 1, 2 * i, n) for i in range(extra)], 0.0))
    return rounds(network, listed)


def _doubling_all_gather(network: Network, p: int, n: float, g: float) -> float:
    parts = [(d, n / p * d) for d in _distances(p)]
    return rounds(network, [(m, 0.0) for m in _exchanges(p, parts)])


def _halving_reduce_scatter(network: Network, p: int, n: float, g: float) -> float:
    parts = [(d, n / p * d) for d in reversed(_distances(p))]
    halves = zip(_exchanges(p, parts), parts, strict=True)
    return rounds(network, [(m, g * size) for m, (_, size) in halves])


def _bruck_all_gather(network: Network, p: int, n: float, g: float) -> float:
    held, listed = 1, list[tuple[Messages, float]]()
    while held < p:
        sent = min(held, p - held)
        listed.append(([(i, (i - held) % p, sent * n / p) for i in range(p)], 0.0))
        held += sent
    return rounds(network, listed)


def _bruck_all_to_all(network: Network, p: int, n: float, g: float) -> float:
    listed: list[tuple[Messages, float]] = []
    for d in _distances(p):
        blocks = sum(1 for block in range(p) if block & d)
        listed.append(([(i, (i + d) % p, blocks * n / p) for i in range(p)], 0.0))
    return rounds(network, listed)


def _pat(network: Network, p: int, n: float, g: float) -> float:
    """Return the time of all blocks spreading down binomial trees at once, far ranks first."""
    listed: list[tuple[Messages, float]] = []
    have = {0}
    for d in reversed(_distances(p)):
        new = {x + d for x in have if x + d < p}
        listed.append(
            ([(i, (i + d) % p, len(new) * n / p) for i in range(p)], g * len(new) * n / p)
        )
        have |= new
    assert have == set(range(p))
    return rounds(network, listed)


def _pairwise(network: Network, p: int, n: float, g: float) -> float:
    """Return the time of exchanges at all offsets, digit by digit of the groups' coordinates."""
    mesh, group = network.mesh, network.members[0]
    at = [coordinates(mesh, device) for device in group]
    axes = [axis for axis in at[0] if len({c[axis] for c in at}) > 1]
    sizes = {axis: mesh.by_name[axis].size for axis in axes}
    index = {tuple(c[axis] for axis in axes): i for i, c in enumerate(at)}
    listed: list[tuple[Messages, float]] = []
    for offset in list(index)[:]:
        if not any(offset):
            continue
        messages = [
            (
                i,
                index[tuple((x + o) % sizes[a] for a, x, o in zip(axes, c, offset, strict=True))],
                n / p,
            )
            for c, i in index.items()
        ]
        listed.append((messages, g * n / p))
    return rounds(network, listed)


def _direct(network: Network, p: int, n: float, g: float) -> float:
    messages = [(i, j, n / p) for i in range(p) for j in range(p) if i != j]
    latency = max(
        sum(network.latency(group[i], group[j]) for j in range(p) if j != i)
        for group in network.members
        for i in range(p)
    )
    return pipelined(network, messages, latency, g * n * (p - 1) / p)


def _star(network: Network, p: int, n: float, g: float) -> float:
    messages = [(0, j, n / p) for j in range(1, p)]
    latency = max(
        sum(network.latency(group[0], group[j]) for j in range(1, p)) for group in network.members
    )
    return pipelined(network, messages, latency, 0.0)


def _binomial(p: int, size: Callable[[int], float]) -> list[Messages]:
    """Return the rounds from the root outwards: ranks with data send to the farthest first."""
    listed: list[Messages] = []
    have = [0]
    for d in reversed(_distances(p)):
        new = [(x, x + d) for x in have if x + d < p]
        listed.append([(a, b, size(min(d, p - b))) for a, b in new])
        have += [b for _, b in new]
    assert sorted(have) == list(range(p))
    return listed


def _broadcast(network: Network, p: int, n: float, g: float) -> float:
    return rounds(network, [(m, 0.0) for m in _binomial(p, lambda _: n)])


def _reduce(network: Network, p: int, n: float, g: float) -> float:
    back = [[(b, a, size) for a, b, size in m] for m in reversed(_binomial(p, lambda _: n))]
    return rounds(network, [(m, g * n) for m in back])


def _halving_reduce(network: Network, p: int, n: float, g: float) -> float:
    """Return the time of halving, nearest ranks first, and then a gather to rank 0."""
    parts = [(d, n / (2 * d)) for d in _distances(p)]
    halves = zip(_exchanges(p, parts), parts, strict=True)
    listed = [(m, g * size) for m, (_, size) in halves]
    holders = list(range(p))
    for d, size in reversed(parts):
        listed.append(([(x, x - d, size) for x in holders if x >= d], 0.0))
        holders = [x for x in holders if x < d]
    assert holders == [0]
    return rounds(network, listed)


def _scatter(network: Network, p: int, n: float, g: float) -> float:
    return rounds(network, [(m, 0.0) for m in _binomial(p, lambda ranks: ranks * n / p)])


def _twice(
    first: Callable[[Network, int, float, float], float],
    second: Callable[[Network, int, float, float], float],
) -> Callable[[Network, int, float, float], float]:
    return lambda network, p, n, g: first(network, p, n, g) + second(network, p, n, 0.0)


_TIMES: dict[tuple[str, str], Callable[[Network, int, float, float], float]] = {
    ("all_reduce", "ring"): _twice(_ring, _ring),
    ("all_reduce", "recursive_doubling"): _doubling_all_reduce,
    ("all_reduce", "halving_doubling"): _halving_doubling,
    ("all_reduce", "direct"): _twice(_direct, _direct),
    ("all_reduce", "hierarchical"): _twice(
        lambda network, p, n, g: _levels(network, p, n, g, True),
        lambda network, p, n, g: _levels(network, p, n, g, False),
    ),
    ("reduce_scatter", "hierarchical"): lambda network, p, n, g: _levels(network, p, n, g, True),
    ("all_gather", "hierarchical"): lambda network, p, n, g: _levels(network, p, n, g, False),
    ("reduce_scatter", "ring"): _ring,
    ("reduce_scatter", "recursive_halving"): _halving_reduce_scatter,
    ("reduce_scatter", "pat"): _pat,
    ("reduce_scatter", "pairwise"): _pairwise,
    ("reduce_scatter", "direct"): _direct,
    ("all_gather", "ring"): lambda network, p, n, g: _ring(network, p, n, 0.0),
    ("all_gather", "recursive_doubling"): _doubling_all_gather,
    ("all_gather", "bruck"): _bruck_all_gather,
    ("all_gather", "pat"): lambda network, p, n, g: _pat(network, p, n, 0.0),
    ("all_gather", "direct"): lambda network, p, n, g: _direct(network, p, n, 0.0),
    ("broadcast", "binomial"): _broadcast,
    ("broadcast", "scatter_all_gather"): _twice(_scatter, _ring),
    ("reduce", "binomial"): _reduce,
    ("reduce", "halving_doubling"): _halving_reduce,
    ("scatter", "binomial"): _scatter,
    ("scatter", "direct"): _star,
    ("gather", "binomial"): _scatter,
    ("gather", "direct"): _star,
    ("all_to_all", "pairwise"): lambda network, p, n, g: _pairwise(network, p, n, 0.0),
    ("all_to_all", "bruck"): _bruck_all_to_all,
    ("all_to_all", "direct"): lambda network, p, n, g: _direct(network, p, n, 0.0),
}
