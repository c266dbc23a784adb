"""Symbolic execution of functions: on expressions for all devices and elements at once.

The buffers of all devices are one ``SymbolicValue``: a shape, and an expression for the element at
a position on a device. The expression depends on the variables of the coordinates of the device and
of the position. Example, for a mesh with ``gpu = 2`` and ``%g: f32[8] partial(sum: gpu)``:

    %g                                   Input(0, (i, gpu))
    %0 = reduce_scatter %g over gpu      the sum over b of Input(0, (4 * gpu + i, b))
    %1 = all_gather %0 over gpu          the sum over b of Input(0, (i, b))

where i is the position in the buffer: below 8, then 4, then 8. Gathering replaces i by ``i % 4``
and the coordinate gpu by ``i // 4``.

Steps follow their definitions, as in the numpy executor, from operands and attributes only. The
typing rules are not used.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import SSAValue

from collir.dialects.nested import RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.layout import Reduction
from collir.layout.operation_table import MissingRowError, OperationTable
from collir.semantics.reference import nn
from collir.semantics.symbolic.expressions import UnprovenError
from collir.semantics.symbolic.local import (
    SymbolicLocalStep,
    concatenated,
    converted,
    padded,
    repeated,
    summed,
    times_constant,
    transposed,
    viewed,
)
from collir.semantics.symbolic.run import AnyRun, V
from collir.semantics.symbolic.values import ImpossibleError, SymbolicValue


def results_of(function: FuncOp, run: AnyRun[V]) -> list[V]:
    """Return the results of a function by a run of its steps.

    Raises:
        ImpossibleError: a step cannot be carried out, which does not happen in typed programs.
        UnprovenError: a step has no symbolic meaning.
    """
    values: dict[SSAValue, V] = {
        arg: run.argument(index, dist_type(arg)) for index, arg in enumerate(function.args)
    }
    for op in function.body.ops:
        if isinstance(op, ReturnOp):
            return [values[operand] for operand in op.operands]
        operands = [values[operand] for operand in op.operands]
        if isinstance(op, RepeatOp):
            values.update(zip(op.results, run.loop(op, operands), strict=True))
        elif isinstance(op, DistOp):
            values[op.result] = _result_of(op, run, operands)
        else:
            raise UnprovenError(f"{op.name} is not of the coll dialect")
    return []


def _result_of(op: DistOp, run: AnyRun[V], operands: Sequence[V]) -> V:
    """Return the result of an operation.

    Raises:
        ImpossibleError: the operation cannot be carried out on these operands.
        UnprovenError: the operation has no symbolic meaning.
    """
    if op.mnemonic not in _ANYWHERE and len({x.place for x in operands}) > 1:
        raise ImpossibleError(op, "some devices hold only some of its operands")
    if op.mnemonic in nn.FUNCTIONS and op.mnemonic not in RULES:
        return run.apply(op, operands)
    try:
        rule = RULES[op.mnemonic]
    except MissingRowError as error:
        raise UnprovenError(str(error)) from None
    return rule(run, op, operands)


def _pad(s: SymbolicLocalStep) -> SymbolicValue:
    dim, low, high = (s.op.integer(name) for name in ("dim", "low", "high"))
    value = s.op.number("value")
    if math.isinf(value):
        raise UnprovenError("an infinite number beside elements has no symbolic meaning")
    return padded(s.operands[0], dim, low, high, value)


def _concat(s: SymbolicLocalStep) -> SymbolicValue:
    return concatenated(s.operands, s.op.integer("dim"))


_ANYWHERE = frozenset(["compute", "assemble"])
"""The steps whose operands may be on other devices than the first."""

RULES: OperationTable[Callable[[AnyRun[Any], DistOp, Sequence[Any]], Any]] = OperationTable(
    "RULES",
    __name__,
    {
        "all_reduce": lambda run, op, xs: run.reduce(op, xs[0], op.over),
        "reduce": lambda run, op, xs: run.keep_root(op, run.reduce(op, xs[0], op.over), op.over),
        "reduce_scatter": lambda run, op, xs: run.slice(
            op, run.reduce(op, xs[0], op.over), op.over, op.integer("dim")
        ),
        "all_gather": lambda run, op, xs: run.gather(op, xs[0], op.over, op.integer("dim")),
        "gather": lambda run, op, xs: run.keep_root(
            op, run.gather(op, xs[0], op.over, op.integer("dim")), op.over
        ),
        "broadcast": lambda run, op, xs: run.broadcast(op, xs[0], op.over),
        "scatter": lambda run, op, xs: run.slice(
            op, run.broadcast(op, xs[0], op.over), op.over, op.integer("dim")
        ),
        "all_to_all": lambda run, op, xs: run.slice(
            op, run.gather(op, xs[0], op.over, op.integer("source")), op.over, op.integer("target")
        ),
        "send": lambda run, op, xs: run.send(op, xs[0]),
        "shift": lambda run, op, xs: run.shift(op, xs[0]),
        "permute": lambda run, op, xs: run.permute(op, xs[0], dist_type(op.input), op.layout("to")),
        "redistribute": lambda run, op, xs: run.redistribute(
            op, xs[0], dist_type(op.input), op.layout("to")
        ),
        "slice": lambda run, op, xs: run.slice(op, xs[0], op.over, op.integer("dim")),
        "keep_root": lambda run, op, xs: run.keep_root(op, xs[0], op.over),
        "keep": lambda run, op, xs: run.keep(op, xs[0], op.place("place")),
        "part": lambda run, op, xs: run.keep(
            op, xs[0], run.place(op.over, op.integer("coordinate"))
        ),
        "assemble": lambda run, op, xs: run.assemble(op, xs),
        "mask": lambda run, op, xs: run.mask(xs[0], op.over, Reduction(op.word("reduction"))),
        "terms": lambda run, op, xs: run.local(op, xs, viewed),
        "split": lambda run, op, xs: run.local(op, xs, viewed),
        "merge": lambda run, op, xs: run.local(op, xs, viewed),
        "reshape": lambda run, op, xs: run.local(op, xs, viewed),
        "transpose": lambda run, op, xs: run.local(op, xs, transposed),
        "pad": lambda run, op, xs: run.local(op, xs, _pad),
        "concat": lambda run, op, xs: run.local(op, xs, _concat),
        "scale": lambda run, op, xs: run.local(op, xs, times_constant),
        "cast": lambda run, op, xs: run.local(op, xs, converted),
        "add": lambda run, op, xs: run.local(op, xs, summed),
        "compute": lambda run, op, xs: run.compute(op, xs),
        "barrier": lambda run, op, xs: xs[0],
        "reinterpret": lambda run, op, xs: xs[0],
        "constant": lambda run, op, xs: run.constant(op),
        "iota": lambda run, op, xs: run.counted(op),
        "uniform": lambda run, op, xs: run.unknown(op, xs),
        "broadcast_to": lambda run, op, xs: run.local(op, xs, repeated),
    },
    row="a function that says what it does to symbolic values",
)
"""The symbolic meaning of every step that is not one function of arrays, by its name."""
