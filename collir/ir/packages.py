"""The packages that add to collir and xDSL, by entry points of the group ``xdsl.universe``."""

from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from traceback import extract_tb, walk_tb
from typing import TypeVar

from xdsl.universe import Universe

from collir.ir.diagnostics import Diagnostic, DiagnosticError

_T = TypeVar("_T")


class PackageError(DiagnosticError, RuntimeError):
    """A mistake of another package, such as a pass that changes what a program computes."""


@cache
def packages() -> Mapping[str, Universe]:
    """Return what each installed package but collir itself adds, by the name of its entry point.

    Raises:
        DiagnosticError: a package cannot be imported, or its entry point is no universe.
    """
    return {entry.name: _universe(entry) for entry in _entries() if entry.name != "collir"}


def _entries() -> list[EntryPoint]:
    return sorted(entry_points(group="xdsl.universe"), key=lambda entry: entry.name)


def imported(subject: str, load: Callable[[], _T]) -> _T:
    """Return what a function of a package imports.

    Raises:
        DiagnosticError: it fails; the message names the subject.
    """
    try:
        return load()
    except Exception as error:  # the import of a package may raise anything
        reason = f"{type(error).__name__}: {error}{_place(error)}"
        raise DiagnosticError(Diagnostic(f"{subject} cannot be loaded: {reason}")) from error


def package_in(error: Exception) -> str:
    """Return the package in whose code an error was raised last, with the line; may be empty."""
    modules = {entry.module.partition(".")[0]: entry.name for entry in _entries()}
    modules.pop("collir", None)
    modules.pop("xdsl", None)
    for frame, line in reversed([*walk_tb(error.__traceback__)]):
        if package := modules.get(frame.f_globals.get("__name__", "").partition(".")[0]):
            return f"the package {package} ({frame.f_code.co_filename}:{line})"
    return ""


def _place(error: Exception) -> str:
    """Return the file and line of a package that raised an error, if it is one."""
    frames = [x for x in extract_tb(error.__traceback__)[1:] if "importlib" not in x.filename]
    return f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""


def _universe(entry: EntryPoint) -> Universe:
    subject = f"the package {entry.name} ({entry.value})"
    universe = imported(subject, entry.load)
    if not isinstance(universe, Universe):
        message = f"{subject} cannot be loaded: that is no xdsl.universe.Universe"
        raise DiagnosticError(Diagnostic(message))
    return universe
