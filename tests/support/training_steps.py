"""Training steps of the pages of models at small sizes: inputs, and a comparison of results."""

from collections.abc import Sequence

import numpy as np
from model_pages import SMALL, function_of, inputs_of, page
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.dialects.machine import mesh_of
from collir.dialects.tensor import dist_type
from collir.semantics.reference.buffers import NUMPY, distribute
from collir.semantics.reference.collectives import Buffers
from collir.semantics.reference.double import module_in_double
from collir.semantics.reference.executor import execute
from collir.synthesis.propagation.propagate import make_explicit

PAGES = {
    **{name: SMALL[name] for name in ("mlp", "gpt", "llama", "bert", "vit", "switch")},
    "styles": {"batch": 8, "seq": 8, "hidden": 32, "heads": 8, "layers": 2},
}
"""Small sizes of each model."""

STYLES = (
    "data_parallel",
    "zero_1",
    "fully_sharded",
    "tensor_parallel",
    "sequence_parallel",
    "context_parallel",
    "mixed",
)

CASES = [
    *(("styles", style) for style in STYLES),
    *((name, "step") for name in PAGES if name != "styles"),
]

ROUNDING = 2.0**-52 * 2**16
"""The most that results may differ in f64, relative to the largest element (or to 0.001)."""


def arguments_of(function: FuncOp) -> list[Buffers]:
    """Return inputs on all devices: positive numbers, as second moments are, and small integers."""
    mesh, rng = mesh_of(function), np.random.default_rng(0)
    types = [dist_type(arg) for arg in function.args]
    tensors = [
        (abs(x) if x.dtype.kind == "f" else x).astype(NUMPY[t.dtype])
        for x, t in zip(inputs_of(function, 2), types, strict=True)
    ]
    return [distribute(mesh, x, t, rng) for x, t in zip(tensors, types, strict=True)]


def step_in_double(name: str, function_name: str) -> tuple[ModuleOp, FuncOp]:
    """Return a function of a page at small sizes in f64, and its module."""
    module = page(name, **PAGES[name])
    make_explicit(module)
    module = module_in_double(module)
    return module, function_of(module, function_name)


def assert_same(
    module: ModuleOp, function: FuncOp, arguments: Sequence[Buffers], results: Sequence[Buffers]
) -> None:
    """Check results in f64 on all devices against the executor's."""
    expected = execute(module, function, arguments)
    assert len(results) == len(expected) > 1
    for buffers, right in zip(results, expected, strict=True):
        for actual, truth in zip(buffers, right, strict=True):
            assert actual is not None and truth is not None
            assert np.isfinite(truth).all()
            scale = max(1e-3, float(np.abs(truth).max(initial=0)))
            assert np.abs(actual - truth).max(initial=0) <= ROUNDING * scale
