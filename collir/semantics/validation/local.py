"""Validation of programs of ranks: they run in random orders, beside the function they came
from."""

import random
from collections.abc import Sequence

import numpy as np
from xdsl.dialects.func import FuncOp

from collir.dialects.local import LocalFuncOp
from collir.dialects.machine import mesh_of, module_of
from collir.dialects.tensor import dist_type
from collir.semantics.local.executor import execute_local
from collir.semantics.local.memory import LocalError
from collir.semantics.reference.buffers import NUMPY, distribute
from collir.semantics.reference.collectives import Array, Buffers
from collir.semantics.reference.executor import execute
from collir.semantics.reference.meaning import meaning
from collir.semantics.validation.inputs import KINDS, arguments_of, tensors
from collir.semantics.validation.runs import memory_of_runs
from collir.semantics.validation.verdict import Outcome, Verdict
from collir.transforms.inlining import function_without_calls

_RUNS = 3
"""The orders in which ranks run."""

_CLOSE = 64.0
"""The most units in the last place of the largest element between sums in different orders."""


def compare_local(before: FuncOp, after: LocalFuncOp, seed: int, memory: int) -> Verdict:
    """Return the verdict on whether each rank has the same results as by a function.

    Args:
        seed: the seed of the random inputs and orders.
        memory: the bytes of buffers up to which the functions are run.
    """
    before = function_without_calls(before)
    size = memory_of_runs([before])
    if size > memory:
        text = f"not run, as that takes {size / 2**20:.0f} MiB for all devices"
        return Verdict(Outcome.UNKNOWN, "none", f"{text}; a larger `memory` lets it run")
    mesh = mesh_of(before)
    for number, kind in enumerate(KINDS[:_RUNS]):
        rng = np.random.default_rng([seed, number])
        inputs = tensors(kind, arguments_of([meaning(before)[1]]), rng)
        buffers: list[Buffers] = []
        for tensor, argument in zip(inputs, before.args, strict=True):
            x = dist_type(argument)
            buffers.append(distribute(mesh, tensor.astype(NUMPY[x.dtype]), x, rng))
        expected = execute(module_of(before), before, buffers)
        try:
            actual = execute_local(after, buffers, random.Random(seed + number))
        except LocalError as error:
            return Verdict(Outcome.DIFFERENT, "execution", str(error))
        for index, (old, new) in enumerate(zip(expected, actual, strict=True)):
            if problem := _difference(old, new):
                return Verdict(Outcome.DIFFERENT, "execution", problem, index)
    text = f"equal on {_RUNS} runs, each of all ranks in another order"
    return Verdict(Outcome.SAME, "execution", text)


def _difference(expected: Sequence[Array | None], actual: Sequence[Array | None]) -> str:
    """Return on which rank buffers differ, or an empty text."""
    for rank, (x, y) in enumerate(zip(expected, actual, strict=True)):
        if (x is None) != (y is None):
            return f"rank {rank} has {'no' if y is None else 'a'} buffer"
        if x is not None and y is not None and not _is_close(x, y):
            return f"rank {rank} has other elements"
    return ""


def _is_close(x: Array, y: Array) -> bool:
    if (x.shape, x.dtype) != (y.shape, y.dtype):
        return False
    if x.dtype.kind in "iub":
        return bool(np.array_equal(x, y))
    wide, wide_y = x.astype(np.float64), y.astype(np.float64)
    bits = 8 * x.dtype.itemsize
    unit = {64: 2.0**-52, 32: 2.0**-23}.get(bits, 2.0**-7)
    largest = np.abs(wide[np.isfinite(wide)]).max(initial=0.0)
    return bool(np.allclose(wide, wide_y, rtol=0.0, atol=_CLOSE * unit * largest, equal_nan=True))
