"""The network of a machine as links of a tree, and the commands that make and shape it.

Every child of every level hangs on its parent's bridge by one pair of virtual interfaces. Both ends
are shaped, each in the direction in which it sends, to the bandwidth of the child's port. Nothing
here runs a command.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from operator import mul

from collir.machine import Machine

MTU = 9000
"""Bytes of an IP packet."""
FRAME = MTU + 14
"""Bytes of such a packet on a link, as they are shaped and counted."""
QUEUE = 16 * 2**20
"""Bytes that a link may hold back: more than a program has under way, so nothing is lost."""
SEGMENT = MTU - 40 - 12
"""Bytes of data in such a packet: without the headers of IP and TCP, and TCP's time stamps."""
LATE = 500e-6
"""Seconds that a link makes up for when it was woken up late. With less it is slower than it should
be, with more a link that was idle is faster: by a burst, and the packet that it begins with."""
ACKNOWLEDGEMENTS = (40, 52, 64, 72, 80)
"""Lengths of packets of TCP without data, with 0 to 4 words of options; they pass unshaped."""


@dataclass(frozen=True)
class Link:
    """The port of one child.

    Attributes:
        level: 0 is outermost.
        child: counted over all parents.
        parent: counted over the bridges of the level outside.
        rate: bytes per second, in each direction.
        is_rank: whether the child is a rank, not a bridge.
    """

    level: int
    child: int
    parent: int
    rate: float
    is_rank: bool

    @property
    def outside(self) -> str:
        """The end in the parent's bridge: it sends to the child, and counts what it receives."""
        return f"out{self.level}-{self.child}"

    @property
    def inside(self) -> str:
        """The end at the child: in its bridge, or in the name space of the rank."""
        return "eth0" if self.is_rank else f"in{self.level}-{self.child}"

    @property
    def bridge(self) -> str:
        """The parent's bridge."""
        return bridge(self.level, self.parent)


def bridge(level: int, parent: int) -> str:
    """The bridge that joins the children of one parent."""
    return f"br{level}-{parent}"


def links(machine: Machine) -> list[Link]:
    """All links, outermost level first."""
    found: list[Link] = []
    counts = list(accumulate((level.size for level in machine.levels), mul))
    for number, (level, count) in enumerate(zip(machine.levels, counts, strict=True)):
        last = number == len(counts) - 1
        rates = level.ports or (level.port,) * level.size
        for child in range(count):
            parent, place = divmod(child, level.size)
            found.append(Link(number, child, parent, rates[place], last))
    return found


def bridges(machine: Machine) -> list[str]:
    """All bridges, the root first."""
    return list(dict.fromkeys(link.bridge for link in links(machine)))


def shaped(device: str, rate: float) -> Iterator[str]:
    """The commands of ``tc`` that shape what an interface sends to ``rate`` bytes per second.

    Packets that only acknowledge are let through at once: behind data they would slow down the
    other direction.
    """
    burst = round(max(rate * LATE, 1000))
    yield f"qdisc add dev {device} root handle 1: htb default 10"
    yield (
        f"class add dev {device} parent 1: classid 1:10 htb rate {round(8 * rate)}bit "
        f"burst {burst} cburst {burst} quantum {FRAME}"
    )
    yield f"qdisc add dev {device} parent 1:10 handle 10: bfifo limit {QUEUE}"
    yield (
        f"class add dev {device} parent 1: classid 1:20 htb rate 10gbit "
        f"burst 128k cburst 128k quantum {FRAME}"
    )
    for length in ACKNOWLEDGEMENTS:
        yield (
            f"filter add dev {device} parent 1: protocol ip prio 1 u32 match ip protocol 6 0xff "
            f"match u16 {length} 0xffff at 2 match u8 0x10 0xff at 33 flowid 1:20"
        )
