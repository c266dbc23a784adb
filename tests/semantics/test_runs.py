"""Runs find mistakes where results saturate, round or are nearly equal, and say what they saw."""

import random

import pytest
from hypothesis import given, settings
from support.programs.collectives import RANDOM
from support.semantics.checks import functions_of
from support.semantics.planted import differ, planted
from xdsl.dialects.func import FuncOp

import collir
from collir.semantics.validation.proof import result_types
from collir.semantics.validation.runs import ComparedRuns, run_both
from collir.semantics.validation.validate import Outcome, Verdict, compare, executed
from collir.transforms.inlining import function_without_calls

HEAD = """machine @c { level gpu[2] { port = 25 GB/s, latency = 1 us } }
mesh @m on @c { data = gpu:2 }
"""

LAYERS = """func @f(%x: DTYPE[8@data, 16], %w: DTYPE[16, 16, 16]) -> DTYPE[8@data, 16] on @m {
  %y = repeat 16 carry(%h = %x) slice(%w = %w) {
    %z = einsum "b i, i j -> b j" %h, %w
    %t = tanh %z
    %s = add %h, %t
    yield %s
  }
  %r = scale %y by 1
  return %r
}
"""
ATTENTION = """func @f(%q: f64[2@data, 8, 2, 4], %k: f64[2@data, 8, 2, 4], %v: f64[2@data, 8, 2, 4])
    -> f64[2@data, 8, 2, 4] on @m {
  %0 = einsum "b q a d, b k a d -> b a q k" %q, %k
  %1 = scale %0 by 0.5
  %2 = softmax %1 dims [3]
  %y = einsum "b a q k, b k a d -> b q a d" %2, %v
  return %y
}
"""
STEP = """func @loss(batch = 4)(%x: bf16[batch, 6], %w: bf16[2, 6, 6]) -> bf16[] on @m {
  %y = repeat 2 carry(%h = %x) slice(%w = %w) {
    %z = einsum "b i, i j -> b j" %h, %w
    %t = tanh %z
    yield %t
  }
  %m = max %y dims [1]
  %l = mean %m dims [0]
  return %l
}
func @f(batch = 4)(%x: bf16[batch, 6], %w: bf16[2, 6, 6]) -> (bf16[], bf16[2, 6, 6]) on @m {
  %l, %d = gradient @loss(batch = batch)(%x, %w) wrt %w
  %u = scale %d by 0.001
  %n = sub %w, %u
  return %l, %n
}
"""


def function(text: str) -> FuncOp:
    """Return @f of a program, without calls."""
    module = collir.parse(HEAD + text)
    return function_without_calls(next(f for f in functions_of(module) if f.sym_name.data == "f"))


def compared(before: str, after: str) -> ComparedRuns:
    old, new = function(before), function(after)
    return run_both(old, new, result_types(old), 0)


def verdict_of_runs(before: str, after: str) -> Verdict:
    return executed(function(before), function(after), "its sums have other forms")


@pytest.mark.parametrize(
    ("program", "old", "new"),
    [
        (LAYERS.replace("DTYPE", "f32"), "scale %y by 1", "scale %y by -1000"),
        (LAYERS.replace("DTYPE", "bf16"), "scale %y by 1", "scale %y by 1.01"),
        (LAYERS.replace("DTYPE", "bf16"), "add %h, %t", "sub %h, %t"),
        (ATTENTION, "by 0.5", "by 0.49"),
        (ATTENTION, "%1 = scale %0 by 0.5", "%1 = barrier %0"),
        (STEP, "%n = sub %w, %u", "%n = add %w, %u"),
        (STEP, "by 0.001", "by 1"),
        (STEP, "tanh %z", "sin %z"),
    ],
)
def test_mistakes_behind_many_roundings_are_found(program: str, old: str, new: str) -> None:
    assert old in program
    assert compared(program, program.replace(old, new)).result is not None


@pytest.mark.parametrize("program", [LAYERS.replace("DTYPE", "bf16"), ATTENTION])
def test_what_the_runs_could_tell_is_said(program: str) -> None:
    found = compared(program, program)
    assert not found.problem
    assert found.response.text == "a change of 1 % in any operation would have shown"


def test_what_a_division_takes_out_again_is_named() -> None:
    """The gradient of a maximum divides by the number of elements that are the largest."""
    found = compared(STEP, STEP)
    assert not found.problem
    blind = "the constant of <string>:9, the where of <string>:9"
    assert found.response.text == f"a change of 1 % in any operation but {blind} would have shown"


