"""Experts with places for a part of the words: those that find one are computed as all are."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.harness.seeds import some

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from collir.importing.models.hugging_face import set_experts  # noqa: E402
from collir.importing.models.torch_models import import_torch  # noqa: E402
from collir.ir.diagnostics import DiagnosticError  # noqa: E402
from collir.tools import collir as tool  # noqa: E402
from collir.tools import collrun  # noqa: E402

SIZES = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "vocab_size": 40,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 16,
}

KINDS = {
    "Mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "GptOss": {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 4},
    "Qwen3Moe": {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 12},
}


def _loss_and_gradients(model: Any, words: Any) -> list[Any]:
    model.zero_grad()
    loss = model(words, labels=words).loss
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in model.parameters())]


@pytest.mark.parametrize("kind", some(list(KINDS), 1))
def test_as_many_places_as_words_drop_none(kind: str) -> None:
    config = getattr(transformers, f"{kind}Config")(**SIZES, **KINDS[kind])
    torch.manual_seed(1)
    model = getattr(transformers, f"{kind}ForCausalLM")(config).double().eval()
    words = torch.randint(0, 40, (3, 8))
    model.set_experts_implementation("eager")
    own = _loss_and_gradients(model, words)
    assert set_experts(model)
    for there, here in zip(own, _loss_and_gradients(model, words), strict=True):
        assert torch.allclose(there, here, rtol=1e-5, atol=1e-7)  # routers are in f32
    right = model(words).logits
    assert set_experts(model, 3, 100.0)
    assert torch.allclose(model(words).logits, right, rtol=1e-9, atol=1e-12)
    assert set_experts(model, 3, 0.5)
    few = model(words).logits
    assert not torch.allclose(few, right)
    assert torch.isfinite(few).all()


@pytest.mark.turns
def test_a_program_with_places_is_that_of_the_batch(tmp_path: Path) -> None:
    config = transformers.MixtralConfig(**SIZES, **KINDS["Mixtral"], use_cache=False)
    with torch.device("meta"):
        model = transformers.MixtralForCausalLM(config)
    words = torch.zeros(8, 8, dtype=torch.long)
    text = import_torch(
        model, (), {"input_ids": words, "labels": words.clone()}, optimizer="adamw", capacity=1.25,
        machine="@dgx_h100(nodes = 1)", mesh="data = gpu:4, model = gpu:2",
    ).text  # fmt: skip
    assert "batch = 8" in text
    assert "iota dim 0 to i64[5]" in text  # 1.25 * 8 * 2 / 4 places
    path = tmp_path / "step.coll"
    path.write_text(text)
    assert collrun.main([str(path), "-p", "shard", "--function", "step"]) == 0


@pytest.mark.turns
def test_what_the_price_has_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.json"
    config = {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral"}
    path.write_text(json.dumps(config | SIZES | KINDS["Mixtral"]))
    assert tool.main(["import", "hf", str(path), "--batch", "8", "--seq", "8"]) == 0
    assert (
        "remark: the price is that of words which are spread evenly over the experts"
        in capsys.readouterr().err
    )


def test_a_capacity_needs_experts() -> None:
    with pytest.raises(DiagnosticError, match="a capacity is of experts, and the model has none"):
        import_torch(torch.nn.Linear(4, 4), (torch.zeros(2, 4),), capacity=1.0)
