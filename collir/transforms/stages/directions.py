"""A second copy of the model, whose chunks go the other way through the places.

The copy takes microbatches of its own, and starts its sums from zero: they are added to those of
the first copy behind the loop. The weights are those of the first copy, sent once in a step.
"""

from xdsl.ir import BlockArgument, Operation, SSAValue

from collir.dialects.nested import RepeatOp, YieldOp
from collir.dialects.operation import DistOp
from collir.ir.diagnostics import DiagnosticError
from collir.ir.names import set_name
from collir.ir.roles import pass_role
from collir.layout.coll import ADD
from collir.layout.pipelines.tasks import Part
from collir.transforms.stages.assignment import Assignment
from collir.transforms.stages.chunks import Flat


def with_second_direction(flat: Flat, tasks: Assignment, chunks: int, loop: RepeatOp) -> Assignment:
    """Add a copy of the steps of a microbatch to a flat body, and return the tasks of both.

    Args:
        chunks: the number of chunks of a copy; those of the second copy come behind.
        loop: the loop over microbatches, for errors.

    Raises:
        DiagnosticError: a carry is no sum over microbatches.
    """
    for number in range(flat.carries):
        _check_sum(flat, number, loop)
    block, last = flat.block, flat.last
    old_ops, yielded = flat.ops, list(last.operands)
    carries, slices = flat.carries, flat.slices
    values: dict[SSAValue, SSAValue] = {}
    for start, count, is_extra in ((carries, slices, False), (0, carries, True)):
        for number in range(start, start + count):
            old, source = block.args[number], flat.sources[number]
            values[old] = _argument(flat, number + count, old)
            source = source._replace(is_extra=is_extra, direction=1)
            flat.sources.insert(number + count, source)
    flat.carries, flat.slices, flat.directions = 2 * carries, 2 * slices, 2
    task: dict[Operation, Part] = dict(tasks.task)
    for op in old_ops:
        if op in tasks.everywhere:
            continue
        new = op.clone(values)
        block.insert_op_before(new, last)
        for before, after in zip(op.results, new.results, strict=True):
            set_name(after, before.name_hint)
            pass_role(before, after)
        values |= zip(op.results, new.results, strict=True)
        kind, chunk = tasks.task[op]
        task[new] = kind, chunk + chunks
    copies = [values[value] for value in yielded]
    ends = [*yielded[:carries], *copies[:carries], *yielded[carries:], *copies[carries:]]
    block.erase_op(last)
    block.add_op(YieldOp.create(operands=ends))
    return Assignment(task, tasks.everywhere)


def _argument(flat: Flat, index: int, old: BlockArgument) -> BlockArgument:
    new = flat.block.insert_arg(old.type, index)
    set_name(new, old.name_hint)
    return new


def _check_sum(flat: Flat, number: int, loop: RepeatOp) -> None:
    """Check that a carry is a sum over microbatches.

    Raises:
        DiagnosticError: it is not.
    """
    value: SSAValue = flat.block.args[number]
    while len(uses := list(value.uses)) == 1:
        op = uses[0].operation
        if op is flat.last and uses[0].index == number:
            return
        if not isinstance(op, DistOp) or (op.kind is not ADD and op.kind.before is None):
            break
        value = op.result
    name = flat.sources[number].argument.name_hint
    raise DiagnosticError.at(
        loop,
        f"each microbatch does more with %{name} than adding to it, and two copies of the model, "
        "which take half of the microbatches each, need sums: use a schedule with one copy",
    )
