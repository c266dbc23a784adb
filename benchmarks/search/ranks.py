"""The program of a rank for ``mpi.py``, ``tiny.py`` and ``propagation.py``; rank 0 prints JSON.

Without a launcher, ``uts`` and ``clique`` are searched by this process alone.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from measure import used
from trees import Flat, Race, leaf, stamps

from collir.problems import graphs
from collir.problems.clique import MaxClique
from collir.problems.uts import UTS
from collir.search import Budget, DepthBounded, enumerate, optimise
from collir.search.engines.mpi import Mpi, launched


def uts(options: dict[str, Any]) -> dict[str, Any]:
    """Count a tree."""
    outcome = enumerate(UTS(depth=9, b0=4, seed=19), **options)
    return {"answer": outcome.total, "nodes": outcome.statistics.nodes}


def clique(options: dict[str, Any]) -> dict[str, Any]:
    """Find a greatest clique."""
    outcome = optimise(MaxClique(graphs.random(200, 0.75, 1)), **options)
    return {"answer": outcome.bound, "nodes": outcome.statistics.nodes}


def searched(search: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """Return a search on all ranks, or by this process alone."""
    if not launched():
        return measured(lambda: search({}))
    with Mpi() as engine:
        return measured(lambda: search({"engine": engine, "coordination": Budget()}))


def tiny(leaves: int) -> dict[str, Any]:
    """Return a flat tree, a task for each leaf."""
    with Mpi() as engine:

        def search() -> dict[str, Any]:
            outcome = enumerate(Flat(leaves), engine=engine, coordination=DepthBounded(1))
            assert (outcome.total, outcome.statistics.tasks) == (leaves, leaves + 1)
            return {}

        return measured(search)


def futures(leaves: int) -> dict[str, Any]:
    """Return the same leaves as futures of mpi4py's pool."""
    from mpi4py import MPI
    from mpi4py.futures import MPICommExecutor

    def work() -> dict[str, Any]:
        with MPICommExecutor(MPI.COMM_WORLD, root=0) as executor:
            if executor is not None:
                waiting = [executor.submit(leaf, node) for node in range(leaves)]
                assert sum(future.result() or 0 for future in waiting) == leaves
        return {}

    return measured(work)


def race(file: str, rounds: int) -> dict[str, Any]:
    """Return for each round the seconds from the solution to the busy rank's last bound."""
    delays: list[float] = []
    with Mpi() as engine:
        for _ in range(rounds):
            optimise(Race(file), engine=engine, coordination=DepthBounded(1))
            begin, end = stamps(file)
            delays.append(float(end - begin))
    return {"seconds": delays}


def measured(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Call ``work``; return its result, the wall clock time, and the CPU seconds of all ranks."""
    started, before = time.perf_counter(), used()
    result = work()
    seconds, busy = time.perf_counter() - started, used() - before
    if "mpi4py.MPI" in sys.modules:
        from mpi4py import MPI

        busy = MPI.COMM_WORLD.allreduce(busy)
    return {**result, "wall": seconds, "cpu": busy}


def main(what: str, *arguments: str) -> None:
    """Run the measurement with a name."""
    match what:
        case "uts":
            result = searched(uts)
        case "clique":
            result = searched(clique)
        case "tiny-engine":
            result = tiny(int(arguments[0]))
        case "tiny-futures":
            result = futures(int(arguments[0]))
        case "race":
            result = race(arguments[0], int(arguments[1]))
        case _:
            raise SystemExit(f"ranks.py: there is no {what!r}")
    if "mpi4py.MPI" in sys.modules:
        from mpi4py import MPI

        if MPI.COMM_WORLD.rank:
            return
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
