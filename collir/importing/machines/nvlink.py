"""The NVLink level, derived from the numbers of links between GPUs."""

from collections.abc import Sequence
from dataclasses import dataclass

from collir.importing.machines import assumed
from collir.importing.machines.description import LevelDescription
from collir.importing.machines.host import Gpu, Host
from collir.importing.values import ReadError, Remark
from collir.machine.level import MAX_LINKS, Fabric, Level, LinkKind, Matrix

_MOST_TRIES = 20_000
"""The most steps of a search for an order of GPUs."""


@dataclass(frozen=True)
class NvlinkShape:
    """The shape of a group of linked GPUs.

    ``kind`` is that of the level, ``links`` is the number of links of a port, ``why`` explains
    the kind. ``matrix`` is the number of links between every two GPUs where it matters.
    """

    kind: LinkKind
    links: int
    why: str
    matrix: Matrix | None = None


def islands(host: Host, remarks: list[Remark]) -> list[list[int]]:
    """Return the groups of GPUs that NVLink joins; each GPU by itself if NVLink joins none.

    A GPU without links is left out if other GPUs have links.

    Raises:
        ReadError: the islands are of different sizes.
    """
    n = len(host.gpus)
    left, components = set(range(n)), list[list[int]]()
    while left:
        stack = [min(left)]
        left.remove(stack[0])
        island: list[int] = []
        while stack:
            gpu = stack.pop()
            island.append(gpu)
            neighbours = [neighbour for neighbour in left if host.links[gpu][neighbour]]
            left.difference_update(neighbours)
            stack += neighbours
        components.append(sorted(island))
    linked = [island for island in components if len(island) > 1]
    if not linked:
        return components
    for (gpu,) in (island for island in components if len(island) == 1):
        remarks.append(
            Remark(
                f"{host.gpus[gpu].name} has no {host.fabric}, other GPUs have: it is left out",
                host.gpus[gpu].place,
            )
        )
    least = min(linked, key=len)
    if len(least) < max(map(len, linked)):
        sizes = ", ".join(str(len(island)) for island in linked)
        raise ReadError(
            f"{host.fabric} joins GPUs to islands of {sizes}: no regular machine describes that",
            host.gpus[least[0]].place,
        )
    return linked


def aligned(host: Host, islands: Sequence[list[int]]) -> list[list[int]]:
    """Return the islands with their GPUs in an order in which all have the links of the first, if
    there is one."""
    first = islands[0]
    return [first, *(_like(host, first, island) or island for island in islands[1:])]


def _like(host: Host, first: Sequence[int], island: Sequence[int]) -> list[int] | None:
    """Return an island in an order in which it is linked as the first island; None if none is
    found within ``_MOST_TRIES``."""

    def degrees(gpu: int, group: Sequence[int]) -> list[int]:
        return sorted(host.links[gpu][peer] for peer in group)

    kinds = {gpu: degrees(gpu, island) for gpu in island}
    candidates = [[gpu for gpu in island if kinds[gpu] == degrees(like, first)] for like in first]
    order: list[int] = []
    choices = [iter(candidates[0])]
    for _ in range(_MOST_TRIES):
        gpu = next(choices[-1], None)
        if gpu is None:
            choices.pop()
            if not choices:
                return None
            order.pop()
            continue
        like = first[len(order)]
        if gpu in order or any(
            host.links[gpu][peer] != host.links[like][first[index]]
            for index, peer in enumerate(order)
        ):
            continue
        order.append(gpu)
        if len(order) == len(first):
            return order
        choices.append(iter(candidates[len(order)]))
    return None


