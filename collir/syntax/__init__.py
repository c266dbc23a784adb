"""The textual language: reader (text -> IR), writer (IR -> text), and diagnostics with a caret."""

from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position, Sources, render
from collir.syntax.reader import read
from collir.syntax.writer import write

__all__ = ["Diagnostic", "DiagnosticError", "Position", "Sources", "read", "render", "write"]
