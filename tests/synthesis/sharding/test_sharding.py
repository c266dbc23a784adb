"""The layouts of a function are those of the least time of all, by trying all."""

import itertools
import random

import pytest
from auto import random_auto
from checks import functions_of
from hypothesis import given, settings
from programs import RANDOM
from xdsl.dialects.func import FuncOp

import collir
from collir.cost.model import CostModel
from collir.synthesis.propagation.graph import Graph
from collir.synthesis.propagation.propagate import lay_out
from collir.synthesis.propagation.rewrite import with_layout
from collir.synthesis.sharding.factors import Sum
from collir.synthesis.sharding.moves import Moves
from collir.synthesis.sharding.shard import sharding_of
from collir.synthesis.sharding.solver import least_sum
from collir.synthesis.sharding.ways import Ways
from collir.synthesis.sharding.work import Work

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


def _least_of_all(function: FuncOp, graph: Graph) -> float:
    """Return the least time of all combinations of ways and layouts, added up step by step."""
    ways, moves = Ways(graph.mesh, Work(function, graph.mesh)), Moves(graph.mesh, CostModel())
    listed = [ways.of(relation) for relation in graph.relations]
    best = float("inf")
    for layouts in itertools.product(*(ways.layouts(tensor) for tensor in graph.tensors)):
        for chosen in itertools.product(*listed):
            total, brought = 0.0, dict[object, float]()
            for relation, way in zip(graph.relations, chosen, strict=True):
                total += way.seconds
                for tensor, there in zip(relation.members[:-1], way.needs, strict=True):
                    x, to = (with_layout(tensor.type, y) for y in (layouts[tensor.number], there))
                    brought[tensor.number, there] = moves.seconds(x, to)
                result = relation.members[-1]
                to = with_layout(result.type, layouts[result.number])
                shared = relation.addends if way.left.partial else 1
                total += moves.seconds(way.left, to) / shared
            best = min(best, total + sum(brought.values()))
    return best


@pytest.mark.parametrize("text", FUNCTIONS)
def test_no_layouts_are_faster(text: str) -> None:
    (function,) = functions_of(collir.parse(f"{MACHINE} func @f{text}"))
    graph = Graph.build(function)
    found = least_sum(sharding_of(function, graph, CostModel()).sum)
    assert found.sum == found.bound == pytest.approx(_least_of_all(function, graph), rel=1e-9)


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
