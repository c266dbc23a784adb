"""The meshes of a module as Python: a function for each mesh, which puts its devices in order.

The emitted code starts from an array of the devices in hardware order. It splits this array into
the sub-axes in hardware order, reorders them as the mesh does, and joins them to axes. Frameworks
make meshes of the result.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target

import collir
from collir.ir.diagnostics import DiagnosticError
from collir.layout import Mesh
from collir.machine.counts import devices_text
from collir.targets.code.names import raise_all
from collir.targets.code.python_text import call, comment, tuple_text
from collir.targets.code.ranks import axes_text
from collir.targets.launch.ranks import meshes

_INDENT = 4


@dataclass(frozen=True)
class PythonMeshTarget(Target):
    """A target that prints meshes, with its option."""

    mesh: str = ""
    """The mesh to print a function for; by default every mesh gets a function."""


@dataclass(frozen=True)
class Framework:
    """The words of a framework.

    Attributes:
        name: the name in the first line.
        about: the sentence about the order of the devices.
        imports: the lines that import.
        parameter: the parameter of every function, with its default.
        meaning: the documentation of the parameter.
        devices: the array of the devices, or of their numbers; ``{devices}`` is their number.
        transpose: the method that reorders dimensions.
        made: the call that makes the mesh, and its arguments; ``{names}`` are those of the axes.
    """

    name: str
    about: str
    imports: Sequence[str]
    parameter: str
    meaning: str
    devices: str
    transpose: str
    made: Sequence[str]


def python_meshes(module: ModuleOp, mesh: str, framework: Framework) -> str:
    """Return a Python module with a function for every mesh, or for the mesh of a name.

    Raises:
        DiagnosticError: no such mesh, a mesh that is not on levels or has a name that Python cannot
            have.
    """
    lines = [f'"""Written by collir {collir.__version__}: meshes of {framework.name}.', ""]
    lines += [framework.about, '"""', "", *framework.imports]
    errors: list[DiagnosticError] = []
    for op in meshes(module, mesh):
        if re.fullmatch(r"\w+", op.sym_name.data, re.ASCII):
            lines += ["", "", *_function(op.value(), framework)]
        else:
            problem = "names in Python are letters, digits and _; rename it"
            errors.append(
                DiagnosticError.at(op, f"mesh @{op.sym_name.data} cannot be Python: {problem}")
            )
    raise_all(errors)
    return "\n".join([*lines, ""])


def _function(mesh: Mesh, framework: Framework) -> list[str]:
    devices = devices_text(mesh.devices)
    about = f"Mesh @{mesh.name} on @{mesh.machine.name}: {devices}, {axes_text(mesh)}"
    body = [
        f'"""{comment(about)}.',
        "",
        framework.meaning,
        '"""',
        f"array = {framework.devices.format(devices=mesh.devices)}",
        *ordered(mesh, framework.transpose),
        *call("array = array.reshape", [str(axis.size) for axis in mesh.axes], _INDENT),
    ]
    names = tuple_text([_text(axis.name) for axis in mesh.axes])
    head, *arguments = framework.made
    body += call(
        f"return {head}", [argument.format(names=names) for argument in arguments], _INDENT
    )
    return [
        f"def mesh_{mesh.name}({framework.parameter}):",
        *(f"{' ' * _INDENT}{line}" if line else "" for line in body),
    ]


def ordered(mesh: Mesh, transpose: str) -> list[str]:
    """Return the statements that bring an array of devices from hardware order to mesh order."""
    subs = list(mesh.sub_axes)
    hardware = sorted(subs, key=lambda sub: -sub.stride)
    if hardware == subs:
        return []
    lines = [f"# In hardware: {comment(', '.join(sub.name for sub in hardware))}"]
    lines += call("array = array.reshape", [str(sub.size) for sub in hardware], _INDENT)
    lines += [f"# In the mesh: {comment(', '.join(sub.name for sub in subs))}"]
    order = [str(hardware.index(sub)) for sub in subs]
    return [*lines, *call(f"array = array.{transpose}", order, _INDENT)]


def _text(name: str) -> str:
    """Return a string literal of Python."""
    return f'"{name}"' if re.fullmatch(r"[ !#-\[\]-~]*", name) else repr(name)
