"""The layouts of a function are those of the least time of all, by trying all."""

import random

import pytest
from hypothesis import given, settings
from support.programs.auto_functions import random_auto
from support.programs.collectives import RANDOM
from support.programs.model_pages import page
from support.semantics.checks import functions_of
from support.semantics.single_device import single_device
from support.synthesis.all_layouts import least_of_all
from xdsl.dialects.func import FuncOp

import collir
from collir.cost.model import CostModel
from collir.cost.programs.simulate import simulate_function
from collir.synthesis.propagation.graph import TensorGraph
from collir.synthesis.propagation.propagate import lay_out
from collir.synthesis.sharding import shard as exact
from collir.synthesis.sharding.descent.descent import Descent
from collir.synthesis.sharding.factors import FactorSum
from collir.synthesis.sharding.layouts import ShardOptions
from collir.synthesis.sharding.problem import Sharding
from collir.synthesis.sharding.shard import sharding_of
from collir.synthesis.sharding.solver import VariableValues, least_sum

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
    graph = TensorGraph.build(function)
    found = least_sum(sharding_of(function, graph, CostModel()).sum)
    assert found.sum == found.bound == pytest.approx(least_of_all(function), rel=1e-9)


@settings(max_examples=20)
@given(RANDOM)
def test_random_functions_are_proven(rng: random.Random) -> None:
    module = random_auto(rng, computes=True)
    if module is None:
        return
    found: list[tuple[TensorGraph, Sharding]] = []

    def keep(function: FuncOp, closed: bool) -> None:
        graph = TensorGraph.build(function, closed)
        found.append((graph, sharding_of(function, graph, CostModel())))

    lay_out(module, keep)
    for graph, sharding in found:
        least = least_sum(sharding.sum, 20.0)
        assert not least.ended
        values = Descent(graph, sharding, list(graph.mesh.by_name)).run()
        assert sharding.sum.value(values) >= least.sum * (1 - 1e-9)


def test_a_search_that_ends_early_is_no_worse_than_descents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def ended(whole: FactorSum, _seconds: float | None = None) -> VariableValues:
        values = dict.fromkeys(range(len(whole.sizes)), 0)
        return VariableValues(values, whole.value(values), 0.0, "time limit")

    best = _seconds_of_step()
    monkeypatch.setattr(exact, "least_sum", ended)
    assert best <= _seconds_of_step() <= 1.2 * best
    monkeypatch.setattr(exact, "Descent", _NoDescent)
    assert _seconds_of_step() > 1.5 * best


class _NoDescent:
    """A descent that stays where it starts."""

    def __init__(self, _graph: TensorGraph, sharding: Sharding, _axes: list[str]):
        self.count = len(sharding.sum.sizes)

    def run(self) -> dict[int, int]:
        """Return the first value of each variable."""
        return dict.fromkeys(range(self.count), 0)


def _seconds_of_step() -> float:
    """Return the time of the training step of a small model as it is sharded."""
    module = single_device(page("mlp", batch=4096))
    exact.shard(module, ShardOptions(CostModel()))
    step = next(f for f in functions_of(module) if f.sym_name.data == "step")
    return simulate_function(step, CostModel()).time
