"""Remarks: what a user should know beside a result, given to whoever listens."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

from xdsl.ir import Operation, SSAValue

from collir.ir.diagnostics import Diagnostic, Position

Listener = Callable[[Diagnostic], None]

passes_run: ContextVar[str] = ContextVar("passes_run", default="")
"""The passes that have been run on what is looked at, as they are written behind ``-p``."""

_doing: ContextVar[str] = ContextVar("_doing", default="")


def current_pass(what: str | None = None) -> str:
    """Return what is being done, for the progress line of a command; set it first, if given."""
    if what is not None:
        _doing.set(what)
    return _doing.get()


_listener: ContextVar[Listener | None] = ContextVar("_listener", default=None)


def remark(item: Operation | SSAValue, message: str) -> None:
    """Make a remark about an operation or a value; without a listener it is dropped."""
    listener = _listener.get()
    if listener is not None:
        listener(Diagnostic(message, Position.of(item), severity="remark"))


@contextmanager
def listening(listener: Listener) -> Generator[None]:
    """Give all remarks made inside to a listener, equal ones once."""
    told: set[Diagnostic] = set()

    def once(found: Diagnostic) -> None:
        if found not in told:
            told.add(found)
            listener(found)

    token = _listener.set(once)
    try:
        yield
    finally:
        _listener.reset(token)
