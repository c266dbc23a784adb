"""Operations of models: the values of the reference are those of jax."""

import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import IntegerAttr, UnitAttr, i64
from xdsl.ir import Attribute

from collir.dialects.machine import NumberAttr
from collir.dialects.operation import DistOp
from collir.dialects.tables import OPERATIONS
from collir.dialects.tensor import DistTensorType, SizesAttr
from collir.layout import DistType, DType
from collir.semantics.reference.nn import FUNCTIONS

# jax runs in a process of its own, as it has threads and other tests fork.
jax: Any = import_module("jax") if __name__ == "__main__" else None
jnp: Any = import_module("jax.numpy") if __name__ == "__main__" else None

Function = Callable[[Any], Any] | Callable[[Any, Any], Any] | Callable[[Any, Any, Any], Any]

RNG = np.random.default_rng(19)
X = RNG.normal(size=(3, 8, 6)).astype(np.float32)
GAIN, BIAS = RNG.normal(size=(2, 6)).astype(np.float32)
LABELS = RNG.integers(0, 6, (3, 8)).astype(np.int32)
TABLE = RNG.normal(size=(10, 5)).astype(np.float32)
CHOSEN = RNG.integers(0, 10, (3, 4)).astype(np.int32)
IMAGE = RNG.normal(size=(2, 9, 7, 3)).astype(np.float32)
FILTER = RNG.normal(size=(3, 2, 3, 4)).astype(np.float32)
PICTURE = RNG.normal(size=(2, 5, 6, 4)).astype(np.float32)
POOLED = RNG.normal(size=(2, 5, 6, 3)).astype(np.float32)
ROWS = RNG.normal(size=(3, 4, 5)).astype(np.float32)


def number(value: int) -> Attribute:
    return IntegerAttr(value, i64)


def sizes(*values: int) -> Attribute:
    return SizesAttr(values)


def to(*shape: int) -> Attribute:
    return DistTensorType(DistType.make(DType.F32, shape))


def normalised(x: Any, gain: Any, bias: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    variance = jnp.var(x, axis=-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 0.25) * gain + bias


def convolved(x: Any, w: Any) -> Any:
    names = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, w, (2, 1), ((1, 1), (0, 0)), dimension_numbers=names)


def pooled(x: Any, start: float, function: Any) -> Any:
    pads = ((0, 0), (1, 1), (0, 0), (0, 0))
    return jax.lax.reduce_window(x, start, function, (1, 3, 2, 1), (1, 2, 1, 1), pads)


def composed(u: tuple[Any, Any], v: tuple[Any, Any]) -> tuple[Any, Any]:
    return u[0] * v[0], v[0] * u[1] + v[1]


def pulled_back(function: Callable[[Any], Any], at: Any, gradient: Any) -> Any:
    """Return the gradient of the argument of a function from that of its result."""
    return jax.vjp(function, at)[1](gradient)[0]


