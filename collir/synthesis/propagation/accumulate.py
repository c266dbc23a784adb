"""Sums over the iterations of a loop that stay partial, and are reduced once behind it.

A carry to which each iteration adds a reduced value, as the gradients of microbatches are added up,
or those of a weight that all iterations use, may as well be partial itself. Every step from the
reduction to the carry has to take its operand partial, which its typing rule says, and nothing else
may use these values. A reduction that scatters stays where it is: partial, the carry would be
larger on a device.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from collir.dialects.machine import mesh_of
from collir.dialects.nested import RepeatOp, YieldOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import DistTensorType, dist_type
from collir.ir.names import set_name
from collir.ir.renaming import set_type
from collir.ir.roles import pass_role
from collir.ir.steps import step_op
from collir.layout import DistType, LayoutError, Mesh
from collir.layout.coll import MASK, step_between
from collir.layout.loops import stack_type
from collir.layout.steps import OVER, Argument, StepKind

_REDUCTION = step_between("partial", "replicated")


def reduce_behind_loops(function: FuncOp) -> None:
    """Reduce what loops add up once behind them, if less is sent so, in place."""
    mesh = mesh_of(function)
    loops = [op for op in function.walk() if isinstance(op, RepeatOp)]
    for loop in sorted(loops, key=_depth, reverse=True):
        behind: Operation = loop
        for number in range(len(loop.carried)):
            accumulation = _Accumulation.of(mesh, loop, number)
            if accumulation is not None and accumulation.is_smaller():
                behind = accumulation.apply(behind)


def _depth(op: Operation) -> int:
    parent = op.parent_op()
    return 0 if parent is None else 1 + _depth(parent)


@dataclass
class _Accumulation:
    """A carry of a loop that may be partial.

    Attributes:
        number: the number of the carry.
        reductions: the reductions inside, each with the times that it runs.
        types: the types of the values that are partial then.
    """

    mesh: Mesh
    loop: RepeatOp
    number: int
    reductions: list[tuple[DistOp, int]] = field(default_factory=list[tuple[DistOp, int]])
    types: dict[SSAValue, DistType] = field(default_factory=dict[SSAValue, DistType])

    @staticmethod
    def of(mesh: Mesh, loop: RepeatOp, number: int) -> "_Accumulation | None":
        """Return what there is to reduce behind a loop in one of its carries, if there is."""
        accumulation = _Accumulation(mesh, loop, number)
        try:
            return accumulation if accumulation._reaches() else None
        except LayoutError:
            return None

    def _reaches(self) -> bool:
        """Find the reductions inside, and return whether their partial sums reach the carry.

        Raises:
            LayoutError: a step needs a value reduced.
        """
        steps = self._steps()
        values = {step.result for step in steps} | {self.carry}
        for step in steps:
            for operand in (x for x in step.operands if x not in values):
                _ = self._find(operand, self.loop.times)
        partial = {dist_type(op.input) for op, _ in self.reductions}
        reduced = {(x.partial, x.reduction) for x in partial}
        if len(reduced) != 1:
            return False
        own, (axes, reduction) = dist_type(self.carry), reduced.pop()
        self.types[self.carry] = replace(own, partial=axes, reduction=reduction)
        for step in steps:
            self._retype(step)
        self._masked().erase()
        return not own.partial and self.types[steps[-1].result] == self.types[self.carry]

    @property
    def carry(self) -> BlockArgument:
        return self.loop.carries[self.number]

    def _steps(self) -> list[DistOp]:
        """Return the steps that lead from the carry to its next value, if nothing else uses it."""
        steps: list[DistOp] = []
        value: SSAValue = self.carry
        while (use := value.get_user_of_unique_use()) is not None:
            if isinstance(use, YieldOp):
                return steps if use.operands[self.number] is value else []
            if not isinstance(use, DistOp) or use.kind.sends:
                break
            steps.append(use)
            value = use.result
        return []

    def _find(self, value: SSAValue, times: int) -> bool:
        """Find the reduction behind a value that nothing else uses, and type the values that are
        partial without it; return whether there is one.

        Raises:
            LayoutError: a step needs the value reduced.
        """
        if not isinstance(value, OpResult) or value.get_user_of_unique_use() is None:
            return False
        op = value.op
        if isinstance(op, RepeatOp):
            inner = op.yielded[value.index]
            if value.index < len(op.carried) or not self._find(inner, times * op.times):
                return False
            self.types[value] = stack_type(self.mesh, self.types[inner], op.times)
            return True
        if not isinstance(op, DistOp):
            return False
        if op.kind is _REDUCTION:
            self.reductions.append((op, times))
            self.types[value] = dist_type(op.input)
            return True
        found = [self._find(operand, times) for operand in op.operands]
        if op.kind.sends or not any(found):
            return False
        self._retype(op)
        return True

    def _retype(self, op: DistOp) -> None:
        """Type the result of a step whose operands are partial.

        Raises:
            LayoutError: they have to be reduced.
        """
        types = [self.types.get(operand, dist_type(operand)) for operand in op.operands]
        self.types[op.result] = op.result_type(self.mesh, types, op.properties)

    def is_smaller(self) -> bool:
        """Return whether one reduction behind the loop sends less than those inside."""
        sent = sum(
            dist_type(op.input).local_bytes(self.mesh) * times for op, times in self.reductions
        )
        return dist_type(self.carry).local_bytes(self.mesh) < sent

    def apply(self, behind: Operation) -> Operation:
        """Take the reductions away, and put one behind an operation; return it."""
        x = self.types[self.carry]
        for op, _ in self.reductions:
            del self.types[op.result]
            pass_role(op.result, op.input)
            op.result.replace_all_uses_with(op.input)
            op.detach()
            op.erase()
        for value, partial in self.types.items():
            set_type(value, DistTensorType(partial))
        block, masked = self.loop.parent_block(), self._masked()
        assert block is not None
        block.insert_op_before(masked, self.loop)
        self.loop.operands[self.number] = masked.result
        result = self.loop.results[self.number]
        set_type(result, DistTensorType(x))
        assert _REDUCTION is not None
        reduced = self._step(_REDUCTION, result, {OVER.name: self.mesh.ordered(x.partial)})
        block.insert_op_after(reduced, behind)
        result.replace_uses_with_if(reduced.result, lambda use: use.operation is not reduced)
        set_name(reduced.result, result.name_hint)
        pass_role(result, reduced.result)
        return reduced

    def _masked(self) -> DistOp:
        """Return the step that makes the parts that the sum starts with.

        Raises:
            LayoutError: the reduction has no neutral element.
        """
        x = self.types[self.carry]
        arguments = {OVER.name: self.mesh.ordered(x.partial), "reduction": str(x.reduction)}
        return self._step(MASK, self.loop.carried[self.number], arguments)

    def _step(self, kind: StepKind, value: SSAValue, arguments: Mapping[str, Argument]) -> DistOp:
        """Return a step on a value, at the position of the loop."""
        op = step_op(self.mesh, kind, [value], **arguments)
        op.location = self.loop.location
        return op
