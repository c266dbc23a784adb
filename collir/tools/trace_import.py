"""A trace as a program, whose prediction on the machine that ran is the time of the trace."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median

from xdsl.dialects.builtin import ModuleOp

import collir
from collir.cost.calibration import CalibrationError, calibrate
from collir.cost.model import CostModel
from collir.cost.programs.simulation import Simulation
from collir.dialects.machine import MachineOp
from collir.importing.hlo.devices import Declared, declared_by, machine_of
from collir.importing.traces.compared import Compared, steps_of
from collir.importing.traces.program import TracedProgram, UnsuitableTraceError, traced_program
from collir.importing.traces.trace import Trace
from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position
from collir.syntax.reader import read
from collir.targets.reports.text import seconds_text
from collir.tools.calibration_output import Result, machine_text
from collir.tools.foreign import comment
from collir.tools.hlo_options import axes_of
from collir.tools.trace_calibration import collective_samples

NAME = "step"
"""The name of the function."""

_RATE = 1e12
"""The operations per second of a device that the machine does not know."""

_MOST_TRIES = 24
"""The most simulations for the scale of computing."""

_EXACT = 1e-4
"""The part by which a prediction may be off the time that was measured."""


@dataclass(frozen=True)
class ImportedTrace:
    """A trace as a program.

    Attributes:
        text: the program, in ``.coll``.
        measured: the seconds of a step of training in the trace; ``predicted``: of the program.
        remarks: which of its numbers are fitted, and what it lacks.
    """

    text: str
    measured: float
    predicted: float
    remarks: tuple[str, ...]


def import_trace(
    trace: Trace, machine: str = "", mesh: str = "", command: str = ""
) -> ImportedTrace:
    """Return a trace as a program in ``.coll``.

    Args:
        machine: a reference to a machine, such as ``@dgx_h100(nodes = 2)``; by default hosts of 8
            H100, or of CPUs one level, if these ran it. Its network is fitted to the trace.
        mesh: the axes of the mesh, such as ``data=4,model=2``.

    Raises:
        DiagnosticError: the trace has no collectives whose bytes and groups are known, or the
            machine or the mesh has another number of devices.
    """
    devices = trace.world or max(x.rank for x in trace.ranks) + 1
    rank = trace.ranks[0]
    declared = _declared(trace, machine, devices)
    axes = axes_of(mesh)
    _check_devices(declared, axes, devices)
    rate = _rate(declared)
    steps = [*steps_of(rank, ())]
    typical = median(window.seconds for window, _ in steps)
    window, ran = min(steps, key=lambda x: abs(x[0].seconds - typical))
    try:
        program = traced_program(rank, window, ran, devices, declared.levels, axes, rate)
    except UnsuitableTraceError as error:
        raise DiagnosticError(Diagnostic(f"{rank.file}: {error}")) from error
    mesh_text = f"mesh @m on @cluster {{ {program.pieces.text} }}\n"

    def module_of(on: str, scale: float = 1.0, rest: float = 0.0) -> ModuleOp:
        return read(f"{on}\n\n{mesh_text}\n{program.text(NAME, scale, rest)}", "<trace>")

    compared = Compared(trace, _simulation(module_of(declared.text)))
    fitted, count = _fitted(declared, compared)
    scale, rest = _adjusted(lambda s, r: _simulation(module_of(fitted, s, r)).time, typical)
    module = module_of(fitted, scale, rest)
    predicted = _simulation(module).time
    remarks = [*trace.remarks, *_remarks(program, count, scale, rest, typical)]
    said = [f"A step of {seconds_text(typical)} of a trace of {trace.tool}: {rank.file}"]
    said += [f"by {command}"] if command else []
    head = [line for x in (*said, *remarks) for line in comment(x)]
    text = program.text(NAME, scale, rest)
    return ImportedTrace("\n".join([*head, fitted, "", mesh_text, text]), typical, predicted,
                         tuple(remarks))  # fmt: skip


def _declared(trace: Trace, machine: str, devices: int) -> Declared:
    on_cpus = any(x.label.startswith(("c10d::", "gloo")) for x in trace.ranks[0].collectives)
    if machine or not on_cpus:
        return machine_of(machine, devices, Position(trace.ranks[0].file, 1, 1))
    text = (
        f"machine @cluster {{\n  device {{ compute f32 = {_RATE / 1e12:g} TFLOP/s }}\n"
        f"  level rank[{devices}] {{ port = 1 GB/s, latency = 50 us, fabric = memory }}\n}}"
    )
    return declared_by(text)


def _check_devices(declared: Declared, axes: Mapping[str, int], devices: int) -> None:
    """Check that the machine and the mesh have as many devices as the trace has ranks.

    Raises:
        DiagnosticError: they have not.
    """
    on_levels = math.prod(size for _, size in declared.levels)
    for what, option, count in (
        ("the machine has", "--machine", on_levels),
        ("the axes have", "--mesh", math.prod(axes.values()) if axes else devices),
    ):
        if count != devices:
            raise DiagnosticError(Diagnostic(
                f"the trace is of {devices} rank{'s' * (devices != 1)}, and {what} {count} devices:"
                f" give {option} with as many"
            ))  # fmt: skip


def _rate(declared: Declared) -> float:
    """Return the operations in f32 of a device in a second.

    Raises:
        DiagnosticError: the machine has no such rate.
    """
    rate = dict(declared.device.compute).get("f32") if declared.device else None
    if not rate:
        message = "the machine has no rate for f32, in which computing is written: `compute f32`"
        raise DiagnosticError(Diagnostic(message))
    return rate


def _simulation(module: ModuleOp) -> Simulation:
    [simulation] = collir.simulate(module)
    return simulation


def _fitted(declared: Declared, compared: Compared) -> tuple[str, int]:
    """Return the machine whose network explains the collectives, and to how many it is fitted."""
    samples = collective_samples(compared)
    if not samples:
        return declared.text, 0
    [op] = read(declared.text, "<machine>").ops
    assert isinstance(op, MachineOp)
    model = CostModel()
    try:
        fit = calibrate(op.value(), samples, model, held_back=0.0)
    except CalibrationError as error:
        raise DiagnosticError(Diagnostic(str(error))) from error
    files = tuple(x.file for x in compared.trace.ranks)
    return machine_text(op, Result(fit, model, files)).rstrip(), len(samples)


def _adjusted(time: Callable[[float, float], float], measured: float) -> tuple[float, float]:
    """Return by how much computing is scaled, and what is added, for a prediction as measured."""
    predicted = time(1.0, 0.0)
    if predicted <= measured:
        return 1.0, measured - predicted
    low, high, below, above = 0.0, 1.0, time(0.0, 0.0) - measured, predicted - measured
    if below >= 0:
        return 0.0, 0.0
    for _ in range(_MOST_TRIES):  # the Illinois method: where a line between both is 0
        middle = low + (high - low) * below / (below - above)
        off = time(middle, 0.0) - measured
        if abs(off) <= _EXACT * measured:
            return middle, 0.0
        if off < 0:
            low, below, above = middle, off, above / 2
        else:
            high, above, below = middle, off, below / 2
    return low, 0.0


def _remarks(
    program: TracedProgram, count: int, scale: float, rest: float, measured: float
) -> Iterator[str]:
    yield (
        f"{seconds_text(program.computes)} of computing and {seconds_text(program.idles)} of gaps "
        "are those of the trace, as `compute`"
    )
    if count:
        yield f"ports and latencies are fitted to {count} collectives"
    else:
        yield "no collective has all its ranks here: the machine's network is as it was"
    if rest > 0:
        share = rest / measured
        yield (
            f"%rest, {seconds_text(rest)} ({share:.0%} of the step), is fitted: what its "
            "collectives, computing and gaps do not explain, such as waiting for late ranks"
        )
    if scale == 0:
        yield "its collectives alone take longer than the step did: its computing is left out"
    elif scale < 1:
        yield f"computing is {scale:.3g} times as long as in the trace, so that the step is as long"
    if program.ungrouped:
        yield (
            f"the trace does not say the ranks of {program.ungrouped} collectives: they are taken "
            "to be all ranks"
        )
    for what, number in program.left_out.items():
        yield f"{number} of {what}: left out"
