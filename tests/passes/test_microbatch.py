"""Microbatches on random losses that read the size of their batch, against one device.

The reference is the step before it is cut, on one device in f64, at integers and at fractions.
"""

import random
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from support.harness.seeds import fresh, one_of_each
from support.programs.batch_losses import random_loss
from support.programs.collectives import RANDOM
from support.programs.staged_steps import step_of
from xdsl.dialects.builtin import ModuleOp

import collir
from collir.dialects.machine import mesh_of, module_of
from collir.dialects.tensor import dist_type
from collir.ir.diagnostics import DiagnosticError
from collir.semantics.reference.buffers import NUMPY, assemble, distribute
from collir.semantics.reference.collectives import Array
from collir.semantics.reference.executor import execute
from collir.semantics.reference.meaning import meaning
from collir.syntax.writer import write
from collir.transforms.instantiation import instantiate
from collir.transforms.stages.unstaging import without_stages

PASSES = (
    *("microbatch{microbatches=2}", "microbatch{microbatches=4}", "microbatch{microbatches=8}"),
    *("microbatch{microbatches=2},propagate", "microbatch{microbatches=4},default"),
    *("pipeline{microbatches=2}", "pipeline{microbatches=4 schedule=gpipe}"),
    *("pipeline{microbatches=4 schedule=zb-h1}", "pipeline{microbatches=4 schedule=zb-v}"),
    "pipeline{microbatches=4 schedule=interleaved}",
    *("differentiate", "expand,microbatch{microbatches=2}"),
)

REFUSED = (
    "is not linear in what is reduced over the batch",
    "needs the whole batch",
    "reduces over the batch, and is neither sum nor mean",
    "takes rows of the batch with what is reduced over it",
    "picks rows of the batch by their position",
    "does not divide into the",
    "a pipeline runs the layers once",
    "a pipeline cuts one stack of layers",
    "layers are fewer than",
)
"""The texts of errors for which a random loss may be refused."""


def inputs_of(module: ModuleOp, rng: np.random.Generator, integers: bool) -> list[Array]:
    """Return inputs of a step: small integers, or fractions where elements are of a float type."""
    tensors: list[Array] = []
    for argument in step_of(module).args:
        x = dist_type(argument)
        whole = integers or not x.dtype.is_float
        low = -2 if x.dtype.is_float else 0
        drawn = rng.integers(low, 5, size=x.shape) if whole else rng.normal(size=x.shape)
        tensors.append(np.asarray(drawn).astype(NUMPY[x.dtype]))
    return tensors


def on_all_devices(
    before: ModuleOp, after: ModuleOp, tensors: Sequence[Array], rng: np.random.Generator
) -> list[Array]:
    """Return the results of a step that was cut, on all devices."""
    step = without_stages(step_of(before), step_of(after)).function
    mesh, last = mesh_of(step), step.body.block.last_op
    assert last is not None
    pairs = zip(tensors, step.args, strict=True)
    buffers = [distribute(mesh, x, dist_type(argument), rng) for x, argument in pairs]
    results = zip(execute(module_of(step), step, buffers), last.operands, strict=True)
    return [assemble(mesh, buffer, dist_type(value)) for buffer, value in results]


def assert_computes(before: ModuleOp, after: ModuleOp, rounding: float = 1e-8) -> None:
    """Check that a step that was cut computes what it did before."""
    rng = np.random.default_rng(0)
    for integers in (True, False):
        tensors = inputs_of(before, rng, integers)
        expected = execute(*meaning(step_of(before)), [[x] for x in tensors])
        for actual, [right] in zip(
            on_all_devices(before, after, tensors, rng), expected, strict=True
        ):
            assert right is not None
            np.testing.assert_allclose(actual, right, rtol=rounding, atol=rounding)


def assert_cut(rng: random.Random, sizes: Counter[str]) -> None:
    """Check a random loss in microbatches, and the same at another size of the batch."""
    loss = random_loss(rng)
    before = collir.parse(loss.text, "loss.coll")
    passes = rng.choice(PASSES)
    try:
        after = collir.run_passes(before.clone(), passes)
    except DiagnosticError as error:
        message = error.diagnostics[0].message
        assert any(text in message for text in REFUSED), f"{message}\n{loss.text}"
        sizes["refused"] += 1
        return
    text = write(after)
    assert write(collir.parse(text, "after.coll")) == text
    assert_computes(before, after)
    sizes["cut"] += 1
    try:
        instantiate(after, {"batch": 16})
    except DiagnosticError:
        return
    instantiate(before, {"batch": 16})
    assert_computes(before, after)
    sizes["instantiated"] += 1


@given(rng=RANDOM)
@settings(max_examples=1)
def test_random_losses(rng: random.Random) -> None:
    assert_cut(rng, Counter())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_more_random_losses(seed: int) -> None:
    """Most losses are cut, whatever they read."""
    rng, sizes = fresh(seed), Counter[str]()
    for _ in range(60):
        assert_cut(rng, sizes)
    assert sizes["cut"] > 35
    assert sizes["instantiated"] > 20


# --- one reader of the batch each -----------------------------------------------------------------

