"""A language model in JAX: pytrees of weights, and layers in a Python loop."""

import jax
import jax.numpy as jnp


def init(vocab=1024, width=256, heads=4, layers=6):
    """Return the weights."""
    size = width // heads
    normal = jax.nn.initializers.normal(0.02)
    keys = iter(jax.random.split(jax.random.key(0), 1 + 6 * layers))

    def layer():
        return {
            "norm_1": jnp.ones(width),
            "q": normal(next(keys), (width, heads, size)),
            "k": normal(next(keys), (width, heads, size)),
            "v": normal(next(keys), (width, heads, size)),
            "o": normal(next(keys), (heads, size, width)),
            "norm_2": jnp.ones(width),
            "up": normal(next(keys), (width, 4 * width)),
            "down": normal(next(keys), (4 * width, width)),
        }

    return {"embed": normal(next(keys), (vocab, width)), "layers": [layer() for _ in range(layers)]}


def norm(x, gain):
    """Return a value of a mean square of 1, times a gain."""
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * gain


def loss(params, tokens, targets):
    """Return the mean loss of the next words."""
    x = params["embed"][tokens]
    seen = jnp.tril(jnp.ones((tokens.shape[1], tokens.shape[1]), bool))
    for w in params["layers"]:
        h = norm(x, w["norm_1"])
        q, k, v = (jnp.einsum("bsd,dhe->bshe", h, w[name]) for name in "qkv")
        scores = jnp.einsum("bqhe,bkhe->bhqk", q, k) / q.shape[-1] ** 0.5
        shares = jax.nn.softmax(jnp.where(seen, scores, -1e9), axis=-1)
        x = x + jnp.einsum("bhqk,bkhe,hed->bqd", shares, v, w["o"])
        x = x + jax.nn.gelu(norm(x, w["norm_2"]) @ w["up"]) @ w["down"]
    logits = jax.nn.log_softmax(x @ params["embed"].T)
    return -jnp.mean(jnp.take_along_axis(logits, targets[..., None], axis=-1))


def training():
    """Return the loss, and the types of its arguments."""
    words = jax.ShapeDtypeStruct((64, 128), jnp.int32)
    return loss, jax.eval_shape(init), words, words
