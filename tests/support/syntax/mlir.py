"""Modules in the syntax of MLIR."""

from io import StringIO

from xdsl.dialects.builtin import ModuleOp
from xdsl.printer import Printer

from collir.syntax.writer import settle_names


def mlir(module: ModuleOp, *, generic: bool = True) -> str:
    """Return the text of a module, whose values get names first."""
    settle_names(module)
    output = StringIO()
    Printer(output, print_generic_format=generic).print_op(module)
    return output.getvalue()
