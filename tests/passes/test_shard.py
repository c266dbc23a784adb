"""Functions whose layouts were searched compute what they did, in the parallelism of the books."""

import random

import pytest
from hypothesis import given, settings
from support.harness.seeds import fresh
from support.programs.auto_functions import random_auto
from support.programs.collectives import RANDOM
from support.semantics.laid_out import check_meaning

import collir
from collir.cost.model import CostModel
from collir.ir.remarks import listening
from collir.synthesis.searching import Limit
from collir.synthesis.sharding.layouts import ShardOptions
from collir.synthesis.sharding.shard import shard


@pytest.mark.turns
@settings(max_examples=24)
@given(RANDOM)
def test_the_meaning_stays(rng: random.Random) -> None:
    module = random_auto(rng, computes=True)
    if module is not None:
        check_meaning(module, lambda module: shard(module, ShardOptions(CostModel(), 10.0)))


@pytest.mark.parametrize("checks", [0, 30, 3000])
def test_the_limit_may_end_anywhere(checks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables, rounds and the search end where the time is checked next; the meaning stays."""
    rng, number = fresh("limit", checks), 0
    module = next(filter(None, (random_auto(rng, computes=True) for _ in range(100))))

    def clock() -> float:
        nonlocal number
        number += 1
        return float(number > checks)

    def limit_of(_: float | None) -> Limit:
        return Limit(0.5, clock)

    monkeypatch.setattr(Limit, "of", limit_of)
    said: list[str] = []
    with listening(lambda diagnostic: said.append(diagnostic.message)):
        check_meaning(
            module, lambda module: shard(module, ShardOptions(CostModel(), 10.0, explain=True))
        )
    if checks <= 3:
        assert any("not known within the limit of 10 s" in text for text in said)
    elif number > checks:
        assert any("the limit" in text or "time limit" in text for text in said)


STEP = """
machine @box {{ device {{ compute f32 = 10 TFLOP/s; memory = 10 GB @ 1 TB/s }}
               level gpu[4] {{ port = 8 GB/s, latency = 3 us }} }}
mesh @m on @box {{ x = gpu:4 }}
func @loss(%x: f32[{batch}, 1024], %v: f32[1024, 4096], %w: f32[4096, 1024]) -> f32[] on @m auto {{
  %0 = einsum "b i, i j -> b j" %x, %v
  %1 = relu %0
  %2 = einsum "b j, j k -> b k" %1, %w
  %3 = mul %2, %2
  %4 = mean %3 dims [0, 1]
  return %4
}}
func @step(%x: f32[{batch}, 1024], %v: f32[1024, 4096] parameter, %w: f32[4096, 1024] parameter)
    -> (f32[], f32[1024, 4096] parameter, f32[4096, 1024] parameter) on @m auto {{
  %l, %dv, %dw = gradient @loss(%x, %v, %w) wrt %v, %w
  %a = sub %v, %dv
  %b = sub %w, %dw
  return %l, %a, %b
}}
"""


@pytest.mark.parametrize(
    ("batch", "first", "second"),
    [
        (16, "1024, 4096@x", "4096@x, 1024"),  # Megatron's pair
        (1 << 18, "1024, 4096", "4096, 1024"),  # data parallelism
    ],
)
def test_the_batch_decides_between_the_parallelisms(batch: int, first: str, second: str) -> None:
    module = collir.run_passes(collir.parse(STEP.format(batch=batch)), "shard")
    text = str(collir.emit(module, "coll"))
    signature = text[text.index("func @step") :].split("->")[0]
    if "@x" in first:
        assert f"%v: f32[{first}]" in signature
        assert f"%w: f32[{second}]" in signature
    else:
        assert f"%x: f32[{batch}@x, 1024]" in signature
        assert "all_to_all" not in text
