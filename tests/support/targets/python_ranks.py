"""Runs emitted Python on real ranks: mpi4py under mpiexec, and torch on processes with gloo.

The ranks read their arguments from files, call every function, and write their results, which are
compared with those of the numpy executor.
"""

import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from support.harness.hanging import HANG
from support.targets.on_ranks import arguments_of, same
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import collir
from collir.dialects.machine import mesh_of
from collir.semantics.reference.collectives import Array, Buffers
from collir.semantics.reference.exactness import exact, roundings
from collir.semantics.reference.executor import execute
from collir.targets.code.python_text import class_name
from collir.tools.mpi_run import mpiexec

Target = Literal["mpi4py", "torch"]

_COMMON = """
import pickle
import sys
from pathlib import Path

import ml_dtypes
import numpy as np

folder = Path(sys.argv[1])
sys.path.insert(0, str(folder))
import program


def main(rank, make, to_tensor, to_array):
    meshes = {}
    calls = pickle.loads((folder / f"{rank}.in").read_bytes())
    results = []
    for mesh, function, arguments, count in calls:
        if mesh not in meshes:
            meshes[mesh] = make(getattr(program, mesh))
        inputs = [None if x is None else to_tensor(np.asarray(x)) for x in arguments]
        before = [None if x is None else to_array(x).copy() for x in inputs]
        returned = getattr(meshes[mesh], function)(*inputs)
        returned = returned if count > 1 else (returned,) if count else ()
        assert len(returned) == count
        held = [None if x is None else to_array(x) for x in returned]
        held = [None if x is None else x.copy() for x in held]
        for x in returned:  # results must have memory of their own
            if x is not None:
                x[...] = True if "bool" in str(x.dtype) else 1
        for x, old in zip(inputs, before):
            same = x is None or to_array(x).tobytes() == old.tobytes()
            assert same, f"{function} changes its argument"
        results.append(held)
    (folder / f"{rank}.out").write_bytes(pickle.dumps(results))
    return meshes
"""

_MPI4PY = (
    _COMMON
    + """
from mpi4py import MPI

import importlib

xp = importlib.import_module(sys.argv[2])
world = MPI.COMM_WORLD
meshes = main(world.rank, lambda mesh: mesh(world, xp), xp.asarray, np.asarray)
for mesh in meshes.values():
    mesh.free()
"""
)

_TORCH = (
    _COMMON
    + """
import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def to_tensor(x):
    if x.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(x)


def to_array(x):
    if x.dtype == torch.bfloat16:
        return x.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return x.numpy()


def work(rank, size):
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), size)
    dist.init_process_group("gloo", rank=rank, world_size=size, store=store)
    main(rank, lambda mesh: mesh(), to_tensor, to_array)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    # Forked from one process, which imports torch once.
    size = int(sys.argv[2])
    mp.start_processes(work, args=(size,), nprocs=size, start_method="fork")
"""
)


def results_on_ranks(
    target: Target,
    module: ModuleOp,
    functions: Sequence[FuncOp],
    folder: Path,
    library: str = "numpy",
    inputs: Sequence[Sequence[Buffers]] | None = None,
) -> list[list[Buffers]]:
    """Return the results of functions on meshes of one size, on real ranks and in one launch.

    Args:
        inputs: the buffers of all devices for the arguments of each function; by default random.
        library: the library whose arrays the mpi4py code gets.
    """
    size = mesh_of(functions[0]).devices
    (folder / "program.py").write_text(collir.emit(module, target), encoding="utf-8")
    inputs = inputs or [arguments_of(function) for function in functions]
    for rank in range(size):
        calls: list[tuple[str, str, list[Array | None], int]] = []
        for function, arguments in zip(functions, inputs, strict=True):
            mesh = class_name(mesh_of(function).name)
            held = [buffers[rank] for buffers in arguments]
            results = len(function.function_type.outputs)
            calls.append((mesh, function.sym_name.data, held, results))
        (folder / f"{rank}.in").write_bytes(pickle.dumps(calls))
    script = folder / "ranks.py"
    script.write_text(_MPI4PY if target == "mpi4py" else _TORCH, encoding="utf-8")
    command = [sys.executable, "-W", "ignore", str(script), str(folder)]
    if target == "mpi4py":  # mpi4py's own main ends all ranks if one fails
        mpiexec(size, [*command[:3], "-m", "mpi4py", *command[3:], library], timeout=HANG)
    else:
        done = subprocess.run(
            [*command, str(size)], capture_output=True, text=True, timeout=HANG, check=False
        )
        if done.returncode:
            raise RuntimeError(f"torch failed on {size} ranks:\n{done.stdout}{done.stderr}")
    by_rank: list[list[list[Array | None]]] = [
        pickle.loads((folder / f"{rank}.out").read_bytes()) for rank in range(size)
    ]
    return [
        [[by_rank[rank][place][result] for rank in range(size)] for result in range(len(first))]
        for place, first in enumerate(by_rank[0])
    ]


def differences(
    target: Target,
    module: ModuleOp,
    functions: Sequence[FuncOp],
    folder: Path,
    library: str = "numpy",
) -> list[str]:
    """Return the places where ranks hold other results than the numpy executor computes, as
    'function: result, rank'."""
    on_ranks = results_on_ranks(target, module, functions, folder, library)
    wrong: list[str] = []
    for function, results in zip(functions, on_ranks, strict=True):
        expected = execute(module, function, arguments_of(function))
        epsilons = 0 if exact(function) else roundings(function)
        assert len(results) == len(expected)
        for index, (buffers, right) in enumerate(zip(results, expected, strict=True)):
            wrong += [
                f"{function.sym_name.data}: result {index}, rank {rank}"
                for rank, (actual, truth) in enumerate(zip(buffers, right, strict=True))
                if not same(actual, truth, epsilons)
            ]
    return wrong


def is_tidy(texts: Sequence[str], folder: Path) -> str:
    """Return the complaints of ruff, with its default settings, about emitted files."""
    for index, text in enumerate(texts):
        (folder / f"emitted_{index}.py").write_text(text, encoding="utf-8")
    said = ""
    for words in (["check", "--quiet"], ["format", "--diff", "--quiet"]):
        command = [sys.executable, "-m", "ruff", *words, "--isolated", str(folder)]
        said += subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return said
