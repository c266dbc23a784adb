"""Runs of the emitted Python for torch.distributed, on processes of this computer with gloo."""

import pickle
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.dialects.machine import mesh_of
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.semantics.reference.collectives import Buffers
from collir.targets.code.torch import emit_torch
from collir.tools.mpi4py_run import calls_of, outcomes_of

_SCRIPT = '''\
import pickle
import sys
import time
from datetime import timedelta
from pathlib import Path

import ml_dtypes
import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

folder, size, wait = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
sys.path.insert(0, str(folder))
import program


def tensor(x):
    """The tensor of an array; numpy of itself does not know bf16."""
    if x is None:
        return None
    x = np.asarray(x)
    if x.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(x)


def array(x):
    """The array of a tensor."""
    if x is not None and x.dtype == torch.bfloat16:
        return x.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return None if x is None else x.numpy()


def slowest(seconds):
    """The largest number of all ranks."""
    times = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    return times.item()


def work(rank):
    torch.set_num_threads(1)  # ranks share the cores
    store, limit = dist.FileStore(str(folder / "store"), size), timedelta(seconds=wait)
    dist.init_process_group("gloo", rank=rank, world_size=size, store=store, timeout=limit)
    meshes, outcomes = {}, []
    for mesh, function, count, held in pickle.loads((folder / f"{rank}.in").read_bytes()):
        if mesh not in meshes:
            meshes[mesh] = getattr(program, mesh)()
        arguments = [tensor(x) for x in held]
        dist.barrier()
        start = time.perf_counter()
        results = getattr(meshes[mesh], function)(*arguments)
        seconds = slowest(time.perf_counter() - start)
        results = results if count > 1 else (results,)[:count]
        outcomes.append((tuple(map(array, results)), seconds))
    (folder / f"{rank}.out").write_bytes(pickle.dumps(outcomes))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    # Forked from one process, which imports torch once and ends all ranks if one fails.
    mp.start_processes(work, nprocs=size, start_method="fork")
'''
"""The program of all ranks, which write their results, and the time of the slowest rank."""

PATIENCE = 600.0
"""Seconds after which a rank no longer waits for the others."""


def check_installed() -> None:
    """Check that torch is installed.

    Raises:
        DiagnosticError: it is not.
    """
    if find_spec("torch") is None:
        raise DiagnosticError(
            Diagnostic("torch is not installed: `pip install 'collir[torch]'` brings it")
        )


def run(
    module: ModuleOp,
    calls: Sequence[tuple[FuncOp, Sequence[Buffers]]],
    patience: float = PATIENCE,
) -> list[tuple[list[Buffers], float]]:
    """Run functions of a module on processes with gloo, in one launch.

    Args:
        calls: functions on meshes of the same number of devices, which is that of the processes;
            each with one array (or None) per rank for every argument.
        patience: the seconds after which a rank no longer waits for the others.

    Returns:
        For every function its results, with None on ranks that hold none, and the seconds of its
        slowest rank.

    Raises:
        DiagnosticError: torch is not installed, or has no form of a function.
        RuntimeError: the code fails.
    """
    check_installed()
    ranks = mesh_of(calls[0][0]).devices
    with tempfile.TemporaryDirectory(prefix="collrun-") as name:
        folder = Path(name)
        code = emit_torch(module, [function.sym_name.data for function, _ in calls])
        (folder / "program.py").write_text(code, encoding="utf-8")
        for rank in range(ranks):
            (folder / f"{rank}.in").write_bytes(pickle.dumps(calls_of(rank, calls)))
        launch(folder, ranks, patience)
        return outcomes_of(folder, ranks)


def launch(folder: Path, ranks: int, patience: float = PATIENCE) -> None:
    """Run the calls in files of a folder on processes with gloo.

    Args:
        folder: a folder with the emitted ``program.py`` and the calls of each rank (``0.in``); the
            results come there (``0.out``).

    Raises:
        RuntimeError: a rank fails, or waits too long; then all are ended.
    """
    (folder / "run.py").write_text(_SCRIPT, encoding="utf-8")
    words = [str(folder / "run.py"), str(folder), str(ranks), str(patience)]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *words],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        raise RuntimeError(f"the emitted torch failed:\n{done.stdout}{done.stderr}")
