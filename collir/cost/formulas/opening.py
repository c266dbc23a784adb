"""Simulations of programs with open sizes: the numbers of their steps carry formulas."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from collir.cost.model import CostModel
from collir.cost.programs.simulate import simulate_function
from collir.cost.programs.simulation import Simulation
from collir.dialects.machine import mesh_of, meshes_remembered
from collir.dialects.tensor import DistTensorType, SizeAttr, SizesAttr
from collir.ir.functions import check_programs, functions_of, task_names
from collir.ir.parameters import parameters_of
from collir.ir.renaming import map_attributes
from collir.ir.rotation import as_run
from collir.layout import Dim
from collir.layout.formulas import Formula
from collir.layout.sizes import IndivisibleError, ShardedSize, Size, formula_of


@dataclass(frozen=True)
class Opened:
    """A function with open sizes.

    Attributes:
        values: the values of its parameters.
        fixed: the parameters that keep their values, as sizes in the program are rounded quotients
            of them.
        quotients: the sizes of its blocks that are quotients, and have to be integers.
    """

    simulation: Simulation
    values: Mapping[str, int]
    quotients: frozenset[Formula]
    fixed: frozenset[str] = frozenset()


def opened_functions(module: ModuleOp, model: CostModel, name: str = "") -> list[Opened]:
    """Return the functions of a module, or that of a name, with open sizes.

    Raises:
        DiagnosticError: see ``collir.cost.programs.simulate.simulate``.
    """
    tasks = task_names(module)
    ready = as_run(module.clone())
    functions = [op for op in functions_of(ready) if op.sym_name.data not in tasks]
    functions = [op for op in functions if name in ("", op.sym_name.data)]
    check_programs(functions, "has no formulas", nested=True)
    with meshes_remembered():
        return [_opened(function, model) for function in functions]


def _opened(function: FuncOp, model: CostModel) -> Opened:
    values = {name: int(value) for name, value in parameters_of(function).items()}
    fixed: frozenset[str] = frozenset()
    while True:
        formulas = {name: Formula.constant(values[name]) for name in fixed}
        map_attributes(function, partial(_with_open_sizes, fixed=formulas))
        try:
            simulation = simulate_function(function, model)
        except IndivisibleError as error:
            if not (more := error.parameters.intersection(values) - fixed):
                raise
            fixed |= more
            continue
        free = {name: value for name, value in values.items() if name not in fixed}
        return Opened(simulation, free, frozenset(_quotients(function)), fixed)


def _quotients(function: FuncOp) -> Iterator[Formula]:
    mesh = mesh_of(function)
    values = [*function.args, *(result for op in function.walk() for result in op.results)]
    for x in {value.type.data for value in values if isinstance(value.type, DistTensorType)}:
        for size in x.local_shape(mesh):
            formula = formula_of(size)
            if any(exponent < 0 for powers, _ in formula.terms for _, exponent in powers):
                yield formula


def _with_open_sizes(attribute: Attribute, fixed: Mapping[str, Formula]) -> Attribute:
    def opened(size: int) -> int:
        return ShardedSize(int(size), formula_of(size).substituted(fixed))

    match attribute:
        case DistTensorType():
            x = attribute.data
            dims = tuple(Dim(opened(dim.size), dim.axes) for dim in x.dims)
            return DistTensorType(replace(x, dims=dims))
        case SizesAttr():
            sizes = (opened(x) if isinstance(x, Size) else x for x in attribute.data)
            return SizesAttr(tuple(sizes))
        case SizeAttr():
            return SizeAttr(opened(attribute.data))
        case _:
            return attribute
