"""Layout changes behind a loop, moved into its iterations.

An iteration may end with a layout change of a value that it stacks, and the stack may change its
layout again behind the loop. If it is cheaper, both become one change in the iteration: gradients
of layers that are reduced whole, and cut behind the loop, are reduced and scattered instead.
"""

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from collir.cost.network.group import CostError
from collir.dialects.machine import mesh_of
from collir.dialects.nested import RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.functions import functions_of, names_weights
from collir.ir.loops import repeats_in
from collir.ir.names import set_name
from collir.ir.roles import pass_role
from collir.layout import DistType
from collir.layout.loops import slice_type
from collir.synthesis.programs.build import planned
from collir.synthesis.programs.choices import best_between
from collir.synthesis.programs.fusion import layout_change, only_user, time_of
from collir.synthesis.programs.rewriting import erase
from collir.synthesis.programs.search_options import TIE, SearchOptions
from collir.synthesis.programs.steps import Program

Sunk = tuple[DistOp, DistOp, Program]
"""The step of an iteration, the one behind the loop, and the program in the place of both."""


def sink_into_loops(module: ModuleOp, options: SearchOptions) -> None:
    """Move changes of stacks into the iterations of loops, in place, where that is cheaper."""
    for function in functions_of(module):
        if names_weights(function):
            continue
        for loop in reversed(repeats_in(function)):
            numbers = range(len(loop.carried), len(loop.results))
            tried = {number: _sunk(loop, number, options) for number in numbers}
            if sunk := {number: x for number, x in tried.items() if x is not None}:
                _rewrite(loop, sunk)


def _sunk(loop: RepeatOp, number: int, options: SearchOptions) -> Sunk | None:
    """Return the steps for a result and its layout change inside the loop, if they are cheaper."""
    value, mesh = loop.yielded[number], mesh_of(loop)
    last, behind = layout_change(value.owner), layout_change(only_user(loop.results[number]))
    if last is None or behind is None or only_user(value) is None:
        return None
    stack, cut = dist_type(loop.results[number]), dist_type(behind.result)
    if cut.dims[0] != stack.dims[0] or cut.local_bytes(mesh) > stack.local_bytes(mesh):
        return None
    best = best_between(mesh, dist_type(last.input), slice_type(mesh, cut, loop.times), options)
    if best is None:
        return None
    try:
        now = loop.times * time_of(last, mesh, options) + time_of(behind, mesh, options)
    except CostError:
        return None
    time, program = best
    return (last, behind, program) if loop.times * time < now * (1 - TIE) else None


def _rewrite(loop: RepeatOp, sunk: Mapping[int, Sunk]) -> None:
    """Put a loop that also changes a layout in the place of a loop and the step behind it."""
    mesh = mesh_of(loop)
    body = Block(arg_types=[arg.type for arg in loop.body.block.args])
    values: dict[SSAValue, SSAValue] = {}
    for old, new in zip(loop.body.block.args, body.args, strict=True):
        set_name(new, old.name_hint)
        values[old] = new
    inside: dict[Operation, Sunk] = {step[0]: step for step in sunk.values()}
    for op in list(loop.body.block.ops)[:-1]:
        if op not in inside:
            body.add_op(op.clone(values))
            continue
        step, behind, program = inside[op]
        target = slice_type(mesh, dist_type(behind.result), loop.times)
        made, result = _built(step, values[step.input], program, target)
        body.add_ops(made)
        values[step.result] = result
    last = loop.body.block.last_op
    assert last is not None
    body.add_op(last.clone(values))
    groups = list(loop.carried), list(loop.sliced), list(loop.invariant)
    longer = loop.rebuilt(groups, body)
    block = loop.parent
    assert block is not None
    block.insert_op_before(longer, loop)
    for number, (old, new) in enumerate(zip(loop.results, longer.results, strict=True)):
        set_name(new, old.name_hint)
        pass_role(old, new)
        if number in sunk:
            behind = sunk[number][1]
            set_name(new, behind.result.name_hint)
            pass_role(behind.result, new)
            behind.result.replace_all_uses_with(new)
            erase([behind])
        else:
            old.replace_all_uses_with(new)
    erase([loop])


def _built(
    last: DistOp, operand: SSAValue, program: Program, target: DistType
) -> tuple[Sequence[Operation], SSAValue]:
    """Return the steps of a program on an operand, with the position of a step, and its result."""
    plan = planned(mesh_of(last), dist_type(operand), program.steps, target)
    made, result = plan.built_on(operand)
    for op in made:
        op.location = last.location
    return made, result
