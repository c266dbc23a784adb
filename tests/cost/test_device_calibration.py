"""Calibrations of devices: synthetic devices are found again, and what was held back is no part."""

import math
import random
from dataclasses import replace
from functools import cache

import pytest

from collir.cost.calibration import CalibrationError
from collir.cost.calibration.device.calibration import calibrate_device
from collir.cost.calibration.device.fit import KernelSample, fit, samples_of
from collir.cost.calibration.device.probes import KINDS, Probe, default_probes, page
from collir.cost.calibration.device.times import DeviceTimes, ProbeTiming, parse_times
from collir.cost.programs.simulate import simulate
from collir.dialects.machine import DeviceAttr
from collir.machine import Device, Efficiency, Execution
from collir.syntax.reader import read
from collir.syntax.writer import device_text

WORDS = ("", "add", "exp", "sin", "softmax", "sum", "nn", "nt", "tn")
PROBES = [probe for probe in default_probes(["f32"]) if probe.word in WORDS]

CPU = Device(
    compute=(("f32", 200e9),),
    memory=1e9,
    memory_bandwidth=8e9,
    efficiency=Efficiency(launch=1e-6),
    execution=Execution(
        call=5e-6,
        array=5e-7,
        streams=((10_000, 20e9), (1_000_000, 60e9), (100_000_000, 8e9)),
        elements=(
            ("exp", "f32", 0.4e-9),
            ("sin", "f32", 2e-9),
            ("softmax", "f32", 1e-9),
            ("transpose", "f32", 2e-9),
            ("slice", "f32", 1e-9),
        ),
        start=3e-6,
        packing=15e9,
        copies=True,
    ),
)

GPU = Device(
    compute=(("f32", 19.5e12),),
    memory=1e9,
    memory_bandwidth=1.3e12,
    efficiency=Efficiency(launch=4e-6, tile=(64, 128), units=8, depth=32),
    execution=Execution(call=2e-5, elements=(("exp", "f32", 1e-11),)),
)


@cache
def kernels() -> list[KernelSample]:
    """Return the probes with their kernels."""
    return samples_of([ProbeTiming(probe, 1.0) for probe in PROBES])


def timed(device: Device, noise: float = 0.0, seed: int = 0) -> list[ProbeTiming]:
    """Return the times of the probes on a device, with noise in proportion to them."""
    rng = random.Random(seed)
    samples = kernels()
    return [
        ProbeTiming(s.probe, s.predicted(device) * math.exp(rng.gauss(0, noise))) for s in samples
    ]


def times_on(device: Device, noise: float = 0.0) -> DeviceTimes:
    return DeviceTimes("none", "synthetic", 8, 1e9, tuple(timed(device, noise)))


@pytest.mark.turns
def test_a_device_that_packs_is_found_again() -> None:
    found = fit(samples_of(timed(CPU)), cores=8, like=CPU)
    assert found.efficiency.launch == pytest.approx(CPU.efficiency.launch, rel=0.2)
    assert dict(found.compute)["f32"] == pytest.approx(200e9, rel=0.02)
    assert found.execution.packing == pytest.approx(15e9, rel=0.05)
    assert found.execution.start == pytest.approx(3e-6, rel=0.1)
    assert found.execution.array == pytest.approx(5e-7, rel=0.2)
    assert found.memory_bandwidth == pytest.approx(8e9, rel=0.05)
    assert found.execution.copies
    elements = found.execution.seconds_of_element
    for name, dtype, time in CPU.execution.elements:
        assert elements[name, dtype] == pytest.approx(time, rel=0.1)


@pytest.mark.turns
def test_a_long_call_that_was_disturbed_leaves_the_time_of_a_call() -> None:
    """Errors of times are in proportion to these, so the shortest say what a call takes."""
    timings = timed(CPU)
    calls = [timing for timing in timings if timing.probe.kind == "call"]
    longest = max(calls, key=lambda timing: timing.seconds)
    disturbed = replace(longest, seconds=1.5 * longest.seconds)
    found = fit(samples_of([disturbed if x is longest else x for x in timings]), cores=8, like=CPU)
    assert found.execution.call == pytest.approx(CPU.execution.call, rel=0.2)


