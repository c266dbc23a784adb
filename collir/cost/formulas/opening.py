"""Simulations of programs with open sizes, in which the numbers of steps are formulas."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, SSAValue

from collir.cost.model import CostModel
from collir.cost.programs.simulate import simulate_function
from collir.cost.programs.simulation import Simulation
from collir.dialects.machine import mesh_of, meshes_remembered
from collir.dialects.nested import CallOp, RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import DistTensorType, SizeAttr, SizesAttr
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import check_programs, functions_of, task_names
from collir.ir.parameters import parameters_of
from collir.ir.renaming import map_attributes
from collir.layout import Dim
from collir.layout.formulas import Formula, FormulaError
from collir.layout.sizes import IndivisibleError, ShardedSize, Size, formula_of
from collir.transforms.as_run import as_run
from collir.transforms.stages.tasks import outline_tasks


@dataclass(frozen=True)
class Opened:
    """A function with open sizes.

    Attributes:
        values: the values of its parameters.
        quotients: the sizes of blocks and the operations of steps that have to be integers.
        fixed: the parameters that stay numbers, with their values: a parameter of value 1, one with
            a rounded quotient, or the number of iterations of a loop that is listed one by one. All
            parameters, if formulas would be too long.
        rigid: the axes whose sizes stay numbers, as steps are at places on them.
    """

    simulation: Simulation
    values: Mapping[str, int]
    quotients: frozenset[Formula]
    fixed: Mapping[str, int]
    rigid: frozenset[str]


def opened_functions(module: ModuleOp, model: CostModel, name: str = "") -> list[Opened]:
    """Return the functions of a module, or that of a name, with open sizes.

    Raises:
        DiagnosticError: see ``collir.cost.programs.simulate.simulate``; sizes of axes have no
            formulas.
    """
    ready = as_run(module.clone())
    tasks = task_names(ready)
    functions = [op for op in functions_of(ready) if op.sym_name.data not in tasks]
    functions = [op for op in functions if name in ("", op.sym_name.data)]
    outline_tasks(ready)
    check_programs(functions, "has no formulas", nested=True)
    with meshes_remembered():
        return [_opened(function, model) for function in functions]


def _opened(function: FuncOp, model: CostModel) -> Opened:
    values = {name: int(value) for name, value in parameters_of(function).items()}
    loops = [op for op in function.walk() if isinstance(op, RepeatOp)]
    fixed = {name for name, value in values.items() if value == 1}  # sizes of 1 are views
    fixed |= _parameters_in(loop for loop in loops if loop.schedule is not None)
    simulation, quotients, opened = None, frozenset[Formula](), [function, *_tasks_of(function)]
    while simulation is None:
        formulas = {name: Formula.constant(values[name]) for name in fixed}
        for copy in opened:
            map_attributes(copy, partial(_with_open_sizes, fixed=formulas))
        try:
            simulation = simulate_function(function, model)
            quotients = frozenset(size for copy in opened for size in _quotients(copy))
        except FormulaError as error:  # if formulas are too long, all parameters keep their values
            divides = isinstance(error, IndivisibleError)
            more = values.keys() & error.parameters if divides else {*values}
            if more <= fixed:
                raise DiagnosticError.at(function, f"this has no formulas: {error}") from error
        else:
            more = _parameters_in(loops) if len(simulation.places) > 1 else set[str]()
        if not more <= fixed:
            simulation = None
        fixed |= more
    free = {name: value for name, value in values.items() if name not in fixed}
    kept = {name: value for name, value in values.items() if name in fixed}
    return Opened(simulation, free, quotients, kept, frozenset(_rigid_axes(function)))


def _tasks_of(function: FuncOp) -> list[FuncOp]:
    """Return the functions that the tasks of pipelines in a function call."""
    tasks = (op.function() for op in function.walk() if isinstance(op, CallOp))
    return [task for task in dict.fromkeys(tasks) if task is not None]


def _parameters_in(loops: Iterable[RepeatOp]) -> set[str]:
    """Return the parameters in the numbers of iterations of loops."""
    return {name for loop in loops for name in formula_of(loop.times).parameters}


def _rigid_axes(function: FuncOp) -> Iterator[str]:
    """Yield the axes on which values of a function are at places."""
    mesh = mesh_of(function)
    for value in _values_of(function):
        for name, _ in value.type.data.place:
            yield mesh.label(name)


def _values_of(function: FuncOp) -> Iterator[SSAValue[DistTensorType]]:
    """Yield the values of a function, and those in its loops."""
    for block in (
        block for op in function.walk() for region in op.regions for block in region.blocks
    ):
        for value in (*block.args, *(result for op in block.ops for result in op.results)):
            if isinstance(value.type, DistTensorType):
                yield cast("SSAValue[DistTensorType]", value)


def _quotients(function: FuncOp) -> Iterator[Formula]:
    """Yield the sizes of blocks and the operations of steps that are quotients."""
    mesh = mesh_of(function)
    types = {value.type.data for value in _values_of(function)}
    sizes = [size for x in types for size in x.local_shape(mesh)]
    steps = (op for op in function.walk() if isinstance(op, DistOp) and "flops" in op.properties)
    counts = (op.number("flops") for op in steps)
    for size in (*sizes, *(count for count in counts if isinstance(count, Size))):
        if _is_quotient(formula_of(size)):
            yield formula_of(size)


def _is_quotient(formula: Formula) -> bool:
    """Return whether a formula divides by something."""
    return any(
        number.denominator > 1 or any(exponent < 0 for _, exponent in powers)
        for powers, number in formula.terms
    )


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
