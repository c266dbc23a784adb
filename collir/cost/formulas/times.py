"""The times of steps that send nothing as expressions."""

from collections.abc import Sequence
from dataclasses import replace

import sympy

from collir.cost.formulas.constants import MEMORY, has_one_device, rate_name
from collir.cost.formulas.functions import (
    Expr,
    Larger,
    as_number,
    bandwidth_of,
    expression,
    slowdown_on,
    symbol,
)
from collir.cost.programs.compute import compute_seconds
from collir.cost.programs.local_steps import Arithmetic, LocalStep, local_times
from collir.cost.programs.products import MatrixProducts
from collir.machine import Device, Efficiency, Execution, Machine


def local_seconds(local: LocalStep, machine: Machine, kinds: Sequence[str] = ()) -> Expr:
    """Return the seconds of a step that sends nothing, on some kinds of devices of a machine."""
    device = machine.slowest_of(kinds)
    step = replace(
        local,
        size=expression(local.size),
        work=tuple((dtype, expression(count)) for dtype, count in local.work),
        inner=tuple(
            (dtype, expression(count), _expressions(product))
            for dtype, count, product in local.inner
        ),
        elements=tuple((*names, expression(count)) for *names, count in local.elements),
        reach=expression(local.reach) if local.reach else 0.0,
        product=_expressions(local.product) if local.product is not None else None,
    )
    arithmetic = _FORMULAS if has_one_device(machine) else _OF_KINDS
    return sympy.sympify(local_times(step, device, arithmetic).total(_larger))


def _expressions(of: MatrixProducts) -> MatrixProducts:
    sides = (of.count, of.rows, of.columns, of.length)
    return MatrixProducts(*(as_number(expression(side)) for side in sides))


def _bandwidth(execution: Execution, size: float, memory: float | None) -> float | None:
    if execution.streams:
        return as_number(bandwidth_of(execution)(size, memory or 0.0))
    return as_number(symbol(MEMORY)) if memory else None


def _bandwidth_of_kind(execution: Execution, size: float, memory: float | None) -> float | None:
    return _bandwidth(execution, size, memory) if execution.streams else memory


def _operations(count: float, dtype: str, device: Device) -> float:
    if dtype not in dict(device.compute):
        return compute_seconds(count, dtype, device)  # raises an error
    return as_number(count / symbol(rate_name(dtype)))


def _slowdown(product: MatrixProducts, on: Efficiency) -> float:
    if on.tile is None and on.unaligned == 1:
        return 1.0
    slower = slowdown_on(on)(product.count, product.rows, product.columns, product.length)
    return as_number(slower)


def _larger(a: float, b: float) -> float:
    return as_number(Larger(a, b))


_FORMULAS = Arithmetic(_larger, _bandwidth, _operations, _slowdown)
_OF_KINDS = Arithmetic(_larger, _bandwidth_of_kind, compute_seconds, _slowdown)
"""Without symbols for the constants of devices, as these differ."""
