"""Loops and calls compute the same as their iterations and steps one after the other."""

import random
from functools import partial

import pytest
from checks import agree, functions_of, results_on_all_devices, results_on_one_device
from hypothesis import given, settings
from programs import RANDOM, random_module
from xdsl.dialects.builtin import ModuleOp

from collir.dialects.machine import mesh_of
from collir.dialects.nested import NestedOp
from collir.ir.calls import inline_calls
from collir.ir.loops import unroll_all
from collir.ir.verification import verify
from collir.semantics.reference.exactness import exact
from collir.semantics.validation import loops
from collir.semantics.validation.validate import compare, compare_modules
from collir.semantics.validation.verdict import Outcome
from collir.syntax.reader import read
from collir.syntax.writer import write


def straight(module: ModuleOp) -> ModuleOp:
    """Return a copy of a module without calls and loops."""
    copy = module.clone()
    inline_calls(copy)
    unroll_all(copy)
    assert not any(isinstance(op, NestedOp) for op in copy.walk())
    verify(copy)
    return copy


@given(rng=RANDOM)
@settings(max_examples=40, deadline=None)
def test_iterations_one_after_the_other_are_the_loop(rng: random.Random) -> None:
    """On all devices, and on one device where no step rounds."""
    module = random_module(rng, functions=2, steps=8)
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
@settings(max_examples=20, deadline=None)
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
    result = compare(pair[0], before, pair[1], after, memory=0)
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


def test_loops_that_differ_and_are_too_long_are_not_proven() -> None:
    """Without runs, as here, nothing is known of them; it is not said that they are equal."""
    assert verdict(program(WRITTEN), program(WRITTEN, reverse=True))[0] is Outcome.DIFFERENT
    before, after = program(WRITTEN, 10**4), program(WITHOUT_INVARIANT, 10**4)
    assert verdict(before, after) == (Outcome.UNKNOWN, "none")


PARTS = """
func @f(%x: f32[8], %w: f32[12, 8] partial(sum: data)) -> f32[8] on @m {
  %h = repeat 12 carry(%h = %x) slice(%v = %w) {
    %r = all_reduce %v over data
    %a = add %r, %h
    yield %a
  }
  return %h
}
"""
IN_PARTS = """
func @f(%x: f32[8], %w: f32[12, 8] partial(sum: data)) -> f32[8] on @m {
  %1 = pad %w dim 0 high -7
  %a = repeat 5 carry(%h = %x) slice(%v = %1) {
    %r = all_reduce %v over data
    %a = add %r, %h
    yield %a
  }
  %2 = pad %w dim 0 low -5
  %b = repeat 7 carry(%h = %a) slice(%v = %2) {
    %r = all_reduce %v over data
    %a = add %r, %h
    yield %a
  }
  return %b
}
"""


def test_a_loop_is_a_chain_of_loops_over_parts() -> None:
    head = PROGRAM.format(body=WRITTEN, count=1, reverse="").partition("func")[0]
    before, after = (read(head + text, "x.coll") for text in (PARTS, IN_PARTS))
    assert verdict(before, after) == (Outcome.SAME, "proof")
