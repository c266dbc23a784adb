"""Programs that a host issues kernel by kernel, as eager PyTorch does."""

import pytest

import collir
from collir.cost.programs.critical import time_shares
from collir.cost.programs.local_steps import LocalStep
from collir.cost.programs.simulate import simulate
from collir.cost.programs.simulation import Simulation

PROGRAM = """
machine @box {
  device {
    compute f16 = 1e15 FLOP/s; memory = 1 TB @ 1e12 B/s; launch = 1 us; maps = apart; CLAUSES
  }
  level gpu[2] { port = 1 TB/s, latency = 1 us }
}
mesh @m on @box { model = 2 }

func @twice(%x: f16[...]) -> f16[...] on any {
  %a = gelu %x
  %y = scale %a by 2
  return %y
}

func @layers(%x: f16[64, 128], %w: f16[COUNT, 128, 128@model]) -> f16[64, 128] on @m {
  %y = repeat COUNT carry(%x = %x) slice(%w = %w) {
    %a = einsum "b h, h f -> b f" %x, %w
    %g = call @twice(%a) fused
    %p = einsum "b f, h f -> b h" %g, %w
    %z = all_reduce %p over model
    yield %z
  }
  %half = scale %y by 0.5
  return %half
}
"""


def simulated(clauses: str, count: int = 4) -> Simulation:
    text = PROGRAM.replace("CLAUSES", clauses).replace("COUNT", str(count))
    return simulate(collir.parse(text))[-1]


def test_a_function_takes_as_long_as_its_host() -> None:
    """Three kernels and a collective are issued for each layer, and a kernel behind them."""
    plain = simulated("")
    assert plain.issued_on(0) == 0
    for issue in (1e-9, 100e-6):
        slow = simulated(f"issue = {1e6 * issue} us")
        assert slow.issues_on(0) == 4 * 4 + 1
        assert slow.time == pytest.approx(max(plain.time, 17 * issue))


def test_the_time_that_is_waited_for_the_host_is_told() -> None:
    slow = simulated("issue = 100 us; sync = 10 us")
    shares = time_shares(slow)
    assert sum(share.time for share in shares) == pytest.approx(slow.time)
    assert shares[0].cause == "host"
    assert shares[0].time == pytest.approx(17 * 100e-6 - simulated("sync = 10 us").time)


def test_a_collective_takes_its_sync_too() -> None:
    times = [simulated(f"sync = {sync} us").time for sync in (0, 50)]
    assert times[1] - times[0] == pytest.approx(4 * 50e-6)


def test_fused_calls_are_kernels_where_maps_are_apart() -> None:
    loop = simulated("").program[0].loop
    assert loop is not None
    kinds = [step.kind for step in loop.body.program]
    assert [kind for kind in kinds if kind != "copy"] == [
        "einsum",
        "gelu+scale",
        "einsum",
        "all_reduce",
    ]


def test_products_read_what_other_kernels_wrote() -> None:
    """The second product keeps its matrices behind a kernel of two operations."""
    loop = simulated("").program[0].loop
    assert loop is not None
    steps = [step.does for step in loop.body.program if step.kind == "einsum"]
    assert [isinstance(does, LocalStep) and does.product is not None for does in steps] == [
        True,
        True,
    ]


ODD = """
machine @box {
  device { compute f16 = 1 TFLOP/s; memory = 1 TB @ 1e15 B/s; efficiency unaligned = 0.25 }
  level gpu[2] { port = 1 TB/s, latency = 1 us }
}
mesh @m on @box { model = 2 }
func @f(%x: f16[64, 128], %w: f16[128, WORDS]) -> f16[64, WORDS] on @m {
  %y = einsum "b h, h v -> b v" %x, %w
  return %y
}
"""


def test_products_of_odd_sizes_are_slower() -> None:
    even, odd = (simulate(collir.parse(ODD.replace("WORDS", str(n))))[0].time for n in (800, 801))
    assert odd / even == pytest.approx(4 * 801 / 800)
