"""Lower bounds of the time of a collective with any algorithm, unless switches reduce.

Bandwidth: all data that must get to the devices below a port goes through it. For an all_reduce,
the m parts into which a level divides the machine together send 2 (m - 1) n bytes (ForestColl).
Latency: after k messages, the data of one device has reached at most 2^k devices, and the data of
one child of a level at most (1 + d)^k children, where d devices are below each (one port per
device: Chan et al. 2007). If a value is replicated over other sub-axes, the copies below a child
need to arrive only once.

Any device may pass messages on or reduce them, including devices outside the group. Idle devices
may collect an all_reduce for the others, with n bytes in and out of each. Data may go around a
taper by another parent. A port counts with all of its rails, as every rail has a device. If ports
differ, the bytes that each child must send or receive go through the slowest port, and the bytes
that all send together go through all ports. Where children of the outermost level differ in size,
each must send or receive what it lacks through its own port.
"""

import math
from collections import Counter
from dataclasses import dataclass, replace

from collir.cost.collectives.collective import Collective
from collir.cost.collectives.permutation import missing_blocks
from collir.cost.collectives.table import COSTS, UnevenPorts
from collir.cost.network.group import Group
from collir.cost.network.link_bounds import level_capacity
from collir.machine import LinkKind, Parents


@dataclass(frozen=True)
class LowerBound:
    """Lower bounds in seconds: for the latency of messages, and for the bandwidth of bytes."""

    latency: float
    bandwidth: float

    @property
    def time(self) -> float:
        """The larger bound."""
        return max(self.latency, self.bandwidth)


def collective_bound(collective: Collective) -> LowerBound:
    """Return the bound of a collective on its machine, with all of its groups at the same time.

    Raises:
        CostError: the mesh is not placed on levels.
    """
    group = collective.group()
    alone = replace(collective, at_root=collective.at_root | collective.replicated)
    distinct = alone.group()
    return LowerBound(_latency(collective, group), _bandwidth(collective, group, distinct))


def _latency(collective: Collective, group: Group) -> float:
    levels = [index for index in range(len(group.levels)) if group.levels[index].size > 1]
    crossed = [index for index in levels if group.spread(index) > 1]
    if collective.listed:
        blocks = missing_blocks(collective, group)
        return max((group.latencies[i] for i in levels if blocks[i]), default=0.0)
    fastest = min((group.latencies[index] for index in levels), default=0.0)
    rounds = (group.size - 1).bit_length()
    return max(
        rounds * fastest,
        max((_rounds(group, index) * group.latencies[index] for index in crossed), default=0.0),
    )


def _rounds(group: Group, level: int) -> int:
    """Return the number of messages until data of one child can reach all children of a level."""
    ports = math.prod(inner.size for inner in group.levels[level + 1 :])
    children = group.spread(level)
    rounds, reached = 0, 1
    while reached < children:
        rounds, reached = rounds + 1, reached * (1 + ports)
    return rounds


def _bandwidth(collective: Collective, group: Group, distinct: Group) -> float:
    if collective.listed:
        blocks = missing_blocks(collective, group)
        return max(
            (
                blocks[index] * collective.least * distinct.beside[index] / level.port
                for index, level in enumerate(group.levels)
            ),
            default=0.0,
        )
    entry, bounds = COSTS[collective.kind], [0.0]
    for index, level in enumerate(group.levels):
        if group.spread(index) == 1:
            continue
        copied = _outside(collective, index, collective.replicated)
        helped = copied or _outside(collective, index, collective.at_root)
        parts, below = group.spread(index), group.below[index]
        into = entry.into(collective.least, parts, below, copied, helped) * distinct.beside[index]
        if level.ports is None:
            bounds.append(into / level.port)
        else:
            bounds.append(entry.slowest(into, _uneven_ports(group, index, copied)))
        parents = group.spread(index - 1) if index else 1
        alone = parents == 1
        everyone = entry.between(collective.least, parts, below) * distinct.beside[index]
        inside = everyone * distinct.groups_across[index]
        if alone and not copied:
            bounds.append(inside / (level_capacity(level) + _around(collective, index)))
        if level.kind is LinkKind.BUS and not copied:
            # All bytes into a child go over the bus below its parent. Some parent's bus carries at
            # least the mean.
            bounds.append(inside / parents / level.port)
        if alone and not level.uniform and group.across[index] == level.size:
            # The group has all children of the level to itself.
            links = entry.links(level, _outer_port(collective, index), collective.least, below)
            bounds.append(links * distinct.beside[index])
    if (parents := distinct.levels[0].parents) and not _outside(
        collective, 0, collective.replicated
    ):
        bounds.append(_between_parents(collective, distinct, parents))
    return max(bounds)


def _between_parents(collective: Collective, distinct: Group, parents: Parents) -> float:
    """Return the bound of the bytes that each parent of the outermost level, with its own number of
    children, must send or receive for the groups that extend over several.

    There must be no copies below other children: they may be below the same parent.
    """
    entry, outer = COSTS[collective.kind], parents.level
    # Bytes into parents and out of them go at the same time: those of roots one way, others the
    # other way.
    seconds = {False: [0.0] * outer.size, True: [0.0] * outer.size}
    rows: list[list[int]] = distinct.parents_of_ranks.tolist()
    for row in rows:
        for parent, below in Counter(row).items():
            if below < len(row):
                port = outer.ports[parent] if outer.ports else outer.port
                has_root = row[0] == parent
                ports = UnevenPorts(
                    parts=len(row) / below,
                    copied=False,
                    everyone=[port],
                    roots=[port if has_root else math.inf],
                    others=[math.inf if has_root else port],
                )
                into = entry.into(collective.least, ports.parts, below, False, True)
                seconds[entry.rooted and has_root][parent] += entry.slowest(into, ports)
    return max(map(max, seconds.values())) * distinct.beside[0]


def _uneven_ports(group: Group, level: int, copied: bool) -> UnevenPorts:
    """Return the ports of a level whose bandwidths differ."""
    ports = group.levels[level].ports
    assert ports is not None
    reached = group.reached(level)
    return UnevenPorts(
        parts=group.spread(level),
        copied=copied,
        everyone=[ports[child] for children in reached for child in children],
        roots=[ports[children[0]] for children in reached],
        # If a group has one child below each parent, its other children have the same port.
        others=[ports[child] for children in reached for child in children[1:] or children],
    )


def _around(collective: Collective, level: int) -> float:
    """Return the bytes per second that children of one parent can send each other by way of
    another parent: into the parent, and if both count, also out of it."""
    return _outer_port(collective, level) * COSTS[collective.kind].ways


def _outer_port(collective: Collective, level: int) -> float:
    """Return the port bandwidth between children of different parents; 0 if there is one parent."""
    outer = collective.mesh.machine.levels[:level]
    return 0.0 if all(entry.size == 1 for entry in outer) else outer[-1].port


def _outside(collective: Collective, level: int, axes: frozenset[str]) -> bool:
    """Return whether any of the sub-axes extends over children of a level or of outer levels."""
    names = {entry.name: index for index, entry in enumerate(collective.mesh.machine.levels)}
    subs = collective.mesh.by_name
    return any(names.get(subs[axis].level or "", 0) <= level for axis in axes)
