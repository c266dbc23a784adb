"""Diagnostics for operations of other packages that a table lacks."""

from collections.abc import Generator
from contextlib import contextmanager

from xdsl.dialects.builtin import ModuleOp

from collir.dialects.operation import DistOp
from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position
from collir.layout.operation_table import MissingRowError


@contextmanager
def locating_missing_rows(module: ModuleOp) -> Generator[None]:
    """Make the error of a look-up in a table a diagnostic at the operation of a module.

    Raises:
        DiagnosticError: a table lacks a row.
    """
    try:
        yield
    except MissingRowError as error:
        name = error.operation.removesuffix("_rows")  # of the functions of a runtime
        steps = (op for op in module.walk() if isinstance(op, DistOp))
        step = next((op for op in steps if op.mnemonic == name), None)
        place = Position.of(step) if step else None
        raise DiagnosticError(Diagnostic(str(error), place)) from error
