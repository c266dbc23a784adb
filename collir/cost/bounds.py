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

from collir.cost.collective import Collective
from collir.cost.group import Group
from collir.cost.link_bounds import by_cuts, carried, exchange
from collir.cost.permutation import missing_blocks
from collir.cost.wires import has_wires
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


def bound(collective: Collective) -> Bound:
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
    if collective.kind == "permute":
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
    if collective.kind == "permute":
        each = missing_blocks(collective, group)
        return max(
            (
                each[index] * collective.size * distinct.beside[index] / level.port
                for index, level in enumerate(group.levels)
            ),
            default=0.0,
        )
    found = [0.0]
    for index, level in enumerate(group.levels):
        if group.spread(index) == 1:
            continue
        copied = _outside(collective, index, collective.replicated)
        helped = copied or _outside(collective, index, collective.at_root)
        into = _into(collective, group, index, copied, helped) * distinct.beside[index]
        if level.ports is None:
            found.append(into / level.port)
        else:
            found.append(_uneven(collective, group, index, into, copied))
        parents = group.spread(index - 1) if index else 1
        alone = parents == 1
        everyone = _everyone(collective, group, index) * distinct.beside[index]
        inside = everyone * distinct.groups_across[index]
        if alone and not copied:
            found.append(inside / (carried(level) + _around(collective, index)))
        if level.kind is LinkKind.BUS and not copied:
            # What a child gets goes over the medium below its parent: the mean at least of some
            found.append(inside / parents / level.port)
        if alone and has_wires(level) and group.across[index] == level.size:
            found.append(_by_links(collective, group, index) * distinct.beside[index])
    return max(found)


def _uneven(collective: Collective, group: Group, level: int, into: float, copied: bool) -> float:
    """Seconds for the same over ports that differ: ``into`` is what a child must get (or send) that
    does so the most, where all have the same port."""
    ports = group.levels[level].ports
    assert ports is not None
    reached = group.reached(level)
    parts = group.spread(level)
    everyone = [ports[child] for each in reached for child in each]
    roots = [ports[each[0]] for each in reached]
    # Of one child for each group, others of its parents hold nothing more than this one.
    others = [ports[child] for each in reached for child in each[1:] or each]
    match collective.kind:
        case "all_reduce":  # the sum over all children; by itself, each gets what it has not
            alone = into / max(1.0, 2 * (parts - 1) / parts)
            return max(into * len(everyone) / sum(everyone), alone / min(everyone))
        case "broadcast":
            return into / min(others if copied else everyone)
        case "reduce":
            return into / min(roots if copied else everyone)
        case "gather":  # all of it goes to one child; a copy elsewhere may be what is sent
            once = 0.0 if copied else into / (parts - 1) / min(others)
            return max(into / min(roots), once)
        case "scatter":
            if copied:
                return into / min(others)
            return max(into / min(roots), into / (parts - 1) / min(others))
        case _:
            return into / min(everyone)


def _by_links(collective: Collective, group: Group, index: int) -> float:
    """Seconds for the bytes of a group that has all children of a level for itself, over links that
    are their own."""
    level, escape = group.levels[index], _outer_port(collective, index)
    if collective.kind == "all_to_all":
        return exchange(level, escape) * collective.size * group.below[index] / level.size
    return by_cuts(level, collective.kind, escape, escape > 0) * collective.size


def _around(collective: Collective, level: int) -> float:
    """Bytes per second that children of one parent can send each other without the interconnect
    between them: by way of another parent's, in and (of an all_reduce, where both count) out."""
    return _outer_port(collective, level) * (2 if collective.kind == "all_reduce" else 1)


def _outer_port(collective: Collective, level: int) -> float:
    """The bandwidth by which children of one parent reach others; 0 if there are none."""
    outer = collective.mesh.machine.levels[:level]
    return 0.0 if all(entry.size == 1 for entry in outer) else outer[-1].port


def _outside(collective: Collective, level: int, axes: frozenset[str]) -> bool:
    """Whether some sub-axes extend over children of a level, or of one further out."""
    names = {entry.name: index for index, entry in enumerate(collective.mesh.machine.levels)}
    subs = collective.mesh.by_name
    return any(names.get(subs[axis].level or "", 0) <= level for axis in axes)


def _into(collective: Collective, group: Group, level: int, copied: bool, helped: bool) -> float:
    """Bytes that one group's data must send into (or out of) one child of a level at least.

    ``copied``: other children hold copies of the operand; ``helped``: or nothing, so that they may
    reduce for those that do.
    """
    size, parts = collective.size, group.spread(level)
    rest = (parts - 1) / parts
    match collective.kind:
        case "all_reduce":
            return size if helped else 2 * rest * size
        case "reduce_scatter" | "scatter":
            return size / parts if copied else rest * size
        case "all_gather" | "gather":
            return rest * size
        case "all_to_all":
            return group.below[level] * rest * size
        case _:  # broadcast, reduce
            return size


def _everyone(collective: Collective, group: Group, level: int) -> float:
    """Bytes that the children of a level together must send each other for one group."""
    size, parts = collective.size, group.spread(level)
    match collective.kind:
        case "all_reduce":
            return 2 * (parts - 1) * size
        case "scatter" | "gather":
            return (parts - 1) / parts * size
        case "all_to_all":
            return group.below[level] * (parts - 1) * size
        case _:
            return (parts - 1) * size
