# pyright: basic, reportMissingImports=false
"""Programs for 8 devices that XLA partitions: ``python xla_programs.py NAME FOLDER`` writes the HLO
behind its partitioner (NAME.after_spmd.hlo.txt) and the optimised one (NAME.optimised.hlo.txt)."""

import os
import re
import sys
import tempfile
from pathlib import Path

if __name__ == "__main__":
    DUMP = tempfile.mkdtemp()
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = (
        f"--xla_force_host_platform_device_count=8 --xla_dump_to={DUMP} --xla_dump_hlo_as_text "
        "--xla_dump_hlo_pass_re=spmd-partitioning|shardy.* --xla_dump_hlo_module_re=jit_.*"
    )

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P


def mesh_of(**axes):
    """Return a mesh whose axes GSPMD divides over by itself."""
    types = (AxisType.Auto,) * len(axes)
    return jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=types)


def array(seed, mesh, spec, *shape):
    """Return random numbers that lie on a mesh."""
    numbers = np.random.default_rng(seed).standard_normal(shape) * 0.3
    return jax.device_put(numbers.astype(np.float32), NamedSharding(mesh, spec))


def words(seed, mesh, spec, limit, *shape):
    """Return random words that lie on a mesh."""
    numbers = np.random.default_rng(seed).integers(0, limit, shape).astype(np.int32)
    return jax.device_put(numbers, NamedSharding(mesh, spec))


def trained(loss):
    """Return a step of gradient descent."""

    def step(params, *batch):
        value, grads = jax.value_and_grad(loss)(params, *batch)
        return value, jax.tree.map(lambda w, g: w - 0.1 * g, params, grads)

    return step


def fsdp():
    """Weights that are divided, and gathered where they are needed."""
    mesh = mesh_of(data=2, fsdp=4)
    divided = NamedSharding(mesh, P("fsdp"))
    whole = NamedSharding(mesh, P())

    def loss(ws, x, y):
        for w in ws:
            w = jax.lax.with_sharding_constraint(w, whole)
            x = jax.nn.relu(x @ w)
        return jnp.mean((x - y) ** 2)

    def step(ws, x, y):
        value, grads = jax.value_and_grad(loss)(ws, x, y)
        grads = [jax.lax.with_sharding_constraint(g, divided) for g in grads]
        return value, [w - 0.1 * g for w, g in zip(ws, grads, strict=True)]

    ws = [array(n, mesh, P("fsdp"), 32, 32) for n in range(3)]
    batch = [array(n, mesh, P(("data", "fsdp")), 16, 32) for n in (7, 8)]
    return step, [ws, *batch]


def scan():
    """A scan over stacked layers, with tensor parallelism, computed again for the gradient."""
    mesh = mesh_of(data=2, model=4)

    def loss(ws, x, y):
        def layer(x, w):
            return x + jnp.tanh(x @ w[0]) @ w[1], None

        x, _ = jax.lax.scan(jax.checkpoint(layer), x, ws)
        return jnp.mean((x - y) ** 2)

    ws = (
        array(1, mesh, P(None, None, "model"), 5, 16, 32),
        array(2, mesh, P(None, "model"), 5, 32, 16),
    )
    return trained(loss), [ws, *(array(n, mesh, P("data"), 8, 16) for n in (3, 4))]


