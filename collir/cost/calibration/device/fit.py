"""The fit of a device to the times of probes: each number from the probes that determine it.

Numbers are fitted one after the other, from numbers that all programs need to numbers of one kind
of kernel: calls and launches, streams of bytes, elements of operations, products, copies of
operands. A residual is log(predicted / measured), and its loss is its absolute value, so that
outliers have little influence.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from collir.cost.calibration.device.probes import Probe, page
from collir.cost.calibration.device.times import ProbeTiming
from collir.cost.calibration.fit import Vector, scipy_function
from collir.cost.calibration.values import CalibrationError
from collir.cost.programs.local_steps import SLICE, LocalStep, local_times
from collir.cost.programs.simulate import simulate
from collir.cost.programs.simulation import SimulatedStep
from collir.machine import Device, Efficiency, Execution
from collir.syntax.reader import read

_SIDES = (8, 16, 32, 64, 128, 256)
_DEPTHS = (0, 4, 8, 16, 32, 64, 128, 256)

WORTH = 1.1
"""An operation has a time for its elements if its probes take that many times as long as their
bytes."""


@dataclass(frozen=True)
class KernelSample:
    """A timing, with the kernels that the probe runs and how often it runs each."""

    timing: ProbeTiming
    steps: tuple[tuple[int, LocalStep], ...]

    @property
    def probe(self) -> Probe:
        """Return the probe that was timed."""
        return self.timing.probe

    @property
    def seconds(self) -> float:
        """The seconds of a run."""
        return self.timing.seconds

    def predicted(self, device: Device) -> float:
        """Return the seconds on a device."""
        copies = device.execution.copies
        run = [(n, step) for n, step in self.steps if copies or not step.reach]
        return math.fsum(count * local_times(step, device).seconds for count, step in run)

    def error(self, device: Device) -> float:
        """Return log(predicted / measured)."""
        return math.log(max(self.predicted(device), 1e-12) / self.seconds)


def samples_of(timings: Sequence[ProbeTiming]) -> list[KernelSample]:
    """Return timings with the kernels of their probes.

    Raises:
        CalibrationError: there are none.
    """
    if not timings:
        raise CalibrationError("there are no times to fit a device to")
    # Any numbers: kernels do not depend on them, but that software copies and calls take time.
    rates = ", ".join(f"{dtype} = 1 GFLOP/s" for dtype in _dtypes(timings))
    device = f"device {{ compute {rates}; memory = 1 GB @ 1 GB/s; call = 1 us; copies = made }}"
    module = read(page([timing.probe for timing in timings], device), "probes")
    simulations = simulate(module)
    return [
        KernelSample(timing, tuple(_steps(simulation.program, 1)))
        for timing, simulation in zip(timings, simulations, strict=True)
    ]


def _dtypes(timings: Iterable[ProbeTiming]) -> list[str]:
    return list(dict.fromkeys(timing.probe.dtype for timing in timings))


def _steps(program: Sequence[SimulatedStep], times: int) -> Iterator[tuple[int, LocalStep]]:
    """Yield the kernels of a program, each with the number of times that it runs."""
    for step in program:
        if step.loop:
            yield from _steps(step.loop.body.program, times * step.loop.times)
        elif isinstance(step.does, LocalStep):
            yield times, step.does


def loss(samples: Iterable[KernelSample], device: Device) -> float:
    """Return the sum of the absolute residuals."""
    return math.fsum(abs(sample.error(device)) for sample in samples)


def fit(samples: Sequence[KernelSample], cores: int = 1, like: Device | None = None) -> Device:
    """Return the device that explains times best.

    Products are computed in tiles or packed, whichever explains them better.

    Args:
        cores: the processors of the device that work on tiles.
        like: a device that was fitted, whose tiles are kept.

    Raises:
        CalibrationError: some numbers have no probes.
    """
    kinds = {kind: [s for s in samples if s.probe.kind == kind] for kind in _NEEDED}
    for kind, own in kinds.items():
        if len(own) < 2:
            raise CalibrationError(
                f"there are too few times of the programs '{kind}': measure anew"
            )
    device = Device(execution=Execution(copies=True))
    device = _fit_calls(kinds["call"], kinds["map"], device)
    streams = [s for s in samples if s.probe.kind == "stream" or s.probe.word == "add"]
    device = _fit_streams(streams, device)
    device = _fit_elements([s for s in samples if s.probe.kind in ("map", "along")], device)
    products = [
        s for s in samples if s.probe.kind in ("product", "attention", "transpose", "sliced")
    ]
    packed = _fit_packing(products, device)
    if like is not None and like.execution.packing is not None:
        return packed
    tiles = like and like.efficiency
    tiled = _fit_tiles(
        [s for s in products if s.probe.kind in ("launch", "product")], device, cores, tiles
    )
    tiled = _fit_copies([s for s in products if s.probe.kind in ("attention", "transpose")], tiled)
    tiled = _fit_slices([s for s in products if s.probe.kind == "sliced"], tiled)
    if like is not None:
        return tiled
    return min(packed, tiled, key=lambda device: loss(products, device))


def _fit_slices(samples: Sequence[KernelSample], device: Device) -> Device:
    """Return the device with the time of an element of the slices that loops copy, if they do."""
    elements = device.execution.elements
    for dtype in dict.fromkeys(sample.probe.dtype for sample in samples):
        own = [sample for sample in samples if sample.probe.dtype == dtype]
        choices = [time for s in own if (time := _part_time(s, SLICE, device)) > 0]
        if not choices:
            continue

        best = _best_time(own, (SLICE, dtype), choices, device)
        elements = (*elements, (SLICE, dtype, best))
    return _with(device, elements=elements)


def _part_time(sample: KernelSample, name: str, device: Device) -> float:
    """Return the seconds of an element of one part of a sample that explain its time."""
    own = [(n, s) for n, s in sample.steps if s.elements and s.elements[0][0] == name]
    count = math.fsum(n * s.elements[0][2] for n, s in own)
    rest = [pair for pair in sample.steps if pair not in own]
    time = sample.seconds - math.fsum(n * local_times(s, device).seconds for n, s in rest)
    return (
        max(time - device.efficiency.launch * sum(n for n, _ in own), 0.0) / count if count else 0.0
    )


_NEEDED = ("call", "map", "product")
_PRODUCTS = ("launch", "product", "attention", "transpose", "sliced")


def _with(device: Device, **changes: object) -> Device:
    return replace(device, execution=replace(device.execution, **changes))  # pyright: ignore


def _fit_calls(
    calls: Sequence[KernelSample], maps: Sequence[KernelSample], device: Device
) -> Device:
    """Return the device with the times of a call, of an array, and of a launch, which is the time
    of a small kernel."""
    slope, start = _slope([(s.probe.sizes[0], s.seconds) for s in calls])
    call = max(start, 0.0)
    smallest = min(maps, key=lambda sample: sum(step.size for _, step in sample.steps))
    arrays = sum(step.arrays for _, step in smallest.steps)
    kernels = sum(count for count, step in smallest.steps if not step.arrays)
    left = smallest.seconds - call - arrays * slope / 2
    launch = max(left / kernels, 0.01 * smallest.seconds / kernels)
    array = max((slope - launch) / 2, 0.0)
    device = replace(device, efficiency=replace(device.efficiency, launch=launch))
    return _with(device, call=call, array=array)


def _slope(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the slope and the start of a line through points, by the least relative squares."""
    weights = [1 / y**2 for _, y in points]
    total = math.fsum(weights)
    x0 = math.fsum(w * x for w, (x, _) in zip(weights, points, strict=True)) / total
    y0 = math.fsum(w * y for w, (_, y) in zip(weights, points, strict=True)) / total
    above = math.fsum(w * (x - x0) * (y - y0) for w, (x, y) in zip(weights, points, strict=True))
    below = math.fsum(w * (x - x0) ** 2 for w, (x, _) in zip(weights, points, strict=True))
    slope = above / below if below else 0.0
    return slope, y0 - slope * x0


