"""The machine of a program that says how many devices it is for."""

import re
from dataclasses import dataclass

from collir.dialects.machine import MachineOp
from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position
from collir.machine import Device
from collir.syntax.machines import PRESETS
from collir.syntax.reader import read

PRESET = "dgx_h100"
"""The machine of programs for which none is named."""


@dataclass(frozen=True)
class Declared:
    """A machine that is declared.

    Attributes:
        text: its declaration in ``.coll``.
        levels: its levels, the outermost first, each with its children.
        device: its slowest device, if it says what its devices do.
    """

    text: str
    levels: tuple[tuple[str, int], ...]
    device: Device | None = None


def machine_of(machine: str, count: int, at: Position) -> Declared:
    """Return the machine of a program: the named one, or hosts of 8 H100.

    Raises:
        DiagnosticError: none is named, and hosts do not make as many devices.
    """
    return declared_by(_declaration(machine, count, at))


def declared_by(text: str) -> Declared:
    """Return the machine that a text declares."""
    [own] = read(text, "<machine>").ops
    assert isinstance(own, MachineOp)
    declared = own.value()
    levels = tuple((level.name, level.size) for level in declared.levels)
    return Declared(text, levels, declared.slowest)


def _declaration(machine: str, count: int, at: Position) -> str:
    if machine:
        return f"machine @cluster = {machine}"
    if count % 8 == 0:
        return f"machine @cluster = @{PRESET}(nodes = {count // 8})"
    if count < 8:
        text = (PRESETS / f"{PRESET}.coll").read_text(encoding="utf-8")
        text = text[text.index("machine ") :]
        text = re.sub(r"machine @\w+\([^)]*\)", "machine @cluster", text)
        text = re.sub(r"\n\s*//[^\n]*", "", text)
        text = re.sub(r"\n\s*level node[^\n]*", "", text)
        return re.sub(r"level gpu\[8\]", f"level gpu[{count}]", text).rstrip()
    message = (
        f"the program is for {count} devices, and hosts of 8 do not make as many: name a machine, "
        f"as in --machine '@gb200_nvl72(racks = 1)', or write one with collir new"
    )
    raise DiagnosticError(Diagnostic(message, at))
