"""The parser of a grammar, from tables that are kept where Python keeps compiled modules.

Making the tables takes 0.3 s, a third of a run on a small file; reading them takes 0.02 s. As with
compiled modules, ``python -B`` keeps none, and a folder that cannot be written is no error.
"""

import os
import sys
from contextlib import suppress
from hashlib import sha256
from importlib.util import cache_from_source
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol, cast

import lark
from lark import Lark
from lark.lexer import LexerThread, TerminalDef

from collir.syntax.trees import SyntaxTree

_OPTIONS: dict[str, Any] = {
    "parser": "lalr",
    "lexer": "contextual",
    "maybe_placeholders": True,
    "tree_class": SyntaxTree,
}


class Parse(Protocol):
    """The parse of a text that has begun."""

    lexer_thread: LexerThread

    def resume_parse(self) -> SyntaxTree: ...


class Parser(Protocol):
    """The part of ``Lark`` that is used, with the types that its annotations leave open."""

    def parse(self, text: str) -> SyntaxTree: ...

    def parse_interactive(self, text: str) -> Parse: ...

    def get_terminal(self, name: str) -> TerminalDef: ...


def parser_of(grammar: str, path: Path) -> Parser:
    """Return the parser of a grammar.

    Args:
        path: the file that the grammar is from, beside which its tables are kept.
    """
    file = Path(cache_from_source(str(path))).with_suffix(".tables")
    key = sha256(f"{lark.__version__} {_OPTIONS} {grammar}".encode()).digest()
    tables = _read(file, key)
    if tables is not None:  # lark annotates no files
        parser = Lark.load(BytesIO(tables))  # pyright: ignore[reportUnknownMemberType]
        return cast(Parser, parser)
    made = Lark(grammar, **_OPTIONS)
    if not sys.dont_write_bytecode:
        output = BytesIO()
        made.save(output)  # pyright: ignore[reportUnknownMemberType]
        _write(file, key, output.getvalue())
    return cast(Parser, made)


def _read(file: Path, key: bytes) -> bytes | None:
    """Return the tables in a file, if they are whole and those of a key."""
    try:
        data = file.read_bytes()
    except OSError:
        return None
    size = len(key)
    tables = data[2 * size :]
    known = data[:size] == key and data[size : 2 * size] == sha256(tables).digest()
    return tables if known else None


def _write(file: Path, key: bytes, tables: bytes) -> None:
    """Write tables to a file, if that is possible: at once, as others may read it meanwhile."""
    part = file.with_suffix(f".{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(key + sha256(tables).digest() + tables)
        part.replace(file)
    except OSError:
        with suppress(OSError):
            part.unlink()
