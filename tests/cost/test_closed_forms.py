"""The closed forms against all messages of all devices, on small machines of all kinds."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cost.algorithms import ALGORITHMS
from support.cost.messages import Network, groups, time_of
from support.machine.machines import steps

from collir.cost.collectives.meter import Meter
from collir.cost.network.group import CostError, Group
from collir.layout import Mesh


@pytest.mark.turns
@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, names in ALGORITHMS.items() for name in names]
)
@settings(max_examples=8)
@given(step=steps(), turned=st.integers(0, 99))
def test_a_closed_form_is_what_its_messages_take(
    kind: str, name: str, step: tuple[Mesh, tuple[str, ...], frozenset[str]], turned: int
) -> None:
    """The root of a broadcast or a scatter may be any rank: the next one is the second then."""
    mesh, axes, root = step
    device = mesh.machine.device
    n = 720720.0
    group = Group.of(mesh, axes, root)
    first = turned % group.size if kind in ("broadcast", "scatter") else 0
    meter = Meter(group, first)
    try:
        ALGORITHMS[kind][name](meter, n)
    except CostError as error:
        assert not meter.group.is_power_of_two or "trees are not costed" in str(error)
        return
    members = [own[first:] + own[:first] for own in groups(mesh, axes, root)]
    network = Network(mesh, members)
    g = 1 / device.reduction if device and device.reduction else 0.0
    expected = time_of(network, kind, name, n, g)
    if expected is None:
        return  # pipelined trees and chains: test_algorithms.py
    assert meter.estimate.time == pytest.approx(expected, rel=1e-9)
    assert meter.estimate.port_bytes == pytest.approx(network.port_bytes(), rel=1e-9)
