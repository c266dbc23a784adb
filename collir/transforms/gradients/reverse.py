"""The reverse of a block: cotangents of its values, from the last operation to the first.

The derivative is that of the meaning on one device. So a step that only changes the layout passes
the cotangent on; where a value was computed, the cotangent is brought to its layout.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, NamedTuple, overload

from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from collir.dialects.nested import RepeatOp, YieldOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import DistTensorType, dist_type
from collir.ir.diagnostics import DiagnosticError
from collir.ir.fusion import fused_like
from collir.ir.names import set_name
from collir.ir.roles import Role, pass_role, set_role
from collir.ir.steps import is_free
from collir.layout import DistType, LayoutError
from collir.layout.coll import BARRIER
from collir.layout.loops import slice_type
from collir.transforms.terms import BlockSteps, BlockValue


class RecomputedSteps(NamedTuple):
    """Steps that are computed again together: the steps of a loop or of a call.

    Attributes:
        key: its identity.
        fused: whether they are one kernel, which the reverse computes again as a whole.
    """

    key: object
    fused: bool = False


Path = tuple[RecomputedSteps, ...]
"""The groups that an operation is in, the outermost first."""


class ForwardValues:
    """The values of the forward program in the reverse program: stored, or computed again.

    A kernel in a loop that is computed again is computed twice: with the loop, for what follows it,
    and within its own reverse.

    Args:
        steps: the reverse program, at its end.
        stored: a function from a value of the forward program to its stored form.
        groups: the operations to compute again, with their groups. The inputs of a group go through
            a barrier, so that no pass replaces it by the forward computation.
        free: a function that returns whether another operation is computed again.
    """

    def __init__(
        self,
        steps: BlockSteps,
        stored: Callable[[SSAValue], SSAValue],
        groups: Mapping[Operation, Path],
        free: Callable[[Operation], bool],
    ):
        self.steps, self.stored, self.groups, self.free = steps, stored, groups, free
        self._stored: dict[SSAValue, SSAValue] = {}
        self._again: dict[tuple[Path, SSAValue], SSAValue] = {}
        self._barriers: dict[tuple[Path, SSAValue], SSAValue] = {}
        self._brought: set[tuple[Path, Path]] = set()
        self.apart: set[Operation] = set()
        """Operations that were computed again, and are in no kernel of a reverse."""

    def __call__(self, value: SSAValue, user: Operation | None = None) -> SSAValue:
        """Return a value of the forward program in the reverse program.

        Args:
            user: the operation of the forward program that needs it. Values computed again in
                another group are stored for it.
        """
        return self._at(value, self.groups.get(user, ()) if user is not None else ())

    def _at(self, value: SSAValue, path: Path) -> SSAValue:
        """Return a value for the operations of some groups."""
        op = value.owner
        shared: Path = ()
        again = False
        if isinstance(op, Operation):
            shared = _common(self.groups.get(op, ()), path)
            again = bool(shared) if op in self.groups else self.free(op)
        if again:
            assert isinstance(op, Operation)
            if (shared, value) not in self._again:
                _ = self.again(op, op, shared)
            there = self._again[shared, value]
        else:
            if value not in self._stored:
                self._stored[value] = self.stored(value)
            there = self._stored[value]
        if shared == path:
            return there
        if (path, value) not in self._barriers:
            self._barriers[path, value] = self.steps.step(BARRIER.name, (there,), {})
        return self._barriers[path, value]

    def enter(self, op: Operation) -> None:
        """Compute the inputs of a kernel from its outer groups again, in front of its reverse."""
        self._bring(op, self.groups.get(op, ()))

    def _bring(self, op: Operation, path: Path) -> None:
        """Compute the inputs of an operation's kernel again for some groups, so that they do not
        stand between the steps of the kernel."""
        own = self.groups.get(op, ())
        if not own or not own[-1].fused or (own, path) in self._brought:
            return
        self._brought.add((own, path))
        for member in [member for member, its in self.groups.items() if its == own]:
            for operand in member.operands:
                before = operand.owner
                around = self.groups.get(before, ()) if isinstance(before, Operation) else ()
                if around != own and _common(around, path):
                    _ = self._at(operand, path)

    def again(self, op: Operation, like: Operation, path: Path) -> Operation:
        """Compute an operation again for some groups, perhaps with more results, and return it.

        If it was computed again before, that computation is replaced.
        """
        self._bring(op, path)
        copy = like.clone({operand: self._at(operand, path) for operand in op.operands})
        copy.location = op.location
        if not path or not path[-1].fused:
            self.apart.add(copy)
        known = self._again.get((path, op.results[0]))
        before = known.owner if known is not None else None
        if isinstance(before, Operation):
            self.steps.block.insert_op_before(copy, before)
            for old, new in zip(before.results, copy.results, strict=False):
                old.replace_all_uses_with(new)
            self.steps.block.erase_op(before)
        else:
            self.steps.block.add_op(copy)
        pairs = zip(op.results, copy.results, strict=False)
        self._again |= {(path, old): new for old, new in pairs}
        return copy


def _common(first: Path, second: Path) -> Path:
    """Return the groups that contain both of two operations."""
    pairs = zip(first, second, strict=False)
    return first[: sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))]


class Cotangents:
    """The known cotangents of the values of a block.

    Args:
        steps: the reverse program, at its end.
        kept: what the reverse program has of the forward program.
        active: the values that depend on what is differentiated.
        replaced: the results of forward loops that now stack more, by the results before.
    """

    def __init__(
        self,
        steps: BlockSteps,
        kept: ForwardValues,
        active: set[SSAValue],
        replaced: dict[SSAValue, SSAValue],
    ):
        self.steps, self.kept, self.active, self.replaced = steps, kept, active, replaced
        self._parts: dict[SSAValue, list[SSAValue]] = {}

    def current(self, value: SSAValue) -> SSAValue:
        """Return the present replacement of a value of the forward program."""
        while value in self.replaced:
            value = self.replaced[value]
        return value

    def add(self, value: SSAValue, part: SSAValue) -> None:
        """Add a part to the cotangent of a value."""
        if value in self.active:
            self._parts.setdefault(value, []).append(part)

    def sum_of(self, value: SSAValue) -> SSAValue | None:
        """Return the cotangent of a value in the layout in which it comes, or None for zero."""
        parts = self._parts.pop(value, None)
        if parts is None:
            return None
        total = self.steps.sum(parts)
        self._parts[value] = [total]
        return total

    def of(self, value: SSAValue) -> SSAValue | None:
        """Return the cotangent of a value in the value's own layout, or None for zero."""
        total = self.sum_of(value)
        return None if total is None else self.steps.laid_out(total, dist_type(value).whole)

    def of_or_zero(self, value: SSAValue) -> SSAValue:
        """Return the cotangent of a value in the value's own layout."""
        total = self.of(value)
        return self.steps.constant(dist_type(value).whole, 0) if total is None else total

    def run(self, ops: Iterable[Operation]) -> None:
        """Go through operations from the last to the first.

        Raises:
            DiagnosticError: an operation has no gradient.
        """
        for op in reversed(list(ops)):
            if not any(operand in self.active for operand in op.operands):
                continue
            self.steps.location = op.location
            try:
                if isinstance(op, DistOp):
                    self.kept.enter(op)
                    with fused_like(op, self.steps.block, self.kept.apart):
                        self._step(op)
                elif isinstance(op, RepeatOp):
                    _Loop(self, op).run()
            except LayoutError as error:
                text = error.text(["a cotangent", "another value"])
                name = op.mnemonic if isinstance(op, DistOp | RepeatOp) else op.name
                raise DiagnosticError.at(op, f"the gradient of this {name}: {text}") from error

    def _step(self, op: DistOp) -> None:
        kind = op.kind
        if kind.layout_only:
            if (g := self.sum_of(op.result)) is not None:
                self.add(op.input, g)
            return
        if (g := self.of(op.result)) is None:
            return
        if kind.gradient is None:
            advice = f"{kind.no_gradient}, or " if kind.no_gradient else ""
            raise DiagnosticError.at(
                op,
                f"{op.mnemonic} has no gradient, and the result depends on it: {advice}put "
                "`stop_gradient` in front of it to take its operand for a constant",
            )
        at = _AtStep(op, BlockValue(self.steps, g), self.kept)
        for number, operand in enumerate(op.operands):
            if operand in self.active:
                part = kind.gradient(at, number)
                if part is not None:
                    assert isinstance(part, BlockValue)
                    self.add(operand, part.summed_to(dist_type(operand)).value)


