"""Executors that a user names, whose workers may be on other machines."""

import importlib
from collections.abc import Generator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any

from collir.tools.shell import UsageError

DASK = "dask://"


@contextmanager
def executor_at(address: str | None) -> Generator[tuple[Executor, int] | None]:
    """Connect to the scheduler of a Dask cluster, and give its executor and the number of its
    workers; None if there is no address.

    Raises:
        UsageError: it is no address, Dask is not installed, or no scheduler answers.
    """
    if address is None:
        yield None
        return
    if not address.startswith(DASK) or ":" not in (place := address.removeprefix(DASK)):
        raise UsageError(f"--executor {address}: write {DASK}HOST:PORT")
    try:
        distributed: Any = importlib.import_module("distributed")
    except ImportError as error:
        raise UsageError(
            "--executor needs Dask: pip install 'collir[dask]', here and at its workers"
        ) from error
    try:
        client = distributed.Client(f"tcp://{place}", timeout=10)
    except OSError as error:
        raise UsageError(f"--executor {address}: no scheduler answers there") from error
    with client:
        workers = len(client.scheduler_info(n_workers=-1)["workers"])
        if not workers:
            raise UsageError(f"--executor {address}: the scheduler has no workers")
        yield client.get_executor(pure=False), workers
