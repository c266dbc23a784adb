# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false
"""Functions of JAX, each of a few operations, and what is run in a process with JAX.

Processes with JAX have threads, which do not go with those that tests fork.
"""

import io
import runpy
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from typing import Any

import numpy as np
from support.importing import jax_models
from support.importing.jax_gradients import compared

from collir.tools import collir as tool

jax: Any = import_module("jax")
jnp: Any = import_module("jax.numpy")
lax: Any = import_module("jax.lax")

RNG = np.random.default_rng(3)


def array(*shape: Any):
    return RNG.standard_normal(shape)


TABLE = array(6, 8)
PLACES = np.array([[2, 0, 1], [1, 1, 3]])

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "maps": lambda x: jnp.tanh(x) + jnp.exp(x) * jnp.sin(x) - jnp.cos(x) / (2 + lax.erf(x)),
    "powers": lambda x: x**3 + x**2.0 + jnp.abs(x) ** 1.5 + lax.integer_pow(x, -2) + 2.0**x,
    "roots": lambda x: (
        jnp.sqrt(jnp.abs(x)) + lax.rsqrt(1 + x * x) + jnp.log1p(x * x) + jnp.expm1(x)
    ),
    "rounding": lambda x: jnp.floor(3 * x) + jnp.ceil(x) + jnp.round(2 * x) + jnp.sign(x) + x % 0.7,
    "activations": lambda x: (
        jax.nn.gelu(x)
        + jax.nn.gelu(x, approximate=False)
        + jax.nn.silu(x)
        + jax.nn.relu(x)
        + jax.nn.softplus(x)
        + jax.nn.elu(x)
        + jax.nn.leaky_relu(x)
        + jax.nn.log_sigmoid(x)
        + jax.nn.hard_tanh(x)
        + jax.nn.relu6(x)
        + jax.nn.sigmoid(x)
    ),
    "softmax": lambda x: (
        jax.nn.softmax(x, -1) + jax.nn.log_softmax(x, 1) + jax.nn.softmax(x, (0, 2))
    ),
    "logsumexp": lambda x: jax.nn.logsumexp(x, axis=-1) + jax.nn.logsumexp(x, axis=(1, 2))[:, None],
    "norms": lambda x: (
        jax.nn.standardize(x) + jnp.var(x, 1, keepdims=True) + jnp.std(x, axis=-1, keepdims=True)
    ),
    "compare": lambda x: jnp.where((x > 0) & (x < 1) | ~(x >= -1), x, jnp.clip(x, -0.5, 0.25)),
    "logic": lambda x: jnp.where(jnp.logical_xor(x > 0, x < 1), x, 2 * x) * jnp.isfinite(x),
    "reduce": lambda x: (
        x.sum() + x.mean(1).T @ x.max(2) + x.min() + jnp.prod(x, 2).sum() + x.all() + x.any()
    ),
    "shapes": lambda x: jnp.moveaxis(x, 0, 2).reshape(6, -1)[:, ::2].T[..., None].squeeze(-1),
    "slices": lambda x: x[1:, ::2, -3:] + x[:-1, 1::2, 2:5] + lax.rev(x, (2,))[1:, ::2, :3],
    "joins": lambda x: jnp.concatenate([x, 2 * x], 1) @ jnp.stack([x[0, 0]] * 3, 1),
    "pads": lambda x: (
        jnp.pad(x, ((0, 0), (1, 2), (0, 3)), constant_values=1.5)
        + lax.pad(x, 0.0, ((0, 0, 0), (1, 2, 0), (0, 3, 0))).sum()
    ),
    "interior": lambda x: lax.pad(x, 0.5, ((0, 0, 0), (1, -1, 2), (-1, 0, 1))),
    "modes": lambda x: (
        jnp.pad(x, ((0, 0), (2, 1), (1, 1)), mode="edge")
        + jnp.pad(x, ((0, 0), (2, 1), (1, 1)), mode="reflect")
        + jnp.roll(jnp.pad(x, ((0, 0), (0, 3), (1, 1))), 2, 1)
    ),
    "products": lambda x: (
        jnp.einsum("abc,adc->bd", x, x)
        + (x @ x.transpose(0, 2, 1)).sum(0)
        + jnp.tensordot(x, x, ((0, 2), (0, 2)))
    ),
    "outer": lambda x: jnp.outer(x[0, 0], x[1, 1]) + jnp.vdot(x, x) + jnp.inner(x[0], x[1]).sum(),
    "take": lambda x: jnp.take(x, PLACES, 1) @ jnp.ones((8,)) + x[:, PLACES].sum(-1),
    "places": lambda x: x[jnp.array([0, 2]), jnp.array([1, 5])] * x[2, jnp.array([3, -1])],
    "along": lambda x: jnp.take_along_axis(x, jnp.argsort(x, axis=1), 1) - jnp.sort(x, 1) * 2,
    "along_last": lambda x: jnp.take_along_axis(x, (x[..., :3] > 0).astype(int) + 2, -1),
    "dynamic": lambda x: lax.dynamic_slice(x, (1, (x[0, 0, 0] > 9).astype(int) + 2, 0), (2, 3, 8)),
    "dynamic_many": lambda x: jax.vmap(lambda r, i: lax.dynamic_slice(r, (i, 0), (2, 8)))(
        x, jnp.array([0, 3, 9])
    ),
    "update": lambda x: lax.dynamic_update_slice(
        x, x[:1, :2] * 3, (1, (x[0, 0, 0] > 9).astype(int) + 3, 0)
    ),
    "set": lambda x: (
        x.at[1].set(0.5).at[:, 2].add(x[:, 3]).at[..., 1].multiply(2.0 * jnp.ones((3, 6)))
    ),
    "scatter": lambda x: (
        jnp.zeros((5, 8)).at[jnp.array([3, 0, 3])].add(x[:, 0])
        + jnp.zeros((5, 8)).at[jnp.array([1, 4, 2])].set(x[:, 1])
    ),
    "segment": lambda x: jax.ops.segment_sum(x, jnp.array([1, 0, 1]), 4),
    "one_hot": lambda x: jax.nn.one_hot(jnp.argmax(x, -1), 8) * x + jnp.argmin(x, 1)[:, None, :],
    "top_k": lambda x: lax.top_k(x, 3)[0] * (1 + lax.top_k(x, 3)[1]),
    "cumulative": lambda x: (
        jnp.cumsum(x, 1)
        + lax.cumsum(x, 2, reverse=True)
        + jnp.cumprod(x, 2)
        + lax.cummax(x, 1)
        + lax.cumlogsumexp(x, 2)
    ),
    "masks": lambda x: jnp.where(jnp.tril(jnp.ones((6, 6), bool)), x @ x.transpose(0, 2, 1), -1e9),
    "triangles": lambda x: (
        jnp.triu(x[:, :, :6], 1) + jnp.eye(6) + jnp.arange(6.0) + jnp.linspace(0, 1, 6)
    ),
    "stop": lambda x: lax.stop_gradient(x) * x,
    "loop": lambda x: lax.fori_loop(0, 3, lambda i, c: jnp.tanh(c + i), x),
    "scan": lambda x: lax.scan(lambda c, r: (jnp.tanh(c + r), c * r), x[0], x)[1],
    "scan_back": lambda x: lax.scan(
        lambda c, r: (0.5 * c + r, jnp.sin(c)), x[0, 0], x[1], reverse=True
    ),
    "nested": lambda x: lax.scan(
        lambda c, r: (lax.scan(lambda d, q: (jnp.sin(d + q), None), c, r)[0], c), x[0, 0], x
    ),
    "map": lambda x: lax.map(lambda r: r @ r.T, x),
    "cond": lambda x: lax.cond(x[0, 0, 0] > 0, jnp.sin, lambda y: 2 * y, x),
    "switch": lambda x: lax.switch(
        (x[0, 0, 0] > 0).astype(int) + 1, [jnp.sin, jnp.cos, jnp.tanh], x
    ),
    "vmap": lambda x: jax.vmap(jax.vmap(jnp.dot, (0, None)), (0, 0))(x, x[:, 0]),
    "gradient": lambda x: jax.grad(lambda y: (jnp.tanh(y) ** 2).sum())(x),
    "jvp": lambda x: jax.jvp(jnp.tanh, (x,), (jnp.cos(x),))[1],
    "checkpoint": lambda x: (
        jax.checkpoint(lambda y: jnp.sin(jnp.sin(y)))(x) + jax.checkpoint(jnp.cos)(x)
    ),
    "attention": lambda x: jax.nn.dot_product_attention(
        *[x.reshape(3, 6, 2, 4)] * 3, is_causal=True
    ),
    "conv": lambda x: lax.conv_general_dilated(
        x.reshape(3, 6, 8, 1),
        jnp.sin(x[:, :3, :4].reshape(3, 3, 1, 4)),
        (1, 2),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    ),
    "conv_first": lambda x: lax.conv(
        x.reshape(3, 2, 3, 8), x[:, :2, :4].reshape(2, 2, 3, 2), (1, 1), "VALID"
    ),
    "conv_dilated": lambda x: lax.conv_general_dilated(
        x.reshape(3, 6, 8, 1),
        jnp.sin(x[:, :2, :2].reshape(2, 2, 1, 3)),
        (2, 1),
        ((1, 0), (2, 3)),
        lhs_dilation=(1, 2),
        rhs_dilation=(2, 1),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    ),
    "conv_groups": lambda x: lax.conv_general_dilated(
        x.reshape(3, 3, 8, 2),
        jnp.sin(x[:1, :2, :2].reshape(2, 1, 1, 2)),
        (1, 1),
        "SAME",
        feature_group_count=2,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    ),
    "pools": lambda x: (
        lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 3), (1, 1, 2), "SAME")
        + lax.reduce_window(x, 0.0, lax.add, (1, 2, 3), (1, 1, 2), "SAME")
    ),
    "constants": lambda x: x + jnp.asarray(TABLE) * np.arange(8),
    "custom": lambda x: jax.nn.relu(x) + jax.nn.logsumexp(x),
    "integers": lambda x: (jnp.arange(6) * 2 - 1)[:, None] * x + (x > 0).sum(),
    "quotients": lambda x: (
        (x * 9).astype(jnp.int32) // jnp.asarray([3, -2, 4, 7, -5, 1, 2, 9], jnp.int32)
        + (x * 9).astype(jnp.int32) % jnp.asarray([3, -2, 4, 7, -5, 1, 2, 9], jnp.int32)
        + x
    ),
    "linear_recurrence": lambda x: lax.associative_scan(
        lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (x, jnp.sin(x))
    ),
    "casts": lambda x: x.astype(jnp.int32) + (x > 0) * x + x.astype(bool),
}


