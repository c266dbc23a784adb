"""The state of a run of passes, for progress lines and reports."""

from contextvars import ContextVar

passes_run: ContextVar[str] = ContextVar("passes_run", default="")
"""The passes that have run on the module, as they are written behind ``-p``."""

activity: ContextVar[str] = ContextVar("activity", default="")
"""The part of a pass or target that is running, for the progress line of a command."""
