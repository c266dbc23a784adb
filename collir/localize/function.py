"""The lowering of one function: its values in buffers, its steps in order."""

from collections.abc import Iterable, Sequence

from xdsl.dialects.builtin import StringAttr, UnitAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Region, SSAValue

from collir.dialects.local import STEP, ComputeOp, CopyOp, LocalCallOp, LocalRepeatOp
from collir.dialects.local_types import BufferType, RankNumberAttr, buffer_of
from collir.dialects.nested import CallOp, RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.buffers import plan_buffers
from collir.ir.names import set_name
from collir.layout.local import LocalBuffer, Ranks
from collir.localize import collectives, steps
from collir.localize.blocks import local_buffer, rank_number
from collir.localize.writer import GroupRules, LocalWriter, Steps
from collir.syntax.step_writer import call_text, repeat_text, step_text
from collir.transforms.loops.bodies import as_function


class BlockLowering:
    """The lowering of a function, or of the body of a loop, into a block."""

    def __init__(
        self,
        function: FuncOp,
        ranks: Ranks,
        block: Block,
        inputs: Sequence[SSAValue],
        outputs: Sequence[SSAValue],
        rules: GroupRules,
    ):
        """Set up the lowering.

        Args:
            inputs: the buffers of the arguments.
            outputs: the buffers that the results are written to.
        """
        self.function, self.mesh, self.outputs = function, ranks.mesh, outputs
        self.writer = LocalWriter(ranks, block, rules)
        self.plan = plan_buffers(function)
        self.memory: dict[SSAValue, SSAValue] = dict(zip(function.args, inputs, strict=True))

    def run(self) -> None:
        """Write all operations."""
        for op in self.function.body.ops:
            if isinstance(op, RepeatOp):
                self._loop(op)
            elif isinstance(op, CallOp):
                self._call(op)
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
        x = dist_type(value)
        return self.writer.view(whole, local_buffer(x, self.mesh), start, x.place)

    def _place(self, value: SSAValue) -> tuple[SSAValue, int]:
        """Return the memory that a value lies in, and its start there, in elements."""
        owner, start = self.plan.owner[value], rank_number(self.mesh, self.plan.offset[value])
        if owner in self.plan.part_of:
            whole, begin = self.plan.part_of[owner]
            memory, outer = self._place(whole)
            return memory, outer + rank_number(self.mesh, begin) + start
        return self._of_owner(owner), start

    def _of_owner(self, owner: SSAValue) -> SSAValue:
        if owner not in self.memory:
            index = self.plan.result_of.get(owner)
            x = dist_type(owner)
            self.memory[owner] = (
                self.writer.alloc(
                    local_buffer(x, self.mesh), x.place, _hint(self.plan.names[owner])
                )
                if index is None
                else self.outputs[index]
            )
        return self.memory[owner]

    def _begin(self, value: SSAValue, within: SSAValue) -> int | None:
        """Return the start of a value in the memory of another one; None if it is not there."""
        memory, start = self._place(value)
        other, begin = self._place(within)
        return start - begin if memory is other else None

    # --- steps --------------------------------------------------------------------------------

    def _step(self, op: DistOp) -> None:
        if self.plan.is_view(op):
            if op.kind.computes:
                place, arguments = dist_type(op.result).place, steps.localised(op)
                held = [x for x in op.operands if {*dist_type(x).place} <= {*place}]
                work = ComputeOp.of(op.mnemonic, arguments, self._of_all(held), [])
                self._run(op, [(place, [work])])
            return
        inputs, output = self._of_all(op.operands), self.of(op.result)
        if op.kind.sends:
            waits, text = not op.is_async, self._written(op)
            collectives.start(op, inputs[0], output, self.writer, waits, text)
            return
        held = [self._begin(x, op.result) for x in op.operands]
        step = steps.BufferedStep(op, self.mesh, self.writer, inputs, output, held)
        self._run(op, steps.lowered(step))

    def _run(self, op: DistOp, parts: Steps) -> None:
        """Write the operations of a step, at its position."""
        for part in (x for _, ops in parts for x in ops):
            part.location = op.location
        self.writer.run(parts, self._written(op))

    def _call(self, op: CallOp) -> None:
        callee = op.function()
        assert callee is not None
        call = LocalCallOp.of(op.symbol, self._of_all(op.operands), self._of_all(op.results))
        self.writer.run([(op.place(callee), [call])], self._written(op))

    def _of_all(self, values: Sequence[SSAValue]) -> list[SSAValue]:
        return [self.of(x) for x in values]

    def _written(self, op: DistOp | CallOp | RepeatOp) -> str:
        """Return the text of a step in ``.coll``."""

        def listed(values: Iterable[SSAValue]) -> str:
            return ", ".join(f"%{self.plan.names[value]}" for value in values)

        match op:
            case DistOp():
                text = step_text(op, self.mesh, listed(op.operands))
            case CallOp():
                text = call_text(op, listed(op.operands), "")
            case RepeatOp():
                inside = iter(op.body.block.args)
                text = repeat_text(
                    op,
                    *(
                        ", ".join(f"{listed([next(inside)])} = {listed([x])}" for x in values)
                        for values in (op.carried, op.sliced, op.invariant)
                    ),
                )
        return f"{listed(op.results)} = {text}"

    # --- loops --------------------------------------------------------------------------------

    def _loop(self, op: RepeatOp) -> None:
        self.writer.wait_for_all()
        carries, times = len(op.carried), rank_number(self.mesh, op.times)
        begins, ends = self._of_all(op.carried), self._of_all(op.results[:carries])
        spares = [
            end if times == 1 else self.of(kept) if kept else self._spare(result)
            for kept, end, result in zip(self.plan.spares(op), ends, op.results, strict=False)
        ]
        read, written = self._of_all(op.sliced), self._of_all(op.results[carries:])
        stacks = [*read, *written]
        kinds = [buffer_of(x) for x in begins for _ in range(2)]
        kinds += [LocalBuffer(x.dtype, x.shape[1:]) for x in map(buffer_of, stacks)]
        body = Block(arg_types=[BufferType(x) for x in kinds])
        now, after = body.args[: 2 * carries : 2], body.args[1 : 2 * carries : 2]
        rows = body.args[2 * carries :]
        with as_function(op) as function:
            inputs = [*now, *rows[: len(read)], *self._of_all(op.invariant)]
            outputs = [*after, *rows[len(read) :]]
            inner = BlockLowering(
                function, self.writer.ranks, body, inputs, outputs, self.writer.rules
            )
            for buffers, values in ((inputs, function.args), (outputs, inner.plan.returned)):
                for buffer, value in zip(buffers, values, strict=True):
                    if buffer.owner is body:
                        set_name(buffer, _hint(inner.plan.names[value]))
            inner.run()
        properties: dict[str, Attribute] = {"times": RankNumberAttr(times)}
        if op.is_reverse:
            properties["reverse"] = UnitAttr()
        repeat = LocalRepeatOp.build(
            operands=[begins, ends, spares, stacks], properties=properties, regions=[Region(body)]
        )
        repeat.attributes[STEP] = StringAttr(self._written(op))
        self.writer.add(repeat)

    def _spare(self, result: SSAValue) -> SSAValue:
        x, name = dist_type(result), self.plan.names[result]
        hint = None if name.isdigit() else f"{name}_spare"
        return self.writer.alloc(local_buffer(x, self.mesh), x.place, hint)


def _hint(name: str) -> str | None:
    return None if name.isdigit() else name
