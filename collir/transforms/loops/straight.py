"""Functions cut into straight programs, for the rewrites that know only steps.

A loop or a call is a wall: no step moves over it. The steps between two walls, and those of the
body of a loop, are a program of their own. Rewrites of straight programs therefore rewrite the
programs between the walls, and know nothing of walls.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from xdsl.dialects.builtin import ModuleOp, UnrealizedConversionCastOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region, SSAValue

from collir.dialects.nested import NestedOp, RepeatOp
from collir.dialects.parameters import parameters_of
from collir.ir.ahead import drop_misplaced
from collir.ir.calls import functions_at_values, misfits, values_text
from collir.ir.names import set_name
from collir.ir.parameters import keep_used_parameters, shared_attributes
from collir.ir.remarks import remark
from collir.ir.verification import errors_in

P = ParamSpec("P")
R = TypeVar("R")


def on_straight_programs(
    rewrite: Callable[Concatenate[ModuleOp, P], R],
) -> Callable[Concatenate[ModuleOp, P], R]:
    """Return a rewrite of a module that is given straight programs in the place of functions."""

    @wraps(rewrite)
    def wrapped(module: ModuleOp, *args: P.args, **kwargs: P.kwargs) -> R:
        called = {f.sym_name.data: f.clone() for f in functions_at_values(module)}
        with straight_programs(module):
            result = rewrite(module, *args, **kwargs)
        if called:
            _undo_misfits(module, called)
        return result

    return wrapped


def _undo_misfits(module: ModuleOp, before: Mapping[str, FuncOp]) -> None:
    """Undo changes of functions that no longer fit the values of their calls.

    Args:
        before: the functions that are called at other values than their defaults, by name.
    """
    for function, bindings in misfits(module, errors_in).items():
        name = function.sym_name.data
        block = function.parent_block()
        assert block is not None
        block.insert_op_after(before[name], function)
        function.detach()
        function.erase()
        remark(
            before[name],
            f"@{name} stays as it is: what is made of it does not fit {values_text(bindings)}, at "
            "which it is called; -p inline first rewrites its steps where they are called",
        )


@contextmanager
def straight_programs(module: ModuleOp) -> Generator[None]:
    """Put the straight programs of functions with loops or calls in the place of these functions.

    They have the names of their functions. In the end each program is put back where it came from.
    """
    cuts = [
        _Cut(op)
        for op in list(module.ops)
        if isinstance(op, FuncOp) and any(isinstance(x, NestedOp) for x in op.walk())
    ]
    try:
        yield
    finally:
        for cut in reversed(cuts):
            cut.restore()


class _Cut:
    """A function whose straight programs are functions of their own.

    Attributes:
        programs: the programs, each with the operation that keeps its place.
    """

    def __init__(self, function: FuncOp):
        self.function = function
        self.block = function.parent_block()
        self.programs: list[tuple[UnrealizedConversionCastOp, FuncOp]] = []
        for block in list(_blocks(function)):
            for run in _runs(block):
                self.programs.append(self._taken_out(block, run))
        assert self.block is not None
        for _, program in self.programs:
            self.block.insert_op_before(program, function)
        # What stands in front of the function stays there; without programs nothing else does.
        self.before = function.prev_op
        self.block.detach_op(function)

    def _taken_out(
        self, block: Block, run: list[Operation]
    ) -> tuple[UnrealizedConversionCastOp, FuncOp]:
        """Move operations to a function of their own, and leave an operation in their place."""
        inside = set(run)
        inputs = dict.fromkeys(
            operand for op in run for operand in op.operands if operand.owner not in inside
        )
        outputs = [
            result
            for op in run
            for result in op.results
            if any(use.operation not in inside for use in result.uses)
        ]
        place = UnrealizedConversionCastOp.get([*inputs], [value.type for value in outputs])
        block.insert_op_before(place, run[0])
        for value, stand_in in zip(outputs, place.results, strict=True):
            value.replace_uses_with_if(stand_in, lambda use: use.operation not in inside)
        body = Block(arg_types=[value.type for value in inputs])
        for value, argument in zip(inputs, body.args, strict=True):
            set_name(argument, value.name_hint)
            value.replace_uses_with_if(argument, lambda use: use.operation in inside)
        for op in run:
            block.detach_op(op)
            body.add_op(op)
        body.add_op(ReturnOp(*outputs))
        types = [arg.type for arg in body.args], [value.type for value in outputs]
        program = FuncOp(self.function.sym_name.data, types, Region(body))
        program.attributes = shared_attributes(self.function)
        keep_used_parameters(program, parameters_of(self.function))
        program.location = self.function.location
        return place, program

    def restore(self) -> None:
        """Put the programs back into the function, and the function back into its module."""
        assert self.block is not None
        if self.before is not None:
            self.block.insert_op_after(self.function, self.before)
        else:
            first = self.block.first_op
            if first is None:
                self.block.add_op(self.function)
            else:
                self.block.insert_op_before(self.function, first)
        for place, program in self.programs:
            _put_back(place, program)
            program.detach()
            program.erase(safe_erase=False)
        drop_misplaced(self.function.walk())


def _put_back(place: UnrealizedConversionCastOp, program: FuncOp) -> None:
    """Put the operations of a program where an operation keeps their place."""
    block, body = place.parent, program.body.block
    assert block is not None
    for argument, value in zip(body.args, place.operands, strict=True):
        argument.replace_all_uses_with(value)
    *ops, last = list(body.ops)
    returned: list[SSAValue] = list(last.operands)
    body.erase_op(last)
    for op in ops:
        body.detach_op(op)
        block.insert_op_before(op, place)
    for result, value in zip(place.results, returned, strict=True):
        result.replace_all_uses_with(value)
    block.erase_op(place)


def _blocks(function: FuncOp) -> Iterator[Block]:
    """Yield the blocks of a function and its loops, without those with a schedule, which have only
    tasks and sends."""
    for op in function.walk():
        if not (isinstance(op, RepeatOp) and op.schedule is not None):
            for region in op.regions:
                yield from region.blocks


def _runs(block: Block) -> Iterator[list[Operation]]:
    """Yield the longest rows of steps that follow each other in a block."""
    run: list[Operation] = []
    for op in list(block.ops):
        if isinstance(op, NestedOp) or op is block.last_op:
            if run:
                yield run
            run = []
        else:
            run.append(op)
