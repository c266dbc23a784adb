"""Results of passes are proven equal, and results of wrong passes are proven different."""

import random
from collections.abc import Callable
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from support.harness.hanging import within
from support.harness.seeds import fresh
from support.programs.collectives import RANDOM, random_module
from support.semantics.checks import functions_of
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from collir.dialects.coll import OPERATIONS
from collir.dialects.operation import DistOp
from collir.dialects.tensor import AxesAttr
from collir.ir.diagnostics import DiagnosticError
from collir.layout import DType
from collir.semantics.reference.buffers import NUMPY
from collir.semantics.reference.executor import execute
from collir.semantics.symbolic import values
from collir.semantics.validation.loops import decided
from collir.semantics.validation.proof import proven
from collir.semantics.validation.validate import (
    Outcome,
    Verdict,
    compare,
    compare_modules,
    executed,
)
from collir.syntax.reader import read
from collir.syntax.writer import write
from collir.tools.api import run_passes

PASSES = [
    "canonicalize",
    "cse,dce",
    "fuse",
    "decompose",
    "decompose{chunks=4}",
    "decompose{strategy=rs-ar-ag}",
    "decompose{strategy=reduce-ar-bcast}",
    "decompose{strategy=ar-per-level}",
]


def verdicts(before: ModuleOp, after: ModuleOp, memory: int = 2**28) -> list[Verdict]:
    return [checked.verdict for checked in compare_modules(before, after, memory=memory)]


@pytest.mark.turns
@pytest.mark.parametrize("passes", PASSES)
def test_what_passes_make_of_random_programs_is_proven(passes: str) -> None:
    all_verdicts: list[Verdict] = []
    for seed in range(5):
        before = read(write(random_module(fresh(seed), functions=2, weights=0.3)))
        after = run_passes(before.clone(), passes)
        all_verdicts += verdicts(before, after)
    assert {verdict.outcome for verdict in all_verdicts} == {Outcome.SAME}
    proofs = sum(verdict.how == "proof" for verdict in all_verdicts)
    count = len(all_verdicts)
    assert proofs >= 0.98 * count if passes != "decompose" else proofs == count


@pytest.mark.turns
@pytest.mark.parametrize("passes", ["canonicalize", "decompose{strategy=rs-ar-ag}"])
@given(rng=RANDOM)
@settings(max_examples=10)
def test_a_run_agrees_with_the_proof(passes: str, rng: random.Random) -> None:
    before = read(write(random_module(rng, functions=1, weights=0.3, models=rng.random() < 0.3)))
    after = run_passes(before.clone(), passes)
    (old,), (new,) = functions_of(before), functions_of(after)
    assert decided(old, new).outcome is Outcome.SAME
    ran = executed(old, new, "it was run")
    assert ran.outcome is Outcome.SAME or "no result of 8 runs depends" in ran.explanation


# --- programs by hand ---------------------------------------------------------------------------

CLUSTER = """
machine @cluster {
  level node[2] { port =   8 GB/s, latency = 20 us }
  level gpu[4]  { port = 270 GB/s, latency =  3 us }
}
"""
HEAD = CLUSTER + "mesh @m on @cluster { data = node:2 * gpu:2, model = gpu:2 }\n"

HUGE = """
machine @big {
  level rack[64]  { port =   8 GB/s, latency = 20 us }
  level node[128] { port =   8 GB/s, latency = 20 us }
  level gpu[8]    { port = 270 GB/s, latency =  3 us }
}
mesh @m on @big { data = rack:64 * node:128 * gpu:8 }
"""


def verdict_on(before: str, after: str, head: str = HEAD) -> Verdict:
    old, new = read(head + before), read(head + after)
    return compare(functions_of(old)[0], functions_of(new)[0])


def function_text(arguments: str, result: str, *steps: str) -> str:
    lines = "\n".join(f"  {step}" for step in steps)
    return f"func @f({arguments}) -> {result} on @m {{\n{lines}\n  return %r\n}}\n"


