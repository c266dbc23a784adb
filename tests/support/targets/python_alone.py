"""Runs emitted numpy of functions that send nothing, rank by rank in this process."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from support.targets.on_ranks import arguments_of, same
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import collir
from collir.dialects.machine import mesh_of
from collir.semantics.reference.collectives import Array
from collir.semantics.reference.exactness import exact, roundings
from collir.semantics.reference.executor import execute
from collir.targets.code.python_text import class_name


class _Comm(SimpleNamespace):
    """The communicator of a rank that is never used."""

    def Split(self, color: int, key: int) -> "_Comm":
        return self

    def Dup(self) -> "_Comm":
        return self


def differences(module: ModuleOp, functions: Sequence[FuncOp], seed: int = 0) -> list[str]:
    """Return the places where ranks compute other results than the numpy executor, as 'function:
    result, rank'; also where a result is out of order in memory, or an argument is changed."""
    space: dict[str, Any] = {}
    exec(compile(collir.emit(module, "mpi4py"), "emitted.py", "exec"), space)
    wrong: list[str] = []
    for function in functions:
        mesh, name = mesh_of(function), function.sym_name.data
        arguments = arguments_of(function, seed)
        with np.errstate(all="ignore"):
            expected = execute(module, function, arguments)
            by_rank = [
                _called(space[class_name(mesh.name)], mesh.devices, rank, name, arguments)
                for rank in range(mesh.devices)
            ]
        epsilons = 0 if exact(function) else roundings(function)
        wrong += [
            f"{name}: result {index}, rank {rank}"
            for index, right in enumerate(expected)
            for rank, truth in enumerate(right)
            if not _equal(by_rank[rank][index], truth, epsilons)
        ]
    return wrong


def _called(
    mesh: Any, devices: int, rank: int, name: str, arguments: Sequence[Sequence[Array | None]]
) -> list[Array | None]:
    """Return the results of a method on a rank."""
    own = [None if x[rank] is None else np.array(x[rank]) for x in arguments]
    before = [None if x is None else x.copy() for x in own]
    made: Any = getattr(mesh(_Comm(size=devices, rank=rank)), name)(*own)
    results: list[Array | None] = list(made if isinstance(made, tuple) else [made])  # pyright: ignore[reportUnknownArgumentType]
    for x, old in zip(own, before, strict=True):
        assert x is None or old is None or x.tobytes() == old.tobytes(), f"{name} changes it"
        assert x is None or not any(np.shares_memory(x, y) for y in results if y is not None)
    for y in results:
        assert y is None or (y.flags.c_contiguous and y.flags.writeable), f"{name}: order"
    return results


def _equal(actual: Array | None, expected: Array | None, epsilons: int) -> bool:
    """Return whether two arrays are equal up to rounding, with infinities in the same places."""
    if actual is None or expected is None:
        return actual is expected
    if actual.dtype.kind == "f" or "bfloat16" in str(actual.dtype):
        x, y = actual.astype(np.float64), expected.astype(np.float64)
        if x.shape != y.shape or not np.array_equal(np.isfinite(x), np.isfinite(y)):
            return False
        outside = ~np.isfinite(y)
        if not np.array_equal(x[outside], y[outside], equal_nan=True):
            return False
        actual, expected = np.array(actual), np.array(expected)
        actual[outside] = expected[outside] = 0
    return same(actual, expected, epsilons)
