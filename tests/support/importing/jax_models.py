# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false
"""Small models in JAX, as people write them: each a function and its arguments."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import equinox as eqx
import flax.linen as nn
import numpy as np
import optax
from flax import nnx

jax: Any = import_module("jax")
jnp: Any = import_module("jax.numpy")

Model = tuple[Callable[..., Any], list[Any]]

_RNG = np.random.default_rng(11)
WORDS = 19


def array(*shape: int) -> Any:
    """Return random numbers."""
    return (_RNG.standard_normal(shape) * 0.3).astype(np.float32)


def words(batch: int, length: int) -> Any:
    """Return random words."""
    return _RNG.integers(0, WORDS, (batch, length)).astype(np.int32)


def cross_entropy(logits: Any, targets: Any) -> Any:
    """Return the mean of the losses of words."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()


# --- plain functions ------------------------------------------------------------------------------


def rms_norm(x: Any, gain: Any) -> Any:
    """Return a value of a mean square of 1, times a gain."""
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * gain


def block(x: Any, w: Any) -> Any:
    """Return a layer of a transformer, of one head for each key."""
    h, length = rms_norm(x, w["g1"]), x.shape[1]
    q, k, v = (jnp.einsum("bsd,dhe->bshe", h, w[name]) for name in ("wq", "wk", "wv"))
    scores = jnp.einsum("bqhe,bkhe->bhqk", q, k) / q.shape[-1] ** 0.5
    mask = jnp.tril(jnp.ones((length, length), bool))
    shares = jax.nn.softmax(jnp.where(mask, scores, -1e9), -1)
    x = x + jnp.einsum("bhqk,bkhe,hed->bqd", shares, v, w["wo"])
    return x + jax.nn.gelu(rms_norm(x, w["g2"]) @ w["up"]) @ w["down"]


def layer_weights(*front: int, width: int = 8, heads: int = 2) -> dict[str, Any]:
    """Return the weights of a layer, or of a stack of them."""
    size = width // heads
    shapes = dict.fromkeys(("wq", "wk", "wv"), (width, heads, size))
    shapes |= {"wo": (heads, size, width), "up": (width, 2 * width), "down": (2 * width, width)}
    made = {name: array(*front, *shape) for name, shape in shapes.items()}
    return made | {name: 1 + array(*front, width) for name in ("g1", "g2")}


def transformer() -> Model:
    """A list of layers, one after the other."""

    def loss(params: Any, tokens: Any, targets: Any) -> Any:
        x = params["emb"][tokens]
        for layer in params["layers"]:
            x = block(x, layer)
        return cross_entropy(rms_norm(x, params["g"]) @ params["emb"].T, targets)

    params = {"emb": array(WORDS, 8), "g": 1 + array(8)}
    return loss, [
        params | {"layers": [layer_weights() for _ in range(3)]},
        words(4, 6),
        words(4, 6),
    ]


def scanned() -> Model:
    """Stacked layers in a scan, each computed again for its gradient."""

    def loss(params: Any, tokens: Any, targets: Any) -> Any:
        def step(x: Any, layer: Any) -> Any:
            return block(x, layer), None

        x, _ = jax.lax.scan(jax.checkpoint(step), params["emb"][tokens], params["layers"])
        return cross_entropy(x @ params["emb"].T, targets)

    params = {"emb": array(WORDS, 8), "layers": layer_weights(3)}
    return loss, [params, words(4, 6), words(4, 6)]