def transformer():
    """Tensor parallelism, with a table of words that is divided."""
    mesh = mesh_of(data=2, model=4)

    def layer(x, w):
        h = x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * w["g"]
        q, k, v = (jnp.einsum("bsd,dhe->bshe", h, w[name]) for name in "qkv")
        seen = jnp.tril(jnp.ones((8, 8), bool))
        scores = jnp.where(seen, jnp.einsum("bqhe,bkhe->bhqk", q, k) / 2, -1e9)
        y = jnp.einsum("bhqk,bkhe,hed->bqd", jax.nn.softmax(scores, -1), v, w["o"])
        return x + y + jax.nn.gelu((x + y) @ w["up"]) @ w["down"]

    def loss(params, tokens, targets):
        x = params["emb"][tokens]
        for w in params["layers"]:
            x = layer(x, w)
        logits = jax.nn.log_softmax(x @ params["emb"].T)
        return -jnp.mean(jnp.take_along_axis(logits, targets[..., None], -1))

    def weights(seed):
        heads = {n: array(seed, mesh, P(None, "model"), 16, 4, 4) for n in "qkv"}
        return heads | {
            "g": array(seed, mesh, P(), 16),
            "o": array(seed, mesh, P("model"), 4, 4, 16),
            "up": array(seed, mesh, P(None, "model"), 16, 32),
            "down": array(seed, mesh, P("model"), 32, 16),
        }

    params = {"emb": array(9, mesh, P("model"), 32, 16), "layers": [weights(1), weights(2)]}
    batch = [words(n, mesh, P("data"), 32, 4, 8) for n in (3, 4)]
    return trained(loss), [params, *batch]


def manual():
    """Collectives of a shard_map: a reduce-scatter, an all-gather, an all-to-all and a sum."""
    mesh = mesh_of(data=2, model=4)

    def local(x, w):
        y = jax.lax.psum_scatter(x @ w, "model", scatter_dimension=1, tiled=True)
        z = jax.lax.all_gather(jax.nn.relu(y), "model", axis=1, tiled=True)
        z = jax.lax.all_to_all(z, "model", 0, 1, tiled=True)
        return jax.lax.pmean((z * z).sum(), ("data", "model"))

    step = jax.shard_map(local, mesh=mesh, in_specs=(P("data", "model"), P("model")), out_specs=P())
    x, w = array(1, mesh, P("data", "model"), 16, 8), array(2, mesh, P("model"), 8, 16)
    return step, [x, w]


def pipeline():
    """A pipeline: blocks go around a ring of stages, in a scan."""
    mesh = mesh_of(data=2, pipe=4)

    def local(x, w):
        def turn(carry, _):
            y = jnp.tanh(carry @ w[0])
            return jax.lax.ppermute(y, "pipe", [(n, (n + 1) % 4) for n in range(4)]), None

        y, _ = jax.lax.scan(turn, x, None, length=4)
        return jax.lax.pmean(y, "pipe")

    step = jax.shard_map(
        local, mesh=mesh, in_specs=(P("data"), P("pipe")), out_specs=P("data"), check_vma=False
    )
    return step, [array(1, mesh, P("data"), 8, 16), array(2, mesh, P("pipe"), 4, 16, 16)]


def experts():
    """Words that are sent to experts and back, as GSPMD does it."""
    mesh = mesh_of(expert=8)

    def step(x, first, second, router):
        shares = jax.nn.softmax(x @ router, -1)
        h = jnp.einsum("bse,bsd->ebsd", shares, x)
        h = jax.lax.with_sharding_constraint(h, NamedSharding(mesh, P("expert")))
        h = jax.nn.relu(jnp.einsum("ebsd,edf->ebsf", h, first))
        h = jnp.einsum("ebsf,efd->ebsd", h, second)
        h = jax.lax.with_sharding_constraint(h, NamedSharding(mesh, P(None, "expert")))
        return h.sum(0)

    args = [array(n, mesh, P("expert"), *s) for n, s in
            enumerate([(8, 4, 16), (8, 16, 32), (8, 32, 16)])]  # fmt: skip
    return step, [*args, array(4, mesh, P(), 16, 8)]


def images():
    """A network of convolutions, with images over all devices."""
    mesh = mesh_of(data=8)

    def loss(ws, x, y):
        for w in ws[:-1]:
            numbers = ("NHWC", "HWIO", "NHWC")
            x = jax.nn.relu(jax.lax.conv_general_dilated(x, w, (2, 2), "SAME",
                                                         dimension_numbers=numbers))  # fmt: skip
        return jnp.mean((x.mean((1, 2)) @ ws[-1] - y) ** 2)

    ws = [array(n, mesh, P(), *s) for n, s in enumerate([(3, 3, 3, 4), (3, 3, 4, 8), (8, 5)])]
    batch = [array(5, mesh, P("data"), 8, 8, 8, 3), array(6, mesh, P("data"), 8, 5)]
    return trained(loss), [ws, *batch]


