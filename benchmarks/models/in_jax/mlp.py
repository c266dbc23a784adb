"""The loss of examples/models/mlp.coll on one device, in jax."""

from typing import Any

import jax
import jax.numpy as jnp


def loss(x: Any, z: Any, v: Any, w: Any) -> Any:
    """Return the mean squared error of a multilayer perceptron."""

    def layer(h: Any, weights: Any) -> tuple[Any, None]:
        v, w = weights
        return jax.nn.relu(jax.nn.relu(h @ v) @ w), None

    y, _ = jax.lax.scan(layer, x, (v, w))
    return jnp.mean((y - z) ** 2)
