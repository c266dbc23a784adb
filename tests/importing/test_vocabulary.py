"""Words that are added to a vocabulary change neither the loss nor the gradients of the others."""

import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from support.importing.torch_gradients import compared  # noqa: E402

from collir.importing.models.hugging_face import HeadError, model_of  # noqa: E402
from collir.tools import collir as tool  # noqa: E402

CONFIG = {
    "architectures": ["GPT2LMHeadModel"],
    "model_type": "gpt2",
    "n_embd": 16,
    "n_layer": 2,
    "n_head": 2,
    "vocab_size": 45,
    "n_positions": 8,
    "bos_token_id": 0,
    "eos_token_id": 0,
}


@pytest.mark.turns
def test_added_words_get_no_chance() -> None:
    padded, kwargs = model_of(CONFIG, "", 2, 8, 16)
    padded = padded.to_empty(device="cpu")
    padded.tie_weights()
    padded.apply(padded._init_weights)
    own = transformers.GPT2LMHeadModel(transformers.GPT2Config(**CONFIG)).eval()
    words = torch.randint(0, 45, (2, 8), generator=torch.Generator().manual_seed(1))
    kwargs |= {"input_ids": words, "labels": words}
    result = compared(padded, kwargs)
    assert result.worst < 1e-9
    with torch.no_grad():
        state = {n: x[:45] if n.endswith(("wte.weight", "head.weight")) else x
                 for n, x in padded.state_dict().items()}  # fmt: skip
        own.double().load_state_dict(state)
    right = own(**kwargs).loss
    assert np.isclose(padded(**kwargs).loss.item(), right.item(), rtol=1e-6)
    [mine] = torch.autograd.grad(padded(**kwargs).loss, [padded.transformer.wte.weight])
    [theirs] = torch.autograd.grad(right, [own.transformer.wte.weight])
    assert torch.allclose(mine[:45], theirs, rtol=1e-4, atol=1e-7)
    assert not mine[45:].any()


@pytest.mark.turns
def test_the_program_has_words_that_axes_divide(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    words = ["import", "hf", str(path), "--batch", "8", "--seq", "8", "--pad-vocab", "16"]
    assert tool.main(words) == 0
    shown = capsys.readouterr()
    assert "transformer.wte.weight: float[48, 16]" in shown.out
    assert "--pad-vocab 16" in shown.out
    assert "remark: the scores of words are 48; those that were added get no chance" in shown.err


def test_a_model_without_scores_of_words_is_an_error() -> None:
    with pytest.raises(HeadError, match="ViTForImageClassification has no scores of words"):
        model_of({"model_type": "vit"}, "ViTForImageClassification", 2, None, 16)
