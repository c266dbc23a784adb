"""Checkpoints: files with the open tasks and the results of a search, to resume it later.

A checkpoint is a pickle of the coordinator's state and of the identity of the search: the problem,
the kind, and every option that changes the answer. The division and the engine may differ.
"""

import os
import pickle
import sys
import time
from pathlib import Path
from typing import Any

from collir.search.core.plan import SearchPlan
from collir.search.core.problem import SearchError
from collir.search.running.coordinator import Coordinator, SearchState

MAGIC = b"collir search checkpoint 1\n"

EVERY = 30.0
"""Default number of seconds between two checkpoints."""


def _identity(plan: SearchPlan) -> tuple[Any, ...]:
    """Return the properties of a search that must not change when it is resumed."""
    return (
        plan.identity(),
        plan.kind,
        plan.k,
        plan.known,
        plan.target,
        plan.packed_fold(),
        plan.depth_limit,
        plan.ordered,
    )


class Checkpoints:
    """An observer that writes checkpoints at intervals."""

    def __init__(self, path: str | Path, plan: SearchPlan, every: float = EVERY):
        self._path = Path(path)
        self._every = every
        self._identity = _identity(plan)
        self._written = time.monotonic()
        folder = self._path.parent
        if not folder.is_dir():
            raise SearchError(f"cannot write {self._path}: there is no folder {folder}")
        if not os.access(folder, os.W_OK):
            raise SearchError(f"cannot write {self._path}: {folder} may not be written to")

    def look(self, coordinator: Coordinator) -> None:
        """Write a checkpoint, if it is time."""
        if time.monotonic() - self._written >= self._every:
            self.keep(coordinator.snapshot())

    def keep(self, state: SearchState) -> bool:
        """Write the state, or warn on stderr; return whether it was written."""
        self._written = time.monotonic()
        try:
            self.write(state)
        except SearchError as error:
            sys.stderr.write(f"warning: no checkpoint: {error}\n")
            return False
        return True

    def write(self, state: SearchState) -> None:
        """Write the state atomically.

        Raises:
            SearchError: the state cannot be pickled, or the file cannot be written.
        """
        try:
            data = MAGIC + pickle.dumps((self._identity, state), pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            raise SearchError(f"a checkpoint needs nodes that can be pickled: {error}") from error
        try:
            temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
            temporary.write_bytes(data)
            temporary.replace(self._path)
        except OSError as error:
            raise SearchError(f"cannot write {self._path}: {error.strerror}") from error
        self._written = time.monotonic()


def read_checkpoint(path: str | Path, plan: SearchPlan) -> SearchState:
    """Return the state in a file.

    Raises:
        SearchError: the file cannot be read, is no checkpoint, or belongs to another search.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise SearchError(f"cannot read {path}: {error.strerror}") from error
    if not data.startswith(MAGIC):
        raise SearchError(f"{path} is no checkpoint of a search")
    try:
        identity, state = pickle.loads(data[len(MAGIC) :])
    except Exception as error:
        raise SearchError(f"{path} is damaged: {type(error).__name__}: {error}") from error
    if identity != _identity(plan):
        raise SearchError(
            f"{path} is a checkpoint of another search: resume with the same problem (by its "
            "pickle, or its identity()), and the same options but for workers, engine and limits"
        )
    if not isinstance(state, SearchState):
        raise SearchError(f"{path} is damaged: it holds no state of a search")
    return state
