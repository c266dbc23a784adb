"""The layouts of a function are those of the least time of all, by trying all."""

import random

import pytest
from all_layouts import least_of_all
from auto import random_auto
from checks import functions_of
from hypothesis import given, settings
from programs import RANDOM
from xdsl.dialects.func import FuncOp

import collir
from collir.cost.model import CostModel
from collir.synthesis.propagation.graph import Graph
from collir.synthesis.propagation.propagate import lay_out
from collir.synthesis.sharding.factors import Sum
from collir.synthesis.sharding.shard import sharding_of
from collir.synthesis.sharding.solver import least_sum

MACHINE = """
machine @box { device { compute f32 = 1 TFLOP/s; memory = 1 GB @ 1 TB/s }
               level gpu[2] { port = 8 GB/s, latency = 3 us } }
mesh @m on @box { x = gpu:2 }
"""

FUNCTIONS = [
    """(%x: f32[64, 32], %w: f32[32, 32]) -> f32[64, 32] on @m auto {
      %0 = einsum "b i, i j -> b j" %x, %w
      return %0
    }""",
    """(%x: f32[64, 32], %w: f32[32]) -> f32[64] on @m auto {
      %0 = exp %x
      %1 = einsum "b i, i -> b" %0, %w
      return %1
    }""",
    """(%x: f32[64@x], %y: f32[64]) -> f32[] on @m auto {
      %0 = mul %x, %y
      %1 = sum %y dims [0]
      %2 = max %0 dims [0]
      %3 = add %1, %2
      return %3
    }""",
    """(%x: f32[64, 64]) -> f32[64, 64] on @m auto {
      %0 = transpose %x order [1, 0]
      %1 = mul %0, %x
      %2 = exp %x
      %3 = add %1, %2
      return %3
    }""",
]


@pytest.mark.parametrize("text", FUNCTIONS)
def test_no_layouts_are_faster(text: str) -> None:
    (function,) = functions_of(collir.parse(f"{MACHINE} func @f{text}"))
    graph = Graph.build(function)
    found = least_sum(sharding_of(function, graph, CostModel()).sum)
    assert found.sum == found.bound == pytest.approx(least_of_all(function), rel=1e-9)


@settings(max_examples=20)
@given(RANDOM)
def test_random_functions_are_proven(rng: random.Random) -> None:
    module = random_auto(rng, computes=True)
    if module is None:
        return
    sums: list[Sum] = []

    def keep(function: FuncOp, closed: bool) -> None:
        graph = Graph.build(function, closed)
        sums.append(sharding_of(function, graph, CostModel()).sum)

    lay_out(module, keep)
    for whole in sums:
        assert not least_sum(whole, 20.0).ended
