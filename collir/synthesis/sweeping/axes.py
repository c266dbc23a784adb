"""Axes that a sweep adds to a training step where no type names them: copies of the devices over
which ZeRO divides, and parts of sequences."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from collir.dialects.machine import mesh_of
from collir.dialects.tensor import dist_type
from collir.ir.roles import Role, argument_roles, result_roles
from collir.layout import Axis, DistType, Mesh
from collir.layout.mesh import Factor
from collir.machine import Level, Machine
from collir.synthesis.sweeping.configuration import CONTEXT, REPLICA
from collir.synthesis.sweeping.programs import named, set_mesh
from collir.synthesis.sweeping.steps import TrainingStep
from collir.transforms.variants import set_layouts

SIZE = 2
"""The size of an axis before a configuration gives it another one."""


def add_replicas(step: TrainingStep) -> None:
    """Let the batch be cut also over copies of the devices over which ZeRO divides, in place (HSDP,
    Zhao 2023, PyTorch FSDP)."""
    function = named(step.module, step.function)
    rows = set(mesh_of(function).of_axis[step.data[0]])
    roles = argument_roles(function)
    cut = [
        (number, dim)
        for number, (argument, role) in enumerate(zip(function.args, roles, strict=True))
        for dim, of_type in enumerate(dist_type(argument).dims)
        if role not in (Role.PARAMETER, Role.STATE) and rows & {*of_type.axes}
    ]
    divide_arguments(step, REPLICA, cut)


def add_context(step: TrainingStep) -> None:
    """Let the words of a sequence be cut over an axis, in place (context parallelism)."""
    divide_arguments(step, CONTEXT, ((number, 1) for number in step.sequences))


def divide_arguments(step: TrainingStep, axis: str, pairs: Iterable[tuple[int, int]]) -> None:
    """Let an axis also divide dimensions of arguments of a step, and of the results that replace
    them, in place. A mesh without the axis gets it.

    Args:
        pairs: the numbers of arguments, each with a dimension.
    """
    function = named(step.module, step.function)
    mesh = mesh_of(function)
    if axis not in mesh.of_axis:
        sizes = [(known.name, known.size) for known in mesh.axes]
        sizes.insert(0 if axis == REPLICA else len(sizes), (axis, SIZE))  # copies are outside
        levels = tuple(Level(name, size, port=1e9, latency=0.0) for name, size in sizes)
        machine = Machine(mesh.machine.name, levels, mesh.machine.device)
        axes = tuple(Axis.placed(name, [Factor(name, size)]) for name, size in sizes)
        set_mesh(step.module, step.function, Mesh(mesh.name, machine, axes))
        mesh = mesh_of(function)
    names = mesh.of_axis[axis]
    types: dict[int, DistType] = {}
    for number, dim in pairs:
        types[number] = _divided(types.get(number, dist_type(function.args[number])), dim, names)
    roles, of_results = argument_roles(function), result_roles(function)
    results: dict[int, DistType] = {}
    for role in (Role.PARAMETER, Role.STATE):  # a result replaces the argument at its place
        given = [number for number, own in enumerate(roles) if own is role]
        made = [number for number, own in enumerate(of_results) if own is role]
        results |= {to: types[n] for n, to in zip(given, made, strict=False) if n in types}
    set_layouts(function, types, results)


def _divided(x: DistType, number: int, names: tuple[str, ...]) -> DistType:
    """Return a type whose dimension is sharded over more sub-axes."""
    dims = [*x.dims]
    dims[number] = replace(dims[number], axes=(*dims[number].axes, *names))
    return replace(x, dims=tuple(dims))


ADDED: dict[str, Callable[[TrainingStep], None]] = {REPLICA: add_replicas, CONTEXT: add_context}
"""The axes that may be added, each with the function that adds it."""
