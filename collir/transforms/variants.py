"""Variants of a training step that compute the same: layers that are computed again in the backward
pass, and states and parameters that are divided over the axis of the batch."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from xdsl.dialects.builtin import FunctionType, ModuleOp, UnitAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import BlockArgument, Operation, SSAValue

from collir.dialects.machine import mesh_of
from collir.dialects.nested import CallOp, RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tables import OPERATIONS
from collir.dialects.tensor import DistTensorType, dist_type
from collir.ir.auto import lay_out_argument
from collir.ir.calls import calls_in
from collir.ir.names import set_name
from collir.ir.renaming import set_type
from collir.ir.roles import Role, argument_roles, result_roles, set_role
from collir.layout import Dim, DistType, Mesh
from collir.layout.coll import CAST, REDISTRIBUTE


def recompute_layers(module: ModuleOp) -> None:
    """Mark the loops over stacked weights in functions whose gradient is taken, in place: their
    backward passes keep the carries alone."""
    for function in [op for op in module.ops if isinstance(op, FuncOp)]:
        for call in calls_in(function):
            callee = call.function() if call.sought else None
            for op in callee.walk() if callee else ():
                if isinstance(op, RepeatOp) and op.sliced:
                    op.properties["recompute"] = UnitAttr()


def recompute_calls(module: ModuleOp, names: Collection[str]) -> None:
    """Mark the calls of some functions in functions whose gradient is taken, in place: their
    backward passes keep the operands of these calls alone."""
    for call in [op for op in module.walk() if isinstance(op, CallOp) and op.sought]:
        for op in callee.walk() if (callee := call.function()) else ():
            if isinstance(op, CallOp) and op.symbol in names:
                op.properties["recompute"] = UnitAttr()


def shard_roles(function: FuncOp, axes: Collection[str], roles: Collection[Role]) -> None:
    """Shard the arguments and results with some roles of an ``auto`` function over more axes, in
    place. The last dimension that the axes divide is sharded, a dimension without axes before one
    with axes."""
    mesh = mesh_of(function)
    names = tuple(sub for axis in axes for sub in mesh.of_axis.get(axis, ()))
    last = function.body.block.last_op
    assert isinstance(last, ReturnOp)

    def sharded(values: Iterable[SSAValue], of: Iterable[Role | None]) -> dict[int, DistType]:
        return {
            number: to
            for number, (value, role) in enumerate(zip(values, of, strict=True))
            if role in roles and (to := _sharded(dist_type(value), names, mesh))
        }

    arguments = sharded(function.args, argument_roles(function))
    set_layouts(function, arguments, sharded(last.operands, result_roles(function)))


def shard_masters(function: FuncOp, axes: Collection[str]) -> None:
    """Shard the parameters that an ``auto`` function casts for the gradient over more axes, in
    place; the casts stay whole on these.

    A parameter that is cast is the optimiser's exact copy of a weight: the layers compute with the
    weight, which is narrow (Rajbhandari 2020, ZeRO, section 3).
    """
    mesh, masters = mesh_of(function), dict[int, DistType]()
    names = tuple(sub for axis in axes for sub in mesh.of_axis.get(axis, ()))
    roles = argument_roles(function)
    for call in [call for call in calls_in(function) if call.sought]:
        for number in call.sought:
            cast = _before_move(call.operands[number])
            argument = _master_of(cast, roles)
            if argument is None or (to := _sharded(dist_type(argument), names, mesh)) is None:
                continue
            masters[argument.index] = to
            if cast is call.operands[number]:  # nothing gives its layout yet
                there = replace(dist_type(argument), dtype=dist_type(cast).dtype)
                call.operands[number] = _laid_out_as(cast, there, mesh)
            set_role(call.operands[number], Role.PARAMETER)
    parameters = (n for n, role in enumerate(roles) if role is Role.PARAMETER)
    new = (n for n, role in enumerate(result_roles(function)) if role is Role.PARAMETER)
    pairs = zip(parameters, new, strict=False)
    set_layouts(function, masters, {new: masters[old] for old, new in pairs if old in masters})


def _before_move(value: SSAValue) -> SSAValue:
    """Return a value before it is brought to another layout."""
    owner = value.owner
    return owner.input if isinstance(owner, DistOp) and owner.kind is REDISTRIBUTE else value


def _master_of(value: SSAValue, roles: Sequence[Role | None]) -> BlockArgument | None:
    """Return the parameter that a value is a narrower cast of."""
    cast = value.owner
    if not isinstance(cast, DistOp) or cast.kind is not CAST:
        return None
    source = _before_move(cast.operands[0])
    if not isinstance(source, BlockArgument) or roles[source.index] is not Role.PARAMETER:
        return None
    is_narrower = dist_type(value).dtype.bytes < dist_type(source).dtype.bytes
    return source if is_narrower else None


def _laid_out_as(value: SSAValue, there: DistType, mesh: Mesh) -> SSAValue:
    """Return a whole value of an ``auto`` function in the layout of a type."""
    last = value
    for to in dict.fromkeys((DistTensorType(there), value.type)):
        op, behind = OPERATIONS[REDISTRIBUTE.name].make(mesh, last, to=to), last.owner
        assert isinstance(behind, Operation) and behind.parent is not None
        behind.parent.insert_op_after(op, behind)
        set_name(op.result, value.name_hint)
        set_role(op, Role.PARAMETER)
        last = op.result
    return last


def set_layouts(
    function: FuncOp, inputs: Mapping[int, DistType], outputs: Mapping[int, DistType]
) -> None:
    """Give arguments and results of an ``auto`` function, by number, other layouts, in place."""
    mesh, block = mesh_of(function), function.body.block
    last = block.last_op
    assert isinstance(last, ReturnOp)
    before = [value.owner for value in last.operands]
    for number, to in inputs.items():
        _set_argument(function.args[number], to)
    for number, to in outputs.items():
        last.operands[number] = _laid_out(last.operands[number], to, last, mesh)
    _erase_unused(dict.fromkeys(op for op in before if isinstance(op, DistOp)))
    arguments = [argument.type for argument in function.args]
    results = [value.type for value in last.operands]
    function.properties["function_type"] = FunctionType.from_lists(arguments, results)


def _sharded(x: DistType, names: tuple[str, ...], mesh: Mesh) -> DistType | None:
    """Return a type that is sharded over more sub-axes; None if no dimension can be."""
    if not names or any(name in x.axes for name in names):
        return None
    count = mesh.group_size(names)
    dims = range(1 if len(x.dims) > 1 else 0, len(x.dims))
    fitting = [
        n for n in dims if int(x.dims[n].size) % (mesh.group_size(x.dims[n].axes) * count) == 0
    ]
    if not fitting:
        return None
    number = max(fitting, key=lambda n: (not x.dims[n].axes, n))
    dim = x.dims[number]
    more = Dim(dim.size, (*dim.axes, *names))
    return replace(x, dims=(*x.dims[:number], more, *x.dims[number + 1 :]))


def _set_argument(argument: BlockArgument, to: DistType) -> None:
    users = [use.operation for use in argument.uses]
    if dist_type(argument).axes and all(isinstance(op, DistOp) for op in users):
        set_type(argument, DistTensorType(to))  # a redistribute to the whole value stands behind
    else:
        lay_out_argument(argument, DistTensorType(to))


def _laid_out(value: SSAValue, to: DistType, last: ReturnOp, mesh: Mesh) -> SSAValue:
    owner = value.owner
    whole = value
    if isinstance(owner, DistOp) and owner.kind is REDISTRIBUTE:
        whole = owner.input
    op = OPERATIONS[REDISTRIBUTE.name].make(mesh, whole, to=DistTensorType(to))
    block = last.parent
    assert block is not None
    block.insert_op_before(op, last)
    return op.result


def _erase_unused(ops: Iterable[Operation]) -> None:
    for op in ops:
        if not any(result.uses for result in op.results):
            op.detach()
            op.erase()
