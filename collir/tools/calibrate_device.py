"""``collir calibrate --device``: a device fitted to the times of small programs."""

import argparse
import json
import math
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr
from xdsl.ir import Attribute

from collir.cost.calibration import CalibrationError
from collir.cost.calibration.device.calibration import (
    DeviceCalibration,
    DeviceNumber,
    calibrate_device,
    median_of,
)
from collir.cost.calibration.device.fit import KernelSample
from collir.cost.calibration.device.probes import DTYPES
from collir.cost.calibration.device.times import DeviceTimes, parse_times
from collir.dialects.machine import LevelAttr, MachineOp, device_properties
from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position, Sources
from collir.machine import Device, Level, Machine
from collir.syntax.units import Quantity
from collir.syntax.writer import write
from collir.targets.reports.page.tables import HtmlCell
from collir.targets.reports.text import table
from collir.tools import calibrate_page
from collir.tools.calibrate_page import FITTED, HELD_BACK, KIND, Number
from collir.tools.calibration_output import rounded
from collir.tools.device_measure import measure_device
from collir.tools.foreign import comment, read_foreign
from collir.tools.measured import machine_named
from collir.tools.points_page import PredictedPoint
from collir.tools.shell import UsageError, write_whole

SECONDS = 60.0
"""The seconds that programs run, if none are named."""

MAX_BYTES = 1 << 24
"""The largest file of times."""


def run_device(options: argparse.Namespace, sources: Sources) -> None:
    """Measure or read times, fit a device to them, and write it.

    Raises:
        DiagnosticError: see ``measure_device`` and ``calibrate_device``; a file cannot be read.
        UsageError: options that go with collectives only.
    """
    _check(options)
    times, file = _times(options, sources)
    machine = _machine(options, sources)
    if options.save:
        write_whole(options.save, times.text)
    try:
        result = calibrate_device(times, options.held_back)
    except CalibrationError as error:
        raise _located(error) from error
    device = _rounded(result.device)
    text = "\n".join([*_head(result, times, file), _machine_text(machine, device)])
    shown = report(result)
    if options.output:
        write_whole(options.output, text)
    if options.html:
        write_whole(options.html, _html(result, times, file, text))
    if options.report:
        write_whole(options.report, shown)
    elif not options.json:
        sys.stderr.write(shown)
    if options.json:
        sys.stdout.write(json.dumps(_as_json(result, times, text), indent=2) + "\n")
    elif not options.output:
        sys.stdout.write(text)
    sys.stdout.flush()


def _check(options: argparse.Namespace) -> None:
    for name in ("run", "model", "algorithm", "order", "most", "fixed"):
        if getattr(options, name):
            raise UsageError(f"--{name} is of collectives, and --device of computations")
    if options.least != 1 or (options.name and options.machine is None):
        raise UsageError("--least is of collectives, and --machine of a file with several machines")
    if len(options.files) > 1:
        raise UsageError("--device takes one file")
    if options.files and (options.save or options.seconds is not None or options.dtypes):
        raise UsageError("--save, --seconds and --dtypes go with a measurement, not with --from")
    if options.seconds is not None and not 1 <= options.seconds <= 86400:
        raise UsageError(f"--seconds must be from 1 to 86400, not {options.seconds:g}")


def _times(options: argparse.Namespace, sources: Sources) -> tuple[DeviceTimes, str]:
    """Return the times that are measured or read, and the name of their file."""
    if not options.files:
        dtypes = [name.strip() for name in (options.dtypes or "").split(",") if name.strip()]
        for dtype in dtypes:
            if dtype not in DTYPES:
                raise UsageError(f"there is no type '{dtype}': use {', '.join(DTYPES)}")
        return measure_device(dtypes, options.seconds or SECONDS), "a run"
    (file,) = options.files
    hint = "a file of `collir calibrate --device --save` has some hundreds of lines"
    shown, text = read_foreign(file, MAX_BYTES, hint, sources)
    try:
        return parse_times(text, shown), shown
    except CalibrationError as error:
        raise _located(error) from error


def _located(error: CalibrationError) -> DiagnosticError:
    file, colon, line = error.source.rpartition(":")
    position = Position(file, int(line), 1) if colon else None
    return DiagnosticError(Diagnostic(error.message, position))


def _machine(options: argparse.Namespace, sources: Sources) -> Machine:
    """Return the machine to write the device into; by default one of one device."""
    if options.machine is None:
        return Machine("here", (Level("device", 1, 1e9, 1e-6),), Device())
    machine = machine_named(options.machine, options.name, sources).value()
    if machine.kinds:
        message = (
            f"machine @{machine.name} has several kinds of devices: leave the machine out, and "
            "put the device where it belongs"
        )
        raise DiagnosticError(Diagnostic(message))
    return machine


def _machine_text(machine: Machine, device: Device) -> str:
    if machine.device and machine.device.reduction:
        device = replace(device, reduction=machine.device.reduction)
    machine = replace(machine, device=device)
    properties: dict[str, Attribute] = {
        "sym_name": StringAttr(machine.name),
        "levels": ArrayAttr(map(LevelAttr.of, machine.levels)),
    }
    properties |= device_properties(machine)
    text = write(ModuleOp([MachineOp.create(properties=properties)]))
    head, device_clauses, rest = re.split(r"(?<=  device) \{ (.*) \}\n", text, maxsplit=1)
    clauses = textwrap.wrap(device_clauses, 96, break_long_words=False, break_on_hyphens=False)
    return "\n".join([f"{head} {{", *(f"    {line}" for line in clauses), "  }", rest])


