"""Programs whose blocks differ in size, by the weights of an axis: what is proven of them."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from support.programs.collectives import RANDOM, random_module
from xdsl.dialects.func import FuncOp
from xdsl.rewriter import Rewriter

from collir.dialects.coll import OPERATIONS
from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.functions import functions_of
from collir.ir.steps import step_op
from collir.semantics.validation.loops import decided
from collir.semantics.validation.proof import proven
from collir.semantics.validation.validate import compare, executed
from collir.semantics.validation.verdict import Outcome
from collir.syntax.reader import read
from collir.syntax.writer import write

MACHINE = """
machine @box { level node[2] { port = 8 GB/s, latency = 20 us }
               level gpu[4] { port = 270 GB/s, latency = 3 us } }
mesh @m on @box { data = node:2 * gpu:4 weights [3, 3, 1, 1, 1, 1, 1, 1] }
mesh @xy on @box { x = 2 weights [3, 1], y = 2 weights [3, 1], z = 2 }
"""

SUM = "%g: f32[24, 5] partial(sum: data)"
PAIRS = {
    "a reduce_scatter and an all_gather are an all_reduce": (
        f"({SUM}) -> f32[24, 5] on @m",
        "%r = all_reduce %g over data",
        """%0 = reduce_scatter %g over data dim 0
           %r = all_gather %0 over data dim 0""",
        Outcome.SAME,
    ),
    "levels may be taken one after the other, as a major part is": (
        f"({SUM}) -> f32[24@data, 5] on @m",
        "%r = reduce_scatter %g over data dim 0",
        """%0 = reduce_scatter %g over data.node dim 0
           %1 = reduce_scatter %0 over data.gpu dim 0
           %2 = all_gather %1 over data.gpu dim 0
           %r = slice %2 over data.gpu dim 0""",
        Outcome.SAME,
    ),
    "two all_to_alls undo each other": (
        "(%g: f32[24@data, 12]) -> f32[24@data, 12] on @m",
        "%r = scale %g by 1",
        """%0 = all_to_all %g over data dim 0 to 1
           %r = all_to_all %0 over data dim 1 to 0""",
        Outcome.SAME,
    ),
    "gathering at a root and scattering changes nothing": (
        "(%g: f32[24@data]) -> f32[24@data] on @m",
        "%r = scale %g by 1",
        """%0 = gather %g over data dim 0
           %r = scatter %0 over data dim 0""",
        Outcome.SAME,
    ),
    "a permute between axes of equal weights is a new cut": (
        "(%g: f32[8@x, 3]) -> f32[8@y, 3] on @xy",
        "%r = permute %g to f32[8@y, 3]",
        """%0 = all_gather %g over x dim 0
           %r = slice %0 over y dim 0""",
        Outcome.SAME,
    ),
    "a redistribute between dimensions is a gather of both and a slice of both": (
        "(%g: f32[8@y, 8@x], %v: f32[8@x, 8@y]) -> f32[8@x, 8@y] on @xy",
        """%0 = redistribute %g to f32[8@x, 8@y]
           %r = add %v, %0""",
        """%0 = all_gather %g over y dim 0
           %1 = all_gather %0 over x dim 1
           %2 = slice %1 over x dim 0
           %3 = slice %2 over y dim 1
           %r = add %v, %3""",
        Outcome.SAME,
    ),
    "a redistribute to the transposed layout is no transpose": (
        "(%g: f32[8@z, 8@x]) -> f32[8@x, 8@z] on @xy",
        "%r = redistribute %g to f32[8@x, 8@z]",
        "%r = transpose %g order [1, 0]",
        Outcome.DIFFERENT,
    ),
    "a split and a merge of an uneven dimension change nothing": (
        "(%g: f32[8@x, 3]) -> f32[8@x, 3] on @xy",
        "%r = scale %g by 1",
        """%0 = split %g dim 0 into [4, 2]
           %r = merge %0 dim 0""",
        Outcome.SAME,
    ),
    "parts of a contraction may be added before their neighbours": (
        "(%x: f32[5, 24@data], %y: f32[24@data, 5]) -> f32[5, 5] on @m",
        """%0 = all_gather %x over data dim 1
           %1 = all_gather %y over data dim 0
           %r = einsum "i j, j k -> i k" %0, %1""",
        """%0 = einsum "i j, j k -> i k" %x, %y
           %1 = all_reduce %0 over data.node
           %r = all_reduce %1 over data.gpu""",
        Outcome.SAME,
    ),
    "parts of a contraction may be single positions": (
        "(%x: f32[5, 12@data], %y: f32[12@data, 5]) -> f32[5, 5] on @m",
        """%0 = einsum "i j, j k -> i k" %x, %y
           %r = all_reduce %0 over data""",
        """%0 = einsum "i j, j k -> i k" %x, %y
           %1 = all_reduce %0 over data.node
           %r = all_reduce %1 over data.gpu""",
        Outcome.SAME,
    ),
    "blocks of which only the order of sub-axes differs are other blocks": (
        "(%g: f32[16]) -> f32[16] on @xy",
        "%r = scale %g by 1",
        """%0 = slice %g over x, y dim 0
           %1 = permute %0 to f32[16@(y, x)]
           %2 = all_gather %1 over y, x dim 0
           %3 = split %2 dim 0 into [4, 4]
           %4 = transpose %3 order [1, 0]
           %r = merge %4 dim 0""",
        Outcome.DIFFERENT,
    ),
    "a mask counts a copy once, and a reduction without one does not": (
        "(%g: f32[24]) -> f32[24] on @m",
        "%r = scale %g by 1",
        """%0 = mask %g over data op sum
           %1 = reduce_scatter %0 over data dim 0
           %2 = all_gather %1 over data dim 0
           %r = scale %2 by 2""",
        Outcome.DIFFERENT,
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_are_proven(name: str) -> None:
    head, before, after, outcome = PAIRS[name]
    modules = [read(f"{MACHINE}func @f{head} {{ {body}\n return %r }}") for body in (before, after)]
    [old], [new] = (functions_of(module) for module in modules)
    verdict = proven(old, new)
    assert (verdict.outcome, verdict.how) == (outcome, "proof"), verdict.explanation


@pytest.mark.turns
@given(rng=RANDOM)
@settings(max_examples=12)
def test_a_program_is_proven_equal_to_itself(rng: random.Random) -> None:
    module = random_module(
        rng, functions=1, steps=6, weights=1.0, models=rng.random() < 0.3, redistributes=0.7
    )
    [old], [new] = functions_of(module), functions_of(read(write(module)))
    assert decided(old, new).outcome is Outcome.SAME


@given(rng=RANDOM)
@settings(max_examples=6)
def test_redistributes_are_proven_equal_to_plain_steps(rng: random.Random) -> None:
    module = random_module(rng, functions=1, steps=5, weights=1.0, nested=False, redistributes=0.9)
    [old], [new] = functions_of(read(write(module))), functions_of(read(write(module)))
    for op in list(new.body.ops):
        if isinstance(op, DistOp) and op.mnemonic == "redistribute":
            put_plain_steps(op)
    assert decided(old, new).outcome is not Outcome.DIFFERENT
    if not plant_mistake(rng, new):
        return
    verdict = decided(old, new)
    if verdict.how == "proof" and not any(op.name == "coll.compute" for op in old.walk()):
        assert executed(old, new, "").outcome is verdict.outcome


def put_plain_steps(op: DistOp) -> None:
    """Put steps in the place of a redistribute: the whole value everywhere, and then cut."""
    mesh, x, to = mesh_of(op), dist_type(op.input), dist_type(op.result)
    steps: list[tuple[str, dict[str, Any]]] = []
    if axes := mesh.ordered(x.partial - to.partial):
        steps.append(("all_reduce", {"axes": axes}))
    if x.place:
        steps.append(("broadcast", {"axes": mesh.ordered(x.placed)}))
    cut = ((dim, entry.axes) for dim, entry in enumerate(x.dims) if entry.axes)
    steps += [("all_gather", {"axes": axes, "dim": dim}) for dim, axes in cut]
    cut = ((dim, entry.axes) for dim, entry in enumerate(to.dims) if entry.axes)
    steps += [("slice", {"axes": axes, "dim": dim}) for dim, axes in cut]
    if axes := mesh.ordered(to.partial - x.partial):
        steps.append(("mask", {"axes": axes, "reduction": str(to.reduction)}))
    if to.place:
        steps.append(("keep", {"place": to.place}))
    ops: list[DistOp] = []
    for name, arguments in steps or [("barrier", {})]:
        value = ops[-1].result if ops else op.input
        ops.append(step_op(mesh, OPERATIONS[name].KIND, [value], **arguments))
    assert ops[-1].result.type == op.result.type
    Rewriter.replace_op(op, ops, [ops[-1].result])


def plant_mistake(rng: random.Random, function: FuncOp) -> bool:
    """Let a step take another value of the type of its operand; return whether one can."""
    steps = [op for op in function.body.ops if isinstance(op, DistOp)]
    for op in rng.sample(steps, len(steps)):
        for number, value in enumerate(op.operands):
            earlier = [x for other in steps[: steps.index(op)] for x in other.results]
            same = [x for x in (*function.args, *earlier) if x.type == value.type and x != value]
            if same:
                op.operands[number] = rng.choice(same)
                return True
    return False


@pytest.mark.turns
@pytest.mark.parametrize(
    ("count", "verdict"),
    [
        (200, "the same for all inputs"),
        (1000, "equal on 2 runs (its axes with weights have 1000 coordinates"),
        (20_000, "not run, as it is on 20000 devices"),
    ],
)
def test_many_weights_take_no_long_time(count: int, verdict: str) -> None:
    rng = random.Random(count)
    weights = [rng.randint(1, 3) for _ in range(count)]
    module = read(f"""
        machine @many {{ level gpu[{count}] {{ port = 8 GB/s, latency = 3 us }} }}
        mesh @m on @many {{ data = gpu:{count} weights {weights} }}
        func @f(%x: f32[{sum(weights)}@data]) -> f32[{sum(weights)}] on @m {{
          %y = all_gather %x over data dim 0
          return %y
        }}""")
    [function] = functions_of(module)
    assert verdict in compare(function, function).explanation