def _fit_streams(samples: Sequence[KernelSample], device: Device) -> Device:
    """Return the device with the bandwidth of kernels by the bytes that they move."""
    rates: dict[float, list[float]] = {}
    for sample in samples:
        (count, step), *rest = sample.steps
        rest_seconds = math.fsum(n * local_times(own, device).seconds for n, own in rest)
        time = (sample.seconds - rest_seconds) / count - device.efficiency.launch
        rates.setdefault(step.size, []).append(step.size / max(time, 0.1 * sample.seconds / count))
    streams = tuple((size, _geometric_mean(own)) for size, own in sorted(rates.items()))
    return replace(_with(device, streams=streams), memory_bandwidth=streams[-1][1])


def _geometric_mean(values: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def _fit_elements(samples: Sequence[KernelSample], device: Device) -> Device:
    """Return the device with the times of elements of the operations that these limit."""
    times: list[tuple[str, str, float]] = []
    for name, own in _by(samples, lambda s: (s.probe.word, s.probe.dtype)).items():
        if max(sample.seconds / sample.predicted(device) for sample in own) < WORTH:
            continue
        choices = [_element_time(sample, name[0], device) for sample in own]

        times.append((*name, _best_time(own, name, choices, device)))
    return _with(device, elements=tuple(times))


def _best_time(
    samples: Sequence[KernelSample], name: tuple[str, str], choices: Sequence[float], device: Device
) -> float:
    """Return the time of an element, of some, that explains samples best."""
    known = device.execution.elements
    return min(
        choices, key=lambda time: loss(samples, _with(device, elements=(*known, (*name, time))))
    )


def _by(
    samples: Sequence[KernelSample], key: Callable[[KernelSample], tuple[str, str]]
) -> dict[tuple[str, str], list[KernelSample]]:
    groups: dict[tuple[str, str], list[KernelSample]] = {}
    for sample in samples:
        groups.setdefault(key(sample), []).append(sample)
    return groups


def _element_time(sample: KernelSample, operation: str, device: Device) -> float:
    """Return the seconds of an element that explain a sample by its operation alone."""
    own = [(n, s) for n, s in sample.steps if any(name == operation for name, *_ in s.elements)]
    count = math.fsum(n * x for n, s in own for name, _, x in s.elements if name == operation)
    rest = [(n, s) for n, s in sample.steps if (n, s) not in own]
    other = math.fsum(n * local_times(s, device).seconds for n, s in rest)
    launches = sum(n for n, _ in own) * device.efficiency.launch
    return max(sample.seconds - other - launches, 1e-3 * sample.seconds) / count


def _fit_tiles(
    samples: Sequence[KernelSample], device: Device, cores: int, tiles: Efficiency | None
) -> Device:
    """Return the device with its compute rates, and its tiles if they are not known."""
    known = tiles and [(tiles.tile, tiles.units, tiles.depth)]
    options = known or [
        ((high, wide), units, depth)
        for high in _SIDES
        for wide in _SIDES
        if wide >= high
        for units in sorted({1, cores})
        for depth in _DEPTHS
    ]
    best: tuple[float, Device] | None = None
    for tile, units, depth in options:
        efficiency = replace(device.efficiency, tile=tile, units=units, depth=depth)
        trial = replace(device, efficiency=efficiency)
        total = 0.0
        for dtype in dict.fromkeys(sample.probe.dtype for sample in samples):
            own = [sample for sample in samples if sample.probe.dtype == dtype]
            trial, error = _with_rate(own, dtype, trial)
            total += error
        if best is None or total < best[0]:
            best = total, trial
    assert best is not None
    return best[1]


def _with_rate(samples: Sequence[KernelSample], dtype: str, device: Device) -> tuple[Device, float]:
    """Return the device with the compute rate of a dtype that explains products best, and their
    loss."""
    unit = replace(device, compute=((dtype, 1.0),))
    parts = [_product_parts(sample, unit) for sample in samples]

    def total(rate: float) -> float:
        return math.fsum(
            abs(math.log((fixed + sum(max(o / rate, m) for o, m in own)) / sample.seconds))
            for (fixed, own), sample in zip(parts, samples, strict=True)
        )

    starts = [
        sum(o for o, _ in own) / max(sample.seconds - fixed, 0.1 * sample.seconds)
        for (fixed, own), sample in zip(parts, samples, strict=True)
    ]
    rate = min(starts, key=total)
    return replace(device, compute=(*device.compute, (dtype, rate))), total(rate)


def _product_parts(sample: KernelSample, device: Device) -> tuple[float, list[tuple[float, float]]]:
    """Return the seconds of a sample that do not depend on the compute rate, and the operations
    and the seconds of the bytes of each product."""
    fixed, own = 0.0, list[tuple[float, float]]()
    for count, step in sample.steps:
        times = local_times(step, device)
        if step.product is None:
            fixed += count * times.seconds
        else:
            fixed += count * (times.launch + times.copies)
            own.append((count * times.operations, count * times.memory))
    return fixed, own


def _fit_packing(samples: Sequence[KernelSample], device: Device) -> Device:
    """Return the device with compute rates, the start and the packing of products, and the times of
    transposes and slices, by least squares of all together."""
    dtypes = list(dict.fromkeys(sample.probe.dtype for sample in samples))
    parts = np.array([_packing_parts(sample, device) for sample in samples]).T
    measured = np.log([sample.seconds for sample in samples])
    own = np.array([dtypes.index(sample.probe.dtype) for sample in samples])
    count = len(dtypes)

    def residuals(logs: Vector) -> Vector:
        x = np.exp(logs)
        rates, turned, sliced = (x[n * count : (n + 1) * count][own] for n in range(3))
        fixed, products, *amounts = parts
        speeds = (rates, x[-1], turned, sliced)
        times = sum((a * s for a, s in zip(amounts, speeds, strict=True)), fixed + products * x[-2])
        return np.log(times) - measured

    start = np.log([1e-11] * count + [1e-9] * 2 * count + [1e-6, 1e-10])
    least_squares = scipy_function("optimize", "least_squares")
    ends = np.log(1e-15), np.log(1e-3)
    x = np.exp(least_squares(residuals, start, bounds=ends, loss="soft_l1", f_scale=0.1).x)
    named = [(name, dtype) for name in ("", "transpose", SLICE) for dtype in dtypes]
    times = {pair: float(time) for pair, time in zip(named, x, strict=False)}
    elements = tuple((*pair, time) for pair, time in times.items() if pair[0])
    elements = (*device.execution.elements, *elements)
    changed = _with(device, start=float(x[-2]), packing=float(1 / x[-1]), elements=elements)
    return replace(changed, compute=tuple((dtype, 1 / times["", dtype]) for dtype in dtypes))


def _packing_parts(sample: KernelSample, device: Device) -> tuple[float, ...]:
    """Return the seconds of a sample that are known, the number of its products, their operations
    and bytes, and the elements of transposes and of slices."""
    fixed = 0.0
    names = ("products", "flops", "bytes", "transpose", SLICE)
    amounts: dict[str, float] = dict.fromkeys(names, 0.0)
    for count, step in sample.steps:
        copied = [(name, x) for name, _, x in step.elements if name in amounts]
        if step.product is None and not copied:
            fixed += count * local_times(step, device).seconds
            continue
        fixed += count * device.efficiency.launch
        for name, x in copied:
            amounts[name] += count * x
        if step.product is not None:
            amounts["products"] += count
            amounts["flops"] += count * math.fsum(own for _, own in step.work)
            amounts["bytes"] += count * step.size
    return (fixed, *amounts.values())


def _fit_copies(samples: Sequence[KernelSample], device: Device) -> Device:
    """Return the device with the time of transposes: products make them of operands in another
    order, if that explains their times better."""
    elements = device.execution.elements
    for dtype in dict.fromkeys(sample.probe.dtype for sample in samples):
        own = [sample for sample in samples if sample.probe.dtype == dtype]
        choices = [time for sample in own if (time := _copy_time(sample, device)) > 0]
        if not choices:
            continue
        best = _best_time(own, ("transpose", dtype), choices, device)
        elements = (*elements, ("transpose", dtype, best))
    attention = [sample for sample in samples if sample.probe.kind == "attention"]
    made = _with(device, elements=elements)
    plain = _with(made, copies=False)
    return made if loss(attention, made) < loss(attention, plain) else plain


def _copy_time(sample: KernelSample, device: Device) -> float:
    """Return the seconds of an element of the transposes that explain a sample; 0 if it has
    none."""
    count = math.fsum(
        n * x for n, s in sample.steps for name, _, x in s.elements if name == "transpose"
    )
    rest = sample.seconds - math.fsum(
        n * (local_times(s, device).seconds if s.product else device.efficiency.launch)
        for n, s in sample.steps
    )
    return max(rest, 0.0) / count if count else 0.0
