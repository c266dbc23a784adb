"""The training steps of examples/models/styles.coll and of programs.coll in jax, which XLA
partitions: nothing here says anything of devices."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

Weights = tuple[jax.Array, ...]

RATE = 0.1


def rms_norm(x: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def causal_attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Return the values of the positions up to each one, weighted by softmax."""
    scores = jnp.einsum("bqad,bkad->baqk", q, k) * q.shape[-1] ** -0.5
    positions = jnp.arange(q.shape[1])
    seen = positions[None, :] <= positions[:, None]
    shares = jax.nn.softmax(jnp.where(seen, scores, -1e30), axis=-1)
    return jnp.einsum("baqk,bkad->bqad", shares, v)


def layers(x: jax.Array, weights: Weights) -> jax.Array:
    """Return the layers of a decoder, of which the weights are stacks."""

    def layer(x: jax.Array, weights: Weights) -> tuple[jax.Array, None]:
        w_q, w_k, w_v, w_o, up, down = weights
        n = rms_norm(x)
        q, k, v = (jnp.einsum("bsh,had->bsad", n, w) for w in (w_q, w_k, w_v))
        h = x + jnp.einsum("bsad,adh->bsh", causal_attention(q, k, v), w_o)
        return h + jax.nn.gelu(rms_norm(h) @ up) @ down, None

    return jax.lax.scan(layer, x, weights)[0]


def loss(weights: Weights, x: jax.Array, target: jax.Array) -> jax.Array:
    return jnp.mean((layers(x, weights) - target) ** 2)


def sgd(*values: jax.Array) -> Sequence[jax.Array]:
    """Return the loss and the new weights."""
    x, target, *weights, rate = values
    error, gradients = jax.value_and_grad(loss)(tuple(weights), x, target)
    return error, *(w - rate * g for w, g in zip(weights, gradients, strict=True))


def momentum(*values: jax.Array) -> Sequence[jax.Array]:
    """Return the loss, the new weights and their new momentum."""
    x, target, *others, rate = values
    weights, old = others[: len(others) // 2], others[len(others) // 2 :]
    error, gradients = jax.value_and_grad(loss)(tuple(weights), x, target)
    new = [0.9 * m + g for m, g in zip(old, gradients, strict=True)]
    return error, *(w - rate * m for w, m in zip(weights, new, strict=True)), *new


def microbatches(*values: jax.Array) -> Sequence[jax.Array]:
    """Return the loss and the new weights after several microbatches."""
    x, target, *weights, rate = values

    def add_one(sums: Weights, batch: Weights) -> tuple[Weights, None]:
        error, gradients = jax.value_and_grad(loss)(tuple(weights), *batch)
        return tuple(a + b for a, b in zip(sums, (error, *gradients), strict=True)), None

    nothing = (jnp.zeros(()), *(jnp.zeros(w.shape) for w in weights))
    (error, *gradients), _ = jax.lax.scan(add_one, nothing, (x, target))
    return error, *(w - rate * g for w, g in zip(weights, gradients, strict=True))


def words_loss(weights: Weights, words: jax.Array, targets: jax.Array) -> jax.Array:
    """Return the cross entropy of the next words."""
    embedding, *others = weights
    y = rms_norm(layers(jnp.take(embedding, words, axis=0), tuple(others)))
    logits = jnp.einsum("bsh,vh->bsv", y, embedding)
    shares = jax.nn.log_softmax(logits, axis=-1)
    return -jnp.mean(jnp.take_along_axis(shares, targets[..., None], axis=-1))


def words(*values: jax.Array) -> Sequence[jax.Array]:
    """Return the loss of a GPT and its new weights."""
    tokens, targets, *weights, rate = values
    error, gradients = jax.value_and_grad(words_loss)(tuple(weights), tokens, targets)
    return error, *(w - rate * g for w, g in zip(weights, gradients, strict=True))


def experts_loss(
    weights: Weights, x: jax.Array, dispatch: jax.Array, target: jax.Array
) -> jax.Array:
    """Return the mean square of the distance of a layer of experts from a target."""
    up, down = weights
    sent = jnp.einsum("gsec,gsh->egch", dispatch, x)
    inner = jax.nn.gelu(jnp.einsum("egch,ehf->egcf", sent, up))
    back = jnp.einsum("egcf,efh->egch", inner, down)
    y = x + jnp.einsum("gsec,egch->gsh", dispatch, back)
    return jnp.mean((y - target) ** 2)


def experts(*values: jax.Array) -> Sequence[jax.Array]:
    """Return the loss of a layer of experts, the gradient of its input, and its new weights."""
    x, dispatch, target, *weights, rate = values
    error, (gradients, d_x) = jax.value_and_grad(experts_loss, (0, 1))(
        tuple(weights), x, dispatch, target
    )
    return error, d_x, *(w - rate * g for w, g in zip(weights, gradients, strict=True))


STEPS: dict[str, Callable[..., Sequence[jax.Array]]] = {
    "data_parallel": sgd,
    "zero_1": momentum,
    "fully_sharded": sgd,
    "tensor_parallel": sgd,
    "sequence_parallel": sgd,
    "context_parallel": sgd,
    "mixed": sgd,
    "microbatches": microbatches,
    "words": words,
    "experts": experts,
}
"""Function of the pages -> its step in jax, with the same arguments and results in order."""