def llama() -> Model:
    """Turned positions, heads that share keys, and gates."""

    def turned(x: Any) -> Any:
        size = x.shape[-1] // 2
        angles = jnp.arange(x.shape[1])[:, None] / 10000.0 ** (jnp.arange(size) / size)
        cos, sin = jnp.cos(angles)[None, :, None], jnp.sin(angles)[None, :, None]
        a, b = jnp.split(x, 2, -1)
        return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], -1)

    def layer(x: Any, w: Any) -> Any:
        h = rms_norm(x, w["g1"])
        q, k, v = (jnp.einsum("bsd,dhe->bshe", h, w[name]) for name in ("wq", "wk", "wv"))
        y = jax.nn.dot_product_attention(turned(q), turned(k), v, is_causal=True)
        x = x + jnp.einsum("bshe,hed->bsd", y, w["wo"])
        h = rms_norm(x, w["g2"])
        return x + (jax.nn.silu(h @ w["gate"]) * (h @ w["up"])) @ w["down"]

    def loss(params: Any, tokens: Any) -> Any:
        x = params["embed"][tokens]
        for w in params["layers"]:
            x = layer(x, w)
        logits = rms_norm(x, params["norm"]) @ params["head"]
        return cross_entropy(logits[:, :-1], tokens[:, 1:])

    def weights() -> dict[str, Any]:
        kv = {name: array(8, 2, 4) for name in ("wk", "wv")}
        own = {"wq": array(8, 4, 4), "wo": array(4, 4, 8), "gate": array(8, 16), **kv}
        return own | {
            "up": array(8, 16),
            "down": array(16, 8),
            "g1": 1 + array(8),
            "g2": 1 + array(8),
        }

    params = {"embed": array(WORDS, 8), "norm": 1 + array(8), "head": array(8, WORDS)}
    return loss, [params | {"layers": [weights() for _ in range(3)]}, words(4, 6)]


def mixtral() -> Model:
    """Experts, of which each word has the best two."""

    def experts(x: Any, w: Any) -> Any:
        best, places = jax.lax.top_k(x @ w["router"], 2)
        shares = jax.nn.softmax(best, -1)
        mixed = (jax.nn.one_hot(places, 4) * shares[..., None]).sum(-2)
        hidden = jax.nn.silu(jnp.einsum("bsd,edf->bsef", x, w["gate"]))
        hidden = hidden * jnp.einsum("bsd,edf->bsef", x, w["wide"])
        return jnp.einsum("bsef,efd,bse->bsd", hidden, w["narrow"], mixed)

    def loss(params: Any, tokens: Any, targets: Any) -> Any:
        def step(x: Any, w: Any) -> Any:
            x = block(x, w)
            return x + experts(rms_norm(x, w["g3"]), w), x.mean()

        x, means = jax.lax.scan(step, params["emb"][tokens], params["layers"])
        return cross_entropy(x @ params["emb"].T, targets) + 0.01 * means.sum()

    own = layer_weights(2) | {"router": array(2, 8, 4), "g3": 1 + array(2, 8)}
    own |= {"gate": array(2, 4, 8, 16), "wide": array(2, 4, 8, 16), "narrow": array(2, 4, 16, 8)}
    return loss, [{"emb": array(WORDS, 8), "layers": own}, words(4, 6), words(4, 6)]


def sorted_experts() -> Model:
    """Words in the order of their experts, by a product of groups."""

    def loss(params: Any, x: Any) -> Any:
        flat = x.reshape(-1, x.shape[-1])
        expert = jnp.argmax(flat @ params["router"], -1)
        order = jnp.argsort(expert)
        sizes = jnp.bincount(expert, length=3)
        y = jax.lax.ragged_dot(jnp.asarray(flat)[order], params["w"], sizes.astype(jnp.int32))
        back = jnp.zeros_like(y).at[order].set(y)
        return (back * back).mean()

    return loss, [{"router": array(8, 3), "w": array(3, 8, 8)}, array(4, 6, 8)]


