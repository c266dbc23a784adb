"""Reader of hwloc's XML (``lstopo --of xml``): sockets, NUMA nodes, caches and cores."""

from collir.importing.machines import assumed
from collir.importing.machines.description import LevelDescription, MachineDescription
from collir.importing.machines.elements import Element, parse
from collir.importing.machines.even import Part, even
from collir.importing.numbers import integer
from collir.importing.values import Place, ReadError, Remark, shown
from collir.machine.level import Fabric, Level, LinkKind
from collir.machine.model import Device

_NAMES = {
    "Package": "socket",
    "Socket": "socket",
    "Die": "die",
    "NUMANode": "numa",
    "L3Cache": "l3",
}
_WORDS = {"socket": "sockets", "die": "dies", "numa": "NUMA nodes", "l3": "L3 caches"}
_MOST_BYTES = 2**60


def read(text: str) -> MachineDescription:
    """Return the machine of a topology; a device is a core.

    Raises:
        ReadError: the text is malformed, or has no cores.
    """
    root = parse(text)
    if root.tag != "topology":
        raise ReadError(f"<{shown(root.tag)}> is not <topology>", root.place)
    objects = list(root.inside("object"))
    cores = [element for element in objects if element.get("type") == "Core"]
    if not cores:
        raise ReadError("there is no <object> of type Core here", root.place)
    remarks: list[Remark] = []
    gpus = [element for element in objects if _is_gpu(element)]
    if gpus:
        name = shown(gpus[0].get("name")) or "a GPU"
        message = f"{name} is not read: hwloc does not say how GPUs are linked"
        remarks.append(Remark(message, gpus[0].place))
    levels = _inside(cores, remarks)
    if network := _network(objects, root.place):
        levels = [network, *levels]
    device, source = _memory(objects, len(cores))
    return MachineDescription(
        "A host, as hwloc has it; a device is a core.",
        tuple(levels),
        root.place,
        device,
        source,
        tuple(remarks),
    )


def _is_gpu(element: Element) -> bool:
    name = element.get("name")
    return element.get("type") == "OSDev" and name.startswith(
        ("cuda", "nvml", "rsmi", "opencl", "ze")
    )


def _name(element: Element) -> str:
    """Return the name of the level that such objects make, or an empty text."""
    kind = element.get("type")
    if kind == "Group" and any(child.get("type") == "NUMANode" for child in element.children):
        return "numa"
    if kind == "Cache" and element.get("depth") == "3":
        return "l3"
    return _NAMES.get(kind, "")


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


def _inside(cores: list[Element], remarks: list[Remark]) -> list[LevelDescription]:
    """Return the levels of a host, outermost first."""
    known: dict[int, str] = {}
    paths = [_path(core, known) for core in cores]
    names = [name for name in paths[0] if all(name in path for path in paths)]
    for core, path in zip(cores, paths, strict=True):
        if odd := sorted(path.keys() ^ set(names)):
            noun = ", ".join(_WORDS[name] for name in odd)
            remarks.append(
                Remark(f"only some cores are in {noun}: these make no level", core.place)
            )
            break
    for core, path in zip(cores, paths, strict=True):
        if [name for name in path if name in names] != names:
            message = (
                "this core's sockets, NUMA nodes and caches are in another order than those of the "
                "first: no regular machine describes that"
            )
            raise ReadError(message, core.place)
    names.reverse()
    sizes: list[int] = []
    for depth in range(len(names) + 1):
        parts: dict[tuple[int, ...], tuple[Part, set[int]]] = {}
        for core, path in zip(cores, paths, strict=True):
            key = tuple(id(path[name]) for name in names[:depth])
            below = path[names[depth]] if depth < len(names) else core
            holder = path[names[depth - 1]] if depth else None
            title = f"{holder.get('type')} {shown(holder.get('os_index'))}" if holder else "it"
            place = holder.place if holder else Place(1)
            parts.setdefault(key, (Part(title.strip(), place, 0), set()))[1].add(id(below))
        noun = _WORDS[names[depth]] if depth < len(names) else "cores"
        counted = [Part(part.name, part.place, len(below)) for part, below in parts.values()]
        size, odd = even(counted, noun)
        sizes.append(size)
        remarks += odd
    return _levels([*names, "core"], sizes, paths[0], cores[0])


def _levels(
    names: list[str], sizes: list[int], path: dict[str, Element], core: Element
) -> list[LevelDescription]:
    levels: list[LevelDescription] = []
    for name, size in zip(names, sizes, strict=True):
        last = name == "core"
        if size == 1 and not (last and not levels):
            continue
        line = core.place.line if last else path[name].place.line
        kind = LinkKind.BUS if last else LinkKind.SWITCH
        if name == "socket":
            port, latency, path_words = assumed.SOCKET, assumed.SOCKET_LATENCY, "between sockets"
        else:
            port, latency, path_words = (
                assumed.MEMORY,
                assumed.CORE_LATENCY,
                "through shared memory",
            )
        levels.append(
            LevelDescription(
                Level(name, size, port, latency, kind, fabric=Fabric.MEMORY),
                (
                    f"Size: from line {line} on.",
                    f"Port and latency: assumed, {path_words} as of cpu_cluster.",
                ),
            )
        )
    return levels


def _network(objects: list[Element], place: Place) -> LevelDescription | None:
    """Return a level of such hosts, joined by their InfiniBand adapters; None without adapters."""
    adapters = [
        element
        for element in objects
        if element.get("type") == "OSDev"
        and (element.get("osdev_type") == "3" or element.get("subtype") == "OpenFabrics")
    ]
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


def _memory(objects: list[Element], cores: int) -> tuple[Device | None, str]:
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
            source = f"Memory: a part for each of {cores} cores of {total} bytes (line "
            return Device(memory=per_core), f"{source}{nodes[0].place.line})."
    return None, ""
