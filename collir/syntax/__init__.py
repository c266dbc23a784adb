"""The textual language: reader (text to IR), writer (IR to text), and diagnostics with carets."""

from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position, Sources, render
from collir.syntax.reader import read
from collir.syntax.writer import write

__all__ = ["Diagnostic", "DiagnosticError", "Position", "Sources", "read", "render", "write"]
