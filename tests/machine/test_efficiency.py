"""What kernels reach of the rates of devices: which there are, and those of several kinds."""

import random

import pytest
from hypothesis import given
from support.programs.collectives import RANDOM

from collir.cost.programs.products import MatrixProducts, slowdown
from collir.machine import IDEAL, Device, DeviceKind, Efficiency, Level, Machine, MachineError


def some_efficiency(rng: random.Random) -> Efficiency:
    return Efficiency(
        launch=rng.choice((0.0, 1e-6, 5e-6)),
        compute=rng.uniform(0.1, 1),
        memory=rng.uniform(0.1, 1),
        units=8,
        tile=(32, 32),
        depth=rng.choice((0, 16)),
    )


@given(rng=RANDOM)
def test_a_device_that_stands_for_several_is_no_faster_than_any(rng: random.Random) -> None:
    devices = [Device((("f32", 1e12),), 1e9, 1e12, None, some_efficiency(rng)) for _ in range(3)]
    kinds = tuple(DeviceKind(f"k{n}", device) for n, device in enumerate(devices))
    level = Level("gpu", 3, 1e9, 1e-6, kinds=tuple((kind.name, 1) for kind in kinds))
    machine = Machine("m", (level,), None, kinds)
    assert machine.slowest is not None
    for device in devices:
        assert machine.slowest.efficiency.launch >= device.efficiency.launch
        assert machine.slowest.efficiency.compute <= device.efficiency.compute
        assert machine.slowest.efficiency.memory <= device.efficiency.memory
        assert machine.slowest_of([kinds[devices.index(device)].name]) == device


def test_the_tiles_of_a_device_that_stands_for_several_are_those_of_one_that_has_some() -> None:
    tiled = Efficiency(units=8, tile=(32, 32), depth=4)
    for slower in (tiled.slower(IDEAL), IDEAL.slower(tiled)):
        assert slowdown(MatrixProducts(1, 40, 40, 8), slower) == slowdown(
            MatrixProducts(1, 40, 40, 8), tiled
        )


@pytest.mark.parametrize(
    "wrong",
    [
        Efficiency(launch=-1e-6),
        Efficiency(launch=float("nan")),
        Efficiency(compute=0),
        Efficiency(memory=1.5),
        Efficiency(unaligned=0),
        Efficiency(compute=float("nan")),
        Efficiency(tile=(8, 8)),
        Efficiency(units=8),
        Efficiency(units=-8, tile=(8, 8)),
        Efficiency(units=8, tile=(8, 0)),
        Efficiency(units=8, tile=(8, 8), depth=-1),
        Efficiency(depth=8),
    ],
)
def test_what_no_device_reaches_is_an_error(wrong: Efficiency) -> None:
    with pytest.raises(MachineError):
        Device(efficiency=wrong)
