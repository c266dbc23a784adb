"""Comparisons of what a function computes with what it should, exact or up to rounding."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.dialects.machine import mesh_of
from collir.dialects.tensor import dist_type
from collir.ir.buffers import plan_buffers
from collir.ir.functions import functions_of
from collir.ir.selection import erase_other_functions
from collir.layout import DType
from collir.semantics.reference.buffers import NUMPY, assemble, distribute, equal
from collir.semantics.reference.collectives import Array, Buffers
from collir.semantics.reference.double import in_double, module_in_double
from collir.semantics.reference.executor import execute, memory_needed
from collir.semantics.reference.meaning import meaning
from collir.tools.memory import check_available


@dataclass
class Case:
    """A function with its inputs, and the results of the numpy engine."""

    function: FuncOp
    tensors: list[Array]
    arguments: list[Buffers]
    tolerance: int
    results: list[Buffers]
    seconds: float

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.function.sym_name.data

    @property
    def rounding(self) -> str:
        """The words for a comparison that is not bit by bit."""
        return " up to rounding" if self.tolerance else ""


def same(actual: Array, expected: Array, roundings: int, dtype: DType) -> bool:
    """Return whether two arrays are equal, up to some roundings of their largest element."""
    if actual.shape != expected.shape:
        return False
    if equal(actual, expected):
        return True
    epsilon = dtype.epsilon or DType.BF16.epsilon  # an integer may be a rounded float
    wide = expected.astype(np.float64)
    scale = max(1.0, float(np.abs(wide[np.isfinite(wide)]).max(initial=0.0)))
    tolerance = roundings * epsilon * scale
    return bool(np.allclose(actual.astype(np.float64), wide, 0, tolerance, equal_nan=True))


DOUBLE_ROUNDINGS = 2**26
"""Roundings that a comparison in f64 allows: it sees mistakes above a 10^8th of the largest."""


PERTURBATION = 2.0**-28
"""The relative change of inputs by which it is seen how much a result magnifies differences; it is
less than what a comparison in f64 allows in any case."""


def same_in_double(case: Case) -> bool:
    """Run a function in f64 on all devices and on one, and return whether results are equal up to
    rounding.

    Where they are not, such as behind a division by what is nearly zero, they may differ as much as
    if the inputs were a little different.
    """
    module, function = in_double(case.function)
    mesh = mesh_of(function)
    check_available(memory_needed(function), case.function, "a comparison in f64, as it rounds")
    tensors, arguments = _inputs_in_double(case, function)
    results = execute(module, function, arguments)
    alone = execute(*meaning(function), [[tensor] for tensor in tensors])
    pairs: list[tuple[Array, Array]] = []
    for buffers, (reference,), value in zip(
        results, alone, plan_buffers(function).returned, strict=True
    ):
        assert reference is not None
        pairs.append((assemble(mesh, buffers, dist_type(value)), reference))
    wrong = [
        number
        for number, (actual, reference) in enumerate(pairs)
        if not same(actual, reference, DOUBLE_ROUNDINGS, DType.F64)
    ]
    if not wrong:
        return True
    others = execute(*meaning(function), [[_perturbed(tensor)] for tensor in tensors])
    return all(_is_within(*pairs[number], others[number][0]) for number in wrong)


def _perturbed(tensor: Array) -> Array:
    """Return numbers that differ a little from others, each by its own share."""
    if tensor.dtype.kind != "f":
        return tensor
    shares = np.random.default_rng(1).uniform(-1, 1, tensor.shape)
    return (tensor * (1 + PERTURBATION * shares)).astype(tensor.dtype)


def _is_within(actual: Array, reference: Array, other: Array | None) -> bool:
    """Return whether an array differs from a reference by no more than another one does at most."""
    if other is None or reference.dtype.kind != "f":
        return False
    finite = np.isfinite(actual) & np.isfinite(reference) & np.isfinite(other)
    if not np.array_equal(np.isfinite(actual), np.isfinite(reference)):
        return False
    moved = np.abs(other - reference)[finite].max(initial=0.0)
    return bool(np.abs(actual - reference)[finite].max(initial=0.0) <= moved)


def _inputs_in_double(case: Case, function: FuncOp) -> tuple[list[Array], list[Buffers]]:
    """Return the inputs of a function, as tensors and on all devices, for that function in f64."""
    rng = np.random.default_rng(0)
    tensors = [
        tensor.astype(NUMPY[dist_type(arg).dtype])
        for tensor, arg in zip(case.tensors, function.args, strict=True)
    ]
    arguments = [
        distribute(mesh_of(function), tensor, dist_type(arg), rng)
        for tensor, arg in zip(tensors, function.args, strict=True)
    ]
    return tensors, arguments


def differing_ranks(case: Case, results: Sequence[Buffers]) -> list[int]:
    """Return the ranks whose results differ from those of the numpy engine."""
    ranks: set[int] = set()
    for value, actual, expected in zip(
        plan_buffers(case.function).returned, results, case.results, strict=True
    ):
        dtype = dist_type(value).dtype
        for rank, (buffer, reference) in enumerate(zip(actual, expected, strict=True)):
            if (buffer is None) != (reference is None) or (
                buffer is not None
                and reference is not None
                and not same(buffer, reference, case.tolerance, dtype)
            ):
                ranks.add(rank)
    return sorted(ranks)


def part_of(module: ModuleOp, cases: Sequence[Case]) -> tuple[ModuleOp, list[Case]]:
    """Return a copy of a module with the functions of some cases and those they need, and the cases
    in it."""
    copy = module.clone()
    erase_other_functions(copy, [case.name for case in cases])
    functions = {function.sym_name.data: function for function in functions_of(copy)}
    return copy, [replace(case, function=functions[case.name]) for case in cases]


def cases_in_double(module: ModuleOp, cases: Sequence[Case]) -> tuple[ModuleOp, list[Case]]:
    """Return a module in f64, and its functions with the same inputs."""
    double = module_in_double(module)
    functions = {function.sym_name.data: function for function in functions_of(double)}
    made: list[Case] = []
    for case in cases:
        function = functions[case.name]
        tensors, arguments = _inputs_in_double(case, function)
        results = execute(double, function, arguments)
        made.append(Case(function, tensors, arguments, DOUBLE_ROUNDINGS, results, case.seconds))
    return double, made
