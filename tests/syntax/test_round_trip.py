"""Generated modules survive the way through ``.coll``, custom MLIR and generic MLIR unchanged."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.programs.collectives import RANDOM, random_module
from support.syntax.mlir import mlir

from collir.ir.diagnostics import Sources
from collir.ir.verification import verify
from collir.syntax.mlir import read_mlir
from collir.syntax.reader import read
from collir.syntax.writer import write
from collir.tools.api import context

STEPS = st.integers(0, 8)


@given(rng=RANDOM, steps=STEPS)
@settings(max_examples=12)
def test_coll_is_a_fixed_point(rng: random.Random, steps: int) -> None:
    module = random_module(rng, 3, steps, weights=0.3)
    text = write(module)
    again = read(text)
    assert again.is_structurally_equivalent(module)
    assert write(again) == text


@pytest.mark.turns
@given(rng=RANDOM, steps=STEPS)
@settings(max_examples=12)
def test_mlir_loses_nothing(rng: random.Random, steps: int) -> None:
    module = random_module(rng, 3, steps, weights=0.3)
    text = write(module)
    for generic in (False, True):
        reread = read_mlir(context(), mlir(module, generic=generic), "<mlir>", Sources())
        verify(reread)
        assert reread.is_structurally_equivalent(module)
        assert write(reread) == text


@given(rng=RANDOM, steps=STEPS)
@settings(max_examples=12)
def test_every_operation_knows_its_position(rng: random.Random, steps: int) -> None:
    module = random_module(rng, 3, steps, weights=0.3)
    text = write(module)
    lines = text.splitlines()
    for op in read(text, "x.coll").ops:
        for inner in op.walk():
            location = str(inner.location)
            assert location.startswith('loc("x.coll":'), inner.name
            if inner.name.startswith("coll."):
                _, line, column = location.rstrip(")").rsplit(":", 2)
                rest = lines[int(line) - 1][int(column) - 1 :]
                assert rest.startswith(inner.name.removeprefix("coll."))


def test_a_negative_zero_is_not_the_default() -> None:
    """The value 0 of a ``pad`` is not written; -0 is another number."""
    text = """\
machine @one {
  level gpu[1] { port = 1 GB/s, latency = 1 us }
}

mesh @m on @one { data = 1 }

func @f(%x: f32[2]) -> f32[3] on @m {
  %0 = pad %x dim 0 high 1 value -0
  return %0
}
"""
    module = read(text)
    assert "pad %x dim 0 high 1 value -0\n" in write(module)
    assert read(write(module)).is_structurally_equivalent(module)
