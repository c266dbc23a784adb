"""``collir machine``: the machines that ship with collir, and machines that other tools
describe."""

import argparse
import difflib
import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from collir.dialects.machine import LevelAttr, MachineOp
from collir.importing import machines as readers
from collir.importing.machines.description import MachineDescription
from collir.importing.values import MAX_BYTES, ReadError, Remark, TextPlace
from collir.ir.diagnostics import (
    MAX_ERRORS,
    Diagnostic,
    DiagnosticError,
    Position,
    Sources,
    render,
    render_all,
)
from collir.ir.functions import machines_of
from collir.machine import Device, Level
from collir.syntax.machines import PRESETS, shipped
from collir.syntax.reader import read
from collir.syntax.units import Quantity
from collir.syntax.writer import level_text
from collir.tools.api import read_text
from collir.tools.completion import listed
from collir.tools.foreign import comment, read_foreign
from collir.tools.shell import BAD_INPUT, UsageError


@dataclass(frozen=True)
class Preset:
    """A machine with its ``.coll`` text, shipped with collir or made of another tool's file."""

    name: str
    text: str
    op: MachineOp

    @property
    def summary(self) -> str:
        """The first line of the file, without its comment signs."""
        return self.text.partition("\n")[0].removeprefix("//").strip()

    @property
    def parameters(self) -> dict[str, int]:
        """The parameters with their defaults."""
        return {p.parameter.data: p.value.data for p in self.op.parameters or ()}

    @property
    def levels(self) -> str:
        """The levels with their sizes, such as ``node[2] x gpu[16]``."""
        return " x ".join(map(_level_sizes, self.op.value().levels))

    def json(self) -> dict[str, Any]:
        """Return the machine for programs: bytes, seconds, and operations or bytes per second."""
        machine = self.op.value()
        device = machine.device
        levels = [
            asdict(level) | {"size_from": attr.size_from.data or None}
            for level, attr in zip(machine.levels, self.op.levels, strict=True)
        ]
        for level in levels:
            for rare in ("kinds", "parents"):
                if not level[rare]:
                    del level[rare]
        kinds = {kind.name: _device_json(kind.device) for kind in machine.kinds}
        return {
            "name": self.name,
            "summary": self.summary,
            "parameters": self.parameters,
            "devices": machine.devices,
            "levels": levels,
            "device": _device_json(device) if device else None,
            **({"kinds": kinds} if kinds else {}),
        }


def _level_sizes(level: Level) -> str:
    if (parents := level.parents) is None:
        return f"{level.name}[{level.size}]"
    sizes = ", ".join(map(str, parents.children))
    return f"{parents.level.name}[{parents.level.size}] x {level.name}[{sizes}]"


def _device_json(device: Device) -> dict[str, Any]:
    return asdict(device) | {"compute": dict(device.compute)}


def presets() -> dict[str, Preset]:
    """Return the machines that ship with collir, by name."""
    return {name: preset(name) for name in shipped()}


def preset(name: str) -> Preset:
    """Return a machine that ships with collir.

    Raises:
        UsageError: no machine has this name.
    """
    if name not in shipped():
        close = [known for known in shipped() if known.startswith(name)]
        close = close or difflib.get_close_matches(name, shipped(), n=1)
        hint = f"did you mean {close[0]}?" if close else "collir machine --list shows all"
        if not close and _is_file(name):
            reads = "collopt" if name.endswith(".coll") else "collir machine --from"
            hint = f"{reads} {name} reads the file"
        raise UsageError(f"no machine '{name}' ships with collir; {hint}")
    path = PRESETS / f"{name}.coll"
    text = read_text(path)
    module = read(text, str(path))
    return Preset(name, text, next(op for op in machines_of(module) if op.sym_name.data == name))


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):
        return False


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    name = parser.add_argument("name", nargs="?", help="the machine whose file is printed")
    setattr(name, "completer", listed(shipped))  # noqa: B010 - what argcomplete looks for
    parser.add_argument("--list", action="store_true", help="list the machines, a line each")
    parser.add_argument("--json", action="store_true", help="print JSON, in SI units")
    parser.add_argument(
        "--from",
        dest="files",
        action="append",
        default=[],
        metavar="FILE",
        help="read what others write about a machine, and print it as .coll; - is standard input; "
        "twice: the network of a cluster (SLURM) and one of its hosts",
    )
    parser.add_argument(
        "--format",
        choices=list(readers.FORMATS),
        help="the format of FILE (default: recognised by its content)",
    )
    parser.add_argument("--name", dest="called", metavar="NAME", help="the name of that machine")


