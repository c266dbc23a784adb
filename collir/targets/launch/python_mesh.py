"""The meshes of a module as Python: a function for each, that puts its devices in order.

Numbers count the devices in hardware order. Cut into the sub-axes as the hardware has them, brought
into the order of the mesh, and joined to axes, they are the array that frameworks make meshes of.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target

import collir
from collir.ir.diagnostics import DiagnosticError
from collir.layout import Mesh
from collir.machine.model import devices_text
from collir.targets.code.python_text import call, comment, tuple_text
from collir.targets.code.ranks import axes_text
from collir.targets.launch.ranks import meshes

_INDENT = 4


@dataclass(frozen=True)
class PythonMeshTarget(Target):
    """The option of all targets that print meshes."""

    mesh: str = ""
    """The mesh to print a function for. By default one is printed for every mesh."""


@dataclass(frozen=True)
class Framework:
    """What differs between frameworks.

    Attributes:
        name: in the first line.
        about: what the functions expect.
        imports: the lines that import.
        parameter: of every function, with its default, and ``meaning``, what it is.
        devices: an array of the devices, or of their numbers; ``{devices}`` is how many.
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
    """A Python module with a function for every mesh, or for the one of a name.

    Raises:
        DiagnosticError: there is none, one is not on levels, or has a name that Python cannot have.
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
    if errors:
        raise DiagnosticError([found for error in errors for found in error.diagnostics])
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
    body += call(f"return {head}", [one.format(names=names) for one in arguments], _INDENT)
    return [
        f"def mesh_{mesh.name}({framework.parameter}):",
        *(f"{' ' * _INDENT}{line}" if line else "" for line in body),
    ]


def ordered(mesh: Mesh, transpose: str) -> list[str]:
    """Statements that bring an array of devices from hardware order into that of the mesh."""
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
    """A string as Python has it."""
    return f'"{name}"' if re.fullmatch(r"[ !#-\[\]-~]*", name) else repr(name)
