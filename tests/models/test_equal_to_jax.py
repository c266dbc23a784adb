"""Models in examples/models: loss and all gradients are those of the same model in jax."""

import pytest
from model_pages import differences
from seeds import chosen

SMALL: dict[str, dict[str, int]] = {
    "mlp": {"batch": 4, "width": 8, "layers": 4},
    "gpt": {"batch": 4, "seq": 3, "hidden": 8, "heads": 4, "layers": 2, "vocab": 12},
    "llama": {
        "batch": 2,
        "seq": 3,
        "hidden": 32,
        "heads": 8,
        "kv": 4,
        "inner": 12,
        "layers": 2,
        "vocab": 16,
    },
    "bert": {"batch": 2, "seq": 3, "hidden": 8, "heads": 4, "layers": 2, "vocab": 12},
    "vit": {
        "batch": 2,
        "grid": 2,
        "patch": 3,
        "hidden": 8,
        "heads": 4,
        "layers": 2,
        "classes": 5,
    },
    "switch": {
        "groups": 8,
        "words": 6,
        "hidden": 4,
        "experts": 8,
        "places": 2,
        "layers": 2,
    },
    "mixtral": {
        "batch": 64,
        "seq": 6,
        "hidden": 8,
        "heads": 4,
        "kv": 2,
        "inner": 5,
        "places": 3,
        "layers": 2,
        "vocab": 12,
    },
    "vgg19": {"batch": 8, "side": 64, "width": 2, "hidden": 8, "classes": 5},
    "resnet50": {
        "batch": 64,
        "side": 32,
        "width": 4,
        "blocks_1": 2,
        "blocks_2": 2,
        "blocks_3": 3,
        "blocks_4": 2,
        "classes": 5,
    },
}
"""Sizes of each model that differ from each other where they may."""


LIMITS = {"bert": 2, "vit": 5, "vgg19": 5, "resnet50": 5}
"""Numbers above all integers of the inputs, where it is not the number of words."""


QUICK = ["mlp", *chosen([*SMALL][1:], 1, "in jax")]


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