X = "%x: f32[64] partial(sum: data)"
SAME = [
    (
        "reduced to a root and sent from there",
        function_text(X, "f32[64]", "%r = all_reduce %x over data"),
        function_text(X, "f32[64]", "%a = reduce %x over data", "%r = broadcast %a over data"),
    ),
    (
        "two chunks that end inside rows, each in parts that do",
        function_text(
            "%x: f32[3, 8] partial(sum: data)", "f32[3, 8]", "%r = all_reduce %x over data"
        ),
        function_text(
            "%x: f32[3, 8] partial(sum: data)",
            "f32[3, 8]",
            "%flat = reshape %x to [24]",
            *(
                line
                for half in ("high", "low")
                for line in (
                    f"%{half} = pad %flat dim 0 {half} -12",
                    f"%{half}1 = reduce_scatter %{half} over data.gpu dim 0",
                    f"%{half}2 = all_reduce %{half}1 over data.node",
                    f"%{half}3 = all_gather %{half}2 over data.gpu dim 0",
                )
            ),
            "%joined = concat %high3, %low3 dim 0",
            "%r = reshape %joined to [3, 8]",
        ),
    ),
    (
        "a sum of copies is that of one, masked",
        function_text("%x: f32[64]", "f32[64]", "%r = scale %x by 1"),
        function_text(
            "%x: f32[64]",
            "f32[64]",
            "%a = mask %x over data op sum",
            "%b = reduce_scatter %a over data.gpu dim 0",
            "%c = all_reduce %b over data.node",
            "%r = all_gather %c over data.gpu dim 0",
        ),
    ),
    (
        "an average is a sum and a division",
        function_text("%x: f32[64] partial(avg: data)", "f32[64]", "%r = all_reduce %x over data"),
        function_text(
            "%x: f32[64] partial(avg: data)",
            "f32[64]",
            "%a = scale %x by 4",
            "%b = all_reduce %a over data.gpu",
            "%c = all_reduce %b over data.node",
            "%r = scale %c by 0.25",
        ),
    ),
    (
        "scaled by a negative number, a maximum is a minimum",
        function_text(
            "%x: f32[8] partial(max: data)",
            "f32[8]",
            "%a = all_reduce %x over data",
            "%r = scale %a by -2",
        ),
        function_text(
            "%x: f32[8] partial(max: data)",
            "f32[8]",
            "%a = scale %x by -2",
            "%r = all_reduce %a over data",
        ),
    ),
    (
        "products, level by level",
        function_text("%x: f32[8] partial(prod: data)", "f32[8]", "%r = all_reduce %x over data"),
        function_text(
            "%x: f32[8] partial(prod: data)",
            "f32[8]",
            "%a = reduce %x over data.gpu",
            "%b = all_reduce %a over data.node",
            "%r = broadcast %b over data.gpu",
        ),
    ),
    (
        "in chunks",
        function_text(X, "f32[64]", "%r = all_reduce %x over data"),
        function_text(
            X,
            "f32[64]",
            "%a = pad %x dim 0 high -40",
            "%b = pad %x dim 0 low -24",
            "%c = all_reduce %a over data",
            "%d = all_reduce %b over data",
            "%r = concat %c, %d dim 0",
        ),
    ),
    (
        "rows of a shape that cuts across those of another",
        function_text("%x: f32[6, 10]", "f32[15, 4]", "%r = reshape %x to [15, 4]"),
        function_text(
            "%x: f32[6, 10]",
            "f32[15, 4]",
            "%a = reshape %x to [4, 15]",
            "%b = reshape %a to [60]",
            "%r = reshape %b to [15, 4]",
        ),
    ),
    (
        "order of blocks, by a transpose before and after",
        function_text(
            "%x: f32[64@(data.node, data.gpu)]",
            "f32[64@(data.gpu, data.node)]",
            "%r = permute %x to f32[64@(data.gpu, data.node)]",
        ),
        function_text(
            "%x: f32[64@(data.node, data.gpu)]",
            "f32[64@(data.gpu, data.node)]",
            "%a = all_gather %x over data.gpu dim 0",
            "%b = all_gather %a over data.node dim 0",
            "%c = slice %b over data.gpu dim 0",
            "%r = slice %c over data.node dim 0",
        ),
    ),
    (
        "values added before and after casts that hold them",
        function_text(
            "%x: bf16[8] partial(sum: data)",
            "f32[8]",
            "%a = cast %x to f32",
            "%r = all_reduce %a over data",
        ),
        function_text(
            "%x: bf16[8] partial(sum: data)",
            "f32[8]",
            "%a = all_reduce %x over data",
            "%r = cast %a to f32",
        ),
    ),
]


@pytest.mark.parametrize(("before", "after"), [pair[1:] for pair in SAME], ids=[p[0] for p in SAME])
def test_the_same_by_hand(before: str, after: str) -> None:
    verdict = verdict_on(before, after)
    assert (verdict.outcome, verdict.how) == (Outcome.SAME, "proof"), verdict
    old, new = read(HEAD + before), read(HEAD + after)
    pair = (functions_of(old)[0], functions_of(new)[0])
    assert executed(*pair, "").outcome is Outcome.SAME


