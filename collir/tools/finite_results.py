"""Diagnostics of collrun for results with numbers that are not finite."""

from collections.abc import Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position
from collir.ir.names import result_names
from collir.ir.remarks import remark
from collir.semantics.reference.collectives import Buffers
from collir.semantics.reference.finite import first_not_finite, not_finite


def check_finite(
    module: ModuleOp,
    function: FuncOp,
    arguments: tuple[Sequence[str], Sequence[Buffers]],
    results: Sequence[Buffers],
    given: bool,
) -> str:
    """Check that the results of a run are finite numbers, or say which step made the first others.

    It returns what there is in them: ``NaN``, ``inf``, or nothing.

    Args:
        arguments: the names of the arguments, and their buffers.
        given: whether a user gave inputs. Inputs that are generated may have zeros and negative
            numbers where a program expects none, so nothing but a remark is made then.

    Raises:
        DiagnosticError: there is NaN or an infinity in a result.
    """
    number, bad = next(((n, b) for n, x in enumerate(results) if (b := not_finite(x))), (0, None))
    if bad is None:
        return ""
    name = result_names(function)[number]
    of_name = "" if name.isdigit() else f" (%{name})"
    result = f"result {number} of @{function.sym_name.data}{of_name}"
    for arg, text, buffers in zip(function.args, *arguments, strict=True):
        if (inside := not_finite(buffers)) is not None:
            where = Position.of(arg) or Position.of(function)
            raise DiagnosticError(
                Diagnostic(
                    f"argument %{text} has {inside.text}, and so {result} has {bad.text}", where
                )
            )
    message, item = f"{result} has {bad.text}", function
    if (first := first_not_finite(module, function, arguments[1], bad.what)) is not None:
        item, where = first
        made = f"%{hint}" if (hint := item.result.name_hint) else f"this {item.mnemonic}"
        message = f"{made} is the first value with {where.text}, and so {message}"
    if given:
        raise DiagnosticError.at(item, message)
    remark(item, f"{message}; the inputs are generated, and --input gives others")
    return bad.what
