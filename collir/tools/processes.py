"""Runs of emitted Python in processes of its own: its inputs, its calls, and its outcome."""

import os
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from xdsl.dialects.func import FuncOp

from collir.dialects.machine import mesh_of
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.semantics.reference.collectives import Array, Buffers
from collir.targets.code.python_text import class_name

Call = tuple[FuncOp, Sequence[Buffers]]
"""A function, and one array (or None) per device for each of its arguments."""

Outcome = tuple[list[Buffers], float]
"""The results of a function, with None on devices that hold none, and its seconds."""


def check_installed(package: str, message: str = "") -> None:
    """Check that a package of Python is installed.

    Raises:
        DiagnosticError: it is not; the message says how it comes, by default as an extra of its
            name.
    """
    if find_spec(package) is None:
        advice = f"{package} is not installed: `pip install 'collir[{package}]'` brings it"
        raise DiagnosticError(Diagnostic(message or advice))


def run_script(
    folder: Path,
    script: str,
    words: Sequence[str],
    what: str,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run a script in a folder, which is its first argument, as a process of this Python.

    Args:
        what: what the script runs, for errors.
        environment: variables to set.

    Raises:
        RuntimeError: it fails.
    """
    (folder / "run.py").write_text(script, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(folder / "run.py"), str(folder), *words],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        raise RuntimeError(f"{what} failed:\n{done.stdout}{done.stderr}")


def write_calls(folder: Path, ranks: int, calls: Sequence[Call]) -> None:
    """Write for each rank a file of its calls: the class of the mesh, the method, the number of its
    results, and what the rank holds."""
    for rank in range(ranks):
        own = [
            (
                class_name(mesh_of(function).name),
                function.sym_name.data,
                len(function.function_type.outputs),
                [buffers[rank] for buffers in arguments],
            )
            for function, arguments in calls
        ]
        (folder / f"{rank}.in").write_bytes(pickle.dumps(own))


def read_outcomes(folder: Path, ranks: int) -> list[Outcome]:
    """Return the outcomes of all ranks: the results of every function, and the seconds of rank 0,
    which waits for the slowest."""
    outcomes: list[list[tuple[tuple[Array | None, ...], float]]] = [
        pickle.loads((folder / f"{rank}.out").read_bytes()) for rank in range(ranks)
    ]
    return [
        ([list(buffers) for buffers in zip(*(held for held, _ in rows), strict=True)], rows[0][1])
        for rows in zip(*outcomes, strict=True)
    ]
