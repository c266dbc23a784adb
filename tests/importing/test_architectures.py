"""Loss and all gradients of every listed architecture of transformers equal torch's."""

import json
from pathlib import Path

import pytest
from support.harness.seeds import some

import collir

pytest.importorskip("torch")
pytest.importorskip("transformers")

from support.importing.architectures import FIRST, MORE, small
from support.importing.torch_gradients import compared

from collir.tools import collir as tool


@pytest.mark.turns
@pytest.mark.parametrize(
    "name", [*some(FIRST, 3), *(pytest.param(name, marks=pytest.mark.slow) for name in MORE)]
)
def test_loss_and_gradients_are_those_of_torch(name: str) -> None:
    model, arguments = small(name)
    result = compared(model, arguments)
    assert result.worst < 1e-9, result.gradients


LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 512,
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 2, "max_position_embeddings": 128,
}  # fmt: skip


@pytest.mark.turns
def test_a_configuration_is_a_training_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text(json.dumps(LLAMA))
    words = [
        "import",
        "hf",
        ".",
        "--batch",
        "16",
        "--optimizer",
        "adamw",
        "--precision",
        "bf16",
        "-o",
        "step.coll",
    ]
    assert tool.main(words) == 0, capsys.readouterr().err
    text = Path("step.coll").read_text()
    assert "func @step(batch = 16, layers = 4)" in text
    assert "call @causal_attention_of_groups(seq = 128, keys = 128)" in text
    module = collir.run_passes(collir.parse("step.coll"), "propagate")
    assert all(simulation.time > 0 for simulation in collir.simulate(module))


@pytest.mark.turns
@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        ({}, [], 'the configuration has no "model_type"'),
        ({"model_type": "llama"}, [], 'has no "architectures": name a class with --head'),
        (LLAMA | {"architectures": ["Nothing"]}, [], "transformers has no model Nothing"),
        (LLAMA | {"hidden_size": "x"}, [], "transformers makes no model of this"),
        (LLAMA, ["--head", "LlamaModel", "--optimizer", "sgd"], "a training step needs a loss"),
    ],
)
def test_a_configuration_that_makes_no_model_is_one_error(
    config: dict[str, object], options: list[str], message: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    assert tool.main(["import", "hf", str(file), *options]) == 1
    shown = capsys.readouterr()
    assert message in shown.err and not shown.out and "Traceback" not in shown.err, shown.err
