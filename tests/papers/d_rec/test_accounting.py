"""Products and a network are divided as D-Rec is said to divide them."""

import pytest
from d_rec.accounting import d_rec
from support.programs.cubes import function_on_cube


@pytest.mark.parametrize(
    ("sizes", "cuts"),
    [
        ((256, 512, 512), "iij"),
        ((256, 25088, 4096), "kkk"),
        ((256, 4096, 4096), "jkj"),
        ((256, 9216, 4096), "kkj"),
        ((32768, 768, 3072), "iii"),
        ((16384, 12288, 49152), "iji"),
    ],
)
def test_a_product_is_cut_as_d_rec_does(sizes: tuple[int, int, int], cuts: str) -> None:
    i, k, j = sizes
    graph, levels = d_rec(
        function_on_cube(f"""
func @f(%a: f32[{i}, {k}], %b: f32[{k}, {j}]) -> f32[{i}, {j}] on @m auto {{
  %0 = einsum "i k, k j -> i j" %a, %b
  return %0
}}""")
    )
    places = levels[-1].places[graph.relations[0]]
    assert "".join(places[axis] for axis in reversed(graph.mesh.by_name)) == cuts


def test_a_network_is_cut_as_d_rec_does() -> None:
    """The first product of the MLP of the published check has the strategy ((4, 2), (1, 2)), that
    is I, K, I."""
    graph, levels = d_rec(
        function_on_cube("""
func @f(%a: f32[256, 784], %u: f32[784, 512], %v: f32[512, 512], %w: f32[512, 1])
    -> f32[256, 1] on @m auto {
  %0 = einsum "i k, k j -> i j" %a, %u
  %1 = relu %0
  %2 = einsum "i k, k j -> i j" %1, %v
  %3 = relu %2
  %4 = einsum "i k, k j -> i j" %3, %w
  return %4
}""")
    )
    first, sharding = graph.relations[0], levels[0].sharding
    costs = {i: w.seconds for w in sharding.ways[sharding.variable_of[first]] for i in w.axes}
    assert {i: cost / 4 for i, cost in costs.items()} == {"i": 50_176, "j": 100_352, "k": 65_536}
    cuts = [levels[-1].places[first][axis] for axis in reversed(graph.mesh.by_name)]
    assert cuts == ["i", "k", "i"]
    blocks = {index: 2 ** cuts.count(index) for index in "ijk"}
    assert [[blocks[i] for i in over] for over in ("ik", "kj")] == [[4, 2], [2, 1]]
