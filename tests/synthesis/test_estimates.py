"""Estimates of the time of collectives, by which layouts are chosen: those of rings, by hand."""

import pytest
from checks import functions_of

import collir
from collir.dialects.machine import mesh_of
from collir.synthesis.propagation.estimate import Estimates

TEXT = """
machine @rack { level node[2] { port = 10 GB/s, latency = 20 us }
                level gpu[4] { port = 100 GB/s, latency = 3 us } }
mesh @m on @rack { data = node:2, model = gpu:4 }
func @f(%x: f32[8]) -> f32[8] on @m { return %x }
"""

WHOLE, BY_DATA, BY_MODEL = ((),), (("data.node",),), (("model.gpu",),)
SIZE = 8000

# Four devices are behind the port of a node.
NODE, GPU = 10e9 / 4, 100e9


@pytest.mark.parametrize(
    ("before", "after", "partial", "seconds"),
    [
        (WHOLE, WHOLE, ["data.node"], 2 * 1 / 2 * SIZE / NODE),  # all_reduce
        (WHOLE, BY_DATA, ["data.node"], 1 / 2 * SIZE / NODE),  # reduce_scatter
        (BY_MODEL, WHOLE, [], 3 / 4 * SIZE / GPU),  # all_gather
        (WHOLE, BY_MODEL, [], 0),  # slice
        # The fast sub-axis goes first, and leaves a quarter to the other one.
        (WHOLE, WHOLE, ["data.node", "model.gpu"], 2 * 3 / 4 * SIZE / GPU + SIZE / 4 / NODE),
    ],
)
def test_the_time_of_a_move_is_that_of_rings(
    before: tuple[tuple[str, ...]],
    after: tuple[tuple[str, ...]],
    partial: list[str],
    seconds: float,
) -> None:
    (function,) = functions_of(collir.parse(TEXT))
    estimates = Estimates(mesh_of(function))
    assert estimates.move(SIZE, before, after, frozenset(partial)) == pytest.approx(seconds)
