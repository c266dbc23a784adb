"""Functions that are strategies of each other: they compute the same result from the same inputs,
and differ in what each device holds."""

from collections.abc import Iterable, Iterator

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from collir.dialects.machine import mesh_of
from collir.dialects.tensor import DistTensorType
from collir.ir.alternatives import place_of
from collir.ir.functions import functions_of
from collir.ir.parameters import parameters_of
from collir.ir.roles import Role, argument_roles, result_roles
from collir.ir.selection import references_of
from collir.layout.sizes import formula_of

_HELD = (Role.PARAMETER, Role.STATE)


def alike_functions(module: ModuleOp) -> list[list[str]]:
    """Return the names of the functions that are strategies of each other, two or more at a time.

    They are on one mesh, and have parameters of the same names. Their arguments and results have
    the same dtypes and global shapes, as formulas of the parameters; weights and states of an
    optimiser may differ, as a strategy decides how they are stored. A function that another one
    calls is a part of it, and no strategy.
    """
    functions = functions_of(module)
    parts = {name for function in functions for name in _parts(function)}
    groups: dict[object, list[str]] = {}
    for function in functions:
        if (name := function.sym_name.data) not in parts:
            groups.setdefault(_interface(function), []).append(name)
    return [names for names in groups.values() if len(names) > 1]


def _parts(function: FuncOp) -> set[str]:
    place = place_of(function)
    return references_of(function) - ({place[0]} if place else set())


def _interface(function: FuncOp) -> object:
    types = function.function_type
    return (
        mesh_of(function).name,
        frozenset(parameters_of(function)),
        tuple(_global_types(types.inputs, argument_roles(function))),
        tuple(_global_types(types.outputs, result_roles(function))),
    )


def _global_types(types: Iterable[Attribute], roles: Iterable[Role | None]) -> Iterator[object]:
    """Yield the dtypes and global shapes of values that are neither weights nor states."""
    for type_, role in zip(types, roles, strict=True):
        if isinstance(type_, DistTensorType) and role not in _HELD:
            x = type_.data
            yield x.dtype, tuple(formula_of(dim.size) for dim in x.dims)
