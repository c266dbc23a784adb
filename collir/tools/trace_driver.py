"""The work of ``collir compare TRACE... PROGRAM``: put a run beside its prediction."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

import collir
from collir.cost.model import CostModel
from collir.cost.programs.simulation import Simulation
from collir.importing.traces.compared import Compared
from collir.importing.traces.files import is_trace, read_traces
from collir.importing.traces.trace import Trace
from collir.importing.values import ReadError
from collir.ir.auto import is_auto
from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position, Sources
from collir.ir.functions import functions_of
from collir.targets.reports.page.rendered import check_installed
from collir.tools.functions import keep_functions, reported
from collir.tools.shell import UsageError, check_folders, write_whole
from collir.tools.trace_output import as_json, report
from collir.tools.trace_page import html

_SHOWN = 2**24
"""The most bytes of a file of which a diagnostic shows a line."""


def run(options: argparse.Namespace) -> int:
    """Print the comparison; return the exit status."""
    if options.html:
        check_installed()
    check_folders(options.html, options.calibrate)
    *traces, program = options.subjects
    _check_files(traces, program)
    try:
        CostModel(options.model, options.algorithm, options.order)
    except ValueError as error:
        raise UsageError(str(error)) from error
    module, simulation = _simulated(options, program)
    compared = compared_with(traces, simulation)
    if options.calibrate:
        # Imported here because scipy is slow to import.
        from collir.tools.trace_calibration import calibrated

        compared = calibrated(compared, module, options)
    if options.html:
        write_whole(options.html, html(compared, program))
    if options.json:
        print(json.dumps(as_json(compared), indent=2))
    else:
        print("\n".join(report(compared)))
    return 0


def _check_files(traces: Sequence[str], program: str) -> None:
    """Check that the program is the last file, and the only one.

    Raises:
        UsageError: it is not.
    """
    if is_trace(Path(program)):
        raise UsageError(f"{program} is a trace: behind the traces, give the program that ran")
    if others := [x for x in traces if x.endswith(".coll")]:
        raise UsageError(f"{others[0]} is no trace: give one program, behind the traces")


def compared_with(traces: Sequence[str], simulation: Simulation) -> Compared:
    """Return traces of one or all ranks beside a program.

    Raises:
        DiagnosticError: a file is no trace, or it is one of another number of ranks.
    """
    trace = trace_of(traces)
    if not any(len(x.work) or x.collectives for x in trace.ranks):
        said = "".join(f" ({x})" for x in trace.remarks[:1])
        message = f"{trace.ranks[0].file} has no kernels and no collectives{said}"
        raise DiagnosticError(Diagnostic(message))
    devices, mesh = simulation.mesh.devices, simulation.mesh.name
    ranks = max(trace.world, max(x.rank for x in trace.ranks) + 1)
    if (trace.world and trace.world != devices) or ranks > devices:
        message = f"the trace is of {ranks} ranks, and mesh @{mesh} has {devices} devices"
        raise DiagnosticError(Diagnostic(f"{message}: write the program for as many"))
    if not trace.world:
        trace.remarks.append("the trace does not say how many ranks there are")
    try:
        return Compared(trace, simulation)
    except OverflowError as error:
        raise DiagnosticError(Diagnostic(str(error))) from error


def trace_of(files: Sequence[str]) -> Trace:
    """Return the trace of a job, of files of one or all ranks.

    Raises:
        DiagnosticError: a file cannot be read, or is no trace.
    """
    try:
        return read_traces([Path(x) for x in files])
    except ReadError as error:
        raise DiagnosticError(_located(error, files)) from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DiagnosticError(Diagnostic(f"cannot read {error.filename}: {reason}")) from error


def _located(error: ReadError, files: Sequence[str]) -> Diagnostic:
    """Return a diagnostic at its place, if the error is in one of the files."""
    for file in files:
        message, place = error.message.removeprefix(f"{file}: "), error.place
        if message != error.message:
            is_small = Path(file).stat().st_size <= _SHOWN  # of which the line is shown
            at = Position(file, place.line, place.column)
            return Diagnostic(message, at) if is_small else Diagnostic(f"{message} ({at})")
    return Diagnostic(error.message)


def _simulated(options: argparse.Namespace, program: str) -> tuple[ModuleOp, Simulation]:
    """Return the program behind its passes, and the simulation of the function that ran."""
    module = collir.parse(Path(program), sources=Sources())
    names = [options.function] if options.function else []
    keep_functions(module, names)
    passes = options.passes or "propagate" * any(map(is_auto, functions_of(module)))
    if passes:
        _ = collir.run_passes(module, passes)
    chosen = reported(module, names)
    settings = options.model, options.algorithm, options.order
    simulations = [x for x in collir.simulate(module, *settings) if x.name in chosen]
    if not simulations:
        raise DiagnosticError(Diagnostic(f"{program} has no functions"))
    if len(simulations) > 1 and len(steps := [x for x in simulations if x.name == "step"]) == 1:
        simulations = steps  # what an import calls a step of training
    if len(simulations) > 1:
        listed = ", ".join(f"@{x.name}" for x in simulations)
        raise UsageError(f"{program} has several functions: say --function, one of {listed}")
    return module, simulations[0]
