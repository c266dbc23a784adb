# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false
"""A plan of `--settings jax` on 8 devices of the CPU, for the GPT of examples/models/sweep.coll.

    XLA_FLAGS=--xla_force_host_platform_device_count=8 python jax_plans.py PLAN

prints the largest difference of the gradients from those on one device, and the elements that each
kind of collective makes in what XLA compiles, as JSON.
"""

import importlib.util
import json
import math
import re
import sys
from importlib import import_module
from typing import Any

import numpy as np

jax: Any = import_module("jax")
jnp: Any = import_module("jax.numpy")

SIZES = {"batch": 16, "seq": 16, "hidden": 32, "heads": 8, "layers": 2, "vocab": 64}

TABLES = {"embedding": "vocab", "positions": "seq"}

COLLECTIVE = re.compile(
    r"= (\(.*?\)|\S+) (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)"
    r"(?:-start)?\("
)


def weights() -> dict[str, Any]:
    """Return the weights of the program."""
    rng = np.random.default_rng(0)
    hidden, heads, layers = SIZES["hidden"], SIZES["heads"], SIZES["layers"]
    size = hidden // heads

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(size=shape) * 0.1

    layer = {name: 1 + normal(layers, hidden) for name in ("attention_gain", "mlp_gain")}
    layer |= {name: normal(layers, hidden, heads, size) for name in "qkv"}
    layer |= {"o": normal(layers, heads, size, hidden)}
    layer |= {"up": normal(layers, hidden, 4 * hidden), "down": normal(layers, 4 * hidden, hidden)}
    tables = {
        "embedding": normal(SIZES["vocab"], hidden),
        "positions": normal(SIZES["seq"], hidden),
    }
    return {**tables, "layers": layer, "gain": 1 + normal(hidden)}


def norm(x: Any, gain: Any) -> Any:
    """Return RMS norm."""
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * gain


def loss(plan: Any, mesh: Any, w: dict[str, Any], words: Any, following: Any) -> Any:
    """Return the loss of the model."""

    def layer(x: Any, w: dict[str, Any]) -> Any:
        n = norm(x, w["attention_gain"])
        q, k, v = (jnp.einsum("bsh,had->bsad", n, w[name]) for name in "qkv")
        scores = jnp.einsum("bqad,bkad->baqk", q, k) / math.sqrt(q.shape[-1])
        seen = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        shares = jax.nn.softmax(jnp.where(seen, scores, -1e30), axis=-1)
        mixed = jnp.einsum("baqk,bkad->bqad", shares, v)
        x = plan.between_layers(mesh, x + jnp.einsum("bsad,adh->bsh", mixed, w["o"]))
        u = jax.nn.gelu(norm(x, w["mlp_gain"]) @ w["up"])
        return plan.between_layers(mesh, x + u @ w["down"])

    if hasattr(plan, "recomputed"):
        layer = plan.recomputed(layer)
    x = w["embedding"][words] + w["positions"]
    for number in range(SIZES["layers"]):
        x = layer(x, {name: stack[number] for name, stack in w["layers"].items()})
    logits = jnp.einsum("bsh,vh->bsv", norm(x, w["gain"]), w["embedding"])
    shares = jax.nn.log_softmax(logits, axis=-1)
    right = jax.nn.one_hot(following, SIZES["vocab"], dtype=shares.dtype)
    return -jnp.mean(jnp.sum(shares * right, axis=-1))


def main(path: str) -> None:
    """Run the plan."""
    jax.config.update("jax_enable_x64", True)
    spec = importlib.util.spec_from_file_location("plan", path)
    assert spec and spec.loader
    plan: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plan)
    mesh = plan.make_mesh()
    rng = np.random.default_rng(1)
    shape = SIZES["batch"], SIZES["seq"]
    arguments: dict[str, Any] = {"w": weights()}
    arguments |= {name: rng.integers(0, SIZES["vocab"], shape) for name in ("words", "next")}

    def gradient(arguments: dict[str, Any]) -> dict[str, Any]:
        return jax.grad(lambda w: loss(plan, mesh, w, arguments["words"], arguments["next"]))(
            arguments["w"]
        )

    lies = plan.shardings(mesh, arguments)
    stacked = arguments["w"]["layers"]
    unrolled = {"w": {"layers": [{name: x[0] for name, x in stacked.items()}]}}
    [listed] = plan.shardings(mesh, unrolled)["w"]["layers"]
    for name, own in lies["w"]["layers"].items():  # those of a list lie as those of a stack
        assert tuple(listed[name].spec) == tuple(own.spec)[1:]
    placed = jax.device_put(arguments, lies)
    compiled = jax.jit(gradient, out_shardings=lies["w"]).lower(placed).compile()
    found = compiled(placed)
    plan.between_layers = lambda mesh, x: x
    right = jax.jit(gradient)(arguments)
    both = zip(jax.tree.leaves(found), jax.tree.leaves(right), strict=True)
    error = max(float(np.abs(np.asarray(x) - np.asarray(y)).max()) for x, y in both)
    made: dict[str, int] = {}
    for result, name in COLLECTIVE.findall(compiled.as_text() or ""):
        shapes = re.findall(r"\w+\[([0-9,]*)\]", result)
        elements = sum(math.prod(int(n) for n in dims.split(",") if n) for dims in shapes)
        made[name] = made.get(name, 0) + elements
    print(json.dumps({"gradients": error, "elements": made}))


if __name__ == "__main__":
    main(sys.argv[1])
