"""Models in examples/models: loss and all gradients are those of the same model in jax."""

import pytest
from model_pages import differences

SMALL: dict[str, dict[str, int]] = {
    "mlp": {"batch": 4, "width": 8, "layers": 4},
    "gpt": {"batch": 4, "seq": 3, "hidden": 8, "heads": 4, "layers": 2, "vocab": 12},
}
"""Sizes of each model that differ from each other where they may."""


@pytest.mark.parametrize("name", SMALL)
def test_loss_and_gradients(name: str) -> None:
    """On one device, and sharded on all devices, in f64."""
    sizes = SMALL[name]
    for label, difference in differences(name, sizes.get("vocab", 2), **sizes).items():
        assert difference < 1e-12, label
