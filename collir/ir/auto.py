"""Functions whose layouts are chosen: in an ``auto`` function, every name stands for a whole value,
and written types say where values should lie.

An ``auto`` function is a program like any other: where a type names sub-axes, a ``redistribute``
stands behind the value, and users of the value take the result. So it computes the same on all
devices, and is checked, run and differentiated as it is. ``propagate`` turns it into a program that
computes each value where its type says.
"""

from xdsl.dialects.builtin import FunctionType, ModuleOp, UnitAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, BlockArgument, Operation, OpResult, SSAValue

from collir.dialects.machine import mesh_of
from collir.dialects.nested import CallOp
from collir.dialects.operation import DistOp
from collir.dialects.tables import OPERATIONS
from collir.dialects.tensor import DistTensorType, dist_type
from collir.ir.renaming import set_type
from collir.ir.roles import pass_role, role_of, set_role
from collir.layout import DistType, Mesh
from collir.layout.coll import REDISTRIBUTE
from collir.layout.types import unsharded

AUTO = "coll.auto"
"""The attribute of a function whose layouts are chosen by ``propagate``."""


def is_auto(function: FuncOp) -> bool:
    """Return whether the layouts in a function are to be chosen."""
    return AUTO in function.attributes


def set_auto(function: FuncOp) -> None:
    """Let the layouts in a function be chosen; the whole values of its arguments have the roles of
    these."""
    function.attributes[AUTO] = UnitAttr()
    for argument in function.args:
        for use in argument.uses if dist_type(argument).axes else ():
            set_role(use.operation.results[0], role_of(argument))


def auto_functions(module: ModuleOp) -> list[FuncOp]:
    """Return the functions of a module whose layouts are to be chosen."""
    return [op for op in module.ops if isinstance(op, FuncOp) and is_auto(op)]


def laid_out(mesh: Mesh, value: SSAValue, to: DistType) -> SSAValue:
    """Return a value in another layout, by a ``redistribute`` that is added at the end of its block
    where one is needed.

    Raises:
        LayoutError: the layout cannot be reached.
    """
    if dist_type(value).agrees(to):
        return value
    op = OPERATIONS[REDISTRIBUTE.name].make(mesh, value, to=DistTensorType(to))
    block = value.owner if not isinstance(value.owner, Operation) else value.owner.parent
    assert block is not None
    block.add_op(op)
    return op.result


def whole_value(mesh: Mesh, value: SSAValue) -> SSAValue:
    """Return a value as an ``auto`` function sees it: whole on every device."""
    result = laid_out(mesh, value, unsharded(dist_type(value)))
    if result is not value and isinstance(value, OpResult):
        pass_role(value, result)
    return result


def take_layouts(function: FuncOp, reference: FuncOp) -> None:
    """Give the layouts of a function to the whole arguments and results of an ``auto`` function, in
    place."""
    mesh, block = mesh_of(function), function.body.block
    last = block.last_op
    assert isinstance(last, ReturnOp)
    for argument, to in zip(function.args, reference.function_type.inputs, strict=False):
        if _is_layout_of(argument.type, to):
            lay_out_argument(argument, to)
    pairs = zip(last.operands, reference.function_type.outputs, strict=False)
    for number, (value, to) in enumerate(list(pairs)):
        if _is_layout_of(value.type, to):
            op = OPERATIONS[REDISTRIBUTE.name].make(mesh, value, to=to)
            block.insert_op_before(op, last)
            last.operands[number] = op.result
    inputs = [argument.type for argument in function.args]
    outputs = [value.type for value in last.operands]
    function.properties["function_type"] = FunctionType.from_lists(inputs, outputs)


def lay_out_argument(argument: BlockArgument, to: Attribute) -> None:
    """Give a layout to the whole argument of a function; what uses it uses the whole value."""
    block, whole = argument.block, argument.type
    function, first = block.parent_op(), block.first_op
    assert isinstance(function, FuncOp) and first is not None
    set_type(argument, to)
    op = OPERATIONS[REDISTRIBUTE.name].make(mesh_of(function), argument, to=whole)
    argument.replace_uses_with_if(op.result, lambda use: use.operation is not op)
    block.insert_op_before(op, first)


def _is_layout_of(whole: Attribute, x: Attribute) -> bool:
    """Return whether a type has another layout than that of the same value, whole everywhere."""
    if not isinstance(whole, DistTensorType) or not isinstance(x, DistTensorType):
        return False
    return not x.data.agrees(whole.data) and unsharded(x.data).agrees(whole.data)


def keeps_whole(op: DistOp) -> bool:
    """Return whether an operation of an ``auto`` function says that a value is whole everywhere: it
    brings the whole value to the layout that this has."""
    x = dist_type(op.result)
    return op.kind is REDISTRIBUTE and not x.axes and dist_type(op.input).agrees(x)


def is_implied(op: Operation) -> bool:
    """Return whether an operation of an ``auto`` function is not written: it makes a value whole,
    or brings it to the layout that a call takes or a function returns."""
    if not isinstance(op, DistOp) or op.kind is not REDISTRIBUTE or keeps_whole(op):
        return False
    x, result = dist_type(op.input), dist_type(op.result)
    if result == unsharded(x):
        return True
    users = [use.operation for use in op.result.uses]
    at_end = bool(users) and all(isinstance(user, CallOp | ReturnOp) for user in users)
    return x == unsharded(result) and at_end
