"""Comparisons of the results of a function with the expected ones, exact or up to rounding."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.dialects.machine import mesh_of
from collir.dialects.tensor import dist_type
from collir.ir.buffers import plan_buffers
from collir.ir.functions import functions_of
from collir.ir.selection import copy_with_functions
from collir.semantics.reference.buffers import NUMPY, assemble, distribute
from collir.semantics.reference.collectives import Array, Buffers
from collir.semantics.reference.double import in_double, module_in_double
from collir.semantics.reference.executor import execute, memory_needed
from collir.semantics.reference.meaning import meaning
from collir.tools.agreement import DOUBLE_ROUNDINGS, RunDifference, differences, perturbed
from collir.tools.memory import check_available

_PARTS = (1, 2)
"""The seed of the parts of sums in f64, which ``--seed`` does not give: made of the same random
numbers as a tensor, the first part would be the tensor itself, and the others 0."""


@dataclass
class Case:
    """A function with its inputs, and the results of the numpy engine.

    Attributes:
        without_calls: the function with its calls inlined.
        tolerance: the number of roundings that are allowed for each result; 0 for one that no step
            rounds.
        not_finite: what there is in its results other than finite numbers: ``NaN`` or ``inf``.
    """

    function: FuncOp
    without_calls: FuncOp
    tensors: list[Array]
    arguments: list[Buffers]
    tolerance: list[int]
    results: list[Buffers]
    seconds: float
    not_finite: str = ""

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.function.sym_name.data

    @property
    def rounds(self) -> bool:
        """True if a result is rounded."""
        return any(self.tolerance)

    def verdict(self, equal: str = "") -> str:
        """Return the words for results that are right; ``equal`` says what was compared."""
        rounding = " up to rounding" if self.rounds else ""
        if self.not_finite:
            return f"{equal or 'equal'}{rounding}, but with {self.not_finite}"
        return f"ok, {equal}{rounding}" if equal else f"ok{rounding}"


def distributed(
    function: FuncOp, tensors: Sequence[Array], rng: np.random.Generator
) -> list[Buffers]:
    """Return the buffers of all devices for the arguments of a function."""
    return [
        distribute(mesh_of(function), tensor, dist_type(arg), rng)
        for tensor, arg in zip(tensors, function.args, strict=True)
    ]


def wrong_meaning(case: Case) -> list[RunDifference]:
    """Return the results of the numpy engine that differ from the function's on one device.

    Raises:
        DiagnosticError: it rounds, and its buffers in f64 do not fit the memory of this computer.
    """
    if case.rounds:
        module, function = in_double(case.without_calls)
        check_available(memory_needed(function), case.function, "a comparison in f64, as it rounds")
        case = _in_double(case, module, function)
    mesh, one_device = mesh_of(case.function), meaning(case.without_calls)
    actual: list[Buffers] = [
        [assemble(mesh, buffers, dist_type(value))]
        for buffers, value in zip(case.results, plan_buffers(case.function).returned, strict=True)
    ]
    expected = execute(*one_device, [[tensor] for tensor in case.tensors])

    def nearby(change: float) -> list[Buffers]:
        return execute(*one_device, [[perturbed(tensor, change)] for tensor in case.tensors])

    return differences(case.function, actual, expected, case.tolerance, nearby)


def wrong_buffers(module: ModuleOp, case: Case, results: Sequence[Buffers]) -> list[RunDifference]:
    """Return the results on devices that differ from the results of the numpy engine."""

    def nearby(change: float) -> list[Buffers]:
        arguments: list[Buffers] = [
            [None if buffer is None else perturbed(buffer, change) for buffer in buffers]
            for buffers in case.arguments
        ]
        return execute(module, case.function, arguments)

    return differences(case.function, results, case.results, case.tolerance, nearby)


def report(wrong: Sequence[RunDifference]) -> bool:
    """Print what differs, and return whether nothing does."""
    for difference in wrong:
        print(f"  {difference.result} {difference.text}")
    return not wrong


def part_of(module: ModuleOp, cases: Sequence[Case]) -> tuple[ModuleOp, list[Case]]:
    """Return a copy of a module with the functions of some cases and those they need, and the cases
    in it."""
    copy = copy_with_functions(module, [case.name for case in cases])
    functions = {function.sym_name.data: function for function in functions_of(copy)}
    return copy, [replace(case, function=functions[case.name]) for case in cases]


def cases_in_double(module: ModuleOp, cases: Sequence[Case]) -> tuple[ModuleOp, list[Case]]:
    """Return a module in f64, and its functions with the same inputs."""
    double = module_in_double(module)
    functions = {function.sym_name.data: function for function in functions_of(double)}
    return double, [_in_double(case, double, functions[case.name]) for case in cases]


def _in_double(case: Case, module: ModuleOp, function: FuncOp) -> Case:
    """Return a case for its function in f64."""
    tensors = [
        tensor.astype(NUMPY[dist_type(arg).dtype])
        for tensor, arg in zip(case.tensors, function.args, strict=True)
    ]
    arguments = distributed(function, tensors, np.random.default_rng(_PARTS))
    return replace(
        case,
        function=function,
        without_calls=function,
        tensors=tensors,
        arguments=arguments,
        tolerance=[DOUBLE_ROUNDINGS * bool(allowed) for allowed in case.tolerance],
        results=execute(module, function, arguments),
    )
