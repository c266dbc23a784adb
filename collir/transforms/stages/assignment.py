"""The task of a pipeline that each step of a microbatch belongs to.

Loops over layers are in the task of their chunk. A forward step is in the chunk of the last value
that it needs. A step that only needs inputs of the training step is in the first chunk that needs
its result. So steps in front of the layers are in the first chunk, and steps behind them in the
last. A backward step is in the chunk of the last gradient that it needs, or else of the last
forward value. Where gradients of weights are tasks of their own (W), these contain the steps that
no gradient of a lower chunk waits for.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import BlockArgument, Operation, SSAValue

from collir.ir.diagnostics import DiagnosticError
from collir.layout.pipelines.tasks import Part
from collir.transforms.stages.chunks import Flat
from collir.transforms.stages.stacks import needed_by, users_in


def made_of_nothing(ops: Sequence[Operation]) -> set[Operation]:
    """Return the operations that depend on no argument; each task repeats them."""
    constants: set[Operation] = set()
    for op in ops:
        if not op.regions and all(operand.owner in constants for operand in op.operands):
            constants.add(op)
    return constants


@dataclass(frozen=True, eq=False)
class Assignment:
    """The tasks of the steps of a microbatch.

    Attributes:
        task: the task of each operation.
        everywhere: the operations that each task repeats.
    """

    task: Mapping[Operation, Part]
    everywhere: set[Operation]


def assigned(
    flat: Flat,
    chunks: int,
    backward: set[Operation],
    weights: set[Operation],
    forward: Iterable[SSAValue],
    splits: bool,
) -> Assignment:
    """Return the tasks of the steps of a flat body.

    Args:
        backward: the loops over layers (of the whole body) that are of the backward pass.
        weights: the loops of these that compute only gradients of weights.
        forward: the yielded values of the forward pass, such as the loss.
        splits: whether gradients of weights are tasks of their own.

    Raises:
        DiagnosticError: a chunk of layers needs a value of a later one.
    """
    ops = flat.ops
    cheap = made_of_nothing(ops) - {value.owner for value in flat.last.operands}
    loops = flat.loops
    of_layers = {op for op, (_, old) in loops.items() if old not in backward}
    inputs = (value for op in of_layers for value in op.operands)
    ahead = needed_by([*forward, *inputs]) | of_layers
    after = 2 * chunks - 1
    position = {
        op: after - chunk if old in backward else chunk for op, (chunk, old) in loops.items()
    }
    _check_order(flat, position)
    open_ops: list[Operation] = []
    for op in ops:
        if op in position or op in cheap:
            continue
        makers = [x.owner for x in op.operands if isinstance(x.owner, Operation)]
        known = [position[maker] for maker in makers if maker in position]
        own = _chunks_of_arguments(flat, op)
        known += own if op in ahead else [after - chunk for chunk in own]
        later = [number for number in known if number >= chunks]
        if not known:
            open_ops.append(op)
        elif op in ahead:
            position[op] = max(known)
        else:
            position[op] = max(later, default=after - max(known))
    for op in reversed(open_ops):
        users = [user for result in op.results for user in users_in(result, position)]
        if op in ahead:
            users = [user for user in users if user in ahead]
        first = 0 if op in ahead else chunks
        position[op] = min((position[user] for user in users), default=first)
    flowing = {op for op, (_, old) in loops.items() if old in backward - weights}
    flow = needed_by(value for op in flowing for value in op.operands) | flowing
    task: dict[Operation, Part] = {}
    for op, number in position.items():
        if op in ahead:
            task[op] = "F", number
        else:
            kind = "B" if not splits or op in flow else "W"
            task[op] = kind, after - number
    for op in reversed(ops):  # no task waits for a W, which schedules put anywhere behind its B
        kind, chunk = own = task.get(op, ("", 0))
        uses = (use.operation for result in op.results for use in result.uses)
        if kind == "W" and any(task.get(user, own) != own for user in uses):
            task[op] = "B", chunk
    return Assignment(task, cheap)


def _chunks_of_arguments(flat: Flat, op: Operation) -> list[int]:
    """Return the chunks whose rows of stacks an operation takes from the arguments."""
    arguments = (x for x in op.operands if isinstance(x, BlockArgument) and x.owner is flat.block)
    sources = (flat.sources[x.index] for x in arguments)
    return [source.chunk for source in sources if source.chunk is not None]


def _check_order(flat: Flat, position: Mapping[Operation, int]) -> None:
    """Check that loops over the layers of a chunk need no later chunks.

    Raises:
        DiagnosticError: one does.
    """
    reached: dict[Operation, int] = {}
    for op in flat.ops:
        makers = [x.owner for x in op.operands]
        before = [reached[x] for x in makers if isinstance(x, Operation) and x in reached]
        before += [] if op in position else _chunks_of_arguments(flat, op)
        if before:
            reached[op] = max(before)
        if op in position:
            if max(before, default=0) > position[op]:
                raise DiagnosticError.at(
                    flat.loops[op][1],
                    "a pipeline runs the layers once, from the first to the last, and this "
                    "loop needs what layers behind its own make: let one loop over one stack "
                    "have all layers",
                )
            reached[op] = position[op]