STEP = """
machine @box {{
  device {{ compute f64 = 1 TFLOP/s, f32 = 1 TFLOP/s }}
  level node[2] {{ port = 1 GB/s, latency = 1 us }}
  level gpu[2] {{ port = 25 GB/s, latency = 1 us }}
}}
mesh @m on @box {{ data = gpu:2{weights}, pipe = node:2 }}
func @loss(batch = 8, layers = 2)
    (%x: f64[batch{own}, 2], %z: f64[batch{own}, 2], %seed: i32[], %w: f64[layers, 2, 2])
    -> f64[] on @m auto {{
  %h = repeat layers carry(%h = %x) slice(%w = %w) {{
    %p = einsum "b i, i j -> b j" %h, %w
    yield %p
  }}
  %e = sub %h, %z
  %y = mul %e, %e
  {loss}
  return %l
}}
func @step(batch = 8, layers = 2)
    (%x0: {x}, %z: {z}, %seed: i32[], %w: f64[layers, 2, 2])
    -> (f64[], f64[layers, 2, 2]) on @m auto {{
  %x = cast %x0 to f64
  %l, %d = gradient @loss(batch = batch, layers = layers)(%x, %z, %seed, %w) wrt %w
  return %l, %d
}}
"""

LOSSES = {
    "a mean by hand": (
        "%n = constant value 2 * batch to f64[]\n%f = div %y, %n\n%l = sum %f dims [0, 1]"
    ),
    "a factor": "%f = scale %y by batch\n%l = sum %f dims [0, 1]",
    "padding": "%f = pad %y dim 1 low 1 high 0 value batch\n%l = mean %f dims [0, 1]",
    "a count of padding": "%f = pad %y dim 1 low batch high 0 value 2\n%l = mean %f dims [0, 1]",
    "iterations": (
        "%f = repeat batch carry(%h = %y) {\n%g = scale %h by 1.5\nyield %g\n}\n"
        "%l = mean %f dims [0, 1]"
    ),
    "a seed": (
        "%n = constant value batch to i32[]\n%s = add %seed, %n\n"
        "%u = uniform %s to f64[2]\n%f = mul %y, %u\n%l = mean %f dims [0, 1]"
    ),
    "random numbers": (
        "%u = uniform %seed to f64[batch, 2]\n%f = mul %y, %u\n%l = mean %f dims [0, 1]"
    ),
    "numbers of rows": (
        "%i = iota dim 0 to f64[batch, 2]\n%f = mul %y, %i\n%l = mean %f dims [0, 1]"
    ),
    "a count of rows": (
        "%o = constant value 1 to f64[batch]\n%n = sum %o dims [0]\n"
        "%s = sum %y dims [0, 1]\n%l = div %s, %n"
    ),
    "a count in the data": (
        "%k = greater %z, %x\n%m = cast %k to f64\n%n = sum %m dims [0, 1]\n"
        "%o = constant value 1 to f64[]\n%c = maximum %n, %o\n%f = mul %y, %m\n"
        "%s = sum %f dims [0, 1]\n%l = div %s, %c"
    ),
    "a mean of the data": "%n = mean %z dims [0]\n%f = mul %y, %n\n%l = sum %f dims [0, 1]",
    "flattened": (
        "%t = reshape %y to [2 * batch]\n%i = iota dim 0 to f64[2 * batch]\n"
        "%f = mul %t, %i\n%l = sum %f dims [0]"
    ),
    "a norm of weights": (
        "%s = sum %y dims [0, 1]\n%q = mul %w, %w\n%n = sum %q dims [0, 1, 2]\n%l = add %s, %n"
    ),
}

LAYOUTS = {
    "one alone": ("f64[batch@data, 2]", "f64[batch, 2]", "", ""),
    "the other alone": ("f64[batch, 2]", "f64[batch@data, 2]", "", ""),
    "cast in front": ("f32[batch@data, 2]", "f64[batch@data, 2]", "", ""),
    "types of the loss": ("f64[batch@data, 2]", "f64[batch@data, 2]", "@data", ""),
    "weights": ("f64[batch@data, 2]", "f64[batch, 2]", "", " weights [3, 1]"),
}


def step_with(loss: str, layout: str) -> ModuleOp:
    """Return a step with a loss and with inputs of some layout."""
    x, z, own, weights = LAYOUTS[layout]
    text = STEP.format(loss=LOSSES[loss], x=x, z=z, own=own, weights=weights)
    return collir.parse(text, "step.coll")


@pytest.mark.turns
@pytest.mark.parametrize("loss", LOSSES)
def test_a_number_means_the_whole_batch(loss: str) -> None:
    before = step_with(loss, "one alone")
    assert_computes(before, collir.run_passes(before.clone(), "microbatch{microbatches=4}"))


@pytest.mark.turns
@pytest.mark.parametrize(
    ("layout", "passes"),
    one_of_each(LAYOUTS, ["microbatch{microbatches=2}", "pipeline{microbatches=2}"]),
)
def test_all_inputs_are_cut_alike(layout: str, passes: str) -> None:
    before = step_with("a mean by hand", layout)
    assert_computes(before, collir.run_passes(before.clone(), passes))


def test_random_numbers_of_a_stage() -> None:
    """What is drawn once in front of the loop is drawn at the place that uses it."""
    before = step_with("random numbers", "one alone")
    assert_computes(before, collir.run_passes(before.clone(), "pipeline{microbatches=2}"))
