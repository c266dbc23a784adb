"""Split a level of a machine into several: the children of a switch become groups.

What: a level such as ``gpu[16]`` becomes ``gpu_0[4]`` and ``gpu_1[4]``, and the factors of meshes
on it are divided between the two. The port of a group is the ports of its children together, with
one rail for each child.

Why: programs are sequences of steps over sub-axes. On a split level they can reduce inside a group
first and between groups then: rings of 4 and 4 send fewer messages in a row than one ring of 16.
If the children of a level are in fact wired in groups, the new levels can be given their numbers.

When not: a level that is not a switch, children with ports of their own, and an axis that lies
across the groups are errors.

    mesh @m on @box { data = gpu:8, model = gpu:2 }
becomes, by split-level{level=gpu into=4,4},
    mesh @m on @box { data = gpu_0:4 * gpu_1:2, model = gpu_1:2 }

Cost: a message takes as long as before. Algorithms that go level by level (trees, pairwise
exchanges) may send more or fewer messages in a row.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.passes import ModulePass

from collir.dialects.machine import LevelAttr, MachineOp, MeshOp
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.ir.functions import machines_of, meshes_of
from collir.ir.renaming import Renaming
from collir.layout import Axis, Factor, Mesh
from collir.machine import Fabric, Level, LinkKind, Machine, level_fabrics
from collir.synthesis.placement.meshes import change

_KIND = {kind: f"is a {kind}" for kind in LinkKind} | {LinkKind.LINKS: "is a matrix of links"}


@dataclass(frozen=True)
class SplitLevelPass(ModulePass):
    """Split a level of a machine into several: the children of a switch become groups."""

    name = "split-level"

    level: str
    """The name of the level; the new levels are called `level_0`, `level_1` and so on."""
    into: tuple[int, ...]
    """The sizes of the new levels, outermost first, such as `into=4,4`."""

    def __post_init__(self) -> None:
        if len(self.into) < 2 or min(self.into) < 1:
            raise ValueError("into is two numbers or more, such as into=4,4")

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        machines = _machines_with(op, self.level)
        split = {m.sym_name.data: _split_machine(m, self.level, self.into) for m in machines}
        meshes = [
            (mesh, mesh.value(), *_split_mesh(mesh, split[machine], self.level, self.into))
            for mesh in meshes_of(op)
            if (machine := mesh.machine.root_reference.data) in split
        ]
        for machine in machines:
            levels = split[machine.sym_name.data].levels
            machine.levels = ArrayAttr([LevelAttr.of(level) for level in levels])
            machine.properties.pop("reference", None)
            machine.properties.pop("parameters", None)
        for mesh, old, new, names in meshes:
            change(mesh, old, new, names)


def _machines_with(module: ModuleOp, name: str) -> list[MachineOp]:
    """Return the machines that have a level of a name.

    Raises:
        DiagnosticError: there is none.
    """
    machines = machines_of(module)
    named = [op for op in machines if any(level.name == name for level in op.value().levels)]
    if not named:
        for op in machines:
            if name in op.value().level_names:
                raise DiagnosticError.at(
                    op,
                    f"the children of level '{name}' of machine @{op.sym_name.data} differ in "
                    "size: such a level is not split",
                )
        levels = {level.name: None for op in machines for level in op.value().levels}
        listed = f" (there are {', '.join(levels)})" if levels else ""
        raise DiagnosticError(Diagnostic(f"no machine has a level '{name}'{listed}"))
    return named


def _split_machine(op: MachineOp, name: str, sizes: Sequence[int]) -> Machine:
    """Return a machine with a level split.

    Raises:
        DiagnosticError: the sizes do not multiply to that of the level, the children of the level
            are not alike, or a name is there already.
    """
    machine = op.value()
    known = set(machine.level_names)
    levels: list[Level] = []
    for level, fabric in zip(machine.levels, level_fabrics(machine.levels), strict=True):
        if level.name != name:
            levels.append(level)
            continue
        _check_groups(op, level, sizes)
        for new in _groups(level, fabric, sizes):
            if new.name in known:
                message = f"machine @{machine.name} has a level '{new.name}' already"
                raise DiagnosticError.at(op, message)
            levels.append(new)
    return Machine(machine.name, tuple(levels), machine.device, machine.kinds)


def _check_groups(op: MachineOp, level: Level, sizes: Sequence[int]) -> None:
    """Check that the children of a level can be put in groups of some sizes."""
    of_machine = f"level '{level.name}' of machine @{op.sym_name.data}"
    if prod(sizes) != level.size or min(sizes, default=0) < 1:
        shown = " x ".join(map(str, sizes))
        raise DiagnosticError.at(op, f"{of_machine} has {level.size} children, not {shown}")
    if level.kind is not LinkKind.SWITCH:
        raise DiagnosticError.at(
            op,
            f"{of_machine} {_KIND[level.kind]}: only the children of a switch can be put in "
            "groups, as to it they are all alike",
        )
    if level.parents:
        raise DiagnosticError.at(
            op,
            f"{of_machine} has a list of sizes: its children are in groups already, those of "
            f"'{level.parents.level.name}'",
        )
    if level.ports:
        raise DiagnosticError.at(
            op,
            f"the children of {of_machine} have ports of their own: only children that are all "
            "alike can be put in groups",
        )
    if level.kinds:
        raise DiagnosticError.at(
            op,
            f"the children of {of_machine} have devices of their own: only children that are all "
            "alike can be put in groups",
        )


def _groups(level: Level, fabric: Fabric, sizes: Sequence[int]) -> list[Level]:
    """Return the levels that a level is split into; a port is those of all children below it."""
    children = [prod(sizes[index + 1 :]) for index in range(len(sizes))]
    return [
        replace(
            level,
            name=f"{level.name}_{index}",
            size=size,
            port=level.port * below,
            rails=level.rails * below,
            fabric=fabric,
        )
        for index, (size, below) in enumerate(zip(sizes, children, strict=True))
    ]


def _split_mesh(
    op: MeshOp, machine: Machine, name: str, sizes: Sequence[int]
) -> tuple[Mesh, Renaming]:
    """Return a mesh on the machine with its level split, and the new names of its sub-axes.

    Raises:
        DiagnosticError: an axis lies across the groups.
    """
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
            parts = _take(factor.size, left)
            if parts is None:
                shown = " x ".join(map(str, sizes))
                raise DiagnosticError.at(
                    op,
                    f"axis '{axis.name}' with {name}:{factor.size} lies across the groups of "
                    f"{shown}: its coordinates do not begin or end where groups do",
                )
            factors += [Factor(f"{name}_{index}", size) for index, size in parts]
        placed = Axis.placed(axis.name, factors)
        axes.append(placed.weighted(axis.weights) if axis.weights else placed)
    split = Mesh(mesh.name, machine, tuple(axes))
    return split, {
        sub: _parts_of(sub, split.of_axis[axis], f"{axis}.{name}")
        for axis, subs in mesh.of_axis.items()
        for sub in subs
    }


def _take(size: int, left: list[int]) -> list[tuple[int, int]] | None:
    """Take the coordinates of an axis off the sizes that are left of the levels, outermost first.

    Returns: the index of each level that the axis is on and its size there; None if the axis lies
    across groups.
    """
    parts: list[tuple[int, int]] = []
    for index, free in enumerate(left):
        if size == 1 or free == 1:
            continue
        part = min(size, free)
        if size % part or free % part:
            return None
        parts.append((index, part))
        left[index] //= part
        size //= part
    return parts or [(len(left) - 1, 1)]


def _parts_of(sub: str, names: Sequence[str], on_level: str) -> tuple[str, ...]:
    """Return the names that replace a sub-axis: its own name, or the names of its parts on new
    levels."""
    return tuple(
        name for name in names if name == sub or name.rpartition("_")[0] == sub == on_level
    )
