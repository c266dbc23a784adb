"""The loss of examples/models/vgg19.coll on one device, in jax."""

from typing import Any

import jax
import jax.numpy as jnp


def convolution(x: Any, w: Any, b: Any) -> Any:
    """Return a convolution of 3 x 3 pixels, and what is positive of it."""
    layout = ("NHWC", "HWIO", "NHWC")
    y = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=layout)
    return jax.nn.relu(y + b)


def stage(x: Any, w: Any, b: Any, ws: Any, bs: Any) -> Any:
    """Return the largest of 2 x 2 pixels behind some convolutions."""
    x = convolution(x, w, b)
    for own in zip(ws, bs, strict=True):
        x = convolution(x, *own)
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def loss(images: Any, labels: Any, *weights: Any) -> Any:
    """Return the mean cross entropy of the classes."""
    x = images
    for number in range(5):
        x = stage(x, *weights[4 * number : 4 * number + 4])
    w_6, b_6, w_7, b_7, w_8, b_8 = weights[20:]
    x = jax.nn.relu(jnp.einsum("bijc,ijcf->bf", x, w_6) + b_6)
    x = jax.nn.relu(x @ w_7 + b_7)
    logits = x @ w_8 + b_8
    picked = jnp.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - picked)
