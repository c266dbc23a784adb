"""Reader of the topology that NCCL and RCCL write to ``NCCL_TOPO_DUMP_FILE``."""

import re
from collections import Counter
from collections.abc import Sequence

from collir.importing.machines import assumed
from collir.importing.machines.description import MachineDescription
from collir.importing.machines.elements import Element, parse
from collir.importing.machines.host import Distance, Gpu, Host, Nic
from collir.importing.machines.regular import check_count, description
from collir.importing.numbers import integer, real
from collir.importing.values import Place, ReadError, Remark, shown

_LINKS = ("nvlink", "xgmi")
_GPU_CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")
_LANES = {60: 20e9, 70: 25e9, 75: 25e9, 80: 25e9, 86: 14e9, 90: 25e9, 100: 50e9, 103: 50e9}
"""The ``sm`` of a GPU -> bytes/second per direction of its NVLink, from the data sheets."""

_XGMI = {"gfx90a": 50e9, "gfx942": 64e9}
"""The ``gcn`` of a GPU of AMD (MI250, MI300) -> bytes/second per direction of its xGMI link."""

_SPEED = re.compile(r"\s*([0-9.]{1,9})\s*GT/s(?:\s*PCIe)?\s*")
_MOST_NICS = 1000


def read(text: str) -> MachineDescription:
    """Return the machine of a topology: hosts like the one described, their number a parameter.

    Raises:
        ReadError: the text is malformed, of several hosts, or no regular machine describes it.
    """
    root = parse(text)
    if root.tag != "system":
        raise ReadError(f"<{shown(root.tag)}> is not <system>", root.place)
    remarks: list[Remark] = []
    _one_host(root)
    gpus = sorted(root.inside("gpu"), key=_number)
    check_count(len(gpus), root.place)
    nets = list(root.inside("net"))
    if len(nets) > _MOST_NICS:
        raise ReadError(f"there are more than {_MOST_NICS} <net>", nets[-1].place)
    paths = {id(element): _path(element) for element in (*gpus, *nets)}
    distances = [[_distance(paths[id(a)], paths[id(b)]) for b in gpus] for a in gpus]
    links, switched = _links(gpus, remarks)
    xgmi = any(child.tag == "xgmi" for gpu in gpus for child in gpu.children)
    lane, lane_source = _xgmi(gpus) if xgmi else _lane(gpus, remarks)
    pci, pci_source = _pcie(gpus, remarks)
    host = Host(
        tuple(Gpu(f"GPU{_number(gpu)}", gpu.place) for gpu in gpus),
        links,
        tuple(tuple(row) for row in distances),
        tuple(
            Nic(
                shown(net.get("name")) or "a <net>",
                net.place,
                _speed(net, remarks),
                tuple(_distance(paths[id(net)], paths[id(gpu)]) for gpu in gpus),
            )
            for net in nets
        ),
        switched,
        lane,
        lane_source,
        pci,
        pci_source,
        assumed.NIC,
        assumed.ADAPTER,
        "xGMI" if xgmi else "NVLink",
    )
    return description(host, "A host with GPUs, as NCCL's topology has it.", root.place, remarks)


def _one_host(root: Element) -> None:
    hashes: dict[str, Element] = {}
    for cpu in root.inside("cpu"):
        hashes.setdefault(cpu.get("host_hash"), cpu)
    if len(hashes) > 1:
        second_host = list(hashes.values())[1]
        raise ReadError("there are several hosts here: give the file of one", second_host.place)


def _number(gpu: Element) -> int:
    return integer(gpu.get("dev"), "dev of a <gpu>", gpu.place, least=0)


def _pci(element: Element) -> Element | None:
    return next((ancestor for ancestor in element.ancestors() if ancestor.tag == "pci"), None)


def _path(element: Element) -> list[Element]:
    """Return the <cpu> and <pci> around an element, outermost first, without its own <pci>."""
    own = _pci(element)
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


