"""Reader of hwloc's XML (``lstopo --of xml``): the cores of a host, or its GPUs if they are linked.

The cores of a socket share its memory, and messages between them go through it. What divides this
memory is a level: sockets, and the NUMA nodes in them. What shares it is none: a level of caches
or dies would have the bandwidth of the whole memory for each of its children.
"""

import math
from collections import Counter
from collections.abc import Sequence

from collir.importing.machines import assumed, hwloc_gpus
from collir.importing.machines.description import LevelDescription, MachineDescription
from collir.importing.machines.elements import Element, parse
from collir.importing.machines.even import MachinePart, even
from collir.importing.machines.hwloc_devices import host_name, is_adapter, is_gpu
from collir.importing.numbers import integer
from collir.importing.values import ReadError, Remark, TextPlace, shown
from collir.machine.level import Fabric, Level, LinkKind
from collir.machine.model import Device

_SOCKETS = ("Package", "Socket")
_MEMORY = ("NUMANode", "MemCache")
_WORDS = {"socket": "sockets", "numa": "NUMA nodes"}
_MOST_BYTES = 2**60


def read(text: str) -> MachineDescription:
    """Return the machine of a topology; a device is a GPU if the topology has links of GPUs, else
    a core, or a hardware thread if it has no cores.

    Raises:
        ReadError: the text is malformed, or no regular machine describes it.
    """
    root = parse(text)
    if root.tag != "topology":
        raise ReadError(f"<{shown(root.tag)}> is not <topology>", root.place)
    if links := hwloc_gpus.link_matrix(root):
        return hwloc_gpus.description(root, links)
    objects = list(root.inside("object"))
    cores = [element for element in objects if element.get("type") == "Core"]
    name, noun = "core", "cores"
    if not cores:
        cores = [element for element in objects if element.get("type") == "PU"]
        name, noun = "thread", "threads"
    if not cores:
        raise ReadError("there is no <object> of type Core or PU here", root.place)
    remarks: list[Remark] = []
    gpus = [element for element in objects if is_gpu(element)]
    if gpus:
        message = (
            f"{shown(gpus[0].get('name')) or 'a GPU'} is not read: this file does not say how GPUs "
            "are linked (NVLinkBandwidth, XGMIBandwidth)"
        )
        remarks.append(Remark(message, gpus[0].place))
    levels = _inside(cores, name, noun, remarks)
    if network := _network(objects, root):
        levels = [network, *levels]
    device, source = _memory(objects, len(cores), noun)
    return MachineDescription(
        f"A host, as hwloc has it; a device is a {name}.",
        tuple(levels),
        root.place,
        device,
        source,
        tuple(remarks),
        hosts=1,
        host_name=host_name(root),
    )


def _has_memory(element: Element) -> bool:
    """Return whether an object is a NUMA node, or the part of a host that one serves."""
    return element.get("type") in _MEMORY or any(
        child.get("type") in _MEMORY for child in element.children
    )


def _name(element: Element) -> str:
    """Return the name of the level that such objects make, or an empty text."""
    if element.get("type") in _SOCKETS:
        return "socket"
    inside_host = element.tag == "object" and element.get("type") not in ("Machine", "System")
    return "numa" if inside_host and _has_memory(element) else ""


def _path(core: Element, names: dict[int, str]) -> dict[str, Element]:
    """Return the objects around a core that may make levels, innermost first.

    Of two nested objects of the same level the outer object counts. ``names`` caches the level
    names by object, because an object is around many cores.
    """
    path: dict[str, Element] = {}
    for element in core.ancestors():
        if id(element) not in names:
            names[id(element)] = _name(element)
        if name := names[id(element)]:
            path[name] = element
    return path


def _inside(
    cores: Sequence[Element], name: str, noun: str, remarks: list[Remark]
) -> list[LevelDescription]:
    """Return the levels of a host, outermost first; the innermost has the cores."""
    known: dict[int, str] = {}
    paths = [_path(core, known) for core in cores]
    names = [name for name in paths[0] if all(name in path for path in paths)]
    for core, path in zip(cores, paths, strict=True):
        if odd := sorted(path.keys() ^ set(names)):
            listed = ", ".join(_WORDS[name] for name in odd)
            message = f"only some {noun} are in {listed}: these make no level"
            remarks.append(Remark(message, core.place))
            break
    for core, path in zip(cores, paths, strict=True):
        if [name for name in path if name in names] != names:
            message = (
                "this core's sockets and NUMA nodes are in another order than those of the first: "
                "no regular machine describes that"
            )
            raise ReadError(message, core.place)
    names.reverse()
    sizes: list[int] = []
    for depth in range(len(names) + 1):
        parts: dict[tuple[int, ...], tuple[MachinePart, set[int]]] = {}
        for core, path in zip(cores, paths, strict=True):
            key = tuple(id(path[name]) for name in names[:depth])
            below = path[names[depth]] if depth < len(names) else core
            holder = path[names[depth - 1]] if depth else None
            title = f"{holder.get('type')} {shown(holder.get('os_index'))}" if holder else "it"
            place = holder.place if holder else TextPlace(1)
            parts.setdefault(key, (MachinePart(title.strip(), place, 0), set()))[1].add(id(below))
        children = _WORDS[names[depth]] if depth < len(names) else noun
        counted = [MachinePart(part.name, part.place, len(below)) for part, below in parts.values()]
        size, odd = even(counted, children)
        sizes.append(size)
        remarks += odd
    places = [paths[0][name].place for name in names] + [cores[0].place]
    sharing = _sharing(cores, noun, math.prod(sizes[:-1]))
    return _levels([*names, name], sizes, places, sharing)


