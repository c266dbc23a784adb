"""Sums over the iterations of a loop that stay partial, and are reduced once behind it.

Each iteration may add a reduced value to a carry, such as the gradient of a microbatch, or of a
weight that all iterations use. Then the carry may be partial instead. By its typing rule, every
step from the reduction to the carry has to take a partial operand, and nothing else may use these
values. A reduction that scatters stays where it is unless it is asked for: partial, the carry is
larger on a device.
"""

from collections.abc import Sequence
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
from collir.layout import Dim, DistType, LayoutError, Mesh
from collir.layout.coll import MASK, step_between
from collir.layout.loops import stack_type
from collir.layout.nn import CONSTANT
from collir.layout.steps import DIM, OVER, Argument, StepKind

_REDUCTION = step_between("partial", "replicated")
_SCATTERING = step_between("partial", "sharded")


def reduce_behind_loops(function: FuncOp, scatters: bool = False) -> None:
    """Reduce the sums of loops once behind them, in place, unless that sends more.

    Args:
        scatters: whether all reductions are taken behind loops, those that scatter too.
    """
    kinds = (_REDUCTION, _SCATTERING) if scatters else (_REDUCTION,)
    mesh = mesh_of(function)
    loops = [op for op in function.walk() if isinstance(op, RepeatOp)]
    for loop in sorted(loops, key=_depth, reverse=True):
        last: Operation = loop
        for number in range(len(loop.carried)):
            before = last
            while accumulation := _Accumulation.of(mesh, loop, number, kinds):
                behind = accumulation.apply(before)
                last = behind if last is before else last


def _depth(op: Operation) -> int:
    parent = op.parent_op()
    return 0 if parent is None else 1 + _depth(parent)


