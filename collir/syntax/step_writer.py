"""Steps as they are written in ``.coll``: their names, operands and clauses."""

import math
from decimal import Decimal

from collir.dialects.nested import CallOp, RepeatOp
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


def call_text(op: CallOp, operands: str, wrt: str) -> str:
    """Return a call as it is written in ``.coll``, without its results.

    Args:
        wrt: the operands that gradients are with respect to; empty if there are none.
    """
    listed = ", ".join(f"{name} = {written(value)}" for name, value in op.values.items())
    words = [f"{op.mnemonic} @{op.symbol}{f'({listed})' if listed else ''}({operands})"]
    words += [f"wrt {wrt}"] if wrt else []
    flags = {"recompute": op.recompute, "fused": op.fused}
    words += [word for word, flag in flags.items() if flag]
    return " ".join([*words, *([f"task {op.task.data}"] if op.task else [])])


def repeat_text(op: RepeatOp, carries: str, slices: str, invariants: str) -> str:
    """Return the head of a loop as it is written in ``.coll``, without its results.

    Args: carries, slices, invariants: the names in the body with their operands; empty if none.
    """
    count = written(op.times)
    words = [
        f"{op.mnemonic} {count if count.isidentifier() or count.isdecimal() else f'({count})'}"
    ]
    bound = {"carry": carries, "slice": slices, "with": invariants}
    words += [f"{word}({text})" for word, text in bound.items() if text]
    flags = {"reverse": op.is_reverse, "recompute": op.recompute is not None}
    words += [word for word, flag in flags.items() if flag]
    return " ".join([*words, *([f'schedule "{op.schedule.data}"'] if op.schedule else [])])


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
