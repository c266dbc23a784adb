"""A training step as a pipeline: a loop over microbatches with a schedule, layers at places."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp, StringAttr, SymbolRefAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, SSAValue

from collir.dialects.machine import meshes_remembered, module_of
from collir.dialects.nested import CallOp, RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.diagnostics import DiagnosticError
from collir.ir.names import unused_symbol
from collir.ir.parameters import parameters_of
from collir.ir.retyping import fix_parameters
from collir.ir.roles import Role, role_of
from collir.ir.steps import first_use
from collir.layout import LayoutError
from collir.layout.sizes import formula_of
from collir.transforms.loops.fission import Fission
from collir.transforms.stages.around import Around, LayerCut
from collir.transforms.stages.assignment import Assignment, assigned
from collir.transforms.stages.chunks import Flat, flattened
from collir.transforms.stages.directions import with_second_direction
from collir.transforms.stages.layers import layer_loops, layers_of_chunks, shares_of
from collir.transforms.stages.outlining import Outlining, PipelineAxis
from collir.transforms.stages.stacks import needed_by, stacks_of, write_splats_at_uses
from collir.transforms.stages.sums import split_sums
from collir.transforms.stages.undivided import keep_layers_together
from collir.transforms.stages.weights import shares_on, with_shares


@dataclass(frozen=True)
class StagePlan:
    """A plan to cut a step.

    Attributes:
        schedule: the name or the text of the schedule.
        places: the place of each chunk; chunks of a second copy of the model come behind.
        splits: whether gradients of weights are tasks of their own.
        layers: the layers of each chunk; None: by the weights of the axis, if it has any.
        directions: the number of copies of the model, whose chunks go through the places in their
            own order.
    """

    schedule: str
    places: Sequence[int]
    splits: bool
    layers: Sequence[int] | None = None
    directions: int = 1

    @property
    def homes(self) -> Sequence[int]:
        """The place of each chunk of the first copy of the model, where its weights are."""
        return self.places[: len(self.places) // self.directions]


def microbatch_loop(function: FuncOp) -> RepeatOp | None:
    """Return the loop of a function over microbatches: it contains loops over layers forward and
    backward, or forward alone with gradients of other weights. None if it is not unique."""
    ops = [op for op in function.body.block.ops if isinstance(op, RepeatOp) and layer_loops(op)]
    loops = [op for op in ops if any(inner.is_reverse for inner in layer_loops(op))]
    loops = loops or [op for op in ops if any(map(_is_gradient, _values_in(op)))]
    return loops[0] if len(loops) == 1 else None


def _values_in(loop: RepeatOp) -> Iterator[SSAValue]:
    return (value for op in loop.body.block.ops for value in op.results)


def _is_gradient(value: SSAValue) -> bool:
    return role_of(value) is Role.GRADIENT


def stage(function: FuncOp, axis: PipelineAxis, plan: StagePlan) -> FuncOp:
    """Replace a function without calls by one with a pipeline over an axis, and return the new one.

    Raises:
        DiagnosticError: it has no one loop over microbatches, or a step in it does not allow that
            its layers are at several places.
    """
    loop = microbatch_loop(function)
    if loop is None:
        raise DiagnosticError.at(
            function,
            f"@{function.sym_name.data} has no one loop over microbatches with layers forward and "
            "backward in it: say microbatches=, or write a repeat around the gradient",
        )
    if (op := first_use(function, axis.subs)) is not None:
        raise DiagnosticError.at(
            op, "this uses the axis of the pipeline, which is for its stages alone"
        )
    write_splats_at_uses(function)
    sizes = layers_of_chunks(loop, plan.homes, shares_on(axis), plan.layers)
    axis = with_shares(function, axis, shares_of(loop, plan.homes, sizes))
    with meshes_remembered():  # the weights of the axis may be others now
        return _staged(function, loop, axis, plan, sizes)


def _staged(
    function: FuncOp, loop: RepeatOp, axis: PipelineAxis, plan: StagePlan, sizes: Sequence[int]
) -> FuncOp:
    """Replace a function by one with a pipeline; ``sizes`` are the layers of each chunk."""
    _check_forward(loop)
    counts = (formula_of(op.times) for op in (loop, *layer_loops(loop)))
    fix_parameters(function, frozenset[str]().union(*(x.parameters for x in counts)))
    backward, weights = _backward_loops(loop, plan.splits)
    layers = layer_loops(loop)
    stacks = stacks_of(function, loop, layers)
    while keep_layers_together(function, stacks):
        stacks = stacks_of(function, loop, layers)
    try:
        flat = flattened(loop, layers, stacks, sizes)
        tasks = _tasks(loop, flat, plan, backward, weights)
        if split_sums(flat, tasks, axis.mesh):
            tasks = _tasks(loop, flat, plan, backward, weights)
        if plan.directions > 1:
            tasks = with_second_direction(flat, tasks, len(plan.homes), loop)
        outlined = Outlining(flat, tasks, plan.places, axis, parameters_of(function)).run()
        cut = LayerCut(stacks, plan.homes, sizes)
        new = Around(function, loop, cut, flat, outlined, axis).run(plan.schedule)
    except LayoutError as error:
        raise DiagnosticError.at(loop, f"this loop cannot be a pipeline: {error}") from error
    module, block = module_of(function), function.parent_block()
    assert block is not None
    for task in outlined.functions:
        _rename(task, module, outlined.block)
        block.insert_op_before(task, function)
    block.insert_op_before(new, function)
    function.detach()
    function.erase()
    return new


def _check_forward(loop: RepeatOp) -> None:
    """Check that the forward pass takes the layers from the first to the last.

    Raises:
        DiagnosticError: a number of the forward pass, such as the loss, needs a loop in reverse.
    """
    left = [value for value in loop.yielded[: len(loop.carried)] if not dist_type(value).dims]
    seen: set[SSAValue] = set()
    while left:
        value = left.pop()
        if value in seen or _is_gradient(value) or not isinstance(value.owner, Operation):
            continue
        if isinstance(value.owner, RepeatOp) and value.owner.is_reverse:
            raise DiagnosticError.at(
                value.owner,
                "the forward pass takes these layers in reverse, and a pipeline has the first rows "
                "of a stack at its first place: stack the layers in the other order, and leave out "
                "`reverse`",
            )
        seen.add(value)
        left += value.owner.operands


def _rename(task: FuncOp, module: ModuleOp, body: Block) -> None:
    """Give the function of a task a name that is new in the module."""
    old = task.sym_name.data
    name = unused_symbol(module, old)
    if name == old:
        return
    task.properties["sym_name"] = StringAttr(name)
    for op in body.ops:
        if isinstance(op, CallOp) and op.symbol == old:
            op.properties["callee"] = SymbolRefAttr(name)


def _backward_loops(loop: RepeatOp, splits: bool) -> tuple[set[Operation], set[Operation]]:
    """Return the loops of the backward pass, and those of them for gradients of weights alone."""
    backward: set[Operation] = set()
    weights: set[Operation] = set()
    for inner in [op for op in layer_loops(loop) if op.is_reverse]:
        parts = Fission.of(inner) if splits else None
        if parts is not None and parts.why_not() is None:
            first, second = parts.cut()
            backward |= {first, second}
            weights.add(second)
        else:
            backward.add(inner)
            if not inner.carried:
                weights.add(inner)
    return backward, weights


def _tasks(
    loop: RepeatOp,
    flat: Flat,
    plan: StagePlan,
    backward: set[Operation],
    weights: set[Operation],
) -> Assignment:
    last = {op for op, (_, old) in flat.loops.items() if old in backward}
    forward = [x for x in flat.last.operands if _is_loss(x) and last.isdisjoint(needed_by([x]))]
    return assigned(flat, len(plan.homes), backward, weights, forward, plan.splits)


def _is_loss(value: SSAValue) -> bool:
    """Return whether a value is a number, and neither a gradient nor a sum of gradients.

    Other values may be computed in the backward pass as well.
    """
    left = [] if dist_type(value).dims else [value]
    number = bool(left)
    for value in left:  # grows meanwhile
        if role_of(value) is Role.GRADIENT:
            return False
        if isinstance(value.owner, DistOp):
            left += (x for x in value.owner.operands if isinstance(x.owner, DistOp))
    return number
