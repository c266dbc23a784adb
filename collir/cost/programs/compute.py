"""The time of a computation on a device."""

from collections.abc import Iterable

from collir.cost.network.group import CostError
from collir.cost.programs.kinds import check_kinds_known, kinds_at
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.diagnostics import DiagnosticError
from collir.layout import Mesh
from collir.machine import Device

MAX_SECONDS = 100 * 365.25 * 86400.0
"""Largest number of seconds of a computation: 100 years."""


def compute_seconds(flops: float, dtype: str, device: Device | None, kind: str = "") -> float:
    """Return the seconds of floating-point operations on a dtype, at the rate that is sustained.

    Args:
        kind: the name of the kind of devices, for the error.

    Raises:
        CostError: the device has no rate for the dtype.
    """
    rates = dict(device.compute) if device else {}
    if device is None or dtype not in rates:
        raise CostError(f"the machine does not say how fast a {kind or 'device'} computes {dtype}")
    return flops / (rates[dtype] * device.efficiency.compute)


def step_seconds(op: DistOp, mesh: Mesh, kinds: Iterable[str] = ()) -> float:
    """Return the seconds of a ``compute`` step on the largest block of its first operand.

    Args:
        kinds: the kinds of the devices that run it, if the machine has several: the seconds are
            those of the slowest.

    Raises:
        DiagnosticError: a device has no rate for the dtype of the result, or the step would take
            more than ``MAX_SECONDS``.
    """
    if not op.flops:
        return 0.0
    dtype, machine = dist_type(op.result).dtype.value, mesh.machine
    seconds = 0.0
    for kind in tuple(kinds) or tuple(machine.kind_of) or ("",):
        device = machine.kind_of[kind] if kind else machine.device
        try:
            seconds = max(seconds, compute_seconds(op.flops, dtype, device, kind))
        except CostError as error:
            named = f"{kind} " if kind else ""
            rate = f"device {named}{{ compute {dtype} = 10 TFLOP/s }}"
            fix = f"give @{machine.name} a rate, as in {rate}"
            raise DiagnosticError.at(op, f"{error}: {fix}") from error
    if seconds > MAX_SECONDS:
        raise DiagnosticError.at(op, "this takes more than 100 years: flops are those of a device")
    return seconds


def seconds_of_children(op: DistOp, mesh: Mesh) -> list[tuple[float, int]]:
    """Return the seconds of a ``compute`` step on the largest block, for each kind of devices.

    Each comes with the number of neighbouring children of the level of the kinds that have it.
    Children without devices that run the step may have any seconds. There is one entry if all
    devices that run it are alike.

    Raises:
        DiagnosticError: see ``step_seconds``; or devices differ and the mesh is not placed.
    """
    index = mesh.machine.kinds_level
    if index is None or not op.flops:
        return [(step_seconds(op, mesh), 1)]
    try:
        check_kinds_known(mesh)
    except CostError as error:
        raise DiagnosticError.at(op, str(error)) from error
    present = kinds_at(mesh, dist_type(op.result).place)
    entries: list[tuple[float, int]] = []
    skipped = 0
    for kind, children in mesh.machine.levels[index].kinds:
        if kind not in present:
            skipped += children
            continue
        seconds = step_seconds(op, mesh, (kind,))
        if entries and entries[-1][0] == seconds:
            skipped += entries.pop()[1]
        entries.append((seconds, children + skipped))
        skipped = 0
    return entries
