"""Machines: what can exist, and what is said of what cannot."""

import pytest

from collir.machine import MAX_DEVICES, Device, Level, Machine, MachineError


def level(name: str = "gpu", size: int = 4, port: float = 1e9, latency: float = 1e-6) -> Level:
    return Level(name, size, port, latency)


def test_devices_are_the_product_of_the_levels() -> None:
    machine = Machine("m", (level("node", 3), level("gpu", 4)))
    assert machine.devices == 12
    assert machine.level("gpu") == level("gpu", 4)
    assert machine.level("rack") is None


@pytest.mark.parametrize("port", [0.0, -1.0, float("inf"), float("nan")])
def test_a_port_has_a_positive_finite_bandwidth(port: float) -> None:
    with pytest.raises(MachineError, match="port bandwidth of level 'gpu' must be positive"):
        level(port=port)


@pytest.mark.parametrize("latency", [-1e-9, float("inf"), float("nan")])
def test_a_latency_is_not_negative(latency: float) -> None:
    with pytest.raises(MachineError, match="latency of level 'gpu' must not be negative"):
        level(latency=latency)


def test_a_latency_may_be_zero() -> None:
    assert level(latency=0.0).latency == 0


def test_there_are_at_most_int_max_devices() -> None:
    assert Machine("m", (level(size=MAX_DEVICES),)).devices == MAX_DEVICES
    with pytest.raises(MachineError, match=r"at most 2\^31 - 1"):
        Machine("m", (level("a", MAX_DEVICES), level("b", 2)))


def test_level_names_are_distinct() -> None:
    with pytest.raises(MachineError, match="two levels named 'gpu'"):
        Machine("m", (level(), level()))


def test_a_machine_has_a_level() -> None:
    with pytest.raises(MachineError, match="no levels"):
        Machine("m", ())


def test_a_device_has_positive_rates() -> None:
    with pytest.raises(MachineError, match="the f32 compute rate must be positive"):
        Device((("f32", 0.0),))
    with pytest.raises(MachineError, match="the memory size must be positive"):
        Device((), memory=-1)
    with pytest.raises(MachineError, match="given twice"):
        Device((("f32", 1.0), ("f32", 2.0)))
    with pytest.raises(MachineError, match="the reduction rate must be positive"):
        Device(reduction=0)


@pytest.mark.parametrize("taper", [0.5, 0.0, -1.0, float("inf"), float("nan")])
def test_a_taper_is_at_least_one(taper: float) -> None:
    with pytest.raises(MachineError, match="taper of level 'gpu' must be at least 1"):
        Level("gpu", 4, 1e9, 1e-6, taper=taper)


def test_rails_divide_the_devices_below_a_port() -> None:
    def node(rails: int) -> Level:
        return Level("node", 2, 1e9, 1e-6, rails=rails)

    assert Machine("m", (node(4), level("gpu", 8))).devices == 16
    with pytest.raises(MachineError, match="8 devices below a port of level 'node' do not divide"):
        Machine("m", (node(3), level("gpu", 8)))
    with pytest.raises(MachineError, match="at least one rail"):
        node(0)
