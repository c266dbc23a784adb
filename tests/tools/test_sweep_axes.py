"""Axes that a sweep adds, stages that do not divide the layers, and attention that is computed
again: which configurations there are, and that they compute the same."""

from collections import Counter
from dataclasses import replace

import pytest
from support.semantics.staged_checks import assert_computes
from support.tools.swept import GPT, PERCEPTRON, all_of, space_of

import collir
from collir.dialects.tensor import dist_type
from collir.synthesis.sweeping.programs import named
from collir.synthesis.sweeping.steps import TrainingStep
from collir.tools.collir import main
from collir.tools.sweep_model import Model

SIZES = {"batch": 8, "seq": 8, "hidden": 16, "heads": 4, "layers": 2, "vocab": 16}


def test_copies_are_outside_of_what_zero_divides() -> None:
    """On two nodes: copies of nodes, of one stage, with ZeRO-3."""
    model = replace(PERCEPTRON.model, added=("replica",))
    found = [c for c in all_of(space_of(model, 16)) if c.degrees["replica"] > 1]
    assert {dict(c.axes)["replica"] for c in found} == {(2, 1)}
    assert all(dict(c.axes)["data"][1] > 1 == dict(c.axes)["data"][0] for c in found)
    assert {(c.stages, c.zero) for c in found} == {(1, 3)}
    asked = replace(space_of(model, 16), degrees={"replica": (2,), "pipe": (1,)})
    found = all_of(asked)
    assert {c.zero for c in found} == {1, 2, 3}
    assert (1, 2) in {dict(c.axes)["replica"] for c in found}


def test_copies_reduce_what_is_scattered_already() -> None:
    model = replace(PERCEPTRON.model, added=("replica",), sizes=(("batch", 256),))
    space = replace(space_of(model, 16), degrees={"replica": (2,), "pipe": (1,), "data": (8,)})
    [configuration, *_] = [c for c in all_of(space) if c.zero == 3 and c.microbatches == 1]
    text = collir.emit(model.compiled(configuration, "microbatch{microbatches=1},propagate"))
    assert "reduce_scatter" in text
    sums = [line for line in text.splitlines() if "all_reduce" in line]
    assert sums and all("over replica" in line for line in sums if "partial" not in line)


@pytest.mark.parametrize(
    ("layers", "stages", "chunks", "expected"),
    [
        (126, 16, 1, (7, *[8] * 14, 7)),
        (7, 4, 1, (2, 2, 2, 1)),
        (5, 4, 1, (1, 2, 1, 1)),
        (10, 4, 2, (1, 2, 1, 1) * 2),
        (8, 4, 1, ()),
    ],
)
def test_stages_that_do_not_divide_the_layers(
    layers: int, stages: int, chunks: int, expected: tuple[int, ...]
) -> None:
    """The last stage has fewer first, then the first one, then others from the end."""
    space = replace(space_of(PERCEPTRON.model, 64), layers=layers, chunks=(chunks,), batch=512)
    schedule = "1f1b" if chunks == 1 else "interleaved"
    space = replace(space, schedules=(schedule,), degrees={"pipe": (stages,)})
    found = all_of(space)
    assert {c.layers for c in found} == {expected}
    assert {sum(c.layers_of_stages(layers)) for c in found} == {layers}
    assert expected == () or not all_of(replace(space, uneven=False))


@pytest.mark.turns
def test_estimates_know_the_layers_of_stages() -> None:
    """One more layer at the stages between takes time there alone."""
    model = replace(PERCEPTRON.model, sizes=(("layers", 6),))
    space = replace(space_of(model, 4), degrees={"pipe": (4,)}, zero=(0,), recompute=(False,))
    for configuration, estimate in model.estimator(1).estimates(all_of(space)):
        if configuration.microbatches > 1:
            assert not isinstance(estimate, str)
            simulation = model.simulated(configuration)
            assert 0.9 < estimate.timed() / simulation.time < 1.03


