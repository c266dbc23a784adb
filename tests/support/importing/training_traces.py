"""Traces of small training loops, recorded by torch's profiler on 4 ranks of gloo."""

import atexit
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from support.harness.hanging import HANG

RANKS = 4
STEPS = 3
"""The recorded steps of a run."""

WIDTH = 128
ROWS = 32
LAYERS = 2
PAUSE = 0.03
"""The seconds that a straggler sleeps in a step, or all ranks wait for data."""


@dataclass(frozen=True)
class TrainingRun:
    """A training loop.

    Attributes:
        kind: ``ddp``, ``fsdp`` or ``tp`` (with data parallelism across pairs of ranks).
        straggler: a rank that sleeps before each step.
        slow_data: whether all ranks wait for their data before each step.
    """

    kind: str
    straggler: int | None = None
    slow_data: bool = False


RUNS = {
    "ddp": TrainingRun("ddp"),
    "straggler": TrainingRun("ddp", straggler=2),
    "slow_data": TrainingRun("ddp", slow_data=True),
    "fsdp": TrainingRun("fsdp"),
    "tp": TrainingRun("tp"),
}


DUMPS = "flight_recorder"
"""The name of what the flight recorder has of all runs: a file for each rank."""

_LOOPS = Path(__file__).with_name("training_loops.py")


@cache
def training_traces() -> Mapping[str, list[Path]]:
    """Return the traces of each of the runs above, a file for each rank, recorded once."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    return recorded(Path(folder.name), RUNS)


def recorded(folder: Path, runs: Mapping[str, TrainingRun]) -> Mapping[str, list[Path]]:
    """Record training loops; return the traces of each, a file for each rank."""
    text = json.dumps({name: asdict(run) for name, run in runs.items()})
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_FR_BUFFER_SIZE": "2000"}
    done = subprocess.run(
        [sys.executable, _LOOPS, folder, text], env=environment, timeout=HANG, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    assert not done.returncode, done.stderr[-2000:]
    return {
        name: sorted(folder.glob(f"{name}.rank*"), key=lambda x: x.name) for name in (*runs, DUMPS)
    }