BUCKET = function_text(
    "%x: f32[40] partial(sum: data), %y: f32[20] partial(sum: data)",
    "f32[20]",
    "%b = concat %x, %y dim 0",
    "%p = pad %b dim 0 high 4",
    "%s = reduce_scatter %p over data dim 0",
    "%a = all_gather %s over data dim 0",
    "%r = pad %a dim 0 low -40 high -4",
)
HALVES = function_text(
    "%x: f32[8@data, 8]",
    "f32[8, 8]",
    "%t = all_gather %x over data dim 0",
    "%r = transpose %t order [0, 1]",
)
GRADIENTS = function_text(
    "%x: f32[64] partial(sum: data), %y: f32[64] partial(sum: data)",
    "f32[64]",
    "%s = add %x, %y",
    "%r = all_reduce %s over data",
)
STEPS = function_text(
    X,
    "f32[64]",
    "%a = scale %x by 2",
    "%b = scale %a by 3",
    "%s = reduce_scatter %b over data.gpu dim 0",
    "%n = all_reduce %s over data.node",
    "%r = all_gather %n over data.gpu dim 0",
)
MASKED = function_text(
    "%x: f32[64] partial(sum: data), %y: f32[64]",
    "f32[64]",
    "%m = mask %y over data op sum",
    "%s = add %x, %m",
    "%r = all_reduce %s over data",
)
AT_ROOT = function_text(
    X,
    "f32[64]",
    "%a = reduce %x over data.gpu",
    "%b = all_reduce %a over data.node",
    "%r = broadcast %b over data.gpu",
)
LARGEST = function_text(
    "%x: f32[8] partial(max: data), %y: f32[8] partial(max: data)",
    "f32[8]",
    "%r = all_reduce %x over data",
)
BLOCKS = function_text(
    "%x: f32[64@data]",
    "f32[64]",
    "%a = all_gather %x over data dim 0",
    "%b = reshape %a to [2, 2, 16]",
    "%c = transpose %b order [0, 1, 2]",
    "%r = reshape %c to [64]",
)
WRONG = [
    (
        "dropped",
        GRADIENTS,
        "add %x, %y",
        "add %x, %x",
        "lacks the contribution of %y[0] of data.node=0",
    ),
    (
        "twice",
        GRADIENTS,
        "= all_reduce %s over data",
        "= all_reduce %s over data\n  %z = add %r, %r",
        "counts %x[0] of data.node=0, data.gpu=0 twice",
    ),
    (
        "stale",
        STEPS,
        "reduce_scatter %b",
        "reduce_scatter %a",
        "counts %x[0] of data.node=0, data.gpu=0 twice, and not 6 times",
    ),
    ("stale maximum", LARGEST, "all_reduce %x", "all_reduce %y", "lacks the contribution of %x[0]"),
    (
        "order of blocks",
        BLOCKS,
        "order [0, 1, 2]",
        "order [1, 0, 2]",
        "element [16] on data.node=0, data.gpu=0, model.gpu=0 is %x[32] of data.node=1, data.gpu=0 "
        "where %x[16] of data.node=0, data.gpu=1 should be",
    ),
    (
        "transposed",
        HALVES,
        "order [0, 1]",
        "order [1, 0]",
        "is %x[0, 1] of data.node=0, data.gpu=0 where %x[1, 0] of data.node=0, data.gpu=0 should",
    ),
    (
        "bucket cut in the wrong place",
        BUCKET,
        "low -40 high -4",
        "low -39 high -5",
        "has a contribution of %x[39] of data.node=0",
    ),
    ("padding", BUCKET, "low -40 high -4", "low -44", "has a contribution of %y[4] of data.node=0"),
    (
        "no mask, all add it",
        function_text(
            "%x: f32[64] partial(avg: data), %y: f32[64]",
            "f32[64]",
            "%s = add %x, %y",
            "%r = all_reduce %s over data",
        ),
        "%s = add %x, %y",
        "%z = add %y, %y\n  %s = add %x, %z",
        "counts %y[0] twice",
    ),
    (
        "a constant",
        function_text(X, "f32[68]", "%a = all_reduce %x over data", "%r = pad %a dim 0 high 4"),
        "high 4",
        "high 4 value 1",
        "has the constant 1 in it, and not 0",
    ),
]


@pytest.mark.parametrize(
    ("before", "old", "new", "text"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG]
)
def test_wrong_programs_are_caught_and_named(before: str, old: str, new: str, text: str) -> None:
    assert old in before
    after = before.replace(old, new)
    if "%z = add %r" in new:
        after = after.replace("return %r", "return %z")
    old_module, new_module = read(HEAD + before), read(HEAD + after)
    pair = (functions_of(old_module)[0], old_module, functions_of(new_module)[0], new_module)
    assert_caught(*pair, text)


