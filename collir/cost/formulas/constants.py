"""The constants of machines in formulas: the bandwidth and the latency of each level, as
``node.port`` and ``node.latency``, and the rates of the device, as ``device.f32`` and
``device.memory`` (the bandwidth of its memory).

Numbers of a machine beside them, such as times of launches, efficiencies and bandwidths of parts of
a level, stay numbers. So do ports that differ between the children of a level, and latencies of 0.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from collir.layout import Mesh
from collir.layout.dtypes import DType
from collir.machine import Level, Machine
from collir.syntax.units import Quantity

PORT, LATENCY, MEMORY = "port", "latency", "device.memory"


def constants_of(mesh: Mesh) -> dict[str, float]:
    """Return the constants of the machine of a mesh by name: bytes/second, seconds and
    operations/second. A device has none where kinds of devices differ."""
    constants = links_of(mesh)
    device = mesh.machine.slowest if has_one_device(mesh.machine) else None
    if device is not None:
        constants |= {rate_name(dtype): rate for dtype, rate in device.compute}
    if device is not None and device.memory_bandwidth is not None:
        constants[MEMORY] = device.memory_bandwidth
    return constants


def has_one_device(machine: Machine) -> bool:
    """Return whether all devices of a machine are alike."""
    return len({kind.device for kind in machine.kinds}) < 2


def rate_name(dtype: str) -> str:
    """Return the name of the rate at which a device computes with a dtype."""
    return f"device.{dtype}"


def quantity_of(name: str) -> Quantity | None:
    """Return the kind of quantity of a constant; None for other names."""
    owner, _, what = name.rpartition(".")
    if name == MEMORY or (owner and what == PORT):
        return Quantity.BANDWIDTH
    if owner and what == LATENCY:
        return Quantity.TIME
    return Quantity.COMPUTE if owner == "device" and what in set(DType) else None


# --- links --------------------------------------------------------------------------------------


def links_of(mesh: Mesh, axes: Collection[str] = ()) -> dict[str, float]:
    """Return the constants of the levels that a mesh sends over, outermost first.

    Args:
        axes: the sub-axes of a collective; it uses their outermost level and those inside it.
    """
    links: dict[str, float] = {}
    for level in _levels(mesh, axes):
        if level.ports is None:
            links[f"{level.name}.{PORT}"] = level.port
        if level.latency:
            links[f"{level.name}.{LATENCY}"] = level.latency
    return links


def with_links(mesh: Mesh, links: Mapping[str, float]) -> Mesh:
    """Return a mesh on a machine with other constants of its levels."""
    levels = tuple(_with_links(level, links) for level in mesh.machine.levels)
    return replace(mesh, machine=replace(mesh.machine, levels=levels))


def _levels(mesh: Mesh, axes: Collection[str]) -> Iterator[Level]:
    used = {sub.level for sub in mesh.sub_axes}
    own = {sub.level for sub in mesh.sub_axes if sub.name in axes} or used
    levels = mesh.machine.levels
    first = next((place for place, level in enumerate(levels) if level.name in own), 0)
    for level in levels[first:]:
        if level.parents:
            yield level.parents.level
        if level.size > 1 or level.name in used:
            yield level


def _with_links(level: Level, links: Mapping[str, float]) -> Level:
    parents = level.parents
    return replace(
        level,
        port=links.get(f"{level.name}.{PORT}", level.port),
        latency=links.get(f"{level.name}.{LATENCY}", level.latency),
        parents=parents and replace(parents, level=_with_links(parents.level, links)),
    )