def test_an_operation_without_a_response_is_named() -> None:
    blind = """func @f(%x: f32[8@data], %y: f32[8@data]) -> f32[8@data] on @m {
  %square = mul %x, %x
  %down = neg %square
  %cut = relu %down
  %r = add %cut, %y
  return %r
}
"""
    verdict = verdict_of_runs(blind, blind.replace("mul %x, %x", "scale %x by 1"))
    assert verdict.outcome is Outcome.DIFFERENT
    verdict = verdict_of_runs(blind, blind)
    assert verdict.outcome is Outcome.SAME
    assert verdict.explanation == (
        "not proven, equal on 8 runs (its sums have other forms); a change of 1 % in any "
        "operation but %square, %down would have shown"
    )


def test_runs_without_any_response_decide_nothing() -> None:
    text = """func @f(%x: f32[8@data]) -> f32[8@data] on @m {
  %square = mul %x, %x
  %low = neg %square
  %r = log %low
  return %r
}
"""
    verdict = verdict_of_runs(text, text)
    assert (verdict.outcome, verdict.how) == ("unknown", "none")
    assert "no result of 8 runs depends on what its operations compute" in verdict.explanation


def test_rounding_at_an_edge_is_no_difference() -> None:
    """A third of 3 may be 0.9999, and the integer below it 0."""
    text = """func @f(%x: f32[64] partial(sum: data)) -> i32[64] on @m {
  %a = all_reduce %x over data
  %b = scale %a by 0.1
  %c = scale %b by 30
  %r = cast %c to i32
  return %r
}
"""
    assert not compared(
        text, text.replace("by 0.1", "by 30").replace("by 30\n  %r", "by 0.1\n  %r")
    ).problem
    assert not compared(text, text.replace("0.1", "0.10000001")).problem
    assert compared(text, text.replace("0.1", "0.101")).problem


def test_a_recomputed_maximum_is_the_same() -> None:
    """Equal elements are so in each program, though both round in other ways."""
    text = """func @f(%x: f32[4, 8@data], %w: f32[8@data, 6]) -> f32[4, 6] on @m {
  %p = einsum "b i, i j -> b j" %x, %w
  %h = all_reduce %p over data
  %m = max %h dims [1] keepdims
  %wide = broadcast_to %m to f32[4, 6]
  %at = equal %h, %wide
  %r = where %at, %h, %wide
  %f = cast %at to f32
  %g = mul %f, %r
  return %g
}
"""
    other = text.replace(
        "  %h = all_reduce %p over data\n",
        "  %s = mul %w, %w\n  %c = sub %s, %s\n  %e = add %w, %c\n"
        '  %q = einsum "b i, i j -> b j" %x, %e\n  %h = all_reduce %q over data\n',
    )
    assert not compared(text, other).problem


def test_overflow_in_its_own_types_is_found() -> None:
    text = """func @f(%x: f16[8@data]) -> f16[8@data] on @m {
  %a = scale %x by 0.0001
  %r = scale %a by 10000
  return %r
}
"""
    wrong = text.replace("0.0001", "60000").replace("10000", "0.0000166666667")
    assert "in its own types" in compared(text, wrong).problem


@given(rng=RANDOM)
@settings(max_examples=12)
def test_planted_mistakes_are_found(rng: random.Random) -> None:
    program = rng.choice([LAYERS.replace("DTYPE", "bf16").replace("16", "4"), ATTENTION, STEP])
    program = program.replace("bf4", "bf16")
    before = function(program)
    drawn = planted(rng, before)
    if drawn is None or not differ(before, drawn[1]):
        return
    kind, after, name = drawn
    found = run_both(before, after, result_types(before), 0)
    assert found.problem or name in found.response.blind, (kind, name, found.response.text)


@pytest.mark.turns
@pytest.mark.parametrize("passes", ["differentiate,inline,unroll,cse", "differentiate,expand"])
@pytest.mark.parametrize("program", [STEP, ATTENTION])
def test_rewrites_are_no_mistakes(program: str, passes: str) -> None:
    module = collir.parse(HEAD + program)
    sides = [module, collir.run_passes(module.clone(), passes)]
    old, new = (next(f for f in functions_of(m) if f.sym_name.data == "f") for m in sides)
    assert compare(old, new).outcome is Outcome.SAME
    pair = function_without_calls(old), function_without_calls(new)
    assert executed(pair[0], pair[1], "").outcome is Outcome.SAME


@pytest.mark.parametrize("reduction", ["min", "max", "sum"])
def test_parts_of_narrow_integers_are_such_integers(reduction: str) -> None:
    """At the ends of i8, a part beyond them would become another number in a cast."""
    cast, plain = (
        functions_of(
            collir.parse(
                HEAD
                + f"""func @f(%x: i8[64] partial({reduction}: data)) -> i8[64] on @m {{
                  %0 = cast %x to i8
                  %y = all_reduce {value} over data
                  return %y
                }}
                """
            )
        )[0]
        for value in ("%0", "%x")
    )
    assert executed(plain, cast, "").outcome is Outcome.SAME
