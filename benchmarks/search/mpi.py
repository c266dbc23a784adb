"""Four ranks of MPI against one process. The ranks run ``ranks.py``."""

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
    """Return what MPI lacks on this machine, if anything."""
    if find_spec("mpi4py") is None:
        return "mpi4py is not installed"
    if not MPIEXEC.exists():
        return "there is no mpiexec beside this Python"
    return "" if find_spec("collir.search.engines.mpi") is not None else "there is no MPI engine"


def ranks(number: int, *arguments: str) -> dict[str, Any]:
    """Return the measurements of ``ranks.py`` on some ranks, or (0) in a process without MPI."""
    command = [sys.executable, str(Path(__file__).with_name("ranks.py")), *arguments]
    if number:
        command = [str(MPIEXEC), "-n", str(number), *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stdout}{done.stderr}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def figures() -> Iterator[Figure]:
    """Yield wall clock and CPU of a search on 4 ranks, of which 3 work, against one process.

    Starting Python and MPI is not counted.
    """
    if why := missing():
        yield skipped("mpi", why)
        return
    for name in ("uts", "clique"):
        runs = [(ranks(0, name), ranks(4, name)) for _ in range(ROUNDS)]
        keys = ("wall", "cpu")
        single, four = ({k: min(run[i][k] for run in runs) for k in keys} for i in (0, 1))
        nodes = sorted(run[1]["nodes"] for run in runs)[ROUNDS // 2] / runs[0][0]["nodes"] - 1
        assert all(run[0]["answer"] == run[1]["answer"] for run in runs)
        note = (
            f"wall {four['wall']:.2f} s against {single['wall']:.2f} s, CPU {four['cpu']:.2f} s "
            f"against {single['cpu']:.2f} s ({four['cpu'] / single['cpu']:.2f}x), "
            f"nodes {nodes:+.2%}; "
            "4 ranks, of which 3 work, on the cores of this machine"
        )
        yield Figure(f"mpi.{name}", f"{single['wall'] / four['wall']:.2f}x faster", note=note)
