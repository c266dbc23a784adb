"""The time of each link beside that of the busiest one, which a simulation knows by itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import collir
from collir.cost.network.loads import Resource, ResourceKind
from collir.cost.programs.links import link_seconds

LINKS = {
    "kind = ring": 8,
    "kind = ring, rails = 1": 6,
    "kind = full": 6,
    "kind = torus, shape = 2 x 4": 8,
    "kind = torus, shape = 2 x 2 x 3": 12,
    "links = [[0, 2, 1, 1], [2, 0, 1, 1], [1, 1, 0, 2], [1, 1, 2, 0]]": 4,
    "links = [[0, 3, 0], [3, 0, 1], [0, 1, 0]]": 3,
}
ALGORITHMS = "ring", "halving_doubling", "recursive_doubling", "direct", ""


def text_of(links: str, count: int, algorithm: str, times: int = 1) -> str:
    using = f" using {algorithm}" * bool(algorithm)
    return f"""
machine @r {{ level gpu[{count}] {{ port = 25 GB/s, latency = 10 us, {links} }} }}
mesh @m on @r {{ data = gpu:{count} }}
func @f(%g: f32[24000000] partial(sum: data)) -> f32[24000000] on @m {{
  %z = repeat {times} carry(%x = %g) {{
    %r = all_reduce %x over data{using}
    %p = mask %r over data op sum
    yield %p
  }}
  %r = all_reduce %z over data{using}
  return %r
}}
"""


@given(st.sampled_from([*LINKS]), st.sampled_from(ALGORITHMS), st.integers(1, 3))
def test_no_link_is_busier_than_the_busiest(links: str, algorithm: str, times: int) -> None:
    module = collir.parse(text_of(links, LINKS[links], algorithm, times))
    [simulation] = collir.simulate(module, model="alpha-beta")
    seconds = link_seconds(simulation, 0)
    busiest = simulation.busy[Resource(0, ResourceKind.LINK)]
    assert seconds and all(a < b for a, b in seconds)
    assert max(seconds.values()) <= busiest * (1 + 1e-9)
    if algorithm in ("ring", ""):  # one pattern, whose busiest link is the same in all rounds
        assert max(seconds.values()) == pytest.approx(busiest)
    level = simulation.mesh.machine.levels[0]
    if level.links:
        assert all(level.links[a][b] for a, b in seconds)


def test_bytes_of_links_are_those_of_ports_where_a_ring_uses_two() -> None:
    [simulation] = collir.simulate(collir.parse(text_of("kind = ring", 8, "ring")), "alpha-beta")
    ports = simulation.busy[Resource(0, ResourceKind.PORT)]
    assert link_seconds(simulation, 0) == pytest.approx(
        {(a, a + 1): ports for a in range(7)} | {(0, 7): ports}
    )


def test_switches_and_models_of_ports_have_no_links() -> None:
    [plain] = collir.simulate(collir.parse(text_of("kind = switch", 8, "ring")), "alpha-beta")
    [ports] = collir.simulate(collir.parse(text_of("kind = ring", 8, "ring")), "nccl")
    assert not link_seconds(plain, 0) and not link_seconds(ports, 0)
