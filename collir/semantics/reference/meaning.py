"""What a function computes, were there one device: collectives become nothing.

A collective does not change the value that a distributed tensor stands for. Taking all of them and
all layouts away leaves the local operations on global tensors, which is what the program must
compute however it is distributed.
"""

from dataclasses import replace

from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr, SymbolRefAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue

from collir.dialects.machine import MESH_ATTRIBUTE, AxisAttr, LevelAttr, MachineOp, MeshOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import DistTensorType, dist_type
from collir.layout import Axis, Dim, DistType
from collir.machine import Level
from collir.semantics.reference.steps import MEANINGS, Effect

_ALONE = "collir_one_device"


def undistributed(x: DistType) -> DistType:
    """The type of the same tensor on one device."""
    dims = tuple(Dim(size) for size in x.shape)
    return replace(x, dims=dims, partial=frozenset(), reduction=None, root=frozenset())


def meaning(function: FuncOp) -> tuple[ModuleOp, FuncOp]:
    """The function on a machine of one device, in a module of its own."""
    level = LevelAttr.of(Level("device", 1, port=1.0, latency=0.0))
    machine = MachineOp.create(
        properties={"sym_name": StringAttr(_ALONE), "levels": ArrayAttr([level])}
    )
    mesh = MeshOp.create(
        properties={
            "sym_name": StringAttr(f"{_ALONE}_mesh"),
            "machine": SymbolRefAttr(_ALONE),
            "axes": ArrayAttr([AxisAttr.of(Axis("device", 1))]),
        }
    )
    block = Block(arg_types=[_type(value) for value in function.args])
    values: dict[SSAValue, SSAValue] = dict(zip(function.args, block.args, strict=True))
    for old, new in zip(function.args, block.args, strict=True):
        _rename(new, old)
    for op in function.body.ops:
        operands = [values[operand] for operand in op.operands]
        if isinstance(op, DistOp) and MEANINGS[op.mnemonic].effect is Effect.NOTHING:
            values[op.result] = operands[0]
        elif isinstance(op, DistOp):
            copy = type(op).create(
                operands=operands, properties=op.properties, result_types=[_type(op.result)]
            )
            _rename(copy.result, op.result)
            values[op.result] = copy.result
            block.add_op(copy)
        else:
            assert isinstance(op, ReturnOp)
            block.add_op(ReturnOp(*operands))
    inputs = [_type(value) for value in function.args]
    outputs = [value.type for value in block.last_op.operands] if block.last_op else []
    alone = FuncOp(function.sym_name.data, (inputs, outputs), Region(block))
    alone.attributes[MESH_ATTRIBUTE] = SymbolRefAttr(f"{_ALONE}_mesh")
    return ModuleOp([machine, mesh, alone]), alone


def _rename(value: SSAValue, old: SSAValue) -> None:
    """Gives a value the whole name of another; the setter would cut a suffix like `_1` off."""
    value._name = old.name_hint  # pyright: ignore[reportPrivateUsage]


def _type(value: SSAValue) -> DistTensorType:
    return DistTensorType(undistributed(dist_type(value)))
