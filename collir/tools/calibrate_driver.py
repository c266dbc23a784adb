"""The work of ``collir calibrate``: fit a machine to measurements."""

import argparse
import json
import math
import subprocess
import sys

from collir.cost.calibration import CalibrationError, calibrate
from collir.cost.model import CostModel
from collir.dialects.machine import MachineOp
from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position, Sources, render_all
from collir.machine import Machine
from collir.targets.reports.page.rendered import check_installed
from collir.tools.calibrate_device import run_device
from collir.tools.calibration_output import Result, as_json, html, machine_text, report
from collir.tools.measured import (
    FileRequest,
    MeasurementText,
    file_request,
    machine_named,
    read,
    samples_of,
)
from collir.tools.shell import BAD_INPUT, UsageError, check_folders, write_whole

MAX_POINTS = 2000
"""The largest number of times of a fit; on several levels more take minutes and add nothing."""

MAX_RANKS = 256
"""The largest number of ranks that --run starts on one computer."""


def run(options: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    sources = Sources()
    try:
        _run(options, sources)
    except DiagnosticError as error:
        sys.stderr.write(render_all(error.diagnostics, sources))
        return BAD_INPUT
    return 0


def _run(options: argparse.Namespace, sources: Sources) -> None:
    if options.html:
        check_installed()
    check_folders(options.output, options.html, options.report, options.save)
    if options.device:
        run_device(options, sources)
        return
    if options.machine is None:
        raise UsageError("calibrate needs a machine, or --device")
    if options.dtypes:
        raise UsageError("--dtypes goes with --device")
    if bool(options.files) == options.run:
        raise UsageError("calibrate takes --from FILE, or --run")
    if not options.run and (options.save or options.seconds is not None):
        raise UsageError("--save and --seconds go with --run")
    model = _model(options)
    requests = [file_request(text) for text in options.files]
    op = machine_named(options.machine, options.name, sources)
    machine = op.value()
    texts = [_measured(machine, options)] if options.run else []
    texts += [read(request, sources) for request in requests]
    most = math.inf if options.most is None else options.most
    samples = [
        sample
        for text in texts
        for sample in samples_of(machine, text, sources)
        if options.least <= sample.collective.size <= most
    ]
    if len(samples) > MAX_POINTS:
        raise DiagnosticError(
            Diagnostic(
                f"{len(samples)} times are more than {MAX_POINTS}: leave out files, or sizes "
                "with --least and --most"
            )
        )
    try:
        fit = calibrate(machine, samples, model, options.held_back, options.fixed)
    except CalibrationError as error:
        file, colon, line = error.source.rpartition(":")
        position = Position(file, int(line), 1) if colon else None
        raise DiagnosticError(Diagnostic(error.message, position)) from error
    result = Result(fit, model, tuple(text.file for text in texts))
    _write(options, op, result)


def _model(options: argparse.Namespace) -> CostModel:
    default = ("alpha-beta", "runtime", "written") if options.run else ("auto", "auto", "auto")
    choices = (options.model, options.algorithm, options.order)
    try:
        return CostModel(*(x or y for x, y in zip(choices, default, strict=True)))
    except ValueError as error:
        raise UsageError(str(error)) from error


def _measured(machine: Machine, options: argparse.Namespace) -> MeasurementText:
    """Measure the collectives on this computer and return the output of the run."""
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
    return MeasurementText("the run", text, FileRequest("the run"))


def _write(options: argparse.Namespace, op: MachineOp, result: Result) -> None:
    text = machine_text(op, result)
    if options.output:
        write_whole(options.output, text)
    if options.html:
        write_whole(options.html, html(result, text))
    if options.report:
        write_whole(options.report, report(result))
    elif not options.json:
        sys.stderr.write(report(result))
    if options.json:
        sys.stdout.write(json.dumps(as_json(result, text), indent=2) + "\n")
    elif not options.output:
        sys.stdout.write(text)
    sys.stdout.flush()
