"""The encoding of files of text."""

from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position


def decode(data: bytes, file: str) -> str:
    """Return the text of a file.

    Raises:
        DiagnosticError: the file is not UTF-8.
    """
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        column = error.start - (before.rfind(b"\n") + 1) + 1
        position = Position(file, before.count(b"\n") + 1, column)
        message = f"the file is not UTF-8 text (byte 0x{data[error.start]:02x})"
        raise DiagnosticError(Diagnostic(message, position)) from None