def assert_caught(
    old: FuncOp, old_module: ModuleOp, new: FuncOp, new_module: ModuleOp, text: str
) -> None:
    """Check that the proof finds the difference and explains it, and that a run finds it too."""
    proof = proven(old, new)
    assert proof.outcome is Outcome.DIFFERENT
    assert text in proof.explanation
    assert executed(old, new, "").outcome is Outcome.DIFFERENT


# --- wrong passes that types would catch ---------------------------------------------------------


def other_order(op: DistOp) -> None:
    """Reverse the order of the sub-axes of an operation."""
    axes = op.properties["axes"]
    assert isinstance(axes, AxesAttr)
    op.properties["axes"] = AxesAttr(axes.data[::-1])


def left_out(op: DistOp) -> None:
    """Replace the result of an operation by its operand."""
    op.result.replace_all_uses_with(op.operands[0])


def masked(op: DistOp) -> None:
    """Mask the operand, so that only the first device of a group contributes."""
    properties = {"axes": AxesAttr(("data.gpu",)), "reduction": StringAttr("sum")}
    mask = OPERATIONS["mask"].create(
        operands=[op.operands[0]], properties=properties, result_types=[op.operands[0].type]
    )
    assert op.parent is not None
    op.parent.insert_op_before(mask, op)
    op.operands[0] = mask.result


def kept_at_root(op: DistOp) -> None:
    """Keep the operand at root, so that only the first device of a group holds it."""
    properties = {"axes": AxesAttr(("data.gpu",))}
    root = OPERATIONS["keep_root"].create(
        operands=[op.operands[0]], properties=properties, result_types=[op.operands[0].type]
    )
    assert op.parent is not None
    op.parent.insert_op_before(root, op)
    op.operands[0] = root.result


GATHER = function_text(
    "%x: f32[64@(data.node, data.gpu)]", "f32[64]", "%r = all_gather %x over data dim 0"
)
SCATTER = function_text(X, "f32[64@data]", "%r = reduce_scatter %x over data dim 0")
BROKEN: list[tuple[str, str, str, Callable[[DistOp], None], str]] = [
    ("gathered in another order", GATHER, "all_gather", other_order, "where %x[16] of data.node=0"),
    (
        "scattered in another order",
        SCATTER,
        "reduce_scatter",
        other_order,
        "lacks the contribution",
    ),
    ("mask left out", MASKED, "mask", left_out, "counts %y[0] 4 times, and not once"),
    (
        "mask put in",
        GRADIENTS,
        "all_reduce",
        masked,
        "lacks the contribution of %x[0] of data.node",
    ),
    ("kept at root", GRADIENTS, "all_reduce", kept_at_root, "only some of the devices hold data"),
    ("one level left out", AT_ROOT, "all_reduce", left_out, "lacks the contribution of %x[0]"),
    ("a broadcast left out", AT_ROOT, "broadcast", left_out, "at coordinate 0 of data.gpu where"),
    ("a step left out", SCATTER, "reduce_scatter", left_out, "it is [64] per device"),
]


@pytest.mark.parametrize(
    ("program", "step", "change", "text"), [c[1:] for c in BROKEN], ids=[c[0] for c in BROKEN]
)
def test_broken_programs_are_caught_and_named(
    program: str, step: str, change: Callable[[DistOp], None], text: str
) -> None:
    before, after = read(HEAD + program), read(HEAD + program)
    (function,) = functions_of(after)
    op = next(op for op in function.body.ops if op.name == f"coll.{step}")
    assert isinstance(op, DistOp)
    change(op)
    assert_caught(functions_of(before)[0], before, function, after, text)


def make_stale(rng: random.Random, function: FuncOp) -> bool:
    """Replace a random operand by an earlier value of its type; return whether there is one."""
    known: list[SSAValue] = [*function.args]
    places: list[tuple[DistOp, int, list[SSAValue]]] = []
    for op in function.body.ops:
        if isinstance(op, DistOp):
            for index, operand in enumerate(op.operands):
                others = [v for v in known if v.type == operand.type and v is not operand]
                places += [(op, index, others)] if others else []
            known.append(op.result)
    if places:
        op, index, others = rng.choice(places)
        op.operands[index] = rng.choice(others)
    return bool(places)


