"""The loss of examples/models/mlp.coll on the blocks of a device, in jax, as one writes it."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import P, lax

SPECS = (P("data"), P("data"), P(None, None, "model"), P(None, "model"))
"""The layouts of the arguments of the loss."""


def loss(x: Any, z: Any, v: Any, w: Any) -> Any:
    """Return the mean squared error."""

    def layer(h: Any, own: Any) -> tuple[Any, None]:
        columns, rows = own
        h = jax.nn.relu(h @ columns)
        return jax.nn.relu(lax.psum(h @ rows, "model")), None

    y, _ = lax.scan(layer, x, (v, w))
    return lax.pmean(jnp.mean((y - z) ** 2), "data")


def step(loss_on_mesh: Any, x: Any, z: Any, v: Any, w: Any) -> Any:
    """Return the loss and the new weights of a step of gradient descent."""
    value, (d_v, d_w) = jax.value_and_grad(loss_on_mesh, (2, 3))(x, z, v, w)
    return value, v - 0.01 * d_v, w - 0.01 * d_w
