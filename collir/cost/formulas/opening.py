"""Simulations of programs with open sizes: the numbers of their steps carry formulas."""

from collections.abc import Mapping
from dataclasses import replace

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from collir.cost.model import CostModel
from collir.cost.programs.simulate import simulate_function
from collir.cost.programs.simulation import Simulation
from collir.dialects.machine import meshes_remembered
from collir.dialects.tensor import DistTensorType, SizeAttr, SizesAttr
from collir.ir.functions import check_programs, functions_of, task_names
from collir.ir.parameters import parameters_of
from collir.ir.renaming import map_attributes
from collir.ir.rotation import as_run
from collir.layout import Dim
from collir.layout.sizes import ShardedSize, Size, formula_of


def opened_simulations(
    module: ModuleOp, model: CostModel
) -> list[tuple[Simulation, Mapping[str, int]]]:
    """Return the simulations of the functions of a module that no other one calls, with the values
    of the parameters of each.

    Raises:
        DiagnosticError: see ``collir.cost.programs.simulate.simulate``.
    """
    tasks = task_names(module)
    ready = as_run(module.clone())
    functions = [op for op in functions_of(ready) if op.sym_name.data not in tasks]
    check_programs(functions, "has no formulas", nested=True)
    with meshes_remembered():
        for function in functions_of(ready):
            map_attributes(function, _opened)
        return [(simulate_function(f, model), _values(f)) for f in functions]


def _values(function: FuncOp) -> dict[str, int]:
    return {name: int(value) for name, value in parameters_of(function).items()}


def _opened(attribute: Attribute) -> Attribute:
    match attribute:
        case DistTensorType():
            x = attribute.data
            dims = tuple(Dim(_open(dim.size), dim.axes) for dim in x.dims)
            return DistTensorType(replace(x, dims=dims))
        case SizesAttr():
            return SizesAttr(tuple(_open(x) if isinstance(x, Size) else x for x in attribute.data))
        case SizeAttr():
            return SizeAttr(_open(attribute.data))
        case _:
            return attribute


def _open(size: int) -> ShardedSize:
    return ShardedSize(int(size), formula_of(size))