def errors(name: Any, form: Any = ""):
    """Return the largest error of a function and its gradients, and the number of these."""
    function, weights = FUNCTIONS[name], array(2, 3, 6, 8)

    def loss(w: Any, x: Any):
        made = jax.tree.leaves(function(w["a"] * w["b"] + x))
        return sum((jnp.cos(jnp.arange(y.size).reshape(y.shape)) * y).sum() for y in made)

    found = compared(loss, {"a": weights[0], "b": weights[1]}, array(3, 6, 8), form=form)
    return found.worst, len(found.gradients)


def errors_of_model(name: Any, form: Any = ""):
    """Return the largest error of a model and its gradients, and the number of these."""
    function, args = jax_models.MODELS[name]()
    found = compared(function, *args, form=form)
    return found.worst, len(found.gradients)


def errors_on_mesh(name: Any):
    """Return the largest error of a function with ``shard_map`` on 8 devices, how many gradients
    there are, and its program."""
    from support.importing.jax_meshes import MODELS

    function, args = MODELS[name]()
    made = compared(function, *args, axes={"data": 2, "model": 4})
    return made.worst, len(made.gradients), made.program.text("m")


def flops(name: Any):
    """Return the operations of products of a model or a function with ``shard_map``, as XLA counts
    them and in its program."""
    from support.importing import jax_meshes
    from support.importing.jax_flops import counted_by_xla, in_program

    axes = {"data": 2, "model": 4} if name in jax_meshes.MODELS else None
    function, args = (jax_models.MODELS | jax_meshes.MODELS)[name]()
    return counted_by_xla(function, args), in_program(function, args, axes)


def lowered(file: Any, kind: Any):
    """Return the StableHLO of the function with random numbers of a file."""
    found = runpy.run_path(file)["noisy"](kind)
    return jax.jit(found[0]).lower(*found[1:]).as_text(debug_info=True)


def command(words: Any):
    """Return the status, the output and the errors of `collir`."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            status = tool.main(words)
        except SystemExit as stop:  # argparse
            status = int(stop.code or 0)
    return status, out.getvalue(), err.getvalue()
