"""Products of imported models have the operations that torch counts."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from support.importing.architectures import small  # noqa: E402
from support.importing.torch_flops import counted_by_torch, in_program  # noqa: E402


@pytest.mark.turns
@pytest.mark.parametrize("name", ["Llama", "T5", "ResNet", "Falcon", "Gemma3", "Mixtral"])
def test_products_have_the_operations_that_torch_counts(name: str) -> None:
    assert in_program(*small(name)) == counted_by_torch(*small(name)) > 0
