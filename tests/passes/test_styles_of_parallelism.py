"""The styles of parallelism in examples/models/styles.coll send what their papers say, and compute
what a single device does."""

from collections import Counter
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from support.harness.seeds import some
from support.programs.model_pages import function_of, inputs_of, page
from support.semantics.differentiated import on_all_devices, on_one_device
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block

from collir.dialects.machine import mesh_of
from collir.dialects.nested import RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.semantics.reference.double import in_double
from collir.semantics.validation.validate import Outcome, compare
from collir.synthesis.propagation.propagate import make_explicit

LAYERS = 4
SIZES = {"seq": 2048, "hidden": 4096, "heads": 32, "layers": LAYERS}
WEIGHTS = 12 * SIZES["hidden"] ** 2 * LAYERS * 4
"""Bytes of all weights in f32: four matrices of attention, and two that are four times as large."""


def activation(batch: int) -> int:
    """Return the bytes of the activations of all layers at one point of a layer."""
    return batch * SIZES["seq"] * SIZES["hidden"] * 4 * LAYERS


DATA = WEIGHTS // 2
"""The weights behind tensor parallelism: each device sums its share over `data`, in halves."""

SENT: dict[str, dict[tuple[str, str], int]] = {
    "data_parallel": {("all_reduce", "data, model"): WEIGHTS},
    # Rajbhandari et al. 2020: gradients are scattered once, weights gathered once
    "zero_1": {
        ("reduce_scatter", "data, model"): WEIGHTS,
        ("all_gather", "data, model"): WEIGHTS,
    },
    # and here gathered twice, forward and backward
    "fully_sharded": {
        ("reduce_scatter", "data, model"): WEIGHTS,
        ("all_gather", "data, model"): 2 * WEIGHTS,
    },
    # Shoeybi et al. 2019: two all_reduces of a layer forward, two backward, on half of the batch
    "tensor_parallel": {
        ("all_reduce", "model"): 4 * activation(1),
        ("all_reduce", "data"): WEIGHTS // 4,
    },
    # Korthikanti et al. 2022: each is an all_gather and a reduce_scatter, and inputs are gathered
    # again backward
    "sequence_parallel": {
        ("all_gather", "model"): 6 * activation(1),
        ("reduce_scatter", "model"): 4 * activation(1),
        ("all_reduce", "data"): WEIGHTS // 4,
    },
    # keys and values are gathered forward and backward, and their gradients scattered
    "context_parallel": {
        ("all_gather", "model"): 4 * activation(4),
        ("reduce_scatter", "model"): 2 * activation(4),
        ("all_reduce", "data, model"): WEIGHTS,
    },
    "mixed": {
        ("all_reduce", "model"): 4 * activation(4),
        ("all_gather", "data"): 2 * WEIGHTS // 4,
        ("reduce_scatter", "data"): WEIGHTS // 4,
    },
}
"""Style -> collective and axes -> the bytes of a device before a reduction, or behind a gather."""


def collectives(block: Block, times: int = 1) -> Iterator[tuple[DistOp, int]]:
    """Yield the collectives of a program, each with the number of times that it runs."""
    for op in block.ops:
        if isinstance(op, RepeatOp):
            yield from collectives(op.body.block, times * op.times)
        elif isinstance(op, DistOp) and op.kind.sends:
            yield op, times


def sent(function: FuncOp) -> dict[tuple[str, str], int]:
    """Return the bytes of each collective of a function, without those of single numbers."""
    mesh, total = mesh_of(function), Counter[tuple[str, str]]()
    for op, times in collectives(function.body.block):
        size = max(dist_type(x).local_bytes(mesh) for x in (op.input, op.result))
        if size > 4:
            total[op.mnemonic, ", ".join(mesh.short(op.over))] += times * size
    return dict(total)


@cache
def explicit(**sizes: int) -> ModuleOp:
    """Return the page at some sizes, with layouts for all values."""
    module = page("styles", **sizes)
    make_explicit(module)
    return module


@pytest.mark.turns
@pytest.mark.parametrize("style", SENT)
def test_the_collectives_of_a_style_are_those_of_its_paper(style: str) -> None:
    assert sent(function_of(explicit(), style)) == SENT[style]


@pytest.mark.turns
@pytest.mark.parametrize("style", some(list(SENT), 3))
def test_a_style_computes_what_one_device_does(style: str) -> None:
    small = {"batch": 8, "seq": 8, "hidden": 32, "heads": 8, "layers": 2}
    written, _ = in_double(function_of(page("styles", **small), style))
    module, function = in_double(function_of(explicit(**small), style))
    tensors = inputs_of(function, 2)
    expected = on_one_device(function_of(written, style), tensors)
    for x, y in zip(on_all_devices(module, function, tensors), expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)


@pytest.mark.turns
@pytest.mark.parametrize("style", some(list(SENT), 3, "proven"))
def test_a_style_is_proven(style: str) -> None:
    """At its true sizes, with layouts of the other arguments as they were chosen."""
    before, after = (function_of(module, style) for module in (page("styles"), explicit()))
    verdict = compare(before, after)
    assert (verdict.outcome, verdict.how) == (Outcome.SAME, "proof")
