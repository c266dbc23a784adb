"""Steps as they are written in ``.coll``: their names, operands and clauses."""

import math
from collections.abc import Callable, Iterable
from decimal import Decimal

from xdsl.ir import SSAValue

from collir.dialects.nested import CallOp, NestedOp, RepeatOp
from collir.dialects.operation import DistOp
from collir.layout import DistType, Mesh
from collir.layout.sizes import written
from collir.layout.steps import Argument, ArgumentKind, Arguments, StepKind
from collir.layout.types import place_text
from collir.syntax.units import plain


def step_text(op: DistOp, mesh: Mesh, operands: str, kind: StepKind | None = None) -> str:
    """Return an operation as it is written in ``.coll``, without its result.

    Args:
        kind: the row with the arguments that are written; the default is that of the operation.
    """
    arguments, kind = op.arguments, kind or op.kind
    texts = [x.name for x in kind.parameters if x.kind is ArgumentKind.TEXT]
    quoted = "".join(f' "{arguments[name]}"' for name in texts)
    listed = f" {operands}" if operands else ""
    return f"{op.mnemonic}{quoted}{listed}{clauses_text(kind, arguments, mesh)}"


def nested_text(op: NestedOp, text: Callable[[Iterable[SSAValue]], str]) -> str:
    """Return an operation that runs others as it is written in ``.coll``, without its results and
    without what it runs.

    Args:
        text: function from values to their names, separated by commas.
    """
    if isinstance(op, CallOp):
        listed = ", ".join(f"{name} = {written(value)}" for name, value in op.values.items())
        bindings = f"({listed})" if listed else ""
        called = f"{op.mnemonic} @{op.symbol}{bindings}({text(op.operands)})"
        wrt = f" wrt {text(op.operands[n] for n in op.sought)}" if op.sought else ""
        flags = {"recompute": op.recompute, "fused": op.fused}
        task = [f"task {op.task.data}"] if op.task else []
        return " ".join([called + wrt, *(word for word, flag in flags.items() if flag), *task])
    assert isinstance(op, RepeatOp)
    count = written(op.times)
    words = [
        f"{op.mnemonic} {count if count.isidentifier() or count.isdecimal() else f'({count})'}"
    ]
    arguments = iter(op.body.block.args)
    for word, operands in (("carry", op.carried), ("slice", op.sliced), ("with", op.invariant)):
        if operands:
            bound = [f"{text([next(arguments)])} = {text([operand])}" for operand in operands]
            words.append(f"{word}({', '.join(bound)})")
    flags = {"reverse": op.is_reverse, "recompute": op.recompute is not None}
    schedule = [f'schedule "{op.schedule.data}"'] if op.schedule else []
    return " ".join([*words, *(word for word, given in flags.items() if given), *schedule])


def clauses_text(kind: StepKind, arguments: Arguments, mesh: Mesh) -> str:
    """Return the clauses that give arguments, each with a space in front."""
    text = ""
    for parameter in kind.parameters:
        if parameter.name not in arguments or parameter.kind is ArgumentKind.TEXT:
            continue
        if parameter.kind is ArgumentKind.FLAG:
            text += f" {parameter.keyword}"
            continue
        argument = _argument(parameter.kind, arguments[parameter.name], mesh)
        if parameter.default is None or argument != str(parameter.default):  # -0 is not 0
            text += f" {parameter.keyword} {argument}"
    return text


def _argument(kind: ArgumentKind, value: Argument, mesh: Mesh) -> str:
    """Return an argument as it is written."""
    match value:
        case DistType():
            return value.text(mesh, formulas=True)
        case tuple() if kind is ArgumentKind.PLACE:
            return place_text(tuple(pair for pair in value if isinstance(pair, tuple)), mesh)
        case tuple() if kind is ArgumentKind.AXES:
            return ", ".join(mesh.short([str(axis) for axis in value]))
        case tuple():
            return f"[{', '.join(written(size) for size in value if isinstance(size, int))}]"
        case float() if math.isinf(value):
            return repr(value)
        case float():
            return plain(Decimal(repr(value)))
        case int() | str():
            return written(value)
