"""Loops unrolled: their iterations one after the other."""

from collections.abc import Mapping, Sequence

from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint

from collir.dialects.machine import function_of, mesh_of
from collir.dialects.nested import CallOp, RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.ahead import chain_ahead, start_early
from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position
from collir.ir.loops import MOST_STEPS, repeats_in
from collir.ir.names import set_name
from collir.ir.retyping import fix_parameters
from collir.ir.roles import pass_role
from collir.ir.steps import step_op
from collir.layout.coll import CONCAT, PAD, RESHAPE
from collir.layout.sizes import formula_of
from collir.layout.steps import Argument, StepKind


def unroll(op: RepeatOp, rewriter: PatternRewriter | None = None) -> None:
    """Put the iterations of a loop, one after the other, in its place.

    A slice is a ``pad`` that cuts the others off, and a ``reshape`` without the leading dimension.
    The values to stack get one by a ``reshape``, and become one value by a ``concat``. Steps that
    are ahead are ``async``, and stand in front of the iteration before. If the number of iterations
    is a formula, its parameters get the values that they have.
    """
    fix_parameters(_function_of(op), formula_of(op.times).parameters)
    _Unrolling(op, rewriter).run()


class StepsBefore:
    """Steps that are put in front of a loop, by a pattern or by a rewriter of their own."""

    def __init__(self, op: RepeatOp, rewriter: PatternRewriter | None = None):
        self.op, self.mesh = op, mesh_of(op)
        self.rewriter = rewriter or PatternRewriter(op)

    def insert(self, new: Operation) -> None:
        """Put an operation in front of the loop."""
        self.rewriter.insert(new, InsertPoint.before(self.op))

    def step(self, kind: StepKind, values: Sequence[SSAValue], **arguments: Argument) -> SSAValue:
        """Put a step in front of the loop, and return its result."""
        step = step_op(self.mesh, kind, values, **arguments)
        step.location = self.op.location
        self.insert(step)
        return step.result

    def slice(self, x: SSAValue, number: int) -> SSAValue:
        """Put the steps in front of the loop that cut out a slice of a stacked operand."""
        last = self.op.times - 1
        if last:
            x = self.step(PAD, [x], dim=0, low=-number, high=number - last, value=0.0)
        return self.step(RESHAPE, [x], shape=dist_type(x).shape[1:])

    def stack(self, values: Mapping[int, SSAValue]) -> SSAValue:
        """Put the steps in front of the loop that stack values by their numbers."""
        rows = [
            self.step(RESHAPE, [value], shape=(1, *dist_type(value).shape))
            for _, value in sorted(values.items())
        ]
        return self.step(CONCAT, rows, dim=0) if len(rows) > 1 else rows[0]


class _Unrolling(StepsBefore):
    """The iterations of one loop, put in front of it."""

    def run(self) -> None:
        op = self.op
        chain = chain_ahead(op)
        ahead = set[Operation](chain)
        rest = [inner for inner in list(op.body.block.ops)[:-1] if inner not in ahead]
        carried: list[SSAValue] = list(op.carried)
        stacks: list[dict[int, SSAValue]] = [{} for _ in op.yielded[len(carried) :]]
        started: list[dict[SSAValue, SSAValue]] = []
        for iteration, number in enumerate(op.order):
            until = iteration + 2 if chain else iteration + 1
            for following in op.order[len(started) : until]:
                started.append(self._started(following, chain))
            values = started[iteration]
            values |= zip(op.carries, carried, strict=True)
            for inner in rest:
                self.insert(inner.clone(values))
            yielded = [values[value] for value in op.yielded]
            carried = yielded[: len(carried)]
            for stack, value in zip(stacks, yielded[len(carried) :], strict=True):
                stack[number] = value
        results = [*carried, *map(self.stack, stacks)]
        for result, value in zip(op.results, results, strict=True):
            if value not in op.operands:
                set_name(value, result.name_hint or value.name_hint)
                pass_role(result, value)
        self.rewriter.replace(op, [], results)

    def _started(self, number: int, chain: Sequence[DistOp]) -> dict[SSAValue, SSAValue]:
        """Put the slices and ahead steps of an iteration in front of the loop; return them."""
        op = self.op
        inputs = [*(self.slice(x, number) for x in op.sliced), *op.invariant]
        arguments = op.body.block.args[len(op.carried) :]
        values: dict[SSAValue, SSAValue] = dict(zip(arguments, inputs, strict=True))
        for inner in chain:
            copy = inner.clone(values)
            self.insert(copy)
            start_early(copy)
        return values


def check_fixed_parameters(loops: Sequence[RepeatOp]) -> None:
    """Check that no call gives a value to a parameter that unrolling loops would fix.

    Raises:
        DiagnosticError: one diagnostic for each such call.
    """
    errors: list[Diagnostic] = []
    for function in dict.fromkeys(map(_function_of, loops)):
        own = (op for op in repeats_in(function) if op in loops)
        fixed = frozenset[str]().union(*(formula_of(op.times).parameters for op in own))
        module = function.parent_op()
        for call in (op for op in module.walk() if isinstance(op, CallOp)) if module else ():
            if call.symbol == function.sym_name.data and (names := fixed.intersection(call.values)):
                name = min(names)
                text = (
                    f"this call gives a value to '{name}', by which @{call.symbol} counts "
                    "iterations: put -p inline in front of unroll"
                )
                errors.append(Diagnostic(text, Position.of(call)))
    if errors:
        raise DiagnosticError(errors)


def check_length(loops: Sequence[RepeatOp]) -> None:
    """Check that loops, outer loops before those inside them, are not too long to be unrolled.

    Raises:
        DiagnosticError: a loop has more than ``MOST_STEPS`` steps in all its iterations.
    """
    steps: dict[Operation, int] = {}
    for loop in reversed(loops):
        steps[loop] = loop.times * sum(steps.get(op, 1) for op in loop.body.block.ops)
        if steps[loop] > MOST_STEPS:
            text = (
                f"the iterations of this loop have more than {MOST_STEPS} steps: leave it as it is "
                f"with unroll{{most={max(1, loop.times - 1)}}}"
            )
            raise DiagnosticError.at(loop, text)


def unroll_all(root: Operation) -> None:
    """Put their iterations in the place of all loops in an operation, in place."""
    for op in reversed(repeats_in(root)):
        unroll(op)


def _function_of(op: Operation) -> FuncOp:
    function = function_of(op)
    assert function is not None
    return function
