"""A level as several: the children of a switch in groups, so that programs may go group by group.

Sixteen children of a switch are four groups of four. A group's port is the ports of its children
together, so messages take as long as before; but sub-axes can be cut there, and a collective over
sixteen may become one over four and another over four.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from xdsl.dialects.builtin import ArrayAttr, ModuleOp

from collir.dialects.machine import LevelAttr, MachineOp, MeshOp
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.ir.functions import machines_of, meshes_of
from collir.ir.renaming import Renaming
from collir.layout import Axis, Factor, Mesh
from collir.machine import Level, LinkKind, Machine, level_fabrics
from collir.synthesis.placement.meshes import change

_KIND = {kind: f"is a {kind}" for kind in LinkKind} | {LinkKind.LINKS: "is a matrix of links"}


def split_level(module: ModuleOp, name: str, sizes: Sequence[int]) -> None:
    """Splits a level of every machine that has it, and the sub-axes that are on it.

    Args:
        name: the level; those in its place are called ``name_0``, ``name_1`` and so on.
        sizes: of them, outermost first.

    Raises:
        DiagnosticError: no machine has the level; the sizes do not multiply to its own; it is no
            switch; or an axis lies across the groups.
    """
    machines = machines_of(module)
    found = [op for op in machines if any(level.name == name for level in op.value().levels)]
    if not found:
        levels = {level.name: None for op in machines for level in op.value().levels}
        listed = f" (there are {', '.join(levels)})" if levels else ""
        raise DiagnosticError(Diagnostic(f"no machine has a level '{name}'{listed}"))
    split = {op.sym_name.data: _machine(op, name, sizes) for op in found}
    meshes = [
        (op, *_mesh(op, split[machine], name, sizes))
        for op in meshes_of(module)
        if (machine := op.machine.root_reference.data) in split
    ]
    for op in found:
        op.levels = ArrayAttr([LevelAttr.of(level) for level in split[op.sym_name.data].levels])
        op.properties.pop("reference", None)
        op.properties.pop("parameters", None)
    for op, mesh, names in meshes:
        change(op, mesh, names)


def _machine(op: MachineOp, name: str, sizes: Sequence[int]) -> Machine:
    machine = op.value()
    known = {level.name for level in machine.levels}
    levels: list[Level] = []
    for level, fabric in zip(machine.levels, level_fabrics(machine.levels), strict=True):
        if level.name != name:
            levels.append(level)
            continue
        if prod(sizes) != level.size or min(sizes, default=0) < 1:
            shown = " x ".join(map(str, sizes))
            raise DiagnosticError.at(
                op,
                f"level '{name}' of machine @{machine.name} has {level.size} children, not {shown}",
            )
        if level.kind is not LinkKind.SWITCH:
            raise DiagnosticError.at(
                op,
                f"level '{name}' of machine @{machine.name} {_KIND[level.kind]}: only the children "
                "of a switch can be put in groups, as to it they are all alike",
            )
        if level.ports:
            raise DiagnosticError.at(
                op,
                f"the children of level '{name}' of machine @{machine.name} have ports of their "
                "own: only children that are all alike can be put in groups",
            )
        for index, size in enumerate(sizes):
            behind = prod(sizes[index + 1 :])
            new = f"{name}_{index}"
            if new in known:
                raise DiagnosticError.at(op, f"machine @{machine.name} has a level '{new}' already")
            levels.append(
                replace(
                    level,
                    name=new,
                    size=size,
                    port=level.port * behind,
                    rails=level.rails * behind,
                    fabric=fabric,
                )
            )
    return Machine(machine.name, tuple(levels), machine.device)


def _mesh(op: MeshOp, machine: Machine, name: str, sizes: Sequence[int]) -> tuple[Mesh, Renaming]:
    """A mesh on the machine with its level split, and what becomes of its sub-axes."""
    mesh = op.value()
    if not mesh.placed:
        return Mesh(mesh.name, machine, mesh.axes), {axis.name: (axis.name,) for axis in mesh.axes}
    left = list(sizes)
    axes: list[Axis] = []
    for axis in mesh.axes:
        factors: list[Factor] = []
        for factor in axis.factors or ():
            if factor.level != name:
                factors.append(factor)
                continue
            parts = _parts(factor.size, left)
            if parts is None:
                shown = " x ".join(map(str, sizes))
                raise DiagnosticError.at(
                    op,
                    f"axis '{axis.name}' with {name}:{factor.size} lies across the groups of "
                    f"{shown}: its coordinates do not begin or end where groups do",
                )
            factors += [Factor(f"{name}_{index}", size) for index, size in parts]
        axes.append(Axis.placed(axis.name, factors))
    new = Mesh(mesh.name, machine, tuple(axes))
    names: dict[str, tuple[str, ...]] = {}
    for axis, subs in mesh.of_axis.items():
        for sub in subs:
            names[sub] = tuple(
                other
                for other in new.of_axis[axis]
                if other == sub or other.rpartition("_")[0] == sub == f"{axis}.{name}"
            )
    return new, names


def _parts(size: int, left: list[int]) -> list[tuple[int, int]] | None:
    """How an axis takes coordinates of the levels that are left, the most significant first.

    None if it does not fit; what it takes is taken off.
    """
    found: list[tuple[int, int]] = []
    for index, room in enumerate(left):
        if size == 1 or room == 1:
            continue
        part = min(size, room)
        if size % part or room % part:
            return None
        found.append((index, part))
        left[index] //= part
        size //= part
    return found or [(len(left) - 1, 1)]
