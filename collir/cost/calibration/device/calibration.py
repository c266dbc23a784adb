"""The calibration of a device: a fit, the intervals of its numbers, and its errors.

An interval holds the middle 95 % of the numbers that are fitted to as many probes, drawn from the
same ones with repetitions (Efron and Tibshirani, *An Introduction to the Bootstrap*, 13.3).
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from collir.cost.calibration.device.fit import KernelSample, fit, samples_of
from collir.cost.calibration.device.times import DeviceTimes
from collir.cost.calibration.values import CalibrationError
from collir.machine import Device

DRAWS = 25
"""The number of fits that intervals are made of."""

_KEPT = ("call", "launch")
"""Kinds with too few probes to draw them anew, as their times are lines through them."""


@dataclass(frozen=True)
class DeviceNumber:
    """A number of a device after a fit, in SI units, and the ends of its interval.

    Attributes:
        name: the clause that it is in, such as ``launch`` or ``compute f32``.
    """

    name: str
    value: float
    low: float
    high: float


@dataclass(frozen=True, repr=False)
class DeviceCalibration:
    """A fitted device, with the fitted samples and the samples held back."""

    device: Device
    numbers: tuple[DeviceNumber, ...]
    fitted: tuple[KernelSample, ...]
    held_back: tuple[KernelSample, ...]

    def __repr__(self) -> str:
        return (
            f"<DeviceCalibration: {len(self.numbers)} numbers fitted to {len(self.fitted)} times, "
            f"{len(self.held_back)} held back>"
        )

    def errors(self, samples: Sequence[KernelSample]) -> list[float]:
        """Return the relative errors of predictions."""
        return [sample.predicted(self.device) / sample.seconds - 1 for sample in samples]


def median_of(errors: Sequence[float]) -> float:
    """Return the median of absolute errors; NaN if there are none."""
    return median(map(abs, errors)) if errors else math.nan


def calibrate_device(times: DeviceTimes, held_back: float = 0.2) -> DeviceCalibration:
    """Return a device fitted to times.

    Args:
        held_back: the part of the times, from 0 to 0.5, that is predicted only.

    Raises:
        CalibrationError: there are too few times, or the part is another.
    """
    if not 0 <= held_back <= 0.5:
        raise CalibrationError(f"the part that is held back is from 0 to 0.5, not {held_back:g}")
    samples = samples_of(times.timings)
    chosen = _held_back(len(samples), held_back)
    used = [sample for n, sample in enumerate(samples) if n not in chosen]
    kept = [sample for n, sample in enumerate(samples) if n in chosen]
    device = replace(fit(used, times.cores), memory=times.memory)
    rng = random.Random(0)
    drawn: list[dict[str, float]] = []
    for _ in range(DRAWS):
        again = [s for own in _groups(used) for s in _drawn(own, rng)]
        drawn.append(numbers_of(fit(again, times.cores, device)))
    numbers = [
        _number(name, value, [own[name] for own in drawn if name in own])
        for name, value in numbers_of(device).items()
    ]
    return DeviceCalibration(device, tuple(numbers), tuple(used), tuple(kept))


def _held_back(count: int, part: float) -> set[int]:
    """Return the numbers of the samples that are held back, evenly spread."""
    number = round(count * part)
    return {math.floor((n + 0.5) * count / number) for n in range(number)}


def _drawn(samples: Sequence[KernelSample], rng: random.Random) -> Sequence[KernelSample]:
    """Return as many samples, drawn with repetitions."""
    if samples[0].probe.kind in _KEPT:
        return samples
    return rng.choices(samples, k=len(samples))


def _groups(samples: Sequence[KernelSample]) -> list[list[KernelSample]]:
    """Return the samples of each kind, operation and dtype, which have to be drawn together."""
    groups: dict[tuple[str, str, str], list[KernelSample]] = {}
    for sample in samples:
        key = sample.probe.kind, sample.probe.word, sample.probe.dtype
        groups.setdefault(key, []).append(sample)
    return list(groups.values())


def _number(name: str, value: float, drawn: Sequence[float]) -> DeviceNumber:
    ordered = sorted([*drawn, value])
    cut = int(0.025 * len(ordered))
    return DeviceNumber(name, value, ordered[cut], ordered[-1 - cut])


def numbers_of(device: Device) -> dict[str, float]:
    """Return the fitted numbers of a device by their names."""
    execution, efficiency = device.execution, device.efficiency
    numbers = {f"compute {dtype}": rate for dtype, rate in device.compute}
    times = {
        "call": execution.call,
        "array": execution.array,
        "launch": efficiency.launch,
        "start": execution.start,
        "packing": execution.packing or 0.0,
    }
    numbers |= {name: value for name, value in times.items() if value}
    numbers |= {f"stream {size:.0f}": rate for size, rate in execution.streams}
    numbers |= {f"{name} {dtype}": time for name, dtype, time in execution.elements}
    return numbers
