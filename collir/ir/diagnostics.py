"""Diagnostics for users: a position, a reason, the source line with a caret, and notes.

sync.coll:9:24: error: %g is partial over data.node here; all_gather needs it sharded: ...
  %r = all_gather %g over data.node dim 0
                  ^~
sync.coll:8:19: note: %g is partial over data.node from here
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from xdsl.dialects.builtin import FileLineColLoc, IntAttr, StringAttr
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

MAX_ERRORS = 20
"""The most errors shown for an input; further errors are only counted."""


MAX_MESSAGE = 2000
"""The most characters shown of a message."""


@dataclass(frozen=True)
class Position:
    """A place in a source text; line and column count from 1."""

    file: str
    line: int
    column: int

    @staticmethod
    def of(item: Operation | SSAValue) -> "Position | None":
        """Return the position of an operation or of the definition of a value, if known."""
        if isinstance(item, OpResult):
            item = item.op
        if isinstance(item, Operation | BlockArgument):
            location = item.location
            if isinstance(location, FileLineColLoc):
                return Position(location.filename.data, location.line.data, location.column.data)
        return None

    def location(self) -> FileLineColLoc:
        """Return the position as an attribute of the IR."""
        return FileLineColLoc(StringAttr(self.file), IntAttr(self.line), IntAttr(self.column))

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Diagnostic:
    """An error or remark, with notes at other positions that explain it."""

    message: str
    position: Position | None = None
    notes: tuple["Diagnostic", ...] = ()
    severity: str = "error"


class DiagnosticError(Exception):
    """An error in the user's input: one or more diagnostics, each of them once."""

    def __init__(self, diagnostics: Diagnostic | Iterable[Diagnostic]):
        given = [diagnostics] if isinstance(diagnostics, Diagnostic) else diagnostics
        errors = list(dict.fromkeys(given))  # copies of a step, as of a loop's body, have its place
        super().__init__("; ".join(error.message for error in errors))
        self.diagnostics = errors

    def __reduce__(self) -> tuple[type["DiagnosticError"], tuple[list[Diagnostic]]]:
        return DiagnosticError, (self.diagnostics,)  # so that workers can raise it

    @staticmethod
    def at(item: Operation | SSAValue, message: str, *notes: Diagnostic) -> "DiagnosticError":
        """Return an error with one diagnostic, at an operation or a value."""
        return DiagnosticError(Diagnostic(message, Position.of(item), notes))

    def __str__(self) -> str:
        return render_all(self.diagnostics, Sources())


def note(message: str, position: Position | None) -> Diagnostic:
    """Return a note, such as the other end of a conflict."""
    return Diagnostic(message, position, severity="note")


@dataclass
class Sources:
    """The texts that positions refer to; files that were not added are read on demand."""

    texts: dict[str, str] = field(default_factory=dict[str, str])

    def add(self, file: str, text: str) -> None:
        """Add the text of a file, or of standard input under a name for it."""
        self.texts[file] = text

    def line(self, position: Position) -> str | None:
        """Return the source line of a position, without its line end, or None if unknown."""
        if position.file not in self.texts:
            try:
                self.texts[position.file] = Path(position.file).read_text(encoding="utf-8")
            except (OSError, ValueError):
                return None
        lines = self.texts[position.file].split("\n", position.line)
        return lines[position.line - 1] if position.line <= len(lines) else None


_TOKEN = re.compile(r"[%@]\w+|-?\d[\d.]*(?:[eE][+-]?\d+)?|\w[\w.]*|\"[^\"]*\"|->|\S")
_WIDTH = 160


def _snippet(line: str, column: int) -> str:
    """Return the line and a caret under ``column``; of a very long line, the part around it."""
    start = max(0, column - 1 - _WIDTH // 2) if len(line) > _WIDTH else 0
    visible = "".join(
        c if c.isprintable() or c == "\t" else "\N{REPLACEMENT CHARACTER}"
        for c in line[start : start + _WIDTH]
    )
    before = "".join("\t" if c == "\t" else " " for c in visible[: column - 1 - start])
    token = _TOKEN.match(visible, len(before))
    tail = "~" * (len(token.group()) - 1) if token else ""
    return f"{visible}\n{before}^{tail}"


def single_line(message: str) -> str:
    """Return a message in one line, without its middle if it has thousands of characters."""
    if len(message) > MAX_MESSAGE:
        message = f"{message[: MAX_MESSAGE // 2]} ... {message[-MAX_MESSAGE // 2 :]}"
    line = message.translate({ord("\n"): " ", ord("\t"): " "})
    return "".join(c if c.isprintable() else f"U+{ord(c):04X}" for c in line)


def render(diagnostic: Diagnostic, sources: Sources) -> str:
    """Return a diagnostic with its source line, its caret and its notes, ending in a newline."""
    where = f"{diagnostic.position}: " if diagnostic.position else ""
    text = f"{where}{diagnostic.severity}: {single_line(diagnostic.message)}\n"
    if diagnostic.position and (line := sources.line(diagnostic.position)) is not None:
        text += _snippet(line, diagnostic.position.column) + "\n"
    return text + "".join(render(n, sources) for n in diagnostic.notes)


def render_all(diagnostics: Sequence[Diagnostic], sources: Sources) -> str:
    """Return the errors of an input in the order of the text, at most ``MAX_ERRORS`` of them."""
    order = sorted(
        diagnostics, key=lambda d: (d.position.line, d.position.column) if d.position else (0, 0)
    )
    texts = [render(diagnostic, sources) for diagnostic in order[:MAX_ERRORS]]
    if len(order) > MAX_ERRORS:
        texts.append(f"{len(order) - MAX_ERRORS} more errors are not shown\n")
    return "".join(texts)