@pytest.mark.turns
def test_the_proof_finds_all_that_a_run_of_random_wrong_programs_does() -> None:
    """A wrong program uses an older value of the same type; most of these change no result."""
    wrong = 0
    for seed in count():
        rng = fresh(seed)
        if wrong > 1:
            break
        before = random_module(rng, functions=1, steps=7, weights=0.3)
        after = before.clone()
        (old,), (new,) = functions_of(before), functions_of(after)
        if not make_stale(rng, new):
            continue
        run = executed(old, new, "")
        proof = decided(old, new)
        if proof.explanation == "a cast to bool forgets the number":
            continue
        if run.outcome is Outcome.DIFFERENT:
            assert proof.outcome is Outcome.DIFFERENT, seed
            wrong += 1
        elif proof.outcome is Outcome.DIFFERENT:
            # A run does not see the operands of a computation.
            assert any(op.name == "coll.compute" for op in new.walk()), seed
    assert wrong > 1


# --- sizes --------------------------------------------------------------------------------------


def test_thousands_of_devices_and_terabytes_take_no_longer() -> None:
    x = "%x: f32[17179869184] partial(sum: data)"
    flat = function_text(x, "f32[17179869184]", "%r = all_reduce %x over data")
    steps = [
        "%v = reshape %x to [8, 128, 16777216]",
        "%a = reduce_scatter %v over data.gpu dim 0",
        "%b = reduce_scatter %a over data.node dim 1",
        "%c = all_reduce %b over data.rack",
        "%d = all_gather %c over data.node dim 1",
        "%e = all_gather %d over data.gpu dim 0",
        "%r = reshape %e to [17179869184]",
    ]
    swapped = [
        "%w = reshape %x to [128, 8, 16777216]",
        "%v = transpose %w order [1, 0, 2]",
        *steps[1:],
    ]
    with within():
        right = verdict_on(flat, function_text(x, "f32[17179869184]", *steps), HUGE)
        wrong = verdict_on(flat, function_text(x, "f32[17179869184]", *swapped), HUGE)
    assert (right.outcome, right.how) == (Outcome.SAME, "proof")
    assert "65536 devices" in right.explanation
    assert wrong.outcome is Outcome.DIFFERENT
    assert wrong.explanation.startswith(
        "element [16777216] on data.rack=0, data.node=0, data.gpu=0"
    )


def bucket(sizes: list[int], *, wrong: int = -1) -> str:
    """Return a program that reduces gradients in one padded buffer and cuts them out again.

    The gradient number ``wrong`` is cut out one element too far on.
    """
    rest = -sum(sizes) % 65536
    padded = sum(sizes) + rest
    steps = [f"%b = concat {', '.join(f'%g{k}' for k in range(len(sizes)))} dim 0"]
    steps += [
        f"%p = pad %b dim 0 high {rest}",
        "%s = reduce_scatter %p over data dim 0",
        "%a = all_gather %s over data dim 0",
    ]
    offset = 0
    for k, size in enumerate(sizes):
        low = offset + (k == wrong)
        steps.append(f"%r{k} = pad %a dim 0 low {-low} high {low + size - padded}")
        offset += size
    return gradients(sizes, steps)


def gradients(sizes: list[int], steps: list[str]) -> str:
    arguments = ", ".join(f"%g{k}: f32[{n}] partial(sum: data)" for k, n in enumerate(sizes))
    types = ", ".join(f"f32[{n}]" for n in sizes)
    returned = ", ".join(f"%r{k}" for k in range(len(sizes)))
    lines = "\n".join(f"  {step}" for step in steps)
    return f"func @f({arguments}) -> ({types}) on @m {{\n{lines}\n  return {returned}\n}}\n"


@pytest.mark.turns
def test_a_bucket_of_many_gradients_over_thousands_of_devices() -> None:
    rng = fresh(1)
    sizes = [rng.choice([64, 777, 2048, 36864, 262144, 2048000]) for _ in range(100)]
    plain = gradients(sizes, [f"%r{k} = all_reduce %g{k} over data" for k in range(len(sizes))])
    with within():
        right, wrong = (
            verdict_on(plain, bucket(sizes), HUGE),
            verdict_on(plain, bucket(sizes, wrong=60), HUGE),
        )
    assert (right.outcome, right.how) == (Outcome.SAME, "proof")
    assert (wrong.outcome, wrong.result) == (Outcome.DIFFERENT, 60)
    assert "lacks the contribution of %g60[0]" in wrong.explanation
    assert "has a contribution of %g60[1]" in wrong.explanation


# --- what cannot be proven ------------------------------------------------------------------------

