"""Attention around a ring is attention: results, gradients, what is sent, and what is kept."""

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.passes.remarks import remarks_of
from support.programs.model_pages import function_of, inputs_of, page, with_gradients
from support.semantics.differentiated import on_all_devices, on_one_device
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block

import collir
from collir.cost.model import CostModel
from collir.cost.programs.simulate import simulate_function
from collir.dialects.machine import mesh_of
from collir.dialects.nested import RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.selection import erase_other_functions
from collir.semantics.reference.double import in_double

MACHINE = """\
machine @box {
  device { compute f32 = 19.5 TFLOP/s, bf16 = 312 TFLOP/s; memory = 40 GB @ 1555 GB/s }
  level node[2] { port = 25 GB/s, latency = 5 us }
  level gpu[6] { port = 300 GB/s, latency = 3 us }
}
mesh @m on @box { data = gpu:2, ring = node:2 * gpu:3 }
"""


def program(rng: random.Random) -> str:
    """Return a function with attention, and one with its loss: over a ring of 2, 3 or 6 devices,
    with dimensions in any order, groups of heads, masks and a window."""
    over = rng.choice(["ring.node", "ring.gpu", "ring"])
    words, size = rng.choice([6, 12]), rng.choice([1, 4])
    sizes = {"b": "2@data", "s": f"{words}", "g": "2", "h": "3", "d": f"{size}"}
    letters = ["b", "s", "g", "d"]
    grouped = rng.random() < 0.5
    orders = {name: rng.sample(letters, 4) for name in "kv"}
    orders["q"] = rng.sample([*letters, "h"] if grouped else letters, 4 + grouped)

    def operand(name: str, whole: bool = False) -> str:
        dims = (f"{sizes[x]}@{over}" if x == "s" and not whole else sizes[x] for x in orders[name])
        return f"f32[{', '.join(dims)}]"

    heads = ["g", "h"] if grouped else ["g"]
    scores = [*rng.sample(["b", *heads], 1 + len(heads)), *rng.sample(["s", "t"], 2)]
    rank = len(scores)
    shape = [sizes.get(x, f"{words}") for x in scores]
    shape = [f"{n}@{over}" if x == "s" else n for x, n in zip(scores, shape, strict=True)]
    out = rng.sample(["b", "s", *heads, "d"], 3 + len(heads))
    of_keys = " ".join("t" if x == "s" else x for x in orders["k"])
    of_values = " ".join("t" if x == "s" else x for x in orders["v"])

    def ones(*letters: str) -> str:
        dims = (n if x in letters else "1" for x, n in zip(scores, shape, strict=True))
        return f"[{', '.join(dims)}]"

    text = f"{' '.join(orders['q'])}, {of_keys} -> {' '.join(scores)}"
    lines = [f'%products = einsum "{text}" %q, %kk']
    last = "%products"
    arguments = [f"%{name}: {operand(name)}" for name in "qkv"]
    if rng.random() < 0.5:
        arguments.append(f"%slopes: f32{ones('g')}")
        lines.append(f"%sloped = mul {last}, %slopes")
        last = "%sloped"
    if rng.random() < 0.5:
        where = rng.choice([f"%bias: f32{ones('b', 's')}", f"%bias: f32{ones('b', 't')}"])
        arguments.append(where)
        lines.append(f"%biased = add {last}, %bias")
        last = "%biased"
    if rng.random() < 0.7:
        query, key = scores.index("s"), scores.index("t")
        short = rng.random() < 0.5  # positions without the dimensions in front
        front = min(query, key) if short else 0
        dims = [n if x in ("s", "t") else "1" for x, n in zip(scores, shape, strict=True)]
        to = f"i32[{', '.join(dims[front:])}]"
        low = rng.choice(["-1e30", "-1000"])
        lines += [
            f"%query = iota dim {query - front} to {to}",
            f"%key = iota dim {key - front} to {to}",
            f"%seen = {rng.choice(['less_equal', 'greater_equal', 'not_equal'])} %key, %query",
            f"%low = constant value {low} to f32[]",
            f"%masked = where %seen, {last}, %low",
        ]
        last = "%masked"
    lines += [
        f"%shares = softmax {last} dims [{scores.index('t')}]",
        f'%y = einsum "{" ".join(scores)}, {of_values} -> {" ".join(out)}" %shares, %vv',
    ]
    assert rank == len(shape)
    gathers = [
        f"%kk = all_gather %k over {over} dim {orders['k'].index('s')}",
        f"%vv = all_gather %v over {over} dim {orders['v'].index('s')}",
    ]
    result = ", ".join(f"{sizes[x]}@{over}" if x == "s" else sizes[x] for x in out)
    body = "\n  ".join([*gathers, *lines])
    named = ", ".join(x.partition(":")[0] for x in arguments)
    return f"""{MACHINE}
func @attention({", ".join(arguments)}) -> f32[{result}] on @m {{
  {body}
  return %y
}}

func @loss({", ".join(arguments)}) -> f32[] on @m {{
  %y = call @attention({named})
  %s = sin %y
  %p = mul %s, %y
  %t = sum %p dims [0, 1, 2, 3{", 4" if grouped else ""}]
  %l = all_reduce %t over data, {over}
  return %l
}}
"""


