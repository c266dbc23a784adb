"""Machines: valid ones, and the errors of invalid ones."""

from typing import Any

import pytest

from collir.machine import MAX_DEVICES, Device, Level, LinkKind, Machine, MachineError


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


SQUARE = ((0, 1, 0, 2), (1, 0, 2, 0), (0, 2, 0, 1), (2, 0, 1, 0))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ports": (1e9,)}, "has 1 port for 4 children"),
        ({"ports": (1e9, 1e9, 1e9, 2e9)}, "must be the largest of its ports"),
        ({"ports": (1e9, 1e9, 0.0, 1e9)}, "must be positive and finite"),
        ({"ports": (1e9,) * 4, "kind": LinkKind.BUS}, "a port for each child and the kind bus"),
        ({"ports": (1e9,) * 4, "taper": 2.0}, "a port for each child and a taper"),
        ({"kind": LinkKind.TORUS}, "needs a shape"),
        ({"shape": (2, 2)}, "is no torus"),
        ({"kind": LinkKind.TORUS, "shape": (2, 3)}, "2 x 3, which is 6, for 4 children"),
        ({"kind": LinkKind.TORUS, "shape": (4,)}, "two dimensions or more"),
        ({"kind": LinkKind.TORUS, "shape": (4, 1)}, "two dimensions or more"),
        ({"kind": LinkKind.TORUS, "shape": (2**40, 2**40)}, r"2\^64 or more, for 4 children"),
        ({"kind": LinkKind.LINKS}, "either a matrix of links or a kind"),
        ({"links": SQUARE}, "either a matrix of links or a kind"),
    ],
)
def test_topologies_fit_their_level(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(MachineError, match=message):
        Level("gpu", 4, 1e9, 1e-6, **settings)


@pytest.mark.parametrize(
    ("links", "message"),
    [
        (((0, 1), (1, 0)), "2 rows for 4 children"),
        ((*SQUARE[:3], (2, 0, 1)), "of 4 rows, row 3 has 3 numbers"),
        ((*SQUARE[:3], (2, 0, 2, 0)), "1 from child 2 to 3 and 2 back"),
        ((*SQUARE[:3], (2, 0, 1, 1)), "1 between child 3 and itself"),
        (((0, 1, 0, 0), (1, 0, 0, 0), (0, 0, 0, 1), (0, 0, 1, 0)), "child 2 without a way"),
        (((0, -1), (-1, 0)), "2 rows for 4 children"),
        (tuple((0,) * 65 for _ in range(65)), "65 rows: at most 64"),
    ],
)
def test_links_are_a_matrix(links: tuple[tuple[int, ...], ...], message: str) -> None:
    with pytest.raises(MachineError, match=message):
        Level("gpu", 4, 1e9, 1e-6, LinkKind.LINKS, links=links)


@pytest.mark.parametrize("count", [-1, 2**16 + 1])
def test_there_are_not_too_many_links(count: int) -> None:
    with pytest.raises(MachineError, match="0 to 65536 are possible"):
        Level("gpu", 2, 1e9, 1e-6, LinkKind.LINKS, links=((0, count), (count, 0)))


def test_a_port_is_shared_out_over_links() -> None:
    def wires(size: int, kind: LinkKind, **settings: Any) -> int:
        return Level("gpu", size, 1e9, 1e-6, kind, **settings).wires

    assert wires(4, LinkKind.SWITCH) == wires(4, LinkKind.BUS) == 0
    assert wires(4, LinkKind.RING) == 2
    assert wires(4, LinkKind.FULL) == 3
    assert wires(24, LinkKind.TORUS, shape=(2, 3, 4)) == 5
    assert wires(3, LinkKind.LINKS, links=((0, 2, 0), (2, 0, 1), (0, 1, 0))) == 3


def test_the_first_children_keep_their_ports() -> None:
    uneven = Level("node", 4, 4.0, 0.0, ports=(1.0, 2.0, 4.0, 4.0))
    assert uneven.first(2) == Level("node", 2, 2.0, 0.0, ports=(1.0, 2.0))
    assert uneven.first(4) is uneven
    tapered = Level("node", 4, 4.0, 0.0, taper=3.0)
    assert tapered.first(2) == Level("node", 2, 4.0, 0.0, taper=1.5)
    square = Level("node", 4, 4.0, 0.0, LinkKind.LINKS, links=SQUARE)
    assert square.first(1) == Level("node", 1, 4.0, 0.0)
    torus = Level("node", 4, 4.0, 0.0, LinkKind.TORUS, shape=(2, 2))
    assert torus.first(1) == Level("node", 1, 4.0, 0.0)
    with pytest.raises(MachineError, match="2 x 2, which is 4, for 2 children"):
        torus.first(2)


def test_a_switch_in_place_of_links_keeps_ports() -> None:
    uneven = Level("node", 2, 4.0, 0.0, ports=(1.0, 4.0))
    assert uneven.switched == uneven
    torus = Level("node", 4, 4.0, 0.0, LinkKind.TORUS, taper=2.0, shape=(2, 2))
    assert torus.switched == Level("node", 4, 4.0, 0.0)
