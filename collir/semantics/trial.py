"""Runs two functions on the same random inputs, on the buffers of every device."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.dialects.machine import mesh_of
from collir.dialects.tensor import dist_type
from collir.layout import DistType, DType, Mesh, Reduction
from collir.semantics.buffers import (
    InconsistentError,
    assemble,
    distribute,
    equal,
    random_tensor,
)
from collir.semantics.collectives import Array, Buffers, ExecutionError
from collir.semantics.exactness import exact, roundings
from collir.semantics.executor import execute, memory_needed


@dataclass(frozen=True)
class Trial:
    """What came out: ``problem`` is empty where all results are equal; ``rounded`` where that is up
    to rounding."""

    problem: str = ""
    result: int | None = None
    rounded: bool = False


def needed(functions: Sequence[FuncOp]) -> int:
    """An upper bound of the bytes that running functions one after the other takes."""
    return max(memory_needed(function) for function in functions)


Placed = tuple[ModuleOp, FuncOp]
"""A function and the module it is in."""


def tried(before: Placed, after: Placed, types: Sequence[DistType], seed: int) -> Trial:
    """Compares the results of two functions of one mesh and signature on all devices.

    Inputs are small integers. Where no step of either function rounds them, results are compared
    bit by bit, and so are those of quarters of these inputs, which casts to integers cut off.
    Results that are partial are reduced first, and all copies of a block must agree.

    Args:
        types: of the results.
    """
    rng = np.random.default_rng(seed)
    mesh = mesh_of(before[1])
    arguments = [dist_type(arg) for arg in before[1].args]
    inputs = [distribute(mesh, random_tensor(x, rng), x, rng) for x in arguments]
    functions = (before[1], after[1])
    allowed = 0 if all(map(exact, functions)) else sum(map(roundings, functions))
    done = _tried_on(inputs, before, after, types, allowed)
    if done.problem or allowed:
        return done
    quarters = [_quarters(x, xs) for x, xs in zip(arguments, inputs, strict=True)]
    return _tried_on(quarters, before, after, types, allowed)


def _quarters(x: DistType, xs: Buffers) -> Buffers:
    """Buffers that stand for a quarter of a tensor; themselves, where that has none."""
    if not x.dtype.is_float or x.reduction is Reduction.PROD:
        return xs
    return [None if part is None else part * part.dtype.type(0.25) for part in xs]


def _tried_on(
    inputs: list[Buffers], before: Placed, after: Placed, types: Sequence[DistType], allowed: int
) -> Trial:
    """The same on some inputs; ``allowed`` roundings are no difference."""
    mesh = mesh_of(before[1])
    sides = [_results(module, function, inputs) for module, function in (before, after)]
    for side, when in zip(sides, ("before, ", ""), strict=True):
        if isinstance(side, str):
            return Trial(f"{when}{side}")
    rounded = False
    for index, (x, *pair) in enumerate(zip(types, *sides, strict=True)):
        both: list[Array] = []
        for side, when in zip(pair, ("before, ", ""), strict=True):
            try:
                both.append(assemble(mesh, side, x))
            except InconsistentError as error:
                return Trial(f"{when}{error}", index)
        one, other = both
        if equal(one, other):
            continue
        if problem := _first_difference(mesh, x, one, other, allowed):
            return Trial(problem, index)
        rounded = True
    return Trial("", None, rounded)


def _results(module: ModuleOp, function: FuncOp, inputs: list[Buffers]) -> list[Buffers] | str:
    try:
        return execute(module, function, inputs)
    except (ExecutionError, ValueError, IndexError) as error:  # numpy's, of shapes that do not fit
        return f"a step cannot be carried out: {error}"


def _first_difference(mesh: Mesh, x: DistType, one: Array, other: Array, roundings: int) -> str:
    """The first element that differs by more than some roundings of the largest."""
    wide, found = one.astype(np.float64), other.astype(np.float64)
    epsilon = x.dtype.epsilon or (DType.BF16.epsilon if roundings else 0.0)
    scale = max(1.0, float(np.abs(wide[np.isfinite(wide)]).max(initial=0.0)))
    limit = roundings * epsilon * scale
    with np.errstate(all="ignore"):
        wrong = ~np.isclose(found, wide, rtol=0, atol=limit, equal_nan=True)
    places = np.argwhere(wrong)
    if not len(places):
        return ""
    place = tuple(int(i) for i in places[0])
    where = [
        f"{axis}={coordinate}"
        for dim, size, i in zip(x.dims, x.local_shape(mesh), place, strict=True)
        for axis, coordinate in _digits(mesh, dim.axes, i // size)
    ]
    on = f" on {', '.join(where)}" if where else ""
    return f"element {list(place)}{on} is {found[place]:g} where it should be {wide[place]:g}"


def _digits(mesh: Mesh, axes: Sequence[str], number: int) -> list[tuple[str, int]]:
    """Where the device of a number stands on sub-axes."""
    found: list[tuple[str, int]] = []
    for axis in reversed(axes):
        number, digit = divmod(number, mesh.by_name[axis].size)
        found.append((axis, digit))
    return found[::-1]
