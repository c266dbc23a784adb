"""Programs of ranks beside the functions that they are lowered from."""

import random

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.dialects.local import LocalFuncOp, local_functions
from collir.dialects.machine import mesh_of
from collir.dialects.tensor import dist_type
from collir.localize.localize import localize
from collir.localize.writer import ANY_GROUPS, GroupRules
from collir.semantics.local.executor import execute_local
from collir.semantics.reference.buffers import distribute, random_tensor
from collir.semantics.reference.collectives import Buffers
from collir.semantics.reference.executor import execute


def lowered(module: ModuleOp, rules: GroupRules = ANY_GROUPS) -> dict[str, LocalFuncOp]:
    """Return the local functions of a module by name."""
    copy = module.clone()
    localize(copy, rules)
    copy.verify()
    return {function.sym_name.data: function for function in local_functions(copy)}


def inputs(function: FuncOp, seed: int) -> list[Buffers]:
    """Return random buffers for the arguments of a function."""
    rng, mesh = np.random.default_rng(seed), mesh_of(function)
    types = map(dist_type, function.args)
    return [distribute(mesh, random_tensor(x, rng), x, rng) for x in types]


def assert_same(got: list[Buffers], expected: list[Buffers]) -> None:
    for ours, theirs in zip(got, expected, strict=True):
        for x, y in zip(ours, theirs, strict=True):
            assert (x is None) == (y is None)
            if x is not None and y is not None:
                assert (x.shape, x.dtype) == (y.shape, y.dtype)
                close = 64 * np.finfo(x.dtype).eps if x.dtype.kind == "f" else 0
                np.testing.assert_allclose(x, y, rtol=close, atol=close * np.abs(y).max(initial=0))


def assert_runs(
    program: LocalFuncOp, module: ModuleOp, function: FuncOp, rng: random.Random
) -> None:
    """Check that a program of ranks computes what a function does, in its own memory."""
    arguments = inputs(function, rng.randrange(1000))
    assert_same(execute_local(program, arguments, rng), execute(module, function, arguments))
