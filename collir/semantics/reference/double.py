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
from collir.dialects.tensor import DistTensorType, dist_type
from collir.ir.renaming import map_attributes, set_type
from collir.layout import DType
from collir.transforms.inlining import function_without_calls


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


def in_widest(function: FuncOp) -> FuncOp:
    """Return a copy of a function without calls, with f64 for every float and i64 for integers.

    Integers do not wrap around then, except where they are cast to narrower ones.
    """
    _, wide = in_double(function)
    map_attributes(wide, _in_widest)
    for op in list(wide.walk()):
        if (
            isinstance(op, DistOp)
            and op.mnemonic == "cast"
            and _is_integer(dist_type(op.result).dtype)
        ):
            _cast_back(op)
    return wide


def _cast_back(op: DistOp) -> None:
    """Put a cast of what a cast to an integer gives, to i64, behind it."""
    narrow = DType(op.word("dtype"))
    if narrow is DType.I64:
        return
    wide = type(op).create(
        operands=[op.result],
        properties={**op.properties, "dtype": StringAttr(DType.I64)},
        result_types=[op.result.type],
    )
    assert op.parent is not None
    op.parent.insert_op_after(wide, op)
    op.result.replace_all_uses_with(wide.result)
    wide.operands[0] = op.result
    wide.result.name_hint = op.result.name_hint
    set_type(op.result, DistTensorType(replace(dist_type(op.result), dtype=narrow)))


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


def _in_widest(attribute: Attribute) -> Attribute:
    """Return a type with i64 for integers, and any other attribute as it is."""
    if isinstance(attribute, DistTensorType) and _is_integer(attribute.data.dtype):
        return DistTensorType(replace(attribute.data, dtype=DType.I64))
    return attribute


def _is_integer(dtype: DType) -> bool:
    return not dtype.is_float and dtype is not DType.BOOL
