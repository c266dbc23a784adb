"""Sequence parallelism: values between layers are divided along the sequence, over the axes that
divide weights (Korthikanti 2022)."""

from collections.abc import Collection
from dataclasses import replace

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.dialects.machine import mesh_of
from collir.dialects.nested import CallOp, RepeatOp
from collir.dialects.tables import OPERATIONS
from collir.dialects.tensor import DistTensorType, dist_type
from collir.ir.calls import calls_in, given
from collir.ir.names import set_name
from collir.layout import Dim
from collir.layout.coll import REDISTRIBUTE
from collir.layout.sizes import formula_of
from collir.transforms.instantiation import instantiate
from collir.transforms.microbatches.splitting import batch_of


def shard_sequences(function: FuncOp, axes: Collection[str]) -> None:
    """Shard the values between layers over some more axes, along the sequence, in the function that
    an ``auto`` function takes the gradient of, in place."""
    mesh = mesh_of(function)
    more = tuple(sub for axis in axes for sub in mesh.of_axis.get(axis, ()))
    [call] = [call for call in calls_in(function) if call.sought]
    module = function.parent_op()
    assert isinstance(module, ModuleOp)
    instantiate(module, call.values, call.symbol)  # its types divide as those of the call do
    batch, words = dist_type(given(call, batch_of(call).first)).dims[:2]
    for loop, number in sequences(call):
        value = loop.carried[number]
        x = dist_type(value)
        rows, columns, *rest = x.dims
        dims = Dim(rows.size, batch.axes), Dim(columns.size, (*words.axes, *more)), *rest
        block, last = loop.parent_block(), value
        assert block is not None
        for there in (replace(x, dims=dims), x):  # its users need the whole value
            op = OPERATIONS[REDISTRIBUTE.name].make(mesh, last, to=DistTensorType(there))
            block.insert_op_before(op, loop)
            set_name(op.result, value.name_hint)
            last = op.result
        loop.operands[number] = last


def sequences(call: CallOp) -> list[tuple[RepeatOp, int]]:
    """Return the carries with a dimension of words behind the batch's, as loops and numbers.

    They are carries of the function that a call takes the gradient of.
    """
    callee = call.function()
    assert callee is not None
    given_rows = dist_type(callee.args[batch_of(call).first]).dims[:2]
    rows = [formula_of(dim.size) for dim in given_rows]
    return [
        (op, number)
        for op in callee.walk()
        if isinstance(op, RepeatOp) and op.sliced and len(rows) > 1
        for number, x in enumerate(map(dist_type, op.carried))
        if len(x.dims) > 2 and [formula_of(dim.size) for dim in x.dims[:2]] == rows
    ]
