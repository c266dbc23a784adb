"""The options of commands that read programs of XLA, and the text of a file."""

import argparse
import sys
from pathlib import Path

from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position
from collir.tools.shell import UsageError


def add_mesh(parser: argparse.ArgumentParser) -> None:
    """Add the mesh and the machine of a program of XLA."""
    parser.add_argument("--mesh", metavar="AXES", help="of a program of XLA: the axes of the mesh "
                        "of JAX, in order, as in data=2,model=4 (default: the coarsest that "
                        "explain all groups)")  # fmt: skip
    parser.add_argument("--machine", default="", help="of a program of XLA: its machine (default: "
                        "@dgx_h100 of as many devices)")  # fmt: skip


def axes_of(text: str | None) -> dict[str, int]:
    """Return the axes of a mesh, such as ``data=2,model=4``.

    Raises:
        UsageError: they are not written so.
    """
    made: dict[str, int] = {}
    for part in text.split(",") if text else []:
        name, _, size = (x.strip() for x in part.partition("="))
        if not name.isidentifier() or not size.isdigit() or not int(size) or name in made:
            raise UsageError(f"--mesh {text}: write the axes as in data=2,model=4")
        made[name] = int(size)
    return made


def text_of(file: str) -> tuple[str, str]:
    """Return what a file is called, and its text; ``-`` is standard input.

    Raises:
        DiagnosticError: it cannot be read, or is no text.
    """
    name = "<stdin>" if file == "-" else file
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return name, data.decode("utf-8")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DiagnosticError(Diagnostic(f"cannot read {name}: {reason}")) from error
    except UnicodeDecodeError as error:
        raise DiagnosticError(Diagnostic("this is no text", Position(name, 1, 1))) from error
