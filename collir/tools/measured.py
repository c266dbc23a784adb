"""Files of measurements, and the machine they were made on, as commands name them."""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from collir.cost.calibration import Sample
from collir.dialects.machine import MachineOp
from collir.importing.measurements import files
from collir.importing.measurements.tables import KINDS, LevelExtent, extents
from collir.importing.values import MAX_BYTES, ReadError, Remark, TextPlace
from collir.ir.diagnostics import (
    MAX_ERRORS,
    Diagnostic,
    DiagnosticError,
    Position,
    Sources,
    note,
    render,
)
from collir.machine import Machine
from collir.tools import api
from collir.tools.foreign import read_foreign
from collir.tools.machine import preset
from collir.tools.shell import UsageError


@dataclass(frozen=True)
class FileRequest:
    """A file to read, with the levels of its groups and its collective, if they are named."""

    file: str
    over: tuple[LevelExtent, ...] = ()
    kind: str | None = None


@dataclass(frozen=True)
class MeasurementText:
    """The text of a file; ``request`` is the request that it answers."""

    file: str
    text: str
    request: FileRequest


_SETTING = re.compile(r",(over|collective)=([^,]*)$")


def file_request(text: str) -> FileRequest:
    """Return the request of a text such as ``FILE,over=node:2,collective=all_reduce``."""
    over: tuple[LevelExtent, ...] = ()
    kind: str | None = None
    file, given = text, set[str]()
    while match := _SETTING.search(file):
        file = file[: match.start()]
        if match[1] in given:
            raise UsageError(f"--from {text}: {match[1]} is given twice")
        given.add(match[1])
        if match[1] == "over":
            try:
                over = extents(match[2], TextPlace(1))
            except ReadError as error:
                raise UsageError(f"--from {text}: {error.message}") from error
        elif match[2] in KINDS:
            kind = match[2]
        else:
            raise UsageError(
                f"--from {text}: there is no collective '{match[2]}'; there is {', '.join(KINDS)}"
            )
    return FileRequest(file, over, kind)


def machines_of(text: str, sources: Sources) -> list[MachineOp]:
    """Return the machines of a file, or the one that ships with collir.

    Raises:
        UsageError: no such machine ships with collir.
        DiagnosticError: the file cannot be read.
    """
    if text.startswith("@"):
        return [preset(text.removeprefix("@")).op]
    module = api.parse(Path(text), sources=sources)
    return [op for op in module.ops if isinstance(op, MachineOp)]


def machine_named(
    text: str, name: str | None, sources: Sources, purpose: str = "to calibrate"
) -> MachineOp:
    """Return the machine of a file, or one that ships with collir.

    Raises:
        UsageError: no such machine ships with collir.
        DiagnosticError: the file has no machine, or several.
    """
    machines = machines_of(text, sources)
    if name is not None:
        machines = [op for op in machines if op.sym_name.data == name.removeprefix("@")]
    if not machines:
        missing = f" @{name.removeprefix('@')}" if name is not None else ""
        raise DiagnosticError(Diagnostic(f"{text} has no machine{missing} {purpose}"))
    if len(machines) > 1:
        first, second = machines[:2]
        hint = note(f"@{first.sym_name.data} is here", Position.of(first))
        names = ", ".join(f"@{op.sym_name.data}" for op in machines)
        message = f"the file has {len(machines)} machines: {names}; --machine NAME says which"
        raise DiagnosticError(Diagnostic(message, Position.of(second), (hint,)))
    return machines[0]


def read(request: FileRequest, sources: Sources) -> MeasurementText:
    shown, text = read_foreign(request.file, MAX_BYTES, "cut out the tables", sources)
    return MeasurementText(shown, text.replace("\r\n", "\n"), request)


def samples_of(machine: Machine, text: MeasurementText, sources: Sources) -> list[Sample]:
    """Return the times of a file; warnings on stderr name what is left out."""
    try:
        measurements = files.read(text.text, text.request.kind, text.file)
        measurements = files.fitting(machine, measurements, text.request.over)
        samples = files.samples(machine, measurements, text.file, text.request.over)
    except ReadError as error:
        position = Position(text.file, error.place.line, error.place.column)
        raise DiagnosticError(Diagnostic(error.message, position)) from error
    _warn(text.file, measurements.remarks, sources)
    return samples


def _warn(file: str, remarks: Sequence[Remark], sources: Sources) -> None:
    for remark in remarks[:MAX_ERRORS]:
        position = Position(file, remark.place.line, remark.place.column)
        sys.stderr.write(render(Diagnostic(remark.message, position, severity="warning"), sources))
    if len(remarks) > MAX_ERRORS:
        sys.stderr.write(f"{len(remarks) - MAX_ERRORS} more warnings are not shown\n")
