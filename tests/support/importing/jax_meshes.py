"""Functions of JAX with ``shard_map``, as people write them, on 2 x 4 devices."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

jax: Any = import_module("jax")
jnp: Any = import_module("jax.numpy")

Model = tuple[Callable[..., Any], list[Any]]

MESH = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
RING = [(n, (n + 1) % 4) for n in range(4)]

_RNG = np.random.default_rng(7)


def array(*shape: int) -> Any:
    """Return random numbers."""
    return _RNG.standard_normal(shape) * 0.3


def by_hand(function: Any, takes: Any, gives: Any, is_checked: bool = True) -> Any:
    """Return a function of the parts of a device as one of whole arrays."""
    return jax.shard_map(function, mesh=MESH, in_specs=takes, out_specs=gives, check_vma=is_checked)


def tensor_parallel() -> Model:
    """A layer whose words are divided outside of its products, as in Megatron-LM."""

    def local(x: Any, up: Any, down: Any) -> Any:
        x = jax.lax.all_gather(x, "model", axis=1, tiled=True)
        h = jax.nn.gelu(x @ up) @ down
        h = jax.lax.psum_scatter(h, "model", scatter_dimension=1, tiled=True)
        return h - jax.lax.pmean(h.mean(), ("data", "model"))

    words = P("data", "model")
    layer = by_hand(local, (words, P(None, "model"), P("model")), words)

    def loss(w: Any, x: Any) -> Any:
        return jnp.mean(layer(x, w["up"], w["down"]) ** 2)

    return loss, [{"up": array(8, 16), "down": array(16, 8)}, array(4, 8, 8)]


def pipelined(is_checked: bool) -> Model:
    """Stages that send microbatches on, in a scan."""

    def local(w: Any, x: Any) -> Any:
        stage = jax.lax.axis_index("model")
        w, count = w[0], x.shape[0]

        def turn(carry: Any, t: Any) -> Any:
            state, done = carry
            y = jnp.tanh(jnp.where(stage == 0, x[jnp.minimum(t, count - 1)], state) @ w)
            place = jnp.maximum(t - 3, 0)
            own = jnp.where((stage == 3) & (t >= 3), y, done[place])
            done = jax.lax.dynamic_update_index_in_dim(done, own, place, 0)
            return (jax.lax.ppermute(y, "model", RING), done), None

        start = jnp.zeros_like(x[0]), jnp.zeros_like(x)
        if is_checked:
            start = jax.lax.pcast(start, ("model",), to="varying")
        (_, done), _ = jax.lax.scan(turn, start, jnp.arange(count + 3))
        return jax.lax.psum(jnp.where(stage == 3, done, 0.0), "model")

    f = by_hand(local, (P("model"), P(None, "data")), P(None, "data"), is_checked)

    def loss(w: Any, x: Any, y: Any) -> Any:
        return jnp.mean((f(w["w"], x) * w["scale"] - y) ** 2)

    return loss, [{"w": array(4, 8, 8), "scale": array(8)}, array(3, 4, 8), array(3, 4, 8)]


def ring_attention() -> Model:
    """Causal attention whose keys and values go around a ring."""

    def local(q: Any, k: Any, v: Any) -> Any:
        place, length = jax.lax.axis_index("model"), q.shape[1]

        def turn(carry: Any, t: Any) -> Any:
            k, v, made, most, total = carry
            source = (place - t) % 4
            rows = place * length + jnp.arange(length)
            columns = source * length + jnp.arange(length)
            s = jnp.einsum("bqd,bkd->bqk", q, k) / q.shape[-1] ** 0.5
            s = jnp.where(rows[:, None] >= columns[None], s, -1e9)
            more = jnp.maximum(most, s.max(-1))
            p, kept = jnp.exp(s - more[..., None]), jnp.exp(most - more)
            made = made * kept[..., None] + jnp.einsum("bqk,bkd->bqd", p, v)
            k, v = (jax.lax.ppermute(x, "model", RING) for x in (k, v))
            return (k, v, made, more, total * kept + p.sum(-1)), None

        start = (k, v, jnp.zeros_like(q), jnp.full(q.shape[:2], -1e9), jnp.zeros(q.shape[:2]))
        (_, _, made, _, total), _ = jax.lax.scan(turn, start, jnp.arange(4))
        return made / total[..., None]

    f = by_hand(local, (P("data", "model"),) * 3, P("data", "model"), False)

    def loss(w: Any, x: Any) -> Any:
        return jnp.mean(f(*(x @ w[name] for name in "qkv")) ** 2)

    return loss, [{name: array(8, 8) for name in "qkv"}, array(2, 16, 8)]


def experts() -> Model:
    """Words that go to the devices of their experts and back."""

    def local(x: Any, router: Any, up: Any, down: Any) -> Any:
        shares = jax.nn.softmax(x @ router)
        chosen = jax.nn.one_hot(jnp.argmax(shares, -1), 8)
        place = (jnp.cumsum(chosen, 0) - 1) * chosen
        slots = ((place < 2) * chosen)[..., None] * jax.nn.one_hot(place.astype(jnp.int32), 2)
        sent = jnp.einsum("tec,td->ecd", slots, x)
        sent = jax.lax.all_to_all(sent, "model", 0, 1, tiled=True)
        h = jax.nn.relu(jnp.einsum("ecd,edf->ecf", sent, up))
        back = jax.lax.all_to_all(jnp.einsum("ecf,efd->ecd", h, down), "model", 1, 0, tiled=True)
        return jnp.einsum("tec,ecd->td", slots * (shares * chosen).sum(-1)[:, None, None], back)

    words = P(("data", "model"))
    f = by_hand(local, (words, P(), P("model"), P("model")), words)

    def loss(w: Any, x: Any) -> Any:
        return jnp.mean((x + f(x, w["router"], w["up"], w["down"])) ** 2)

    w = {"router": array(8, 8), "up": array(8, 8, 16), "down": array(8, 16, 8)}
    return loss, [w, array(48, 8)]


def heads() -> Model:
    """Words that are exchanged for heads, as in DeepSpeed-Ulysses."""

    def local(q: Any, k: Any, v: Any) -> Any:
        q, k, v = (jax.lax.all_to_all(x, "model", 2, 1, tiled=True) for x in (q, k, v))
        shares = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k))
        made = jnp.einsum("bhqk,bkhd->bqhd", shares, v)
        return jax.lax.all_to_all(made, "model", 1, 2, tiled=True)

    f = by_hand(local, (P("data", "model"),) * 3, P("data", "model"))

    def loss(w: Any, x: Any) -> Any:
        return jnp.mean(f(*(jnp.einsum("bsd,dhe->bshe", x, w[name]) for name in "qkv")) ** 2)

    return loss, [{name: array(8, 4, 4) for name in "qkv"}, array(2, 8, 8)]


def neighbours() -> Model:
    """Blocks that go to neighbours around a ring, and along a line."""

    def local(x: Any, w: Any) -> Any:
        y = jax.lax.ppermute(x, "model", RING)
        z = jax.lax.ppermute(y * 2, "model", [(n, n + 1) for n in range(3)])
        u = jax.lax.ppermute(x, "data", [(0, 1), (1, 0)])
        v = jax.lax.ppermute(x, "model", [(2, 0), (3, 1)])
        other = jax.lax.ppermute(x, "model", [(0, 1), (1, 0), (2, 3)])
        return y + u * v, (z @ w) * other, jax.lax.pmax(jnp.abs(x).max(), ("data", "model"))

    own = P("data", "model")
    return by_hand(local, (own, P()), (own, own, P())), [array(4, 16), array(4, 4)]


def two_axes() -> Model:
    """Collectives over both axes, and without `tiled`."""

    def local(x: Any) -> Any:
        every = jax.lax.all_gather(x, ("data", "model"), axis=0, tiled=True)
        rows = jax.lax.all_gather(x, "data", axis=1)
        part = jax.lax.psum_scatter(every, ("data", "model"), scatter_dimension=0, tiled=True)
        return part + rows.sum(1), jax.lax.axis_index(("data", "model")) + x[:1, 0]

    both = P(("data", "model"))
    return by_hand(local, (both,), (both, both)), [array(16, 3)]


MODELS: dict[str, Callable[[], Model]] = {
    "tensor_parallel": tensor_parallel,
    "pipelined": partial(pipelined, True),
    "pipelined_unchecked": partial(pipelined, False),
    "ring_attention": ring_attention,
    "experts": experts,
    "heads": heads,
    "neighbours": neighbours,
    "two_axes": two_axes,
}
