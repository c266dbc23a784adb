"""Runs two functions on the same random inputs, on the buffers of every device.

The steps are carried out on intervals (intervals.py): a difference is one that no rounding makes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.layout import DistType, Mesh, Reduction
from collir.semantics.reference.buffers import (
    InconsistentError,
    assemble,
    block_slices,
    distribute,
    random_tensor,
)
from collir.semantics.reference.collectives import Array, Buffers, ExecutionError
from collir.semantics.reference.devices import coordinate
from collir.semantics.reference.executor import execute, memory_needed
from collir.semantics.reference.intervals import Intervals

RUNS = 8
"""The most runs of a pair of functions, each on other inputs."""

_ENOUGH = 2**22
"""Elements of all values of both functions and all runs, beyond which two runs have to do."""

_ENDS = 16
"""Bytes of an interval."""

_MOST_SIZES = 64
"""The most sizes of the inputs of one argument."""


@dataclass(frozen=True)
class Trial:
    """The outcome of some runs.

    Attributes:
        problem: how the functions differ; empty where they do not.
        result: the number of the result that differs.
        runs: the number of runs that gave equal results.
    """

    problem: str = ""
    result: int | None = None
    runs: int = 0


Placed = tuple[ModuleOp, FuncOp]
"""A function and the module it is in."""


def memory_of_runs(functions: Sequence[FuncOp]) -> int:
    """An upper bound of the bytes that running functions one after the other takes."""
    return max(memory_needed(function, _ENDS) for function in functions)


def run_both(before: Placed, after: Placed, types: Sequence[DistType], seed: int) -> Trial:
    """Compare the results of two functions of one mesh and signature on all devices.

    The inputs of the first run are small integers. Those of the others have fractions, are of a
    size at which the constants of the functions matter, or are the largest integers of their type.
    Results that are partial are reduced first, and all copies of a block must agree.

    Args:
        types: of the results.
    """
    mesh = mesh_of(before[1])
    functions = (before[1], after[1])
    arguments = [dist_type(arg) for arg in before[1].args]
    sizes = _sizes(functions)
    elements = sum(memory_needed(function, _ENDS) for function in functions) // _ENDS
    runs = min(RUNS, max(2, _ENOUGH // (elements + 1)))
    for number in range(runs):
        rng = np.random.default_rng([seed, number])
        inputs = [
            _input(mesh, x, of_argument if number else [], rng)
            for x, of_argument in zip(arguments, sizes, strict=True)
        ]
        trial = _run_on(inputs, before, after, types)
        if trial.problem:
            return trial
    return Trial(runs=runs)


# --- inputs -------------------------------------------------------------------------------------


def _input(mesh: Mesh, x: DistType, sizes: Sequence[float], rng: np.random.Generator) -> Buffers:
    """Random buffers of a type as intervals: small integers, times sizes where these are given."""
    tensor = random_tensor(x, rng)
    if sizes and x.reduction is not Reduction.PROD:
        tensor = rng.integers(-50, 51, x.shape).astype(tensor.dtype)
    parts = distribute(mesh, tensor, x, rng)
    if sizes:
        scale = rng.choice(np.asarray(sizes), x.shape) * 2.0 ** rng.integers(-6, 3, x.shape)
        scale = scale * rng.choice([1.0, 1 - 2.0**-7, 1 + 2.0**-7], x.shape)
        edges = rng.choice([0, -1, 1], x.shape, p=[0.8, 0.1, 0.1])
        parts = [
            None if part is None else _scaled(mesh, x, rank, part, scale, edges)
            for rank, part in enumerate(parts)
        ]
    return [None if part is None else cast(Array, Intervals.of(part)) for part in parts]


def _scaled(mesh: Mesh, x: DistType, rank: int, part: Array, scale: Array, edges: Array) -> Array:
    """The buffer of a rank times the block of ``scale`` there; of integers, the ends of their type
    where ``edges`` says so. Of the factors of a product only the first is scaled."""
    block = block_slices(mesh, rank, x)
    if x.reduction is Reduction.PROD and any(coordinate(mesh, rank, a) for a in x.partial):
        return part
    wide = part.astype(np.float64) * scale[block]
    if x.dtype.is_float:
        with np.errstate(all="ignore"):
            found = wide.astype(part.dtype)
        return np.where(np.isfinite(found.astype(np.float64)), found, part)
    info = np.iinfo(part.dtype)
    found = np.clip(np.rint(wide), max(info.min, -(2**53)), min(info.max, 2**53))
    found = found.astype(part.dtype)
    return np.where(edges[block] < 0, info.min, np.where(edges[block] > 0, info.max, found))


def _sizes(functions: Sequence[FuncOp]) -> list[list[float]]:
    """For each argument, sizes at which a step of the functions has it near a constant or 1."""
    found: list[set[float]] = [{1.0} for _ in functions[0].args]
    for function in functions:
        factors: dict[SSAValue, frozenset[tuple[int, float]]] = {
            arg: frozenset([(number, 1.0)]) for number, arg in enumerate(function.args)
        }
        levels = {1.0}
        for op in function.body.ops:
            if isinstance(op, DistOp):
                times = _FACTORS.get(op.mnemonic, lambda _: 1.0)(op)
                levels |= {level for level in _LEVELS.get(op.mnemonic, _no_levels)(op) if level}
                of_result = {
                    (number, float(f"{factor * times:.3g}"))
                    for operand in op.operands
                    for number, factor in factors[operand]
                }
                factors[op.result] = frozenset(sorted(of_result)[:_MOST_SIZES])
        for number, factor in frozenset[tuple[int, float]]().union(*factors.values()):
            found[number] |= {level / factor for level in levels if factor}
    return [sorted(sizes)[:_MOST_SIZES] for sizes in found]


def _no_levels(op: DistOp) -> Iterator[float]:
    yield from ()


_FACTORS: dict[str, Callable[[DistOp], float]] = {"scale": lambda op: abs(op.number("factor"))}
"""What a step multiplies every element by, by its name."""

_LEVELS: dict[str, Callable[[DistOp], Iterator[float]]] = {
    "pad": lambda op: iter([abs(op.number("value"))])
}
"""The constants that a step puts beside elements, by its name."""


# --- results ------------------------------------------------------------------------------------


def _run_on(
    inputs: list[Buffers], before: Placed, after: Placed, types: Sequence[DistType]
) -> Trial:
    """Compare the results on some inputs."""
    mesh = mesh_of(before[1])
    sides = [_results(module, function, inputs) for module, function in (before, after)]
    for side, when in zip(sides, ("before, ", ""), strict=True):
        if isinstance(side, str):
            return Trial(f"{when}{side}")
    for index, (x, *pair) in enumerate(zip(types, *sides, strict=True)):
        both: list[Intervals] = []
        for side, when in zip(pair, ("before, ", ""), strict=True):
            try:
                both.append(cast(Intervals, assemble(mesh, side, x)))
            except InconsistentError as error:
                return Trial(f"{when}{error}", index)
        if problem := _first_difference(mesh, x, *both):
            return Trial(problem, index)
    return Trial()


def _results(module: ModuleOp, function: FuncOp, inputs: list[Buffers]) -> list[Buffers] | str:
    try:
        return execute(module, function, inputs)
    except (ExecutionError, ValueError, IndexError) as error:  # numpy's, of shapes that do not fit
        return f"a step cannot be carried out: {error}"


def _first_difference(mesh: Mesh, x: DistType, one: Intervals, other: Intervals) -> str:
    """The first element whose intervals have nothing in common."""
    places = np.argwhere((other.high < one.low) | (other.low > one.high))
    if not len(places):
        return ""
    place = tuple(int(i) for i in places[0])
    where = [
        f"{axis}={coordinate}"
        for dim, size, i in zip(x.dims, x.local_shape(mesh), place, strict=True)
        for axis, coordinate in _digits(mesh, dim.axes, i // size)
    ]
    on = f" on {', '.join(where)}" if where else ""
    found, wanted = other[place], one[place]
    return f"element {list(place)}{on} is {_number(found)} where it should be {_number(wanted)}"


def _number(interval: Intervals) -> str:
    """An interval in words: a number, unless its ends are far apart."""
    low, high = float(interval.low), float(interval.high)
    if f"{low:.3g}" == f"{high:.3g}":
        return f"{(low + high) / 2:g}"
    if np.isinf([low, high]).any():
        return f"at least {low:g}" if np.isinf(high) else f"at most {high:g}"
    return f"{low:g} to {high:g}"


def _digits(mesh: Mesh, axes: Sequence[str], number: int) -> list[tuple[str, int]]:
    """Where the device of a number stands on sub-axes."""
    found: list[tuple[str, int]] = []
    for axis in reversed(axes):
        number, digit = divmod(number, mesh.by_name[axis].size)
        found.append((axis, digit))
    return found[::-1]
