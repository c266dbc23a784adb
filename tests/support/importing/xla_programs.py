# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false
"""Programs for 8 devices that XLA partitions: ``python xla_programs.py NAME FOLDER`` writes the HLO
behind its partitioner (NAME.after_spmd.hlo.txt) and the optimised one (NAME.optimised.hlo.txt)."""

import os
import re
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

DUMP = tempfile.mkdtemp() if __name__ == "__main__" else ""
"""The folder to which XLA writes its programs."""

if __name__ == "__main__":  # before jax is imported
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = (
        f"--xla_force_host_platform_device_count=8 --xla_dump_to={DUMP} --xla_dump_hlo_as_text "
        "--xla_dump_hlo_pass_re=spmd-partitioning|shardy.* --xla_dump_hlo_module_re=jit_.*"
    )

jax: Any = import_module("jax")
jnp: Any = import_module("jax.numpy")


def mesh_of(**axes: Any):
    """Return a mesh whose axes GSPMD divides over by itself."""
    types = (jax.sharding.AxisType.Auto,) * len(axes)
    return jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=types)


def array(seed: Any, mesh: Any, spec: Any, *shape: Any):
    """Return random numbers that lie on a mesh."""
    numbers = np.random.default_rng(seed).standard_normal(shape) * 0.3
    return jax.device_put(numbers.astype(np.float32), jax.NamedSharding(mesh, spec))


def words(seed: Any, mesh: Any, spec: Any, limit: Any, *shape: Any):
    """Return random words that lie on a mesh."""
    numbers = np.random.default_rng(seed).integers(0, limit, shape).astype(np.int32)
    return jax.device_put(numbers, jax.NamedSharding(mesh, spec))


def trained(loss: Any):
    """Return a step of gradient descent."""

    def step(params: Any, *batch: Any):
        value, grads = jax.value_and_grad(loss)(params, *batch)
        return value, jax.tree.map(lambda w, g: w - 0.1 * g, params, grads)

    return step


def fsdp():
    """Weights that are divided, and gathered where they are needed."""
    mesh = mesh_of(data=2, fsdp=4)
    divided = jax.NamedSharding(mesh, jax.P("fsdp"))
    whole = jax.NamedSharding(mesh, jax.P())

    def loss(ws: Any, x: Any, y: Any):
        for w in ws:
            w = jax.lax.with_sharding_constraint(w, whole)
            x = jax.nn.relu(x @ w)
        return jnp.mean((x - y) ** 2)

    def step(ws: Any, x: Any, y: Any):
        value, grads = jax.value_and_grad(loss)(ws, x, y)
        grads = [jax.lax.with_sharding_constraint(g, divided) for g in grads]
        return value, [w - 0.1 * g for w, g in zip(ws, grads, strict=True)]

    ws = [array(n, mesh, jax.P("fsdp"), 32, 32) for n in range(3)]
    batch = [array(n, mesh, jax.P(("data", "fsdp")), 16, 32) for n in (7, 8)]
    return step, [ws, *batch]


def scan():
    """A scan over stacked layers, with tensor parallelism, computed again for the gradient."""
    mesh = mesh_of(data=2, model=4)

    def loss(ws: Any, x: Any, y: Any):
        def layer(x: Any, w: Any):
            return x + jnp.tanh(x @ w[0]) @ w[1], None

        x, _ = jax.lax.scan(jax.checkpoint(layer), x, ws)
        return jnp.mean((x - y) ** 2)

    ws = (
        array(1, mesh, jax.P(None, None, "model"), 5, 16, 32),
        array(2, mesh, jax.P(None, "model"), 5, 32, 16),
    )
    return trained(loss), [ws, *(array(n, mesh, jax.P("data"), 8, 16) for n in (3, 4))]


def transformer():
    """Tensor parallelism, with a table of words that is divided."""
    mesh = mesh_of(data=2, model=4)

    def layer(x: Any, w: Any):
        h = x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * w["g"]
        q, k, v = (jnp.einsum("bsd,dhe->bshe", h, w[name]) for name in "qkv")
        seen = jnp.tril(jnp.ones((8, 8), bool))
        scores = jnp.where(seen, jnp.einsum("bqhe,bkhe->bhqk", q, k) / 2, -1e9)
        y = jnp.einsum("bhqk,bkhe,hed->bqd", jax.nn.softmax(scores, -1), v, w["o"])
        return x + y + jax.nn.gelu((x + y) @ w["up"]) @ w["down"]

    def loss(params: Any, tokens: Any, targets: Any):
        x = params["emb"][tokens]
        for w in params["layers"]:
            x = layer(x, w)
        logits = jax.nn.log_softmax(x @ params["emb"].T)
        return -jnp.mean(jnp.take_along_axis(logits, targets[..., None], -1))

    def weights(seed: Any):
        heads = {n: array(seed, mesh, jax.P(None, "model"), 16, 4, 4) for n in "qkv"}
        return heads | {
            "g": array(seed, mesh, jax.P(), 16),
            "o": array(seed, mesh, jax.P("model"), 4, 4, 16),
            "up": array(seed, mesh, jax.P(None, "model"), 16, 32),
            "down": array(seed, mesh, jax.P("model"), 32, 16),
        }

    params = {"emb": array(9, mesh, jax.P("model"), 32, 16), "layers": [weights(1), weights(2)]}
    batch = [words(n, mesh, jax.P("data"), 32, 4, 8) for n in (3, 4)]
    return trained(loss), [params, *batch]


