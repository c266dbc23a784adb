"""Runs functions on real MPI ranks, and compares the buffers with the numpy executor's."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from support.harness.hanging import HANG
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.dialects.machine import mesh_of
from collir.dialects.tensor import dist_type
from collir.ir.buffers import plan_buffers
from collir.semantics.reference.buffers import distribute, random_tensor
from collir.semantics.reference.collectives import Array, Buffers
from collir.semantics.reference.exactness import exact, roundings
from collir.semantics.reference.executor import execute
from collir.tools.mpi_run import run

FLAGS = ("-O0",)
"""Compiler flags for thousands of small functions, which take longer to compile than to run."""


def arguments_of(function: FuncOp, seed: int = 0) -> list[Buffers]:
    """Return the buffers of all devices for the arguments of a function."""
    rng = np.random.default_rng(seed)
    mesh = mesh_of(function)
    types = [dist_type(arg) for arg in function.args]
    return [distribute(mesh, random_tensor(x, rng), x, rng) for x in types]


def results_on_ranks(
    module: ModuleOp,
    functions: Sequence[FuncOp],
    folder: Path,
    flags: Sequence[str] = FLAGS,
    seed: int = 0,
) -> list[list[Buffers]]:
    """Return the results of functions on meshes of one size, on real ranks and in one launch."""
    calls = [(function, arguments_of(function, seed)) for function in functions]
    done = run(module, calls, folder, flags, timeout=HANG)
    return [results for results, _ in done]


def differences(
    module: ModuleOp, functions: Sequence[FuncOp], folder: Path, flags: Sequence[str] = FLAGS
) -> list[str]:
    """Return the places where ranks hold other results than the numpy executor computes.

    They are written as 'function: result, rank'. If the steps of a function round, the last bits
    may differ.
    """
    wrong: list[str] = []
    on_ranks = results_on_ranks(module, functions, folder, flags)
    for function, results in zip(functions, on_ranks, strict=True):
        expected = execute(module, function, arguments_of(function))
        epsilons = 0 if exact(function) else roundings(function)
        assert len(results) == len(expected) == len(plan_buffers(function).returned)
        for index, (buffers, right) in enumerate(zip(results, expected, strict=True)):
            wrong += [
                f"{function.sym_name.data}: result {index}, rank {rank}"
                for rank, (actual, truth) in enumerate(zip(buffers, right, strict=True))
                if not same(actual, truth, epsilons)
            ]
    return wrong


def same(actual: Array | None, expected: Array | None, epsilons: int = 0) -> bool:
    """Return whether two buffers are equal, or within some epsilons of their magnitude.

    The sign of a zero does not count, as the maximum of 0 and -0 may be either.
    """
    if actual is None or expected is None:
        return actual is expected
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return False
    if np.array_equal(actual, expected):
        return True
    if not epsilons or np.issubdtype(actual.dtype, np.integer):
        return False
    x, y = actual.astype(np.float64), expected.astype(np.float64)
    epsilon = {2: 2.0**-7, 4: 2.0**-23, 8: 2.0**-52}[actual.dtype.itemsize]
    scale = max(1.0, float(np.abs(y).max(initial=0.0)))
    return np.allclose(x, y, rtol=0, atol=epsilons * epsilon * scale, equal_nan=True)
