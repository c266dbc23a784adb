"""The output of ``collir calibrate``: the fitted machine, and the errors of its predictions."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr
from xdsl.ir import Attribute

from collir.cost.calibration import Calibration, Residual
from collir.cost.calibration.knobs import knobs_of, machine_with_values
from collir.cost.calibration.values import FittedParameter, median_error, worst_residual
from collir.cost.model import CostModel
from collir.dialects.machine import LevelAttr, MachineOp, device_properties
from collir.machine import Machine
from collir.syntax.units import Quantity
from collir.syntax.writer import write
from collir.targets.reports.text import bytes_text, table
from collir.tools import calibrate_page
from collir.tools.calibrate_page import FITTED, HELD_BACK, KIND, Number
from collir.tools.foreign import comment
from collir.tools.points_page import collective_point

DIGITS = 4
"""The number of significant digits of a fitted number."""


@dataclass(frozen=True)
class Result:
    """A fit, its cost model, and the files of the measurements."""

    fit: Calibration
    model: CostModel
    files: tuple[str, ...]

    @property
    def machine(self) -> Machine:
        """The fitted machine, with its numbers rounded to ``DIGITS``."""
        known = {parameter.name: parameter for parameter in self.fit.parameters}
        knobs = [
            knob
            for knob in knobs_of(self.fit.machine)
            if known[knob.name].value != known[knob.name].given
        ]
        return machine_with_values(
            self.fit.machine, knobs, [rounded(known[knob.name].value) for knob in knobs]
        )


def rounded(value: float) -> float:
    """Return a number rounded to ``DIGITS`` significant digits."""
    return float(f"{value:.{DIGITS - 1}e}")


def _quantity(name: str) -> Quantity:
    return Quantity.TIME if name.endswith(".latency") else Quantity.BANDWIDTH


def _shown(name: str, value: float) -> str:
    """Return a number with its unit."""
    return _quantity(name).format(rounded(value))


def _interval(parameter: FittedParameter) -> str:
    """Return the interval of a number, or its only finite end."""
    low, high = (
        _shown(parameter.name, end) if 0 < end < math.inf else ""
        for end in (parameter.low, parameter.high)
    )
    if low and high:
        return f"{low} to {high}"
    return f"at least {low}" if low else f"at most {high}" if high else "-"


def _origin(parameter: FittedParameter) -> str:
    """Return how a number was found. Fitted to no more times than numbers, it has no interval."""
    if not parameter.fitted:
        return parameter.reason
    return "fitted" if _interval(parameter) != "-" else "fitted, to no more times than numbers"


def report(result: Result) -> str:
    """Return the parameters and the errors, as tables."""
    fit = result.fit
    rows = [
        [
            parameter.name,
            _shown(parameter.name, parameter.value),
            _interval(parameter),
            _shown(parameter.name, parameter.given),
            _origin(parameter),
        ]
        for parameter in fit.parameters
    ]
    lines = table(["number", "value", "95 % interval", "before", ""], rows, 1)
    lines.append("")
    errors: list[list[str]] = []
    for name, residuals in (("fitted", fit.fitted), ("held back", fit.held_back)):
        errors.append([name, str(len(residuals)), *_errors(residuals)])
    lines += table(["points", "times", "median error", "worst", "where"], errors, 1)
    return "\n".join([*(line.rstrip() for line in lines), ""])


def _errors(residuals: Sequence[Residual]) -> list[str]:
    residual = worst_residual(residuals)
    if residual is None:
        return ["-", "-", ""]
    collective = residual.sample.collective
    place = f"{collective.kind} of {bytes_text(collective.size)} ({residual.sample.source})"
    return [f"{median_error(residuals):.1%}", f"{residual.error:+.1%}", place]


def point_json(residual: Residual) -> dict[str, Any]:
    """Return a measured time beside its prediction: bytes and seconds."""
    collective = residual.sample.collective
    return {
        "collective": collective.kind,
        "bytes": collective.size,
        "ranks": collective.ranks,
        "measured_s": residual.sample.seconds,
        "predicted_s": residual.predicted,
        "source": residual.sample.source,
    }


def as_json(result: Result, text: str) -> dict[str, Any]:
    """Return the result for programs: SI units, relative errors."""

    def errors(residuals: Sequence[Residual]) -> dict[str, Any]:
        largest = worst_residual(residuals)
        return {
            "times": len(residuals),
            "median_error": median_error(residuals) if residuals else None,
            "worst_error": largest.error if largest else None,
            "points": [point_json(residual) for residual in residuals],
        }

    parameters = [
        asdict(parameter) | {"low": _finite(parameter.low), "high": _finite(parameter.high)}
        for parameter in result.fit.parameters
    ]
    return {
        "machine": result.fit.machine.name,
        "model": asdict(result.model),
        "files": list(result.files),
        "parameters": parameters,
        "fitted": errors(result.fit.fitted),
        "held_back": errors(result.fit.held_back),
        "coll": text,
    }


def _finite(value: float) -> float | None:
    return None if math.isinf(value) else value


def html(result: Result, text: str) -> str:
    """Return the page of a result.

    Args:
        text: the fitted machine, as ``.coll``.

    Raises:
        DiagnosticError: jinja2 is not installed.
    """
    fit = result.fit
    numbers = [
        Number(
            parameter.name,
            parameter.value,
            parameter.low,
            parameter.high,
            parameter.given,
            parameter.fitted,
            _shown(parameter.name, parameter.value),
            _interval(parameter),
            _shown(parameter.name, parameter.given),
            _origin(parameter),
        )
        for parameter in fit.parameters
    ]
    points = [
        collective_point(residual, {KIND: kind})
        for kind, residuals in ((FITTED, fit.fitted), (HELD_BACK, fit.held_back))
        for residual in residuals
    ]
    lines = [f"Fitted to {', '.join(result.files)}, costed {result.model.how(fit.machine)}."]
    title = f"Machine @{fit.machine.name}, fitted to measured times"
    return calibrate_page.html(title, lines, numbers, points, text)


def machine_text(op: MachineOp, result: Result) -> str:
    """Return the fitted machine as ``.coll``, with the source of each number in comments."""
    machine = result.machine
    levels = [
        LevelAttr.of(level, "" if op.reference else attr.size_from.data)
        for level, attr in zip(machine.levels, op.levels, strict=True)
    ]
    properties: dict[str, Attribute] = {
        "sym_name": StringAttr(machine.name),
        "levels": ArrayAttr(levels),
    }
    if op.parameters and not op.reference:
        properties["parameters"] = op.parameters
    properties |= device_properties(machine)
    written = write(ModuleOp([MachineOp.create(properties=properties)]))
    return "\n".join([*_head(result), *_commented(written, result.fit)])


def _head(result: Result) -> Iterator[str]:
    fit, model = result.fit, result.model
    if not fit.fitted:
        return
    kept = f", {len(fit.held_back)} more were held back" if fit.held_back else ""
    yield from comment(
        f"Fitted by `collir calibrate` to {len(fit.fitted)} times of {', '.join(result.files)}"
        f"{kept} (costed {model.how(fit.machine)})."
    )
    for name, residuals in (("fitted", fit.fitted), ("held back", fit.held_back)):
        if residuals:
            median, most, _ = _errors(residuals)
            yield from comment(f"Times {name}: median error {median}, the worst {most}.")


def _commented(text: str, fit: Calibration) -> Iterator[str]:
    """Yield the lines of a machine, with comments before its device and its levels."""
    known = {parameter.name: parameter for parameter in fit.parameters}
    for line in text.split("\n"):
        if match := re.match(r"  level (\w+)\[", line):
            labels = [(label, f"{match[1]}.{label.lower()}") for label in ("Port", "Latency")]
            parts = [name for name in known if name.startswith(f"{match[1]}.part[")]
            labels += [(name.rpartition(".")[2].capitalize(), name) for name in parts]
            sources = [_source(label, known[name]) for label, name in labels if name in known]
            yield from comment(" ".join(sources), "  ")
        elif line.startswith("  device ") and "reduction" in known:
            yield from comment(_source("Reduction", known["reduction"]), "  ")
        yield line


def _source(label: str, parameter: FittedParameter) -> str:
    if parameter.fitted:
        interval = _interval(parameter)
        return f"{label}: {_origin(parameter)}" + (
            f", 95 % interval {interval}." if interval != "-" else "."
        )
    moved = (
        "as before"
        if parameter.value == parameter.given
        else f"before {_shown(parameter.name, parameter.given)}"
    )
    return f"{label}: {moved}, {parameter.reason}."
