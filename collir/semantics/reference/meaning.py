"""The single-device meaning of a function: its local operations on global tensors.

A collective does not change the tensor that a distributed value stands for. Without collectives and
layouts a function is left with its local operations on global tensors. Every distribution of the
program must compute the same as this function.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from xdsl.dialects.builtin import ModuleOp, SymbolRefAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue

from collir.dialects.machine import MESH_ATTRIBUTE
from collir.dialects.nested import RepeatOp, YieldOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import DistTensorType, dist_type
from collir.ir.builders import module_of
from collir.ir.names import set_name
from collir.ir.parameters import parameters_of, set_parameters
from collir.layout import Axis, Dim, DistType, Mesh
from collir.machine import Level, Machine
from collir.semantics.reference.steps import Effect, meaning_of
from collir.transforms.inlining import function_without_calls

_MESH = "collir_one_device_mesh"


def undistributed(x: DistType) -> DistType:
    """Return the type of the same tensor on one device."""
    dims = tuple(Dim(size) for size in x.shape)
    return replace(x, dims=dims, partial=frozenset(), reduction=None, place=())


def _one_device() -> ModuleOp:
    machine = Machine("collir_one_device", (Level("device", 1, port=1.0, latency=0.0),))
    return module_of(Mesh(_MESH, machine, (Axis("device", 1),)))


def meaning(function: FuncOp) -> tuple[ModuleOp, FuncOp]:
    """Return the new module, on a machine of one device, and the function without collectives.

    The steps of functions that it calls stand in the place of the calls.
    """
    module = _one_device()
    function = function_without_calls(function)
    block = block_alone(function.body.block)
    inputs = [_type(value) for value in function.args]
    outputs = [value.type for value in block.last_op.operands] if block.last_op else []
    alone = FuncOp(function.sym_name.data, (inputs, outputs), Region(block))
    alone.attributes[MESH_ATTRIBUTE] = SymbolRefAttr(_MESH)
    set_parameters(alone, parameters_of(function))
    module.body.block.add_op(alone)
    return module, alone


def block_alone(block: Block) -> Block:
    """Return the block of a function without calls and without collectives, on whole values."""
    alone, values = _block(block.args)
    last = _add_steps(block.ops, alone, values)
    end = ReturnOp(*last)
    if block.last_op is not None:
        end.location = block.last_op.location
    alone.add_op(end)
    return alone


def _block(arguments: Sequence[SSAValue]) -> tuple[Block, dict[SSAValue, SSAValue]]:
    """Return a block with arguments on one device, and those by the arguments they stand for."""
    block = Block(arg_types=[_type(value) for value in arguments])
    for old, new in zip(arguments, block.args, strict=True):
        set_name(new, old.name_hint)
        if isinstance(old, BlockArgument):
            new.location = old.location
    return block, dict(zip(arguments, block.args, strict=True))


def _add_steps(
    ops: Iterable[Operation], block: Block, values: dict[SSAValue, SSAValue]
) -> list[SSAValue]:
    """Add the steps of a program without collectives to a block, and return what they return."""
    for op in ops:
        operands = [values[operand] for operand in op.operands]
        if isinstance(op, DistOp) and meaning_of(op.mnemonic).effect is Effect.NOTHING:
            values[op.result] = operands[0]
        elif isinstance(op, DistOp) and (alone := meaning_of(op.mnemonic).alone):
            made = alone(op, operands)
            block.add_ops(made)
            values[op.result] = made[-1].result
            set_name(made[-1].result, op.result.name_hint)
        elif isinstance(op, DistOp):
            properties = {name: _undistributed(value) for name, value in op.properties.items()}
            copy = type(op).create(
                operands=operands,
                properties=properties,
                attributes=op.attributes,
                result_types=[_type(op.result)],
            )
            copy.location = op.location
            set_name(copy.result, op.result.name_hint)
            values[op.result] = copy.result
            block.add_op(copy)
        elif isinstance(op, RepeatOp):
            copy = _loop(op, operands)
            copy.location = op.location
            block.add_op(copy)
            for old, new in zip(op.results, copy.results, strict=True):
                set_name(new, old.name_hint)
                values[old] = new
        else:
            assert isinstance(op, ReturnOp | YieldOp)
            return operands
    return []


def _loop(op: RepeatOp, operands: Sequence[SSAValue]) -> RepeatOp:
    """Return the meaning of a loop on one device."""
    body, values = _block(op.body.block.args)
    body.add_op(YieldOp.create(operands=_add_steps(op.body.ops, body, values)))
    return RepeatOp.create(
        operands=operands,
        properties=op.properties,
        attributes=op.attributes,
        result_types=[_type(result) for result in op.results],
        regions=[Region(body)],
    )


def _undistributed(attribute: Attribute) -> Attribute:
    """Return an argument; a type is that of the same tensor on one device."""
    if isinstance(attribute, DistTensorType):
        return DistTensorType(undistributed(attribute.data))
    return attribute


def _type(value: SSAValue) -> DistTensorType:
    return DistTensorType(undistributed(dist_type(value)))
