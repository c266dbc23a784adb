"""The lowering of one function: its values in buffers, its steps in order."""

from collections.abc import Sequence

from xdsl.dialects.builtin import UnitAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, Region, SSAValue

from collir.dialects.local import ComputeOp, CopyOp, LocalRepeatOp, number
from collir.dialects.local_types import BufferType, buffer_of
from collir.dialects.nested import RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.buffers import plan_buffers
from collir.ir.loops import as_function
from collir.layout import Mesh
from collir.layout.local import LocalBuffer
from collir.localize import collectives, steps
from collir.localize.blocks import local_buffer
from collir.localize.writer import Writer


class Function:
    """The lowering of a function, or of the body of a loop, into a block."""

    def __init__(
        self,
        function: FuncOp,
        mesh: Mesh,
        block: Block,
        inputs: Sequence[SSAValue],
        outputs: Sequence[SSAValue],
    ):
        """Set up the lowering.

        Args:
            inputs: the buffers of the arguments.
            outputs: those that the results are written to.
        """
        self.function, self.mesh, self.outputs = function, mesh, outputs
        self.writer = Writer(mesh, block)
        self.plan = plan_buffers(function)
        self.memory: dict[SSAValue, SSAValue] = dict(zip(function.args, inputs, strict=True))

    def run(self) -> None:
        """Write all operations."""
        for op in self.function.body.ops:
            if isinstance(op, RepeatOp):
                self._loop(op)
            elif isinstance(op, DistOp):
                self._step(op)
        self.writer.wait_for_all()
        for index, value in enumerate(self.plan.returned):
            if self.plan.result_of.get(self.plan.owner[value]) != index:
                copy = CopyOp.of(self.of(value), self.outputs[index])
                self.writer.run([(dist_type(value).place, [copy])])

    # --- where values lie ---------------------------------------------------------------------

    def of(self, value: SSAValue) -> SSAValue:
        """Return the buffer of a value."""
        whole, start = self._place(value)
        return self.writer.view(whole, local_buffer(dist_type(value), self.mesh), start)

    def _place(self, value: SSAValue) -> tuple[SSAValue, int]:
        """Return the memory that a value lies in, and where it starts there, in elements."""
        owner, start = self.plan.owner[value], self.plan.offset[value]
        if owner in self.plan.part_of:
            whole, begin = self.plan.part_of[owner]
            memory, outer = self._place(whole)
            return memory, outer + begin + start
        return self._of_owner(owner), int(start)

    def _of_owner(self, owner: SSAValue) -> SSAValue:
        if owner not in self.memory:
            index = self.plan.result_of.get(owner)
            x = dist_type(owner)
            self.memory[owner] = (
                self.writer.alloc(local_buffer(x, self.mesh), x.place)
                if index is None
                else self.outputs[index]
            )
        return self.memory[owner]

    def _begin(self, value: SSAValue, within: SSAValue) -> int | None:
        """Return where a value begins in the memory of another one, if it lies there."""
        memory, start = self._place(value)
        other, begin = self._place(within)
        return start - begin if memory is other else None

    # --- steps --------------------------------------------------------------------------------

    def _step(self, op: DistOp) -> None:
        if self.plan.is_view(op):
            if op.kind.computes:
                place, arguments = dist_type(op.result).place, steps.localised(op, self.mesh)
                held = [x for x in op.operands if {*dist_type(x).place} <= {*place}]
                work = ComputeOp.of(op.mnemonic, arguments, [self.of(x) for x in held], [])
                self.writer.run([(place, [work])])
            return
        inputs, output = self._inputs(op), self.of(op.result)
        if op.kind.sends:
            collectives.start(op, inputs[0], output, self.writer, not op.is_async)
            return
        held = [self._begin(x, op.result) for x in op.operands]
        step = steps.BufferedStep(op, self.mesh, self.writer, inputs, output, held)
        self.writer.run(steps.lowered(step))

    def _inputs(self, op: Operation) -> list[SSAValue]:
        return [self.of(x) for x in op.operands]

    # --- loops --------------------------------------------------------------------------------

    def _loop(self, op: RepeatOp) -> None:
        self.writer.wait_for_all()
        carries, times = len(op.carried), int(op.times)
        begins = [self.of(x) for x in op.carried]
        ends = [self.of(x) for x in op.results[:carries]]
        spares = [
            end if times == 1 else self.of(kept) if kept else self._spare(result)
            for kept, end, result in zip(self.plan.spares(op), ends, op.results, strict=False)
        ]
        read = [self.of(x) for x in op.sliced]
        written = [self.of(x) for x in op.results[carries:]]
        stacks = [*read, *written]
        kinds = [buffer_of(x) for x in begins for _ in range(2)]
        kinds += [LocalBuffer(x.dtype, x.shape[1:]) for x in map(buffer_of, stacks)]
        body = Block(arg_types=[BufferType(x) for x in kinds])
        now, after = body.args[: 2 * carries : 2], body.args[1 : 2 * carries : 2]
        rows = body.args[2 * carries :]
        invariant = [self.of(x) for x in op.invariant]
        with as_function(op) as function:
            inputs = [*now, *rows[: len(read)], *invariant]
            Function(function, self.mesh, body, inputs, [*after, *rows[len(read) :]]).run()
        properties = {"times": number(times)} | ({"reverse": UnitAttr()} if op.is_reverse else {})
        repeat = LocalRepeatOp.build(
            operands=[begins, ends, spares, stacks], properties=properties, regions=[Region(body)]
        )
        self.writer.add(repeat)

    def _spare(self, result: SSAValue) -> SSAValue:
        x = dist_type(result)
        return self.writer.alloc(local_buffer(x, self.mesh), x.place)
