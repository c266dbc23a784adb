"""The machines that ship with collir: ``collir machine``."""

import argparse
import difflib
import json
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from collir.dialects.machine import MachineOp
from collir.syntax.machines import PRESETS, shipped
from collir.syntax.reader import read
from collir.tools.api import UsageError, read_text


@dataclass(frozen=True)
class Preset:
    """A machine that ships with collir: its file, and what is in it."""

    name: str
    text: str
    op: MachineOp

    @property
    def summary(self) -> str:
        """The first line of the file, which is a comment."""
        return self.text.partition("\n")[0].removeprefix("//").strip()

    @property
    def parameters(self) -> dict[str, int]:
        """The parameters with their defaults."""
        return {p.parameter.data: p.value.data for p in self.op.parameters or ()}

    @property
    def levels(self) -> str:
        """The levels with their sizes, such as ``node[2] x gpu[16]``."""
        return " x ".join(f"{level.name}[{level.size}]" for level in self.op.value().levels)

    def json(self) -> dict[str, Any]:
        """All of it for programs: bytes, seconds, and operations or bytes per second."""
        machine = self.op.value()
        device = machine.device
        levels = [
            asdict(level) | {"size_from": attr.size_from.data or None}
            for level, attr in zip(machine.levels, self.op.levels, strict=True)
        ]
        return {
            "name": self.name,
            "summary": self.summary,
            "parameters": self.parameters,
            "devices": machine.devices,
            "levels": levels,
            "device": asdict(device) | {"compute": dict(device.compute)} if device else None,
        }


@cache
def presets() -> dict[str, Preset]:
    """The machines that ship with collir, by name."""
    return {name: preset(name) for name in shipped()}


def preset(name: str) -> Preset:
    """A machine that ships with collir.

    Raises:
        UsageError: there is none of this name.
    """
    if name not in shipped():
        close = [known for known in shipped() if known.startswith(name)]
        close = close or difflib.get_close_matches(name, shipped(), n=1)
        hint = f"did you mean {close[0]}?" if close else "collir machine --list shows all"
        raise UsageError(f"no machine '{name}' ships with collir; {hint}")
    path = PRESETS / f"{name}.coll"
    text = read_text(path)
    module = read(text, str(path))
    machines = [op for op in module.ops if isinstance(op, MachineOp)]
    return Preset(name, text, next(op for op in machines if op.sym_name.data == name))


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument("name", nargs="?", help="print the file of this one")
    parser.add_argument("--list", action="store_true", help="all of them, a line each")
    parser.add_argument("--json", action="store_true", help="for programs; in SI units")


def run(options: argparse.Namespace) -> int:
    """The command; returns its exit status."""
    if bool(options.name) == options.list:
        raise UsageError("machine takes the name of a machine, or --list")
    if options.list:
        found = presets().values()
        text = json.dumps([one.json() for one in found], indent=2) if options.json else _list(found)
    else:
        one = preset(options.name.removeprefix("@"))
        text = json.dumps(one.json(), indent=2) if options.json else one.text.rstrip("\n")
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
    return 0


def rows(found: Iterable[Preset]) -> list[tuple[str, ...]]:
    """What there is to say of each in a line: name, parameters, devices, levels, summary."""
    return [
        (
            one.name,
            ", ".join(f"{name} = {value}" for name, value in one.parameters.items()),
            str(one.op.value().devices),
            one.levels,
            one.summary,
        )
        for one in found
    ]


HEADER = ("name", "parameters", "devices", "levels", "")


def _list(found: Iterable[Preset]) -> str:
    table = [HEADER, *rows(found)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    )
