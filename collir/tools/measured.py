"""Files of measurements and the machine that they are of, as commands name them."""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from collir.cost.calibration import Sample
from collir.dialects.machine import MachineOp
from collir.importing.measurements import files
from collir.importing.measurements.tables import KINDS, Extent, extents
from collir.importing.values import MAX_BYTES, Place, ReadError, Remark
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
from collir.tools.api import UsageError
from collir.tools.foreign import read_foreign
from collir.tools.machine import preset


@dataclass(frozen=True)
class Given:
    """A file to read, and what is said of it."""

    file: str
    over: tuple[Extent, ...] = ()
    kind: str | None = None


@dataclass(frozen=True)
class Text:
    """What a file says; ``given`` is what was said of it."""

    file: str
    text: str
    given: Given


_SETTING = re.compile(r",(over|collective)=([^,]*)$")


def file_given(text: str) -> Given:
    """``FILE,over=node:2,collective=all_reduce``."""
    over: tuple[Extent, ...] = ()
    kind: str | None = None
    file = text
    while match := _SETTING.search(file):
        file = file[: match.start()]
        if match[1] == "over":
            try:
                over = extents(match[2], Place(1))
            except ReadError as error:
                raise UsageError(f"--from {text}: {error.message}") from error
        elif match[2] in KINDS:
            kind = match[2]
        else:
            raise UsageError(
                f"--from {text}: there is no collective '{match[2]}'; there is {', '.join(KINDS)}"
            )
    return Given(file, over, kind)


def machine_named(
    text: str, name: str | None, sources: Sources, purpose: str = "to calibrate"
) -> MachineOp:
    """Return the machine of a file, or one that ships with collir.

    Raises:
        UsageError: no such machine ships with collir.
        DiagnosticError: the file has none, or several.
    """
    if text.startswith("@"):
        return preset(text.removeprefix("@")).op
    module = api.parse(Path(text), sources=sources)
    found = [op for op in module.ops if isinstance(op, MachineOp)]
    if name is not None:
        found = [op for op in found if op.sym_name.data == name.removeprefix("@")]
    if not found:
        missing = f" @{name.removeprefix('@')}" if name is not None else ""
        raise DiagnosticError(Diagnostic(f"{text} has no machine{missing} {purpose}"))
    if len(found) > 1:
        first, second = found[:2]
        other = note(f"@{first.sym_name.data} is here", Position.of(first))
        names = ", ".join(f"@{op.sym_name.data}" for op in found)
        message = f"the file has {len(found)} machines: {names}; --machine NAME says which"
        raise DiagnosticError(Diagnostic(message, Position.of(second), (other,)))
    return found[0]


def read(given: Given, sources: Sources) -> Text:
    shown, text = read_foreign(given.file, MAX_BYTES, "cut out the tables", sources)
    return Text(shown, text.replace("\r\n", "\n"), given)


def samples_of(machine: Machine, one: Text, sources: Sources) -> list[Sample]:
    """The times of a file; what is left out of it is said on stderr."""
    try:
        found = files.read(one.text, one.given.kind, one.file)
        made = files.samples(machine, found, one.file, one.given.over)
    except ReadError as error:
        position = Position(one.file, error.place.line, error.place.column)
        raise DiagnosticError(Diagnostic(error.message, position)) from error
    _warn(one.file, found.remarks, sources)
    return made


def _warn(file: str, remarks: Sequence[Remark], sources: Sources) -> None:
    for remark in remarks[:MAX_ERRORS]:
        position = Position(file, remark.place.line, remark.place.column)
        sys.stderr.write(render(Diagnostic(remark.message, position, severity="warning"), sources))
    if len(remarks) > MAX_ERRORS:
        sys.stderr.write(f"{len(remarks) - MAX_ERRORS} more warnings are not shown\n")