ROUNDED = (
    function_text("%x: f32[64]", "bf16[64]", "%a = scale %x by 0.5", "%r = cast %a to bf16"),
    function_text("%x: f32[64]", "bf16[64]", "%a = cast %x to bf16", "%r = scale %a by 0.5"),
)


def test_where_casts_round_a_run_decides() -> None:
    verdict = verdict_on(*ROUNDED)
    assert (verdict.outcome, verdict.how) == (Outcome.SAME, "execution")
    assert verdict.explanation == (
        "not proven, equal on 8 runs (its sums have other forms); a change of 1 % in any operation "
        "would have shown"
    )


@pytest.mark.parametrize("computed", ["compute %a flops 10", "sin %a"])
def test_what_is_computed_of_other_elements_differs(computed: str) -> None:
    """The operands differ in the order of their elements only."""
    in_order, turned = (
        function_text("%x: f32[4, 4]", "f32[4, 4]", f"%a = {a}", f"%r = {computed}")
        for a in ("transpose %x order [0, 1]", "transpose %x order [1, 0]")
    )
    assert verdict_on(in_order, in_order).outcome is Outcome.SAME
    assert verdict_on(in_order, turned).outcome is Outcome.DIFFERENT


@pytest.mark.parametrize("computed", ["softmax %a dims [DIM]", "cumsum %a dim DIM"])
def test_what_needs_whole_columns_differs_on_parts_of_them(computed: str) -> None:
    verdicts: list[Verdict] = []
    for dim in ("0", "1"):
        step = computed.replace("DIM", dim)
        behind, ahead = (
            function_text("%x: f32[4, 3]", "f32[2, 3]", *steps)
            for steps in (
                ("%a = scale %x by 1", f"%b = {step}", "%r = pad %b dim 0 low -2"),
                ("%a = pad %x dim 0 low -2", f"%r = {step}"),
            )
        )
        verdicts.append(verdict_on(behind, ahead))
    assert [verdict.outcome for verdict in verdicts] == [Outcome.DIFFERENT, Outcome.SAME]
    assert verdicts[1].how == "proof"


AHEAD = ("%a = scale %x by 0.01", "%r = all_reduce %a over data")
BEHIND = ("%a = all_reduce %x over data", "%r = scale %a by 0.01")


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_loss_to_underflow_is_a_difference(dtype: str) -> None:
    """Only f16 has a smallest number that is near the terms of a small sum."""
    ahead, behind = (
        function_text(f"%x: {dtype}[4] partial(sum: data)", f"{dtype}[4]", *steps)
        for steps in (AHEAD, BEHIND)
    )
    assert verdict_on(ahead, behind).how == "proof"
    assert verdict_on(behind, behind).outcome is verdict_on(ahead, behind).outcome is Outcome.SAME
    lost = verdict_on(behind, ahead)
    assert lost.outcome is (Outcome.DIFFERENT if dtype == "f16" else Outcome.SAME)
    sums: list[float] = []
    for text in (behind, ahead):
        module = read(HEAD + text)
        x = np.full(4, 2e-6, NUMPY[DType(dtype)])
        (buffers,) = execute(module, functions_of(module)[0], [[x] * 8])
        assert buffers[0] is not None
        sums.append(float(buffers[0][0]))
    assert (sums[1] == 0 < sums[0]) == (dtype == "f16")


def test_pieces_of_a_buffer_lose_what_each_of_them_does() -> None:
    """Scaled values lie beside other values in a buffer, and the other values are cut out again."""
    types = "%x: f16[4] partial(sum: data), %y: f16[4] partial(sum: data)"
    before = function_text(types, "f16[4]", "%r = all_reduce %y over data")
    bucket = [
        "%a = scale %x by 0.01",
        "%b = concat %a, %y dim 0",
        "%c = all_reduce %b over data",
        "%r = pad %c dim 0 low -4",
    ]
    assert verdict_on(before, function_text(types, "f16[4]", *bucket)).how == "proof"
    scaled = [step.replace("scale %x", "scale %y").replace("a, %y", "a, %x") for step in bucket]
    scaled[-1] = "%d = pad %c dim 0 high -4"
    down_and_up = function_text(types, "f16[4]", *scaled, "%r = scale %d by 100")
    assert verdict_on(before, down_and_up).explanation.startswith("up to 400 times as much is lost")


def test_what_is_too_large_to_run_is_said_to_be_unknown() -> None:
    before, after = (text.replace("[64]", "[17179869184]") for text in ROUNDED)
    verdict = verdict_on(before, after, HUGE)
    assert (verdict.outcome, verdict.how) == (Outcome.UNKNOWN, "none")
    assert "not run" in verdict.explanation


