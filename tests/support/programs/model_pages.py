"""The pages of models in examples/models: at small sizes in f64, on all devices and in jax."""

import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from support.semantics.differentiated import on_all_devices, on_one_device
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import collir
from collir.dialects.tensor import dist_type
from collir.ir.functions import functions_of
from collir.semantics.reference.collectives import Array
from collir.semantics.reference.double import in_double
from collir.transforms.gradients.differentiation import gradient_function, gradients_as_calls
from collir.transforms.instantiation import instantiate

ROOT = Path(__file__).parents[3]
PAGES = ROOT / "examples" / "models"
IN_JAX = ROOT / "benchmarks" / "models" / "in_jax"


SMALL: dict[str, dict[str, int]] = {
    "mlp": {"batch": 4, "width": 8, "layers": 4},
    "gpt": {"batch": 4, "seq": 3, "hidden": 8, "heads": 4, "layers": 2, "vocab": 12},
    "llama": {
        "batch": 2,
        "seq": 3,
        "hidden": 32,
        "heads": 8,
        "kv": 4,
        "inner": 12,
        "layers": 2,
        "vocab": 16,
    },
    "bert": {"batch": 2, "seq": 3, "hidden": 8, "heads": 4, "layers": 2, "vocab": 12},
    "vit": {
        "batch": 2,
        "grid": 2,
        "patch": 3,
        "hidden": 8,
        "heads": 4,
        "layers": 2,
        "classes": 5,
    },
    "switch": {
        "groups": 8,
        "words": 6,
        "hidden": 4,
        "experts": 8,
        "places": 2,
        "layers": 2,
    },
    "mixtral": {
        "batch": 64,
        "seq": 6,
        "hidden": 8,
        "heads": 4,
        "kv": 2,
        "inner": 5,
        "places": 3,
        "layers": 2,
        "vocab": 12,
    },
    "vgg19": {"batch": 8, "side": 64, "width": 2, "hidden": 8, "classes": 5},
    "resnet50": {
        "batch": 64,
        "side": 32,
        "width": 4,
        "blocks_1": 2,
        "blocks_2": 2,
        "blocks_3": 3,
        "blocks_4": 2,
        "classes": 5,
    },
}
"""Sizes of each model that differ from each other where they may."""

LIMITS = {"bert": 2, "vit": 5, "vgg19": 5, "resnet50": 5}
"""Numbers above all integers of the inputs, where it is not the number of words."""


@cache
def _page(name: str) -> ModuleOp:
    return collir.parse(PAGES / f"{name}.coll")


def page(name: str, **sizes: int) -> ModuleOp:
    """Return a page at some sizes."""
    module = _page(name).clone()
    instantiate(module, sizes)
    return module


def function_of(module: ModuleOp, name: str) -> FuncOp:
    """Return a function by its name."""
    return next(op for op in functions_of(module) if op.sym_name.data == name)


def with_gradients(module: ModuleOp, name: str) -> tuple[FuncOp, list[int]]:
    """Add the function that returns the gradients by all floating-point arguments of another one,
    and return it with the numbers of these arguments."""
    function = function_of(module, name)
    wrt = [n for n, arg in enumerate(function.args) if dist_type(arg).dtype.is_float]
    _ = gradients_as_calls(module)
    return gradient_function(function, wrt), wrt


def inputs_of(function: FuncOp, limit: int, seed: int = 0) -> list[Array]:
    """Return normally distributed numbers for arguments, and integers below a limit."""
    rng = np.random.default_rng(seed)
    return [
        rng.normal(0, 0.4, x.shape) if x.dtype.is_float else rng.integers(0, limit, x.shape)
        for x in map(dist_type, function.args)
    ]


JAX = """
import runpy, sys
import jax, numpy as np
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_disable_most_optimizations", True)  # compiles in half the time
path, folder, wrt = sys.argv[1:]
with np.load(folder + "/in.npz") as data:
    inputs = [data[f"arr_{n}"] for n in range(len(data.files))]
loss = runpy.run_path(path)["loss"]
run = jax.jit(jax.value_and_grad(loss, tuple(map(int, wrt.split(",")))))
value, gradients = run(*inputs)
np.savez(folder + "/out.npz", value, *gradients)
"""
"""A program that runs a loss and its gradients: jax has threads, and other tests fork."""


def in_jax(name: str, inputs: Sequence[Array], wrt: Sequence[int]) -> list[Array]:
    """Return the loss and its gradients of the same model in jax."""
    with TemporaryDirectory() as folder:
        np.savez(f"{folder}/in.npz", *inputs)
        words = [str(IN_JAX / f"{name}.py"), folder, ",".join(map(str, wrt))]
        subprocess.run([sys.executable, "-c", JAX, *words], check=True)
        with np.load(f"{folder}/out.npz") as data:
            return [data[f"arr_{n}"] for n in range(len(data.files))]


def differences(name: str, limit: int = 2, **sizes: int) -> dict[str, float]:
    """Return how far the loss and the gradients of a page are from those of jax, relative to the
    largest element (or to 0.001), on one device and on all devices."""
    gradient, wrt = with_gradients(page(name, **sizes), "loss")
    module, function = in_double(gradient)
    inputs = inputs_of(function, limit)
    expected = in_jax(name, inputs, wrt)
    names = ["loss", *(f"{function.args[n].name_hint} ({n})" for n in wrt)]
    found: dict[str, float] = {}
    for where, results in (
        ("all", on_all_devices(module, function, inputs)),
        ("one", on_one_device(function, inputs)),
    ):
        for label, a, b in zip(names, results, expected, strict=True):
            assert a.shape == b.shape, (label, a.shape, b.shape)
            largest = max(1e-3, np.abs(b).max())
            found[f"{label} on {where}"] = float(np.abs(a - b).max() / largest)
    return found
