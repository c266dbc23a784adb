"""The devices of a mesh that a program may tell apart, by their kind and by their blocks."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from collir.layout import DistType, Mesh
from collir.layout.cuts import block_size, extent_at, units
from collir.machine import Device


@dataclass(frozen=True)
class DeviceOfKind:
    """A device that stands for all like it.

    Attributes:
        device: its kind.
        coordinates: where it is on the sub-axes with weights; None where all blocks are equal.
    """

    device: Device | None
    coordinates: Mapping[str, int] | None = None

    def share(self, mesh: Mesh, axes: tuple[str, ...]) -> float:
        """Return the size of the device's block of a dimension, as a part of the largest one."""
        if self.coordinates is None or not axes:
            return 1.0
        block = block_size(mesh, units(mesh, axes), axes)
        return extent_at(mesh, block, self.coordinates) / max(1, int(block))

    def part(self, mesh: Mesh, x: DistType) -> float:
        """Return the size of the device's block of a value, as a part of the largest one."""
        return math.prod(self.share(mesh, dim.axes) for dim in x.dims)


def places_of(mesh: Mesh) -> list[DeviceOfKind]:
    """Return the devices of a mesh, one for each kind and each share of the cuts."""
    machine, level = mesh.machine, mesh.machine.kinds_level
    if level is None and not mesh.uneven:
        return [DeviceOfKind(machine.slowest)]
    names = [""] if level is None else [n for n, c in machine.levels[level].kinds for _ in range(c)]
    inside = mesh.devices // len(names)
    places: dict[object, DeviceOfKind] = {}
    for rank in range(mesh.devices):
        device = machine.slowest if level is None else machine.kind_of[names[rank // inside]]
        coordinates = {
            name: rank // mesh.by_name[name].stride % mesh.by_name[name].size
            for name in mesh.uneven
        }
        weights = {mesh.uneven[name].axis: mesh.uneven[name] for name in mesh.uneven}
        held = tuple(
            axis.weights[_index(mesh, tuple(axis.sizes), coordinates)] for axis in weights.values()
        )
        places.setdefault(
            (device, held), DeviceOfKind(device, coordinates if mesh.uneven else None)
        )
    return list(places.values())


def _index(mesh: Mesh, names: tuple[str, ...], coordinates: Mapping[str, int]) -> int:
    index = 0
    for name in names:
        index = index * mesh.by_name[name].size + coordinates[name]
    return index
