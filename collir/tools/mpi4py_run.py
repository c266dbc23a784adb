"""Runs of the emitted Python for mpi4py under mpiexec."""

import pickle
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.dialects.machine import mesh_of
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.semantics.reference.collectives import Array, Buffers
from collir.targets.code.mpi4py import emit_mpi4py
from collir.targets.code.python_text import class_name
from collir.tools.mpi_run import mpiexec

_SCRIPT = """\
import os
import pickle
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # ranks share the cores
from mpi4py import MPI

folder, repeats = Path(sys.argv[1]), int(sys.argv[2])
sys.path.insert(0, str(folder))
import program

world, meshes, outcomes = MPI.COMM_WORLD, {}, []
for mesh, function, count, arguments in pickle.loads((folder / f"{world.rank}.in").read_bytes()):
    if mesh not in meshes:
        meshes[mesh] = getattr(program, mesh)(world)
    times = []
    for _ in range(repeats):
        world.Barrier()
        start = time.perf_counter()
        results = getattr(meshes[mesh], function)(*arguments)
        times.append(world.allreduce(time.perf_counter() - start, MPI.MAX))
    outcomes.append((results if count > 1 else (results,)[:count], min(times)))
(folder / f"{world.rank}.out").write_bytes(pickle.dumps(outcomes))
for mesh in meshes.values():
    mesh.free()
"""
"""The program of a rank, which writes its results, and the time of the slowest rank."""


def run(
    module: ModuleOp,
    calls: Sequence[tuple[FuncOp, Sequence[Buffers]]],
    repeats: int = 1,
) -> list[tuple[list[Buffers], float]]:
    """Run functions of a module on real MPI ranks as Python, in one launch.

    Args:
        calls: functions on meshes of the same number of devices, which is that of the ranks; each
            with one array (or None) per rank for every argument.
        repeats: the number of runs of each function.

    Returns:
        For every function its results, with None on ranks that hold none, and the seconds of its
        slowest rank in its best run.

    Raises:
        DiagnosticError: MPI or mpi4py is not installed, or Python has no form of a function.
        RuntimeError: the code fails.
    """
    if find_spec("mpi4py") is None:
        raise DiagnosticError(
            Diagnostic(
                "mpi4py is not installed: `pip install 'collir[mpi,mpi4py]'` brings it, and "
                "--engine mpi needs none"
            )
        )
    ranks = mesh_of(calls[0][0]).devices
    with tempfile.TemporaryDirectory(prefix="collrun-") as name:
        folder = Path(name)
        code = emit_mpi4py(module, [function.sym_name.data for function, _ in calls])
        (folder / "program.py").write_text(code, encoding="utf-8")
        (folder / "run.py").write_text(_SCRIPT, encoding="utf-8")
        for rank in range(ranks):
            (folder / f"{rank}.in").write_bytes(pickle.dumps(calls_of(rank, calls)))
        # mpi4py's own main ends all ranks if one fails.
        script = ["-W", "ignore", "-m", "mpi4py", str(folder / "run.py"), name, str(repeats)]
        _ = mpiexec(ranks, [sys.executable, *script])
        return outcomes_of(folder, ranks)


def outcomes_of(folder: Path, ranks: int) -> list[tuple[list[Buffers], float]]:
    """Return what all ranks wrote: the results of every function, and the seconds of rank 0, which
    are those of the slowest."""
    outcomes: list[list[tuple[tuple[Array | None, ...], float]]] = [
        pickle.loads((folder / f"{rank}.out").read_bytes()) for rank in range(ranks)
    ]
    return [
        ([list(buffers) for buffers in zip(*(held for held, _ in rows), strict=True)], rows[0][1])
        for rows in zip(*outcomes, strict=True)
    ]


def calls_of(
    rank: int, calls: Sequence[tuple[FuncOp, Sequence[Buffers]]]
) -> list[tuple[str, str, int, list[Array | None]]]:
    """Return the calls of a rank: the class of the mesh, the method, the number of its results, and
    what the rank holds."""
    return [
        (
            class_name(mesh_of(function).name),
            function.sym_name.data,
            len(function.function_type.outputs),
            [x[rank] for x in arguments],
        )
        for function, arguments in calls
    ]
