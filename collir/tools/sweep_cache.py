"""Kinds of configurations that earlier sweeps compiled, in files of the user's cache."""

import hashlib
import os
import pickle
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import collir
from collir.synthesis.sweeping.ingredients import Ingredients

FOLDER = "COLLIR_CACHE"
"""The variable of the environment that names the folder; empty: nothing is kept."""

MOST = 1000
"""The files that are kept; those that were written first go."""


def folder() -> Path | None:
    """Return the folder of kept results, by default `collir` in the user's cache; None: none."""
    named = os.environ.get(FOLDER)
    if named is not None:
        return Path(named) if named else None
    users = os.environ.get("XDG_CACHE_HOME")
    return (Path(users) if users else Path.home() / ".cache") / "collir"


@cache
def _sources() -> str:
    """Return what changes whenever a file of this package does."""
    root = Path(collir.__file__).parent
    files = sorted(root.rglob("*.py"))
    stats = [(str(path), (found := path.stat()).st_size, found.st_mtime_ns) for path in files]
    return repr(stats)


def key_of(text: str, batch: str, *others: object) -> str:
    """Return the name of a file.

    Args:
        text: the module, in which values of the parameter ``batch`` do not matter.
        others: what else matters, with a `repr` that says all of it.
    """
    without = re.sub(rf"\b{re.escape(batch)} = \d+", batch, text)
    said = "\0".join((_sources(), without, *map(repr, others)))
    return hashlib.sha256(said.encode()).hexdigest()


def read(key: str) -> Sequence[Ingredients] | None:
    """Return what is kept, or None."""
    if (where := folder()) is not None:
        with suppress(Exception):  # a broken file is as none
            return pickle.loads(_file(where, key).read_bytes())
    return None


def keep(key: str, two: Sequence[Ingredients]) -> None:
    """Write a file, if there is space and a right to."""
    if (where := folder()) is None:
        return
    with suppress(OSError):
        where.mkdir(parents=True, exist_ok=True)
        path = _file(where, key)
        own = path.with_suffix(f".{os.getpid()}")  # appears whole, or not at all
        own.write_bytes(pickle.dumps(two))
        own.replace(path)
        files = sorted(where.glob("*.kind"), key=lambda file: file.stat().st_mtime)
        for old in files[:-MOST]:
            old.unlink()


def _file(where: Path, key: str) -> Path:
    return where / f"{key}.kind"