STEPS = {"stride": sizes(2, 1), "padding": sizes(1, 0)}
WINDOW = {"window": sizes(3, 2), "stride": sizes(2, 1), "padding": sizes(1, 0)}
CASES: dict[str, tuple[list[Any], dict[str, Attribute], Function]] = {
    "mean": ([X], {"dims": sizes(0, 2)}, lambda x: x.mean((0, 2))),
    "layer_norm": ([X, GAIN, BIAS], {"dims": sizes(2), "eps": NumberAttr(0.25)}, normalised),
    "rms_norm": (
        [X, GAIN],
        {"dims": sizes(2), "eps": NumberAttr(0.25)},
        lambda x, g: x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 0.25) * g,
    ),
    "cumsum": ([X], {"dim": number(1)}, lambda x: jnp.cumsum(x, 1)),
    "cumsum reverse": (
        [X],
        {"dim": number(1), "reverse": UnitAttr()},
        lambda x: jax.lax.cumsum(x, 1, reverse=True),
    ),
    "linear_scan": (
        [X, X + 1],
        {"dim": number(1)},
        lambda x, a: jax.lax.associative_scan(composed, (a, x), axis=1)[1],
    ),
    "linear_scan reverse": (
        [X, X + 1],
        {"dim": number(1), "reverse": UnitAttr()},
        lambda x, a: jax.lax.associative_scan(composed, (a, x), axis=1, reverse=True)[1],
    ),
    "argmax": ([X], {"dim": number(1)}, lambda x: jnp.argmax(x, 1)),
    "top_k": ([X], {"dim": number(2), "k": number(3)}, lambda x: jax.lax.top_k(x, 3)[0]),
    "top_k_indices": (
        [np.round(X) + 0],  # with equal elements, and no -0
        {"dim": number(2), "k": number(3)},
        lambda x: jax.lax.top_k(x, 3)[1],
    ),
    "take": ([TABLE, CHOSEN], {"dim": number(0)}, lambda t, i: jnp.take(t, i, 0)),
    "take_transpose": (
        [ROWS, CHOSEN],
        {"dim": number(0), "to": to(10, 5)},
        lambda g, i: jnp.zeros((10, 5)).at[i].add(g),
    ),
    "take_along_dim": (
        [X, np.round(X[:, :1]).astype(np.int32)],
        {"dim": number(1)},
        lambda x, i: jnp.where(
            (i >= 0) & (i < x.shape[1]), jnp.take_along_axis(x, i % x.shape[1], 1), 0
        ),
    ),
    "take_along_dim_transpose": (
        [X, np.round(X).astype(np.int32)],
        {"dim": number(1), "to": to(*X.shape[:1], 2, *X.shape[2:])},
        lambda g, i: jnp.stack([jnp.where(i == n, g, 0).sum(1) for n in range(2)], 1),
    ),
    "grouped_matmul": (
        [ROWS, np.stack([TABLE.T, -TABLE.T]), CHOSEN % 3],
        {},
        lambda x, w, e: jnp.where(
            (e < 2)[..., None], jnp.einsum("...i,...io->...o", x, w[e % 2]), 0
        ),
    ),
    "grouped_matmul transposed": (
        [ROWS, np.stack([TABLE, -TABLE]), CHOSEN % 3],
        {"transposed": UnitAttr()},
        lambda x, w, e: jnp.where(
            (e < 2)[..., None], jnp.einsum("...i,...oi->...o", x, w[e % 2]), 0
        ),
    ),
    "grouped_matmul_transpose": (
        [ROWS, ROWS + 1, CHOSEN % 3],
        {"to": to(2, 5, 5)},
        lambda x, y, e: jnp.einsum("...e,...i,...o->eio", jax.nn.one_hot(e, 2), x, y),
    ),
    "one_hot": ([CHOSEN - 2], {"to": to(3, 4, 6)}, lambda i: jax.nn.one_hot(i, 6)),
    "cross_entropy": (
        [X, LABELS],
        {"dim": number(2)},
        lambda x, i: -(jax.nn.log_softmax(x) * jax.nn.one_hot(i, 6)).sum(-1),
    ),
    "conv": (
        [IMAGE, FILTER],
        STEPS,
        lambda x, w: convolved(x, w),
    ),
    "conv_transpose": (
        [PICTURE, FILTER],
        {**STEPS, "to": to(2, 9, 7, 3)},
        lambda g, w: pulled_back(lambda x: convolved(x, w), IMAGE, g),
    ),
    "conv_filter": (
        [IMAGE, PICTURE],
        {**STEPS, "to": to(3, 2, 3, 4)},
        lambda x, g: pulled_back(lambda w: convolved(x, w), FILTER, g),
    ),
    "max_pool_transpose": (
        [POOLED, np.round(IMAGE) + 0],  # with equal elements
        WINDOW,
        lambda g, x: pulled_back(lambda x: pooled(x, -jnp.inf, jax.lax.max), x, g),
    ),
    "avg_pool_transpose": (
        [POOLED],
        {**WINDOW, "to": to(2, 9, 7, 3)},
        lambda g: pulled_back(lambda x: pooled(x, 0.0, jax.lax.add) / 6, IMAGE, g),
    ),
    "max_pool": ([IMAGE], WINDOW, lambda x: pooled(x, -jnp.inf, jax.lax.max)),
    "avg_pool": ([IMAGE], WINDOW, lambda x: pooled(x, 0.0, jax.lax.add) / 6),
}
"""Operands, arguments and the same in jax, by the name of an operation."""


def result(name: str, arrays: list[Any], arguments: dict[str, Attribute]) -> Any:
    op = OPERATIONS[name].create(properties=arguments)
    assert isinstance(op, DistOp)
    return FUNCTIONS[name](op, arrays)


@cache
def in_jax() -> dict[str, Any]:
    """Return the results of all cases in jax, by a run of this file."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "values.npz"
        given = {"JAX_PLATFORMS": "cpu"}
        subprocess.run([sys.executable, __file__, str(path)], env=os.environ | given, check=True)
        with np.load(path) as values:
            return dict(values)


@pytest.mark.turns
@pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed")
@pytest.mark.parametrize("case", CASES)
def test_values_are_those_of_jax(case: str) -> None:
    arrays, arguments, _ = CASES[case]
    got, expected = result(case.split()[0], arrays, arguments), in_jax()[case]
    assert got.shape == expected.shape and got.dtype.kind == expected.dtype.kind
    assert got == pytest.approx(expected, rel=2e-5, abs=2e-5)


def test_labels_and_positions_out_of_range_select_nothing() -> None:
    chosen = np.array([-1, 0, 9, 10], np.int32)
    taken = result("take", [TABLE, chosen], {"dim": number(0)})
    assert (taken == np.stack([0 * TABLE[0], TABLE[0], TABLE[9], 0 * TABLE[0]])).all()
    added = result("take_transpose", [taken + 1, chosen], {"dim": number(0), "to": to(10, 5)})
    assert (added[[0, 9]] == TABLE[[0, 9]] + 1).all() and not added[1:9].any()
    loss = result("cross_entropy", [X[0, :4], chosen - 4], {"dim": number(1)})
    assert (loss[[0, 1, 3]] == 0).all() and loss[2] > 0


if __name__ == "__main__":
    values = {name: np.asarray(function(*arrays)) for name, (arrays, _, function) in CASES.items()}
    np.savez(sys.argv[1], allow_pickle=False, **values)
