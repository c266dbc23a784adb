"""Programs of `decompose` are never slower, as simulated, than those written or of a strategy."""

import pytest
from support.harness.seeds import fresh
from support.machine.levelled_machines import random_program

import collir
from collir.synthesis.programs.fixed import STRATEGIES

CLUSTER = """
machine @cluster {
  device { compute f64 = 36 GFLOP/s; memory = 4 GiB @ 3.2 GB/s; reduction = 10 GB/s }
  level node[128] { port = 25 GB/s, latency = 1.3 us, fabric = network }
  level socket[2] { port = 144 GB/s, latency = 700 ns, fabric = memory }
  level core[32] { port = 102.4 GB/s, latency = 500 ns, kind = bus, fabric = memory }
}
mesh @world on @cluster { p = node:128 * socket:2 * core:32 }
func @f(%x: f64[13107200] partial(sum: p)) -> f64[13107200] on @world {
  %r = all_reduce %x over p
  return %r
}
"""
"""Here the program that sends for the shortest time ends in a transpose of the whole value."""


def seconds(text: str, passes: str) -> float:
    module = collir.parse(text)
    return collir.simulate(collir.run_passes(module, passes) if passes else module)[0].time


def assert_pays(text: str) -> None:
    others = {name: seconds(text, f"decompose{{strategy={name}}}") for name in STRATEGIES}
    assert seconds(text, "decompose") <= min(others.values()) * (1 + 1e-6), (text, others)


def test_a_transpose_of_all_is_counted() -> None:
    assert_pays(CLUSTER)


def test_a_cluster_that_ships() -> None:
    sockets = "machine @cluster = @cpu_cluster(nodes = 16)\n"
    assert_pays(
        sockets
        + CLUSTER[CLUSTER.index("mesh") :].replace("node:128", "node:16").replace(":32", ":64")
    )


@pytest.mark.turns
@pytest.mark.parametrize("number", range(12))
def test_some_machines(number: int) -> None:
    assert_pays(random_program(fresh(number)))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(10))
def test_a_thousand_machines(number: int) -> None:
    rng = fresh("many", number)
    for _ in range(100):
        assert_pays(random_program(rng))
