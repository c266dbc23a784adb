"""Costs of collectives on blocks that differ in size: sizes by definition, and bounds that hold."""

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from support.programs.collectives import RANDOM, random_function, random_mesh

import collir
from collir.cost.model import CostModel, step_cost
from collir.cost.network.group import CostError
from collir.cost.programs.collectives import collective_of
from collir.dialects.operation import DistOp, is_collective
from collir.dialects.tensor import dist_type
from collir.layout import Dim, DistType, Mesh
from collir.semantics.reference.devices import block_shape, groups
from collir.syntax.reader import read


def block_bytes(mesh: Mesh, rank: int, dims: tuple[Dim, ...], x: DistType) -> int:
    return math.prod(block_shape(mesh, rank, dims)) * x.dtype.bytes


def blocks_sent(mesh: Mesh, op: DistOp) -> list[list[list[int]]]:
    """Return the bytes of the block of each rank for each rank, group by group, one by one.

    Where a collective has one block for each rank, all rows are the same.
    """
    x, y = dist_type(op.operands[0]), dist_type(op.result)
    changed = [d for d, (a, b) in enumerate(zip(x.dims, y.dims, strict=True)) if a != b]
    if len(changed) == 1:
        part = x if op.kind.gathers else y
        return [
            [[block_bytes(mesh, rank, part.dims, x) for rank in group]]
            for group in groups(mesh, op.over)
        ]
    pieces: list[list[list[int]]] = []
    source, target = op.integer("source"), op.integer("target")
    for group in groups(mesh, op.over):
        rows: list[list[int]] = []
        for sender in group:
            mine = block_shape(mesh, sender, x.dims)
            rows.append([])
            for receiver in group:
                theirs = block_shape(mesh, receiver, y.dims)
                piece = list(mine)
                piece[target] = theirs[target]
                assert mine[source] <= theirs[source]
                rows[-1].append(math.prod(piece) * x.dtype.bytes)
        pieces.append(rows)
    return pieces


@given(rng=RANDOM)
@settings(max_examples=24)
def test_sizes_are_those_of_the_blocks(rng: random.Random) -> None:
    mesh = random_mesh(rng, weights=1.0)
    function = random_function(rng, mesh, 8)
    for op in function.body.ops:
        if not is_collective(op) or not op.kind.ordered:
            continue
        collective = collective_of(op, mesh)
        sent = blocks_sent(mesh, op)
        ranks = mesh.group_size(op.over)
        largest = ranks * max(max(max(row) for row in rows) for rows in sent)
        smallest = ranks * min(min(min(row) for row in rows) for rows in sent)
        assert collective.padded == largest
        assert collective.least == smallest
        assert collective.size == max(max(map(sum, rows)) for rows in sent)
        if not op.kind.exchanges:
            around = max(sum(rows[0]) - min(rows[0]) for rows in sent) * ranks / (ranks - 1)
            assert collective.size_for("ring") == pytest.approx(
                around if op.kind.name in ("all_gather", "reduce_scatter") else largest
            )


@pytest.mark.parametrize("model", ["alpha-beta", "p2", "nccl"])
@given(rng=RANDOM)
@settings(max_examples=12)
def test_bounds_hold_and_padding_costs_most(model: str, rng: random.Random) -> None:
    mesh = random_mesh(rng, weights=1.0)
    function = random_function(rng, mesh, 8)
    for op in filter(is_collective, function.body.ops):
        collective = collective_of(op, mesh)
        try:
            cost = step_cost(collective, CostModel(model))
        except CostError:
            continue
        assert cost.shared_bound <= cost.bound * (1 + 1e-9)
        assert cost.bound <= cost.time * (1 + 1e-9)
        padded = replace(collective, size=collective.padded, uneven=None)
        assert cost.time <= step_cost(padded, CostModel(model)).time * (1 + 1e-9)
        assert cost.collective.least <= collective.size <= collective.padded * (1 + 1e-9)


RING = """
machine @box { level gpu[4] { port = 100 GB/s, latency = 1 us, fabric = nvlink } }
mesh @m on @box { x = gpu:4 weights [5, 1, 1, 1] }
func @f(%g: f32[8000000] partial(sum: x)) -> f32[8000000] on @m {
  %0 = reduce_scatter %g over x dim 0
  %1 = all_gather %0 over x dim 0
  return %1
}
"""


def test_a_ring_carries_all_blocks_but_the_smallest() -> None:
    """Check p - 1 latencies and 7 of 8 parts: with equal blocks it would be 3 of 4."""
    for step in collir.simulate(read(RING), model="alpha-beta", algorithm="ring")[0].collectives:
        assert step.time == pytest.approx(3e-6 + 32e6 * 7 / 8 / 100e9)
    trees = collir.simulate(read(RING), model="alpha-beta", algorithm="direct")[0].collectives
    for step in trees:
        assert step.algorithm.endswith("direct, padded")
        assert step.time == pytest.approx(3e-6 + 3 * 20e6 / 100e9)


def test_nccl_pads_small_blocks_and_groups_large_ones() -> None:
    large = collir.simulate(read(RING))[0].collectives
    assert [s.algorithm.split(" ring")[0] for s in large] == ["grouped reduce", "grouped broadcast"]
    small = collir.simulate(read(RING.replace("8000000", "8000")))[0].collectives
    assert all(step.algorithm.endswith(", padded") for step in small)


def test_memory_counts_the_largest_blocks() -> None:
    (simulation,) = collir.simulate(read(RING))
    assert simulation.peak == 32e6 + 20e6 + 32e6
