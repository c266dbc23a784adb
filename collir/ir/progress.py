"""The state of a run of passes, for progress lines and reports."""

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

passes_run: ContextVar[str] = ContextVar("passes_run", default="")
"""The passes that have run on the module, as they are written behind ``-p``."""

activity: ContextVar[str] = ContextVar("activity", default="")
"""The part of a pass or target that is running, for the progress line of a command."""

history: ContextVar[tuple[tuple[str, "ModuleOp"], ...]] = ContextVar("history", default=())
"""Copies of the module, before the first pass and after each, with the name of the pass; empty but
for targets that show what passes change (``REMEMBERING``)."""
