"""Costs of sends and shifts, at any coordinates, against their messages one by one."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cost.messages import Network, groups, rounds
from support.machine.machines import steps

import collir
from collir.cost.bounds import collective_bound
from collir.cost.collectives.collective import Collective, RingShift, Route
from collir.cost.model import CostModel, step_cost
from collir.cost.network.group import CostError

SIZES = st.sampled_from([1.0, 720.0, 720720.0, 1e9])


@st.composite
def messages(draw: st.DrawFn) -> Collective:
    """Draw a send or a shift on a random machine, at any coordinates of other sub-axes."""
    mesh, axes, held = draw(steps())
    count = mesh.group_size(axes)
    subs = [mesh.by_name[axis] for axis in sorted(held)]
    base = sum(draw(st.integers(0, sub.size - 1)) * sub.stride for sub in subs)
    beside = [axis for axis in mesh.by_name if axis not in axes and axis not in held]
    replicated = frozenset(axis for axis in beside if draw(st.booleans()))
    kind = draw(st.sampled_from(["send", "shift"]))
    step = Collective(kind, mesh, axes, draw(SIZES), held, replicated, base=base)
    if kind == "send":
        sender = draw(st.integers(0, count - 1))
        ahead = draw(st.integers(1, count - 1))
        return replace(step, sent_by=Route(sender, (sender + ahead) % count))
    is_open = draw(st.booleans())
    distance = draw(st.integers(1, count - is_open)) * draw(st.sampled_from([-1, 1]))
    return replace(step, sent_by=RingShift(distance, is_open))


def listed(step: Collective) -> list[tuple[int, int, float]]:
    """Return the messages of a group as (sender, receiver, bytes)."""
    if isinstance(step.sent_by, Route):
        return [(step.sent_by.sender, step.sent_by.receiver, step.size)]
    assert isinstance(step.sent_by, RingShift)
    (distance, is_open), count = step.sent_by, step.ranks
    pairs = [(rank, rank + distance) for rank in range(count)]
    return [(a, b % count, step.size) for a, b in pairs if not is_open or 0 <= b < count]


@given(step=messages())
@settings(max_examples=36)
def test_the_time_is_that_of_the_messages(step: Collective) -> None:
    first = groups(step.mesh, step.axes, step.at_root)
    network = Network(step.mesh, [[device + step.base for device in group] for group in first])
    expected = rounds(network, [(listed(step), 0.0)])
    cost = step_cost(step, CostModel("alpha-beta", order="written"))
    assert cost.time == pytest.approx(expected)
    assert cost.port_bytes == pytest.approx(network.port_bytes())


@given(step=messages(), model=st.sampled_from(["alpha-beta", "p2", "nccl", "auto"]))
@settings(max_examples=36)
def test_no_message_is_faster_than_its_bound(step: Collective, model: str) -> None:
    try:
        cost = step_cost(step, CostModel(model))
    except CostError:
        return
    assert max(cost.bound, cost.shared_bound) <= cost.time * (1 + 1e-9)
    assert cost.shared_bound <= cost.bound * (1 + 1e-9)
    assert collective_bound(step).latency < math.inf


STAGES = """
machine @pair {
  device { compute f32 = 1 TFLOP/s; memory = 1 GiB @ 1 TB/s }
  level node[2] { port = 10 GB/s, latency = 5 us }
  level gpu[2]  { port = 100 GB/s, latency = 1 us }
}
mesh @m on @pair { stage = node:2, data = gpu:2 }
func @f(%x: f32[250000] root(stage), %y: f32[500000] at(stage = 1))
    -> f32[250000] at(stage = 1) on @m {
  %a = compute %x flops 1e9
  %b = compute %y flops 2e9
  %c = send %a over stage from 0 to 1
  %r = compute %c, %b flops 1e9
  return %r
}
"""


def test_stages_compute_at_once_and_hold_their_own_values() -> None:
    (run,) = collir.simulate(collir.parse(STAGES), model="alpha-beta")
    # Both stages compute, then 1 MB of each of the two devices goes through the port of a node.
    assert run.time == pytest.approx(2e-3 + 5e-6 + 2e6 / 10e9 + 1e-3)
    assert run.peak == 3e6  # stage 1 has %y and the result, which lies in memory of its own
