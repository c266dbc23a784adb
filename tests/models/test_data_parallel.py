"""The gradients of ResNet-50, data parallel: in buffers, and beside the backward pass."""

import runpy
from functools import cache

import pytest
from support.programs.model_pages import ROOT
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.dialects.coll import OPERATIONS
from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.functions import functions_of
from collir.layout import Reduction

BENCHMARK = runpy.run_path(str(ROOT / "benchmarks" / "passes.py"))

PARAMETERS, TENSORS = 25_557_032, 161
GAINS = 64 + sum(
    blocks * 6 * width + 4 * width for blocks, width in ((3, 64), (4, 128), (6, 256), (3, 512))
)
"""The gains of all 53 normalisations. Their gradients are sums that the backward pass needs on all
devices at once, so they are in no buffer."""


@cache
def straight() -> ModuleOp:
    """Return the page with all operations of its training step one by one."""
    return BENCHMARK["straight"](BENCHMARK["program"]("resnet50"), "resnet50")


@cache
def step() -> FuncOp:
    """Return the training step, with all operations one by one."""
    [function] = functions_of(straight())
    return function


def gradients(function: FuncOp) -> list[DistOp]:
    """Return the all_reduces of sums on which no other collective depends, in their order."""
    awaited = BENCHMARK["awaited"](function)
    return [
        op
        for op in function.body.ops
        if isinstance(op, OPERATIONS["all_reduce"])
        and dist_type(op.input).reduction is Reduction.SUM
        and op not in awaited
    ]


def sizes_of(op: DistOp) -> list[int]:
    """Return the bytes of the tensors in a buffer."""
    owner = op.input.owner
    tensors = owner.operands if isinstance(owner, OPERATIONS["concat"]) else op.operands
    return [dist_type(tensor).local_bytes(mesh_of(op)) for tensor in tensors]


@pytest.mark.slow
def test_each_parameter_is_reduced_once() -> None:
    sizes = [size for op in gradients(step()) for size in sizes_of(op)]
    assert len(sizes) == TENSORS - 53
    assert sum(sizes) == 4 * (PARAMETERS - GAINS)


@pytest.mark.slow
def test_ddp_packs_until_a_limit_is_reached() -> None:
    [function] = functions_of(BENCHMARK["baseline"](straight(), BENCHMARK["DDP"]()))
    reduced = gradients(function)
    assert all("async" in op.properties for op in reduced)
    buckets = [sizes_of(op) for op in reduced]
    assert sum(map(sum, buckets)) == 4 * (PARAMETERS - GAINS)
    assert sum(map(len, buckets)) == TENSORS - 53
    limits = [2**20, *[25 * 2**20] * len(buckets)]
    for limit, bucket in zip(limits, buckets[:-1], strict=False):
        assert sum(bucket) >= limit > sum(bucket[:-1])


@pytest.mark.slow
def test_the_pipeline_is_faster_than_other_systems() -> None:
    """By what it hides of the latencies of normalisations, too."""
    [(_, times)] = BENCHMARK["rows_of"]("resnet50")
    *baselines, ours = times
    assert ours < min(baselines) * 0.9
