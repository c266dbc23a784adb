"""One page of ``.coll`` runs at every degree of parallelism, 1 included, and computes the same."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from support.harness.seeds import chosen
from support.semantics.checks import functions_of
from support.targets.on_ranks import arguments_of, differences
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import collir
from collir.dialects.machine import mesh_of
from collir.dialects.tensor import dist_type
from collir.ir.buffers import plan_buffers
from collir.semantics.reference.buffers import assemble, distribute
from collir.semantics.reference.executor import execute
from collir.semantics.validation.validate import compare
from collir.semantics.validation.verdict import Outcome

PAGE = """
machine @box {{
  level node[{node}] {{ port = 8 GB/s, latency = 20 us }}
  level gpu[{gpu}] {{ port = 270 GB/s, latency = 3 us }}
}}
mesh @m on @box {{ {axes} }}

func @by_hand(%g: f32[16, 32@tensor] partial(sum: data), %w: f32[16@(pipe, data), 32] root(tensor))
    -> (f32[16@data, 32], f32[32@(tensor, pipe), 16] partial(sum: data)) on @m {{
  %0 = reduce_scatter %g over data dim 0
  %1 = slice %0 over pipe dim 1
  %2 = scale %1 by 3
  %3 = all_gather %2 over tensor, pipe dim 1
  %4 = scatter %w over tensor dim 1 async
  %5 = all_to_all %4 over data dim 0 to 1
  %6 = all_gather %5 over data dim 1
  %7 = mask %6 over data op sum
  %8 = all_to_all %7 over pipe dim 0 to 1
  %9 = transpose %8 order [1, 0]
  return %3, %9
}}
func @planned(%g: f32[16, 32@tensor] partial(sum: data), %w: f32[16@(pipe, data), 32] root(tensor))
    -> (f32[16@data, 32], f32[32@(tensor, pipe), 16] partial(sum: data)) on @m {{
  %0 = redistribute %g to f32[16, 32]
  %1 = scale %0 by 3
  %2 = redistribute %1 to f32[16@data, 32]
  %3 = redistribute %w to f32[16, 32@(tensor, pipe)]
  %4 = transpose %3 order [1, 0]
  %5 = redistribute %4 to f32[32@(tensor, pipe), 16] partial(sum: data)
  return %2, %5
}}
"""

DEGREES = list(itertools.product((1, 2, 4), repeat=3))


def page(data: int, tensor: int, pipe: int, placed: bool) -> ModuleOp:
    axes = (
        f"data = node:{data}, tensor = gpu:{tensor}, pipe = node:1 * gpu:{pipe}"
        if placed
        else f"data = {data}, tensor = {tensor}, pipe = {pipe}"
    )
    text = PAGE.format(node=data, gpu=tensor * pipe, axes=axes)
    if placed:  # a factor of 1 may be named too
        text = text.replace("over tensor, pipe dim 1", "over tensor, pipe.node, pipe.gpu dim 1")
    return collir.parse(text)


def results(module: ModuleOp, function: FuncOp) -> list[np.ndarray]:
    """Return the global results of a function on inputs that do not depend on the mesh."""
    mesh, rng = mesh_of(function), np.random.default_rng(3)
    buffers: list[list[np.ndarray | None]] = []
    for arg in function.args:
        x = dist_type(arg)
        tensor = np.arange(np.prod(x.shape), dtype=np.float32).reshape(x.shape) % 17
        buffers.append(distribute(mesh, tensor, x, rng))
    outputs = execute(module, function, buffers)
    returned = plan_buffers(function).returned
    types = [dist_type(value) for value in returned]
    return [assemble(mesh, *output) for output in zip(outputs, types, strict=True)]


@pytest.mark.turns
@pytest.mark.parametrize("placed", [False, True], ids=["unplaced", "placed"])
@pytest.mark.parametrize("degrees", DEGREES, ids=str)
def test_every_degree_computes_the_same_and_is_proven(
    degrees: tuple[int, int, int], placed: bool
) -> None:
    alone = page(1, 1, 1, placed)
    module = page(*degrees, placed)
    by_hand, planned = functions_of(module)
    for function in (by_hand, planned):
        expected = results(alone, functions_of(alone)[0])
        for tensor, reference in zip(results(module, function), expected, strict=True):
            np.testing.assert_array_equal(tensor, reference)
    verdict = compare(planned, by_hand)
    assert (verdict.outcome, verdict.how) == (Outcome.SAME, "proof")
    again = collir.parse(collir.emit(module))
    assert collir.emit(again) == collir.emit(module)


def test_steps_over_nothing_are_gone() -> None:
    by_hand = functions_of(page(1, 1, 1, placed=False))[0]
    assert [op.name for op in by_hand.body.ops] == ["coll.scale", "coll.transpose", "func.return"]


@pytest.mark.turns
@pytest.mark.parametrize("degrees", chosen([d for d in DEGREES if np.prod(d) <= 8], 3), ids=str)
def test_degrees_run_on_ranks(degrees: tuple[int, int, int], tmp_path: Path) -> None:
    module = page(*degrees, placed=True)
    collir.run_passes(module, "decompose")
    functions = functions_of(module)
    assert not differences(module, functions, tmp_path)
    assert len(arguments_of(functions[0])[0]) == np.prod(degrees)
