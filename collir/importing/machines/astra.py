"""Reader of networks of ASTRA-sim's analytical backend: dimensions, innermost first."""

from collir.importing.machines.description import LevelDescription, MachineDescription
from collir.importing.machines.flat_yaml import Item, parse
from collir.importing.numbers import integer, real
from collir.importing.values import ReadError, Remark, TextPlace, shown
from collir.machine.level import Level, LinkKind
from collir.machine.model import MAX_DEVICES

_KINDS = {"Ring": LinkKind.RING, "FullyConnected": LinkKind.FULL, "Switch": LinkKind.SWITCH}
_KEYS = ("topology", "npus_count", "bandwidth", "latency")
_MOST = 1000
"""The largest number of dimensions."""


def read(text: str) -> MachineDescription:
    """Return the machine of a network file; a device is an NPU.

    Raises:
        ReadError: the text is malformed, lists differ in length, or there are too many NPUs.
    """
    entries = parse(text)
    for key in _KEYS:
        if key not in entries:
            raise ReadError(f"there is no {key}", TextPlace(1))
    remarks = [
        Remark(f"{shown(key)} is not read", entry.place)
        for key, entry in entries.items()
        if key not in _KEYS
    ]
    columns = [entries[key].items for key in _KEYS]
    dimensions = len(columns[0])
    for key, items in zip(_KEYS, columns, strict=True):
        if len(items) != dimensions:
            message = f"{key} has {len(items)} values, topology has {dimensions}"
            raise ReadError(message, entries[key].place)
    if not 1 <= dimensions <= _MOST:
        raise ReadError(f"topology needs 1 to {_MOST} dimensions", entries["topology"].place)
    levels: list[LevelDescription] = []
    below = 1
    for number, (kind, count, bandwidth, latency) in enumerate(zip(*columns, strict=True), 1):
        level = _level(number, kind, count, bandwidth, latency, below)
        levels.append(level)
        below *= level.level.size
        if below > MAX_DEVICES:
            raise ReadError("there are more than 2^31 - 1 NPUs", count.place)
    return MachineDescription(
        "A network of ASTRA-sim's analytical backend; a device is an NPU.",
        tuple(levels[::-1]),
        entries["topology"].place,
        remarks=tuple(remarks),
    )


def _level(
    number: int, kind: Item, count: Item, bandwidth: Item, latency: Item, below: int
) -> LevelDescription:
    if kind.text not in _KINDS:
        message = f"'{shown(kind.text)}' is not a topology: use {', '.join(_KINDS)}"
        raise ReadError(message, kind.place)
    shape = _KINDS[kind.text]
    size = integer(count.text, "npus_count", count.place)
    link = real(bandwidth.text, "a bandwidth", bandwidth.place)
    time = real(latency.text, "a latency", latency.place, zero=True)
    links, hops = 1, 1
    link_words = "its one link"
    if shape is LinkKind.SWITCH:
        hops = 2
    elif size > 2:
        links = 2 if shape is LinkKind.RING else size - 1
        link_words = f"its {links} links"
    port_source = (
        f"Port: line {bandwidth.place.line}, {shown(bandwidth.text)} GB/s per link and direction"
    )
    if below > 1:
        port_source += f"; each of the {below} NPUs below has {link_words}: a rail of its own"
    else:
        port_source += f"; an NPU has {link_words}"
    latency_source = f"Latency: line {latency.place.line}, {shown(latency.text)} ns per link"
    if hops > 1:
        latency_source += ", and through a switch it is two"
    level = Level(
        f"dim{number}",
        size,
        _scaled(bandwidth, link, 1e9 * links * below),
        _scaled(latency, time, 1e-9 * hops),
        shape,
        rails=below,
    )
    sources = (
        f"Size: line {count.place.line}. Kind: {shown(kind.text)}, line {kind.place.line}.",
        f"{port_source}.",
        f"{latency_source}.",
    )
    return LevelDescription(level, sources)


def _scaled(item: Item, value: float, scale: float) -> float:
    """Return a value in SI units, rounded so that 936.25 ns is not 936.2500000000001."""
    scaled = float(f"{value * scale:.15g}")
    if scaled == float("inf") or (value and scaled < 1e-300):
        raise ReadError(f"{shown(item.text)} is out of range", item.place)
    return scaled
