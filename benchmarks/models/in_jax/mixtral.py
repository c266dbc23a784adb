"""The loss of examples/models/mixtral.coll on one device, in jax: each word by itself."""

import runpy
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

PLACES = 3

LLAMA = runpy.run_path(str(Path(__file__).with_name("llama.py")))
norm, rotate, attention = LLAMA["norm"], LLAMA["rotate"], LLAMA["attention"]


def experts(x: Any, w_route: Any, w_gate: Any, w_up: Any, w_down: Any) -> Any:
    """Return what the two experts of each word make of it, where these have a place left."""
    scores, chosen = jax.lax.top_k(x @ w_route, 2)
    counts = jax.nn.softmax(scores, axis=-1)
    same = (chosen[:, :, None, :, None] == chosen[:, None, :, None, :]).any(-1)
    earlier = jnp.tril(jnp.ones((x.shape[1], x.shape[1])), -1)
    there = (same * earlier[:, :, None]).sum(2) < PLACES
    y = jnp.zeros_like(x)
    for k in range(2):
        own = chosen[..., k]
        u = jax.nn.silu(jnp.einsum("bsh,bshf->bsf", x, w_gate[own]))
        u = u * jnp.einsum("bsh,bshf->bsf", x, w_up[own])
        o = jnp.einsum("bsf,bsfh->bsh", u, w_down[own])
        y = y + o * (counts[..., k] * there[..., k])[..., None]
    return y


def loss(tokens: Any, targets: Any, embedding: Any, *weights: Any) -> Any:
    """Return the mean cross entropy of the next token."""
    *stacked, gain, output = weights

    def layer(x: Any, own: Any) -> tuple[Any, None]:
        gain_1, w_q, w_k, w_v, w_o, gain_2, *routed = own
        n = norm(x, gain_1)
        q = rotate(jnp.einsum("bsh,had->bsad", n, w_q), 1e6)
        k = rotate(jnp.einsum("bsh,hgd->bsgd", n, w_k), 1e6)
        v = jnp.einsum("bsh,hgd->bsgd", n, w_v)
        x = x + jnp.einsum("bsad,adh->bsh", attention(q, k, v), w_o)
        return x + experts(norm(x, gain_2), *routed), None

    x, _ = jax.lax.scan(layer, embedding[tokens], tuple(stacked))
    logits = norm(x, gain) @ output.T
    picked = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - picked)
