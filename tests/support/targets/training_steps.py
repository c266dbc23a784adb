"""Training steps of the example models at small sizes, on ranks and beside the numpy executor."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from support.programs.model_pages import PAGES, SMALL, function_of, inputs_of
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import collir
from collir.dialects.machine import mesh_of
from collir.dialects.tensor import dist_type
from collir.ir.builders import FunctionBuilder
from collir.layout import DistType, DType
from collir.semantics.reference.buffers import NUMPY, distribute
from collir.semantics.reference.collectives import Buffers
from collir.semantics.reference.double import module_in_double
from collir.semantics.reference.executor import execute
from collir.synthesis.propagation.propagate import make_explicit
from collir.tools.processes import Call, Outcome
from collir.transforms.instantiation import instantiate

SIZES: dict[str, dict[str, int]] = {
    **SMALL,
    "styles": {"batch": 8, "seq": 8, "hidden": 32, "heads": 8, "layers": 2},
    "zero": {"batch": 8, "width": 8, "layers": 2},
    "mixtral": {**SMALL["mixtral"], "batch": 4, "experts": 4},
    "resnet50": {**SMALL["resnet50"], "batch": 4},
}
"""Small sizes of each model."""

QUAD = """machine @{name} {{
  level node[2] {{ port = 8 GB/s, latency = 20 us }}
  level gpu[2] {{ port = 80 GB/s, latency = 3 us }}
}}"""
"""A machine of four devices in the place of one that has more."""

ON_QUAD: dict[str, str] = {
    "mlp": "data = node:2, model = gpu:2",
    "mixtral": "data = node:2, expert = gpu:2",
    "resnet50": "data = node:2 * gpu:2",
    "zero": "data = node:2 * gpu:2",
}
"""The meshes of models that run on four devices here."""

STYLES = (
    "data_parallel",
    "zero_1",
    "fully_sharded",
    "tensor_parallel",
    "sequence_parallel",
    "context_parallel",
    "mixed",
)

STEPS = [
    *(("styles", style) for style in STYLES),
    *(("zero", stage) for stage in ("data_parallel", "zero_1", "zero_2", "zero_3")),
    *((name, "step") for name in SIZES if name not in ("styles", "zero")),
]
"""The training step, or steps, of each model."""

ROUNDING = 2.0**-52 * 2**16
"""The most that results may differ in f64, relative to the largest element (or to 0.001)."""

Run = Callable[[ModuleOp, Sequence[Call], Path], list[Outcome]]
"""A function that runs functions of a module on ranks, with files in a folder."""


def small_page(name: str) -> ModuleOp:
    """Return a page at small sizes, some on fewer devices, with all layouts explicit."""
    path = PAGES / f"{name}.coll"
    text = path.read_text(encoding="utf-8")
    if name in ON_QUAD:
        text = re.sub(r"(?m)^machine @(\w+) = .*$", lambda m: QUAD.format(name=m[1]), text)
        text = re.sub(r"(?m)^(mesh @m on @\w+) .*$", rf"\1 {{ {ON_QUAD[name]} }}", text)
    module = collir.parse(text, str(path))
    instantiate(module, SIZES[name])
    make_explicit(module)
    return module


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
    """Return a function of a small page in f64, and its module."""
    module = module_in_double(small_page(name))
    return module, function_of(module, function_name)


def check_step(run: Run, name: str, function_name: str, folder: Path) -> None:
    """Check that the loss and the new weights and states of a step, in f64, are those of the
    executor on every rank; and so are two results, the fewest that are returned as a tuple."""
    module, function = step_in_double(name, function_name)
    f = FunctionBuilder(module, mesh_of(function).name, "pair")
    x = f.argument("x", DistType.make(DType.F64, [4]))
    pair = f.results(x, f.step("neg", x))
    calls = [(function, arguments_of(function)), (pair, arguments_of(pair))]
    for (called, arguments), (results, _) in zip(calls, run(module, calls, folder), strict=True):
        assert_same(module, called, arguments, results)


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
