"""Imported functions of JAX compute the values and the gradients that JAX computes."""

import importlib
import importlib.util
import multiprocessing
import os
import re
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.harness.seeds import some

import collir

for package in ("jax", "flax", "optax", "equinox"):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed", allow_module_level=True)

EXACT = 1e-9


@pytest.fixture(scope="module")
def process() -> Iterator[ProcessPoolExecutor]:
    """A process of its own, with JAX."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as made:
        yield made


def run(process: ProcessPoolExecutor, name: str, *args: Any) -> Any:
    """Return the result of a function of ``jax_functions`` in the other process."""
    return process.submit(_call, name, args).result()


def _call(name: str, args: Any) -> Any:
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
    os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "true")  # what it compiles runs once
    return getattr(importlib.import_module("support.importing.jax_functions"), name)(*args)


FUNCTIONS = [
    "maps", "powers", "roots", "rounding", "activations", "softmax", "logsumexp", "norms",
    "compare", "logic", "reduce", "shapes", "slices", "joins", "pads", "interior", "modes",
    "products", "outer", "take", "places", "along", "along_last", "dynamic", "dynamic_many",
    "update", "set", "scatter", "segment", "one_hot", "top_k", "cumulative", "masks", "triangles",
    "stop", "loop", "scan", "scan_back", "nested", "map", "cond", "switch", "vmap", "gradient",
    "jvp", "checkpoint", "attention", "conv", "conv_first", "conv_dilated", "conv_groups",
    "pools", "constants", "custom", "integers", "casts", "quotients", "linear_recurrence",
]  # fmt: skip


@pytest.mark.parametrize("name", some(FUNCTIONS, 20, "functions of JAX"))
def test_operations_of_jax_have_their_values_and_gradients(
    name: str, process: ProcessPoolExecutor
) -> None:
    worst, gradients = run(process, "errors", name)
    assert worst < (EXACT if name != "attention" else 1e-5)  # which is in f32 in JAX
    assert gradients == 2


@pytest.mark.parametrize(("name", "form"), some([
    (name, form) for name in FUNCTIONS if name not in ("cumulative", "stop")
    for form in ("pretty", "generic")
], 14, "functions of StableHLO"))  # fmt: skip
def test_operations_of_stablehlo_have_the_values_and_gradients_of_jax(
    name: str, form: str, process: ProcessPoolExecutor
) -> None:
    worst, gradients = run(process, "errors", name, form)
    assert worst < (EXACT if name != "attention" else 1e-5)  # which is in f32 in JAX
    assert gradients == 2


MODELS = [
    "transformer", "scanned", "llama", "mixtral", "sorted_experts", "recurrent", "diffusion",
    "flax", "flax_scanned", "vit", "resnet", "unet", "nnx", "equinox", "adamw", "clipped",
]  # fmt: skip


@pytest.mark.turns
@pytest.mark.parametrize("name", MODELS)
def test_models_of_jax_have_their_values_and_gradients(
    name: str, process: ProcessPoolExecutor
) -> None:
    worst, gradients = run(process, "errors_of_model", name)
    assert worst < (EXACT if name != "llama" else 1e-4)  # whose attention is in f32
    assert gradients or name in ("adamw", "clipped")


@pytest.mark.turns
@pytest.mark.parametrize("name", MODELS)
def test_models_of_stablehlo_have_the_values_and_gradients_of_jax(
    name: str, process: ProcessPoolExecutor
) -> None:
    worst, gradients = run(process, "errors_of_model", name, "pretty")
    # The attention of llama is in f32; what resnet keeps of batches are constants in f32, and JAX
    # computes with them in f32 too.
    assert worst < {"llama": 1e-4, "resnet": 1e-5}.get(name, EXACT)
    assert gradients or name in ("adamw", "clipped")


SENT = {
    "tensor_parallel": "f64[2@data, 4@model, 2, 2, 8]", "pipelined": "shift %x over model by 1",
    "pipelined_unchecked": "shift %x over model by 1", "ring_attention": "call @shift_model",
    "experts": "f64[2@data, 4@model, 2, 8, 8]", "heads": "redistribute", "two_axes": "redistribute",
    "neighbours": "shift %x over model by -2 open",
}  # fmt: skip
"""Collectives, by name, in the programs of functions with `shard_map`."""


@pytest.mark.turns
@pytest.mark.parametrize("name", SENT)
def test_functions_of_a_device_are_such_of_whole_arrays(
    name: str, process: ProcessPoolExecutor
) -> None:
    worst, gradients, text = run(process, "errors_on_mesh", name)
    assert worst < EXACT
    assert gradients or name in ("two_axes", "neighbours")
    assert SENT[name] in text


@pytest.mark.parametrize("name", some([
    *(x for x in MODELS if x not in ("sorted_experts", "resnet", "unet")), *SENT,
], 6, "operations of products"))  # fmt: skip
def test_products_have_the_operations_that_xla_counts(
    name: str, process: ProcessPoolExecutor
) -> None:
    """Of products of groups, XLA counts those with all weights; of convolutions, not the edges."""
    counted, own = run(process, "flops", name)
    assert own == counted
    assert own > 0 or name == "two_axes"


# --- the command ----------------------------------------------------------------------------------

SOURCE = """
import jax, jax.numpy as jnp