def _links(gpus: list[Element], remarks: list[Remark]) -> tuple[tuple[tuple[int, ...], ...], bool]:
    """Return the links between every two GPUs, and whether they go through switches."""
    by_bus: dict[str, int] = {}
    for index, gpu in enumerate(gpus):
        pci = _pci(gpu)
        bus = pci.get("busid").lower() if pci else ""
        if bus and bus in by_bus:
            raise ReadError(f"two GPUs are on bus {shown(bus)}", gpu.place)
        by_bus[bus] = index
    links = [[0] * len(gpus) for _ in gpus]
    switches: list[Counter[str]] = [Counter() for _ in gpus]
    places: dict[tuple[int, int], Place] = {}
    for index, gpu in enumerate(gpus):
        for link in gpu.children:
            if link.tag not in _LINKS:
                continue
            count = integer(link.get("count"), f"count of a <{link.tag}>", link.place, 0, 1000)
            target = link.get("target").lower()
            neighbour = by_bus.get(target) if target else None
            if neighbour == index:
                raise ReadError("a GPU is linked to itself", link.place)
            if neighbour is not None:
                links[index][neighbour] += count
                places[index, neighbour] = link.place
            elif link.get("tclass").lower().startswith(_GPU_CLASSES):
                message = f"there is no GPU on bus {shown(target)}: its links are left out"
                remarks.append(Remark(message, link.place))
            elif link.get("tclass").lower().startswith("0x0680"):
                switches[index]["switch"] += count
    for a in range(len(gpus)):
        for b in range(a):
            if links[a][b] != links[b][a]:
                _uneven(gpus, links, (a, b), places, remarks)
            links[a][b] = links[b][a] = max(
                min(links[a][b], links[b][a]), min(switches[a]["switch"], switches[b]["switch"])
            )
    return tuple(tuple(row) for row in links), any(switches)


def _uneven(
    gpus: list[Element],
    links: list[list[int]],
    pair: tuple[int, int],
    places: dict[tuple[int, int], Place],
    remarks: list[Remark],
) -> None:
    a, b = pair
    place = places.get((a, b)) or places[b, a]
    names = [f"GPU{_number(gpus[index])}" for index in pair]
    remarks.append(
        Remark(
            f"{names[0]} to {names[1]} has {links[a][b]} links, the other way {links[b][a]}: "
            f"taken to be {min(links[a][b], links[b][a])}",
            place,
        )
    )


def _lane(gpus: list[Element], remarks: list[Remark]) -> tuple[float, str]:
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


def _xgmi(gpus: list[Element]) -> tuple[float, str]:
    """Return the bytes/second of an xGMI link by the kind of the first GPU, and the source."""
    first = gpus[0]
    kind = first.get("gcn")
    if kind in _XGMI:
        return _XGMI[
            kind
        ], f"{_XGMI[kind] / 1e9:g} GB/s each, by gcn {kind} (line {first.place.line})"
    return assumed.XGMI, "50 GB/s each is assumed (MI250)"


def _pcie(gpus: list[Element], remarks: list[Remark]) -> tuple[float, str]:
    """Return the bytes/second of the slowest PCIe link of a GPU, and the source of the number."""
    slowest: tuple[float, str] | None = None
    for gpu in gpus:
        pci = _pci(gpu)
        match = _SPEED.fullmatch(pci.get("link_speed")) if pci else None
        if not pci or not match or not pci.get("link_width"):
            continue
        rate = real(match[1], "link_speed", pci.place)
        width = integer(pci.get("link_width"), "link_width", pci.place, 0, 64)
        if width == 0:
            continue
        used = 0.8 if rate < 8 else 128 / 130
        speed = float(f"{rate * 1e9 * width * used / 8:.4g}")
        if slowest and speed != slowest[0]:
            first = min(speed, slowest[0]) / 1e9
            message = f"PCIe links of several speeds: all are taken to have {first:g} GB/s"
            if not any(remark.message.startswith("PCIe links of") for remark in remarks):
                remarks.append(Remark(message, pci.place))
        if not slowest or speed < slowest[0]:
            slowest = speed, f"{rate:g} GT/s x{width} (line {pci.place.line})"
    return slowest or (assumed.PCI, "12 GB/s is assumed (PCIe 3 x16)")


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
