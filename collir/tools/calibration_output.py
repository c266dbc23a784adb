"""What ``collir calibrate`` prints: the fitted machine, and how well it explains the times."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr
from xdsl.ir import Attribute

from collir.cost.calibration import Calibration, FittedParameter, Residual
from collir.cost.calibration.knobs import knobs_of, machine_with_values
from collir.cost.calibration.values import median_error, worst_residual
from collir.cost.model import CostModel
from collir.dialects.machine import DeviceAttr, LevelAttr, MachineOp
from collir.machine import Machine
from collir.syntax.units import Quantity
from collir.syntax.writer import write
from collir.targets.reports.text import bytes_text, table
from collir.tools.foreign import comment

DIGITS = 4
"""Significant digits of a fitted number."""


@dataclass(frozen=True)
class Result:
    """A fit, and what it is of."""

    fit: Calibration
    model: CostModel
    files: tuple[str, ...]

    @property
    def machine(self) -> Machine:
        """The fitted machine, its numbers with as many digits as they are worth."""
        known = {one.name: one for one in self.fit.parameters}
        knobs = [
            knob
            for knob in knobs_of(self.fit.machine)
            if known[knob.name].value != known[knob.name].given
        ]
        return machine_with_values(
            self.fit.machine, knobs, [rounded(known[knob.name].value) for knob in knobs]
        )


def rounded(value: float) -> float:
    """A number with few significant digits."""
    return float(f"{value:.{DIGITS - 1}e}")


def _quantity(name: str) -> Quantity:
    return Quantity.TIME if name.endswith(".latency") else Quantity.BANDWIDTH


def _shown(name: str, value: float) -> str:
    """A number with its unit."""
    return _quantity(name).format(rounded(value))


def _interval(one: FittedParameter) -> str:
    """The interval; of one without an end, the other end."""
    low, high = (_shown(one.name, end) if 0 < end < math.inf else "" for end in (one.low, one.high))
    if low and high:
        return f"{low} to {high}"
    return f"at least {low}" if low else f"at most {high}" if high else "-"


def _how(one: FittedParameter) -> str:
    """How a number was found. Without more times than numbers nothing says how sure it is."""
    if not one.fitted:
        return one.reason
    return "fitted" if _interval(one) != "-" else "fitted, to no more times than numbers"


def report(result: Result) -> str:
    """The parameters and the errors, as tables."""
    fit = result.fit
    rows = [
        [
            one.name,
            _shown(one.name, one.value),
            _interval(one),
            _shown(one.name, one.given),
            _how(one),
        ]
        for one in fit.parameters
    ]
    lines = table(["number", "value", "95 % interval", "before", ""], rows, 1)
    lines.append("")
    errors: list[list[str]] = []
    for name, residuals in (("fitted", fit.fitted), ("held back", fit.held_back)):
        errors.append([name, str(len(residuals)), *_errors(residuals)])
    lines += table(["points", "times", "median error", "worst", "where"], errors, 1)
    return "\n".join([*(line.rstrip() for line in lines), ""])


def _errors(residuals: Sequence[Residual]) -> list[str]:
    most = worst_residual(residuals)
    if most is None:
        return ["-", "-", ""]
    one = most.sample.collective
    where = f"{one.kind} of {bytes_text(one.size)} ({most.sample.source})"
    return [f"{median_error(residuals):.1%}", f"{most.error:+.1%}", where]


def point_json(one: Residual) -> dict[str, Any]:
    """Return a measured time beside its prediction: bytes and seconds."""
    sent = one.sample.collective
    return {
        "collective": sent.kind,
        "bytes": sent.size,
        "ranks": sent.ranks,
        "measured_s": one.sample.seconds,
        "predicted_s": one.predicted,
        "source": one.sample.source,
    }


def as_json(result: Result, text: str) -> dict[str, Any]:
    """All of it for programs: SI units, relative errors."""

    def errors(residuals: Sequence[Residual]) -> dict[str, Any]:
        most = worst_residual(residuals)
        return {
            "times": len(residuals),
            "median_error": median_error(residuals) if residuals else None,
            "worst_error": most.error if most else None,
            "points": [point_json(one) for one in residuals],
        }

    parameters = [
        asdict(one) | {"low": _finite(one.low), "high": _finite(one.high)}
        for one in result.fit.parameters
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


def machine_text(op: MachineOp, result: Result) -> str:
    """The fitted machine as ``.coll``, with the source of each number in comments."""
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
    if machine.device:
        properties["device"] = DeviceAttr.of(machine.device)
    written = write(ModuleOp([MachineOp.create(properties=properties)]))
    return "\n".join([*_head(result), *_commented(written, result.fit)])


def _head(result: Result) -> Iterator[str]:
    fit, model = result.fit, result.model
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
    """A machine with comments before its device and its levels."""
    known = {one.name: one for one in fit.parameters}
    for line in text.split("\n"):
        if match := re.match(r"  level (\w+)\[", line):
            each = [(what, f"{match[1]}.{what.lower()}") for what in ("Port", "Latency")]
            parts = [name for name in known if name.startswith(f"{match[1]}.part[")]
            each += [(name.rpartition(".")[2].capitalize(), name) for name in parts]
            about = [_source(what, known[name]) for what, name in each if name in known]
            yield from comment(" ".join(about), "  ")
        elif line.startswith("  device {") and "reduction" in known:
            yield from comment(_source("Reduction", known["reduction"]), "  ")
        yield line


def _source(what: str, one: FittedParameter) -> str:
    if one.fitted:
        interval = _interval(one)
        return f"{what}: {_how(one)}" + (f", 95 % interval {interval}." if interval != "-" else ".")
    moved = "as before" if one.value == one.given else f"before {_shown(one.name, one.given)}"
    return f"{what}: {moved}, {one.reason}."
