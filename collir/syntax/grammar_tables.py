# pyright: basic
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

import lark
from lark import Lark

_OPTIONS = {"parser": "lalr", "lexer": "contextual", "maybe_placeholders": True}


def parser_of(grammar: str, path: Path) -> Lark:
    """Return the parser of a grammar.

    Args:
        path: the file that the grammar is from, beside which its tables are kept.
    """
    file = Path(cache_from_source(str(path))).with_suffix(".tables")
    key = sha256(f"{lark.__version__} {_OPTIONS} {grammar}".encode()).digest()
    tables = _read(file, key)
    if tables is not None:
        return Lark.load(BytesIO(tables))
    made = Lark(grammar, **_OPTIONS)
    if not sys.dont_write_bytecode:
        output = BytesIO()
        made.save(output)
        _write(file, key, output.getvalue())
    return made


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
