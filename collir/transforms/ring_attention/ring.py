"""Attention around a ring: blocks of keys and values pass from device to device, and each device
adds up their part of its own queries.

The scores of a block are computed, used and forgotten. A softmax over all keys follows from a
running maximum, a running sum and a running result, which are scaled down where the maximum grows
(Milakov and Gimelshein 2018; Liu, Zaharia and Abbeel 2023). Every value has the number of the block
as its leading dimension, which is divided over the ring.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region, SSAValue

from collir.dialects.machine import function_of, mesh_of, module_of
from collir.dialects.nested import CallOp, RepeatOp, Signature, YieldOp
from collir.dialects.operation import DistOp
from collir.dialects.parameters import parameters_of
from collir.dialects.tensor import DistTensorType, dist_type
from collir.ir.names import set_name, unused_symbol
from collir.ir.parameters import bindings_to_equal, keep_used_parameters, shared_attributes
from collir.layout import DistType, DType
from collir.layout.coll import REDISTRIBUTE, SHIFT
from collir.layout.sizes import same_size
from collir.layout.types import Dim, unsharded
from collir.transforms.ring_attention.attention import Attention, AttentionRole, Blocks, with_layout
from collir.transforms.ring_attention.block import BlockForm, BlockOfRing
from collir.transforms.terms import BlockSteps


def write_ring(
    attention: Attention, blocks: Blocks, fused: bool = False, requests: bool = False
) -> FuncOp:
    """Replace attention by a call of a new function that goes around the ring, and return that. The
    function stands in front of the caller, and the function for one block in front of both.

    Args:
        fused: whether the steps for a block are one kernel; if not, gradients compute them again.
        requests: whether operands and the result are brought to their layouts by ``redistribute``,
            as layouts are still to be chosen.

    Raises:
        LayoutError: a step cannot be done on the blocks.
    """
    return _Ring(attention, blocks, fused, requests).run()


class _Ring:
    """The functions that compute one attention, and the call of them.

    Attributes:
        inputs: the operands from outside: queries, keys, values, and the leaves.
        dims: the dimension of each operand that is divided, or None.
        travels: the numbers of the operands that go around the ring.
    """

    def __init__(self, attention: Attention, blocks: Blocks, fused: bool, requests: bool):
        self.attention, self.fused, self.requests = attention, fused, requests
        self.mesh = mesh_of(attention.softmax)
        outer = function_of(attention.softmax)
        assert outer is not None
        self.outer: FuncOp = outer
        attention.query_dim = blocks.query_dim
        known = {*attention.indices, *attention.of_values[0]}
        index = next(name for name in ("c", *(f"c{n}" for n in range(99))) if name not in known)
        self.form = BlockForm(blocks.axes, self.mesh.group_size(blocks.axes), index)
        leaves = list(attention.leaves)
        self.inputs = [attention.queries, attention.keys, attention.contents, *leaves]
        self.types = [
            with_layout(unsharded(dist_type(x)), layout)
            for x, layout in zip(self.inputs, blocks.layouts, strict=True)
        ]
        self.dims = self._divided_dims()
        roles = [
            AttentionRole.QUERY,
            AttentionRole.KEY,
            AttentionRole.KEY,
            *attention.leaves.values(),
        ]
        self.travels = [n for n, role in enumerate(roles) if role is AttentionRole.KEY]
        self.block = BlockOfRing(attention, self.form, self._blocked_types())

    def _divided_dims(self) -> list[int | None]:
        attention = self.attention
        structure = attention.scores.structure
        assert structure is not None
        of_queries = structure.operands[attention.query].index(attention.query_index)
        of_keys = structure.operands[1 - attention.query].index(attention.key_index)
        of_values = attention.of_values[0].index(attention.key_index)
        dims: list[int | None] = [of_queries, of_keys, of_values]
        for leaf, role in attention.leaves.items():
            offset = len(attention.indices) - len(dist_type(leaf).dims)
            dim = attention.query_dim if role is AttentionRole.QUERY else attention.key_dim
            dims.append(None if role is AttentionRole.OTHER else dim - offset)
        return dims

    def _blocked_types(self) -> list[DistType]:
        """Return the types of the operands as the function for a block takes them."""
        rank = len(self.attention.indices)
        types: list[DistType] = []
        for number, (x, dim) in enumerate(zip(self.types, self.dims, strict=True)):
            if dim is not None:
                x = self.form.type(x, dim)
                missing = rank + 1 - len(x.dims) if number > 2 else 0
                x = replace(x, dims=(x.dims[0], *[Dim(1)] * missing, *x.dims[1:]))
            types.append(x)
        return types

    def run(self) -> FuncOp:
        module = module_of(self.outer)
        of_block = self._added(module, "attend", *self.block.written(self.mesh))
        of_ring = self._added(module, "ring_attention", *self._written(of_block))
        self._call(of_ring)
        return of_ring

    def _added(self, module: ModuleOp, name: str, body: Block, results: list[SSAValue]) -> FuncOp:
        """Add a function in front of the one with the attention.

        It has the parameters of that function that occur in its own sizes.
        """
        body.add_op(ReturnOp(*results))
        types = FunctionType.from_lists(
            [arg.type for arg in body.args], [value.type for value in results]
        )
        function = FuncOp(unused_symbol(module, name), types, Region(body))
        function.attributes = shared_attributes(self.outer)
        function.location = self.attention.softmax.location
        block = self.outer.parent_block()
        assert block is not None
        block.insert_op_before(function, self.outer)
        keep_used_parameters(function, parameters_of(self.outer))
        return function

    # --- the loop -----------------------------------------------------------------------------

    def _written(self, of_block: FuncOp) -> tuple[Block, list[SSAValue]]:
        """Return the body of the function that goes around the ring, and its results."""
        block = Block(arg_types=[DistTensorType(x) for x in self.types])
        for old, new in zip(self.inputs, block.args, strict=True):
            set_name(new, old.name_hint)
        steps = self._steps(block)
        divided = list[SSAValue](block.args)
        for number, (x, dim) in enumerate(zip(self.block.types, self.dims, strict=True)):
            if dim is not None:
                value = self.form.divided(steps, divided[number], dim)
                if not same_size(dist_type(value).shape, x.shape):
                    value = steps.step("reshape", (value,), {"shape": x.shape})
                set_name(value, block.args[number].name_hint)
                divided[number] = value
        running = [steps.constant(x, value) for x, value in self.block.initial()]
        for value, name in zip(running, _RUNNING, strict=True):
            set_name(value, name)
        running, last = self._around(steps, of_block, divided, running)
        _, total, result = self._attend(steps, of_block, last, running, self._last_number(steps))
        return block, [self._ended(steps, total, result)]

    def _steps(self, block: Block) -> BlockSteps:
        steps = BlockSteps(self.mesh, block)
        steps.location = self.attention.softmax.location
        return steps

    def _numbered(self) -> bool:
        return self.block.counts_keys

    def _last_number(self, steps: BlockSteps) -> list[SSAValue]:
        x = DistType.make(DType.I32, ())
        return [steps.constant(x, self.form.count - 1)] if self._numbered() else []

    def _around(
        self, steps: BlockSteps, of_block: FuncOp, divided: list[SSAValue], running: list[SSAValue]
    ) -> tuple[list[SSAValue], list[SSAValue]]:
        """Add the loop over all blocks but the last; return the running values, and the last
        operands."""
        times = self.form.count - 1
        carried = [divided[n] for n in self.travels] + running
        fixed = [n for n in range(len(divided)) if n not in self.travels]
        numbers: list[SSAValue] = []
        if self._numbered():
            to = DistType.make(DType.I32, (times,))
            numbers.append(steps.step("iota", (), {"dim": 0, "to": to}))
        scalar = [DistTensorType(DistType.make(DType.I32, ()))] * len(numbers)
        kept = [divided[n] for n in fixed]
        types = [*(x.type for x in carried), *scalar, *(x.type for x in kept)]
        body = Block(arg_types=types)
        named = [*carried, *numbers, *kept]
        for old, new in zip(named, body.args, strict=True):
            set_name(new, old.name_hint)
        args = list[SSAValue](body.args)
        inner = self._steps(body)
        moving, here = args[: len(self.travels)], args[len(self.travels) : len(carried)]
        ring: dict[str, Any] = {"axes": self.form.axes, "distance": 1, "async": True}
        nexts = [inner.step(SHIFT.name, (value,), ring) for value in moving]
        operands = dict(zip(self.travels, moving, strict=True))
        operands |= zip(fixed, args[len(carried) + len(numbers) :], strict=True)
        number = args[len(carried) : len(carried) + len(numbers)]
        ordered = [operands[n] for n in range(len(divided))]
        here = self._attend(inner, of_block, ordered, here, number)
        body.add_op(YieldOp.create(operands=[*nexts, *here]))
        loop = RepeatOp.of(self.mesh, times, [carried, numbers, kept], body, recompute=True)
        steps.add(loop)
        results = list[SSAValue](loop.results)
        for old, new in zip(carried, results, strict=True):
            set_name(new, old.name_hint)
        last = list(divided)
        for n, value in zip(self.travels, results, strict=False):
            last[n] = value
        return results[len(self.travels) :], last

    def _attend(
        self,
        steps: BlockSteps,
        of_block: FuncOp,
        operands: Sequence[SSAValue],
        running: Sequence[SSAValue],
        number: Sequence[SSAValue],
    ) -> list[SSAValue]:
        """Add a call of the function for a block, and return the running values."""
        call = CallOp.of(
            self.mesh,
            Signature.of(of_block),
            [*operands, *running, *number],
            bindings_to_equal(of_block),
            recompute=not self.fused,
            fused=self.fused,
        )
        steps.add(call)
        for result, name in zip(call.results, _RUNNING, strict=True):
            set_name(result, name)
        return list(call.results)

    def _ended(self, steps: BlockSteps, total: SSAValue, result: SSAValue) -> SSAValue:
        """Add the steps that divide the sum by the sum of the shares, and join the blocks."""
        attention, names = self.attention, self.form.names
        of_sums = [i for i in attention.indices if i != attention.key_index]
        of_result = attention.of_values[1]
        unit = steps.constant(DistType(dist_type(total).dtype, ()), 1)
        inverse = steps.step("div", (unit, total), {})
        text = f"{names(of_result)}, {names(of_sums)} -> {names(of_result)}"
        value = steps.step("einsum", (result, inverse), {"equation": text})
        to = dist_type(attention.values.result).dtype
        if dist_type(value).dtype != to:
            value = steps.step("cast", (value,), {"dtype": str(to)})
        return self.form.joined(steps, value, of_result.index(attention.query_index))

    # --- the call -----------------------------------------------------------------------------

    def _call(self, of_ring: FuncOp) -> None:
        """Replace the attention by a call, and erase what is not needed any more."""
        attention = self.attention
        block, last = Block(), attention.values
        steps = self._steps(block)
        operands = [
            self._laid_out(steps, _in_layout(x, to), to)
            for x, to in zip(self.inputs, self.types, strict=True)
        ]
        call = CallOp.of(self.mesh, Signature.of(of_ring), operands, bindings_to_equal(of_ring))
        steps.add(call)
        result = self._laid_out(steps, call.results[0], dist_type(last.result))
        set_name(result, last.result.name_hint)
        parent = last.parent
        assert parent is not None
        for op in list(block.ops):
            op.detach()
            parent.insert_op_before(op, last)
        last.result.replace_all_uses_with(result)
        _erase(attention)

    def _laid_out(self, steps: BlockSteps, value: SSAValue, to: DistType) -> SSAValue:
        if self.requests and not dist_type(value).agrees(to):
            return steps.step(REDISTRIBUTE.name, (value,), {"to": to})
        return steps.laid_out(value, to)


_RUNNING = ("largest", "total", "sum")
"""The names of the running values: the largest score, the sum of shares, and the result so far."""


def _in_layout(value: SSAValue, to: DistType) -> SSAValue:
    """Return a value from before it left a layout, if it had that; else itself."""
    source = value
    while not dist_type(source).agrees(to):
        op = source.owner
        if not isinstance(op, DistOp) or not op.kind.layout_only:
            return value
        source = op.input
    return source


def _erase(attention: Attention) -> None:
    """Erase the steps of attention, and earlier steps that only these needed."""
    block = attention.values.parent
    assert block is not None
    needed: dict[Operation, None] = {}
    pending: list[Operation] = [attention.values]
    while pending:
        op = pending.pop()
        needed[op] = None
        owners = (x.owner for x in op.operands)
        pending += (x for x in owners if isinstance(x, DistOp) and x not in needed)
    for op in reversed(list(block.ops)):
        if op in needed and all(not result.uses.get_length() for result in op.results):
            block.erase_op(op)
