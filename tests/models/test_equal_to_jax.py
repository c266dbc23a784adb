"""Models in examples/models: loss and all gradients are those of the same model in jax."""

import pytest
from support.harness.seeds import chosen
from support.programs.model_pages import LIMITS, SMALL, differences

QUICK = ["mlp", *chosen([x for x in SMALL if x not in ("mlp", "vgg19", "resnet50")], 1, "in jax")]


@pytest.mark.turns
@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in SMALL],
)
def test_loss_and_gradients(name: str) -> None:
    """On one device, and sharded on all devices, in f64."""
    sizes = SMALL[name]
    for label, difference in differences(
        name, LIMITS.get(name, sizes.get("vocab", 2)), **sizes
    ).items():
        assert difference < 1e-12, label