def exchanges():
    """Arrays that are divided anew: dimensions and axes are exchanged."""
    mesh = mesh_of(a=2, b=2, c=2)

    def to(x, *spec):
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*spec)))

    def step(x, y, z):
        columns = to(jnp.sin(x), None, ("a", "b"))
        rows = to(jnp.cos(columns), ("a", "b"), None)
        parts = to(to(y, "b", None, None) * 2, None, "a", "b")
        other = to(to(z * 2, ("c", "b", "a"), None) + 1, "c", None)
        return columns, rows, parts, other @ jnp.ones((32, 4))

    return step, [
        array(1, mesh, P(("a", "b"), None), 16, 32),
        array(2, mesh, P("b", "a"), 8, 16, 32),
        array(3, mesh, P(("a", "b", "c"), None), 16, 32),
    ]


def accumulation():
    """Gradients that are summed over parts of a batch, and divided by their norm."""
    mesh = mesh_of(data=8)

    def loss(w, x, y):
        return jnp.mean((jnp.tanh(x @ w["w"] + w["b"]) - y) ** 2)

    def step(w, x, y):
        def one(carry, batch):
            value, gradient = jax.value_and_grad(loss)(w, *batch)
            return (carry[0] + value, jax.tree.map(jnp.add, carry[1], gradient)), None

        start = 0.0, jax.tree.map(jnp.zeros_like, w)
        (value, gradient), _ = jax.lax.scan(one, start, (x, y))
        norm = jnp.sqrt(sum((g * g).sum() for g in jax.tree.leaves(gradient)))
        return value / 4, jax.tree.map(lambda a, g: a - 0.1 * g / norm, w, gradient)

    w = {"w": array(1, mesh, P("data"), 16, 16), "b": array(2, mesh, P(), 16)}
    return step, [w, *(array(n, mesh, P(None, "data"), 4, 16, 16) for n in (3, 4))]


PROGRAMS = {
    "fsdp": fsdp, "scan": scan, "transformer": transformer, "manual": manual,
    "pipeline": pipeline, "experts": experts, "images": images,
    "exchanges": exchanges, "accumulation": accumulation,
}  # fmt: skip


def main(name, folder):
    """Write the HLO of a program, and its arguments and results as numbers."""
    step, args = PROGRAMS[name]()
    lowered = jax.jit(step).lower(*args)
    compiled = lowered.compile()
    results = jax.tree.leaves(jax.jit(step)(*args))
    [dumped, *_] = sorted(Path(DUMP).rglob("*after_spmd-partitioning*"),
                          key=lambda x: -x.stat().st_size)  # fmt: skip
    texts = {"after_spmd": dumped.read_text(), "optimised": compiled.as_text()}
    for stage, text in texts.items():
        text = text.replace(str(Path(__file__)), Path(__file__).name)
        if name == "transformer":  # which is long enough
            text = re.sub(r", metadata=\{[^{}]*\}", "", text)
        (Path(folder) / f"{name}.{stage}.hlo.txt").write_text(text)
    numbers = {f"x{n}": np.asarray(x) for n, x in enumerate(jax.tree.leaves(args))}
    numbers |= {f"y{n}": np.asarray(x) for n, x in enumerate(results)}
    np.savez(Path(folder) / f"{name}.npz", **numbers)  # pyright: ignore


if __name__ == "__main__":
    for own in [sys.argv[1]] if sys.argv[1] != "all" else PROGRAMS:
        main(own, sys.argv[2])
        for path in Path(DUMP).rglob("*.txt"):
            path.unlink()
