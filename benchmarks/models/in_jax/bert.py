"""The loss of examples/models/bert.coll on one device, in jax."""

import math
from typing import Any

import jax
import jax.numpy as jnp


def norm(x: Any, gain: Any, bias: Any) -> Any:
    """Return a layer normalisation over the last dimension."""
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / jnp.sqrt(variance + 1e-12) * gain + bias


def attention(q: Any, k: Any, v: Any) -> Any:
    """Return attention over all heads."""
    scores = jnp.einsum("biad,bjad->baij", q, k) / math.sqrt(q.shape[-1])
    return jnp.einsum("baij,bjad->biad", jax.nn.softmax(scores, axis=-1), v)


def loss(tokens: Any, segments: Any, targets: Any, counts: Any, *weights: Any) -> Any:
    """Return the mean cross entropy of the masked words."""
    words, positions, kinds, gain_0, bias_0, *stacked = weights
    *stacked, w_head, b_head, gain, bias, b_words = stacked

    def layer(x: Any, own: Any) -> tuple[Any, None]:
        w_q, b_q, w_k, b_k, w_v, b_v, w_o, b_o = own[:8]
        gain_1, bias_1, w_up, b_up, w_down, b_down, gain_2, bias_2 = own[8:]
        q = jnp.einsum("bsh,had->bsad", x, w_q) + b_q
        k = jnp.einsum("bsh,had->bsad", x, w_k) + b_k
        v = jnp.einsum("bsh,had->bsad", x, w_v) + b_v
        o = jnp.einsum("bsad,adh->bsh", attention(q, k, v), w_o) + b_o
        h = norm(x + o, gain_1, bias_1)
        d = jax.nn.gelu(h @ w_up + b_up) @ w_down + b_down
        return norm(h + d, gain_2, bias_2), None

    x = norm(words[tokens] + kinds[segments] + positions, gain_0, bias_0)
    x, _ = jax.lax.scan(layer, x, tuple(stacked))
    x = norm(jax.nn.gelu(x @ w_head + b_head), gain, bias)
    logits = x @ words.T + b_words
    picked = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    losses = jax.nn.logsumexp(logits, axis=-1) - picked
    return (losses * counts).sum() / counts.sum()
