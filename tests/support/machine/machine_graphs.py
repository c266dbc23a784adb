"""Machines as networks of links, for the bounds by cuts to be compared with the closed forms."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from collir.cost.network.cuts import Network, Node, all_gather_bound
from collir.cost.network.wires import neighbours
from collir.machine import Level, LinkKind, Machine, Parents


def both_ways(links: Mapping[tuple[Node, Node], float]) -> Network:
    """Return a network of full-duplex links, each listed once."""
    return Network({**links, **{(b, a): bandwidth for (a, b), bandwidth in links.items()}})


def reduce_scatter_bound(network: Network, compute: Iterable[Node], size: float) -> float:
    """Return the exact bound in seconds of a reduce_scatter of ``size`` bytes per rank, which is an
    all_gather in reverse."""
    return all_gather_bound(network.reversed, compute, size)


def machine_graph(machine: Machine) -> Network:
    """Return the network of a machine.

    Its nodes are the devices 0, 1, ..., and (l, k) for the switch of level l below the k-th parent;
    interconnects that are no plain switch consist of several nodes (l, k, ...). The network never
    has less bandwidth than the machine: the rails of a port are one link, and a taper counts only
    on switches.
    """
    links: dict[tuple[Node, Node], float] = {}
    ends: list[_Ends] = [(device, device) for device in range(machine.devices)]
    for level in reversed(machine.levels):
        siblings = [ends[i : i + level.size] for i in range(0, len(ends), level.size)]
        if level.parents:
            ends = [_connect_parents(links, level, level.parents, ends)]
            continue
        connect = _connect_by_switch if level.uniform else _connect_by_wires
        ends = [connect(links, level, parent, below) for parent, below in enumerate(siblings)]
    return Network(links)


_Ends = tuple[Node, Node]
"""The nodes at which messages leave and enter the part of a machine below a port."""


def _connect_parents(
    links: dict[tuple[Node, Node], float], level: Level, parents: Parents, children: Sequence[_Ends]
) -> _Ends:
    """Add a switch for the children of each parent and one between the parents, and return the
    ends of all."""
    ends: list[_Ends] = []
    for number, (start, count) in enumerate(zip(parents.starts, parents.children, strict=True)):
        inside = replace(level, size=count, kinds=(), parents=None)
        ends.append(_connect_by_switch(links, inside, number, children[start : start + count]))
    return _connect_by_switch(links, parents.level, 0, ends)


def _connect_by_wires(
    links: dict[tuple[Node, Node], float], level: Level, parent: int, children: Sequence[_Ends]
) -> _Ends:
    """Add the ports and links of the children of a parent, and return the parent's ends."""
    hub, port, size = (level.name, parent), level.port, level.size
    up, down = (*hub, "up"), (*hub, "down")
    for index, (out, into) in enumerate(children):
        child = (*hub, index)
        if level.kind is not LinkKind.FULL:
            for neighbour, count in neighbours(level, index):
                link = child, (*hub, neighbour)
                links[link] = links.get(link, 0.0) + count * port / level.wires
            around = [((*child, "out"), child), (child, (*child, "in"))]
            links |= dict.fromkeys(around, port)
        else:
            siblings = [(*hub, sibling, "in") for sibling in range(size) if sibling != index]
            links |= {((*child, "out"), sibling): port / (size - 1) for sibling in siblings}
        outward = [(out, (*child, "out")), ((*child, "out"), up)]
        inward = [(down, (*child, "in")), ((*child, "in"), into)]
        links |= dict.fromkeys(outward + inward, port)
    return up, down


def _connect_by_switch(
    links: dict[tuple[Node, Node], float], level: Level, parent: int, children: Sequence[_Ends]
) -> _Ends:
    """Add a switch or bus between the children of a parent, and return the parent's ends."""
    hub, port = (level.name, parent), level.port
    up = down = hub
    if level.kind is LinkKind.BUS:
        down, up = (*hub, "on"), (*hub, "off")
        links[down, up] = port
    elif level.taper > 1:
        up, down = (*hub, "up"), (*hub, "down")
        links[up, down] = level.size * port / level.taper
    first, last = (down, up) if level.kind is LinkKind.BUS else (up, down)
    for index, (out, into) in enumerate(children):
        own = level.ports[index] if level.ports else port
        links |= {(out, first): own, (last, into): own}
    return up, down
