"""Tests of the rings through a matrix of links that share no link."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from collir.cost.network.disjoint_rings import edge_disjoint_rings


@given(st.integers(3, 8), st.data())
def test_rings_use_no_link_twice(n: int, data: st.DataObject) -> None:
    links = [[0] * n for _ in range(n)]
    for a in range(n):
        for b in range(a):
            links[a][b] = links[b][a] = data.draw(st.integers(0, 2))
    left = [list(row) for row in links]
    for ring in edge_disjoint_rings(links):
        assert sorted(ring) == list(range(n))
        for a, b in pairwise((*ring, ring[0])):
            left[a][b] -= 1
            left[b][a] -= 1
    assert min(map(min, left)) >= 0
