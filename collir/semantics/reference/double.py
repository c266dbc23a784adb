"""A program in f64, for comparisons where its own element types round too much to tell a mistake.

With a bf16 of eight bits, a wrong element may be as near as a rounded one. In f64 the same steps
compute the same function, and a mistake stands out of the roundings.
"""

from dataclasses import replace

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from collir.dialects.machine import module_of
from collir.dialects.operation import DistOp
from collir.dialects.tensor import DistTensorType
from collir.ir.inlining import function_without_calls
from collir.ir.renaming import map_attributes
from collir.layout import DType


def module_in_double(module: ModuleOp) -> ModuleOp:
    """Return a copy of a module with f64 for every floating-point type."""
    copy = module.clone()
    for op in copy.ops:
        if isinstance(op, FuncOp):
            _to_double(op)
    return copy


def in_double(function: FuncOp) -> tuple[ModuleOp, FuncOp]:
    """Return a copy of a function with f64 for every floating-point type, in a module of its own.

    The steps of callees stand in the place of calls.
    """
    alone = function_without_calls(function)
    double = alone.clone()
    others = [op.clone() for op in module_of(alone).ops if not isinstance(op, FuncOp)]
    module = ModuleOp([*others, double])
    _to_double(double)
    return module, double


def _to_double(function: FuncOp) -> None:
    """Put f64 in the place of every floating-point type, in place."""
    map_attributes(function, _in_double)
    for op in function.walk():
        if isinstance(op, DistOp) and op.mnemonic == "cast" and DType(op.word("dtype")).is_float:
            op.properties["dtype"] = StringAttr(DType.F64)


def _in_double(attribute: Attribute) -> Attribute:
    """Return a type with f64 for floating-point numbers, and any other attribute as it is."""
    if isinstance(attribute, DistTensorType) and attribute.data.dtype.is_float:
        return DistTensorType(replace(attribute.data, dtype=DType.F64))
    return attribute