def _sharing(cores: Sequence[Element], noun: str, memories: int) -> str:
    """Return a sentence on the L3 caches of a host, or an empty text if no more than one shares
    each of the memories."""
    caches: dict[int, Element] = {}
    counts: Counter[int] = Counter()
    for core in cores:
        for element in core.ancestors():
            kind = element.get("type")
            if kind == "L3Cache" or (kind == "Cache" and element.get("depth") == "3"):
                caches[id(element)] = element
                counts[id(element)] += 1
                break
    if len(caches) <= memories:
        return ""
    least, most = min(counts.values()), max(counts.values())
    count = f"{least}" if least == most else f"{least} to {most}"
    line = next(iter(caches.values())).place.line
    return (
        f"{len(caches)} L3 caches of {count} {noun} (from line {line} on) make no level: they "
        "share the memory."
    )


def _levels(
    names: Sequence[str], sizes: Sequence[int], places: Sequence[TextPlace], sharing: str
) -> list[LevelDescription]:
    """Return a level for each name that has several children, or for the last one.

    The memory of a socket is divided among the NUMA nodes in it; without sockets, the outermost
    NUMA nodes have as much as a socket. What is around sockets is linked as they are.
    """
    sockets = names.index("socket") if "socket" in names else 0
    owner = "a socket"
    memory = assumed.MEMORY
    levels: list[LevelDescription] = []
    for depth, (name, size, place) in enumerate(zip(names, sizes, places, strict=True)):
        innermost = depth == len(names) - 1
        kind = LinkKind.BUS if innermost else LinkKind.SWITCH
        latency = assumed.CORE_LATENCY
        if innermost:
            port = memory
            source = f"Port and latency: assumed, the memory of {owner}, as of cpu_cluster."
            source = f"{source} {sharing}".rstrip()
        elif depth <= sockets:
            port, latency = assumed.SOCKET, assumed.SOCKET_LATENCY
            source = "Port and latency: assumed, between sockets as of cpu_cluster."
        else:
            if size > 1:
                owner = f"{owner}, divided by {size}"
            port = memory = memory / size
            source = f"Port and latency: assumed, the memory of {owner}, as of cpu_cluster."
        if size > 1 or (innermost and not levels):
            levels.append(
                LevelDescription(
                    Level(name, size, port, latency, kind, fabric=Fabric.MEMORY),
                    (f"Size: from line {place.line} on.", source),
                )
            )
    return levels


def _network(objects: Sequence[Element], root: Element) -> LevelDescription | None:
    """Return a level of such hosts, joined by their InfiniBand adapters; None without adapters."""
    adapters = [element for element in objects if is_adapter(element, root)]
    if not adapters:
        return None
    count = len(adapters)
    level = Level("node", 1, count * assumed.NIC, assumed.HOST_LATENCY, fabric=Fabric.NETWORK)
    lines = ", ".join(str(element.place.line) for element in adapters[:4])
    more = "..." if count > 4 else ""
    return LevelDescription(
        level,
        (
            "Size: the file is of one host, more are a matter of the parameter.",
            f"Port: {count} adapter{'s' if count > 1 else ''} (line {lines}{more}): "
            f"{assumed.ADAPTER}.",
            "Latency: assumed, as of InfiniBand in ndv2.",
        ),
        "nodes",
    )


def _memory(objects: Sequence[Element], cores: int, noun: str) -> tuple[Device | None, str]:
    """Return a core with its share of the memory as the device, and the source of that size."""
    for kind in ("NUMANode", "Machine"):
        nodes = [
            element
            for element in objects
            if element.get("type") == kind and element.get("local_memory")
        ]
        total = sum(
            integer(element.get("local_memory"), "local_memory", element.place, 0, _MOST_BYTES)
            for element in nodes
        )
        if total // cores:
            per_core = float(total // cores)
            source = f"Memory: a part for each of {cores} {noun} of {total} bytes (line "
            return Device(memory=per_core), f"{source}{nodes[0].place.line})."
    return None, ""
