"""The gradient of a batch, as a loop over microbatches that adds up the gradients of its parts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product

from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, SSAValue

from collir.dialects.machine import mesh_of
from collir.dialects.nested import CallOp, RepeatOp, Signature, YieldOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import DistTensorType, dist_type, same_type
from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position, note
from collir.ir.names import set_name
from collir.ir.parameters import parameters_of, set_parameters
from collir.ir.retyping import at_values, function_at, retype
from collir.ir.roles import Role, argument_roles, pass_role, role_of
from collir.ir.steps import step_op
from collir.layout import Dim, DistType, DType, LayoutError
from collir.layout.coll import ADD, CAST, RESHAPE, SCALE, TRANSPOSE
from collir.layout.cuts import units
from collir.layout.nn import CONSTANT, IOTA
from collir.layout.sizes import formula_of, same_size, size_with
from collir.layout.steps import Argument, StepKind
from collir.transforms.microbatches.callees import erase, own_copy, with_own_callees
from collir.transforms.microbatches.following import Following, NotSeparableError
from collir.transforms.microbatches.parts import PartOfBatch
from collir.transforms.microbatches.rows import BatchSize, Over, Rows, State


@dataclass(eq=False)
class Batched:
    """The gradient of a batch.

    Attributes:
        call: the call of the gradient.
        first: the first operand that leads with it.
        numbers: the operands that are data, which may have rows of it.
        parameter: the size parameter of the callee for the batch.
        size: that size.
    """

    call: CallOp
    first: int
    numbers: list[int]
    parameter: str
    size: int


MOST_WAYS = 64
"""The most ways that are tried in which ``batch * seq`` may be the rows of several operands."""


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
    try:
        part = _part_of(batched, count)
        _Splitting(batched, count, part).run()
    except LayoutError as error:
        raise DiagnosticError.at(
            batched.call, f"{count} microbatches of this batch do not fit: {error}"
        ) from error


def batch_of(call: CallOp) -> Batched:
    """Return the batch of a gradient: the leading size of its data operands.

    If there are several sizes, it is the one that every operand with another size has too.

    Raises:
        DiagnosticError: it is not one size parameter of the function.
    """
    callee = call.function()
    assert callee is not None
    kept = (Role.PARAMETER, Role.STATE)
    roles = argument_roles(callee)
    data = {
        number: dist_type(callee.args[number])
        for number, operand in enumerate(call.operands)
        if number not in call.sought and not {role_of(operand), roles[number]} & {*kept}
    }
    leading = {number: formula_of(x.dims[0].size) for number, x in data.items() if x.dims}
    names = list(dict.fromkeys(str(f) for f in leading.values() if str(f) in f.parameters))
    having = {name: {n for n, x in data.items() if _has(x, name)} for name in names}
    names = [x for x in names if not any(having[x] < having[rival] for rival in names)]
    if len(names) != 1:
        listed = f" (they lead with {', '.join(names)})" if names else ""
        raise DiagnosticError.at(
            call,
            f"it is not clear which size of @{call.symbol} is the batch{listed}: let what is not "
            "differentiated lead with one size parameter, as in %x: f32[batch, ...], or be a "
            "`parameter`",
        )
    [parameter] = names
    first = next(number for number, formula in leading.items() if str(formula) == parameter)
    size = dist_type(call.operands[first]).dims[0].size
    return Batched(call, first, [*data], parameter, size)


def _has(x: DistType, parameter: str) -> bool:
    """Return whether a size of a type is a formula of a parameter."""
    return any(parameter in formula_of(size).parameters for size in x.shape)


def _part_of(batched: Batched, count: int) -> PartOfBatch:
    """Return the function of a microbatch, added to the module if it is another one than that of
    the batch.

    Raises:
        DiagnosticError: a step does not treat microbatches apart, or does not fit them.
    """
    call = batched.call
    callee = call.function()
    assert callee is not None
    values = {name: int(call.values.get(name, x)) for name, x in parameters_of(callee).items()}
    own = own_copy(callee, f"{callee.sym_name.data}_microbatch")
    made = [own]
    try:
        retype(own, at_values(values))
        set_parameters(own, values)
        callers = with_own_callees(own)
        made = [*reversed(callers), own]
        part = PartOfBatch(_followed(batched, own, callers), call.symbol, count)
        made += [part.whole] if part.whole is not None else []
        _check(batched, part, count)
        if part.changed:
            made = []
    finally:
        erase(made)
    return part


def _check(batched: Batched, part: PartOfBatch, count: int) -> None:
    """Check that the function of a microbatch is well typed at its size.

    Raises:
        DiagnosticError: it is not.
    """
    values = {batched.parameter: int(batched.size) // count}
    try:
        for function in part.functions:
            with function_at(function, values, {}):
                pass
    except DiagnosticError as error:
        first = error.diagnostics[0]
        text = f"{count} microbatches of this batch do not fit: {first.message}"
        notes = (note("at this step", first.position),) if first.position else ()
        raise DiagnosticError(Diagnostic(text, Position.of(batched.call), notes)) from error


def _followed(batched: Batched, own: FuncOp, callers: Mapping[FuncOp, CallOp]) -> Following:
    """Return the states of the values of a function under its batch.

    Raises:
        DiagnosticError: a step does not treat microbatches apart, or a result is neither a sum nor
            a mean over the batch.
    """
    call, name = batched.call, batched.parameter
    values = parameters_of(own)
    whole = f"whole_{name}"
    while whole in values:
        whole += "_"
    size = BatchSize(name, whole, {**values, whole: values[name]})
    ways = [
        [(number, rows) for rows in size.rows(dist_type(own.args[number]))]
        for number in batched.numbers
    ]
    first: NotSeparableError | None = None
    for way in islice(product(*filter(None, ways)), MOST_WAYS):
        try:
            following = Following(own, callers, size, dict(way), call.sought)
        except NotSeparableError as error:
            first = first or error
            continue
        for number, state in enumerate(following.results):
            if isinstance(state, Rows):
                raise DiagnosticError.at(
                    call,
                    f"result {number} of @{call.symbol} is neither a sum nor a mean over {name}, "
                    "so it cannot be computed in microbatches",
                )
        return following
    assert first is not None
    text = f"@{call.symbol} cannot be computed in microbatches: {first}"
    here = note("at this step", Position.of(first.op))
    raise DiagnosticError(Diagnostic(text, Position.of(call), (here,))) from first


class _Splitting:
    """The loop over microbatches, in the place of a call."""

    def __init__(self, batched: Batched, count: int, part: PartOfBatch):
        self.batched, self.count, self.function = batched, count, part
        self.call, self.mesh = batched.call, mesh_of(batched.call)
        self.part = batched.size // count

    def run(self) -> None:
        call, block = self.call, self.call.parent
        assert block is not None
        results = [dist_type(x) for x in call.results]
        sums = [self._summed(x) for x in results]
        starts = [self._zero(x) for x in sums]
        whole, rows = self._operands()
        cut = self._cut([(x, at) for x, at in zip(whole, rows, strict=True) if at is not None])
        sliced = [at is not None for at in rows]
        others = [x for x, at in zip(whole, rows, strict=True) if at is None]
        body = self._body(sums, sliced, cut, others)
        loop = RepeatOp.of(self.mesh, self.count, [starts, cut, others], body)
        self._insert(loop)
        states = self._states
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

    @property
    def _states(self) -> list[State]:
        """The states of the results and of the gradients of a microbatch."""
        results = self.function.following.results
        return [*results, *[results[0] or Over.MEAN] * len(self.call.sought)]

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

    # --- operands -----------------------------------------------------------------------------

    @property
    def _values(self) -> dict[str, int]:
        """The parameters of the function of a microbatch, in sizes of the caller."""
        following, call = self.function.following, self.call
        sizes = following.size
        return {**sizes.values, **call.values, sizes.whole: self.batched.size}

    def _operands(self) -> tuple[list[SSAValue], list[Rows | None]]:
        """Return the operands of the function of a microbatch, from the whole batch, with rows."""
        call, part = self.call, self.function
        arguments = part.following.arguments
        states = [part.following.states.get(x) for x in arguments]
        whole = list(call.operands)
        rows = [state if isinstance(state, Rows) else None for state in states]
        made: Sequence[SSAValue] = ()
        if part.whole is not None and part.changed:
            signature = Signature.of(part.whole)
            operands = [call.operands[number] for number in part.operands]
            once = CallOp.of(self.mesh, signature, operands, call.values)
            self._insert(once)
            made = once.results
        for extra in part.arguments:
            if extra.source is None:
                to = DistType(DType.I32, (Dim(self.batched.size, extra.axes),))
                whole.append(self._step(IOTA, dim=0, to=to))
            elif extra.source in part.results:
                whole.append(made[part.results[extra.source]])
            else:
                whole.append(call.operands[arguments.index(extra.source)])
            set_name(whole[-1], whole[-1].name_hint or part.arguments[extra].name_hint)
            rows.append(extra.rows)
        return whole, rows

    def _cut(self, values: Sequence[tuple[SSAValue, Rows]]) -> list[SSAValue]:
        """Return values with a leading dimension of microbatches.

        A microbatch has the same rows of all of them. It takes rows of each block of the batch, so
        that each device has its part without sending, as long as the values have equal blocks.

        Raises:
            LayoutError: the values cannot be divided.
        """
        layouts = dict.fromkeys(axes for x, rows in values for axes in _axes_of(x, rows.dim))
        known = sorted(layouts, key=lambda axes: -units(self.mesh, axes))
        blocks = dict.fromkeys([*(units(self.mesh, axes) for axes in known), 1])
        fitting = [count for count in blocks if not int(self.part) % count]
        for count in fitting:
            steps: list[DistOp] = []
            try:
                cut = [self._cut_into(steps, x, rows, count) for x, rows in values]
            except LayoutError:
                for op in reversed(steps):
                    op.erase()
                if count == fitting[-1]:
                    raise
                continue
            for op in steps:
                self._insert(op)
            return cut
        raise AssertionError("a batch is one block")

    def _cut_into(self, steps: list[DistOp], x: SSAValue, rows: Rows, blocks: int) -> SSAValue:
        """Return a value with a leading dimension of microbatches, and add the steps for it: each
        microbatch has an equal part of each block of the batch.

        Raises:
            LayoutError: the value cannot be divided so.
        """

        def step(kind: StepKind, x: SSAValue, **arguments: Argument) -> SSAValue:
            op = step_op(self.mesh, kind, [x], **arguments)
            steps.append(op)
            return op.result

        shape = [dim.size for dim in dist_type(x).dims]
        before, behind = shape[: rows.dim], shape[rows.dim + 1 :]
        sized = self.function.following.size.sized
        outer, inner = (size_with(sized(f), self._values) for f in (rows.outer, rows.inner))
        own = [size for size in (outer, blocks) if size > 1]
        lead = [*before, *own]
        x = step(RESHAPE, x, shape=(*lead, self.count, self.part // blocks * inner, *behind))
        if lead:
            number = len(lead)
            rest = range(number + 1, number + 2 + len(behind))
            x = step(TRANSPOSE, x, order=(number, *range(number), *rest))
        if own:
            x = step(RESHAPE, x, shape=(self.count, *before, outer * self.part * inner, *behind))
        return x

    def _body(
        self,
        sums: Sequence[DistType],
        is_sliced: Sequence[bool],
        cut: Sequence[SSAValue],
        others: Sequence[SSAValue],
    ) -> Block:
        call = self.call
        parts = [dist_type(x) for x in cut]
        parts = [replace(x, dims=x.dims[1:]) for x in parts]
        types = [*sums, *parts, *(dist_type(x) for x in others)]
        block = Block(arg_types=[DistTensorType(x) for x in types])
        arguments = self.function.following.arguments
        names = [x.name_hint for x in (*call.operands, *self.function.arguments.values())]
        behind = len(sums) + len(cut)
        data, rest = iter(block.args[len(sums) : behind]), iter(block.args[behind:])
        operands = [next(data if at else rest) for at in is_sliced]
        for value, name in zip(operands, names, strict=True):
            set_name(value, name)
        callee = call.function()
        assert callee is not None and len(arguments) == len(call.operands)
        values = {**call.values, self.batched.parameter: self.part}
        if self.function.changed:
            callee = self.function.function
            values[self.function.size.whole] = self.batched.size
        again = call.recompute is not None
        own = CallOp.of(self.mesh, Signature.of(callee), operands, values, call.sought, again)
        own.location = call.location
        block.add_op(own)
        yielded: list[SSAValue] = []
        for number, (old, value) in enumerate(zip(call.results, own.results, strict=True)):
            carry = block.args[number]
            set_name(carry, old.name_hint)
            set_name(value, old.name_hint)
            pass_role(old, value)
            if dist_type(value).dtype is not dist_type(carry).dtype:
                op = step_op(self.mesh, CAST, [value], dtype=str(dist_type(carry).dtype))
                block.add_op(op)
                value = op.result
            if self._states[number] is not None:
                op = step_op(self.mesh, ADD, [carry, value])
                block.add_op(op)
                value = op.result
            yielded.append(value)
        block.add_op(YieldOp.create(operands=yielded))
        return block


def _axes_of(x: SSAValue, dim: int) -> Iterator[tuple[str, ...]]:
    """Yield the sub-axes over which a dimension of a value, or of its source, is divided."""
    seen: set[SSAValue] = set()
    values = [x]
    while values:
        value = values.pop()
        if value in seen:
            continue
        seen.add(value)
        known = dist_type(value)
        if known.dims[dim].axes:
            yield known.dims[dim].axes
        elif isinstance(value.owner, DistOp):
            values += [
                y for y in value.owner.operands if same_size(dist_type(y).shape, known.shape)
            ]


def _take_exact(old: SSAValue, exact: SSAValue) -> None:
    """Let casts of a value to the type of an exact one take the exact one."""
    for op in [use.operation for use in old.uses]:
        if isinstance(op, DistOp) and op.kind is CAST and same_type(op.result, exact):
            op.result.replace_all_uses_with(exact)
            op.detach()
            op.erase()
