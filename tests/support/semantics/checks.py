"""Checks of the results of a module, for property tests."""

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.dialects.machine import mesh_of
from collir.dialects.tensor import dist_type
from collir.semantics.reference.buffers import assemble, distribute, random_tensor
from collir.semantics.reference.collectives import Array, Buffers
from collir.semantics.reference.executor import execute
from collir.semantics.reference.meaning import meaning


def functions_of(module: ModuleOp) -> list[FuncOp]:
    """Return the functions of a module."""
    return [op for op in module.ops if isinstance(op, FuncOp)]


def results_on_all_devices(module: ModuleOp, function: FuncOp, seed: int) -> list[Array]:
    """Return the global tensors that a function computes on all devices, from random inputs."""
    rng = np.random.default_rng(seed)
    mesh = mesh_of(function)
    types = [dist_type(arg) for arg in function.args]
    return assembled_results(
        module, function, [distribute(mesh, random_tensor(x, rng), x, rng) for x in types]
    )


def assembled_results(module: ModuleOp, function: FuncOp, buffers: list[Buffers]) -> list[Array]:
    """Return the global tensors that a function computes on all devices, from buffers."""
    results = execute(module, function, buffers)
    last = function.body.block.last_op
    assert last is not None
    return [
        assemble(mesh_of(function), value, dist_type(operand))
        for value, operand in zip(results, last.operands, strict=True)
    ]


def results_on_one_device(function: FuncOp, seed: int) -> list[Array]:
    """Return the results of the undistributed function, from the same inputs."""
    rng = np.random.default_rng(seed)
    mesh = mesh_of(function)
    arguments: list[list[Array | None]] = []
    for arg in function.args:
        tensor = random_tensor(dist_type(arg), rng)
        distribute(mesh, tensor, dist_type(arg), rng)  # draws the same numbers
        arguments.append([tensor])
    module, alone = meaning(function)
    out: list[Array] = []
    for (value,) in execute(module, alone, arguments):
        assert value is not None
        out.append(value)
    return out


def agree(results: list[Array], expected: list[Array], devices: int) -> bool:
    """Return whether results are equal, up to the rounding of a few steps in their dtype.

    Inputs are small integers. The tolerance for results of scaling and casts is far below the
    distance of integers, except for the narrowest floats.
    """
    for actual, right in zip(results, expected, strict=True):
        if actual.dtype != right.dtype or actual.shape != right.shape:
            return False
        if np.array_equal(actual, right):
            continue
        if np.issubdtype(actual.dtype, np.integer):
            return False
        x, y = actual.astype(np.float64), right.astype(np.float64)
        scale = max(1.0, float(np.abs(y).max(initial=0.0)))
        eps = {2: 2.0**-7, 4: 2.0**-23, 8: 2.0**-52}[actual.dtype.itemsize]
        if not np.allclose(x, y, rtol=0, atol=devices * eps * scale):
            return False
    return True
