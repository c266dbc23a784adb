"""Tensor parallelism that no type of a file says: which weights an axis divides, and that the step
still computes the same."""

import re
from pathlib import Path

import pytest
from support.harness.seeds import some
from support.semantics.staged_checks import assert_computes
from support.tools.swept import GPT, PERCEPTRON, all_of, space_of

import collir
from collir.dialects.machine import mesh_of
from collir.dialects.tensor import dist_type
from collir.synthesis.sweeping.dividing import Division, division_of, unused_axis
from collir.synthesis.sweeping.programs import named
from collir.synthesis.sweeping.steps import TrainingStep
from collir.tools.collir import main
from collir.tools.machine import preset
from collir.tools.sweep_model import Model, step_of

ROOT = Path(__file__).parents[2]

SHIPPED = ROOT / "collir" / "models"

WRITTEN = [
    SHIPPED / f"{name}.coll" for name in ("llama", "qwen3", "qwen3_moe", "gemma3", "bert", "vit")
]
"""Models with types of tensor parallelism that people wrote, as in Megatron-LM."""

SMALL = {"words", "words_bias", "head", "head_bias"}
"""Small weights in these, which people left whole."""


def _without_types(path: Path) -> str:
    """Return a file without the types that name `model`."""
    return re.sub(r"(?<=[\w)])@model\b", "", path.read_text(encoding="utf-8"))


def _divided(step: TrainingStep, axis: str) -> set[tuple[str, int]]:
    """Return the arguments of a step that an axis divides, each with the dimension."""
    function = named(step.module, step.function)
    names = set(mesh_of(function).of_axis[axis])
    return {
        (argument.name_hint or "", number)
        for argument in function.args
        for number, dim in enumerate(dist_type(argument).dims)
        if names & set(dim.axes)
    }


@pytest.mark.turns
@pytest.mark.parametrize(
    "path", [*some(WRITTEN, 2), GPT.path, PERCEPTRON.path], ids=lambda x: x.stem
)
def test_weights_are_divided_as_people_write_it(path: Path) -> None:
    written = step_of(str(path), path.read_text(encoding="utf-8"), "", (), "pipe")
    assert not unused_axis(written)
    bare = step_of(str(path), _without_types(path), "", (), "pipe")
    assert unused_axis(bare) == "model"
    found = division_of(bare, "model")
    step = step_of(str(path), _without_types(path), "", (), "pipe", found)
    right = _divided(written, "model")
    more = _divided(step, "model") - right
    assert _divided(step, "model") >= right
    assert {name.rpartition(".")[2] for name, _ in more} <= SMALL


@pytest.mark.turns
@pytest.mark.parametrize("name", some(["llama", "bert", "mixtral"], 1))
def test_divided_steps_compute_the_same(name: str) -> None:
    path = SHIPPED / f"{name}.coll"
    text = _without_types(path).replace("data = gpu:4, model = gpu:2", "data = gpu:8")
    small = {"seq": 4, "hidden": 16, "heads": 4, "kv": 2, "layers": 2, "vocab": 16, "inner": 8}
    small |= {"experts": 8, "size": 4, "places": 4, "chosen": 2, "batch": 8}
    bare = step_of(str(path), text, "", (), "pipe")
    sizes = tuple((key, n) for key, n in small.items() if key in bare.parameters)
    assert unused_axis(bare) == "model"
    division = division_of(bare, "model")
    model = Model(str(path), text, "", sizes, preset("dgx_h100").op.value(), "pipe", division)
    for configuration in all_of(space_of(model, 4))[::40]:
        if configuration.degrees["model"] == 2:
            before = model.program(configuration)
            assert_computes(before, collir.run_passes(before.clone(), configuration.passes))


@pytest.mark.turns
@pytest.mark.parametrize("degree", ["model=1", "model=2"])
def test_the_added_axis_has_degrees_as_others_do(
    degree: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bare.coll"
    path.write_text(_without_types(PERCEPTRON.path).replace("2, model = gpu:4", "8"))
    options = "--devices 2 --degree pipe=1 --recompute none --zero 0 --microbatch 1 --top 1"
    sizes = ["--set-size", "width=64", "--set-size", "seq=8"]
    assert main(["sweep", str(path), *options.split(), *sizes, "--degree", degree]) == 0
    out = capsys.readouterr().out
    assert "`model`, which no type names, divides 2 weights" in out
    assert f"mesh of 1: pipe = 1, data = {'gpu:2' if degree == 'model=1' else '1'}" in out


def test_what_has_no_layouts_is_said() -> None:
    division = Division("model", (), "a reason")
    step = PERCEPTRON.model.step
    assert division.text(step) == "no axis divides weights: a reason"
