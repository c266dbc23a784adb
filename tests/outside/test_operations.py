"""Operations, collectives and programs are what plain jax and torch compute, on every engine.

The campaign is a program: ``PYTHONPATH=tests python tests/support/outside/run.py --help``. It is a
process of its own, as jax has threads and other tests fork.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.harness.seeds import SEED

CAMPAIGN = Path(__file__).parents[1] / "support" / "outside" / "run.py"
COLLECTIVES = "all_reduce,reduce_scatter,all_to_all,send,shift,part,terms,mask,redistribute"

pytestmark = pytest.mark.skipif(
    find_spec("torch") is None or find_spec("jax") is None, reason="torch or jax is not installed"
)


def run(*words: str) -> None:
    """Run a campaign.

    Raises:
        AssertionError: a case fails, or jax and torch disagree.
    """
    command = [sys.executable, "-W", "ignore", str(CAMPAIGN), "--seed", str(SEED), *words]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


@pytest.mark.turns
def test_a_sample() -> None:
    run("--cases", "9", "--jax", "0")


@pytest.mark.slow
def test_operations() -> None:
    """Check every operation and its gradient, in jax and in torch, and with infinities and NaN."""
    run("--cases", "400", "--jax", "0.3")
    run("--cases", "200", "--special", "1", "--jax", "0.3")


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["jax", "mpi", "mpi4py", "torch"])
def test_on_ranks(engine: str) -> None:
    run("--cases", "200", "--jax", "0", "--engines", engine)
    run("--cases", "40", "--only", "program", "--engines", engine)


@pytest.mark.slow
def test_programs_and_collectives() -> None:
    run("--cases", "150", "--only", "program")
    run("--cases", "300", "--only", COLLECTIVES)
