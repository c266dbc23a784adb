"""The loss of examples/models/switch.coll on one device, in jax: each word by itself."""

from typing import Any

import jax
import jax.numpy as jnp

PLACES = 2


def layer(x: Any, own: Any) -> tuple[Any, None]:
    """Return words and what their experts add to them, where these have a place left."""
    gain, w_route, w_up, w_down = own
    n = x / jnp.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * gain
    gates = jax.nn.softmax(n @ w_route, axis=-1)
    chosen = gates.argmax(-1)
    earlier = jnp.tril(jnp.ones((x.shape[1], x.shape[1])), -1)
    same = chosen[:, :, None] == chosen[:, None, :]
    there = (same * earlier).sum(-1) < PLACES
    u = jax.nn.relu(jnp.einsum("gsh,gshf->gsf", n, w_up[chosen]))
    o = jnp.einsum("gsf,gsfh->gsh", u, w_down[chosen])
    return x + o * (gates.max(-1) * there)[..., None], None


def loss(x: Any, targets: Any, *weights: Any) -> Any:
    """Return the mean squared error of layers of experts."""
    y, _ = jax.lax.scan(layer, x, weights)
    return jnp.mean((y - targets) ** 2)