def run(options: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    files: list[str] = options.files
    if not files and (options.format or options.called is not None):
        raise UsageError("--format and --name go with --from FILE")
    if (options.name is not None) + options.list + bool(files) != 1:
        raise UsageError("machine takes the name of a machine, or --list, or --from FILE")
    if len(files) > 2 or (len(files) == 2 and files[0] == files[1]):
        raise UsageError("--from is given once, or twice: for a network and for one of its hosts")
    if len(files) == 2 and options.format:
        raise UsageError("--format goes with one --from FILE")
    if files:
        sources = Sources()  # keeps the text: a pipe cannot be read again
        try:
            _print(imported(files, options.format, options.called, sources), options.json)
        except DiagnosticError as error:
            sys.stderr.write(render_all(error.diagnostics, sources))
            return BAD_INPUT
    elif options.list:
        _print_list(presets().values(), options.json)
    else:
        _print(preset(options.name.removeprefix("@")), options.json)
    sys.stdout.flush()
    return 0


def _print(machine: Preset, as_json: bool) -> None:
    text = json.dumps(machine.json(), indent=2) if as_json else machine.text.rstrip("\n")
    sys.stdout.write(f"{text}\n")


def _print_list(machines: Iterable[Preset], as_json: bool) -> None:
    text = _list(machines)
    if as_json:
        text = json.dumps([machine.json() for machine in machines], indent=2)
    sys.stdout.write(f"{text}\n")


def rows(machines: Iterable[Preset]) -> list[tuple[str, ...]]:
    """Return a row for each machine: name, parameters, devices, levels, summary."""
    return [
        (
            machine.name,
            ", ".join(f"{name} = {value}" for name, value in machine.parameters.items()),
            str(machine.op.value().devices),
            machine.levels,
            machine.summary,
        )
        for machine in machines
    ]


HEADER = ("name", "parameters", "devices", "levels", "")


def _list(machines: Iterable[Preset]) -> str:
    table = [HEADER, *rows(machines)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    )


# --- machines that others describe ----------------------------------------------------------------


@dataclass(frozen=True)
class _Described:
    """The description in a file of another tool, and the name of the file in messages."""

    file: str
    description: MachineDescription

    @property
    def of_network(self) -> bool:
        """True if the devices of the description are the nodes of a network."""
        return bool(self.description.nodes)

    def error(self, message: str, place: TextPlace) -> DiagnosticError:
        """Return an error at a place in the file."""
        position = Position(self.file, place.line, place.column)
        return DiagnosticError(Diagnostic(message, position))

    def warn(self, remarks: Sequence[Remark], sources: Sources) -> None:
        """Print remarks as warnings, the first ones."""
        for remark in remarks[:MAX_ERRORS]:
            position = Position(self.file, remark.place.line, remark.place.column)
            warning = Diagnostic(remark.message, position, severity="warning")
            sys.stderr.write(render(warning, sources))
        if len(remarks) > MAX_ERRORS:
            sys.stderr.write(f"{len(remarks) - MAX_ERRORS} more warnings are not shown\n")


def imported(
    files: Sequence[str], format: str | None, name: str | None, sources: Sources
) -> Preset:
    """Return the machine that a file of another tool describes, or two: a network and a host.

    Warnings go to stderr.

    Raises:
        UsageError: ``name`` is not a name.
        DiagnosticError: a file cannot be read, no regular machine describes it, or two files do not
            fit together.
    """
    if name is not None and not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
        raise UsageError(f"'{name}' is not a name: letters, digits and _, no digit first")
    described = [_described(file, format, sources) for file in files]
    for file in described:
        file.warn(file.description.remarks, sources)
    first, *others = described
    coll_name = name or _name(first.file)
    if others:
        coll = _joined_text(first, others[0], coll_name, sources)
    else:
        coll = machine_text(first.description, coll_name, first.file)
    (op,) = read(coll, f"@{coll_name}").ops
    assert isinstance(op, MachineOp)
    return Preset(coll_name, coll, op)


def _described(file: str, format: str | None, sources: Sources) -> _Described:
    shown, text = read_foreign(file, MAX_BYTES, "no machine needs so many words", sources)
    try:
        return _Described(shown, readers.read(text, format))
    except ReadError as error:
        position = Position(shown, error.place.line, error.place.column)
        raise DiagnosticError(Diagnostic(error.message, position)) from error


def _joined_text(first: _Described, second: _Described, name: str, sources: Sources) -> str:
    """Return the machine of a network and a host, which may come in either order, as ``.coll``."""
    network, host = (first, second) if first.of_network else (second, first)
    if not network.of_network or host.of_network or not host.description.hosts:
        what = "networks" if host.of_network else "no network"
        message = (
            f"these two files have {what} of nodes: one must describe a network (SLURM), the "
            "other a host (nvidia-smi, amd-smi, nccl, hwloc)"
        )
        raise second.error(message, second.description.place)
    try:
        machine = readers.join(network.description, host.description, host.file)
    except ReadError as error:
        raise host.error(error.message, error.place) from error
    host.warn(machine.remarks, sources)
    inner = [x.level.name for x in host.description.levels if not x.parameter]
    outer = [x.level.name for x in machine.levels if x.level.name not in inner]
    remarks = [(network.file, remark) for remark in network.description.remarks] + [
        (host.file, remark) for remark in (*host.description.remarks, *machine.remarks)
    ]
    header = [
        f"Lines of {' and '.join(outer) or 'no level'} are those of {network.file}, of "
        f"{' and '.join(inner)} those of {host.file}.",
        *(f"{file}, line {x.place.line}: {x.message}." for file, x in remarks[:MAX_ERRORS]),
    ]
    return machine_text(machine, name, network.file, header)


def _name(file: str) -> str:
    """Return the name of a machine, derived from that of its file."""
    name = re.sub(r"\W+", "_", Path(file).stem, flags=re.ASCII).strip("_")
    return f"m_{name}" if not name or name[0].isdigit() else name


def machine_text(
    description: MachineDescription, name: str, file: str, header: Sequence[str] = ()
) -> str:
    """Return a machine as ``.coll``, with the sources of its numbers in comments.

    Args:
        header: sentences about the lines that the sources name, and about oddities there; by
            default the lines of ``file``.
    """
    sentences = header or [
        f"Lines are those of {file}.",
        *(f"Line {x.place.line}: {x.message}." for x in description.remarks[:MAX_ERRORS]),
    ]
    lines = [*comment(description.about), "//"]
    for sentence in sentences:
        lines += comment(sentence)
    parameters = ", ".join(
        f"{x.parameter} = {x.level.size}" for x in description.levels if x.parameter
    )
    lines.append(f"machine @{name}{f'({parameters})' if parameters else ''} {{")
    if description.device and description.device.memory is not None:
        lines += comment(description.device_source, "  ")
        lines.append(f"  device {{ memory = {Quantity.BYTES.format(description.device.memory)} }}")
    for level in description.levels:
        lines += comment(" ".join(level.sources), "  ")
        lines.append(f"  {level_text(LevelAttr.of(level.level, level.parameter))}")
    return "\n".join([*lines, "}"]) + "\n"
