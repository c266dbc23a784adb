"""The machine that explains a trace: its network by the collectives, its devices by their work."""

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace

from xdsl.dialects.builtin import ArrayAttr, ModuleOp

import collir
from collir.cost.calibration import CalibrationError, Sample, calibrate, unfitted
from collir.cost.programs.simulation import Simulation
from collir.dialects.machine import LevelAttr, MachineOp, device_properties
from collir.importing.traces.compared import Compared
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.machine import Machine
from collir.machine.model import Device
from collir.targets.reports.text import seconds_text
from collir.tools.calibration_output import Result, machine_text, rounded
from collir.tools.foreign import comment
from collir.tools.shell import write_whole

_ROUNDS = 6
"""The times that the rates of a device are fitted, as kernels wait for several things."""

_MOST_SAMPLES = 2_000
"""The most collectives that a network is fitted to."""


def calibrated(compared: Compared, module: ModuleOp, options: argparse.Namespace) -> Compared:
    """Write the machine that explains a trace; return the trace beside the program on it.

    Ports and latencies are fitted to the collectives of which all ranks are here; the rates of
    devices so that products, and all other work, take as long as they did.

    Raises:
        DiagnosticError: nothing of the trace tells a number of the machine.
    """
    machine = compared.simulation.mesh.machine
    [op] = [x for x in module.ops if isinstance(x, MachineOp) and x.sym_name.data == machine.name]
    samples = collective_samples(compared)
    fit = unfitted(machine, "no collective has all its ranks")
    if samples:
        try:
            fit = calibrate(machine, samples, compared.simulation.model)
        except CalibrationError as error:
            raise DiagnosticError(Diagnostic(str(error))) from error
    result = Result(fit, compared.simulation.model, tuple(x.file for x in compared.trace.ranks))

    def again(on: Machine) -> Compared:
        return Compared(compared.trace, _simulated(module, op, on, compared.simulation))

    fitted, said = _with_devices(again, result.machine)
    if not samples and fitted == machine:
        raise DiagnosticError(Diagnostic(
            "nothing of this trace tells a number of the machine: no collective has all its ranks, "
            "and no product its sizes"
        ))  # fmt: skip
    result = replace(result, fit=replace(fit, machine=fitted))
    recalibrated = again(result.machine)
    parts = [f"its network to {len(samples)} collectives"] * bool(samples) + said
    took, takes = seconds_text(recalibrated.seconds), seconds_text(recalibrated.simulation.time)
    line = f"Fitted to a trace, {' and '.join(parts)}: a step took {took}, and takes {takes} here."
    text = "\n".join([*comment(line), machine_text(op, result)])
    write_whole(options.calibrate, text)
    print(f"wrote {options.calibrate}: {line}", file=sys.stderr)
    return recalibrated


def collective_samples(compared: Compared) -> list[Sample]:
    """Return the collectives with all ranks in the trace, each with its time."""
    samples: list[Sample] = []
    for row in compared.collectives:
        assert row.step.sent is not None
        for arrivals in row.arrivals:
            if arrivals.complete and arrivals.seconds > 0:
                label = next(iter(arrivals.ran.values())).label
                samples.append(Sample(row.step.sent.collective, arrivals.seconds, label))
    step = -(-len(samples) // _MOST_SAMPLES)
    return samples[::step] if samples else samples


def _simulated(
    module: ModuleOp, op: MachineOp, machine: Machine, simulation: Simulation
) -> Simulation:
    """Return the simulation of a program on another machine."""
    copy = module.clone()
    [own] = [x for x in copy.ops if isinstance(x, MachineOp) and x.sym_name == op.sym_name]
    own.properties |= device_properties(machine)
    own.properties["levels"] = ArrayAttr([LevelAttr.of(level) for level in machine.levels])
    for unused in ("reference", "parameters"):
        own.properties.pop(unused, None)
    settings = simulation.model.model, simulation.model.algorithm, simulation.model.order
    return next(x for x in collir.simulate(copy, *settings) if x.name == simulation.name)


def _with_devices(
    again: Callable[[Machine], Compared], machine: Machine
) -> tuple[Machine, list[str]]:
    """Return the machine with devices as fast as in the trace, and the fit in words."""
    if machine.device is None:
        return machine, []
    given = machine.device
    counts: set[str] = set()
    for _ in range(_ROUNDS):
        compared = again(machine)
        rows = [x for x in compared.products if x.ran and x.expected]
        measured = sum(x.ran * x.measured for x in rows)
        predicted = sum(x.ran * x.predicted for x in rows)
        compute = predicted / measured if measured and predicted else 1.0
        own, expected = compared.rest
        memory = expected / own if own and expected else 1.0
        counts |= {"products of matrices"} if rows else set()
        counts |= {"other work"} if memory != 1 else set()
        machine = replace(machine, device=_scaled(machine.device or given, compute, memory))
    return machine, [f"its devices to {', '.join(sorted(counts))}"] if counts else []


def _scaled(device: Device, compute: float, memory: float) -> Device:
    """Return a device that computes and reads as much faster."""
    rates = tuple((dtype, rounded(rate * compute)) for dtype, rate in device.compute)
    bandwidth = device.memory_bandwidth and rounded(device.memory_bandwidth * memory)
    return replace(device, compute=rates, memory_bandwidth=bandwidth)
