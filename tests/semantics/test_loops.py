"""Loops and calls compute the same as their iterations and steps one after the other."""

import random
import re
from functools import partial

import pytest
from hypothesis import given, settings
from support.harness.seeds import some
from support.programs.collectives import RANDOM, random_module
from support.semantics.checks import (
    agree,
    functions_of,
    results_on_all_devices,
    results_on_one_device,
)
from xdsl.dialects.builtin import ModuleOp

from collir.dialects.machine import mesh_of
from collir.dialects.nested import NestedOp
from collir.ir.ahead import is_ahead
from collir.ir.verification import verify
from collir.semantics.reference.exactness import exact
from collir.semantics.validation import loops
from collir.semantics.validation.validate import compare, compare_modules
from collir.semantics.validation.verdict import Outcome
from collir.syntax.reader import read
from collir.syntax.writer import write
from collir.transforms.as_run import prepare
from collir.transforms.inlining import inline_calls
from collir.transforms.loops.unrolling import unroll_all


def straight(module: ModuleOp) -> ModuleOp:
    """Return a copy of a module without calls and loops."""
    copy = module.clone()
    inline_calls(copy)
    unroll_all(copy)
    assert not any(isinstance(op, NestedOp) for op in copy.walk())
    verify(copy)
    return copy


@given(rng=RANDOM)
@settings(max_examples=12)
def test_iterations_one_after_the_other_are_the_loop(rng: random.Random) -> None:
    """On all devices, and on one device where no step rounds."""
    module = random_module(rng, functions=2, steps=8, models=rng.random() < 0.3)
    verify(module)
    unrolled = straight(module)
    for function, same in zip(functions_of(module), functions_of(unrolled), strict=True):
        results = results_on_all_devices(module, function, seed=1)
        again = results_on_all_devices(unrolled, same, seed=1)
        devices = mesh_of(function).devices
        assert agree(results, again, devices)
        assert agree(results, results_on_one_device(function, seed=1), devices)
        # The grids of all iterations hold those of each, so they may be coarser.
        assert exact(same) or not exact(function)


@given(rng=RANDOM)
@settings(max_examples=12)
def test_the_proof_sees_that(rng: random.Random) -> None:
    module = read(write(random_module(rng, functions=2, steps=6)))
    for checked in compare_modules(module, straight(module)):
        assert checked.verdict.outcome is Outcome.SAME
        assert checked.verdict.how == "proof", checked.verdict.explanation


PROGRAM = """
machine @box {{ level node[2] {{ port = 8 GB/s, latency = 20 us }}
               level gpu[2] {{ port = 270 GB/s, latency = 3 us }} }}
mesh @m on @box {{ data = node:2 * gpu:2 }}

func @f(%x: f32[8], %w: f32[{count}, 8] partial(sum: data), %k: f32[8])
    -> (f32[8], f32[{count}, 8@data]) on @m {{
  %h, %s = repeat {count} carry(%h = %x) slice(%v = %w) with(%k = %k){reverse} {{
    {body}
    %t = slice %b over data dim 0
    yield %b, %t
  }}
  return %h, %s
}}
"""

WRITTEN = "%r = all_reduce %v over data %a = add %r, %h %b = add %a, %k"
DECOMPOSED = (
    "%q = reduce_scatter %v over data dim 0 %r = all_gather %q over data dim 0 "
    "%a = add %k, %h %b = add %r, %a"
)
WITHOUT_INVARIANT = "%r = all_reduce %v over data %b = add %r, %h"


def program(body: str, count: int = 96, reverse: bool = False) -> ModuleOp:
    return read(
        PROGRAM.format(body=body, count=count, reverse=" reverse" if reverse else ""), "x.coll"
    )


def verdict(before: ModuleOp, after: ModuleOp) -> tuple[Outcome, str]:
    pair = [functions_of(module)[0] for module in (before, after)]
    result = compare(pair[0], pair[1], memory=0)
    return result.outcome, result.how