@dataclass
class _Accumulation:
    """A carry of a loop that may be partial.

    Attributes:
        number: the number of the carry.
        kinds: the kinds of reductions that may go behind the loop.
        reductions: the reductions inside, each with the times that it runs.
        types: the types of the values that become partial.
        behind: the steps behind the loop that reduce the sum, by kind and arguments.
    """

    mesh: Mesh
    loop: RepeatOp
    number: int
    kinds: Sequence[StepKind | None]
    reductions: list[tuple[DistOp, int]] = field(default_factory=list[tuple[DistOp, int]])
    types: dict[SSAValue, DistType] = field(default_factory=dict[SSAValue, DistType])
    behind: Sequence[tuple[StepKind, dict[str, Argument]]] = ()

    @staticmethod
    def of(
        mesh: Mesh, loop: RepeatOp, number: int, kinds: Sequence[StepKind | None]
    ) -> "_Accumulation | None":
        """Return the accumulation in a carry of a loop; None if nothing is reduced."""
        accumulation = _Accumulation(mesh, loop, number, kinds)
        try:
            reaches = accumulation._reaches()
            asked = _SCATTERING in kinds
            return accumulation if reaches and (asked or accumulation._is_smaller()) else None
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
        types = [dist_type(op.input) for op, _ in self.reductions]
        reduced = {(x.partial, x.reduction) for x in types}
        if len(reduced) != 1:
            return False
        own, (axes, reduction) = dist_type(self.carry), reduced.pop()
        if own.partial and own.reduction != reduction:
            return False
        dims = tuple(Dim(d.size, tuple(a for a in d.axes if a not in axes)) for d in own.dims)
        whole = replace(own, dims=dims, partial=axes | own.partial, reduction=reduction)
        self.types[self.carry] = whole
        for step in steps:
            self._retype(step)
        self.behind = self._behind(own)
        for op in reversed(self._start()):
            op.erase()
        return self.types[steps[-1].result] == whole

    @property
    def carry(self) -> BlockArgument:
        return self.loop.carries[self.number]

    def _steps(self) -> list[DistOp]:
        """Return the steps from the carry to its next value, if nothing else uses it."""
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
        if op.kind in self.kinds:
            self.reductions.append((op, times))
            self.types[value] = dist_type(op.input)
            return True
        by_operand = [self._find(operand, times) for operand in op.operands]
        if op.kind.sends or not any(by_operand):
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

    def _is_smaller(self) -> bool:
        """Return whether one reduction behind the loop sends no more than those inside."""
        sent = sum(
            dist_type(op.input).local_bytes(self.mesh) * times for op, times in self.reductions
        )
        return self.loop.times > 1 and self.types[self.carry].local_bytes(self.mesh) <= sent

    def apply(self, behind: Operation) -> Operation:
        """Take the reductions away, put the steps that reduce the sum behind an operation, and
        return the last of these."""
        x = self.types[self.carry]
        for op, _ in self.reductions:
            del self.types[op.result]
            pass_role(op.result, op.input)
            op.result.replace_all_uses_with(op.input)
            op.detach()
            op.erase()
        for value, partial in self.types.items():
            set_type(value, DistTensorType(partial))
        block, start = self.loop.parent_block(), self._start()
        assert block is not None
        block.insert_ops_before(start, self.loop)
        before = self.loop.carried[self.number].owner
        self.loop.operands[self.number] = start[-1].result
        while isinstance(before, DistOp) and before.kind in (MASK, CONSTANT):
            operand = before.operands[0].owner if before.operands else None
            if before.result.uses:
                break
            block.erase_op(before)
            before = operand
        result = self.loop.results[self.number]
        set_type(result, DistTensorType(x))
        uses, last = list(result.uses), result
        for kind, arguments in self.behind:
            op = self._step(kind, last, **arguments)
            block.insert_op_after(op, behind)
            behind, last = op, op.result
        for use in uses:
            use.operation.operands[use.index] = last
        set_name(last, result.name_hint)
        pass_role(result, last)
        return behind

    def _start(self) -> list[DistOp]:
        """Return the steps that make the parts of the initial sum.

        Raises:
            LayoutError: the reduction has no neutral element, or the sum starts with blocks.
        """
        x, start = self.types[self.carry], self.loop.carried[self.number]
        steps: list[DistOp] = []
        if isinstance(start.owner, DistOp) and start.owner.kind is MASK:
            start = start.owner.input  # of the parts of a reduction that is behind the loop already
        if dist_type(start).dims != x.dims:
            if not (isinstance(start.owner, DistOp) and start.owner.kind is CONSTANT):
                raise LayoutError("the sum starts with blocks")
            whole = replace(dist_type(start), dims=x.dims)
            steps.append(self._step(CONSTANT, value=start.owner.number("value"), to=whole))
            start = steps[0].result
        over = self.mesh.ordered(x.partial)
        return [*steps, self._step(MASK, start, axes=over, reduction=str(x.reduction))]

    def _behind(self, own: DistType) -> list[tuple[StepKind, dict[str, Argument]]]:
        """Return the steps that reduce the sum to a type.

        Raises:
            LayoutError: its blocks are in another order than those of a reduction.
        """
        whole = self.types[self.carry]
        left = whole.partial - own.partial
        steps: list[tuple[StepKind, dict[str, Argument]]] = []
        for number, (dim, before) in enumerate(zip(own.dims, whole.dims, strict=True)):
            axes = dim.axes[len(before.axes) :]
            if axes:
                if dim.axes[: len(before.axes)] != before.axes or axes != self.mesh.ordered(axes):
                    raise LayoutError("the blocks are in another order")
                assert _SCATTERING is not None
                steps.append((_SCATTERING, {OVER.name: axes, DIM.name: number}))
                left = left.difference(axes)
        if left:
            assert _REDUCTION is not None
            steps.append((_REDUCTION, {OVER.name: self.mesh.ordered(left)}))
        return steps

    def _step(self, kind: StepKind, *operands: SSAValue, **arguments: Argument) -> DistOp:
        """Return a step on values, at the position of the loop."""
        op = step_op(self.mesh, kind, operands, **arguments)
        op.location = self.loop.location
        return op