def level(
    host: Host, groups: Sequence[list[int]], remarks: list[Remark]
) -> LevelDescription | None:
    """Return the innermost level, or None if no GPUs are linked.

    Raises:
        ReadError: no kind of level describes the links.
    """
    if len(groups[0]) == 1:
        return None
    shapes = [_shape(host, island, remarks) for island in groups]
    for island, shape in zip(groups, shapes, strict=True):
        if shape.kind is not shapes[0].kind:
            raise ReadError(
                f"the islands of {host.fabric} are a {shapes[0].kind} and a {shape.kind}: no "
                "regular machine describes that",
                host.gpus[island[0]].place,
            )
        if shape.matrix != shapes[0].matrix:
            raise ReadError(
                f"the islands of {host.fabric} are not linked in the same way, in whatever order "
                "their GPUs are taken: no regular machine describes that",
                host.gpus[island[0]].place,
            )
    worst = min(range(len(groups)), key=lambda index: shapes[index].links)
    shape = shapes[worst]
    if len({island_shape.links for island_shape in shapes}) > 1:
        remarks.append(
            Remark(
                f"a GPU has {shape.links} links here and more in other islands: all are taken to "
                f"have {shape.links}",
                host.gpus[groups[worst][0]].place,
            )
        )
    gpu = "the GPU that has most" if shape.matrix else "a GPU"
    lines = host.gpus[groups[0][0]].place.line
    return LevelDescription(
        Level(
            "gpu",
            len(groups[0]),
            shape.links * host.lane,
            assumed.LATENCY[Fabric.NVLINK],
            shape.kind,
            fabric=Fabric.NVLINK,
            links=shape.matrix,
        ),
        (
            f"Size: from line {lines} on. {'Links' if shape.matrix else 'Kind'}: {shape.why}.",
            f"Port: {_links(shape.links, host)} of {gpu}; {host.lane_source}.",
            assumed.latency_source(Fabric.NVLINK),
        ),
    )


def _links(count: int, host: Host) -> str:
    return f"{count} {host.fabric}{'' if count == 1 else 's'}"


def _shape(host: Host, island: list[int], remarks: list[Remark]) -> NvlinkShape:
    links = [[host.links[a][b] for b in island] for a in island]
    counts = [links[a][b] for a in range(len(island)) for b in range(a)]
    least, most = min(counts), max(counts)
    others = len(island) - 1
    switched = host.switched
    if switched is None:
        switched = least > 0 and max(map(sum, links)) > assumed.MOST_LINKS
    if least < most and not switched:
        return _matrix(host, island, links, remarks)
    if least < most:
        gpu = min(range(len(island)), key=lambda index: sum(links[index]))
        remarks.append(
            Remark(
                f"mixed numbers of links: from {least} to {most} between two GPUs, fewest at "
                f"{host.gpus[island[gpu]].name}: all are taken to be {least}",
                host.gpus[island[gpu]].place,
            )
        )
    if switched:
        why = "switches join the GPUs"
        if host.switched is None:
            why = (
                f"{most} links to each of {others} others are more than a GPU has, so a switch "
                "joins them"
            )
        return NvlinkShape(LinkKind.SWITCH, least, why)
    if others == 1:
        return NvlinkShape(LinkKind.SWITCH, least, "two GPUs, as good as a switch")
    return NvlinkShape(LinkKind.FULL, least * others, "links between every two GPUs")


def _apart(links: list[list[int]]) -> tuple[int, int] | None:
    """Return two GPUs without links between them, or None."""
    n = len(links)
    return next(((a, b) for a in range(n) for b in range(n) if a != b and not links[a][b]), None)


def _matrix(
    host: Host, island: list[int], links: list[list[int]], remarks: list[Remark]
) -> NvlinkShape:
    gpus = [host.gpus[index] for index in island]
    if len(island) > MAX_LINKS:
        raise ReadError(
            f"{len(island)} GPUs are not all linked alike: a matrix of links is of {MAX_LINKS} at "
            "most",
            gpus[0].place,
        )
    busiest = max(range(len(island)), key=lambda index: sum(links[index]))
    if sum(links[busiest]) > assumed.MOST_LINKS:
        has = f"{gpus[busiest].name} has {_links(sum(links[busiest]), host)}"
        raise ReadError(
            f"{has}, more than a GPU has, and not to all others: no regular machine describes that",
            gpus[busiest].place,
        )
    reasons: list[str] = []
    present = sorted({count for row in links for count in row if count})
    if len(present) > 1:
        reasons.append(f"mixed numbers of links ({', '.join(map(str, present))})")
    place = gpus[0].place
    if apart := _apart(links):
        first, second = (gpus[index] for index in apart)
        place = first.place
        reasons.append(f"{first.name} and {second.name} have no {host.fabric} between them")
    remarks.append(
        Remark(f"{', and '.join(reasons)}: messages are taken to go the shortest ways", place)
    )
    why = "links between GPUs, not the same for all"
    return NvlinkShape(LinkKind.LINKS, sum(links[busiest]), why, tuple(map(tuple, links)))


def names(gpus: Sequence[Gpu]) -> str:
    """Return the names of GPUs for a message."""
    listed = " ".join(gpu.name for gpu in gpus)
    return listed if len(listed) <= 200 else f"{listed[:200]} ..."