def test_factors_are_compared_up_to_rounding() -> None:
    mean = "%x: f32[8] partial(avg: model, data)"
    average = function_text(mean, "f32[8]", "%r = all_reduce %x over data, model")
    assert verdict_on(average, average.replace("data, model", "model, data")).how == "proof"
    third = function_text("%x: f32[8]", "f32[8]", "%r = scale %x by 0.3333333333")
    assert verdict_on(third, third.replace("0.3333333333", "0.33333333333")).outcome is Outcome.SAME
    assert verdict_on(third, third.replace("0.3333333333", "0.3332")).outcome is Outcome.DIFFERENT


# --- meshes and modules ---------------------------------------------------------------------------

UNPLACED = CLUSTER + "mesh @m on @cluster { data = 4, model = 2 }\n"


def test_axes_may_be_placed_and_levels_split_in_between() -> None:
    before = read(UNPLACED + GRADIENTS)
    placed = run_passes(before.clone(), "place")
    split = run_passes(placed.clone(), "split-level{level=gpu into=2,2},decompose")
    for old, new in ((before, placed), (placed, split), (before, split), (split, before)):
        (verdict,) = verdicts(old, new, memory=0)
        assert (verdict.outcome, verdict.how) == (Outcome.SAME, "proof")


def test_a_wrong_program_on_a_mesh_that_was_placed() -> None:
    before = read(UNPLACED + GRADIENTS)
    after = run_passes(read(UNPLACED + GRADIENTS.replace("%x, %y\n", "%x, %x\n")), "place")
    with pytest.raises(DiagnosticError, match="lacks the contribution"):
        compare_modules(before, after)


def test_meshes_of_other_axes_cannot_be_compared() -> None:
    other_head = HEAD.replace("data = node:2 * gpu:2, model = gpu:2", "data = node:2 * gpu:4")
    program = function_text("%x: f32[64]", "f32[64]", "%r = scale %x by 2")
    old, new = read(HEAD + program), read(other_head + program)
    verdict = compare(functions_of(old)[0], functions_of(new)[0])
    assert (verdict.outcome, verdict.how) == (Outcome.DIFFERENT, "none")
    assert "only meshes of the same axes" in verdict.explanation


def test_functions_are_compared_by_name() -> None:
    before = read(HEAD + GRADIENTS)
    more = read(HEAD + GRADIENTS + STEPS.replace("@f", "@g"))
    assert [c.function.sym_name.data for c in compare_modules(before, more)] == ["f"]
    with pytest.raises(DiagnosticError, match="@g is not in what it is compared with"):
        compare_modules(before, more, new=False)
    with pytest.raises(DiagnosticError, match="@g is missing"):
        compare_modules(more, before)


def test_what_takes_the_place_of_a_function_computes_the_same() -> None:
    before = read(HEAD + GRADIENTS)
    place = GRADIENTS.replace("@f", "@g").replace("on @m", "on @m for @f from 8")
    assert len(compare_modules(before, read(HEAD + GRADIENTS + place), new=False)) == 2
    wrong = place.replace("%x, %y\n", "%y, %y\n")
    with pytest.raises(DiagnosticError, match=r"@g computes something else for %r: .* lacks"):
        compare_modules(before, read(HEAD + GRADIENTS + wrong))


def test_functions_for_larger_values_of_decompose() -> None:
    before = read(HEAD + GRADIENTS)
    after = run_passes(before.clone(), "decompose{up_to=4096}")
    assert all(verdict.how == "proof" for verdict in verdicts(before, after))


def test_computations_are_the_same_if_what_they_work_on_is() -> None:
    steps = ["%g = all_gather %w over data dim 0", "%h = all_gather %v over data dim 0"]
    arguments = "%x: f32[64], %w: f32[8@data], %v: f32[8@data]"
    before = function_text(arguments, "f32[64]", *steps, "%r = compute %x, %g flops 100")
    again = before.replace(
        "all_gather %w over data dim 0",
        "all_gather %w over data.gpu dim 0\n  %i = all_gather %g over data.node dim 0",
    )
    assert verdict_on(before, again.replace("compute %x, %g", "compute %x, %i")).how == "proof"
    wrong = verdict_on(before, before.replace("compute %x, %g", "compute %x, %h"))
    assert wrong.outcome is Outcome.DIFFERENT
    assert verdict_on(
        before, before.replace("compute %x, %g flops 100", "scale %x by 1")
    ).outcome is (Outcome.DIFFERENT)


