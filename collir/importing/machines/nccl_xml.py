"""Reader of the topology that NCCL and RCCL write to ``NCCL_TOPO_DUMP_FILE``, or read from
``NCCL_TOPO_FILE``."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from collir.importing.machines import assumed, regular
from collir.importing.machines.description import MachineDescription
from collir.importing.machines.elements import Element, parse
from collir.importing.machines.host import Distance, Gpu, Host, Nic
from collir.importing.numbers import integer, real
from collir.importing.values import ReadError, Remark, TextPlace, shown

_LINKS = ("nvlink", "xgmi")
_ACCELERATOR_CLASSES = ("0x0302", "0x0380", "0x1200")
_GPU_CLASSES = ("0x0300", *_ACCELERATOR_CLASSES)
_WITH_NVLINK = ("60", "70", "80", "90", "100", "103")
"""The ``sm`` of GPUs that are sold with NVLink."""

_LANES = {60: 20e9, 70: 25e9, 75: 25e9, 80: 25e9, 86: 14e9, 90: 25e9, 100: 50e9, 103: 50e9}
"""The ``sm`` of a GPU -> bytes/second per direction of its NVLink, from the data sheets."""

_XGMI = {"gfx90a": 50e9, "gfx942": 64e9}
"""The ``gcn`` of a GPU of AMD (MI250, MI300) -> bytes/second per direction of its xGMI link."""

_SPEED = re.compile(r"\s*([0-9.]{1,9})\s*GT/s(?:\s*PCIe)?\s*")
_MOST_NICS = 1000
_MOST_LANES = 32
"""The most lanes of a PCIe link."""


def read(text: str) -> MachineDescription:
    """Return the machine of a topology: hosts like the one described, or hosts joined by NVLink;
    the number of them is a parameter.

    Raises:
        ReadError: the text is malformed, of several hosts that NVLink does not join, or no regular
            machine describes it.
    """
    root = parse(text)
    if root.tag != "system":
        raise ReadError(f"<{shown(root.tag)}> is not <system>", root.place)
    remarks: list[Remark] = []
    gpus = _gpus(root)
    regular.check_count(len(gpus), root.place)
    nics = _adapters(root)
    elements = [gpu.element for gpu in gpus]
    paths = {id(element): _path(element) for element in (*elements, *nics)}
    distances = [[_distance(paths[id(a)], paths[id(b)]) for b in elements] for a in elements]
    links, switched = _links(gpus, remarks)
    hosts = _hosts(root, gpus, links)
    if not any(child.tag in _LINKS for gpu in elements for child in gpu.children):
        _say_no_links(gpus, remarks)
    xgmi = any(child.tag == "xgmi" for gpu in elements for child in gpu.children)
    lane, lane_source = _xgmi(elements) if xgmi else _lane(elements, remarks)
    pci, pci_source = _pcie(elements, remarks)
    nic, nic_source = _slow_slot(nics)
    host = Host(
        tuple(Gpu(gpu.name, gpu.element.place) for gpu in gpus),
        links,
        tuple(tuple(row) for row in distances),
        tuple(
            Nic(
                shown(net.get("name")) or f"a <{net.tag}>",
                net.place,
                _speed(net, remarks),
                tuple(_distance(paths[id(net)], paths[id(gpu)]) for gpu in elements),
            )
            for net in nics
        ),
        switched,
        lane,
        lane_source,
        pci,
        pci_source,
        nic,
        nic_source,
        "xGMI" if xgmi else "NVLink",
        hosts,
    )
    about = "A host with GPUs, as NCCL's topology has it."
    if hosts > 1:
        about = f"{hosts} hosts whose GPUs NVLink joins, as NCCL's topology has them."
    return regular.description(host, about, root.place, remarks)


@dataclass(frozen=True)
class _Gpu:
    """A GPU: its <gpu>, or its <pci> in a topology that names GPUs by their class only."""

    name: str
    element: Element
    host: str


def _host_of(element: Element) -> str:
    """Return the hash of the host that an element is in, or an empty text."""
    cpu = next((ancestor for ancestor in element.ancestors() if ancestor.tag == "cpu"), None)
    return cpu.get("host_hash") if cpu else ""


def _gpus(root: Element) -> list[_Gpu]:
    """Return the GPUs of a topology: of each host in the order of their numbers, or of their
    buses where a file for NCCL to read (NCCL_TOPO_FILE) leaves the numbers to NCCL."""
    elements = list(root.inside("gpu"))
    hosts = list(dict.fromkeys(cpu.get("host_hash") for cpu in root.inside("cpu")))
    if elements:
        place = {host: index for index, host in enumerate(["", *hosts])}
        elements.sort(key=lambda gpu: (place[_host_of(gpu)], _number(gpu)))
        if len(hosts) <= 1:
            return [_Gpu(f"GPU{_number(gpu)}", gpu, "") for gpu in elements]
        return [_Gpu(f"GPU{rank}", gpu, _host_of(gpu)) for rank, gpu in enumerate(elements)]
    devices = [pci for pci in root.inside("pci") if not pci.children]
    for classes in (_ACCELERATOR_CLASSES, _GPU_CLASSES):
        by_class = [pci for pci in devices if pci.get("class").lower().startswith(classes)]
        if by_class:
            by_class.sort(key=lambda pci: pci.get("busid").lower())
            return [_Gpu(f"GPU{index}", pci, "") for index, pci in enumerate(by_class)]
    if devices:
        message = (
            'there is no <gpu> here, and no <pci> of a class of GPUs (class="0x030200"): NCCL adds '
            "GPUs to what it reads; give what it writes (NCCL_TOPO_DUMP_FILE)"
        )
        raise ReadError(message, devices[0].place)
    return []


def _adapters(root: Element) -> list[Element]:
    """Return the network adapters: each <net> once, or <pci> of the class of adapters without."""
    nets = {
        (_host_of(net), net.get("name"), net.get("port")) if net.get("name") else id(net): net
        for net in reversed(list(root.inside("net")))
    }
    nics = list(nets.values())[::-1] or [
        pci
        for pci in root.inside("pci")
        if not pci.children and pci.get("class").lower().startswith("0x02")
    ]
    if len(nics) > _MOST_NICS:
        message = f"there are more than {_MOST_NICS} network adapters"
        raise ReadError(message, nics[-1].place)
    return nics


def _hosts(root: Element, gpus: Sequence[_Gpu], links: Sequence[Sequence[int]]) -> int:
    """Return the number of hosts in a topology: one, or several that NVLink joins."""
    hosts: dict[str, Element] = {}
    for cpu in root.inside("cpu"):
        hosts.setdefault(cpu.get("host_hash"), cpu)
    linked = {
        gpus[index].host
        for a, row in enumerate(links)
        for b, count in enumerate(row)
        if count and gpus[a].host != gpus[b].host
        for index in (a, b)
    }
    if len(hosts) > 1 and not hosts.keys() <= linked:
        second_host = list(hosts.values())[1]
        message = "there are several hosts here, which NVLink does not join: give the file of one"
        raise ReadError(message, second_host.place)
    return max(1, len(hosts))


def _say_no_links(gpus: Sequence[_Gpu], remarks: list[Remark]) -> None:
    """Add a remark if a topology without NVLinks may be of GPUs that have them."""
    first = gpus[0].element
    if len(gpus) == 1 or (first.tag == "gpu" and first.get("sm") not in _WITH_NVLINK):
        return
    remarks.append(
        Remark(
            "there is no <nvlink> here, so GPUs are taken to be linked by PCIe only: what NCCL "
            "reads (NCCL_TOPO_FILE) may leave NVLinks out, what it writes (NCCL_TOPO_DUMP_FILE) "
            "has them",
            first.place,
        )
    )


def _number(gpu: Element) -> int:
    return integer(gpu.get("dev"), "dev of a <gpu>", gpu.place, least=0)


def _pci(element: Element) -> Element | None:
    return next((ancestor for ancestor in element.ancestors() if ancestor.tag == "pci"), None)


def _device(element: Element) -> Element | None:
    """Return the <pci> of a GPU or of an adapter, which may be the element itself."""
    return element if element.tag == "pci" else _pci(element)


def _path(element: Element) -> list[Element]:
    """Return the <cpu> and <pci> around an element, outermost first, without its own <pci>."""
    own = _device(element)
    path = [
        ancestor
        for ancestor in element.ancestors()
        if ancestor.tag in ("cpu", "pci") and ancestor is not own
    ]
    return path[::-1]


def _distance(a: Sequence[Element], b: Sequence[Element]) -> Distance:
    """Return the distance of two devices by their paths; NODE counts as PHB."""
    shared = sum(1 for x, y in zip(a, b, strict=False) if x is y)
    if not shared:
        return Distance.SYS
    if a[shared - 1].tag == "cpu":
        return Distance.PHB
    return Distance.PIX if shared == len(a) == len(b) else Distance.PXB


def _links(gpus: Sequence[_Gpu], remarks: list[Remark]) -> tuple[tuple[tuple[int, ...], ...], bool]:
    """Return the links between every two GPUs, and whether they go through switches."""
    by_bus: dict[tuple[str, str], int] = {}
    for index, gpu in enumerate(gpus):
        pci = _device(gpu.element)
        bus = gpu.host, pci.get("busid").lower() if pci else ""
        if bus[1] and bus in by_bus:
            raise ReadError(f"two GPUs are on bus {shown(bus[1])}", gpu.element.place)
        by_bus[bus] = index
    links = [[0] * len(gpus) for _ in gpus]
    switches = [0] * len(gpus)
    places: dict[tuple[int, int], TextPlace] = {}
    for index, gpu in enumerate(gpus):
        for link in gpu.element.children:
            if link.tag not in _LINKS:
                continue
            count = integer(link.get("count"), f"count of a <{link.tag}>", link.place, 0, 1000)
            target = link.get("target").lower()
            neighbour = by_bus.get((gpu.host, target)) if target else None
            if neighbour == index:
                message = f"{gpu.name} is linked to itself: these links are left out"
                remarks.append(Remark(message, link.place))
            elif neighbour is not None:
                links[index][neighbour] += count
                places[index, neighbour] = link.place
            elif link.get("tclass").lower().startswith(_GPU_CLASSES):
                message = f"there is no GPU on bus {shown(target)}: its links are left out"
                remarks.append(Remark(message, link.place))
            elif link.get("tclass").lower().startswith("0x0680"):
                switches[index] += count
    for a in range(len(gpus)):
        for b in range(a):
            if links[a][b] != links[b][a]:
                _uneven(gpus, links, (a, b), places, remarks)
            links[a][b] = links[b][a] = max(
                min(links[a][b], links[b][a]), min(switches[a], switches[b])
            )
    return tuple(tuple(row) for row in links), any(switches)


def _uneven(
    gpus: Sequence[_Gpu],
    links: list[list[int]],
    pair: tuple[int, int],
    places: dict[tuple[int, int], TextPlace],
    remarks: list[Remark],
) -> None:
    a, b = pair
    place = places.get((a, b)) or places[b, a]
    names = [gpus[index].name for index in pair]
    remarks.append(
        Remark(
            f"{names[0]} to {names[1]} has {links[a][b]} links, the other way {links[b][a]}: "
            f"taken to be {min(links[a][b], links[b][a])}",
            place,
        )
    )


def _lane(gpus: Sequence[Element], remarks: list[Remark]) -> tuple[float, str]:
    """Return the bytes/second of an NVLink by the kind of GPU, and the source of the number."""
    kinds: dict[int | None, Element] = {}
    for gpu in gpus:
        text = gpu.get("sm")
        kinds.setdefault(integer(text, "sm of a <gpu>", gpu.place) if text else None, gpu)
    if len(kinds) > 1:
        second_kind = list(kinds.values())[1]
        remarks.append(
            Remark("GPUs of several kinds: the slowest links are taken", second_kind.place)
        )
    speeds = {sm: _LANES.get(sm, assumed.NVLINK) if sm else assumed.NVLINK for sm in kinds}
    slowest = min(speeds, key=lambda sm: speeds[sm])
    line = kinds[slowest].place.line
    if slowest in _LANES:
        return speeds[
            slowest
        ], f"{speeds[slowest] / 1e9:g} GB/s each, by sm {slowest} (line {line})"
    return assumed.NVLINK, "25 GB/s each is assumed (V100, A100, H100)"


def _xgmi(gpus: Sequence[Element]) -> tuple[float, str]:
    """Return the bytes/second of an xGMI link by the kind of the first GPU, and the source."""
    first = gpus[0]
    kind = first.get("gcn")
    if kind in _XGMI:
        return _XGMI[
            kind
        ], f"{_XGMI[kind] / 1e9:g} GB/s each, by gcn {kind} (line {first.place.line})"
    return assumed.XGMI, "50 GB/s each is assumed (MI250)"


def _slot(element: Element) -> tuple[float, str] | None:
    """Return the bytes/second of the PCIe link of a device and its source, if the text has them."""
    pci = _device(element)
    match = _SPEED.fullmatch(pci.get("link_speed")) if pci else None
    if not pci or not match or not pci.get("link_width"):
        return None
    rate = real(match[1], "link_speed", pci.place)
    width = integer(pci.get("link_width"), "link_width", pci.place, 0)
    if not 0 < width <= _MOST_LANES:
        return None  # not known: 0 or 255
    used = 0.8 if rate < 8 else 128 / 130
    speed = float(f"{rate * 1e9 * width * used / 8:.4g}")
    return speed, f"{rate:g} GT/s x{width} (line {pci.place.line})"


def _pcie(gpus: Sequence[Element], remarks: list[Remark]) -> tuple[float, str]:
    """Return the bytes/second of the slowest PCIe link of a GPU, and the source of the number."""
    slots = [(slot, gpu) for gpu in gpus if (slot := _slot(gpu))]
    if not slots:
        return assumed.PCI, "12 GB/s is assumed (PCIe 3 x16)"
    slowest = min((slot for slot, _ in slots), key=lambda slot: slot[0])
    odd = next((gpu for slot, gpu in slots if slot[0] != slots[0][0][0]), None)
    if odd and (device := _device(odd)):
        message = f"PCIe links of several speeds: all are taken to have {slowest[0] / 1e9:g} GB/s"
        remarks.append(Remark(message, device.place))
    return slowest


def _slow_slot(nics: Sequence[Element]) -> tuple[float, str]:
    """Return the bytes/second assumed for an adapter: at most those of its PCIe."""
    slots = [slot for nic in nics if nic.tag == "pci" and (slot := _slot(nic))]
    speed, source = min(slots, key=lambda slot: slot[0], default=(assumed.NIC, ""))
    if speed >= assumed.NIC:
        return assumed.NIC, assumed.ADAPTER
    return speed, f"{speed / 1e9:g} GB/s each is assumed, that of its PCIe, {source}"


def _speed(net: Element, remarks: list[Remark]) -> float | None:
    """Return the bytes/second of an adapter, whose speed the text has in Mbit/s."""
    text = net.get("speed")
    if not text:
        return None
    mega = integer(text, "speed of a <net>", net.place, least=-1, most=10**9)
    if mega <= 0:
        remarks.append(Remark(f"speed {mega} says nothing: not taken", net.place))
        return None
    return mega * 125e3
