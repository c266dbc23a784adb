"""The loss of examples/models/resnet50.coll on one device, in jax."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp


def convolution(x: Any, own: Sequence[Any], stride: int = 1) -> Any:
    """Return a batch normalisation behind a convolution."""
    w, gain, bias = own
    padding = [(n // 2, n // 2) for n in w.shape[:2]]
    layout = ("NHWC", "HWIO", "NHWC")
    x = jax.lax.conv_general_dilated(x, w, (stride, stride), padding, dimension_numbers=layout)
    return (x - x.mean((0, 1, 2))) / jnp.sqrt(x.var((0, 1, 2)) + 1e-5) * gain + bias


def bottleneck(x: Any, own: Sequence[Any], stride: int = 1) -> Any:
    """Return the branch of a block."""
    x = jax.nn.relu(convolution(x, own[:3]))
    x = jax.nn.relu(convolution(x, own[3:6], stride))
    return convolution(x, own[6:9])


def loss(images: Any, labels: Any, *weights: Any) -> Any:
    """Return the mean cross entropy of the classes."""
    x = jax.nn.relu(convolution(images, weights[:3], 2))
    around = [(0, 0), (1, 1), (1, 1), (0, 0)]
    x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), around)
    for number in range(4):
        first, stride = 3 + 21 * number, 2 if number else 1
        own, down = weights[first : first + 9], weights[first + 9 : first + 12]
        x = jax.nn.relu(bottleneck(x, own, stride) + convolution(x, down, stride))
        for block in zip(*weights[first + 12 : first + 21], strict=True):
            x = jax.nn.relu(x + bottleneck(x, block))
    logits = x.mean((1, 2)) @ weights[-2] + weights[-1]
    picked = jnp.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - picked)
