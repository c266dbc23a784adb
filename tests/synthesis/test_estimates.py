"""Estimates of the time of steps, by which layouts are chosen: those of rings, by hand, where bytes
are so many that latencies do not count."""

import pytest
from support.semantics.checks import functions_of

import collir
from collir.dialects.machine import mesh_of
from collir.layout import Dim, DistType, DType, Reduction
from collir.synthesis.propagation.estimate import Estimates

TEXT = """
machine @rack { level node[2] { port = 10 GB/s, latency = 20 us }
                level gpu[4] { port = 100 GB/s, latency = 3 us } }
mesh @m on @rack { data = node:2, model = gpu:4 }
func @f(%x: f32[2000000000]) -> f32[2000000000] on @m { return %x }
"""

WHOLE, BY_DATA, BY_MODEL = ((),), (("data.node",),), (("model.gpu",),)
SIZE = 8_000_000_000

# Four devices are behind the port of a node.
NODE, GPU = 10e9 / 4, 100e9


@pytest.mark.parametrize(
    ("before", "after", "partial", "seconds"),
    [
        (WHOLE, WHOLE, ["data.node"], 2 * 1 / 2 * SIZE / NODE),  # all_reduce
        (WHOLE, BY_DATA, ["data.node"], 1 / 2 * SIZE / NODE),  # reduce_scatter
        (BY_MODEL, WHOLE, [], 3 / 4 * SIZE / GPU),  # all_gather
        (WHOLE, BY_MODEL, [], 2 * SIZE / 4 / 1e12),  # slice: a copy in a memory of 1 TB/s
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
    estimates = Estimates(function, mesh_of(function))
    x = DistType(DType.F32, (Dim(SIZE // 4),))
    reduction = Reduction.SUM if partial else None
    seen = estimates.move(x, before, after, frozenset(partial), reduction)
    assert seen == pytest.approx(seconds, rel=1e-3)
