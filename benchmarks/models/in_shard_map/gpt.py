"""The loss of examples/models/gpt.coll on the blocks of a device, in jax, as one writes it."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import P, lax

COLUMNS, HEADS, ROWS = P(None, None, "model"), P(None, "model"), P(None, "model")
WEIGHTS = [
    *[P("model"), P(), P(), P()],
    *[COLUMNS, HEADS] * 3,
    *[ROWS, P(), P(), P()],
    *[COLUMNS, HEADS, ROWS, P(), P(), P()],
]
SPECS = (P("data"), P("data"), *WEIGHTS)
"""The layouts of the arguments of the loss."""


def norm(x: Any, gain: Any, bias: Any) -> Any:
    """Return a layer normalisation over the last dimension."""
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * gain + bias


def attention(q: Any, k: Any, v: Any) -> Any:
    """Return causal attention over the heads of a device."""
    seq = q.shape[1]
    scores = jnp.einsum("biad,bjad->baij", q / math.sqrt(q.shape[-1]), k)
    seen = jnp.arange(seq)[None, :] <= jnp.arange(seq)[:, None]
    weights = jax.nn.softmax(jnp.where(seen, scores, -1e9), axis=-1)
    return jnp.einsum("baij,bjad->biad", weights, v)


def layer(x: Any, own: Any) -> tuple[Any, None]:
    """Return the output of a layer."""
    gain_1, bias_1, w_q, b_q, w_k, b_k, w_v, b_v, w_o, b_o = own[:10]
    gain_2, bias_2, w_up, b_up, w_down, b_down = own[10:]
    n = norm(x, gain_1, bias_1)
    q = jnp.einsum("bsh,had->bsad", n, w_q) + b_q
    k = jnp.einsum("bsh,had->bsad", n, w_k) + b_k
    v = jnp.einsum("bsh,had->bsad", n, w_v) + b_v
    x = x + lax.psum(jnp.einsum("bsad,adh->bsh", attention(q, k, v), w_o), "model") + b_o
    n = norm(x, gain_2, bias_2)
    return x + lax.psum(jax.nn.gelu(n @ w_up + b_up) @ w_down, "model") + b_down, None


def loss(tokens: Any, targets: Any, embedding: Any, positions: Any, *weights: Any) -> Any:
    """Return the mean cross entropy of the next token."""
    *stacked, gain, bias = weights
    start = lax.axis_index("model") * embedding.shape[0]
    rows = embedding.at[tokens - start]
    part = rows.get(mode="fill", fill_value=0, wrap_negative_indices=False)
    x, _ = lax.scan(layer, lax.psum(part, "model") + positions, tuple(stacked))
    logits = jnp.einsum("bsh,vh->bsv", norm(x, gain, bias), embedding)
    top = lax.pmax(lax.stop_gradient(logits.max(-1, keepdims=True)), "model")
    shifted = logits - top
    log = jnp.log(lax.psum(jnp.exp(shifted).sum(-1), "model"))
    own = jnp.arange(embedding.shape[0]) + start == targets[..., None]
    picked = lax.psum(jnp.where(own, shifted, 0).sum(-1), "model")
    return lax.pmean(jnp.mean(log - picked), "data")


def adamw(w: Any, g: Any, m: Any, s: Any, rate: Any, time: Any) -> tuple[Any, Any, Any]:
    """Return new weights and means of AdamW."""
    m, s = 0.9 * m + 0.1 * g, 0.999 * s + 0.001 * g * g
    change = m / (1 - 0.9**time) / (jnp.sqrt(s / (1 - 0.999**time)) + 1e-8) + 0.01 * w
    return w - rate * change, m, s


def step(loss_on_mesh: Any, tokens: Any, targets: Any, rate: Any, time: Any, *rest: Any) -> Any:
    """Return the loss, and the new weights and means of a step of AdamW."""
    count = len(WEIGHTS)
    w, m, s = rest[:count], rest[count : 2 * count], rest[2 * count :]
    numbers = tuple(range(2, 2 + count))
    value, gradients = jax.value_and_grad(loss_on_mesh, numbers)(tokens, targets, *w)
    new = [adamw(*own, rate, time) for own in zip(w, gradients, m, s, strict=True)]
    return value, *(part[n] for n in range(3) for part in new)