def rewritten(module: ModuleOp, passes: str = "ring-attention") -> list[str]:
    """Rewrite the attention in a module, and return the remarks."""
    return remarks_of(module, passes)


def shifts(block: Block, times: int = 1) -> Counter[tuple[int, int]]:
    """Return how often a program shifts, by the direction and the bytes of a device."""
    found = Counter[tuple[int, int]]()
    for op in block.ops:
        if isinstance(op, RepeatOp):
            found += shifts(op.body.block, times * op.times)
        elif isinstance(op, DistOp) and op.mnemonic == "shift":
            size = dist_type(op.result).local_bytes(mesh_of(op))
            found[op.integer("distance"), size] += times
    return found


def agree(a: FuncOp, b: FuncOp, seed: int = 3) -> None:
    """Check that a function computes on all devices what another one does on one, in f64."""
    module, function = in_double(a)
    _, alone = in_double(b)
    tensors = inputs_of(function, 2, seed)
    for x, y in zip(
        on_all_devices(module, function, tensors), on_one_device(alone, tensors), strict=True
    ):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-11)


@pytest.mark.turns
@given(st.randoms(use_true_random=False))
@settings(max_examples=8, deadline=None)
def test_the_results_are_those_of_attention(rng: random.Random) -> None:
    text = program(rng)
    module = collir.parse(text)
    assert rewritten(module) == []
    assert sum(shifts(function_of(module, "ring_attention").body.block).values()) >= 2
    agree(function_of(module, "attention"), function_of(collir.parse(text), "attention"))


@given(st.randoms(use_true_random=False))
@settings(max_examples=2, deadline=None)
def test_the_results_are_those_of_attention_without_layouts(rng: random.Random) -> None:
    text = program(rng).partition("func @loss")[0]
    auto = "\n".join(line for line in text.splitlines() if "all_gather" not in line)
    auto = auto.replace("%kk", "%k").replace("%vv", "%v").replace("on @m {", "on @m auto {")
    module = collir.parse(auto)
    assert rewritten(module, "ring-attention,propagate") == []
    assert sum(shifts(function_of(module, "ring_attention").body.block).values()) >= 2
    agree(function_of(module, "attention"), function_of(collir.parse(text), "attention"))


@given(st.randoms(use_true_random=False))
@settings(max_examples=2, deadline=None)
def test_the_gradients_are_those_of_attention(rng: random.Random) -> None:
    text = program(rng)
    module, before = collir.parse(text), collir.parse(text)
    assert rewritten(module) == []
    ring, _ = with_gradients(module, "loss")
    agree(ring, with_gradients(before, "loss")[0])


SMALL = {"batch": 8, "seq": 8, "hidden": 32, "heads": 8, "layers": 2}


def context_parallel(passes: str, **sizes: int) -> FuncOp:
    """Return a training step behind passes, at some sizes, without the other styles of its page."""
    module = page("styles", **sizes)
    erase_other_functions(module, ["context_parallel"])
    _ = rewritten(module, passes)
    return function_of(module, "context_parallel")


@pytest.mark.turns
def test_context_parallel_training_shifts_blocks_once_less_than_there_are_devices() -> None:
    """Keys and values forward; backward they go back, and their cotangents with them."""
    function = context_parallel("ring-attention,propagate")
    batch, seq, hidden, layers, ring = 8 // 2, 2048, 4096, 4, 4
    block = batch * seq // ring * hidden * 4
    assert shifts(function.body.block) == {
        (1, block): layers * 2 * (ring - 1),
        (-1, block): layers * 4 * (ring - 1),
    }
    kinds = {op.mnemonic for op in function.walk() if isinstance(op, DistOp) and op.kind.sends}
    assert kinds == {"shift", "all_reduce"}


@pytest.mark.slow
def test_a_training_step_computes_what_one_device_does() -> None:
    function = context_parallel("ring-attention,propagate", **SMALL)
    assert any(isinstance(op, DistOp) and op.mnemonic == "shift" for op in function.walk())
    agree(function, function_of(page("styles", **SMALL), "context_parallel"), 2)


@pytest.mark.slow
def test_no_device_holds_all_keys_or_a_row_of_scores() -> None:
    """What training keeps grows as the words do: a ring has blocks of scores, and forgets them."""
    ring, gathered = (
        simulate_function(context_parallel(passes, seq=8192, layers=2), CostModel()).peak
        for passes in ("ring-attention,propagate", "propagate")
    )
    scores = 4 * 32 * (8192 // 4) * 8192 * 4
    assert gathered > 2 * scores  # stacked, one for each layer
    assert ring < gathered - 2 * scores * 3 // 4
