"""The fit of a machine to measured iterations: least squares of the logarithms of ratios."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from measured.iteration import predicted_seconds
from measured.rows import NODE, Row
from scipy.optimize import least_squares

from collir.machine import Machine

OUTLIER = 0.03
"""The error from which on a row counts less than by its square."""

WEIGHT_OF_NODES = 2.0
"""The weight of a row on several nodes, of which there are fewer."""


@dataclass(frozen=True)
class Number:
    """A number that is fitted.

    Attributes:
        name: its clause in the machine.
        start: where the fit begins.
        low, high: its limits.
        put: a function that returns a machine with the number.
    """

    name: str
    start: float
    low: float
    high: float
    put: Callable[[Machine, float], Machine]


def _of(part: str, name: str) -> Callable[[Machine, float], Machine]:
    def put(machine: Machine, value: float) -> Machine:
        assert machine.device is not None
        values = replace(getattr(machine.device, part), **{name: value})
        return replace(machine, device=replace(machine.device, **{part: values}))

    return put


def _port_of_nodes(machine: Machine, value: float) -> Machine:
    outer, *inner = machine.levels
    return replace(machine, levels=(replace(outer, port=value), *inner))


NUMBERS = (
    Number("efficiency compute", 0.85, 0.2, 1.0, _of("efficiency", "compute")),
    Number("efficiency memory", 0.7, 0.2, 1.0, _of("efficiency", "memory")),
    Number("efficiency unaligned", 0.4, 0.05, 1.0, _of("efficiency", "unaligned")),
    Number("launch", 10e-6, 1e-7, 1e-3, _of("efficiency", "launch")),
    Number("issue", 50e-6, 1e-7, 1e-3, _of("execution", "issue")),
    Number("sync", 100e-6, 1e-7, 1e-2, _of("execution", "sync")),
    Number("node port", 80e9, 5e9, 2e11, _port_of_nodes),
)
"""The numbers that are fitted; all others are of data sheets, or of nccl-tests."""


def with_numbers(machine: Machine, values: Sequence[float]) -> Machine:
    """Return a machine with values of the fitted numbers."""
    for number, value in zip(NUMBERS, values, strict=True):
        machine = number.put(machine, float(value))
    return machine


def fitted(machine: Machine, rows: Sequence[Row]) -> tuple[Machine, list[float]]:
    """Return a machine with the numbers that explain rows best, and these numbers."""
    weights = np.array([WEIGHT_OF_NODES if row.gpus > NODE else 1.0 for row in rows])
    measured = np.array([row.seconds for row in rows])

    def residuals(logarithms: np.ndarray) -> np.ndarray:
        on = with_numbers(machine, np.exp(logarithms).tolist())
        predicted = np.array([predicted_seconds(row, on) for row in rows])
        return weights * np.log(predicted / measured)

    result = least_squares(
        residuals,
        [math.log(number.start) for number in NUMBERS],
        bounds=[[math.log(getattr(n, end)) for n in NUMBERS] for end in ("low", "high")],
        loss="soft_l1",
        f_scale=OUTLIER,
        x_scale=0.1,
        diff_step=1e-3,
    )
    values = np.exp(result.x).tolist()
    return with_numbers(machine, values), values


def machine_text(values: Sequence[float], note: Sequence[str]) -> str:
    """Return the file of a machine with fitted numbers.

    Args:
        note: lines about the fit.
    """
    by = {number.name: float(f"{x:.4g}") for number, x in zip(NUMBERS, values, strict=True)}
    efficiency = ", ".join(
        f"{name} = {by['efficiency ' + name]:g}" for name in ("compute", "memory", "unaligned")
    )
    times = "; ".join(f"{name} = {1e6 * by[name]:.4g} us" for name in ("launch", "issue", "sync"))
    lines = "\n".join(f"// {line}" for line in note)
    return f"""\
{lines}
machine @a100(nodes = 1, gpus = 8) {{
  device {{
    // Rates: NVIDIA A100 80 GB SXM data sheet. Tiles and depth: those of @dgx_a100_80gb.
    compute f16 = 312 TFLOP/s, f32 = 19.5 TFLOP/s; memory = 80 GB @ 2.039 TB/s;
    tile = 128 x 256; units = 108; depth = 64; maps = apart;
    // Fitted.
    efficiency {efficiency};
    {times}
  }}
  // Port: fitted; the cluster's has 800 Gbit/s. Latency: as in @dgx_a100_80gb.
  level node[nodes] {{ port = {by["node port"] / 1e9:.4g} GB/s, latency = 14 us, fabric = network }}
  // Port and latency: as in @dgx_a100_80gb, fitted to all_reduces of nccl-tests.
  level gpu[gpus] {{ port = 212 GB/s, latency = 6.9 us, fabric = nvlink }}
}}
"""
