"""Runs of the emitted Python for mpi4py under mpiexec."""

import sys
from collections.abc import Sequence
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from collir.dialects.machine import mesh_of
from collir.targets.code.mpi4py import emit_mpi4py
from collir.tools.mpi_run import mpiexec
from collir.tools.processes import Call, Outcome, check_installed, read_outcomes, write_calls

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


def run(module: ModuleOp, calls: Sequence[Call], folder: Path, repeats: int = 1) -> list[Outcome]:
    """Run functions of a module on real MPI ranks as Python, in one launch.

    Args:
        calls: functions whose meshes have as many devices as there are ranks.
        folder: an existing folder for the code and the buffers.
        repeats: the number of runs of each function.

    Returns:
        For every function its results, with None on ranks that hold none, and the seconds of its
        slowest rank in its best run.

    Raises:
        DiagnosticError: MPI or mpi4py is not installed, or Python has no form of a function.
        RuntimeError: the code fails.
    """
    check_installed(
        "mpi4py",
        "mpi4py is not installed: `pip install 'collir[mpi,mpi4py]'` brings it, and --engine mpi "
        "needs none",
    )
    ranks = mesh_of(calls[0][0]).devices
    code = emit_mpi4py(module, [function.sym_name.data for function, _ in calls])
    (folder / "program.py").write_text(code, encoding="utf-8")
    (folder / "run.py").write_text(_SCRIPT, encoding="utf-8")
    write_calls(folder, ranks, calls)
    # mpi4py's own main ends all ranks if one fails.
    script = ["-W", "ignore", "-m", "mpi4py", str(folder / "run.py"), str(folder), str(repeats)]
    _ = mpiexec(ranks, [sys.executable, *script])
    return read_outcomes(folder, ranks)
