"""Exit statuses, error reports and output files of all commands."""

import argparse
import errno
import io
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from collir.ir.diagnostics import Diagnostic, DiagnosticError, Sources, render, render_all
from collir.ir.remarks import listening
from collir.layout.operation_table import MissingRowError

BAD_INPUT = 1
USAGE = 2
INTERNAL = 70


class UsageError(ValueError):
    """A command, pass or target that does not exist, or an option it does not have."""


class Once(argparse.Action):
    """The storing of an argument, which refuses an option that is given a second time."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Store the value of an argument."""
        given: set[str] = vars(namespace).setdefault("_given", set())
        if option_string is not None and self.dest in given:
            raise UsageError(f"{option_string} is given twice")
        given.add(self.dest)
        setattr(namespace, self.dest, values)


class CommandParser(argparse.ArgumentParser):
    """A parser of command lines that reports an error in one line."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.register("action", None, Once)

    def error(self, message: str) -> NoReturn:
        """Raise ``UsageError``."""
        raise UsageError(message)


def function_name(text: str) -> str:
    """Return the name of a function, which may be given as a symbol, with ``@``."""
    return text.removeprefix("@")


def run_tool(name: str, sources: Sources, debug: bool, work: Callable[[], int]) -> int:
    """Return the exit status of ``work``; errors are reported on stderr, never as a traceback.

    The status is 1 for bad input, 2 for a wrong use of the command, 70 for an internal error.
    """
    try:
        _stand_in_for_closed_streams()
        with listening(lambda remark: print(render(remark, sources), end="", file=sys.stderr)):
            return work()
    except KeyboardInterrupt:
        sys.stderr.write(f"{name}: interrupted\n")
        return 130
    except Exception as error:
        return report(name, error, sources, debug)


def report(name: str, error: Exception, sources: Sources, debug: bool) -> int:
    """Report an error of a command on stderr, and return the exit status that it leads to."""
    if isinstance(error, DiagnosticError):
        sys.stderr.write(render_all(error.diagnostics, sources))
        return BAD_INPUT
    if isinstance(error, UsageError):
        sys.stderr.write(f"{name}: error: {error}\n")
        return USAGE
    if isinstance(error, BrokenPipeError):  # the reader of the output has closed it
        _drop_output()
        return 0
    if debug:
        traceback.print_exception(error)
    status = BAD_INPUT
    match error:
        case OSError():
            reason = str(error)
            if error.errno == errno.ENOSPC:
                _drop_output()
        case MemoryError():
            reason = "not enough memory: try smaller sizes"
        case RecursionError():
            reason = "the input is nested too deeply"
        case MissingRowError():
            reason = str(error)
        case _:
            # Imported here because it is slow and the tools start fast.
            from collir.ir.packages import package_in

            notes = [note for note in getattr(error, "__notes__", ()) if "\n" not in note]
            reason = ", ".join([f"{type(error).__name__}: {error}", *notes])
            if package := package_in(error):
                reason += f", in {package}"
            else:
                status, reason = INTERNAL, reason + ("" if debug else " (--debug shows where)")
    fault = "internal error" if status == INTERNAL else "error"
    sys.stderr.write(f"{name}: {fault}: {reason}\n")
    return status


class _ClosedStream(io.TextIOBase):
    """A standard stream that was closed before the command began; its use is an ``OSError``."""

    def __init__(self, name: str):
        self.name = name

    @property
    def buffer(self) -> "_ClosedStream":
        """The stream of bytes, which is closed as well."""
        return self

    def _refuse(self, *_: object) -> NoReturn:
        raise OSError(f"standard {self.name} is closed")

    read = readline = write = _refuse


def _stand_in_for_closed_streams() -> None:
    """Replace the standard streams that Python found closed, and take their file descriptors.

    A file that is opened later does not get the descriptor of a standard stream then.
    """
    if None not in (sys.stdin, sys.stdout, sys.stderr):
        return
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    sys.stdin = sys.stdin or _ClosedStream("input")
    sys.stdout = sys.stdout or _ClosedStream("output")
    sys.stderr = sys.stderr or io.StringIO()  # the text is dropped


def _drop_output() -> None:
    """Keep Python from complaining at exit about output that cannot be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def check_folders(*paths: str | None) -> None:
    """Check that the folders of files exist, before slow work begins.

    Raises:
        DiagnosticError: one is not.
    """
    for path in filter(None, paths):
        if not (folder := Path(path).parent).is_dir():
            message = f"cannot write {path}: there is no folder {folder}"
            raise DiagnosticError(Diagnostic(message))


def write_or_print(path: str | None, text: str) -> None:
    """Write a text to a file, see ``write_whole``; print it if no file is named.

    Raises:
        DiagnosticError: the file cannot be written.
    """
    if path:
        write_whole(path, text)
    else:
        sys.stdout.write(text)


def write_whole(path: str, contents: str | bytes) -> None:
    """Write a file that appears whole or not at all; of a link, the file it leads to.

    Raises:
        DiagnosticError: the file cannot be written.
    """
    target = Path(path)
    data = contents.encode("utf-8") if isinstance(contents, str) else contents
    try:
        if target.exists() and not target.is_file():  # a device or a pipe
            target.write_bytes(data)
            return
        target = Path(os.path.realpath(target))
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            mask = os.umask(0)
            os.umask(mask)
            Path(temporary).chmod(0o666 & ~mask)
            Path(temporary).replace(target)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DiagnosticError(Diagnostic(f"cannot write {path}: {reason}")) from error
