"""Compilation of emitted C with mpicc, and runs under mpiexec."""

import math
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import IO

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.dialects.machine import mesh_of
from collir.dialects.tensor import dist_type
from collir.ir.buffers import plan_buffers
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.semantics.reference.buffers import NUMPY
from collir.semantics.reference.collectives import Buffers
from collir.semantics.reference.devices import block_shape, coordinate
from collir.targets.code.mpi_harness import emit_harness
from collir.tools.processes import Call, Outcome

_MISSING = (
    "{} is not installed: `pip install 'collir[mpi]'` brings it into this environment "
    "(it needs a C compiler)"
)

SHARING = {
    "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
    "MPIR_CVAR_CH4_PROGRESS_THROTTLE": "1",
    "MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT": "64",
}
"""Settings of MPICH for ranks that share cores: a waiting rank sleeps soon and lets others run."""


def find(program: str) -> str:
    """Return the path of mpicc or mpiexec: beside this Python, or on the PATH.

    Raises:
        DiagnosticError: the program is not installed.
    """
    folder = Path(sys.executable).parent
    path = shutil.which(program, path=f"{folder}{os.pathsep}{os.environ.get('PATH', '')}")
    if path is None:
        raise DiagnosticError(Diagnostic(_MISSING.format(program)))
    return path


_LONG = 250_000
"""The size in bytes from which code is not optimised.

Compilers take minutes for functions of hundreds of calls, each of which may fail.
"""


def compile_c(source: Path, program: Path, flags: Sequence[str] | None = None) -> None:
    """Compile a C file with mpicc.

    Args:
        flags: options of the compiler; the default is ``-O2``, or ``-O0`` for long code.

    Raises:
        DiagnosticError: mpicc is missing, or has no C compiler.
        RuntimeError: the code does not compile, which is an internal error.
    """
    # Hidden visibility: no function of the program may replace a function of the system.
    if flags is None:
        flags = ("-O2",) if source.stat().st_size < _LONG else ("-O0",)
    options = ["-std=c99", "-fvisibility=hidden", *flags]
    command = [find("mpicc"), *options, str(source), "-o", str(program), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 127 or ("not found" in done.stderr and not done.stdout):
        raise DiagnosticError(Diagnostic(f"mpicc has no C compiler: {done.stderr.strip()}"))
    if done.returncode:
        raise RuntimeError(f"the emitted C does not compile:\n{done.stderr}")


@cache
def _is_open_mpi(launcher: str) -> bool:
    version = subprocess.run([launcher, "--version"], capture_output=True, text=True, check=False)
    return "Open MPI" in version.stdout or "OpenRTE" in version.stdout


def mpiexec(ranks: int, command: Sequence[str], timeout: float | None = None) -> str:
    """Run a program on some ranks, which may outnumber the cores, and return its output.

    Raises:
        DiagnosticError: mpiexec is missing.
        RuntimeError: the program failed.
    """
    launcher = [find("mpiexec"), "-n", str(ranks)]
    if _is_open_mpi(launcher[0]):
        launcher += ["--oversubscribe"] + ["--allow-run-as-root"] * (os.geteuid() == 0)
    shared = ranks > (os.cpu_count() or 1)
    done = subprocess.run(
        [*launcher, *command],
        env=(SHARING if shared else {}) | os.environ,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed on {ranks} ranks:\n{done.stdout}{done.stderr}")
    return done.stdout


def run(
    module: ModuleOp,
    calls: Sequence[Call],
    folder: Path,
    flags: Sequence[str] | None = None,
    timeout: float | None = None,
    repeats: int = 1,
) -> list[Outcome]:
    """Run functions of a module on real MPI ranks, in one launch.

    Args:
        calls: functions whose meshes have as many devices as there are ranks.
        folder: an existing folder for the code, the program and the buffers.
        timeout: seconds after which the program is killed.
        repeats: the number of runs of each function.

    Returns:
        For every function its results, with None on ranks that hold none, and the seconds of its
        slowest rank in its best run.

    Raises:
        DiagnosticError: MPI is not installed.
        RuntimeError: the code does not compile or fails.
    """
    functions = [function for function, _ in calls]
    ranks = mesh_of(functions[0]).devices
    source = folder / "program.c"
    source.write_text(emit_harness(module, functions), encoding="utf-8")
    compile_c(source, folder / "program", flags)
    for rank in range(ranks):
        with (folder / f"{rank}.in").open("wb") as file:
            for buffers in chain.from_iterable(arguments for _, arguments in calls):
                if (buffer := buffers[rank]) is not None:
                    file.write(buffer.tobytes())
    mpiexec(ranks, [str(folder / "program"), str(folder), str(repeats)], timeout)
    times = [float(line) for line in (folder / "times").read_text().split()]
    files = [(folder / f"{rank}.out").open("rb") for rank in range(ranks)]
    try:
        results = [_read_results(function, files) for function in functions]
    finally:
        for file in files:
            file.close()
    return list(zip(results, times, strict=True))


def _read_results(function: FuncOp, files: Sequence[IO[bytes]]) -> list[Buffers]:
    mesh = mesh_of(function)
    results: list[Buffers] = []
    for value in plan_buffers(function).returned:
        x = dist_type(value)
        buffers: Buffers = []
        for rank, file in enumerate(files):
            if any(coordinate(mesh, rank, axis) != at for axis, at in x.place):
                buffers.append(None)
                continue
            shape = block_shape(mesh, rank, x.dims)
            data = np.frombuffer(file.read(math.prod(shape) * x.dtype.bytes), NUMPY[x.dtype])
            buffers.append(data.reshape(shape))
        results.append(buffers)
    return results