def test_equal_bodies_make_equal_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof is by induction: no iteration is unrolled."""
    monkeypatch.setattr(loops, "unroll_all", partial(pytest.fail, "a loop was unrolled"))
    outcome = verdict(program(WRITTEN, 10**6), program(DECOMPOSED, 10**6))
    assert outcome == (Outcome.SAME, "proof")


@pytest.mark.parametrize(
    "other", [program(WITHOUT_INVARIANT, 12), program(WRITTEN, 12, reverse=True)]
)
def test_other_bodies_and_orders_are_proven_to_differ(other: ModuleOp) -> None:
    assert verdict(program(WRITTEN, 12), other) == (Outcome.DIFFERENT, "proof")


def test_bodies_of_as_many_steps_are_not_the_same() -> None:
    """Unrolled loops have sums of other forms, so nothing is proven, and they differ in a run."""
    body = "%r = all_reduce %v over data %a = {} %r %b = mul %a, %h"
    one, other = (program(body.format(name), 2) for name in ("exp", "sin"))
    assert verdict(one, other)[0] is not Outcome.SAME


def test_loops_that_differ_and_are_too_long_are_not_proven() -> None:
    """Without runs, as here, nothing is known of them; it is not said that they are equal."""
    before, after = program(WRITTEN, 10**4), program(WITHOUT_INVARIANT, 10**4)
    assert verdict(before, after) == (Outcome.UNKNOWN, "none")


STACK = """
func @f(%x: f32[8], %w: f32[10000, 8]) -> f32[10000, 8] on @m {{
  %h, %s = repeat 10000 carry(%h = %x) slice(%v = %w) {{
    %a = mul %h, %v
    %b = {operation} %a, %h
    {stacked}
  }}
  {behind}
  return %r
}}
"""


@pytest.mark.parametrize(
    ("operation", "outcome"), [("add", Outcome.SAME), ("sub", Outcome.UNKNOWN)]
)
def test_what_loops_stack_may_be_at_places(operation: str, outcome: Outcome) -> None:
    """One stacks on all devices, and one on the second of each node, from where it is sent."""
    head = PROGRAM.format(body=WRITTEN, count=1, reverse="").partition("func")[0]
    everywhere = STACK.format(operation="add", stacked="yield %b, %b", behind="%r = barrier %s")
    at_one = STACK.format(
        operation=operation,
        stacked="%k = keep %b at data.gpu = 1 yield %b, %k",
        behind="%t = send %s over data.gpu from 1 to 0 %r = broadcast %t over data.gpu",
    )
    before, after = (read(head + text, "x.coll") for text in (everywhere, at_one))
    assert verdict(before, after)[0] is outcome


PARTS = """
func @f(%x: f32[8], %w: f32[{n}, 8] partial(sum: data)) -> (f32[8], f32[{n}, 8]) on @m {{
  %h, %s = repeat {n} carry(%h = %x) slice(%v = %w){reverse} {{
    %r = all_reduce %v over data
    %a = add %r, %h
    yield %a, %h
  }}
  return %h, %s
}}
"""
IN_PARTS = """
func @f(%x: f32[8], %w: f32[{n}, 8] partial(sum: data)) -> (f32[8], f32[{n}, 8]) on @m {{
  %1 = pad %w dim 0 {first} -7
  %a, %s = repeat {most} carry(%h = %x) slice(%v = %1){reverse} {{
    %r = all_reduce %v over data
    %a = add %r, %h
    yield %a, %h
  }}
  %2 = pad %w dim 0 {last} -{most}
  %b, %t = repeat 7 carry(%h = %a) slice(%v = %2){reverse} {{
    %r = all_reduce %v over data
    %a = add %r, %h
    yield %a, %h
  }}
  %u = concat {joined} dim 0
  return %b, %u
}}
"""


@pytest.mark.turns
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("count", [12, 10**5])
def test_a_loop_is_a_chain_of_loops_over_parts(count: int, wrong: bool, reverse: bool) -> None:
    """However many iterations there are; and it is seen if the parts are not adjacent rows."""
    head = PROGRAM.format(body=WRITTEN, count=1, reverse="").partition("func")[0]
    first, last = ("low", "high") if reverse else ("high", "low")
    joined = "%t, %s" if reverse else "%s, %t"
    texts = [
        text.format(
            n=count,
            most=count - 7,
            first=first,
            last=first if wrong and count > 12 else last,
            joined=joined[::-1].replace("t%", "%t").replace("s%", "%s") if wrong else joined,
            reverse=" reverse" if reverse else "",
        )
        for text in (PARTS, IN_PARTS)
    ]
    before, after = (read(head + text, "x.coll") for text in texts)
    proven = Outcome.DIFFERENT if count == 12 else Outcome.UNKNOWN
    assert verdict(before, after)[0] is (proven if wrong else Outcome.SAME)


# --- what is ahead ------------------------------------------------------------------------------


@given(rng=RANDOM)
@settings(max_examples=8)
def test_rotated_loops_are_the_loops(rng: random.Random) -> None:
    """On all devices, and for the proof."""
    module = read(write(random_module(rng, functions=2, steps=8)))
    rotated = module.clone()
    prepare(rotated)
    verify(rotated)
    assert not any(is_ahead(op) for op in rotated.walk())
    for function, same in zip(functions_of(module), functions_of(rotated), strict=True):
        results = results_on_all_devices(module, function, seed=1)
        again = results_on_all_devices(rotated, same, seed=1)
        assert agree(results, again, mesh_of(function).devices)
    for checked in compare_modules(module, rotated):
        assert checked.verdict.outcome is Outcome.SAME
        assert checked.verdict.how == "proof", checked.verdict.explanation


AHEAD = """
func @f(%x: f32[8], %w: f32[{count}, 8@data], %k: f32[8@data])
    -> (f32[8], f32[{count}, 8], f32[{count}, 8]) on @m {{
  %y, %s = repeat {count} carry(%h = %x) slice(%v = %w) with(%k = %k) {{
    %c = add %v, %k
    %g = all_gather %c over data.gpu dim 0 ahead
    %r = all_gather %g over data.node dim 0 ahead
    %i = all_gather %c over data dim 0
    %a = add %r, %h
    %b = add %a, %i
    yield %b, %h
  }}
  %z, %t = repeat {count} carry(%h = %y) slice(%v = %w, %s = %s) reverse {{
    %r = all_gather %v over data dim 0 ahead
    %a = add %r, %h
    %b = add %a, %s
    yield %b, %r
  }}
  return %z, %s, %t
}}
"""


def with_ahead(count: int) -> ModuleOp:
    """Return a program whose collectives are ahead in two loops that follow each other."""
    head = PROGRAM.format(body=WRITTEN, count=1, reverse="").partition("func")[0]
    return read(head + AHEAD.format(count=count), "x.coll")


@pytest.mark.parametrize("count", [2, 3, 96, 10**6])
def test_rotated_loops_are_proven_without_their_iterations(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops, "unroll_all", partial(pytest.fail, "a loop was unrolled"))
    module = with_ahead(count)
    rotated = module.clone()
    prepare(rotated)
    assert verdict(module, rotated) == (Outcome.SAME, "proof")
    assert verdict(rotated, module) == (Outcome.SAME, "proof")


MISTAKES = {
    "the second row is gathered first": (
        "%0 = pad %w dim 0 high -8",
        "%0 = pad %w dim 0 low -1 high -7",
    ),
    "each iteration gathers its own row": ("%2 = pad %w dim 0 low -1", "%2 = pad %w dim 0 high -1"),
    "the first gather is of other values": ("%g = all_gather %c over", "%g = all_gather %1 over"),
    "the old value is carried on": ("yield %b, %c_3, %r_5, %h", "yield %b, %c_3, %r_4, %h"),
    "the new value is used at once": ("add %r_4, %h", "add %r_5, %h"),
    "the last row is stacked first": ("concat %3, %4 dim 0", "concat %4, %3 dim 0"),
    "the first row is stacked last": ("concat %12, %9 dim 0", "concat %9, %12 dim 0"),
    "the first row is gathered first": ("%5 = pad %w dim 0 low -8", "%5 = pad %w dim 0 high -8"),
    "rows of the stack are one behind": ("%7 = pad %s dim 0 low -1", "%7 = pad %s dim 0 high -1"),
    "the last iteration takes the last row": (
        "%10 = pad %s dim 0 high -8",
        "%10 = pad %s dim 0 low -8",
    ),
    "the loop runs forward": (" reverse {", " {"),
}


@pytest.mark.turns
@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("count", some([9, 900], 1))
def test_wrongly_rotated_loops_are_not_proven(mistake: str, count: int) -> None:
    """A mistake in few iterations is proven; in many, nothing is."""
    module = with_ahead(count)
    rotated = module.clone()
    prepare(rotated)
    text = write(rotated)
    right, wrong = (
        re.sub(r"-([78])\b", lambda rows: f"-{count - 9 + int(rows[1])}", part)
        for part in MISTAKES[mistake]
    )
    assert text.count(right) == 1
    found = verdict(module, read(text.replace(right, wrong), "y.coll"))[0]
    assert found is (Outcome.DIFFERENT if count == 9 else Outcome.UNKNOWN)
