"""Machines fitted to measurements: ``collir calibrate MACHINE --from FILE``.

docs/calibration.md has examples, and says what is fitted and how.
"""

import argparse
import json
import math
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from collir.cost.calibration import CalibrationError, Sample, calibrate
from collir.cost.calibration import files as measurements
from collir.cost.calibration.files import samples
from collir.cost.calibration.problem import scipy
from collir.cost.calibration.tables import KINDS, Part, parts
from collir.cost.model import CostModel
from collir.dialects.machine import MachineOp
from collir.machine import Machine
from collir.machine.reading import MAX_BYTES, Place, ReadError, Remark
from collir.syntax.diagnostics import (
    MAX_ERRORS,
    Diagnostic,
    DiagnosticError,
    Position,
    Sources,
    note,
    render,
    render_all,
)
from collir.tools import api
from collir.tools.api import UsageError
from collir.tools.calibration_output import Result, as_json, machine_text, report
from collir.tools.foreign import read_foreign
from collir.tools.machine import preset
from collir.tools.shell import BAD_INPUT, write_whole

MAX_POINTS = 500
"""Times of one fit: on machines of several levels more take minutes, and say no more."""

MAX_RANKS = 256
"""Ranks that --run starts on one computer."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument("machine", help="a .coll file with the machine, or @NAME of a shipped one")
    parser.add_argument(
        "--from",
        dest="files",
        action="append",
        default=[],
        metavar="FILE[,over=LEVELS][,collective=NAME]",
        help="measurements of nccl-tests, of OSU or of our own; again for more files. over says "
        "which ranks, as in over=node:2*gpu:8; collective what was measured, where neither the "
        "file nor its name does; - is standard input",
    )
    parser.add_argument("--run", action="store_true", help="measure here, with mpiexec")
    parser.add_argument(
        "--seconds", type=float, help="how long --run measures (default: 60)", metavar="N"
    )
    parser.add_argument("--save", metavar="FILE", help="write what --run measured")
    parser.add_argument(
        "--machine", dest="name", metavar="NAME", help="the machine, where the file has several"
    )
    parser.add_argument("--model", default="alpha-beta", help="alpha-beta (default), nccl or p2")
    parser.add_argument(
        "--algorithm",
        help="how the collectives ran: cheapest (default), runtime (MPICH's; default of --run), or "
        "one by name",
    )
    parser.add_argument(
        "--order", default="written", help="order of ranks: written (default) or hardware"
    )
    parser.add_argument(
        "--least", type=int, default=1, metavar="BYTES", help="leave out smaller buffers"
    )
    parser.add_argument("--most", type=int, metavar="BYTES", help="leave out larger buffers")
    parser.add_argument(
        "--held-back",
        type=float,
        default=0.2,
        metavar="PART",
        help="the part of the points that is predicted only (default: 0.2)",
    )
    parser.add_argument(
        "--fixed",
        action="append",
        default=[],
        metavar="NUMBER",
        help="a number to keep, such as node.latency; again for more",
    )
    parser.add_argument("-o", dest="output", metavar="FILE", help="write the machine there")
    parser.add_argument("--report", metavar="FILE", help="write the table there, not to stderr")
    parser.add_argument("--json", action="store_true", help="print all of it as JSON")


def run(options: argparse.Namespace) -> int:
    """The command; returns its exit status."""
    sources = Sources()
    try:
        _run(options, sources)
    except DiagnosticError as error:
        sys.stderr.write(render_all(error.diagnostics, sources))
        return BAD_INPUT
    return 0


def _run(options: argparse.Namespace, sources: Sources) -> None:
    if bool(options.files) == options.run:
        raise UsageError("calibrate takes --from FILE, or --run")
    if not options.run and (options.save or options.seconds is not None):
        raise UsageError("--save and --seconds go with --run")
    model = _model(options)
    given = [_given(text) for text in options.files]
    op = _machine(options.machine, options.name, sources)
    machine = op.value()
    _check_scipy()
    texts = [_measured(machine, options)] if options.run else []
    texts += [_read(one, sources) for one in given]
    most = math.inf if options.most is None else options.most
    found = [
        sample
        for one in texts
        for sample in _samples(machine, one, sources)
        if options.least <= sample.collective.size <= most
    ]
    if len(found) > MAX_POINTS:
        raise DiagnosticError(
            Diagnostic(
                f"{len(found)} times are more than {MAX_POINTS}: leave out files, or sizes "
                "with --least and --most"
            )
        )
    try:
        fit = calibrate(machine, found, model, options.held_back, options.fixed)
    except CalibrationError as error:
        file, colon, line = error.source.rpartition(":")
        position = Position(file, int(line), 1) if colon else None
        raise DiagnosticError(Diagnostic(error.message, position)) from error
    result = Result(fit, model, tuple(one.file for one in texts))
    _write(options, op, result)


def _check_scipy() -> None:
    """What is missing is said before anything is measured."""
    try:
        scipy("optimize", "least_squares")
    except CalibrationError as error:
        raise DiagnosticError(Diagnostic(error.message)) from error


def _model(options: argparse.Namespace) -> CostModel:
    default = "runtime" if options.run else "cheapest"
    try:
        return CostModel(options.model, options.algorithm or default, options.order)
    except ValueError as error:
        raise UsageError(str(error)) from error


# --- what is read ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Given:
    """A file to read, and what is said of it."""

    file: str
    over: tuple[Part, ...] = ()
    kind: str | None = None


@dataclass(frozen=True)
class Text:
    """What a file says; ``given`` is what was said of it."""

    file: str
    text: str
    given: Given


_SETTING = re.compile(r",(over|collective)=([^,]*)$")


def _given(text: str) -> Given:
    """``FILE,over=node:2,collective=all_reduce``."""
    over: tuple[Part, ...] = ()
    kind: str | None = None
    file = text
    while match := _SETTING.search(file):
        file = file[: match.start()]
        if match[1] == "over":
            try:
                over = parts(match[2], Place(1))
            except ReadError as error:
                raise UsageError(f"--from {text}: {error.message}") from error
        elif match[2] in KINDS:
            kind = match[2]
        else:
            raise UsageError(
                f"--from {text}: there is no collective '{match[2]}'; there is {', '.join(KINDS)}"
            )
    return Given(file, over, kind)


def _machine(text: str, name: str | None, sources: Sources) -> MachineOp:
    """The machine of a file, or one that ships with collir."""
    if text.startswith("@"):
        return preset(text.removeprefix("@")).op
    module = api.parse(Path(text), sources=sources)
    found = [op for op in module.ops if isinstance(op, MachineOp)]
    if name is not None:
        found = [op for op in found if op.sym_name.data == name.removeprefix("@")]
    if not found:
        missing = f" @{name.removeprefix('@')}" if name is not None else ""
        raise DiagnosticError(Diagnostic(f"{text} has no machine{missing} to calibrate"))
    if len(found) > 1:
        first, second = found[:2]
        other = note(f"@{first.sym_name.data} is here", Position.of(first))
        names = ", ".join(f"@{op.sym_name.data}" for op in found)
        message = f"the file has {len(found)} machines: {names}; --machine NAME says which"
        raise DiagnosticError(Diagnostic(message, Position.of(second), (other,)))
    return found[0]


def _read(given: Given, sources: Sources) -> Text:
    shown, text = read_foreign(given.file, MAX_BYTES, "cut out the tables", sources)
    return Text(shown, text.replace("\r\n", "\n"), given)


def _samples(machine: Machine, one: Text, sources: Sources) -> list[Sample]:
    """The times of a file; what is left out of it is said on stderr."""
    try:
        found = measurements.read(one.text, one.given.kind, one.file)
        made = samples(machine, found, one.file, one.given.over)
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


def _measured(machine: Machine, options: argparse.Namespace) -> Text:
    """What the collectives take on this computer."""
    from collir.tools.mpi_run import mpiexec

    seconds = 60.0 if options.seconds is None else options.seconds
    if not 1 <= seconds <= 86400:
        raise UsageError(f"--seconds must be from 1 to 86400, not {seconds:g}")
    if not 2 <= machine.devices <= MAX_RANKS:
        raise DiagnosticError(
            Diagnostic(
                f"machine @{machine.name} has {machine.devices} devices; --run starts 2 to "
                f"{MAX_RANKS} ranks on this computer (on a cluster, see docs/calibration.md)"
            )
        )
    levels = [f"{level.name}:{level.size}" for level in machine.levels]
    command = [sys.executable, "-m", "collir.tools.measure", *levels, "--seconds", str(seconds)]
    try:
        text = mpiexec(machine.devices, command, timeout=3 * seconds + 120)
    except subprocess.TimeoutExpired as error:
        message = f"the ranks were not done in three times {seconds:g} s: MPI may have hung"
        raise DiagnosticError(Diagnostic(message)) from error
    except RuntimeError as error:
        if "No module named 'mpi4py'" in str(error):
            message = "--run needs mpi4py: `pip install 'collir[mpi4py]'` brings it"
            raise DiagnosticError(Diagnostic(message)) from error
        message = f"measuring failed: {str(error).strip().splitlines()[-1]}"
        raise DiagnosticError(Diagnostic(message)) from error
    if options.save:
        write_whole(options.save, text)
    return Text("the run", text, Given("the run"))


def _write(options: argparse.Namespace, op: MachineOp, result: Result) -> None:
    text = machine_text(op, result)
    if options.output:
        write_whole(options.output, text)
    if options.report:
        write_whole(options.report, report(result))
    elif not options.json:
        sys.stderr.write(report(result))
    if options.json:
        sys.stdout.write(json.dumps(as_json(result, text), indent=2) + "\n")
    elif not options.output:
        sys.stdout.write(text)
    sys.stdout.flush()
