"""The time of a computation on a device."""

from collir.cost.network.group import CostError
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.diagnostics import DiagnosticError
from collir.layout import Mesh
from collir.machine import Device

MAX_SECONDS = 100 * 365.25 * 86400.0
"""Largest number of seconds of a computation: 100 years."""


def compute_seconds(flops: float, dtype: str, device: Device | None) -> float:
    """Return the seconds of floating-point operations on a dtype.

    Raises:
        CostError: the device has no rate for the dtype.
    """
    rates = dict(device.compute) if device else {}
    if dtype not in rates:
        raise CostError(f"the machine does not say how fast a device computes {dtype}")
    return flops / rates[dtype]


def step_seconds(op: DistOp, mesh: Mesh) -> float:
    """Return the seconds of a ``compute`` step.

    Raises:
        DiagnosticError: the device has no rate for the dtype of the result, or the step would take
            more than ``MAX_SECONDS``.
    """
    if not op.flops:
        return 0.0
    dtype, machine = dist_type(op.result).dtype.value, mesh.machine
    try:
        seconds = compute_seconds(op.flops, dtype, machine.device)
    except CostError as error:
        fix = f"give @{machine.name} a rate, as in device {{ compute {dtype} = 10 TFLOP/s }}"
        raise DiagnosticError.at(op, f"{error}: {fix}") from error
    if seconds > MAX_SECONDS:
        raise DiagnosticError.at(op, "this takes more than 100 years: flops are those of a device")
    return seconds
