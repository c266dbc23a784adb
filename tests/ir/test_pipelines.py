"""Tests of pipelines: loops with schedules, and what they are written out as."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cost.pipeline_events import random_schedule
from support.programs.collectives import RANDOM
from support.programs.staged_steps import pipeline_of, staged, step_of, training_step
from xdsl.dialects.builtin import ModuleOp, StringAttr

from collir.dialects.machine import mesh_of
from collir.dialects.tensor import dist_type
from collir.ir.pipelines import Pipeline
from collir.ir.verification import verify
from collir.layout.pipelines.text import schedule_text
from collir.semantics.reference.buffers import distribute
from collir.semantics.reference.executor import execute
from collir.semantics.validation.validate import compare
from collir.transforms.stages.written_out import write_out

_COUNT = 3
_STAGED = {
    name: staged(training_step(2, _COUNT, layers), name)
    for name, layers in (("1f1b", 2), ("zb-h1", 4), ("zb-v", 4))
}


def compare_with_written_out(module: ModuleOp) -> None:
    """Compare a loop with a schedule with its steps, on random small integers, exactly."""
    verify(module)
    written = module.clone()
    write_out(pipeline_of(written))
    verify(written)
    step = step_of(module)
    mesh, rng = mesh_of(step), np.random.default_rng(1)
    inputs = [
        distribute(mesh, rng.integers(-2, 3, x.shape).astype(np.float32), x, rng)
        for x in map(dist_type, step.args)
    ]
    sides = [execute(m, step_of(m), inputs) for m in (module, written)]
    for loop, steps in zip(*sides, strict=True):
        for a, b in zip(loop, steps, strict=True):
            assert (a is None) == (b is None)
            assert a is None or np.array_equal(a, b)


@pytest.mark.parametrize("name", _STAGED)
def test_a_schedule_by_name(name: str) -> None:
    compare_with_written_out(_STAGED[name])


@pytest.mark.turns
@settings(max_examples=15)
@given(RANDOM, st.sampled_from([*_STAGED]))
def test_a_listed_schedule(rng: random.Random, name: str) -> None:
    module = _STAGED[name].clone()
    loop = pipeline_of(module)
    schedule = random_schedule(rng, Pipeline.of(loop).graph, _COUNT)
    loop.schedule = StringAttr(schedule_text(schedule))
    compare_with_written_out(module)


@pytest.mark.turns
def test_what_is_written_out_is_proven_to_be_the_loop() -> None:
    module = staged(training_step(2, 2, 4), "zb-v")
    written = module.clone()
    write_out(pipeline_of(written))
    verdict = compare(step_of(module), step_of(written))
    assert (verdict.outcome, verdict.how) == ("same", "proof")