def recurrent() -> Model:
    """An LSTM over the words of a sequence."""

    def loss(params: Any, x: Any, y: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            h, c = state
            gates = x @ params["wx"] + h @ params["wh"] + params["b"]
            i, f, g, o = jnp.split(gates, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zeros = jnp.zeros((x.shape[0], 8))
        _, hidden = jax.lax.scan(step, (zeros, zeros), jnp.swapaxes(x, 0, 1))
        return jnp.mean((jnp.swapaxes(hidden, 0, 1) @ params["out"] - y) ** 2)

    params = {"wx": array(5, 32), "wh": array(8, 32), "b": array(32), "out": array(8, 3)}
    return loss, [params, array(4, 6, 5), array(4, 6, 3)]


def diffusion() -> Model:
    """The loss of a model that finds noise; the noise and the times are given."""

    def loss(params: Any, x: Any, noise: Any, times: Any) -> Any:
        betas = jnp.linspace(1e-4, 0.02, 100)
        kept = jnp.cumprod(1 - betas)[times][:, None]
        noisy = jnp.sqrt(kept) * x + jnp.sqrt(1 - kept) * noise
        angles = times[:, None] * jnp.exp(-jnp.arange(4) / 2.0)
        h = jnp.concatenate([noisy, jnp.sin(angles), jnp.cos(angles)], -1)
        for w, b in params:
            h = jax.nn.silu(h @ w + b)
        return jnp.mean((h[:, :6] - noise) ** 2)

    params = [(array(14, 16), array(16)), (array(16, 16), array(16)), (array(16, 16), array(16))]
    times = _RNG.integers(0, 100, 4).astype(np.int32)
    return loss, [params, array(4, 6), array(4, 6), times]


# --- Flax and Equinox -----------------------------------------------------------------------------


class Encoder(nn.Module):
    """A layer of Flax."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        """Return a value of the same shape."""
        x = x + nn.MultiHeadDotProductAttention(2)(nn.LayerNorm()(x))
        return x + nn.Dense(8)(nn.gelu(nn.Dense(16)(nn.LayerNorm()(x))))


class Transformer(nn.Module):
    """A transformer of Flax."""

    layers: int = 3

    @nn.compact
    def __call__(self, tokens: Any) -> Any:
        """Return the scores of words."""
        x = nn.Embed(WORDS, 8)(tokens)
        for _ in range(self.layers):
            x = Encoder()(x)
        return nn.Dense(WORDS)(x)


class Scanned(nn.Module):
    """A transformer of Flax whose layers are stacked."""

    @nn.compact
    def __call__(self, tokens: Any) -> Any:
        """Return the scores of words."""
        x = nn.Embed(WORDS, 8)(tokens)

        def step(layer: Any, x: Any, _: Any) -> Any:
            return layer(x), None

        scan = nn.scan(step, variable_axes={"params": 0}, split_rngs={"params": True}, length=3)
        x, _ = scan(Encoder(), x, None)
        return nn.Dense(WORDS)(x)


class Patches(nn.Module):
    """A vision transformer."""

    @nn.compact
    def __call__(self, images: Any) -> Any:
        """Return the scores of classes."""
        x = nn.Conv(8, (4, 4), (4, 4))(images)
        x = x.reshape(x.shape[0], -1, 8)
        first = self.param("cls", nn.initializers.normal(), (1, 1, 8))
        x = jnp.concatenate([jnp.tile(first, (x.shape[0], 1, 1)), x], 1)
        x = x + self.param("pos", nn.initializers.normal(), (1, x.shape[1], 8))
        for _ in range(2):
            x = Encoder()(x)
        return nn.Dense(5)(nn.LayerNorm()(x)[:, 0])


class Residual(nn.Module):
    """A block of a ResNet."""

    features: int
    stride: int = 1

    @nn.compact
    def __call__(self, x: Any) -> Any:
        """Return images of as many features."""
        norm = partial(nn.BatchNorm, use_running_average=True)
        sides = (self.stride, self.stride)
        y = nn.relu(norm()(nn.Conv(self.features, (3, 3), sides, use_bias=False)(x)))
        y = norm()(nn.Conv(self.features, (3, 3), use_bias=False)(y))
        if x.shape != y.shape:
            x = nn.Conv(self.features, (1, 1), sides, use_bias=False)(x)
        return nn.relu(x + y)


class ResNet(nn.Module):
    """A small ResNet."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        """Return the scores of classes."""
        x = nn.max_pool(nn.relu(nn.Conv(4, (3, 3), (2, 2))(x)), (3, 3), (2, 2), "SAME")
        for features, stride in ((4, 1), (8, 2)):
            x = Residual(features, stride)(x)
        return nn.Dense(5)(x.mean((1, 2)))


class UNet(nn.Module):
    """A U-Net of two levels."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        """Return images of one channel."""
        one = nn.GroupNorm(2)(nn.relu(nn.Conv(4, (3, 3))(x)))
        two = nn.relu(nn.Conv(8, (3, 3))(nn.avg_pool(one, (2, 2), (2, 2))))
        up = nn.ConvTranspose(4, (2, 2), (2, 2))(two)
        wide = jax.image.resize(two, (*one.shape[:3], 8), "nearest")
        return nn.Conv(1, (3, 3))(jnp.concatenate([one, up, wide], -1))


def _of_flax(module: Any, loss: Callable[..., Any], *args: Any) -> Model:
    variables = module.init(jax.random.key(0), args[0])
    noisy = jax.tree.map(lambda x: np.asarray(x) + array(*x.shape) * 0.3, variables)
    fixed = {name: x for name, x in noisy.items() if name != "params"}
    if "batch_stats" in fixed:
        fixed = jax.tree.map(lambda x: np.abs(x) + 0.5, fixed)

    def found(params: Any, x: Any, *targets: Any) -> Any:
        return loss(module.apply({"params": params, **fixed}, x), *targets)

    return found, [noisy["params"], *args]


def _squares(x: Any, y: Any) -> Any:
    return jnp.mean((x - y) ** 2)


def of_nnx() -> Model:
    """A model of Flax's nnx, split into its graph and its state."""

    class Net(nnx.Module):
        def __init__(self, rngs: Any):
            self.layers = nnx.List([nnx.Linear(8, 8, rngs=rngs) for _ in range(3)])
            self.norm = nnx.LayerNorm(8, rngs=rngs)
            self.out = nnx.Linear(8, 3, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            for layer in self.layers:
                x = x + nnx.gelu(layer(self.norm(x)))
            return self.out(x)

    graph, state = nnx.split(Net(nnx.Rngs(0)))

    def loss(state: Any, x: Any, y: Any) -> Any:
        return _squares(nnx.merge(graph, state)(x), y)

    return loss, [state, array(4, 8), array(4, 3)]


def of_equinox() -> Model:
    """A model of Equinox, whose activation is a field as its weights are."""
    model = eqx.nn.MLP(8, 3, 16, 3, jax.nn.softplus, key=jax.random.key(0))

    def loss(model: Any, x: Any, y: Any) -> Any:
        return _squares(jax.vmap(model)(x), y)

    return loss, [model, array(4, 8), array(4, 3)]


# --- steps of training ----------------------------------------------------------------------------


def step_of(optimizer: Any) -> Callable[[], Model]:
    """Return a training step of optax."""

    def made() -> Model:
        loss, [params, *batch] = transformer()
        state = optimizer.init(jax.tree.map(jnp.asarray, params))

        def step(params: Any, state: Any, *batch: Any) -> Any:
            value, grads = jax.value_and_grad(loss)(params, *batch)
            updates, state = optimizer.update(grads, state, params)
            return optax.apply_updates(params, updates), state, value

        return step, [params, state, *batch]

    return made


MODELS: dict[str, Callable[[], Model]] = {
    "transformer": transformer,
    "scanned": scanned,
    "llama": llama,
    "mixtral": mixtral,
    "sorted_experts": sorted_experts,
    "recurrent": recurrent,
    "diffusion": diffusion,
    "flax": lambda: _of_flax(Transformer(), cross_entropy, words(4, 6), words(4, 6)),
    "flax_scanned": lambda: _of_flax(Scanned(), cross_entropy, words(4, 6), words(4, 6)),
    "vit": lambda: _of_flax(Patches(), cross_entropy, array(4, 8, 8, 3), words(4, 1)[:, 0] % 5),
    "resnet": lambda: _of_flax(ResNet(), cross_entropy, array(2, 16, 16, 3), words(2, 1)[:, 0] % 5),
    "unet": lambda: _of_flax(UNet(), _squares, array(2, 8, 8, 2), array(2, 8, 8, 1)),
    "nnx": of_nnx,
    "equinox": of_equinox,
    "adamw": step_of(optax.adamw(1e-2)),
    "clipped": step_of(optax.chain(optax.clip_by_global_norm(0.5), optax.sgd(0.1, 0.9))),
}