def test_computations_on_other_parts_of_the_same_value_are_the_same() -> None:
    before = function_text(
        X, "f32[64]", "%c = compute %x flops 100", "%r = all_reduce %c over data"
    )
    after = function_text(
        X,
        "f32[64]",
        "%a = all_reduce %x over data",
        "%p = mask %a over data op sum",
        "%c = compute %p flops 100",
        "%r = all_reduce %c over data",
    )
    assert verdict_on(before, after).how == "proof"
    wrong = verdict_on(before, after.replace("compute %p", "compute %x").replace("100", "200"))
    assert wrong.outcome is Outcome.DIFFERENT


def test_a_mesh_for_a_part_of_its_machine() -> None:
    before = read(CLUSTER + "mesh @m on @cluster { data = 4 }\n" + GRADIENTS)
    after = run_passes(before.clone(), "place,decompose")
    assert [verdict.how for verdict in verdicts(before, after, memory=0)] == ["proof"]


def test_functions_without_values_and_of_one_device() -> None:
    empty = "func @f() -> () on @m {\n  return\n}\n"
    machine = "machine @one { level gpu[1] { port = 1 GB/s, latency = 1 us } }"
    head = f"{machine}\nmesh @m on @one {{ data = 1 }}\n"
    assert verdict_on(empty, empty, head).how == "proof"
    single = function_text("%x: f32[]", "f32[]", "%r = scale %x by 2")
    assert verdict_on(single, single, head).how == "proof"
    assert verdict_on(single, single.replace("by 2", "by 3"), head).explanation == (
        "the value counts %x 3 times, and not twice"
    )


# --- limits of the proof --------------------------------------------------------------------------


def test_factors_of_a_short_type_are_no_more_than_rounding_apart() -> None:
    """The next number after 1 in f16 is no rounding of 1, however coarse the type is."""
    once = function_text("%x: f16[8]", "f16[8]", "%r = scale %x by 1")
    assert verdict_on(once, once.replace("by 1", "by 1.0009765625")).outcome is Outcome.DIFFERENT


def test_computations_on_operands_that_only_round_apart_are_not_proven_to_differ() -> None:
    third = function_text(
        "%x: f32[8]", "f32[8]", "%c = scale %x by 0.3333333333", "%r = compute %c flops 9"
    )
    verdict = verdict_on(third, third.replace("0.3333333333", "0.33333333333"))
    assert verdict.outcome is not Outcome.DIFFERENT
    assert verdict.how != "proof"
    half = verdict_on(third, third.replace("0.3333333333", "0.5"))
    assert (half.outcome, half.how) == (Outcome.DIFFERENT, "proof")


def test_computations_on_other_inputs_are_told_apart_at_a_glance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Many layers are alike but for their weights: their expressions are not compared."""

    def unexpected(*_: object) -> bool:
        raise AssertionError("expressions were compared")

    monkeypatch.setattr(values, "expressions_equal", unexpected)
    layers = range(6)
    arguments = ", ".join(f"%x{n}: f32[8]" for n in layers)
    steps = [f"%c{n} = compute %x{n} flops 100" for n in layers]
    sums = [f"%s{n + 1} = add %s{n}, %c{n}" for n in layers]
    text = function_text(arguments, "f32[8]", *steps, sums[0].replace("%s0", "%x0"), *sums[1:])
    text = text.replace("return %r", "return %s6")
    assert verdict_on(text, text.replace("%c", "%d")).how == "proof"


def test_private_functions_need_not_stay() -> None:
    """Functions made for one caller go once their steps are in the place of the call."""
    text = """
machine @quad { level gpu[4] { port = 300 GB/s, latency = 4 us } }
mesh @m on @quad { data = gpu:4 }
func @loss(%x: f32[8@data, 4], %w: f32[4]) -> f32[] on @m auto {
  %y = mul %x, %w
  %z = sum %y dims [0, 1]
  return %z
}
func @step(%x: f32[8@data, 4], %w: f32[4]) -> (f32[], f32[4]) on @m auto {
  %a, %b = gradient @loss(%x, %w) wrt %w
  return %a, %b
}
"""
    made = run_passes(read(text, "t.coll"), "differentiate")
    private = [f.sym_name.data for f in functions_of(made) if f.sym_visibility is not None]
    after = run_passes(made.clone(), "propagate,inline", validate=True)
    assert private
    assert not {f.sym_name.data for f in functions_of(after)} & {*private}
    lacking = made.clone()
    [step] = [f for f in functions_of(lacking) if f.sym_name.data == "step"]
    lacking.body.block.erase_op(step)
    with pytest.raises(DiagnosticError, match="is missing"):
        compare_modules(made, lacking)
