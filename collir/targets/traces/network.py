"""A machine as the network file of ASTRA-sim's analytical backend: dimensions, innermost first."""

from collections.abc import Sequence

from collir.machine import Level, LinkKind, Machine

_TOPOLOGIES = {
    LinkKind.SWITCH: "Switch",
    LinkKind.RING: "Ring",
    LinkKind.FULL: "FullyConnected",
}


def network_of(machine: Machine) -> tuple[str, str]:
    """Return the network file of a machine, or why it has none.

    A bandwidth there is that of a link of a device. A port that devices share is divided among
    them; a port of a ring has two links, and a fully connected one a link to each other device. The
    latency through a switch is that of two links.
    """
    rows: list[tuple[str, str, str, str]] = []
    below = 1
    for level in reversed(machine.levels):
        unlike = level.ports or level.parts or level.parents or level.taper > 1
        if level.kind not in _TOPOLOGIES or unlike:
            return "", f"level '{level.name}' is no switch, ring or full mesh of equal ports"
        links, hops = _links(level)
        bandwidth = level.port / below / links / 1e9
        latency = level.latency / hops * 1e9
        rows.append((_TOPOLOGIES[level.kind], str(level.size), f"{bandwidth:g}", f"{latency:g}"))
        below *= level.size
    names = ("topology", "npus_count", "bandwidth", "latency")
    units = ("", "", "  # GB/s", "  # ns")
    columns: Sequence[tuple[str, ...]] = [*zip(*rows, strict=True)]
    lines = zip(names, columns, units, strict=True)
    return "".join(f"{name}: [ {', '.join(items)} ]{unit}\n" for name, items, unit in lines), ""


def _links(level: Level) -> tuple[int, int]:
    """Return the links of a port, and the hops of a message."""
    if level.kind is LinkKind.SWITCH:
        return 1, 2
    if level.size <= 2:
        return 1, 1
    return (2 if level.kind is LinkKind.RING else level.size - 1), 1
