"""What a user is told: a position, a reason, the source line with a caret, and notes.

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
"""Errors shown for one input; the rest is only counted."""


MAX_MESSAGE = 2000
"""Characters shown of one message."""


@dataclass(frozen=True)
class Position:
    """A place in a source text; line and column count from 1."""

    file: str
    line: int
    column: int

    @staticmethod
    def of(item: Operation | SSAValue) -> "Position | None":
        """Where an operation or the definition of a value stands, if it is known."""
        if isinstance(item, OpResult):
            item = item.op
        if isinstance(item, Operation | BlockArgument):
            location = item.location
            if isinstance(location, FileLineColLoc):
                return Position(location.filename.data, location.line.data, location.column.data)
        return None

    def location(self) -> FileLineColLoc:
        """As an attribute of the IR."""
        return FileLineColLoc(StringAttr(self.file), IntAttr(self.line), IntAttr(self.column))

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Diagnostic:
    """One error, with notes at other places that explain it."""

    message: str
    position: Position | None = None
    notes: tuple["Diagnostic", ...] = ()
    severity: str = "error"


class DiagnosticError(Exception):
    """Bad input: one or more diagnostics for the user."""

    def __init__(self, diagnostics: Diagnostic | Iterable[Diagnostic]):
        found = [diagnostics] if isinstance(diagnostics, Diagnostic) else list(diagnostics)
        super().__init__("; ".join(d.message for d in found))
        self.diagnostics = found

    @staticmethod
    def at(item: Operation | SSAValue, message: str, *notes: Diagnostic) -> "DiagnosticError":
        """One error at an operation or value."""
        return DiagnosticError(Diagnostic(message, Position.of(item), notes))

    def __str__(self) -> str:
        return render_all(self.diagnostics, Sources())


def note(message: str, position: Position | None) -> Diagnostic:
    """A note: the other end of a conflict."""
    return Diagnostic(message, position, severity="note")


@dataclass
class Sources:
    """The texts that positions refer to; files that were not added are read when needed."""

    texts: dict[str, str] = field(default_factory=dict[str, str])

    def add(self, file: str, text: str) -> None:
        """Remember the text of a file (or of standard input, under a name for it)."""
        self.texts[file] = text

    def line(self, position: Position) -> str | None:
        """The source line of a position, without its end."""
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
    """The line and a caret under ``column``; of a very long line, the part around it."""
    start = max(0, column - 1 - _WIDTH // 2) if len(line) > _WIDTH else 0
    shown = "".join(
        c if c.isprintable() or c == "\t" else "\N{REPLACEMENT CHARACTER}"
        for c in line[start : start + _WIDTH]
    )
    before = "".join("\t" if c == "\t" else " " for c in shown[: column - 1 - start])
    token = _TOKEN.match(shown, len(before))
    tail = "~" * (len(token.group()) - 1) if token else ""
    return f"{shown}\n{before}^{tail}"


def shown(message: str) -> str:
    """A message in one line, without the middle of a name or type of thousands of characters."""
    if len(message) > MAX_MESSAGE:
        message = f"{message[: MAX_MESSAGE // 2]} ... {message[-MAX_MESSAGE // 2 :]}"
    line = message.translate({ord("\n"): " ", ord("\t"): " "})
    return "".join(c if c.isprintable() else f"U+{ord(c):04X}" for c in line)


def render(diagnostic: Diagnostic, sources: Sources) -> str:
    """A diagnostic with its source line, its caret and its notes, ending in a newline."""
    where = f"{diagnostic.position}: " if diagnostic.position else ""
    text = f"{where}{diagnostic.severity}: {shown(diagnostic.message)}\n"
    if diagnostic.position and (line := sources.line(diagnostic.position)) is not None:
        text += _snippet(line, diagnostic.position.column) + "\n"
    return text + "".join(render(n, sources) for n in diagnostic.notes)


def render_all(diagnostics: Sequence[Diagnostic], sources: Sources) -> str:
    """All errors of an input in the order of the text, at most ``MAX_ERRORS`` of them."""
    order = sorted(
        diagnostics, key=lambda d: (d.position.line, d.position.column) if d.position else (0, 0)
    )
    shown = [render(d, sources) for d in order[:MAX_ERRORS]]
    if len(order) > MAX_ERRORS:
        shown.append(f"{len(order) - MAX_ERRORS} more errors are not shown\n")
    return "".join(shown)
