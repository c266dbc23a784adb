"""Collectives that are written as rounds of an algorithm compute what they are."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.programs.by_rounds import KEYS, WRITTEN, function_of, machine_of
from support.programs.collectives import RANDOM
from support.semantics.checks import functions_of
from support.semantics.local_programs import assert_runs, lowered

from collir.dialects.local import STEP, StartOp
from collir.dialects.machine import mesh_of
from collir.localize.writer import GroupRules
from collir.syntax.reader import read
from collir.syntax.writer import write
from collir.tools.api import parse, run_passes


def source(key: tuple[str, str], rng: random.Random) -> str:
    """Return a program with one collective, on an axis of one level or two beside another one."""
    outer, inner, other = rng.choice([1, 2, 3, 4]), rng.choice([1, 2, 3, 4]), rng.choice([1, 2])
    return machine_of(outer, inner, other, rng) + function_of(key, outer * inner, rng)


@pytest.mark.turns
@pytest.mark.parametrize("key", KEYS, ids="-".join)
@settings(max_examples=12)
@given(rng=RANDOM)
def test_rounds_compute_what_the_collective_does(key: tuple[str, str], rng: random.Random) -> None:
    module = parse(source(key, rng))
    [function] = functions_of(module)
    program = lowered(module, GroupRules(ascending=rng.random() < 0.3))["f"]
    ranks = math.prod(x.size for x in mesh_of(function).sub_axes if x.axis == "d")
    starts = {op.called for op in program.walk() if isinstance(op, StartOp)}
    assert starts <= ({"send", "shift"} if WRITTEN[key].fits(ranks) else {key[0]})
    assert_runs(program, module, function, rng)


@given(rng=RANDOM, key=st.sampled_from(KEYS))
@settings(max_examples=20)
def test_rounds_are_printed_and_read(key: tuple[str, str], rng: random.Random) -> None:
    module = parse(source(key, rng))
    run_passes(module, "localize")
    for op in module.walk():
        op.attributes.pop(STEP, None)  # a comment
    text = write(module)
    assert write(read(text)) == text