SCALE = jnp.ones((3,))

def init():
    return {"a": jnp.ones((8, 8)), "b": jnp.zeros(8)}

def loss(params, x):
    return jnp.mean((x @ params["a"] + params["b"]) ** 2)

def made():
    return loss, init(), jnp.ones((16, 8))

def alone():
    return loss

def unknown(params, x):
    return jnp.linalg.det(x @ params["a"])

def endless(x):
    return jax.lax.while_loop(lambda c: c[0] < x[0], lambda c: (c[0] + 1, c[1]), (0.0, x))

def wrong(x):
    return x @ x

@jax.custom_vjp
def doubled(x):
    return 2 * x

doubled.defvjp(lambda x: (2 * x, None), lambda _, g: (g,))

def ruled(x):
    return doubled(x)

KEYS = {"old": jax.random.PRNGKey, "new": jax.random.key}

def noisy(kind):
    def loss(params, x, key, scale):
        first, second = jax.random.split(key)
        kept = jax.random.bernoulli(first, 0.5, x.shape)
        noise = jax.random.normal(jax.random.fold_in(second, 3), x.shape)
        chosen = params["b"][jax.random.randint(second, (16,), 0, 8)]
        return ((x @ params["a"]) * kept + noise * scale.sum() + params["b"]).sum() * chosen.sum()
    return loss, init(), jnp.ones((16, 8)), KEYS[kind](0), jnp.ones(3)

def noisy_old():
    return noisy("old")

def noisy_new():
    return noisy("new")
"""


def imported(folder: Path, process: ProcessPoolExecutor, *words: str) -> tuple[int, str, str]:
    """Return the status, the output and the errors of the command on a file of the user."""
    file = folder / f"own_{words[0]}_{len(words)}.py"
    file.write_text(SOURCE, encoding="utf-8")
    given = ["import", "jax", f"{file}:{words[0]}", *words[1:]]
    status, out, err = run(process, "command", given)
    return status, out, err.replace(str(file), "own.py")


SHARDED = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)

def array(spec, *shape):
    return jax.device_put(np.ones(shape, np.float32), NamedSharding(mesh, spec))

def loss(params, x):
    for w in params:
        h = jax.nn.relu(x @ w["up"])
        h = jax.lax.with_sharding_constraint(h, NamedSharding(mesh, P("data", "model")))
        x = x + h @ w["down"]
        x = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P()))
    return jnp.mean(x * x)

def made():
    def layer():
        return {"up": array(P(None, "model"), 16, 32), "down": array(P("model"), 32, 16)}

    return loss, [layer() for _ in range(3)], array(P("data"), 8, 16)
"""


