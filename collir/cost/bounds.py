"""What no algorithm beats on a machine, unless switches reduce: latency and bandwidth.

Bandwidth: whatever must get into what lies below a port has to go through it. For an
all_reduce, all parts that a level cuts the machine into together send 2 (m - 1) n bytes (m parts;
ForestColl). Latency: in k messages, what one device knows reaches 2^k devices, and what one child
of a level knows (1 + d)^k children, d the devices below it (one port each: Chan et al. 2007).
Where a value is replicated over other sub-axes, the copies below a child need to arrive only once.

Any device may pass messages on or reduce them, those beside the group too. Idle ones may collect
an all_reduce for the others, n bytes in and out of each. What a taper holds up may go around
by another parent. Ports count whole, as every rail has a device. Where ports differ, what every
child must send or get goes through the slowest port, and what all send together through all.
"""

import math
from dataclasses import dataclass

from collir.cost.collectives.collective import Collective
from collir.cost.collectives.permutation import missing_blocks
from collir.cost.collectives.table import COSTS, UnevenPorts
from collir.cost.network.group import Group
from collir.cost.network.link_bounds import level_capacity
from collir.cost.network.wires import has_wires
from collir.machine import LinkKind


@dataclass(frozen=True)
class Bound:
    """Seconds that no algorithm is below: for its messages, and for its bytes."""

    latency: float
    bandwidth: float

    @property
    def time(self) -> float:
        """The larger of the two."""
        return max(self.latency, self.bandwidth)


def collective_bound(collective: Collective) -> Bound:
    """The bound of a collective on its machine, all of its groups at the same time.

    Raises:
        CostError: the mesh is not placed on levels.
    """
    group = Group.of(collective.mesh, collective.axes, collective.at_root)
    distinct = Group.of(
        collective.mesh, collective.axes, collective.at_root | collective.replicated
    )
    return Bound(_latency(collective, group), _bandwidth(collective, group, distinct))


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
    """In how many messages the children of a level can know of one of them."""
    ports = math.prod(inner.size for inner in group.levels[level + 1 :])
    children = group.spread(level)
    rounds, reached = 0, 1
    while reached < children:
        rounds, reached = rounds + 1, reached * (1 + ports)
    return rounds


def _bandwidth(collective: Collective, group: Group, distinct: Group) -> float:
    if collective.listed:
        each = missing_blocks(collective, group)
        return max(
            (
                each[index] * collective.size * distinct.beside[index] / level.port
                for index, level in enumerate(group.levels)
            ),
            default=0.0,
        )
    entry, found = COSTS[collective.kind], [0.0]
    for index, level in enumerate(group.levels):
        if group.spread(index) == 1:
            continue
        copied = _outside(collective, index, collective.replicated)
        helped = copied or _outside(collective, index, collective.at_root)
        parts, below = group.spread(index), group.below[index]
        into = entry.into(collective.size, parts, below, copied, helped) * distinct.beside[index]
        if level.ports is None:
            found.append(into / level.port)
        else:
            found.append(entry.slowest(into, _ports(group, index, copied)))
        parents = group.spread(index - 1) if index else 1
        alone = parents == 1
        everyone = entry.between(collective.size, parts, below) * distinct.beside[index]
        inside = everyone * distinct.groups_across[index]
        if alone and not copied:
            found.append(inside / (level_capacity(level) + _around(collective, index)))
        if level.kind is LinkKind.BUS and not copied:
            # What a child gets goes over the medium below its parent: the mean at least of some
            found.append(inside / parents / level.port)
        if alone and has_wires(level) and group.across[index] == level.size:
            # The group has all children of the level for itself.
            links = entry.links(level, _outer_port(collective, index), collective.size, below)
            found.append(links * distinct.beside[index])
    return max(found)


def _ports(group: Group, level: int, copied: bool) -> UnevenPorts:
    """The ports of a level that differ."""
    ports = group.levels[level].ports
    assert ports is not None
    reached = group.reached(level)
    return UnevenPorts(
        parts=group.spread(level),
        copied=copied,
        everyone=[ports[child] for each in reached for child in each],
        roots=[ports[each[0]] for each in reached],
        # Of one child for each group, others of its parents hold nothing more than this one.
        others=[ports[child] for each in reached for child in each[1:] or each],
    )


def _around(collective: Collective, level: int) -> float:
    """Bytes per second that children of one parent can send each other without the interconnect
    between them: by way of another parent's, in and (where both count) out."""
    return _outer_port(collective, level) * COSTS[collective.kind].ways


def _outer_port(collective: Collective, level: int) -> float:
    """The bandwidth by which children of one parent reach others; 0 if there are none."""
    outer = collective.mesh.machine.levels[:level]
    return 0.0 if all(entry.size == 1 for entry in outer) else outer[-1].port


def _outside(collective: Collective, level: int, axes: frozenset[str]) -> bool:
    """Whether some sub-axes extend over children of a level, or of one further out."""
    names = {entry.name: index for index, entry in enumerate(collective.mesh.machine.levels)}
    subs = collective.mesh.by_name
    return any(names.get(subs[axis].level or "", 0) <= level for axis in axes)
