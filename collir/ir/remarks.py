"""Remarks: facts a user should know beside a result, passed to a listener."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

from xdsl.ir import Operation, SSAValue

from collir.ir.diagnostics import Diagnostic, Position

Listener = Callable[[Diagnostic], None]

_listener: ContextVar[Listener | None] = ContextVar("_listener", default=None)


def remark(item: Operation | SSAValue, message: str) -> None:
    """Make a remark about an operation or a value; without a listener it is dropped."""
    repeat_remark(Diagnostic(message, Position.of(item), severity="remark"))


def repeat_remark(diagnostic: Diagnostic) -> None:
    """Make a remark that another listener heard."""
    if (listener := _listener.get()) is not None:
        listener(diagnostic)


@contextmanager
def listening(listener: Listener) -> Generator[None]:
    """Pass all remarks made inside to a listener; equal remarks are passed once."""
    passed: set[Diagnostic] = set()

    def once(diagnostic: Diagnostic) -> None:
        if diagnostic not in passed:
            passed.add(diagnostic)
            listener(diagnostic)

    token = _listener.set(once)
    try:
        yield
    finally:
        _listener.reset(token)