@pytest.mark.slow
def test_a_device_with_tiles_is_found_again() -> None:
    found = fit(samples_of(timed(GPU)), cores=8)
    assert found.execution.packing is None
    assert not found.execution.copies
    assert (found.efficiency.tile, found.efficiency.units) == ((64, 128), 8)
    assert found.efficiency.depth in (32, 64)  # the launch takes a part of it
    assert dict(found.compute)["f32"] == pytest.approx(19.5e12, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("device", [CPU, GPU])
def test_times_that_were_held_back_are_predicted(device: Device) -> None:
    result = calibrate_device(times_on(device, noise=0.02))
    assert len(result.held_back) == round(0.2 * len(PROBES))
    assert len(result.fitted) + len(result.held_back) == len(PROBES)
    errors = sorted(map(abs, result.errors(result.held_back)))
    assert errors[len(errors) // 2] < 0.05
    for number in result.numbers:
        assert number.low <= number.value <= number.high


@pytest.mark.slow
def test_times_that_were_held_back_have_no_influence() -> None:
    times = times_on(CPU)
    held = {s.probe for s in calibrate_device(times).held_back}
    wrong = [replace(t, seconds=9 * t.seconds) if t.probe in held else t for t in times.timings]
    before, after = calibrate_device(times), calibrate_device(replace(times, timings=tuple(wrong)))
    assert before.device == after.device
    assert min(after.errors(before.held_back)) > -0.5
    assert max(after.errors(after.held_back)) < 0


@pytest.mark.slow
@pytest.mark.parametrize("device", [CPU, GPU])
def test_a_sample_takes_what_its_program_takes_on_a_machine_that_is_written(device: Device) -> None:
    """The kernels of a sample do not depend on the device that they were taken on."""
    text = f"device {{ {device_text(DeviceAttr.of(device))} }}"
    simulations = simulate(read(page(PROBES, text), "probes"))
    for sample, simulation in zip(samples_of(timed(device)), simulations, strict=True):
        assert simulation.time == pytest.approx(sample.predicted(device)), sample.probe.name


def test_files_of_times_are_read_as_they_were_written() -> None:
    times = times_on(CPU)
    again = parse_times(times.text, "file")
    assert [t.probe for t in again.timings] == [t.probe for t in times.timings]
    for new, old in zip(again.timings, times.timings, strict=True):
        assert new.seconds == pytest.approx(old.seconds, rel=1e-3)
    assert replace(again, timings=()) == replace(times, timings=())


def test_a_time_is_above_0() -> None:
    lines = times_on(CPU).text.splitlines()
    lines[-1] = f"{lines[-1].rpartition(' ')[0]} 0"
    with pytest.raises(CalibrationError, match="a number above 0") as caught:
        parse_times("\n".join(lines), "file")
    assert caught.value.source == f"file:{len(lines)}"


def test_probes_are_found_by_their_names() -> None:
    probes = list(default_probes(["f32", "bf16"]))
    assert len(set(probes)) == len(probes)
    for probe in probes:
        assert Probe.named(*probe.name.split(" ")) == probe
        assert probe.word in KINDS[probe.kind].words()


def test_no_fit_is_made_without_times() -> None:
    with pytest.raises(CalibrationError, match="no times"):
        samples_of([])
    with pytest.raises(CalibrationError, match=r"from 0 to 0\.5"):
        calibrate_device(times_on(CPU), held_back=0.9)
    samples = [sample for sample in kernels() if sample.probe.kind != "product"]
    with pytest.raises(CalibrationError, match="'product'"):
        fit(samples)


def on(device: str, function: str) -> float:
    """Return the seconds of a function on a device."""
    mesh = "level core[1] { port = 1 GB/s, latency = 1 us } }\nmesh @m on @d { data = 1 }\n"
    [simulation] = simulate(read(f"machine @d {{ device {{ {device} }} {mesh}{function}", "text"))
    return simulation.time


def test_a_map_takes_the_longer_of_its_elements_and_of_its_bytes() -> None:
    function = "func @f(%x: f32[1000]) -> f32[1000] on @m {\n%y = exp %x\nreturn %y\n}"
    device = "memory = 1 GB @ 1 GB/s; launch = 1 us; call = 3 us; array = 1 us"
    assert on(device, function) == pytest.approx(5e-6 + 1e-6 + 8e-6)
    assert on(f"{device}; elements exp f32 = 20 ns", function) == pytest.approx(26e-6)
    assert on(f"{device}; elements exp f32 = 2 ns", function) == pytest.approx(14e-6)
    # 8000 bytes are half way between 800 and 80000, by their logarithms.
    streams = "streams 800 B @ 1 GB/s, 80 KB @ 4 GB/s"
    assert on(f"{device}; {streams}", function) == pytest.approx(10e-6)


def test_maps_that_run_apart_are_launched_apart() -> None:
    function = "func @f(%x: f32[8]) -> f32[8] on @m {\n%y = exp %x\n%z = neg %y\nreturn %z\n}"
    device = "memory = 1 GB @ 1 TB/s; launch = 1 s"
    assert on(device, function) == pytest.approx(1)
    assert on(f"{device}; maps = apart", function) == pytest.approx(2)


def test_products_are_packed_and_their_operands_transposed() -> None:
    head = "func @f(%x: f32[{x}], %w: f32[20, 30]) -> f32[10, 30] on @m {{\n"
    text = head + '%y = einsum "{x_indices}, b c -> a c" %x, %w\nreturn %y\n}}'
    plain = text.format(x="10, 20", x_indices="a b")
    turned = text.format(x="20, 10", x_indices="b a")
    device = (
        "compute f32 = 12 GFLOP/s; start = 1 us; packing = 4.4 GB/s; elements transpose f32 = 5 ns"
    )
    # 12,000 operations and 4,400 bytes.
    assert on(device, plain) == pytest.approx(1e-6 + 1e-6 + 1e-6)
    assert on(device, turned) == pytest.approx(3e-6)
    assert on(f"{device}; copies = made", plain) == pytest.approx(3e-6)
    assert on(f"{device}; copies = made", turned) == pytest.approx(4e-6)


def test_loops_copy_the_slices_that_products_read() -> None:
    text = """func @f(%x: f32[10, 10], %w: f32[{n}, 10, 10]) -> f32[10, 10] on @m {{
      %y = repeat {n} carry(%h = %x) slice(%w = %w) {{
        %0 = einsum "a b, b c -> a c" %h, %w
        yield %0
      }}
      return %y
    }}"""
    device = "compute f32 = 2 GFLOP/s; elements slice f32 = 10 ns"
    assert on(device, text.format(n=3)) == pytest.approx(3e-6)
    assert on(f"{device}; copies = made", text.format(n=3)) == pytest.approx(6e-6)
    assert on(f"{device}; copies = made", text.format(n=1)) == pytest.approx(1e-6)
    # Each slice has 400 bytes of 1,200. Read and written, 2,400 are too many for a cache.
    cache = "copies = made; streams 800 B @ 1 TB/s, 2400 B @ 8 MB/s"
    assert on(f"{device}; {cache}", text.format(n=3)) == pytest.approx(3e-6 + 3 * 100e-6)
