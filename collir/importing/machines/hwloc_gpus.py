"""GPUs of a host in hwloc's XML, with the links that hwloc found between them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from collir.importing.machines import assumed, regular
from collir.importing.machines.description import MachineDescription
from collir.importing.machines.elements import Element
from collir.importing.machines.host import Distance, Gpu, Host, Nic
from collir.importing.machines.hwloc_devices import host_name, is_adapter, is_gpu
from collir.importing.numbers import integer, real
from collir.importing.values import ReadError, Remark, TextPlace, shown

_BANDWIDTHS = {"NVLinkBandwidth": "NVLink", "XGMIBandwidth": "xGMI"}
"""The matrices of bandwidths between GPUs in MB/s -> their links."""

_MOST_OBJECTS = 1000
_MOST_MB = 10**9


@dataclass(frozen=True)
class Links:
    """A matrix of bandwidths in MB/s between objects, which are named by their ``gp_index``."""

    fabric: str
    place: TextPlace
    objects: tuple[str, ...]
    values: tuple[tuple[int, ...], ...]


def link_matrix(root: Element) -> Links | None:
    """Return the bandwidths between GPUs that a topology has, or None.

    Raises:
        ReadError: the matrix is malformed.
    """
    matrices = [e for tag in ("distances2hetero", "distances2") for e in root.inside(tag)]
    matrix = next((e for e in matrices if e.get("name") in _BANDWIDTHS), None)
    if matrix is None:
        return None
    objects = tuple(word.rpartition(":")[2] for word in _words(matrix, "indexes"))
    size = len(objects)
    if size > _MOST_OBJECTS:
        raise ReadError(f"the matrix has more than {_MOST_OBJECTS} objects", matrix.place)
    numbers = [
        integer(word, "a bandwidth", matrix.place, 0, _MOST_MB)
        for word in _words(matrix, "u64values")
    ]
    if len(numbers) != size * size:
        message = f"the matrix has {len(numbers)} values for {size} objects, not {size * size}"
        raise ReadError(message, matrix.place)
    values = tuple(tuple(numbers[row * size : (row + 1) * size]) for row in range(size))
    return Links(_BANDWIDTHS[matrix.get("name")], matrix.place, objects, values)


def _words(element: Element, tag: str) -> list[str]:
    """Return the words of all children of a tag: hwloc breaks long lists."""
    return [word for child in element.inside(tag) for word in child.text.split()]


def description(root: Element, links: Links) -> MachineDescription:
    """Return the machine of hosts with the GPUs of a matrix.

    Raises:
        ReadError: an object of the matrix is missing, or no regular machine describes the host.
    """
    by_index = {element.get("gp_index"): element for element in root.inside("object")}
    remarks: list[Remark] = []
    for name in links.objects:
        if name not in by_index:
            raise ReadError(f"there is no object {shown(name)} here", links.place)
    members = [by_index[name] for name in links.objects]
    gpus = [index for index, element in enumerate(members) if is_gpu(element)]
    switches = [i for i, element in enumerate(members) if element.get("subtype") == "NVSwitch"]
    if others := [i for i in range(len(members)) if i not in {*gpus, *switches}]:
        member = members[others[0]]
        name = f"{shown(member.get('type'))} {shown(member.get('os_index') or member.get('name'))}"
        message = f"links of GPUs to {name.strip()}, which is no GPU, are left out"
        remarks.append(Remark(message, links.place))
    regular.check_count(len(gpus), links.place)
    if unlinked := _unlinked(root, [members[gpu] for gpu in gpus]):
        remarks.append(unlinked)
    cores = sum(1 for element in by_index.values() if element.get("type") == "Core")
    if cores:
        message = f"devices of the machine are the GPUs that hwloc has links of; its {cores} cores"
        remarks.append(Remark(f"{message} are left out", links.place))
    bandwidths = _between(links.values, gpus, switches)
    lane = math.gcd(*(value for row in bandwidths for value in row)) or 1
    nics = [element for element in root.inside("object") if is_adapter(element, root)]
    paths = {id(element): _path(element) for element in (*members, *nics)}
    several = sum(1 for e in root.inside("object") if e.get("type") == "NUMANode") > 1
    pci, pci_source = _pcie([members[gpu] for gpu in gpus])
    host = Host(
        tuple(Gpu(shown(members[gpu].get("name")), members[gpu].place) for gpu in gpus),
        tuple(tuple(value // lane for value in row) for row in bandwidths),
        tuple(
            tuple(_distance(paths[id(members[a])], paths[id(members[b])], several) for b in gpus)
            for a in gpus
        ),
        tuple(
            Nic(
                shown(nic.get("name")),
                nic.place,
                None,
                tuple(_distance(paths[id(nic)], paths[id(members[gpu])], several) for gpu in gpus),
            )
            for nic in nics
        ),
        bool(switches),
        lane * 1e6,
        f"{lane / 1e3:g} GB/s each (line {links.place.line})",
        pci,
        pci_source,
        assumed.NIC,
        assumed.ADAPTER,
        links.fabric,
    )
    about = "A host with GPUs, as hwloc has it."
    machine = regular.description(host, about, root.place, remarks)
    return replace(machine, host_name=host_name(root))


def _unlinked(root: Element, gpus: Sequence[Element]) -> Remark | None:
    """Return a remark on GPUs that are not in the matrix, or None."""
    known = {id(gpu.parent) for gpu in gpus}
    for element in root.inside("object"):
        if is_gpu(element) and id(element.parent) not in known:
            message = f"{shown(element.get('name'))} is in no matrix of links: it is left out"
            return Remark(message, element.place)
    return None


def _between(
    values: Sequence[Sequence[int]], gpus: Sequence[int], switches: Sequence[int]
) -> list[list[int]]:
    """Return the MB/s between every two GPUs, directly or through switches."""
    through = {gpu: sum(values[gpu][switch] for switch in switches) for gpu in gpus}
    return [
        [
            0 if a == b else max(min(values[a][b], values[b][a]), min(through[a], through[b]))
            for b in gpus
        ]
        for a in gpus
    ]


def _path(device: Element) -> list[Element]:
    """Return the objects around a device, outermost first."""
    return list(device.ancestors())[::-1]


def _distance(a: Sequence[Element], b: Sequence[Element], several: bool) -> Distance:
    """Return the distance of two devices by their paths; ``several`` is whether the host has
    several NUMA nodes."""
    shared = sum(1 for x, y in zip(a, b, strict=False) if x is y)
    nearest = a[shared - 1]
    if nearest.get("type") == "Bridge" and nearest.get("bridge_type").startswith("0"):
        return Distance.PHB
    if nearest.get("type") in ("Bridge", "PCIDev"):
        bridges = max(sum(1 for x in path[shared:] if x.get("type") == "Bridge") for path in (a, b))
        return Distance.PIX if bridges <= 1 else Distance.PXB
    return Distance.SYS if several and nearest.get("type") == "Machine" else Distance.NODE


def _pcie(gpus: Sequence[Element]) -> tuple[float, str]:
    """Return the bytes/second of the slowest PCIe link of a GPU, and the source of the number."""
    speeds = [
        (real(device.get("pci_link_speed"), "pci_link_speed", device.place, zero=True), device)
        for gpu in gpus
        if (device := gpu.parent) and device.get("pci_link_speed")
    ]
    known = [(speed, device) for speed, device in speeds if speed > 0]
    if not known:
        return assumed.PCI, "12 GB/s is assumed (PCIe 3 x16)"
    speed, device = min(known, key=lambda pair: pair[0])
    return float(f"{speed * 1e9:.4g}"), f"{speed:.4g} GB/s (line {device.place.line})"
