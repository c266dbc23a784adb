"""The loss of examples/models/vit.coll on one device, in jax."""

import math
from typing import Any

import jax
import jax.numpy as jnp


def norm(x: Any, gain: Any, bias: Any) -> Any:
    """Return a layer normalisation over the last dimension."""
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / jnp.sqrt(variance + 1e-6) * gain + bias


def attention(q: Any, k: Any, v: Any) -> Any:
    """Return attention over all heads."""
    scores = jnp.einsum("biad,bjad->baij", q, k) / math.sqrt(q.shape[-1])
    return jnp.einsum("baij,bjad->biad", jax.nn.softmax(scores, axis=-1), v)


def loss(images: Any, labels: Any, w_patch: Any, b_patch: Any, *weights: Any) -> Any:
    """Return the mean cross entropy of the classes."""
    first, positions, *stacked = weights
    *stacked, gain, bias, w_head, b_head = stacked
    patch, hidden = w_patch.shape[1], w_patch.shape[-1]

    def layer(x: Any, own: Any) -> tuple[Any, None]:
        w_q, b_q, w_k, b_k, w_v, b_v, w_o, b_o = own[:8]
        gain_1, bias_1, w_up, b_up, w_down, b_down, gain_2, bias_2 = own[8:]
        n = norm(x, gain_1, bias_1)
        q = jnp.einsum("bsh,had->bsad", n, w_q) + b_q
        k = jnp.einsum("bsh,had->bsad", n, w_k) + b_k
        v = jnp.einsum("bsh,had->bsad", n, w_v) + b_v
        x = x + jnp.einsum("bsad,adh->bsh", attention(q, k, v), w_o) + b_o
        n = norm(x, gain_2, bias_2)
        return x + jax.nn.gelu(n @ w_up + b_up) @ w_down + b_down, None

    x = jax.lax.conv_general_dilated(
        images, w_patch, (patch, patch), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    words = x.reshape(len(images), -1, hidden) + b_patch
    x = jnp.concatenate([jnp.broadcast_to(first, (len(images), 1, hidden)), words], 1) + positions
    x, _ = jax.lax.scan(layer, x, tuple(stacked))
    logits = norm(x[:, 0], gain, bias) @ w_head + b_head
    picked = jnp.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - picked)
