"""The program of a configuration: the training step on another machine and mesh."""

from dataclasses import replace

from xdsl.dialects.builtin import ModuleOp, SymbolRefAttr
from xdsl.dialects.func import FuncOp

from collir.dialects.machine import mesh_of
from collir.ir.builders import machine_op
from collir.ir.functions import functions_of, meshes_of
from collir.ir.names import unused_symbol
from collir.ir.roles import Role
from collir.layout import Mesh
from collir.machine import Machine
from collir.synthesis.placement.meshes import change
from collir.synthesis.sweeping.configuration import ADDED_PARTS, WHOLE_GRADIENTS, Configuration
from collir.synthesis.sweeping.sequences import shard_sequences
from collir.transforms.instantiation import instantiate
from collir.transforms.variants import recompute_calls, recompute_layers, shard_masters, shard_roles

_DIVIDED = {
    0: frozenset[Role](),
    1: frozenset((Role.STATE,)),
    2: frozenset((Role.STATE,)),
    3: frozenset((Role.STATE, Role.PARAMETER)),
}
"""The roles of the values that a stage of ZeRO divides."""

STAGES_OF_ZERO = tuple(_DIVIDED)


def on_machine(machine: Machine, configuration: Configuration) -> Mesh:
    """Return the mesh of a configuration on a machine of its size.

    Raises:
        MachineError, MeshError: the machine cannot have this size.
    """
    sized = resized(machine, configuration.level_sizes)
    return Mesh("m", sized, configuration.mesh_axes(sized))


def resized(machine: Machine, sizes: tuple[int, ...]) -> Machine:
    """Return a machine with other numbers of children at its levels.

    Raises:
        MachineError: the machine cannot have this size.
    """
    levels = [
        level.first(size) if size <= level.size else replace(level, size=size)
        for level, size in zip(machine.levels, sizes, strict=True)
    ]
    # A level with one child sends nothing, so its rails need not divide the devices.
    levels = [level if level.size > 1 else replace(level, rails=1) for level in levels]
    return Machine(machine.name, tuple(levels), machine.device, machine.kinds_on(levels))


def program_of(
    module: ModuleOp,
    function: str,
    machine: Machine,
    configuration: Configuration,
    batch: str,
    shards: tuple[str, ...],
) -> ModuleOp:
    """Return the program of a configuration, before its passes.

    Args:
        module: the training step, an ``auto`` function, on any mesh.
        machine: the machine; its levels get the sizes of the configuration.
        batch: the parameter of the function that is the size of the batch.
        shards: the axes over which ZeRO divides.

    Raises:
        DiagnosticError: a size does not divide.
        MachineError, MeshError: the machine cannot have this size.
    """
    module = module.clone()
    mesh = on_machine(machine, configuration)
    step = named(module, function)
    set_mesh(module, function, mesh)
    if configuration.recompute is True:
        recompute_layers(module)
    elif configuration.recompute:
        recompute_calls(module, configuration.recompute)
    shard_roles(step, shards, _DIVIDED[configuration.zero])
    if configuration.zero in (WHOLE_GRADIENTS, ADDED_PARTS):
        shard_masters(step, shards)
    instantiate(module, {batch: configuration.batch}, function)
    if configuration.sequence:
        shard_sequences(named(module, function), configuration.sequence)
    return module


def named(module: ModuleOp, name: str) -> FuncOp:
    """Return the function with a name."""
    [function] = [op for op in functions_of(module) if op.sym_name.data == name]
    return function


def set_mesh(module: ModuleOp, function: str, mesh: Mesh) -> None:
    """Give the mesh of a function other axes, on another machine, and rename the sub-axes of its
    programs."""
    name = mesh_of(named(module, function)).name
    [op] = [own for own in meshes_of(module) if own.sym_name.data == name]
    old = op.value()
    machine = machine_op(replace(mesh.machine, name=unused_symbol(module, "swept")))
    module.body.block.insert_op_before(machine, op)
    op.machine = SymbolRefAttr(machine.sym_name.data)
    names: dict[str, tuple[str, ...]] = {}
    for axis, subs in old.of_axis.items():
        names |= {sub: mesh.of_axis.get(axis, ()) if sub == subs[0] else () for sub in subs}
    change(op, old, mesh, names)