class _Operands(Sequence[BlockValue]):
    """The operands of a step, each kept when it is asked for."""

    def __init__(self, op: DistOp, steps: BlockSteps, kept: ForwardValues):
        self._op, self._steps, self._kept = op, steps, kept

    def __len__(self) -> int:
        return len(self._op.operands)

    @overload
    def __getitem__(self, index: int) -> BlockValue: ...
    @overload
    def __getitem__(self, index: slice) -> list[BlockValue]: ...
    def __getitem__(self, index: int | slice) -> BlockValue | list[BlockValue]:
        if isinstance(index, slice):
            return [self[n] for n in range(*index.indices(len(self)))]
        return BlockValue(self._steps, self._kept(self._op.operands[index], self._op))


@dataclass(frozen=True)
class _AtStep:
    """A step of the reverse program, as gradients see it (a ``Reverse``)."""

    op: DistOp
    g: BlockValue
    kept: ForwardValues

    @property
    def y(self) -> BlockValue:
        return BlockValue(self.g.steps, self.kept(self.op.result, self.op)).whole()

    @property
    def x(self) -> Sequence[BlockValue]:
        return _Operands(self.op, self.g.steps, self.kept)

    @property
    def types(self) -> Sequence[DistType]:
        return [dist_type(operand) for operand in self.op.operands]

    @property
    def arguments(self) -> Mapping[str, Any]:
        return self.op.arguments


