"""Runs of two functions on the same random inputs, on the buffers of all devices.

The steps are executed on intervals that contain all roundings (``reference.intervals``), so that
rounding alone never makes a difference.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from collir.dialects.machine import mesh_of, module_of
from collir.dialects.nested import NestedOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.layout import DistType, DType, Mesh, Reduction
from collir.semantics.reference.buffers import (
    InconsistentError,
    assemble,
    block_slices,
    distribute,
    random_tensor,
)
from collir.semantics.reference.collectives import Array, Buffers, ExecutionError
from collir.semantics.reference.devices import coordinate, holder_of
from collir.semantics.reference.executor import execute, memory_needed
from collir.semantics.reference.intervals import Intervals

RUNS = 8
"""The most runs of a pair of functions, each on different inputs."""

_ENOUGH = 2**22
"""The number of elements, of all values in all runs, above which only two runs are made."""

_ENDS = 16
"""Bytes of an interval."""

_MOST_MAGNITUDES = 64
"""The most magnitudes of the inputs of an argument."""


@dataclass(frozen=True)
class ComparedRuns:
    """The outcome of running two functions.

    Attributes:
        problem: the difference between the functions in words, or empty.
        result: the number of the result that differs.
        runs: the number of runs that gave equal results.
    """

    problem: str = ""
    result: int | None = None
    runs: int = 0


def memory_of_runs(functions: Sequence[FuncOp]) -> int:
    """Return an upper bound of the bytes needed to run functions one after the other."""
    return max(memory_needed(function, _ENDS) for function in functions)


def run_both(before: FuncOp, after: FuncOp, types: Sequence[DistType], seed: int) -> ComparedRuns:
    """Run two functions of one mesh and signature, and compare their results on all devices.

    The inputs of the first run are small integers. The inputs of the other runs have fractions,
    have magnitudes at which the constants of the functions matter, or are the largest integers of
    their type. Partial results are reduced first, and all copies of a block must agree.

    Args:
        types: the types of the results.
    """
    mesh, functions = mesh_of(before), (before, after)
    arguments = [dist_type(arg) for arg in before.args]
    magnitudes_of_arguments = _magnitudes(functions)
    elements = sum(memory_needed(function, _ENDS) for function in functions) // _ENDS
    runs = min(RUNS, max(2, _ENOUGH // (elements + 1)))
    for number in range(runs):
        rng = np.random.default_rng([seed, number])
        inputs = [
            _input(mesh, x, magnitudes if number else [], rng)
            for x, magnitudes in zip(arguments, magnitudes_of_arguments, strict=True)
        ]
        compared = _run_on(inputs, functions, types)
        if compared.problem:
            return compared
    return ComparedRuns(runs=runs)


# --- inputs -------------------------------------------------------------------------------------


def _input(
    mesh: Mesh, x: DistType, magnitudes: Sequence[float], rng: np.random.Generator
) -> Buffers:
    """Return random buffers of a type as intervals: small integers, times magnitudes if given."""
    tensor = random_tensor(x, rng)
    if x.dtype is DType.BOOL:
        magnitudes = []
    if magnitudes and x.reduction is not Reduction.PROD:
        tensor = rng.integers(-50, 51, x.shape).astype(tensor.dtype)
    parts = distribute(mesh, tensor, x, rng)
    if magnitudes:
        scale = rng.choice(np.asarray(magnitudes), x.shape) * 2.0 ** rng.integers(-6, 3, x.shape)
        scale = scale * rng.choice([1.0, 1 - 2.0**-7, 1 + 2.0**-7], x.shape)
        edges = rng.choice([0, -1, 1], x.shape, p=[0.8, 0.1, 0.1])
        parts = [
            None if part is None else _scaled(mesh, x, rank, part, scale, edges)
            for rank, part in enumerate(parts)
        ]
    return [None if part is None else cast(Array, Intervals.of(part)) for part in parts]


def _scaled(mesh: Mesh, x: DistType, rank: int, part: Array, scale: Array, edges: Array) -> Array:
    """Return the buffer of a rank times its block of ``scale``.

    Integers are the ends of their type where ``edges`` is not 0. Of the factors of a partial
    product only the first is scaled.
    """
    block = block_slices(mesh, rank, x)
    if x.reduction is Reduction.PROD and any(coordinate(mesh, rank, a) for a in x.partial):
        return part
    wide = part.astype(np.float64) * scale[block]
    if x.dtype.is_float:
        with np.errstate(all="ignore"):
            scaled = wide.astype(part.dtype)
        return np.where(np.isfinite(scaled.astype(np.float64)), scaled, part)
    info = np.iinfo(part.dtype)
    scaled = np.clip(np.rint(wide), max(info.min, -(2**53)), min(info.max, 2**53))
    scaled = scaled.astype(part.dtype)
    return np.where(edges[block] < 0, info.min, np.where(edges[block] > 0, info.max, scaled))


def _magnitudes(functions: Sequence[FuncOp]) -> list[list[float]]:
    """Return magnitudes of each argument at which some step sees a value near a constant or 1."""
    magnitudes: list[set[float]] = [{1.0} for _ in functions[0].args]
    for function in functions:
        # The factors that an argument was scaled by on the way to a value: (argument, factor).
        factors: dict[SSAValue, frozenset[tuple[int, float]]] = {
            arg: frozenset([(number, 1.0)]) for number, arg in enumerate(function.args)
        }
        constants = {1.0}
        for op in function.body.ops:
            if isinstance(op, NestedOp):  # as if it did not scale
                of_results = frozenset[tuple[int, float]]().union(
                    *(factors[x] for x in op.operands)
                )
                factors |= dict.fromkeys(op.results, of_results)
            elif isinstance(op, DistOp):
                times = _FACTORS.get(op.mnemonic, lambda _: 1.0)(op)
                constants |= {c for c in _CONSTANTS.get(op.mnemonic, _no_constants)(op) if c}
                of_result = {
                    (number, float(f"{factor * times:.3g}"))
                    for operand in op.operands
                    for number, factor in factors[operand]
                }
                factors[op.result] = frozenset(sorted(of_result)[:_MOST_MAGNITUDES])
        for number, factor in frozenset[tuple[int, float]]().union(*factors.values()):
            magnitudes[number] |= {value / factor for value in constants if factor}
    return [sorted(values)[:_MOST_MAGNITUDES] for values in magnitudes]


def _no_constants(op: DistOp) -> Iterator[float]:
    yield from ()


_FACTORS: dict[str, Callable[[DistOp], float]] = {"scale": lambda op: abs(op.number("factor"))}
"""The factor by which a step multiplies every element, by the name of the step."""

_CONSTANTS: dict[str, Callable[[DistOp], Iterator[float]]] = {
    "pad": lambda op: filter(np.isfinite, [abs(op.number("value"))])
}
"""The constants that a step puts beside elements, by the name of the step."""


# --- results ------------------------------------------------------------------------------------


def _run_on(
    inputs: list[Buffers], functions: Sequence[FuncOp], types: Sequence[DistType]
) -> ComparedRuns:
    """Run both functions on the same inputs, and compare their results."""
    mesh = mesh_of(functions[0])
    sides = [_results(function, inputs) for function in functions]
    for side, when in zip(sides, ("before, ", ""), strict=True):
        if isinstance(side, str):
            return ComparedRuns(f"{when}{side}")
    for index, (x, *pair) in enumerate(zip(types, *sides, strict=True)):
        tensors: list[Intervals] = []
        for side, when in zip(pair, ("before, ", ""), strict=True):
            try:
                tensors.append(cast(Intervals, assemble(mesh, side, x)))
            except InconsistentError as error:
                return ComparedRuns(f"{when}{error}", index)
        if problem := _first_difference(mesh, x, *tensors):
            return ComparedRuns(problem, index)
    return ComparedRuns()


def _results(function: FuncOp, inputs: list[Buffers]) -> list[Buffers] | str:
    try:
        return execute(module_of(function), function, inputs, _as_intervals)
    except (ExecutionError, ValueError, IndexError) as error:  # numpy's, of shapes that do not fit
        return f"a step cannot be carried out: {error}"


def _as_intervals(array: Array) -> Array:
    return cast(Array, Intervals.of(array))


def _first_difference(mesh: Mesh, x: DistType, expected: Intervals, actual: Intervals) -> str:
    """Describe the first element whose intervals have nothing in common; empty if there is none."""
    places = np.argwhere((actual.high < expected.low) | (actual.low > expected.high))
    if not len(places):
        return ""
    place = tuple(int(i) for i in places[0])
    where = [
        f"{axis}={coordinate}"
        for dim, i in zip(x.dims, place, strict=True)
        for axis, coordinate in holder_of(mesh, dim, i)
    ]
    on = f" on {', '.join(where)}" if where else ""
    numbers = _number(actual[place]), _number(expected[place])
    return f"element {list(place)}{on} is {numbers[0]} where it should be {numbers[1]}"


def _number(interval: Intervals) -> str:
    """Return an interval in words: a single number, unless its ends are far apart."""
    low, high = float(interval.low), float(interval.high)
    if f"{low:.3g}" == f"{high:.3g}":
        return f"{(low + high) / 2:g}"
    if np.isinf([low, high]).any():
        return f"at least {low:g}" if np.isinf(high) else f"at most {high:g}"
    return f"{low:g} to {high:g}"
