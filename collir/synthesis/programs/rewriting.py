"""The rewrite of functions: chosen programs in the place of operations."""

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, PatternRewriterListener
from xdsl.rewriter import InsertPoint

from collir.cost.model import CostModel
from collir.cost.programs.simulate import simulate_function
from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.alternatives import FOR, FROM
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import scratch_copy
from collir.ir.remarks import remark
from collir.ir.roles import pass_role
from collir.layout import LayoutError
from collir.synthesis.programs.build import planned
from collir.synthesis.programs.choices import needs_search
from collir.synthesis.programs.steps import Program

Programs = tuple[Program | None, ...]
"""A choice for every operation of a function that has one."""


@dataclass(frozen=True)
class KeptCollective:
    """An operation or function that stays as it is written.

    Attributes:
        what: the operation or function in words.
        why: the reason in words.
    """

    op: Operation
    what: str
    why: str


def unplaced_in(function: FuncOp) -> list[KeptCollective]:
    """Return the function, if it has collectives to search for but no mesh on levels."""
    if (mesh := mesh_of(function)).placed or not any(map(needs_search, function.body.ops)):
        return []
    return [
        KeptCollective(
            function,
            f"@{function.sym_name.data}",
            f"mesh @{mesh.name} is not on levels: -p place,decompose chooses some",
        )
    ]


def searched_in(function: FuncOp) -> list[DistOp]:
    """Return the operations of a function that programs may replace."""
    placed = mesh_of(function).placed
    return [
        op
        for op in function.body.ops
        if isinstance(op, DistOp) and needs_search(op) and (placed or op.kind.placeholder)
    ]


def add_copies(module: ModuleOp, function: FuncOp, count: int) -> list[FuncOp]:
    """Add copies of a function behind it, ``@f_2`` and so on; none takes another's place."""
    names = {op.sym_name.data for op in module.ops if isinstance(op, FuncOp)}
    made: list[FuncOp] = []
    for number in range(2, count + 2):
        copy = function.clone()
        name = f"{function.sym_name.data}_{number}"
        while name in names:
            name += "_"
        names.add(name)
        copy.properties["sym_name"] = StringAttr(name)
        for attribute in (FOR, FROM):
            copy.attributes.pop(attribute, None)
        made.append(copy)
    module.body.block.insert_ops_after(made, function)
    return made


def rewrite(function: FuncOp, picked: Programs, listener: PatternRewriterListener | None) -> None:
    """Put programs in the place of the operations of a function.

    Raises:
        DiagnosticError: a tensor so large that no padding fits.
    """
    for op, program in zip(searched_in(function), picked, strict=True):
        if program is not None:
            if listener is not None:  # otherwise it is a trial
                _tell_of_copies(op, program)
            put(op, program, listener)


def time_with(function: FuncOp, picked: Programs, model: CostModel) -> float:
    """Return the seconds of a function with programs in the place of its operations.

    Raises:
        DiagnosticError: it cannot be simulated, or see ``rewrite``.
    """
    with scratch_copy(function) as copy:
        rewrite(copy, picked, None)
        return simulate_function(copy, model).time


def put(op: DistOp, program: Program, listener: PatternRewriterListener | None) -> None:
    """Put a program in the place of an operation.

    Raises:
        DiagnosticError: a tensor so large that no padding fits.
    """
    source, target = dist_type(op.operands[0]), dist_type(op.result)
    try:
        plan = planned(mesh_of(op), source, program.steps, target, program.pipeline)
    except LayoutError as error:
        message = f"this {op.mnemonic} cannot be decomposed: {error.text(op.operand_names())}"
        raise DiagnosticError.at(op, message) from error
    ops, value = plan.built_on(op.operands[0])
    for step in ops:
        if step.kind.may_be_async:
            step.properties |= op.timing
    replace_by(op, ops, value, listener)


def replace_by(
    op: Operation,
    ops: Sequence[Operation],
    value: SSAValue,
    listener: PatternRewriterListener | None,
) -> None:
    """Put operations in the place of an operation; ``value`` is its result from now on."""
    rewriter = rewriter_at(op, listener)
    rewriter.insert(ops, InsertPoint.before(op))
    pass_role(op.results[0], value)
    rewriter.replace(op, [], [value])


def rewriter_at(op: Operation, listener: PatternRewriterListener | None) -> PatternRewriter:
    """Return a rewriter at an operation that tells a listener."""
    rewriter = PatternRewriter(op)
    if listener is not None:
        rewriter.extend_from_listener(listener)
    return rewriter


def erase(ops: Sequence[Operation]) -> None:
    """Erase operations whose results only later ones among them use."""
    for op in reversed(ops):
        PatternRewriter(op).erase(op)


def _tell_of_copies(op: DistOp, program: Program) -> None:
    """Remark that a program goes over sub-axes along which devices hold copies of the operand.

    Where the copies differ, against the types, such a program computes a mixture of them.
    """
    mesh = mesh_of(op)
    named = {*dist_type(op.input).axes, *dist_type(op.result).axes}
    used = {axis for step in program.steps for axis in step.axes} - named
    if used:
        (operand, *_), axes = op.operand_names(), ", ".join(mesh.short(mesh.ordered(used)))
        same = f"{operand} is the same on every coordinate of {axes}"
        remark(op, f"the program in its place uses that {same}")
