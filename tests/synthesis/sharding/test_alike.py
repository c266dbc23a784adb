"""Equal layers that are written one after the other are searched once."""

import random

import pytest
from hypothesis import given, settings
from support.programs.collectives import RANDOM
from support.semantics.checks import functions_of

import collir
from collir.cost.model import CostModel
from collir.synthesis.propagation.graph import TensorGraph
from collir.synthesis.sharding import problem
from collir.synthesis.sharding.alike import alike, tied
from collir.synthesis.sharding.problem import Sharding
from collir.synthesis.sharding.shard import sharding_of
from collir.synthesis.sharding.solver import least_sum

TEXT = """
machine @box {{ device {{ compute f32 = {rate} TFLOP/s; memory = 40 GB @ 1 TB/s }}
               level gpu[4] {{ port = {port} GB/s, latency = 3 us }} }}
mesh @m on @box {{ x = gpu:4 }}
func @loss(%x: f32[{batch}, 256], %v: f32[{layers}, 256, 512], %w: f32[{layers}, 512, 256])
    -> f32[] on @m auto {{
  %y = repeat {layers} carry(%h = %x) slice(%v = %v, %w = %w) {{
    %0 = einsum "b i, i j -> b j" %h, %v
    %1 = relu %0
    %2 = einsum "b j, j k -> b k" %1, %w
    %3 = softmax %2 dims [1]
    %4 = add %h, %3
    yield %4
  }}
  %loss = mean %y dims [0, 1]
  return %loss
}}
func @step(%x: f32[{batch}, 256], %v: f32[{layers}, 256, 512] parameter,
           %w: f32[{layers}, 512, 256] parameter)
    -> (f32[], f32[{layers}, 256, 512] parameter, f32[{layers}, 512, 256] parameter) on @m auto {{
  %l, %dv, %dw = gradient @loss(%x, %v, %w) wrt %v, %w
  %a = sub %v, %dv
  %b = sub %w, %dw
  return %l, %a, %b
}}
"""
"""A training step of layers with residuals."""


def unrolled(layers: int, batch: int = 64, port: int = 50, rate: int = 20) -> Sharding:
    """Return the choices of layouts in the step of layers one after the other."""
    text = TEXT.format(layers=layers, batch=batch, port=port, rate=rate)
    module = collir.run_passes(collir.parse(text), "differentiate,inline,unroll")
    step = next(f for f in functions_of(module) if f.sym_name.data == "step")
    return sharding_of(step, TensorGraph.build(step), CostModel())


@pytest.mark.turns
@given(rng=RANDOM)
@settings(max_examples=10)
def test_a_sum_of_equal_values_stays(rng: random.Random) -> None:
    whole = unrolled(rng.randint(2, 4), rng.choice([4, 64, 1024])).sum
    few = rng.randint(1, 3)  # any variables of equal size may be one
    for of in (
        alike(whole, whole.sizes),
        alike(whole, [(n, v % few) for v, n in enumerate(whole.sizes)]),
    ):
        fewer = tied(whole, of)
        assert len(fewer.sizes) == len(set(of)) < len(of)
        values = {v: rng.randrange(size) for v, size in enumerate(fewer.sizes)}
        each = {v: values[own] for v, own in enumerate(of)}
        assert fewer.value(values) == pytest.approx(whole.value(each), rel=1e-9)


@pytest.mark.turns
@pytest.mark.parametrize(("batch", "port"), [(8, 200), (64, 20), (4096, 20)])
def test_equal_layers_are_searched_once(
    batch: int, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = least_sum(unrolled(6, batch, port).sum)
    monkeypatch.setattr(problem, "MANY", 0)
    sizes = [len(unrolled(layers, batch, port).sum.sizes) for layers in (6, 12, 24)]
    assert sizes[0] == sizes[1] == sizes[2], "more layers are no more variables"
    found = least_sum(unrolled(6, batch, port).sum)
    assert not exact.ended and not found.ended
    assert exact.sum * (1 - 1e-9) <= found.sum <= exact.sum * 1.02