def test_shardings_are_types(tmp_path: Path, process: ProcessPoolExecutor) -> None:
    file = tmp_path / "sharded.py"
    file.write_text(SHARDED, encoding="utf-8")
    words = ["import", "jax", f"{file}:made", "--optimizer", "sgd"]
    status, out, err = run(process, "command", words)
    assert status == 0
    assert "mesh @m on @cluster { data = gpu:2, model = gpu:4 }" in out
    assert "up: float[16, 32@model]" in out
    assert "down: float[32@model, 16]" in out
    assert "%x: f32[batch@data, 16]" in out
    assert "redistribute %relu to f32[batch@data, 32@model]" in out
    assert "a constraint that names no axis is left out" in err
    module = collir.parse(out)
    collir.run_passes(module, "propagate")
    times = {x.name: x for x in collir.simulate(module)}
    sent = [x for x in times["step"].collectives if x.collective.axes]
    assert sent
    status, _, err = run(process, "command", [*words, "--machine", "@dgx_h100(nodes = 2)"])
    assert status == 1
    assert "name a machine and how its axes lie on its levels" in err


@pytest.mark.parametrize("words", [["made"], ["loss", "--args", "init", "f32[16, 8]"]])
def test_a_function_and_its_arguments_make_a_program(
    words: list[str], tmp_path: Path, process: ProcessPoolExecutor
) -> None:
    status, out, _ = imported(tmp_path, process, *words, "--optimizer", "sgd")
    assert status == 0
    assert "func @loss(batch = 16)" in out
    assert "  a: float[8, 8],\n  b: float[8]\n" in out
    assert "func @step(batch = 16)" in out
    assert collir.parse(out)


@pytest.mark.parametrize("kind", ["old", "new"])
def test_random_numbers_are_of_keys_that_are_not_divided(
    kind: str, tmp_path: Path, process: ProcessPoolExecutor
) -> None:
    status, out, err = imported(tmp_path, process, f"noisy_{kind}", "--optimizer", "sgd")
    assert status == 0, err
    assert len(re.findall(" = uniform ", out)) == 3
    assert "%x: f32[batch@data, 8]" in out
    assert f"%key: i32[{'2' if kind == 'old' else ''}]" in out and "%scale: f32[3]" in out
    module = collir.parse(out)
    collir.run_passes(module, "propagate")
    text = run(process, "lowered", str(tmp_path / f"own_noisy_{kind}_3.py"), kind)
    by_text = collir.import_stablehlo(text, optimizer="sgd").text
    assert len(re.findall(" = uniform ", by_text)) == 3
    assert "%key: i32[2]" in by_text and "%scale: f32[3]" in by_text
    assert collir.parse(by_text)


def test_a_rule_of_its_own_is_remarked(tmp_path: Path, process: ProcessPoolExecutor) -> None:
    status, out, err = imported(tmp_path, process, "ruled", "--args", "f32[16, 8]")
    assert status == 0 and "scale %x by 2" in out
    assert err == "remark: own.py:34: the gradient of doubled is that of its forward function\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["unknown", "--args", "init", "f32[8, 8]"],
         "own.py:19:5: error: there is no row for JAX's lu"),
        (["endless", "--args", "f32[8]"],
         "own.py:22:5: error: JAX's while whose number of iterations depends on data cannot be"),
        (["wrong", "--args", "f32[8, 3]"], "own.py:25:5: error: JAX cannot trace the function"),
        (["loss"], "takes params, x: give their types, --args 'f32[8, 64]'"),
        (["alone"], "returns a function, not a tuple of a function and its arguments"),
        (["nothing"], "has no function nothing"),
        (["loss", "--args", "q9[3]", "f32[8, 8]"], "'q9[3]' is no type of an argument"),
        (["loss", "--args", "init", "f32[16, 8]", "--clip"], "--clip goes with --optimizer"),
    ],
)  # fmt: skip
def test_what_cannot_be_imported_is_one_error(
    words: list[str], message: str, tmp_path: Path, process: ProcessPoolExecutor
) -> None:
    status, out, err = imported(tmp_path, process, *words)
    assert status == (2 if "--clip" in words or "q9[3]" in words else 1)
    assert out == ""
    assert message in err
    assert "Traceback" not in err
