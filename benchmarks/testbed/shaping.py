"""The network of a machine as links of a tree, and the commands that shape the links.

A pair of virtual interfaces connects every child of every level to its parent's bridge. Both ends
are shaped to the bandwidth of the child's port, each in the direction in which it sends. This
module runs no command.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from operator import mul

from collir.machine import Machine

MTU = 9000
"""Bytes of an IP packet."""
FRAME = MTU + 14
"""Bytes of such a packet on a link, for shaping and counting."""
QUEUE = 16 * 2**20
"""Bytes in the queue of a link: more than a program has under way, so nothing is lost."""
SEGMENT = MTU - 40 - 12
"""Bytes of data in such a packet, without the headers of IP and TCP and TCP's time stamps."""
LATE = 500e-6
"""Seconds of delay that a link makes up for when it is woken up late.

A smaller value makes links slower than configured. A larger value makes a link faster after it was
idle, by a burst and the packet that begins the burst.
"""
ACKNOWLEDGEMENTS = (40, 52, 64, 72, 80)
"""Lengths of TCP packets without data, with 0 to 4 words of options; they pass unshaped."""


@dataclass(frozen=True)
class Link:
    """The port of one child.

    Attributes:
        level: Number of the level; 0 is outermost.
        child: Number of the child, counted over all parents.
        parent: Number of the parent, counted over the bridges of the next outer level.
        rate: Bytes per second, in each direction.
        is_rank: True if the child is a rank, False if it is a bridge.
    """

    level: int
    child: int
    parent: int
    rate: float
    is_rank: bool

    @property
    def outside(self) -> str:
        """The end at the parent's bridge; it sends to the child, and counts the received bytes."""
        return f"out{self.level}-{self.child}"

    @property
    def inside(self) -> str:
        """The end at the child: at its bridge, or in the name space of the rank."""
        return "eth0" if self.is_rank else f"in{self.level}-{self.child}"

    @property
    def bridge(self) -> str:
        """The parent's bridge."""
        return bridge(self.level, self.parent)


def bridge(level: int, parent: int) -> str:
    """Return the name of the bridge that joins the children of one parent."""
    return f"br{level}-{parent}"


def links(machine: Machine) -> list[Link]:
    """Return all links, outermost level first."""
    all_links: list[Link] = []
    counts = list(accumulate((level.size for level in machine.levels), mul))
    for number, (level, count) in enumerate(zip(machine.levels, counts, strict=True)):
        last = number == len(counts) - 1
        rates = level.ports or (level.port,) * level.size
        for child in range(count):
            parent, place = divmod(child, level.size)
            all_links.append(Link(number, child, parent, rates[place], last))
    return all_links


def bridges(machine: Machine) -> list[str]:
    """Return all bridges, the root first."""
    return list(dict.fromkeys(link.bridge for link in links(machine)))


def lanes(machine: Machine) -> list[list[float]]:
    """Return the bytes per second from each rank to each other one, of a matrix of links.

    The result is empty for a machine without one.
    """
    level = machine.levels[-1]
    if level.links is None:
        return []
    return [[level.port * count / level.wires for count in row] for row in level.links]


def shaped_towards(device: str, rates: Mapping[str, float]) -> Iterator[str]:
    """Yield the commands of ``tc`` that limit what an interface sends to each address."""
    yield f"qdisc add dev {device} root handle 1: htb default 20"
    yield from _acknowledging(device)
    for number, (address, rate) in enumerate(rates.items()):
        minor = 100 + number
        yield from _limited(device, f"{minor}", rate)
        yield (
            f"filter add dev {device} parent 1: protocol ip prio 2 u32 match ip dst {address}/32 "
            f"flowid 1:{minor}"
        )


def shaped(device: str, rate: float) -> Iterator[str]:
    """Yield the commands of ``tc`` that limit what an interface sends to ``rate`` bytes per second.

    Packets that only acknowledge pass at once. Behind data they would slow down the other
    direction.
    """
    yield f"qdisc add dev {device} root handle 1: htb default 10"
    yield from _limited(device, "10", rate)
    yield from _acknowledging(device)


def _limited(device: str, minor: str, rate: float) -> Iterator[str]:
    """Yield the commands for a class of a rate, with a queue."""
    burst = round(max(rate * LATE, 1000))
    yield (
        f"class add dev {device} parent 1: classid 1:{minor} htb rate {round(8 * rate)}bit "
        f"burst {burst} cburst {burst} quantum {FRAME}"
    )
    yield f"qdisc add dev {device} parent 1:{minor} handle {minor}: bfifo limit {QUEUE}"


def _acknowledging(device: str) -> Iterator[str]:
    """Yield the commands for the class of packets that only acknowledge."""
    yield (
        f"class add dev {device} parent 1: classid 1:20 htb rate 10gbit "
        f"burst 128k cburst 128k quantum {FRAME}"
    )
    for length in ACKNOWLEDGEMENTS:
        yield (
            f"filter add dev {device} parent 1: protocol ip prio 1 u32 match ip protocol 6 0xff "
            f"match u16 {length} 0xffff at 2 match u8 0x10 0xff at 33 flowid 1:20"
        )
