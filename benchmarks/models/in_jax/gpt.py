"""The loss of examples/models/gpt.coll on one device, in jax."""

import math
from typing import Any

import jax
import jax.numpy as jnp


def norm(x: Any, gain: Any, bias: Any) -> Any:
    """Return a layer normalisation over the last dimension."""
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / jnp.sqrt(variance + 1e-5) * gain + bias


def attention(q: Any, k: Any, v: Any) -> Any:
    """Return causal attention over all heads."""
    seq = q.shape[1]
    scores = jnp.einsum("biad,bjad->baij", q, k) / math.sqrt(q.shape[-1])
    seen = jnp.arange(seq)[None, :] <= jnp.arange(seq)[:, None]
    weights = jax.nn.softmax(jnp.where(seen, scores, -1e9), axis=-1)
    return jnp.einsum("baij,bjad->biad", weights, v)


def loss(tokens: Any, targets: Any, embedding: Any, positions: Any, *weights: Any) -> Any:
    """Return the mean cross entropy of the next token."""
    *stacked, gain, bias = weights

    def layer(x: Any, own: Any) -> tuple[Any, None]:
        gain_1, bias_1, w_q, b_q, w_k, b_k, w_v, b_v, w_o, b_o = own[:10]
        gain_2, bias_2, w_up, b_up, w_down, b_down = own[10:]
        n = norm(x, gain_1, bias_1)
        q = jnp.einsum("bsh,had->bsad", n, w_q) + b_q
        k = jnp.einsum("bsh,had->bsad", n, w_k) + b_k
        v = jnp.einsum("bsh,had->bsad", n, w_v) + b_v
        x = x + jnp.einsum("bsad,adh->bsh", attention(q, k, v), w_o) + b_o
        n = norm(x, gain_2, bias_2)
        return x + jax.nn.gelu(n @ w_up + b_up) @ w_down + b_down, None

    x, _ = jax.lax.scan(layer, embedding[tokens] + positions, tuple(stacked))
    logits = norm(x, gain, bias) @ embedding.T
    picked = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - picked)