@pytest.mark.turns
def test_an_axis_divides_words_where_sequences_are_long(
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = replace(GPT._replace(sizes=SIZES).model, added=("context",))
    step = model.step
    assert (step.context, step.shards) == (("context",), ("data", "context"))
    function = named(step.module, step.function)
    divided = {x.name_hint for x in function.args if "context" in str(dist_type(x))}
    assert divided == {"words", "next"}
    arguments = ["--degree", "context=2", "--degree", "pipe=1", "--degree", "model=1"]
    arguments += ["--zero", "3", "--recompute", "none", "--set-size", "seq=64", "--top", "1"]
    arguments += [text for name in ("hidden=64", "layers=2") for text in ("--set-size", name)]
    assert main(["sweep", str(GPT.path), *arguments, "--devices", "4", "--global-batch", "8"]) == 0
    assert "context" in capsys.readouterr().out


@pytest.mark.turns
def test_divided_words_compute_the_same() -> None:
    model = replace(GPT._replace(sizes=SIZES).model, added=("context",))
    degrees = {"context": (2,), "data": (2,), "model": (1,), "pipe": (1,)}
    space = replace(space_of(model, 4), degrees=degrees, microbatch=(2,), recompute=(False,))
    for configuration in all_of(space):
        if configuration.zero in (0, 3):
            before = model.program(configuration)
            assert_computes(before, collir.run_passes(before.clone(), configuration.passes))


def test_sequences_are_divided_for_a_larger_batch_than_the_default() -> None:
    """The types in the layers have the sizes of the batch that the configuration has."""
    model = GPT._replace(sizes=SIZES).model
    degrees = {"data": (128,), "model": (2,), "pipe": (1,)}
    space = replace(space_of(model, 256), degrees=degrees, batch=128, zero=(1,))
    [configuration, *_] = all_of(space)
    divided = replace(configuration, sequence=("model",))
    assert "bf16[batch@data, seq@model, hidden]" in collir.emit(model.program(divided))
    assert model.simulated(divided).time > 0


def test_axes_that_divide_no_dimension_are_counted() -> None:
    model = GPT._replace(sizes={**SIZES, "heads": 4}).model
    refused = Counter[str]()
    space = replace(space_of(model, 8), divided=model.step.divided)
    assert all(c.degrees["model"] <= 4 for c in space.configurations(refused))
    assert refused["model = 8 does not divide 4"]


def _unfused() -> tuple[Model, TrainingStep]:
    """Return a GPT whose attention is no kernel."""
    model = GPT._replace(sizes={**SIZES, "seq": 64}).model
    model = replace(model, text=model.text.replace("(%q, %k, %v) fused", "(%q, %k, %v)"))
    return model, model.step


@pytest.mark.turns
def test_attention_is_computed_again_where_it_is_no_kernel() -> None:
    model, step = _unfused()
    assert step.called == {"causal_attention": True}
    assert not GPT.model.step.called
    space = replace(space_of(model, 2), recompute=(False, step_names(step), True))
    degrees = {"pipe": (1,), "model": (1,)}
    space = replace(space, degrees=degrees, zero=(0,), microbatch=(2,))
    peaks = {c.recompute: model.simulated(c).peak for c in all_of(space)}
    assert peaks[True] < peaks[step_names(step)] < peaks[False]


def step_names(step: TrainingStep) -> tuple[str, ...]:
    """Return the functions that layers call."""
    return tuple(step.called)


@pytest.mark.turns
def test_attention_that_is_computed_again_computes_the_same() -> None:
    model, step = _unfused()
    model = replace(model, sizes=tuple(SIZES.items()))
    space = replace(space_of(model, 2), recompute=(step_names(step),), zero=(0,), microbatch=(2,))
    for configuration in all_of(replace(space, degrees={"pipe": (1,)})):
        before = model.program(configuration)
        assert_computes(before, collir.run_passes(before.clone(), configuration.passes))