# ---------------------------------------------------------------------------------------------
# Loops
# ---------------------------------------------------------------------------------------------


def activity(ops: Iterable[Operation], active: set[SSAValue]) -> None:
    """Add the results of operations that depend on active values to the active values."""
    for op in ops:
        if isinstance(op, DistOp):
            seen = dist_type(op.result).dtype.is_float and not op.kind.hides
            if seen and not active.isdisjoint(op.operands):
                active.add(op.result)
        elif isinstance(op, RepeatOp):
            inside = active_inside(op, active)
            active.update(r for r, x in zip(op.results, op.yielded, strict=True) if x in inside)


def active_inside(loop: RepeatOp, active: set[SSAValue]) -> set[SSAValue]:
    """Return the values of the body of a loop that depend on active values outside."""
    block = loop.body.block
    inside = {arg for arg, x in zip(block.args, loop.operands, strict=True) if x in active}
    while True:
        inner_active: set[SSAValue] = set(inside)
        activity(block.ops, inner_active)
        more = {
            arg for arg, x in zip(loop.carries, loop.yielded, strict=False) if x in inner_active
        }
        if more <= inside:
            return inner_active
        inside |= more


class _Loop:
    """The reverse of a loop: a loop in the other direction, over what the forward loop stacks.

    Its carries are the cotangents of the carries, and the sums of the cotangents of invariants; it
    stacks the cotangents of slices.

    Attributes:
        undone: the carries whose values before an iteration follow from their values after it. Each
            is also a carry of the reverse loop (given as its argument there), and is not stacked.
        residuals: the values of an iteration that are stacked, with the arguments for their slices.
        slices, invariants: the operands of the loop that are used again, with their arguments.
    """

    def __init__(self, outer: Cotangents, loop: RepeatOp):
        self.outer, self.loop, self.mesh = outer, loop, outer.steps.mesh
        self.block = Block()
        self.undone: dict[BlockArgument, tuple[BlockArgument, SSAValue]] = {}
        self.residuals: dict[SSAValue, BlockArgument] = {}
        self.slices: dict[SSAValue, BlockArgument] = {}
        self.invariants: dict[SSAValue, BlockArgument] = {}
        steps = BlockSteps(self.mesh, self.block)
        groups = outer.kept.groups
        if loop.recompute is not None:
            kernels = {
                op: tuple(group for group in groups.get(op, ()) if group.fused)
                for op in loop.body.block.ops
            }
            groups = {
                **groups,
                **{op: (RecomputedSteps(loop), *own) for op, own in kernels.items()},
            }
        self.fixed = _fixed(loop)
        kept = ForwardValues(steps, self._stored, groups, self._is_free)
        self.inner = Cotangents(steps, kept, active_inside(loop, outer.active), outer.replaced)

    def _argument(self, x: DistType) -> BlockArgument:
        return self.block.insert_arg(DistTensorType(x), len(self.block.args))

    def _is_free(self, op: Operation) -> bool:
        """Return whether a step is computed again instead of stacking its result: one on slices and
        invariants only, or one that gathers or views a smaller value."""
        if not isinstance(op, DistOp):
            return False
        return op in self.fixed or op.kind.gathers or is_free(op, self.mesh)

    def _stored(self, value: SSAValue) -> SSAValue:
        """Return the argument for a value of the forward body."""
        number = value.index if isinstance(value, BlockArgument) else -1
        carries, slices = len(self.loop.carried), len(self.loop.sliced)
        if 0 <= number < carries and (before := self._before(self.loop.carries[number])):
            return before
        known = self.residuals
        if number >= carries:
            known = self.slices if number < carries + slices else self.invariants
        if value not in known:
            known[value] = self._argument(dist_type(value))
            set_name(known[value], value.name_hint)
        return known[value]

    def _before(self, carry: BlockArgument) -> SSAValue | None:
        """Return the value of a carry before the iteration, if a step can restore it from the value
        after, such as the opposite shift of blocks."""
        if carry in self.undone:
            return self.undone[carry][1]
        op = self.loop.yielded[carry.index].owner
        if not isinstance(op, DistOp) or op.kind.undone is None or op.input is not carry:
            return None
        arguments = op.kind.undone(op.arguments)
        if arguments is None:
            return None
        behind = self._argument(dist_type(carry))
        before = self.inner.steps.step(op.kind.name, (behind,), arguments)
        set_name(before, carry.name_hint)
        self.undone[carry] = behind, before
        return before

    def run(self) -> None:
        """Add the loop to the reverse program, and the cotangents of the operands."""
        outer, inner, loop = self.outer, self.inner, self.loop
        args, carries = loop.body.block.args, len(loop.carried)
        if all(outer.sum_of(result) is None for result in loop.results):
            return
        carried: dict[BlockArgument, SSAValue] = {}
        stacked: dict[BlockArgument, SSAValue] = {}
        sought = [n for n, arg in enumerate(loop.carries) if arg in inner.active]
        for number in sought:
            arg = self._argument(dist_type(args[number]).whole)
            carried[arg] = outer.of_or_zero(loop.results[number])
            inner.add(loop.yielded[number], arg)
        for result, value in list(zip(loop.results, loop.yielded, strict=True))[carries:]:
            if (g := outer.of(result)) is not None:
                arg = self._argument(dist_type(value).whole)
                stacked[arg] = g
                inner.add(value, arg)
        inner.run(list(loop.body.block.ops)[:-1])
        inner.steps.location = loop.location
        yielded = [inner.of_or_zero(args[number]) for number in sought]
        operands = [loop.carried[number] for number in sought]
        for number in range(carries + len(loop.sliced), len(args)):
            if (total := inner.sum_of(args[number])) is not None:
                arg = self._argument(dist_type(total))
                outer.steps.location = loop.location
                carried[arg] = outer.steps.constant(dist_type(total), 0)
                yielded.append(inner.steps.step("add", (arg, total), {}))
                operands.append(loop.operands[number])
        for number in range(carries, carries + len(loop.sliced)):
            if (total := inner.sum_of(args[number])) is not None:
                source = dist_type(_gathered_from(loop.operands[number]))
                to = slice_type(self.mesh, source.whole, loop.times)
                yielded.append(inner.steps.laid_out(total, to))
                operands.append(loop.operands[number])
        outer.steps.location = loop.location
        results = self._added(carried, stacked, yielded)
        for operand, result in zip(operands, results, strict=True):
            outer.add(operand, result)

    def _added(
        self,
        carried: Mapping[BlockArgument, SSAValue],
        stacked: Mapping[BlockArgument, SSAValue],
        yielded: Sequence[SSAValue],
    ) -> Sequence[SSAValue]:
        """Add the reverse loop with its arguments in order, and return its results."""
        outer, loop, kept = self.outer, self.loop, self.outer.kept
        times, reverse = loop.times, not loop.is_reverse
        whole_of = dict[SSAValue, SSAValue](zip(loop.body.block.args, loop.operands, strict=True))
        stacks = self._stacks()
        sliced = {**dict(zip(self.residuals.values(), stacks, strict=True)), **stacked}
        sliced |= {arg: kept(whole_of[value], loop) for value, arg in self.slices.items()}
        fixed = {arg: kept(whole_of[value], loop) for value, arg in self.invariants.items()}
        results = (loop.results[carry.index] for carry in self.undone)
        behind = {
            arg: kept(outer.current(result), loop)
            for (arg, _), result in zip(self.undone.values(), results, strict=True)
        }
        groups = ({**behind, **carried}, sliced, fixed)
        ordered: list[SSAValue] = [arg for group in groups for arg in group]
        body = Block(arg_types=[arg.type for arg in ordered])
        for old, new in zip(ordered, body.args, strict=True):
            set_name(new, old.name_hint)
            old.replace_all_uses_with(new)
        yielded = [*(before for _, before in self.undone.values()), *yielded]
        yielded = [body.args[ordered.index(x)] if x in ordered else x for x in yielded]
        for op in list(self.block.ops):
            op.detach()
            body.add_op(op)
        body.add_op(YieldOp.create(operands=yielded))
        values = [list(group.values()) for group in groups]
        made = RepeatOp.of(self.mesh, times, values, body, reverse)
        outer.steps.add(made)
        return made.results[len(self.undone) :]

    def _stacks(self) -> list[SSAValue]:
        """Let the forward loop stack the residuals, and return the stacks."""
        loop, kept = self.loop, self.outer.kept
        residuals = [self.outer.current(value) for value in self.residuals]
        yielded = list(loop.yielded)
        new = [value for value in residuals if value not in yielded[len(loop.carried) :]]
        yielded += new
        numbers = [yielded.index(value, len(loop.carried)) for value in residuals]
        if not new:
            return [kept(loop.results[n], loop) for n in numbers]
        longer = _with_yields(loop, new)
        for stack in longer.results[len(loop.results) :]:
            set_role(stack, Role.ACTIVATION)
        if loop in kept.groups:
            again = kept.again(loop, longer, kept.groups[loop])
            longer.erase()
            return [again.results[number] for number in numbers]
        block = loop.parent
        assert block is not None
        block.insert_op_before(longer, loop)
        for old, new in zip(loop.results, longer.results, strict=False):
            set_name(new, old.name_hint)
            pass_role(old, new)
            if old in self.outer.active:
                self.outer.active.add(new)
            self.outer.replaced[old] = new
            old.replace_all_uses_with(new)
        loop.detach()
        loop.erase()
        return [kept(longer.results[number]) for number in numbers]


