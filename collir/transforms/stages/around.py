"""The rest of a function around a pipeline: the place of each value.

A stack becomes rows of chunks that are sharded over the places: with one chunk at each place, the
stack itself, sharded along its layers. So a step on all layers stays one step. Any other value that
a single task takes or makes is at the place of the task, and so are the values that depend on it. A
value that tasks at several places take has its home at the first of them if it is a parameter or a
state, and is sent to the others once in a step; else every place has it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from typing import TypeVar

from xdsl.dialects.builtin import FunctionType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue

from collir.dialects.nested import RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tables import OPERATIONS
from collir.dialects.tensor import DistTensorType, dist_type
from collir.ir.diagnostics import DiagnosticError
from collir.ir.names import argument_names, name_signature, result_names, set_name
from collir.ir.parameters import shared_attributes
from collir.ir.roles import (
    Role,
    argument_roles,
    pass_role,
    result_roles,
    role_of,
    set_argument_roles,
    set_result_roles,
)
from collir.ir.steps import step_op
from collir.layout import DistType, LayoutError
from collir.layout.coll import (
    ADD,
    ALL_REDUCE,
    ASSEMBLE,
    BROADCAST,
    CONCAT,
    KEEP,
    MASK,
    PAD,
    PART,
    SCALE,
)
from collir.layout.dtypes import Reduction
from collir.layout.nn import CONSTANT
from collir.layout.steps import Argument, StepKind
from collir.transforms.stages.chunks import Flat
from collir.transforms.stages.outlining import Outlined, PipelineAxis
from collir.transforms.stages.stacks import (
    COMBINED,
    is_splat,
    leading,
    remade,
    rows_reduced_by,
    takes_rows_apart,
)


@dataclass(frozen=True, eq=False)
class LayerCut:
    """The division of the layers into chunks.

    Attributes:
        stacks: the values with a dimension of layers.
        places: the place of each chunk.
        sizes: the layers of each chunk.
    """

    stacks: set[SSAValue]
    places: Sequence[int]
    sizes: Sequence[int]

    @cached_property
    def row_of(self) -> list[int]:
        """The row of each chunk: how many chunks before it are at its place."""
        return [list(self.places[:n]).count(place) for n, place in enumerate(self.places)]

    @property
    def rows(self) -> list[int]:
        """The layers of each row of chunks."""
        pairs = list(zip(self.row_of, self.sizes, strict=True))
        return [sum(n for own, n in pairs if own == row) for row in range(max(self.row_of) + 1)]


class Around:
    """A function with its loop over microbatches replaced by a pipeline."""

    def __init__(
        self,
        function: FuncOp,
        loop: RepeatOp,
        cut: LayerCut,
        flat: Flat,
        outlined: Outlined,
        axis: PipelineAxis,
    ):
        """Prepare the new function."""
        self.function, self.loop, self.axis = function, loop, axis
        self.flat, self.outlined = flat, outlined
        self.stacks, self.places = cut.stacks, cut.places
        self.mesh = axis.mesh
        self.row_of, self.rows = cut.row_of, cut.rows
        self.place: dict[SSAValue, int] = {}
        self.block = Block()
        self.values: dict[SSAValue, list[SSAValue]] = {}
        self.brought: dict[tuple[SSAValue, int | None], SSAValue] = {}

    def run(self, schedule: str) -> FuncOp:
        """Return the new function, with the schedule of this name.

        Raises:
            DiagnosticError: a step needs layers of several places at once.
        """
        self._find_places()
        for argument in self.function.args:
            self._add_argument(argument)
        last: Operation | None = None
        for op in self.function.body.block.ops:
            try:
                if op is self.loop:
                    self._add_loop(schedule)
                elif isinstance(op, ReturnOp):
                    last = op
                else:
                    self._add_step(op)
            except LayoutError as error:
                text = f"this step cannot be done where its values are in a pipeline: {error}"
                raise DiagnosticError.at(op, text) from error
        assert last is not None
        return self._finished(last)

    # --- where values are ---------------------------------------------------------------------

    def _find_places(self) -> None:
        """Find the values that are at one place alone."""
        wanted: dict[SSAValue, list[int]] = {}
        for number, place in self.outlined.sources:
            source = self.flat.sources[number]
            if source.chunk is None and not source.is_extra:
                operand = self.loop.operands[source.argument.index]
                wanted.setdefault(operand, []).append(place)
        for value, places in wanted.items():
            home = role_of(value) in (Role.PARAMETER, Role.STATE) or _made_of_one(value)
            if len(set(places)) == 1 or home:
                self.place[value] = places[0]
        for number, place in enumerate(self.outlined.yielded[: self.flat.carries]):
            source = self.flat.sources[number]
            if source.chunk is None and not source.is_extra:
                self.place[self.loop.results[source.argument.index]] = place
        ops = [op for op in self.function.body.block.ops if isinstance(op, DistOp)]
        for _ in range(2):
            for op in ops:
                if op.result not in self.place and not self._has_stacks(op):
                    known = [self.place[x] for x in op.operands if x in self.place]
                    self.place |= {op.result: known[0]} if known else {}
            for value in [x for op in reversed(ops) for x in op.results] + [*self.function.args]:
                self._follow_users(value)

    def _follow_users(self, value: SSAValue) -> None:
        """Put a value at the place of all of its users."""
        if value in self.place or value in self.stacks or not dist_type(value).dims:
            return
        uses = {
            self.place.get(use.operation.results[0]) if isinstance(use.operation, DistOp) else None
            for use in value.uses
        }
        if len(uses) == 1 and (place := uses.pop()) is not None:
            owner = value.owner
            if not (isinstance(owner, DistOp) and self._has_stacks(owner)):
                self.place[value] = place

    def _has_stacks(self, op: DistOp) -> bool:
        return any(value in self.stacks for value in (*op.operands, op.result))

    # --- values where they are needed -----------------------------------------------------------

    def _step(self, kind: StepKind, *operands: SSAValue, **arguments: Argument) -> SSAValue:
        op = step_op(self.mesh, kind, operands, **arguments)
        self.block.add_op(op)
        return op.result

    def _home(self, value: SSAValue) -> int | None:
        """Return the place where a new value is; None if everywhere."""
        place = dist_type(value).place
        at = {self.axis.at(number): number for number in range(self.axis.size)}
        own = tuple(item for item in place if item[0] in self.axis.subs)
        return at.get(own)

    def _brought(self, value: SSAValue, place: int | None) -> SSAValue:
        """Return a new value at a place, or everywhere."""
        home = self._home(value)
        if home == place:
            return value
        if (value, place) not in self.brought:
            if home is None:
                assert place is not None
                new = self._step(KEEP, value, place=self.axis.at(place))
            elif place is None:
                new = self._step(BROADCAST, value, axes=self.axis.subs)
            else:
                send = self.axis.send(value, home, place)
                self.block.add_op(send)
                new = send.results[0]
            set_name(new, value.name_hint)
            self.brought[value, place] = new
        return self.brought[value, place]

    def _add_argument(self, old: BlockArgument) -> None:
        x = dist_type(old)
        if old in self.stacks:
            types = [leading(x, size, self.axis.subs) for size in self.rows]
        elif old in self.place:
            types = [x.with_place(self.axis.at(self.place[old]))]
        else:
            types = [x]
        new: list[SSAValue] = []
        for x in types:
            new.append(self.block.insert_arg(DistTensorType(x), len(self.block.args)))
            set_name(new[-1], old.name_hint)
        self.values[old] = new

    # --- steps ----------------------------------------------------------------------------------

    def _add_step(self, op: Operation) -> None:
        if not isinstance(op, DistOp):
            if any(x in self.stacks for x in (*op.operands, *op.results)):
                raise self._needs_all(op)
            operands = {x: self._brought(self.values[x][0], None) for x in op.operands}
            new = op.clone(dict(operands))
            self.block.add_op(new)
            for old, result in zip(op.results, new.results, strict=True):
                self.values[old] = [result]
        elif op.result in self.stacks:
            self._define(op, [self._row(op, row) for row in range(len(self.rows))])
        elif any(x in self.stacks for x in op.operands):
            self._define(op, [self._reduced(op)])
        else:
            place = self.place.get(op.result)
            operands = [self._brought(self.values[x][0], place) for x in op.operands]
            types = (x.data for x in op.properties.values() if isinstance(x, DistTensorType))
            to = next(types, None)
            if to is not None and place is not None:
                to = to.with_place(self.axis.at(place))
            self._define(op, [self._remade(op, operands, to)])

    def _define(self, op: DistOp, new: list[SSAValue]) -> None:
        self.values[op.result] = new
        for value in new:
            set_name(value, op.result.name_hint)
            pass_role(op.result, value)

    def _remade(
        self, op: DistOp, operands: Sequence[SSAValue], to: DistType | None = None
    ) -> SSAValue:
        new = remade(op, self.mesh, operands, to)
        self.block.add_op(new)
        return new.result

    def _row(self, op: DistOp, row: int) -> SSAValue:
        """Add a step on stacks for the chunks of a row."""
        several = len(self.rows) > 1
        if several and not (takes_rows_apart(op, self.stacks) or is_splat(op)):
            raise self._needs_all(op)
        x = dist_type(op.result)
        to = leading(x, self.rows[row], self.axis.subs) if op.result in self.stacks else x
        if not op.operands:
            return self._remade(op, [], to)
        operands = [
            self.values[x][row] if x in self.stacks else self._brought(self.values[x][0], None)
            for x in op.operands
        ]
        return self._remade(op, operands, to)

    def _reduced(self, op: DistOp) -> SSAValue:
        """Add a step that reduces stacks to a value that every place has."""
        reduction = rows_reduced_by(op, self.stacks)
        if reduction is None or reduction not in COMBINED:
            raise self._needs_all(op)
        rows = [self._row(op, row) for row in range(len(self.rows))]
        if not dist_type(rows[0]).partial.issuperset(self.axis.subs):
            raise self._needs_all(op)
        linear = reduction in (Reduction.SUM, Reduction.AVG)
        if not linear:
            rows = [self._step(ALL_REDUCE, row, axes=self.axis.subs) for row in rows]
        whole = reduce(partial(self._combined, reduction), rows)
        if len(rows) > 1 and reduction is Reduction.AVG:
            if len(set(self.rows)) > 1:
                raise self._needs_all(op)
            whole = self._step(SCALE, whole, factor=1 / len(rows))
        return self._step(ALL_REDUCE, whole, axes=self.axis.subs) if linear else whole

    def _combined(self, reduction: Reduction, a: SSAValue, b: SSAValue) -> SSAValue:
        op = OPERATIONS[COMBINED[reduction]].make(self.mesh, a, b)
        self.block.add_op(op)
        return op.result

    def _needs_all(self, op: Operation) -> DiagnosticError:
        return DiagnosticError.at(
            op, "this step needs the layers of all places of a pipeline at once"
        )

    # --- the loop -------------------------------------------------------------------------------

    def _add_loop(self, schedule: str) -> None:
        groups: list[list[SSAValue]] = [[], [], []]
        ends = self.flat.carries, self.flat.carries + self.flat.slices
        for number, place in self.outlined.sources:
            group = sum(number >= end for end in ends)
            groups[group].append(self._taken(number, place))
        count = self.loop.times // self.flat.directions
        new = RepeatOp.of(self.mesh, count, groups, self.outlined.block, schedule=schedule)
        new.location = self.loop.location
        self.block.add_op(new)
        pieces: dict[SSAValue, dict[int, SSAValue]] = {}
        for source, value in zip(self.flat.sources, new.results[: self.flat.carries], strict=False):
            result = self.loop.results[source.argument.index]
            self._collect(pieces.setdefault(result, {}), source.chunk or 0, ADD, result, value)
        rest = self.loop.results[len(self.loop.carried) :] * self.flat.directions
        for result, value in zip(rest, new.results[self.flat.carries :], strict=True):
            self._collect(pieces.setdefault(result, {}), 0, CONCAT, result, value)
        for result, parts in pieces.items():
            self.values[result] = self._assembled(parts) if result in self.stacks else [parts[0]]

    def _collect(
        self,
        parts: dict[int, SSAValue],
        chunk: int,
        kind: StepKind,
        result: SSAValue,
        value: SSAValue,
    ) -> None:
        """Take a result of the new loop as a chunk's part of an old result; a further sum, or the
        microbatches of a second direction, are joined with the part that is there."""
        if (here := parts.get(chunk)) is not None:
            there = self._brought(value, self._home(here))
            value = self._step(kind, here, there, **({"dim": 0} if kind is CONCAT else {}))
        set_name(value, result.name_hint)
        pass_role(result, value)
        parts[chunk] = value

    def _taken(self, number: int, place: int) -> SSAValue:
        """Return the operand of the loop for an argument of the flat body at a place."""
        source = self.flat.sources[number]
        if source.is_extra:
            return self._zero(dist_type(self.flat.block.args[number]), place)
        operand, chunk = self.loop.operands[source.argument.index], source.chunk
        outer = self.values[operand]
        if chunk is None:
            is_slice = self.flat.carries <= number < self.flat.carries + self.flat.slices
            whole = self._half(outer[0], source.direction) if is_slice else outer[0]
            return self._brought(whole, place)
        row, home = outer[self.row_of[chunk]], self.places[chunk]
        key = row, home
        if key not in self.brought:
            self.brought[key] = self._step(PART, row, axes=self.axis.subs, coordinate=home, dim=0)
            set_name(self.brought[key], row.name_hint)
        return self._brought(self.brought[key], place)

    def _half(self, value: SSAValue, direction: int) -> SSAValue:
        """Return the microbatches of a direction."""
        count = self.loop.times // self.flat.directions
        if count == self.loop.times:
            return value
        key = value, -1 - direction
        if key not in self.brought:
            high = self.loop.times - (direction + 1) * count
            low = direction * count
            half = self._step(PAD, value, dim=0, low=-low, high=-high, value=0.0)
            set_name(half, value.name_hint)
            self.brought[key] = half
        return self.brought[key]

    def _zero(self, x: DistType, place: int) -> SSAValue:
        """Return a zero of a type at a place."""
        to = replace(x, partial=frozenset(), reduction=None).with_place(self.axis.at(place))
        zero = self._step(CONSTANT, value=0.0, to=to)
        if x.partial:
            over = self.mesh.ordered(x.partial)
            zero = self._step(MASK, zero, axes=over, reduction=str(x.reduction))
        return zero

    def _assembled(self, parts: dict[int, SSAValue]) -> list[SSAValue]:
        """Return the rows of a stack of which each chunk is made at its place."""
        rows: list[SSAValue] = []
        for row in range(len(self.rows)):
            chunks = [c for c in range(len(self.places)) if self.row_of[c] == row]
            chunks.sort(key=lambda chunk: self.places[chunk])
            values = [parts[chunk] for chunk in chunks]
            rows.append(self._step(ASSEMBLE, *values, axes=self.axis.subs, dim=0))
            set_name(rows[-1], values[0].name_hint)
        return rows

    # --- the signature --------------------------------------------------------------------------

    def _finished(self, last: Operation) -> FuncOp:
        returned = [value for old in last.operands for value in self.values[old]]
        end = ReturnOp(*returned)
        end.location = last.location
        self.block.add_op(end)
        old = self.function
        types = FunctionType.from_lists(
            [arg.type for arg in self.block.args], [value.type for value in returned]
        )
        new = FuncOp(old.sym_name.data, types, Region(self.block))
        new.attributes = shared_attributes(old)
        new.location = old.location
        taken = [len(self.values[argument]) for argument in old.args]
        given = [len(self.values[value]) for value in last.operands]
        set_argument_roles(new, _each(argument_roles(old), taken))
        set_result_roles(new, _each(result_roles(old), given))
        names = _each(argument_names(old), taken), _each(result_names(old), given)
        name_signature(new, *names)
        return new


T = TypeVar("T")


def _each(items: Sequence[T], counts: Sequence[int]) -> list[T]:
    return [item for item, count in zip(items, counts, strict=True) for _ in range(count)]


def _made_of_one(value: SSAValue) -> bool:
    """Return whether a value is another form, such as a cast, of a parameter or a state."""
    owner = value.owner
    while isinstance(owner, DistOp) and len(owner.operands) == 1:
        value = owner.operands[0]
        owner = value.owner
    return role_of(value) in (Role.PARAMETER, Role.STATE)