def _rounded(device: Device) -> Device:
    """Return the device with numbers of four digits."""
    execution, efficiency = device.execution, device.efficiency
    execution = replace(
        execution,
        call=rounded(execution.call),
        array=rounded(execution.array),
        start=rounded(execution.start),
        packing=execution.packing and rounded(execution.packing),
        streams=tuple((size, rounded(rate)) for size, rate in execution.streams),
        elements=tuple((*names, rounded(time)) for *names, time in execution.elements),
    )
    return replace(
        device,
        compute=tuple((dtype, rounded(rate)) for dtype, rate in device.compute),
        memory_bandwidth=device.memory_bandwidth and rounded(device.memory_bandwidth),
        efficiency=replace(efficiency, launch=rounded(efficiency.launch)),
        execution=execution,
    )


def _quantity(name: str) -> Quantity:
    first = name.partition(" ")[0]
    if first == "compute":
        return Quantity.COMPUTE
    return Quantity.BANDWIDTH if first in ("stream", "packing") else Quantity.TIME


def _name(number: DeviceNumber) -> str:
    first, _, rest = number.name.partition(" ")
    return f"{first} of {Quantity.BYTES.format(float(rest))}" if first == "stream" else number.name


def _value(number: DeviceNumber) -> str:
    return _quantity(number.name).format(rounded(number.value))


def _interval(number: DeviceNumber) -> str:
    """Return the interval of a number, or ``-``."""
    shown = _quantity(number.name).format
    low, high = (shown(rounded(end)) for end in (number.low, number.high))
    return f"{low} to {high}" if number.low < number.high else "-"


def report(result: DeviceCalibration) -> str:
    """Return the numbers and the errors, as tables."""
    rows = [[_name(number), _value(number), _interval(number)] for number in result.numbers]
    lines = table(["number", "value", "95 % interval"], rows, 1)
    lines.append("")
    errors = [
        [name, str(len(samples)), *_errors(result, samples)]
        for name, samples in (("fitted", result.fitted), ("held back", result.held_back))
    ]
    lines += table(["programs", "times", "median error", "worst", "which"], errors, 1)
    return "\n".join([*(line.rstrip() for line in lines), ""])


def _errors(result: DeviceCalibration, samples: Sequence[KernelSample]) -> list[str]:
    if not samples:
        return ["-", "-", ""]
    errors = result.errors(samples)
    worst = max(range(len(samples)), key=lambda n: abs(math.log(1 + errors[n])))
    return [f"{median_of(errors):.1%}", f"{errors[worst]:+.1%}", samples[worst].probe.name]


def _head(result: DeviceCalibration, times: DeviceTimes, file: str) -> Iterator[str]:
    fitted, kept = len(result.fitted), len(result.held_back)
    yield from comment(
        f"{times.device}, as {times.library} runs programs on it. Fitted by `collir calibrate "
        f"--device` to {fitted} times of {file}; {kept} more were held back."
    )
    for name, samples in (("fitted", result.fitted), ("held back", result.held_back)):
        if samples:
            middle, worst, _ = _errors(result, samples)
            yield from comment(f"Times {name}: median error {middle}, the worst {worst}.")


def _html(result: DeviceCalibration, times: DeviceTimes, file: str, text: str) -> str:
    """Return the result as a page.

    Args:
        text: the machine, as ``.coll``.
    """
    numbers = [
        Number(
            _name(number), number.value, number.low, number.high, None, True, _value(number),
            _interval(number),
        )
        for number in result.numbers
    ]  # fmt: skip
    points = [
        _point(sample, sample.predicted(result.device), kind)
        for kind, samples in ((FITTED, result.fitted), (HELD_BACK, result.held_back))
        for sample in samples
    ]
    lines = [f"As {times.library} runs programs on it. Fitted to times of {file}."]
    return calibrate_page.html(
        f"{times.device}, fitted to measured times", lines, numbers, points, text
    )


def _point(sample: KernelSample, predicted: float, kind: str) -> PredictedPoint:
    """Return the point of a timed program."""
    probe = sample.probe
    choices = {KIND: kind, "program": probe.kind, "type": probe.dtype}
    cells = {KIND: HtmlCell(kind), "program": HtmlCell(probe.name)}
    return PredictedPoint(probe.name, sample.seconds, predicted, cells, choices)


def _as_json(result: DeviceCalibration, times: DeviceTimes, text: str) -> dict[str, Any]:
    """Return the result for programs: SI units, relative errors."""

    def errors(samples: Sequence[KernelSample]) -> dict[str, Any]:
        own = result.errors(samples)
        points = [
            {
                "program": sample.probe.name,
                "measured_s": sample.seconds,
                "predicted_s": sample.predicted(result.device),
            }
            for sample in samples
        ]
        return {
            "times": len(samples),
            "median_error": median_of(own) if own else None,
            "points": points,
        }

    return {
        "device": times.device,
        "library": times.library,
        "numbers": [vars(number) for number in result.numbers],
        "fitted": errors(result.fitted),
        "held_back": errors(result.held_back),
        "coll": text,
    }
