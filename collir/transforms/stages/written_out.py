"""Pipelines written out: the tasks and sends of all microbatches, one after the other."""

from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Operation, SSAValue

from collir.dialects.machine import function_of
from collir.dialects.nested import RepeatOp
from collir.dialects.operation import DistOp
from collir.ir.names import set_name
from collir.ir.pipelines import Pipeline, moves_values
from collir.ir.retyping import fix_parameters
from collir.ir.roles import pass_role
from collir.layout.pipelines.schedule import program_order
from collir.layout.sizes import formula_of
from collir.layout.steps import ASYNC
from collir.transforms.loops.unrolling import StepsBefore


class _WrittenOut(StepsBefore):
    """The tasks and sends of all microbatches of a pipeline, put in front of its loop."""

    def __init__(self, pipeline: Pipeline):
        super().__init__(pipeline.loop)
        self.pipeline = pipeline
        op = self.op
        fixed = zip(
            op.body.block.args[len(op.carried) + len(op.sliced) :], op.invariant, strict=True
        )
        self.carried: dict[SSAValue, SSAValue] = dict(zip(op.carries, op.carried, strict=True))
        self.values: list[dict[SSAValue, SSAValue]] = [dict(fixed)]
        self.values += [dict(self.values[0]) for _ in range(op.times - 1)]
        self.next = dict(zip(op.yielded[: len(op.carried)], op.carries, strict=True))
        sliced = op.body.block.args[len(op.carried) : len(op.carried) + len(op.sliced)]
        self.stacks: dict[SSAValue, SSAValue] = dict(zip(sliced, op.sliced, strict=True))
        self.moves = [inner for inner in op.body.block.ops if moves_values(inner)]

    def run(self) -> None:
        """Put the steps in front of the loop, and erase it."""
        op = self.op
        for task in program_order(self.pipeline.schedule, self.pipeline.graph):
            call = self.pipeline.tasks[task.part]
            self._add(call, task.microbatch)
            for move in self.moves:
                if (
                    move.operands[0] in call.results
                    or move.operands[0] in self.values[task.microbatch]
                ):
                    self._add(move, task.microbatch)
        stacks = [
            self.stack({number: values[value] for number, values in enumerate(self.values)})
            for value in op.yielded[len(op.carried) :]
        ]
        results = [*(self.carried[carry] for carry in op.carries), *stacks]
        for result, value in zip(op.results, results, strict=True):
            set_name(value, result.name_hint or value.name_hint)
            pass_role(result, value)
            result.replace_all_uses_with(value)
        assert op.parent is not None
        op.parent.erase_op(op)

    def _value(self, value: SSAValue, microbatch: int) -> SSAValue:
        """Return a value of a microbatch, and add the steps that compute it if they are missing."""
        known = self.values[microbatch]
        if value in self.carried:
            return self.carried[value]
        if value not in known:
            if value in self.stacks:
                known[value] = self.slice(self.stacks[value], microbatch)
            else:
                assert isinstance(value.owner, Operation)
                self._add(value.owner, microbatch)
        return known[value]

    def _add(self, op: Operation, microbatch: int) -> None:
        """Add an operation of the body for a microbatch, if it is not there yet."""
        known = self.values[microbatch]
        if op.results[0] in known:
            return
        inputs = {value: self._value(value, microbatch) for value in op.operands}
        copy = op.clone(dict(inputs))
        self.insert(copy)
        if isinstance(copy, DistOp) and copy.kind.sends:
            copy.properties[ASYNC.name] = UnitAttr()
        known |= zip(op.results, copy.results, strict=True)
        for result in op.results:
            if result in self.next:
                self.carried[self.next[result]] = known[result]


def write_out(loop: RepeatOp) -> None:
    """Put the tasks and sends of all microbatches in the place of a loop with a schedule.

    They are in an order that agrees with the order of each place; sends are ``async``. If the
    number of microbatches is a formula, its parameters get the values that they have.
    """
    function = function_of(loop)
    assert function is not None
    fix_parameters(function, formula_of(loop.times).parameters)
    _WrittenOut(Pipeline.of(loop)).run()
