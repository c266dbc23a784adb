"""Files of other tools, and comments about them in ``.coll``."""

import sys
import textwrap
from pathlib import Path

from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position, Sources
from collir.syntax.encoding import decode


def read_foreign(file: str, most: int, hint: str, sources: Sources) -> tuple[str, str]:
    """Return the name of a file in messages (``-`` is standard input), and its text.

    Raises:
        DiagnosticError: the file cannot be read, is no UTF-8, or has more than ``most`` bytes;
            ``hint`` then says what to do.
    """
    shown = "<stdin>" if file == "-" else file
    try:
        if file == "-":
            data = sys.stdin.buffer.read(most + 1)
        else:
            with Path(file).open("rb") as opened:
                data = opened.read(most + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        message = f"cannot read {shown}: {(reason or str(error)).lower()}"
        raise DiagnosticError(Diagnostic(message)) from error
    sources.add(shown, data.decode("utf-8", "replace").replace("\r\n", "\n"))
    if len(data) > most:
        message = f"the file has more than {most >> 20} MiB: {hint}"
        raise DiagnosticError(Diagnostic(message, Position(shown, 1, 1)))
    return shown, decode(data, shown)


def comment(text: str, indent: str = "") -> list[str]:
    """Return a text as comments of at most 100 columns."""
    plain = "".join(c if c.isprintable() else "?" for c in text)
    head = f"{indent}// "
    return textwrap.wrap(
        plain, 100, initial_indent=head, subsequent_indent=head, break_on_hyphens=False
    )
