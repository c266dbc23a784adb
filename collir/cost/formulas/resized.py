"""Meshes whose axes have other sizes, on machines with as many children on each level."""

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from collir.cost.collectives.collective import Collective
from collir.cost.network.group import CostError
from collir.layout import Mesh
from collir.layout.mesh import Axis, MeshError
from collir.machine import Level, Machine, MachineError


def resized(mesh: Mesh, sizes: Mapping[str, int]) -> Mesh:
    """Return a mesh with other sizes of its sub-axes; each level has as many children as they
    multiply to.

    Args:
        sizes: the sizes by the labels of sub-axes.

    Raises:
        CostError: the machine cannot have these sizes.
    """
    old = {mesh.label(sub.name): sub.size for sub in mesh.sub_axes}
    if old == dict(sizes):
        return mesh
    axes: list[Axis] = []
    for axis in mesh.axes:
        factors = axis.factors and tuple(
            replace(f, size=sizes.get(_label(mesh, f"{axis.name}.{f.level}"), f.size))
            for f in axis.factors
        )
        size = prod(f.size for f in factors) if factors else sizes.get(axis.name, axis.size)
        axes.append(replace(axis, size=size, factors=factors))
    try:
        return Mesh(mesh.name, _machine(mesh, sizes), tuple(axes))
    except (MachineError, MeshError) as error:
        listed = ", ".join(f"{name} = {size}" for name, size in sizes.items())
        raise CostError(f"there is no machine for {listed}: {error}") from error


def _label(mesh: Mesh, name: str) -> str:
    return mesh.label(name) if name in mesh.by_name else name


def _machine(mesh: Mesh, sizes: Mapping[str, int]) -> Machine:
    levels: list[Level] = []
    for level in mesh.machine.levels:
        own = [sub for sub in mesh.sub_axes if sub.level == level.name]
        if not mesh.placed and level.size > 1:
            own = list(mesh.sub_axes)
        before = prod(sub.size for sub in own)
        after = prod(sizes[mesh.label(sub.name)] for sub in own)
        levels.append(replace(level, size=level.size // before * after) if own else level)
    return replace(mesh.machine, levels=tuple(levels))


def on_mesh(collective: Collective, mesh: Mesh) -> Collective | None:
    """Return a collective on a resized mesh; None if it is over axes of size 1 alone."""
    kept = frozenset(mesh.by_name)
    axes = tuple(axis for axis in collective.axes if axis in kept)
    if not axes:
        return None
    return replace(
        collective,
        mesh=mesh,
        axes=axes,
        at_root=collective.at_root & kept,
        replicated=collective.replicated & kept,
    )