def _with_yields(loop: RepeatOp, more: Sequence[SSAValue]) -> RepeatOp:
    """Return a copy of a loop that stacks further values of its body."""
    values: dict[SSAValue, SSAValue] = {}
    body = Block(arg_types=[arg.type for arg in loop.body.block.args])
    for old, new in zip(loop.body.block.args, body.args, strict=True):
        set_name(new, old.name_hint)
        values[old] = new
    for op in loop.body.block.ops:
        body.add_op(op.clone(values))
    last = body.last_op
    assert isinstance(last, YieldOp)
    yielded = [*last.operands, *(values[value] for value in more)]
    body.erase_op(last)
    body.add_op(YieldOp.create(operands=yielded))
    groups = list(loop.carried), list(loop.sliced), list(loop.invariant)
    return loop.rebuilt(groups, body)


def _gathered_from(value: SSAValue) -> SSAValue:
    """Return the value that a stacked value was gathered from, except along its leading dimension.

    Cotangents of slices are laid out like this in every iteration, so they are shards at once, and
    no device holds the whole stack of them (ZeRO-2).
    """
    while isinstance(op := value.owner, DistOp) and op.kind.gathers:
        if dist_type(op.input).dims[0].axes:
            break
        value = op.input
    return value


def _fixed(loop: RepeatOp) -> set[Operation]:
    """Return the steps of a body on slices and invariants only."""
    carries = set[SSAValue](loop.carries)
    fixed: set[Operation] = set()
    for op in loop.body.block.ops:
        known = all(isinstance(x, BlockArgument) or x.owner in fixed for x in op.operands)
        if isinstance(op, DistOp) and known and carries.isdisjoint(op.operands):
            fixed.add(op)
    return fixed
