"""The gradient of a batch as a sum over microbatches.

A function whose result is a sum or a mean over a batch is that of the batch's parts, added up or
averaged, and so is its gradient. That a function is one is found from the index structures of its
steps: the index of the batch is passed through until one reduction, and what is reduced goes
through linear steps alone.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, SSAValue

from collir.dialects.machine import mesh_of
from collir.dialects.nested import CallOp, RepeatOp, Signature, YieldOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import DistTensorType, dist_type
from collir.ir.auto import is_implied
from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position, note
from collir.ir.inlining import function_without_calls
from collir.ir.names import set_name
from collir.ir.roles import Role, argument_roles, pass_role, role_of
from collir.ir.steps import step_op
from collir.layout import DistType, DType, LayoutError
from collir.layout.coll import (
    ADD,
    BARRIER,
    CAST,
    CONCAT,
    MERGE,
    PAD,
    RESHAPE,
    SCALE,
    SPLIT,
    TRANSPOSE,
)
from collir.layout.dtypes import Reduction
from collir.layout.nn import CONSTANT
from collir.layout.sizes import formula_of
from collir.layout.steps import Argument, StepKind
from collir.layout.structure import Linear, map_structure


class Over(Enum):
    """The reduction over the batch that a value is which has no index of it."""

    SUM = auto()
    """A sum over the batch."""
    MEAN = auto()
    """A mean over the batch."""


Batch = int | Over
"""Where the index of the batch is in a value: a dimension, or nowhere as it has been reduced."""


class NotSeparableError(Exception):
    """A step does not treat the parts of a batch apart.

    Attributes:
        op: the step.
    """

    def __init__(self, op: Operation, text: str):
        super().__init__(text)
        self.op = op


def reduced_over(function: FuncOp, batched: Iterable[int]) -> list[Batch | None]:
    """Return what the results of a function without calls are of the batch of some arguments, whose
    leading index is that of the batch; None for what does not depend on it.

    Raises:
        NotSeparableError: a step does not treat the parts of the batch apart.
    """
    known: dict[SSAValue, Batch] = {function.args[number]: 0 for number in batched}
    _follow(function.body.block, known)
    last = function.body.block.last_op
    assert isinstance(last, ReturnOp)
    return [known.get(value) for value in last.operands]


def _follow(block: Block, known: dict[SSAValue, Batch]) -> None:
    """Find where the index of the batch is in the values of a block."""
    for op in block.ops:
        if isinstance(op, RepeatOp):
            _follow_loop(op, known)
        elif isinstance(op, DistOp) and any(x in known for x in op.operands):
            known[op.result] = _result_of(op, [known.get(x) for x in op.operands])


def _follow_loop(op: RepeatOp, known: dict[SSAValue, Batch]) -> None:
    carries = len(op.carried)
    for operand, argument in zip(op.operands, op.body.block.args, strict=True):
        if operand in known:
            place = known[operand]
            if operand in op.sliced and not isinstance(place, Over):
                if not place:
                    raise NotSeparableError(op, "a loop runs over the batch")
                place -= 1
            known[argument] = place
    _follow_body(op, known)
    for number, (result, value) in enumerate(zip(op.results, op.yielded, strict=True)):
        place = known.get(value)
        if number < carries and place != known.get(op.carries[number]):
            raise NotSeparableError(op, "a carry depends on the batch in another way at the end")
        if place is not None:
            if number >= carries and not isinstance(place, Over):
                place += 1  # behind the dimension of the stack
            known[result] = place


def _follow_body(op: RepeatOp, known: dict[SSAValue, Batch]) -> None:
    """Find where the index of the batch is in the values of the body of a loop.

    A carry that starts as zero may be a sum or a mean over the batch as well: zero is both.
    """
    starts = zip(op.carried, op.carries, strict=True)
    zeros = [carry for start, carry in starts if start not in known and _is_zero(start)]
    for state in Over if zeros else ():
        own: dict[SSAValue, Batch] = {**known, **dict.fromkeys(zeros, state)}
        try:
            _follow(op.body.block, own)
        except NotSeparableError:
            continue
        if all(own.get(x) == own.get(y) for x, y in zip(op.carries, op.yielded, strict=False)):
            known |= own
            return
    _follow(op.body.block, known)


def _is_zero(value: SSAValue) -> bool:
    owner = value.owner
    return isinstance(owner, DistOp) and owner.kind is CONSTANT and owner.number("value") == 0


def _result_of(op: DistOp, places: Sequence[Batch | None]) -> Batch:
    """Return where the index of the batch is in the result of a step.

    Raises:
        NotSeparableError: the step does not treat the parts of the batch apart.
    """
    name = op.mnemonic
    reduced = [place for place in places if isinstance(place, Over)]
    structure = op.structure
    if structure is None and op.kind.elementwise:
        structure = map_structure(name, [dist_type(x) for x in op.operands])
    if reduced:
        if not _stays_linear(op, places):
            raise NotSeparableError(op, f"{name} is not linear in what is reduced over the batch")
        return reduced[0]
    if structure is None:
        return _moved(op, places)
    index: str | None = None
    for place, over in zip(places, structure.operands, strict=True):
        if place is None:
            continue
        assert isinstance(place, int)
        if index not in (None, over[place]):
            raise NotSeparableError(op, f"{name} takes two indices for that of the batch")
        index = over[place]
    for place, over in zip(places, structure.operands, strict=True):
        if place is None and index in over:
            raise NotSeparableError(
                op, f"{name} takes what has no batch along the index of the batch"
            )
    assert index is not None
    if index in structure.blocked:
        raise NotSeparableError(op, f"{name} needs the whole batch")
    if index in structure.result:
        return structure.result.index(index)
    if structure.reduction is Reduction.AVG:
        return Over.MEAN
    if structure.reduction is Reduction.SUM and structure.linear is not Linear.NOT:
        return Over.SUM
    raise NotSeparableError(op, f"{name} reduces over the batch, and is neither sum nor mean")


def _stays_linear(op: DistOp, places: Sequence[Batch | None]) -> bool:
    """Return whether what is a sum or a mean over the batch is so behind a step with others.

    A mean stays one where something is added to it that does not depend on the batch.
    """
    linear = op.structure.linear if op.structure is not None else Linear.ALL
    known = [place for place in places if place is not None]
    if op.kind is CAST and not dist_type(op.result).dtype.is_float:
        return False
    if op.kind is PAD and op.number("value") and known[0] is not Over.MEAN:
        return False
    if linear is Linear.ALL:
        return len(set(known)) == 1 and (len(known) == len(places) or known[0] is Over.MEAN)
    first = linear is Linear.FIRST and places[0] is not None
    return len(known) == 1 and (linear is Linear.EACH or first)


def _moved(op: DistOp, places: Sequence[Batch | None]) -> Batch:
    """Return where the index of the batch is behind a step without a structure: one that changes
    the layout, or moves elements along other dimensions."""
    known = {place for place in places if place is not None}
    place = next(iter(known))
    assert isinstance(place, int)
    before, after = dist_type(op.operands[0]).shape, dist_type(op.result).shape
    if op.kind is TRANSPOSE:
        return op.sizes("order").index(place)
    if op.kind in (PAD, CONCAT):
        kept = op.integer("dim") != place and len(known) == 1 and None not in places
    else:
        moves = op.kind in (RESHAPE, SPLIT, MERGE, BARRIER) or op.kind.before is not None
        kept = moves and before[: place + 1] == after[: place + 1]
    if not kept:
        raise NotSeparableError(op, f"{op.mnemonic} joins, divides or moves the batch")
    return place


# ---------------------------------------------------------------------------------------------
# The loop
# ---------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Batched:
    """The gradient of a batch.

    Attributes:
        call: the call of the gradient.
        numbers: the operands with the index of the batch.
        parameter: the size parameter of the callee that is the size of the batch.
        size: that size.
    """

    call: CallOp
    numbers: list[int]
    parameter: str
    size: int


def split_batch(function: FuncOp, count: int) -> None:
    """Put a loop over microbatches in the place of the gradient in a function.

    Raises:
        DiagnosticError: there is no one gradient, its batch is not known or does not divide, or a
            step of the function that is differentiated does not treat microbatches apart.
    """
    calls = [op for op in function.body.block.ops if isinstance(op, CallOp) and op.sought]
    if len(calls) != 1:
        raise DiagnosticError.at(
            function,
            f"@{function.sym_name.data} takes {len(calls) or 'no'} gradients: microbatches= needs "
            "one, `gradient @loss(...) wrt ...`, that is in no loop",
        )
    batched = batch_of(calls[0])
    if batched.size % count:
        raise DiagnosticError.at(
            batched.call,
            f"{count} microbatches do not divide {batched.parameter} = {batched.size}",
        )
    states = _states(batched)
    try:
        _Splitting(batched, count, states).run()
    except LayoutError as error:
        raise DiagnosticError.at(
            batched.call, f"{count} microbatches of this batch do not fit: {error}"
        ) from error


def batch_of(call: CallOp) -> Batched:
    """Return the batch of a gradient: the leading size of its operands that are data.

    Raises:
        DiagnosticError: it is not one size parameter of the function.
    """
    callee = call.function()
    assert callee is not None
    inputs = [dist_type(argument) for argument in callee.args]
    names: dict[str, list[int]] = {}
    kept = (Role.PARAMETER, Role.STATE)
    roles = argument_roles(callee)
    for number, (x, operand) in enumerate(zip(inputs, call.operands, strict=True)):
        is_weight = number in call.sought or role_of(operand) in kept or roles[number] in kept
        if not is_weight and x.dims:
            formula = formula_of(x.dims[0].size)
            if len(formula.parameters) == 1 and str(formula) in formula.parameters:
                names.setdefault(str(formula), []).append(number)
    if len(names) != 1:
        listed = f" (they lead with {', '.join(names)})" if names else ""
        raise DiagnosticError.at(
            call,
            f"it is not clear which size of @{call.symbol} is the batch{listed}: let what is not "
            "differentiated lead with one size parameter, as in %x: f32[batch, ...]",
        )
    [(parameter, numbers)] = names.items()
    size = dist_type(call.operands[numbers[0]]).dims[0].size
    return Batched(call, numbers, parameter, size)


def _states(batched: Batched) -> list[Over]:
    """Return what the results of the function are of the batch.

    Raises:
        DiagnosticError: one is neither a sum nor a mean over it.
    """
    callee = batched.call.function()
    assert callee is not None
    try:
        found = reduced_over(function_without_calls(callee), batched.numbers)
    except NotSeparableError as error:
        text = f"@{batched.call.symbol} cannot be computed in microbatches: {error}"
        here = note("at this step", Position.of(error.op))
        raise DiagnosticError(Diagnostic(text, Position.of(batched.call), (here,))) from error
    states: list[Over] = []
    for number, state in enumerate(found):
        if not isinstance(state, Over):
            raise DiagnosticError.at(
                batched.call,
                f"result {number} of @{batched.call.symbol} is neither a sum nor a mean over "
                f"{batched.parameter}, so it cannot be computed in microbatches",
            )
        states.append(state)
    return states


class _Splitting:
    """The loop over microbatches, in the place of a call."""

    def __init__(self, batched: Batched, count: int, states: Sequence[Over]):
        self.batched, self.count, self.states = batched, count, states
        self.call, self.mesh = batched.call, mesh_of(batched.call)
        self.part = batched.size // count

    def run(self) -> None:
        call, block = self.call, self.call.parent
        assert block is not None
        results = [dist_type(x) for x in call.results]
        sums = [self._summed(x) for x in results]
        starts = [self._zero(x) for x in sums]
        sliced = [self._cut(call.operands[number]) for number in self.batched.numbers]
        others = [x for n, x in enumerate(call.operands) if n not in self.batched.numbers]
        body = self._body(sums, sliced, others)
        loop = RepeatOp.of(self.mesh, self.count, [starts, sliced, others], body)
        self._insert(loop)
        of_gradients = [self.states[0]] * len(call.sought)
        states = [*self.states, *of_gradients]
        for number, (old, value) in enumerate(zip(call.results, loop.results, strict=True)):
            set_name(value, old.name_hint)
            pass_role(old, value)
            if states[number] is Over.MEAN:
                value = self._step(SCALE, value, factor=1 / self.count)
            if dist_type(value).dtype is not results[number].dtype:
                _take_exact(old, value)
                value = self._step(CAST, value, dtype=str(results[number].dtype))
            if value not in loop.results:
                set_name(value, old.name_hint)
                pass_role(old, value)
            old.replace_all_uses_with(value)
        block.erase_op(call)

    def _insert(self, op: Operation) -> None:
        op.location = self.call.location
        assert self.call.parent is not None
        self.call.parent.insert_op_before(op, self.call)

    def _step(self, kind: StepKind, *operands: SSAValue, **arguments: Argument) -> SSAValue:
        op = step_op(self.mesh, kind, operands, **arguments)
        self._insert(op)
        return op.result

    def _summed(self, x: DistType) -> DistType:
        """Return the type in which values are added up: f32 for 16 bits."""
        return (
            DistType(DType.F32, x.dims, x.partial, x.reduction, x.place) if x.dtype.bytes < 4 else x
        )

    def _zero(self, x: DistType) -> SSAValue:
        return self._step(CONSTANT, value=0.0, to=x)

    def _cut(self, x: SSAValue) -> SSAValue:
        """Return a batch with a leading dimension of microbatches, of which each device has its
        part without sending: a microbatch takes rows of each block of the batch."""
        old = dist_type(x)
        written = x.owner if isinstance(x.owner, DistOp) and is_implied(x.owner) else None
        lead = dist_type(written.input if written else x).dims[0]
        shards = self.mesh.group_size(lead.axes)
        rest = [dim.size for dim in old.dims[1:]]
        each = self.part // shards
        if shards == 1 or self.part % shards:
            return self._step(RESHAPE, x, shape=(self.count, self.part, *rest))
        y = self._step(RESHAPE, x, shape=(shards, self.count, each, *rest))
        order = (1, 0, *range(2, len(rest) + 3))
        y = self._step(TRANSPOSE, y, order=order)
        return self._step(RESHAPE, y, shape=(self.count, self.part, *rest))

    def _body(
        self, sums: Sequence[DistType], sliced: Sequence[SSAValue], others: Sequence[SSAValue]
    ) -> Block:
        call = self.call
        parts = [dist_type(x) for x in sliced]
        parts = [replace(x, dims=x.dims[1:]) for x in parts]
        types = [*sums, *parts, *(dist_type(x) for x in others)]
        block = Block(arg_types=[DistTensorType(x) for x in types])
        operands: list[SSAValue] = []
        rest = list(block.args[len(sums) + len(parts) :])
        data = list(block.args[len(sums) : len(sums) + len(parts)])
        for number, old in enumerate(call.operands):
            value = data.pop(0) if number in self.batched.numbers else rest.pop(0)
            set_name(value, old.name_hint)
            operands.append(value)
        callee = call.function()
        assert callee is not None
        values = {**call.values, self.batched.parameter: self.part}
        again = call.recompute is not None
        own = CallOp.of(self.mesh, Signature.of(callee), operands, values, call.sought, again)
        own.location = call.location
        block.add_op(own)
        yielded: list[SSAValue] = []
        for carry, old, value in zip(block.args, call.results, own.results, strict=False):
            set_name(carry, old.name_hint)
            set_name(value, old.name_hint)
            pass_role(old, value)
            if dist_type(value).dtype is not dist_type(carry).dtype:
                op = step_op(self.mesh, CAST, [value], dtype=str(dist_type(carry).dtype))
                block.add_op(op)
                value = op.result
            op = step_op(self.mesh, ADD, [carry, value])
            block.add_op(op)
            yielded.append(op.result)
        block.add_op(YieldOp.create(operands=yielded))
        return block


def _take_exact(old: SSAValue, exact: SSAValue) -> None:
    """Let casts of a value that lead to the type of the exact one have that."""
    for op in [use.operation for use in old.uses]:
        if isinstance(op, DistOp) and op.kind is CAST and op.result.type == exact.type:
            op.result.replace_all_uses_with(exact)
            op.detach()
            op.erase()


__all__ = ["NotSeparableError", "Over", "reduced_over", "split_batch"]
