"""The sweep of a training step as a function of Python."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from collir.ir.diagnostics import Sources
from collir.tools import sweep as command
from collir.tools.api import emit, is_path
from collir.tools.executors import Workers, workers_at
from collir.tools.shell import CommandParser, UsageError, write_whole
from collir.tools.sweep_driver import best_of, files_of, page_of, settings_of
from collir.tools.sweep_driver import sweep as found
from collir.tools.sweep_output import as_json
from collir.tools.sweep_result import SweepResult

_OWN = (
    "help",
    "program",
    "executor",
    "json",
    "progress",
    "explain",
    "compare",
    "_given",
)
"""Options of the command that the function has not, or has as arguments of its own."""

Value = str | int | float | Path | Sequence[str | int]
Option = Value | Mapping[str, Value]


def sweep(
    program: str | Path | ModuleOp, *, executor: Executor | None = None, **options: Option
) -> SweepResult:
    """Return the fastest configurations of a training step on a machine.

    Args:
        program: a file, the text of one, or a module, with a training step.
        executor: workers that compile and simulate, on any computers that have collir; by default,
            processes of this one.
        options: the options of ``collir sweep``, with ``_`` for ``-``. A list is written as one, or
            as names with values: ``devices=[8, 16]``, ``degree={"model": [1, 2]}``. Options that
            name files write them, too.

    Returns:
        What ``collir sweep --json`` prints, as a dictionary that a notebook shows as a page:
        ``best`` is a list of configurations, fastest first, with seconds, bytes, sizes of axes and
        ``passes``; ``spaces`` says for each number of devices how many configurations there are,
        and whether others may be faster; ``settings`` is there if it is asked for, and no
        ``settings_output``.

    Raises:
        UsageError: there is no such option, or it has no such value.
        DiagnosticError: the program cannot be used, or no configuration is possible.
    """
    is_file = isinstance(program, Path) or (isinstance(program, str) and is_path(program))
    text = emit(program) if isinstance(program, ModuleOp) else None if is_file else str(program)
    path = str(program) if is_file else "<string>"
    chosen = _parser().parse_args(["--no-progress", *_written(options), "--", path])
    sources = Sources()
    with workers_at(None, chosen.workers) as own:
        workers = own if executor is None else _of(executor, chosen.workers)
        swept = found(chosen, sources, workers, text)
    for file, content in files_of(chosen, swept).items():
        write_whole(file, content)
    document: dict[str, Any] = json.loads(as_json(swept))
    if chosen.settings and not chosen.settings_output:
        document["settings"] = settings_of(chosen, *best_of(swept))
    return SweepResult(document, lambda: page_of(chosen, swept))


def _parser() -> CommandParser:
    """Return the parser of the command."""
    parser = CommandParser(prog="collir.sweep", allow_abbrev=False)
    command.configure(parser)
    return parser


def _of(executor: Executor, count: int | None) -> Workers:
    """Return so many workers of an executor; by default as many as it says it has."""
    return Workers(
        count or int(getattr(executor, "_max_workers", 0)) or os.cpu_count() or 1, executor
    )


def _written(options: Mapping[str, Option]) -> Iterator[str]:
    """Yield options as they are written on a command line.

    Raises:
        UsageError: the function has no such option.
    """
    known = sorted(name for name in vars(_parser().parse_args(["MODEL"])) if name not in _OWN)
    for name, value in options.items():
        if name not in known:
            raise UsageError(f"sweep has no option '{name}', but {', '.join(known)}")
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            yield from [flag] * value
        elif isinstance(value, Mapping):
            yield from (f"{flag}={key}={_listed(own)}" for key, own in value.items())
        else:
            yield f"{flag}={_listed(value)}"


def _listed(value: Value) -> str:
    """Return a value as it is written, with commas between those of a list."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        return str(value)
    return ",".join(map(str, value))
