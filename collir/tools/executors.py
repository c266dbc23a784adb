"""Workers of a sweep: processes of this computer, or of an executor that a user names."""

import importlib
import os
from collections.abc import Generator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any, NamedTuple

from collir.tools.shell import UsageError

DASK, MPI = "dask://", "mpi"


class Workers(NamedTuple):
    """The processes that compile and simulate.

    Attributes:
        number: how many there are.
        executor: their executor; None: they are processes of this computer.
        is_done: whether this process was one of them, and all work is done.
    """

    number: int
    executor: Executor | None = None
    is_done: bool = False


@contextmanager
def workers_at(address: str | None, count: int | None) -> Generator[Workers]:
    """Give the workers of a Dask cluster, the other ranks of an MPI job, or processes.

    Args:
        address: ``dask://HOST:PORT``, ``mpi``, or None for processes.
        count: how many of them to use; None: all.

    Raises:
        UsageError: it is no address, a package is not installed, or no workers are there.
    """
    if address is None:
        yield Workers(count or os.cpu_count() or 1)
    elif address == MPI:
        yield from _ranks(count)
    elif address.startswith(DASK) and ":" in (place := address.removeprefix(DASK)):
        yield from _cluster(place, count)
    else:
        raise UsageError(f"--executor {address}: write {DASK}HOST:PORT or {MPI}")


def _cluster(place: str, count: int | None) -> Generator[Workers]:
    try:
        distributed: Any = importlib.import_module("distributed")
    except ImportError as error:
        raise UsageError(
            "--executor needs Dask: pip install 'collir[dask]', here and at its workers"
        ) from error
    try:
        client = distributed.Client(f"tcp://{place}", timeout=10)
    except OSError as error:
        raise UsageError(f"--executor {DASK}{place}: no scheduler answers there") from error
    with client:
        there = len(client.scheduler_info(n_workers=-1)["workers"])
        if not there:
            raise UsageError(f"--executor {DASK}{place}: the scheduler has no workers")
        yield Workers(count or there, client.get_executor(pure=False))


def _ranks(count: int | None) -> Generator[Workers]:
    try:
        futures: Any = importlib.import_module("mpi4py.futures")
        world: Any = importlib.import_module("mpi4py.MPI").COMM_WORLD
    except ImportError as error:
        raise UsageError("--executor mpi needs mpi4py: pip install 'collir[mpi4py]'") from error
    if world.size < 2:
        raise UsageError(
            "--executor mpi is for the ranks of a job, of which the first one divides the work: "
            "mpiexec -n 5 collir sweep ..."
        )
    with futures.MPICommExecutor(world, root=0) as executor:  # other ranks work here
        if executor is not None:
            yield Workers(count or world.size - 1, executor)
    if executor is None:
        yield Workers(0, is_done=True)
