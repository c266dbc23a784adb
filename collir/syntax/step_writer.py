"""Steps as they are written in ``.coll``: their names, operands and clauses."""

import math
from decimal import Decimal

from collir.dialects.operation import DistOp
from collir.layout import DistType, Mesh
from collir.layout.sizes import written
from collir.layout.steps import Argument, ArgumentKind, Arguments, StepKind
from collir.layout.types import place_text
from collir.syntax.units import plain


def step_text(op: DistOp, mesh: Mesh, operands: str) -> str:
    """Return an operation as it is written in ``.coll``, without its result."""
    arguments = op.arguments
    texts = [x.name for x in op.kind.parameters if x.kind is ArgumentKind.TEXT]
    quoted = "".join(f' "{arguments[name]}"' for name in texts)
    listed = f" {operands}" if operands else ""
    return f"{op.mnemonic}{quoted}{listed}{clauses_text(op.kind, arguments, mesh)}"


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
