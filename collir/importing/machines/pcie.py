"""The levels that PCIe and the link between sockets make of GPUs, or of islands of GPUs."""

from collections.abc import Sequence

from collir.importing.machines import assumed
from collir.importing.machines.description import LevelDescription
from collir.importing.machines.host import Distance, Host
from collir.importing.values import Remark
from collir.machine.level import Fabric, Level

_NAMES = {
    Distance.PIX: "pcie",
    Distance.PXB: "bridge",
    Distance.PHB: "root",
    Distance.NODE: "socket",
}
"""The level name of the groups that a distance makes."""

_WAYS = {
    Distance.PIX: "a PCIe switch",
    Distance.PXB: "several PCIe switches",
    Distance.PHB: "a host bridge",
    Distance.NODE: "the host bridges of a NUMA node",
    Distance.SYS: "the link between NUMA nodes",
}


def levels(
    host: Host, islands: Sequence[list[int]], remarks: list[Remark]
) -> tuple[list[LevelDescription], list[int]]:
    """Return the levels above the islands, outermost first, and all GPUs in the order of ranks."""
    name = "gpu" if len(islands[0]) == 1 else "island"
    blocks = [[index] for index in range(len(islands))]
    inside = len(islands[0])
    descriptions: list[LevelDescription] = []
    for distance in Distance:
        merged = _merge(host, islands, blocks, distance)
        sizes = [len(group) for group in merged]
        if min(sizes) < max(sizes):
            odd = islands[blocks[merged[sizes.index(min(sizes))][0]][0]][0]
            fewest, most = (inside * size - 1 for size in (min(sizes), max(sizes)))
            remarks.append(
                Remark(
                    f"{host.gpus[odd].name} reaches {fewest} others by {distance.name} or "
                    f"nearer, other GPUs {most}: {distance.name} is taken as what is "
                    "further away",
                    host.gpus[odd].place,
                )
            )
            continue
        if sizes[0] > 1:
            descriptions.append(_level(host, name, sizes[0], distance, inside))
            inside *= sizes[0]
            name = _NAMES.get(distance, name)
        blocks = [[island for index in group for island in blocks[index]] for group in merged]
    order = [gpu for block in blocks for index in block for gpu in islands[index]]
    return descriptions[::-1], order


def _merge(
    host: Host, islands: Sequence[list[int]], blocks: list[list[int]], distance: Distance
) -> list[list[int]]:
    """Return groups of the blocks within a distance, measured at the first GPU of each island."""
    left, groups = list(range(len(blocks))), list[list[int]]()
    first = [islands[block[0]][0] for block in blocks]
    while left:
        group, left = [left[0]], left[1:]
        for member in group:  # the group grows during the loop
            row = host.distances[first[member]]
            group += [x for x in left if row[first[x]] <= distance]
            left = [x for x in left if row[first[x]] > distance]
        groups.append(sorted(group))
    return groups


def _level(host: Host, name: str, size: int, distance: Distance, inside: int) -> LevelDescription:
    shares = f" for the {inside} GPUs below" if inside > 1 else ""
    return LevelDescription(
        Level(name, size, host.pci, assumed.LATENCY[Fabric.PCI], fabric=Fabric.PCI),
        (
            f"Size: joined by {_WAYS[distance]} ({distance.name}).",
            f"Port: one PCIe path{shares}; {host.pci_source}.",
            assumed.latency_source(Fabric.PCI),
        ),
    )


def alone(host: Host) -> LevelDescription:
    """Return the level of a host that has one GPU."""
    return LevelDescription(
        Level("gpu", 1, host.pci, assumed.LATENCY[Fabric.PCI], fabric=Fabric.PCI),
        (
            f"Size: line {host.gpus[0].place.line}.",
            f"Port: one PCIe path; {host.pci_source}.",
            assumed.latency_source(Fabric.PCI),
        ),
    )