def manual():
    """Collectives of a shard_map: a reduce-scatter, an all-gather, an all-to-all and a sum."""
    mesh = mesh_of(data=2, model=4)

    def local(x: Any, w: Any):
        y = jax.lax.psum_scatter(x @ w, "model", scatter_dimension=1, tiled=True)
        z = jax.lax.all_gather(jax.nn.relu(y), "model", axis=1, tiled=True)
        z = jax.lax.all_to_all(z, "model", 0, 1, tiled=True)
        return jax.lax.pmean((z * z).sum(), ("data", "model"))

    step = jax.shard_map(
        local, mesh=mesh, in_specs=(jax.P("data", "model"), jax.P("model")), out_specs=jax.P()
    )
    x, w = array(1, mesh, jax.P("data", "model"), 16, 8), array(2, mesh, jax.P("model"), 8, 16)
    return step, [x, w]


def pipeline():
    """A pipeline: blocks go around a ring of stages, in a scan."""
    mesh = mesh_of(data=2, pipe=4)

    def local(x: Any, w: Any):
        def turn(carry: Any, _: Any):
            y = jnp.tanh(carry @ w[0])
            return jax.lax.ppermute(y, "pipe", [(n, (n + 1) % 4) for n in range(4)]), None

        y, _ = jax.lax.scan(turn, x, None, length=4)
        return jax.lax.pmean(y, "pipe")

    step = jax.shard_map(
        local,
        mesh=mesh,
        in_specs=(jax.P("data"), jax.P("pipe")),
        out_specs=jax.P("data"),
        check_vma=False,
    )
    return step, [array(1, mesh, jax.P("data"), 8, 16), array(2, mesh, jax.P("pipe"), 4, 16, 16)]


def experts():
    """Words that are sent to experts and back, as GSPMD does it."""
    mesh = mesh_of(expert=8)

    def step(x: Any, first: Any, second: Any, router: Any):
        shares = jax.nn.softmax(x @ router, -1)
        h = jnp.einsum("bse,bsd->ebsd", shares, x)
        h = jax.lax.with_sharding_constraint(h, jax.NamedSharding(mesh, jax.P("expert")))
        h = jax.nn.relu(jnp.einsum("ebsd,edf->ebsf", h, first))
        h = jnp.einsum("ebsf,efd->ebsd", h, second)
        h = jax.lax.with_sharding_constraint(h, jax.NamedSharding(mesh, jax.P(None, "expert")))
        return h.sum(0)

    args = [array(n, mesh, jax.P("expert"), *s) for n, s in
            enumerate([(8, 4, 16), (8, 16, 32), (8, 32, 16)])]  # fmt: skip
    return step, [*args, array(4, mesh, jax.P(), 16, 8)]


def images():
    """A network of convolutions, with images over all devices."""
    mesh = mesh_of(data=8)

    def loss(ws: Any, x: Any, y: Any):
        for w in ws[:-1]:
            numbers = ("NHWC", "HWIO", "NHWC")
            x = jax.nn.relu(jax.lax.conv_general_dilated(x, w, (2, 2), "SAME",
                                                         dimension_numbers=numbers))  # fmt: skip
        return jnp.mean((x.mean((1, 2)) @ ws[-1] - y) ** 2)

    ws = [array(n, mesh, jax.P(), *s) for n, s in enumerate([(3, 3, 3, 4), (3, 3, 4, 8), (8, 5)])]
    batch = [array(5, mesh, jax.P("data"), 8, 8, 8, 3), array(6, mesh, jax.P("data"), 8, 5)]
    return trained(loss), [ws, *batch]


def exchanges():
    """Arrays that are divided anew: dimensions and axes are exchanged."""
    mesh = mesh_of(a=2, b=2, c=2)

    def to(x: Any, *spec: Any):
        return jax.lax.with_sharding_constraint(x, jax.NamedSharding(mesh, jax.P(*spec)))

    def step(x: Any, y: Any, z: Any):
        columns = to(jnp.sin(x), None, ("a", "b"))
        rows = to(jnp.cos(columns), ("a", "b"), None)
        parts = to(to(y, "b", None, None) * 2, None, "a", "b")
        other = to(to(z * 2, ("c", "b", "a"), None) + 1, "c", None)
        return columns, rows, parts, other @ jnp.ones((32, 4))

    return step, [
        array(1, mesh, jax.P(("a", "b"), None), 16, 32),
        array(2, mesh, jax.P("b", "a"), 8, 16, 32),
        array(3, mesh, jax.P(("a", "b", "c"), None), 16, 32),
    ]


def accumulation():
    """Gradients that are summed over parts of a batch, and divided by their norm."""
    mesh = mesh_of(data=8)

    def loss(w: Any, x: Any, y: Any):
        return jnp.mean((jnp.tanh(x @ w["w"] + w["b"]) - y) ** 2)

    def step(w: Any, x: Any, y: Any):
        def one(carry: Any, batch: Any):
            value, gradient = jax.value_and_grad(loss)(w, *batch)
            return (carry[0] + value, jax.tree.map(jnp.add, carry[1], gradient)), None

        start = 0.0, jax.tree.map(jnp.zeros_like, w)
        (value, gradient), _ = jax.lax.scan(one, start, (x, y))
        norm = jnp.sqrt(sum((g * g).sum() for g in jax.tree.leaves(gradient)))
        return value / 4, jax.tree.map(lambda a, g: a - 0.1 * g / norm, w, gradient)

    w = {"w": array(1, mesh, jax.P("data"), 16, 16), "b": array(2, mesh, jax.P(), 16)}
    return step, [w, *(array(n, mesh, jax.P(None, "data"), 4, 16, 16) for n in (3, 4))]


PROGRAMS = {
    "fsdp": fsdp, "scan": scan, "transformer": transformer, "manual": manual,
    "pipeline": pipeline, "experts": experts, "images": images,
    "exchanges": exchanges, "accumulation": accumulation,
}  # fmt: skip


def main(name: Any, folder: Any):
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
