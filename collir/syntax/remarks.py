"""Remarks: what a user should know of a program in which nothing is wrong.

Passes make remarks. Whoever runs the passes hears them; where nobody listens, each is a warning of
Python.
"""

import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

from collir.syntax.diagnostics import Diagnostic, Position, Sources, render

Listener = Callable[[Diagnostic], None]


def _warn(remark: Diagnostic) -> None:
    warnings.warn(render(remark, Sources()).rstrip("\n"), stacklevel=3)


_listener: ContextVar[Listener] = ContextVar("listener", default=_warn)


def remark(message: str, position: Position | None = None) -> None:
    """Make a remark on the place of a program."""
    _listener.get()(Diagnostic(message, position, severity="remark"))


@contextmanager
def heard_by(listener: Listener) -> Generator[None]:
    """Give all remarks made inside to a function."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
