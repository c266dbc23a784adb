"""Functions cut into the stages of a pipeline, with their former signature restored.

A function with a pipeline over an axis takes and returns some values at a place of that axis. Its
stacks of layers are rows sharded over the axis: row r holds a chunk of layers at each place; a
single row is the stack itself. A copy of the function gets the signature of the function before:
values are brought to their places in front of its steps, and back behind them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, groupby, pairwise

from xdsl.dialects.builtin import FunctionType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue

from collir.dialects.machine import mesh_of
from collir.dialects.nested import CallOp, RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import DistTensorType, dist_type
from collir.ir.calls import calls_in
from collir.ir.functions import copied_beside
from collir.ir.names import set_name
from collir.ir.steps import step_op
from collir.layout import Dim, DistType, LayoutError, Mesh
from collir.layout.coll import ALL_GATHER, BROADCAST, CONCAT, KEEP, PAD, PART, SLICE
from collir.layout.cuts import pieces
from collir.layout.mesh import index_over
from collir.layout.pipelines.tasks import part_name
from collir.layout.pipelines.text import part_of_text
from collir.layout.sizes import same_size
from collir.layout.steps import Argument, StepKind
from collir.layout.types import with_axes
from collir.transforms.inlining import function_without_calls

Order = Sequence[Sequence[int]]
"""The chunk that each row holds at each place."""


class UnstagedError(Exception):
    """A function whose signature from before its stages cannot be restored."""


@dataclass(frozen=True)
class Unstaged:
    """A function without calls, with the signature from before its stages.

    Attributes:
        results: the number of the first result of the function with stages, for each result.
    """

    function: FuncOp
    results: Sequence[int]


def without_stages(before: FuncOp, after: FuncOp) -> Unstaged:
    """Return a function without calls, with the signature of the function before its stages.

    Raises:
        UnstagedError: the chunks in the rows of a stack cannot be found.
    """
    alone = function_without_calls(after)
    same = Unstaged(alone, range(len(after.function_type.outputs)))
    mesh, subs = mesh_of(after), _stage_axes(before, after)
    old, new = before.function_type, after.function_type
    taken = _counts(old.inputs.data, new.inputs.data, subs)
    given = _counts(old.outputs.data, new.outputs.data, subs)
    if not subs or taken is None or given is None:
        return same
    counts = {count for count in (*taken, *given) if count > 1}
    if len(counts) > 1:
        raise UnstagedError(f"its stacks are in {' and '.join(map(str, sorted(counts)))} rows")
    order: Order = _chunks_in_rows(after, taken, subs) if counts else ()
    copy = copied_beside(alone, alone)
    try:
        _Unstaging(copy, subs, order).run(taken, given)
    except LayoutError as error:
        text = f"its signature cannot be that before its stages over {', '.join(mesh.short(subs))}"
        raise UnstagedError(f"{text}: {error}") from error
    return Unstaged(copy, [sum(given[:number]) for number in range(len(given))])


def _stage_axes(before: FuncOp, after: FuncOp) -> tuple[str, ...]:
    """Return the sub-axes of the places of tasks, which the function before did not use."""
    old, new = mesh_of(before), mesh_of(after)
    axis_of = {sub.name: sub.axis for sub in old.sub_axes}
    known = {axis_of.get(name, name) for x in _types(before) for name in x.axes}
    values = (value for call in _tasks(after) for value in call.results)
    places = {axis for value in values for axis in dist_type(value).placed}
    return new.ordered(name for name in places if new.by_name[name].axis not in known)


def _types(function: FuncOp) -> Iterator[DistType]:
    signature = function.function_type
    for x in (*signature.inputs, *signature.outputs):
        if isinstance(x, DistTensorType):
            yield x.data


def _counts(
    before: Sequence[Attribute], after: Sequence[Attribute], subs: tuple[str, ...]
) -> list[int] | None:
    """Return for each value of the signature before how many values it has become; None if their
    shapes do not fit."""
    left = [x.data for x in after if isinstance(x, DistTensorType)]
    counts: list[int] = []
    for old in before:
        count = _rows(old.data, left, subs) if isinstance(old, DistTensorType) else 0
        if not count:
            return None
        counts.append(count)
        left = left[count:]
    return None if left else counts


def _rows(old: DistType, left: Sequence[DistType], subs: tuple[str, ...]) -> int:
    """Return how many of the first of some types make up a value of a type; 0 if none can."""
    if not left or old.dtype != left[0].dtype or len(old.shape) != len(left[0].shape):
        return 0
    if same_size(old.shape, left[0].shape):
        return 1
    ends = accumulate(x.shape[0] if x.shape else 0 for x in left)
    count = next((n for n, end in enumerate(ends, 1) if end >= old.shape[0]), 0)
    first = Dim(old.shape[0], subs)
    rows = [replace(x, dims=(first, *x.dims[1:])) for x in left[:count]]
    whole = same_size(sum(x.shape[0] for x in left[:count]), old.shape[0])
    alike = all(x.dims and x.dims[0].axes == subs for x in left[:count])
    alike = alike and all(map(rows[0].agrees, rows))
    return count if whole and alike and same_size(rows[0].shape, old.shape) else 0


# --- chunks in rows -----------------------------------------------------------------------------


def _chunks_in_rows(function: FuncOp, taken: Sequence[int], subs: tuple[str, ...]) -> Order:
    """Return the chunk that each row of a stack holds at each place: the chunk whose forward task
    takes this part.

    Raises:
        UnstagedError: no task takes a part, or tasks of several chunks do.
    """
    mesh = mesh_of(function)
    starts = [sum(taken[:number]) for number in range(len(taken))]
    row_of = {
        function.args[start + row]: (start, row)
        for start, count in zip(starts, taken, strict=True)
        for row in range(count if count > 1 else 0)
    }
    held: dict[tuple[int, int], dict[int, BlockArgument]] = {}
    for chunk, value in _taken_by_chunks(function):
        for argument, place in _parts(value, mesh, subs):
            if argument in row_of:
                _, row = row_of[argument]
                held.setdefault((row, place), {})[chunk] = argument
    order: list[list[int]] = []
    for row in range(max(taken)):
        order.append([])
        for place in range(mesh.group_size(subs)):
            order[row].append(_chunk_held(held.get((row, place), {}), row, place))
    if sorted(chain(*order)) != list(range(sum(map(len, order)))):
        raise UnstagedError("its rows of chunks do not hold each chunk once")
    return order


def _chunk_held(chunks: dict[int, BlockArgument], row: int, place: int) -> int:
    """Return the chunk of the only forward task that takes row number ``row`` at a place."""
    where = f"row {row} of its stacks holds at place {place}"
    if not chunks:
        raise UnstagedError(f"which chunk {where} is not known: no forward task takes it")
    if len(chunks) > 1:
        listed = " and ".join(
            f"task {part_name(('F', chunk))} takes that of %{value.name_hint}"
            for chunk, value in sorted(chunks.items(), key=lambda item: item[0])
        )
        raise UnstagedError(f"which chunk {where} is not known: {listed}")
    return next(iter(chunks))


def _tasks(function: FuncOp) -> list[CallOp]:
    """Return the calls of a function that are tasks of a pipeline, in its loop or written out."""
    return [call for call in calls_in(function) if call.task is not None]


def _taken_by_chunks(function: FuncOp) -> Iterator[tuple[int, SSAValue]]:
    """Yield the values from outside of its loops that the forward tasks of a function take, each
    with the chunk of the task."""
    for call in _tasks(function):
        assert call.task is not None
        kind, chunk = part_of_text(call.task.data)
        loop = call.parent_op()
        taken: dict[SSAValue, SSAValue] = {}
        if isinstance(loop, RepeatOp):
            taken |= zip(loop.body.block.args, loop.operands, strict=True)
        for value in call.operands if kind == "F" else ():
            yield chunk, taken.get(value, value)


def _parts(
    value: SSAValue, mesh: Mesh, subs: tuple[str, ...]
) -> Iterator[tuple[BlockArgument, int]]:
    """Yield the arguments whose parts at places make up a value, each with the place."""
    left: list[tuple[SSAValue, int | None]] = [(value, None)]
    for x, place in left:  # grows meanwhile
        if isinstance(x, BlockArgument):
            if place is not None:
                yield x, place
        elif isinstance(op := x.owner, DistOp):
            if op.kind is PART and mesh.ordered(op.over) == subs:
                own = dict(dist_type(x).place)
                place = index_over(mesh, subs, {axis: own[axis] for axis in subs})
            left += ((operand, place) for operand in op.operands)


# --- the copy -----------------------------------------------------------------------------------


class _Unstaging:
    """A function whose signature becomes the one before it was cut into stages, in place."""

    def __init__(self, function: FuncOp, subs: tuple[str, ...], order: Order):
        self.function, self.subs, self.order = function, subs, order
        self.mesh = mesh_of(function)
        self.block: Block = function.body.block
        last = self.block.last_op
        assert isinstance(last, ReturnOp)
        self.last = last
        self.before: Operation = self.block.first_op or last
        self.shares = pieces(self.mesh, (), subs) or ()

    def run(self, taken: Sequence[int], given: Sequence[int]) -> None:
        """Change the function.

        Args:
            taken: the numbers of arguments that become one, in order.
            given: the numbers of results that become one, in order.
        """
        ends = [sum(taken[: number + 1]) for number in range(len(taken))]
        groups = [self.function.args[end - n : end] for n, end in zip(taken, ends, strict=True)]
        for arguments in groups:
            self._replace(arguments)
        self.before = self.last
        values = list(self.last.operands)
        returned: list[SSAValue] = []
        for count in given:
            rows, values = values[:count], values[count:]
            returned.append(self._stack(rows) if count > 1 else self._everywhere(rows[0]))
        self.last.operands = returned
        inputs = [argument.type for argument in self.block.args]
        outputs = [value.type for value in returned]
        self.function.properties["function_type"] = FunctionType.from_lists(inputs, outputs)
        for name in ("arg_attrs", "res_attrs"):
            self.function.properties.pop(name, None)

    def _step(self, kind: StepKind, *operands: SSAValue, **arguments: Argument) -> SSAValue:
        op = step_op(self.mesh, kind, operands, **arguments)
        self.block.insert_op_before(op, self.before)
        return op.result

    # --- arguments ----------------------------------------------------------------------------

    def _replace(self, arguments: Sequence[BlockArgument]) -> None:
        """Replace arguments by the single argument that they stand for, which is at every place."""
        first = arguments[0]
        rows = [dist_type(row).shape[0] for row in arguments] if len(arguments) > 1 else []
        x = self._type_everywhere(dist_type(first), rows)
        new = self.block.insert_arg(DistTensorType(x), first.index)
        set_name(new, first.name_hint)
        for row, old in enumerate(arguments):
            values = self._row(new, row, rows) if rows else new
            old.replace_all_uses_with(self._brought(values, dist_type(old)))
            self.block.erase_arg(old)

    def _type_everywhere(self, x: DistType, rows: Sequence[int]) -> DistType:
        for number, dim in enumerate(x.dims):
            left = tuple(axis for axis in dim.axes if axis not in self.subs)
            x = with_axes(x, number, left)
        x = x.without_place(self.subs)
        return replace(x, dims=(replace(x.dims[0], size=sum(rows)), *x.dims[1:])) if rows else x

    def _row(self, stack: SSAValue, row: int, rows: Sequence[int]) -> SSAValue:
        """Return the chunks of a row, in the order of its places; ``rows`` are the layers of each
        row."""
        layers = {
            chunk: size
            for chunks, total in zip(self.order, rows, strict=True)
            for chunk, size in zip(chunks, self._layers(total), strict=True)
        }
        starts = [0, *accumulate(layers[chunk] for chunk in range(len(layers)))]
        parts = [self._cut(stack, starts[a], starts[b + 1]) for a, b in _runs(self.order[row])]
        return self._joined(parts)

    def _layers(self, total: int) -> list[int]:
        """Return the layers of each place in a row."""
        return [total * share // sum(self.shares) for share in self.shares]

    def _brought(self, value: SSAValue, to: DistType) -> SSAValue:
        """Return a value that every place has, moved to where a type has it."""
        place = tuple(item for item in to.place if item[0] in self.subs)
        if place:
            value = self._step(KEEP, value, place=place)
        for number, dim in enumerate(to.dims):
            if over := tuple(axis for axis in dim.axes if axis in self.subs):
                value = self._step(SLICE, value, axes=over, dim=number)
        return value

    # --- results ------------------------------------------------------------------------------

    def _everywhere(self, value: SSAValue) -> SSAValue:
        """Return a value that every place has."""
        x = dist_type(value)
        for number, dim in enumerate(x.dims):
            if over := tuple(axis for axis in dim.axes if axis in self.subs):
                value = self._step(ALL_GATHER, value, axes=over, dim=number)
        if over := self.mesh.ordered(x.placed.intersection(self.subs)):
            value = self._step(BROADCAST, value, axes=over)
        return value

    def _stack(self, rows: Sequence[SSAValue]) -> SSAValue:
        """Return the layers of rows of chunks, in order."""
        whole = [self._everywhere(row) for row in rows]
        at = {chunk: (r, p) for r, row in enumerate(self.order) for p, chunk in enumerate(row)}
        parts: list[SSAValue] = []
        for row, group in groupby(sorted(at), key=lambda chunk: at[chunk][0]):
            places = [at[chunk][1] for chunk in group]
            starts = [0, *accumulate(self._layers(dist_type(whole[row]).shape[0]))]
            parts += (self._cut(whole[row], starts[a], starts[b + 1]) for a, b in _runs(places))
        return self._joined(parts)

    # --- pieces -------------------------------------------------------------------------------

    def _cut(self, value: SSAValue, start: int, end: int) -> SSAValue:
        """Return the rows from ``start`` to ``end`` of a leading dimension."""
        high = dist_type(value).shape[0] - end
        if not start and not high:
            return value
        return self._step(PAD, value, dim=0, low=-start, high=-high, value=0.0)

    def _joined(self, parts: Sequence[SSAValue]) -> SSAValue:
        return parts[0] if len(parts) == 1 else self._step(CONCAT, *parts, dim=0)


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last number of each run of numbers that follow each other."""
    starts = [0, *(n + 1 for n, (a, b) in enumerate(pairwise(numbers)) if b != a + 1)]
    for start, end in pairwise([*starts, len(numbers)]):
        yield numbers[start], numbers[end - 1]
