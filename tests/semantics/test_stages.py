"""Tests of comparing functions with what they were before they were cut into stages."""

import re

import pytest
from support.harness.seeds import one_of_each
from support.programs.staged_steps import (
    pipeline_of,
    staged,
    step_of,
    training_step,
    whole_batch_step,
)

import collir
from collir.dialects.tensor import agree
from collir.ir.diagnostics import DiagnosticError
from collir.semantics.validation.validate import compare, compare_modules
from collir.syntax.writer import write
from collir.transforms.inlining import inline_calls
from collir.transforms.stages.unstaging import without_stages
from collir.transforms.stages.written_out import write_out

NAMES = ["gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipe"]


@pytest.mark.turns
@pytest.mark.parametrize(("schedule", "places"), one_of_each(NAMES, [2, 4]))
def test_every_schedule_is_proven(schedule: str, places: int) -> None:
    chunks = 2 if schedule in ("interleaved", "zb-v") else 1
    count = {"interleaved": places, "dualpipe": 2 * places}.get(schedule, 2)
    module = training_step(places, count, places * chunks)
    verdict = compare(step_of(module), step_of(staged(module, schedule)))
    assert (verdict.outcome, verdict.how) == ("same", "proof")


def test_the_signature_is_that_before() -> None:
    module = training_step()
    before, after = step_of(module), step_of(staged(module, "zb-v"))
    assert before.function_type != after.function_type
    unstaged = without_stages(before, after)
    after, before = (x.function_type for x in (unstaged.function, before))
    pairs = zip([*after.inputs, *after.outputs], [*before.inputs, *before.outputs], strict=True)
    assert all(agree(x, y) for x, y in pairs)
    assert list(unstaged.results) == [0, 1, 3]


def test_a_signature_that_does_not_differ_stays() -> None:
    module = training_step()
    later = staged(module, "zb-v")
    assert without_stages(step_of(later), step_of(later)).results == range(4)
    verdict = compare(step_of(later), step_of(later.clone()))
    assert (verdict.outcome, verdict.how) == ("same", "proof")


def test_a_batch_is_proven_to_be_its_microbatches() -> None:
    module = whole_batch_step()
    verdict = compare(step_of(module), step_of(staged(module, "1f1b", 2)))
    assert (verdict.outcome, verdict.how) == ("same", "proof")


# --- mistakes -----------------------------------------------------------------------------------


def found(schedule: str, *edits: tuple[str, str]) -> str:
    """Return the error for a pipeline whose text is edited; names are those of the writer."""
    module = training_step()
    text = write(staged(module, schedule))
    for old, new in edits:
        text, count = re.subn(old, new, text)
        assert count == 1, text
    with pytest.raises(DiagnosticError) as caught:
        compare_modules(module, collir.parse(text, "after.coll"))
    return "\n".join(error.message for error in caught.value.diagnostics)


@pytest.mark.turns
def test_gradients_in_the_order_of_other_chunks() -> None:
    rows = (
        (r"assemble %d_w, %d_w_1", "assemble %d_w_3, %d_w_1"),
        (
            r"= assemble %d_w_3, %d_w_2",
            "= assemble %d_w, %d_w_2",
        ),
    )
    assert "@step computes something else" in found("zb-v", *rows)


@pytest.mark.turns
def test_a_forward_task_with_weights_of_another_chunk() -> None:
    swapped = (
        (r"(forward_1\(.*?\)\(%y_1, )%w_7", r"\1%w_8"),
        (r"(forward_1\(.*?\)\(%y_2, )%w_8", r"\1%w_7"),
    )
    assert "@step computes something else" in found("zb-v", *swapped)


def test_a_task_that_takes_weights_of_another_chunk_too() -> None:
    error = found("zb-v", (r"(forward_1\(.*?\)\(%y_1, )%w_7", r"\1%w_8"))
    assert "which chunk row 0 of its stacks holds at place 1 is not known: no forward" in error


@pytest.mark.turns
def test_an_activation_of_another_chunk() -> None:
    assert "@step computes something else" in found("zb-v", (r"(forward_3\(.*?\)\()%y_4", r"\1%y"))


def test_a_gradient_that_is_left_out() -> None:
    error = found("1f1b", (r"%d_w_2 = assemble %d_w, ", "%d_w_2 = assemble %none_w_1, "))
    assert "@step computes something else for %new_w, result 1" in error


def test_a_sum_over_microbatches_in_the_place_of_their_mean() -> None:
    module = whole_batch_step()
    text = write(staged(module, "1f1b", 2))
    wrong = re.sub(r"scale (%d_w\w*) by 0.5", r"scale \1 by 1", text)
    assert wrong != text
    with pytest.raises(DiagnosticError, match="@step computes something else for %new_w"):
        compare_modules(module, collir.parse(wrong, "after.coll"))


def test_a_send_from_a_wrong_place() -> None:
    text = write(staged(training_step(), "1f1b"))
    wrong = text.replace("send %y over pipe from 0 to 1", "send %y over pipe from 1 to 0")
    assert wrong != text
    with pytest.raises(DiagnosticError):
        collir.parse(wrong)


@pytest.mark.turns
def test_the_gradient_of_a_microbatch_that_is_left_out() -> None:
    module = training_step()
    later = staged(module, "1f1b")
    write_out(pipeline_of(later))
    assert compare(step_of(module), step_of(later)).how == "proof"
    text = write(later)
    calls = re.findall(r"(%\w+, %\w+) = call @backward_0\(.*, (%\w+, %\w+)\) task B0", text)
    (_, start), (_, before) = calls
    wrong = text.replace(f"{before}) task B0", f"{start}) task B0")
    assert wrong != text
    with pytest.raises(DiagnosticError, match="@step computes something else"):
        compare_modules(module, collir.parse(wrong, "after.coll"))


@pytest.mark.turns
def test_rows_of_chunks_that_are_written_out() -> None:
    module = training_step()
    later = staged(module, "zb-v")
    write_out(pipeline_of(later))
    verdict = compare(step_of(module), step_of(later))
    assert (verdict.outcome, verdict.how) == ("same", "proof")


def test_places_without_tasks() -> None:
    module = training_step()
    later = staged(module, "1f1b")
    inline_calls(later)
    verdict = compare(step_of(module), step_of(later))
    assert (verdict.outcome, verdict.how) == ("different", "none")
    assert verdict.explanation == "its argument 0 is f32[2, 2, 2] root(pipe), and was f32[2, 2, 2]"


@pytest.mark.turns
@pytest.mark.parametrize("options", ["layers=1,3", "schedule=zb-v layers=2,1,1,2"])
@pytest.mark.parametrize("before", ["", "differentiate,"])
def test_different_layers_are_proven(options: str, before: str) -> None:
    module = training_step(layers=4 if "zb-v" not in options else 6)
    later = collir.run_passes(module.clone(), f"{before}pipeline{{{options}}}")
    checked = compare_modules(module, later, new=False)
    assert {verdict.verdict.outcome for verdict in checked} == {"same"}
