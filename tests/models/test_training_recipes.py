"""What examples/models/training.coll does around gradients: on all devices as on one, and as jax
does it on one device."""

import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from support.programs.model_pages import function_of, page
from support.semantics.differentiated import on_all_devices, on_one_device
from xdsl.dialects.builtin import ModuleOp

from collir.dialects.machine import mesh_of
from collir.dialects.nested import RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.semantics.reference.buffers import NUMPY
from collir.semantics.reference.collectives import Array
from collir.semantics.reference.double import in_double
from collir.synthesis.propagation.propagate import make_explicit

SMALL = {"batch": 4, "seq": 8, "hidden": 16, "layers": 2}
RECIPES = ("clipped", "accumulated", "mixed", "loss_scaled")
SCALARS = {"rate": 0.1, "limit": 0.01, "scale": 1024.0}


@cache
def explicit(is_small: bool = True) -> ModuleOp:
    """Return the page at small sizes, or at its own, with layouts for all values."""
    module = page("training", **(SMALL if is_small else {}))
    make_explicit(module)
    return module


def inputs(recipe: str, largest: float = 0.4) -> dict[str, NDArray[np.float64]]:
    """Return normally distributed numbers for the arguments of a recipe, by their names."""
    rng = np.random.default_rng(0)
    drawn: dict[str, NDArray[np.float64]] = {}
    for arg in function_of(page("training", **SMALL), recipe).args:
        shape, name = dist_type(arg).shape, str(arg.name_hint)
        drawn[name] = np.asarray(SCALARS.get(name, rng.normal(0, largest, shape)))
    return drawn


@pytest.mark.turns
@pytest.mark.parametrize("recipe", RECIPES)
def test_all_devices_compute_what_one_does(recipe: str) -> None:
    written, _ = in_double(function_of(page("training", **SMALL), recipe))
    module, function = in_double(function_of(explicit(), recipe))
    tensors: list[Array] = [*inputs(recipe).values()]
    expected = on_one_device(function_of(written, recipe), tensors)
    for x, y in zip(on_all_devices(module, function, tensors), expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)


JAX = """
import sys
import jax, numpy as np
from jax import numpy as jnp
jax.config.update("jax_enable_x64", True)

def loss(x, target, up, down):
    for u, d in zip(up, down):
        x = x + jnp.einsum("bsf,fh->bsh", jax.nn.gelu(jnp.einsum("bsh,hf->bsf", x, u)), d)
    return jnp.mean((x - target) ** 2)

def clipped(x, target, up, down, rate, limit):
    value, (du, dd) = jax.value_and_grad(loss, (2, 3))(x, target, up, down)
    factor = jnp.minimum(1, limit / (jnp.sqrt(jnp.sum(du ** 2) + jnp.sum(dd ** 2)) + 1e-6))
    return value, up - rate * factor * du, down - rate * factor * dd

def accumulated(x, target, up, down, rate):
    whole = [a.reshape(-1, *a.shape[2:]) for a in (x, target)]
    value, (du, dd) = jax.value_and_grad(loss, (2, 3))(*whole, up, down)
    return value, up - rate * du, down - rate * dd

recipe, folder = sys.argv[1:]
with np.load(folder + "/in.npz") as data:
    given = [jnp.asarray(data[f"arr_{n}"]) for n in range(len(data.files))]
np.savez(folder + "/out.npz", *globals()[recipe](*given))
"""
"""The recipes on one device; `accumulated` is one step on the whole batch."""


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["clipped", "accumulated"])
def test_they_are_the_steps_of_jax(recipe: str, tmp_path: Path) -> None:
    module, function = in_double(function_of(explicit(), recipe))
    tensors: list[Array] = [*inputs(recipe).values()]
    np.savez(tmp_path / "in.npz", *tensors)
    subprocess.run([sys.executable, "-c", JAX, recipe, str(tmp_path)], check=True)
    with np.load(tmp_path / "out.npz") as data:
        expected = [data[f"arr_{n}"] for n in range(len(data.files))]
    for x, y in zip(on_all_devices(module, function, tensors), expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9)


def sent(recipe: str) -> list[tuple[str, tuple[str, ...], int, bool]]:
    """Return the name, the axes, the rank of the result and whether it is in a loop, of each
    collective of a recipe."""
    found: list[tuple[str, tuple[str, ...], int, bool]] = []
    function = function_of(explicit(), recipe)
    for op in function.walk():
        if isinstance(op, DistOp) and op.kind.sends:
            rank, inside = len(dist_type(op.result).dims), isinstance(op.parent_op(), RepeatOp)
            found.append((op.mnemonic, mesh_of(function).short(op.over), rank, inside))
    return found


@pytest.mark.parametrize("recipe", ["clipped", "loss_scaled"])
def test_one_number_is_reduced_for_the_norm(recipe: str) -> None:
    """And one for the loss, which is a mean over other axes."""
    numbers = [(name, axes) for name, axes, rank, _ in sent(recipe) if rank == 0]
    assert sorted(numbers) == [("all_reduce", ("data", "context")), ("all_reduce", ("model",))]


def test_gradients_of_microbatches_are_reduced_once() -> None:
    batch = [(rank, inside) for _, axes, rank, inside in sent("accumulated") if "data" in axes]
    assert [inside for rank, inside in batch if rank > 0] == [False, False]


def test_weights_are_gathered_in_bf16_and_kept_in_f32() -> None:
    function = function_of(explicit(), "mixed")
    steps = function_of(explicit(is_small=False), "mixed").walk()
    gathers = [op for op in steps if isinstance(op, DistOp) and op.kind.gathers]
    assert {dist_type(op.result).dtype.value for op in gathers} == {"bf16"}
    tensors = [
        x.astype(NUMPY[dist_type(arg).dtype])
        for x, arg in zip(inputs("mixed").values(), function.args, strict=True)
    ]
    module, exact = in_double(function)
    results = on_all_devices(explicit(), function, tensors)
    expected = on_all_devices(module, exact, [x.astype(np.float64) for x in tensors])
    for new, precise, old in zip(results[1:], expected[1:], tensors[2:4], strict=True):
        assert new.dtype == np.float32
        change, wanted = new.astype(np.float64) - old, precise - old
        assert np.abs(change - wanted).max() < 0.05 * np.abs(wanted).max()  # 8 bits, some steps


@pytest.mark.parametrize("what", [1.0, 1e4, np.nan, np.inf])
def test_a_step_that_overflows_is_skipped_on_all_devices(what: float) -> None:
    """A single number of the batch decides: with an input of 1e4, gradients exceed 65504."""
    function, given = function_of(explicit(), "loss_scaled"), inputs("loss_scaled")
    given["x"][0, 0, 0] = what
    tensors = [
        x.astype(NUMPY[dist_type(arg).dtype])
        for x, arg in zip(given.values(), function.args, strict=True)
    ]
    with np.errstate(all="ignore"):
        _, up, down, scale = on_all_devices(explicit(), function, tensors)
    skipped = what != 1.0
    assert np.array_equal(up, tensors[2]) == np.array_equal(down, tensors[3]) == skipped
    assert scale < 1024 if skipped else 1024 < scale < 1025
    assert np.isfinite(up).all() and np.isfinite(down).all()
