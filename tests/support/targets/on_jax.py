"""Runs emitted jax on CPU devices, in one process, beside the numpy executor."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from support.targets.on_ranks import arguments_of
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.dialects.tensor import dist_type
from collir.layout import DType
from collir.semantics.reference.collectives import Array
from collir.semantics.reference.exactness import exact, roundings
from collir.semantics.reference.executor import execute
from collir.tools.agreement import same
from collir.tools.jax_run import run


def differences(
    module: ModuleOp, functions: Sequence[FuncOp], folder: Path, seed: int = 0
) -> list[str]:
    """Return the places where devices hold other results than the numpy executor computes, as
    'function: result, device'."""
    calls = [(function, arguments_of(function, seed)) for function in functions]
    done = run(module, calls, folder, quick=True)
    wrong: list[str] = []
    for (function, inputs), (results, _) in zip(calls, done, strict=True):
        with np.errstate(all="ignore"):
            expected = execute(module, function, inputs)
        epsilons = 0 if exact(function) else roundings(function)
        assert len(results) == len(expected)
        last = function.body.block.last_op
        assert last is not None
        for index, (buffers, right) in enumerate(zip(results, expected, strict=True)):
            dtype = dist_type(last.operands[index]).dtype
            wrong += [
                f"{function.sym_name.data}: result {index}, device {rank}"
                for rank, (actual, truth) in enumerate(zip(buffers, right, strict=True))
                if not _same(actual, truth, epsilons, dtype)
            ]
    return wrong


def _same(actual: Array | None, truth: Array | None, epsilons: int, dtype: DType) -> bool:
    if actual is None or truth is None:
        return actual is truth
    error = epsilons * (dtype.epsilon or DType.BF16.epsilon)  # an integer may be a rounded float
    return actual.dtype == truth.dtype and same(actual, truth, error)
