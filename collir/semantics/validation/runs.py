"""Runs of two functions on the same random inputs, on the buffers of all devices.

Both functions run in float64, and then twice with other roundings (``reference.rounding``). The
changes of a result by these are the effect of rounding. A larger difference is a mistake, however
small it is beside the result. In the types of the program itself, both run once, for overflow.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from xdsl.dialects.func import FuncOp

from collir.dialects.machine import mesh_of, module_of
from collir.dialects.tensor import dist_type
from collir.layout import DistType, Mesh
from collir.semantics.reference.buffers import NUMPY, InconsistentError, assemble, distribute
from collir.semantics.reference.collectives import Array, Buffers, ExecutionError
from collir.semantics.reference.devices import holder_of
from collir.semantics.reference.double import in_widest
from collir.semantics.reference.executor import Change, execute, memory_needed
from collir.semantics.reference.meaning import meaning
from collir.semantics.reference.rounding import Rounding, factors_of
from collir.semantics.validation.inputs import KINDS, MODERATE, InputDraw, arguments_of, tensors
from collir.semantics.validation.response import EqualRun, Response

_ENOUGH = 2**22
"""The number of elements, of all values in all runs, above which only two runs are made."""

_WIDE = 8
"""Bytes of an element in a run."""

_MARGIN = 16.0
"""The largest effect of rounding, in multiples of the distance of two runs with other roundings."""

_LEAST = 2.0**-48
"""The relative difference that is rounding in any case, as of the parts of a partial result."""


@dataclass(frozen=True)
class ComparedRuns:
    """The outcome of running two functions.

    Attributes:
        problem: the difference between the functions in words, or empty.
        result: the number of the result that differs.
        runs: the number of runs that gave equal results.
        response: which operations of the later function the results responded to.
    """

    problem: str = ""
    result: int | None = None
    runs: int = 0
    response: Response = field(default_factory=Response)


def memory_of_runs(functions: Sequence[FuncOp]) -> int:
    """Return an upper bound of the bytes needed to run functions one after the other."""
    return max(memory_needed(function, _WIDE) for function in functions)


def run_both(before: FuncOp, after: FuncOp, types: Sequence[DistType], seed: int) -> ComparedRuns:
    """Run two functions of one mesh and signature, and compare their results on all devices.

    Partial results are reduced first, and all copies of a block must agree.

    Args:
        types: the types of the results.
    """
    mesh, functions = mesh_of(before), [in_widest(before), in_widest(after)]
    arguments = arguments_of([meaning(function)[1] for function in (before, after)])
    elements = sum(memory_needed(function, _WIDE) for function in functions) // _WIDE
    runs = min(len(KINDS), max(2, _ENOUGH // (elements + 1)))
    first_factors, second_factors = map(factors_of, functions)
    trials: list[EqualRun] = []
    for number, kind in enumerate(KINDS[:runs]):
        rng = np.random.default_rng([seed, number])
        inputs = tensors(kind, arguments, rng)
        buffers = [
            distribute(mesh, tensor, dist_type(x), rng)
            for tensor, x in zip(inputs, before.args, strict=True)
        ]
        changes = [
            None,
            *(Rounding(d, seed + number, first_factors ^ second_factors) for d in (1, -1)),
        ]
        compared = _compared(functions, types, buffers, changes, kind)
        if isinstance(compared, ComparedRuns):
            return compared
        trials.append(EqualRun(inputs, compared))
        if kind is InputDraw.UNIT and (overflow := _overflow((before, after), types, inputs, seed)):
            return overflow
    return ComparedRuns(runs=runs, response=Response.of(functions[1], trials))


def _compared(
    functions: Sequence[FuncOp],
    types: Sequence[DistType],
    inputs: Sequence[Buffers],
    changes: Sequence[Change | None],
    kind: InputDraw,
) -> ComparedRuns | list[Array]:
    """Return the difference of two functions on some inputs; or if there is none, how far rounding
    may move the elements of each result."""
    mesh = mesh_of(functions[0])
    sides: list[list[list[Array]]] = []
    for function, when in zip(functions, ("before, ", ""), strict=True):
        sides.append([])
        for change in changes:
            results = _results(mesh, function, types, inputs, change)
            if isinstance(results, ComparedRuns):
                return ComparedRuns(when + results.problem, results.result)
            sides[-1].append(results)
    tolerances: list[Array] = []
    for index, x in enumerate(types):
        runs = [[_numbers(run[index]) for run in side] for side in sides]
        (expected, *_), (actual, *_) = runs
        tolerances.append(_tolerance(runs))
        with np.errstate(invalid="ignore"):
            differs = np.abs(actual - expected) > tolerances[-1]
        if kind in MODERATE:
            steady = np.all([np.isfinite(run) for run in runs[0]], axis=0)
            differs |= steady & ~np.any([np.isfinite(run) for run in runs[1]], axis=0)
        for place in np.argwhere(differs)[:1]:
            at = tuple(int(i) for i in place)
            text = _difference(mesh, x, at, float(actual[at]), float(expected[at]))
            return ComparedRuns(text, index)
    return tolerances


def _overflow(
    functions: Sequence[FuncOp], types: Sequence[DistType], inputs: Sequence[Array], seed: int
) -> ComparedRuns | None:
    """Run functions in their own types, and return an element that is finite in the first only."""
    mesh, sides = mesh_of(functions[0]), list[list[Array]]()
    for function in functions:
        rng, arguments = np.random.default_rng(seed), list[Buffers]()
        for tensor, arg in zip(inputs, function.args, strict=True):
            x = dist_type(arg)
            arguments.append(distribute(mesh, tensor.astype(NUMPY[x.dtype]), x, rng))
        results = _results(mesh, function, types, arguments, None)
        if isinstance(results, ComparedRuns):
            return results
        sides.append([_numbers(x) for x in results])
    for index, (x, expected, actual) in enumerate(zip(types, *sides, strict=True)):
        for place in np.argwhere(np.isfinite(expected) & ~np.isfinite(actual))[:1]:
            at = tuple(int(i) for i in place)
            text = _difference(mesh, x, at, float(actual[at]), float(expected[at]))
            return ComparedRuns(f"in its own types, {text}", index)
    return None


def _tolerance(runs: Sequence[Sequence[Array]]) -> Array:
    """Return how far rounding may move each element: any distance where one is no number."""
    with np.errstate(invalid="ignore", over="ignore"):
        moved = [np.abs(run - side[0]) for side in runs for run in side[1:]]
        tolerance = _MARGIN * np.max(moved, axis=0) + _LEAST * np.abs(runs[0][0])
    return np.where(np.isfinite(tolerance) & np.isfinite(runs[1][0]), tolerance, np.inf)


def _numbers(x: Array) -> Array:
    return x.astype(np.float64)


def _results(
    mesh: Mesh,
    function: FuncOp,
    types: Sequence[DistType],
    inputs: Sequence[Buffers],
    change: Change | None,
) -> list[Array] | ComparedRuns:
    """Return the tensors that the results of a function stand for, or why there are none."""
    try:
        results = execute(module_of(function), function, inputs, change)
    except (ExecutionError, ValueError, IndexError) as error:  # numpy's, of shapes that do not fit
        return ComparedRuns(f"a step cannot be carried out: {error}")
    assembled: list[Array] = []
    for index, (x, buffers) in enumerate(zip(types, results, strict=True)):
        try:
            assembled.append(assemble(mesh, buffers, x))
        except InconsistentError as error:
            return ComparedRuns(str(error), index)
    return assembled


def _difference(mesh: Mesh, x: DistType, at: tuple[int, ...], actual: float, due: float) -> str:
    """Describe an element that differs."""
    where = [
        f"{axis}={coordinate}"
        for dim, i in zip(x.dims, at, strict=True)
        for axis, coordinate in holder_of(mesh, dim, i)
    ]
    on = f" on {', '.join(where)}" if where else ""
    return f"element {list(at)}{on} is {' where it should be '.join(_apart(actual, due))}"


def _apart(*numbers: float) -> Iterator[str]:
    """Yield numbers with as many digits as tell them apart."""
    digits = next((n for n in range(6, 18) if len({f"{x:.{n}g}" for x in numbers}) > 1), 17)
    for x in numbers:
        yield f"{x:.{digits}g}"
