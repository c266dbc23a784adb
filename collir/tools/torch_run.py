"""Runs of the emitted Python for torch.distributed, on processes of this computer with gloo."""

from collections.abc import Sequence
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from collir.dialects.machine import mesh_of
from collir.targets.code.torch import emit_torch
from collir.tools.processes import (
    Call,
    Outcome,
    check_installed,
    read_outcomes,
    run_script,
    write_calls,
)

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


def run(
    module: ModuleOp, calls: Sequence[Call], folder: Path, patience: float = PATIENCE
) -> list[Outcome]:
    """Run functions of a module on processes with gloo, in one launch.

    Args:
        calls: functions whose meshes have as many devices as there are processes.
        folder: an existing folder for the code and the buffers.
        patience: the seconds after which a rank no longer waits for the others.

    Returns:
        For every function its results, with None on ranks that hold none, and the seconds of its
        slowest rank.

    Raises:
        DiagnosticError: torch is not installed, or has no form of a function.
        RuntimeError: the code fails.
    """
    check_installed("torch")
    ranks = mesh_of(calls[0][0]).devices
    code = emit_torch(module, [function.sym_name.data for function, _ in calls])
    (folder / "program.py").write_text(code, encoding="utf-8")
    write_calls(folder, ranks, calls)
    launch(folder, ranks, patience)
    return read_outcomes(folder, ranks)


def launch(folder: Path, ranks: int, patience: float = PATIENCE) -> None:
    """Run the calls in files of a folder on processes with gloo.

    Args:
        folder: a folder with the emitted ``program.py`` and the calls of each rank (``0.in``); the
            results come there (``0.out``).

    Raises:
        RuntimeError: a rank fails, or waits too long; then all are ended.
    """
    run_script(folder, _SCRIPT, [str(ranks), str(patience)], "the emitted torch")
