"""The loss of examples/models/llama.coll on one device, in jax."""

import math
from typing import Any

import jax
import jax.numpy as jnp


def norm(x: Any, gain: Any) -> Any:
    """Return an RMS norm over the last dimension."""
    return x / jnp.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * gain


def rotate(x: Any, base: float = 500000.0) -> Any:
    """Return heads whose halves are turned by their positions."""
    seq, size = x.shape[1], x.shape[-1]
    frequency = base ** (-2 * jnp.arange(size // 2) / size)
    angle = (jnp.arange(seq)[:, None] * frequency)[:, None]
    first, second = x[..., : size // 2], x[..., size // 2 :]
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1)


def attention(q: Any, k: Any, v: Any) -> Any:
    """Return causal attention with grouped queries."""
    seq, groups = q.shape[1], k.shape[2]
    q = q.reshape(*q.shape[:2], groups, -1, q.shape[-1])
    scores = jnp.einsum("bigrd,bjgd->bgrij", q, k) / math.sqrt(q.shape[-1])
    seen = jnp.arange(seq)[None, :] <= jnp.arange(seq)[:, None]
    weights = jax.nn.softmax(jnp.where(seen, scores, -1e9), axis=-1)
    mixed = jnp.einsum("bgrij,bjgd->bigrd", weights, v)
    return mixed.reshape(*mixed.shape[:2], -1, mixed.shape[-1])


def loss(tokens: Any, targets: Any, embedding: Any, *weights: Any) -> Any:
    """Return the mean cross entropy of the next token."""
    *stacked, gain, output = weights

    def layer(x: Any, own: Any) -> tuple[Any, None]:
        gain_1, w_q, w_k, w_v, w_o, gain_2, w_gate, w_up, w_down = own
        n = norm(x, gain_1)
        q = rotate(jnp.einsum("bsh,had->bsad", n, w_q))
        k = rotate(jnp.einsum("bsh,hgd->bsgd", n, w_k))
        v = jnp.einsum("bsh,hgd->bsgd", n, w_v)
        x = x + jnp.einsum("bsad,adh->bsh", attention(q, k, v), w_o)
        n = norm(x, gain_2)
        return x + (jax.nn.silu(n @ w_gate) * (n @ w_up)) @ w_down, None

    x, _ = jax.lax.scan(layer, embedding[tokens], tuple(stacked))
    logits = norm(x, gain) @ output.T
    picked = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - picked)
