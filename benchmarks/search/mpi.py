"""Ranks of MPI: four of them against one process. What they run is in ``ranks.py``."""

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from measure import Figure, skipped

ROUNDS = 3
LIMIT = 300

MPIEXEC = Path(sys.executable).parent / "mpiexec"


def missing() -> str:
    """What MPI lacks here, if anything."""
    if find_spec("mpi4py") is None:
        return "mpi4py is not installed"
    if not MPIEXEC.exists():
        return "there is no mpiexec beside this Python"
    return "" if find_spec("collir.search.engines.mpi") is not None else "there is no MPI engine"


def ranks(number: int, *arguments: str) -> dict[str, Any]:
    """What ``ranks.py`` measures, on some ranks, or (0) in a process without MPI."""
    command = [sys.executable, str(Path(__file__).with_name("ranks.py")), *arguments]
    if number:
        command = [str(MPIEXEC), "-n", str(number), *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stdout}{done.stderr}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def figures() -> Iterator[Figure]:
    """Wall clock and CPU of a search on 4 ranks, of which 3 work, against one process.

    Starting Python and MPI is not counted.
    """
    if why := missing():
        yield skipped("mpi", why)
        return
    for name in ("uts", "clique"):
        runs = [(ranks(0, name), ranks(4, name)) for _ in range(ROUNDS)]
        one, four = ({k: min(run[i][k] for run in runs) for k in ("wall", "cpu")} for i in (0, 1))
        nodes = sorted(run[1]["nodes"] for run in runs)[ROUNDS // 2] / runs[0][0]["nodes"] - 1
        assert all(run[0]["answer"] == run[1]["answer"] for run in runs)
        note = (
            f"wall {four['wall']:.2f} s against {one['wall']:.2f} s, CPU {four['cpu']:.2f} s "
            f"against {one['cpu']:.2f} s ({four['cpu'] / one['cpu']:.2f}x), nodes {nodes:+.2%}; "
            "4 ranks, of which 3 work, on the cores of this machine"
        )
        yield Figure(f"mpi.{name}", f"{one['wall'] / four['wall']:.2f}x faster", note=note)
