"""Searches on the ranks of MPI: their answers, and their ends after errors and losses."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.harness.hanging import HANG
from support.harness.seeds import some
from support.search.slow import LASTING

from collir.search import NodesByDepth, SearchError, enumerate
from collir.search.engines.mpi import LAUNCHERS, Mpi, launched, leads
from collir.tools.mpi_run import find, mpiexec

pytest.importorskip("mpi4py", exc_type=ImportError)

SCRIPT = Path(__file__).parent.parent / "support" / "search" / "ranks.py"


@pytest.mark.turns
@pytest.mark.parametrize("ranks", [*some([1, 2], 1), pytest.param(4, marks=pytest.mark.slow)])
def test_finds_what_plain_searches_find_and_survives_errors_and_limits(
    ranks: int, tmp_path: Path
) -> None:
    mpiexec(ranks, [sys.executable, "-m", "mpi4py", str(SCRIPT), "all", str(tmp_path)], HANG)
    assert len(list(tmp_path.glob("done-*"))) == ranks


def launch(what: str, folder: Path, *more: str) -> "subprocess.Popen[str]":
    """Start the script on four ranks."""
    return subprocess.Popen(
        [find("mpiexec"), "-n", "4", sys.executable, str(SCRIPT), what, str(folder), *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
    )


def wait_for(
    folder: Path, job: "subprocess.Popen[str]", name: str = "checkpoint", count: int = 1
) -> None:
    """Wait until ``count`` files match a pattern."""
    end = time.monotonic() + HANG
    while len(list(folder.glob(name))) < count:
        assert job.poll() is None, job.communicate()
        assert time.monotonic() < end
        time.sleep(0.01)


def ended(job: "subprocess.Popen[str]") -> tuple[int, str]:
    """Return the status and the output of a job."""
    try:
        output, _ = job.communicate(timeout=HANG)
    finally:
        job.kill()
    return job.returncode, output


@pytest.mark.turns
@pytest.mark.parametrize("rank", some([0, 2], 1))
def test_a_killed_rank_ends_the_job_and_leaves_a_checkpoint(rank: int, tmp_path: Path) -> None:
    job = launch("lasting", tmp_path)
    wait_for(tmp_path, job)
    os.kill(int((tmp_path / f"pid-{rank}").read_text(encoding="utf-8")), signal.SIGKILL)
    status, output = ended(job)
    assert status
    assert "BAD TERMINATION" in output or "signal 9" in output
    resumed = enumerate(LASTING, NodesByDepth(), resume=tmp_path / "checkpoint")
    assert sum(resumed.total) == LASTING.size
    assert resumed.statistics.nodes == LASTING.size


def names_the_lost_rank(job: "subprocess.Popen[str]", folder: Path, why: str) -> None:
    """Every rank except the lost one reports why it ends."""
    status, output = ended(job)
    assert status, output
    for rank in (0, 1, 3):
        said = (folder / f"errors-{rank}").read_text(encoding="utf-8")
        assert f"rank 2 of 4 is lost: {why}" in said
        assert f"{folder / 'checkpoint'} holds what was known" in said


@pytest.mark.slow
def test_ranks_that_outlive_another_name_it(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", str(HANG)]) as process:
        job = launch("losing", tmp_path, "1.5", str(process.pid))
        wait_for(tmp_path, job)
        process.kill()
        names_the_lost_rank(job, tmp_path, f"its process ({process.pid}) has ended")


@pytest.mark.slow
def test_a_rank_elsewhere_that_is_silent_is_lost(tmp_path: Path) -> None:
    job = launch("losing", tmp_path, "10")
    wait_for(tmp_path, job)
    os.kill(int((tmp_path / "pid-2").read_text(encoding="utf-8")), signal.SIGSTOP)
    names_the_lost_rank(job, tmp_path, "it has given no sign of life for 10")


KEPT = """
cd {folder}
{python} {script} losing {folder} {patience}
touch ended-$PMI_RANK
sleep {patience}
"""
"""A shell that outlives its rank, so that the launcher does not end the other ranks."""


@pytest.mark.slow  # MPICH itself may crash on a busy machine
@pytest.mark.parametrize("rank", some([0, 2], 1))
def test_a_rank_killed_on_another_machine_is_named_by_the_others(rank: int, tmp_path: Path) -> None:
    """MPI raises an error in a call, and crashes at the next call that involves that rank."""
    launcher = find("mpiexec")
    options = subprocess.run([launcher, "-help"], capture_output=True, text=True, timeout=HANG)
    if "-disable-auto-cleanup" not in options.stdout + options.stderr:
        pytest.skip("the launcher always ends the whole job")
    shell = KEPT.format(patience=HANG, folder=tmp_path, python=sys.executable, script=SCRIPT)
    job = subprocess.Popen(
        [launcher, "-disable-auto-cleanup", "-n", "4", "sh", "-c", shell],
        env={**os.environ, "MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    wait_for(tmp_path, job)
    os.kill(int((tmp_path / f"pid-{rank}").read_text(encoding="utf-8")), signal.SIGKILL)
    others = sorted({0, 1, 2, 3} - {rank})
    end = time.monotonic() + HANG

    def said(other: int) -> str:
        return (tmp_path / f"errors-{other}").read_text(encoding="utf-8")

    while not all("Error:" in said(other) for other in others) and job.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.05)
    time.sleep(0.2)
    job.kill()
    output = job.communicate()[0]
    assert "Segmentation fault" not in output
    for other in others:
        assert f"LostRankError: rank {rank} of 4 is lost: MPI cannot reach it" in said(other)


@pytest.mark.slow
def test_an_interrupt_returns_what_was_found_on_all_ranks(tmp_path: Path) -> None:
    job = launch("interrupted", tmp_path)
    wait_for(tmp_path, job, "[0-9]*", count=3)  # the fourth rank hands out work
    job.send_signal(signal.SIGINT)
    status, output = ended(job)
    assert status == 0, output
    assert "Traceback" not in output


def test_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(SearchError, match=r"pip install 'collir\[mpi,mpi4py\]'"):
        Mpi()


@pytest.mark.parametrize(
    ("variables", "several", "first"),
    [
        ({}, False, True),
        ({"PMI_SIZE": "1", "PMI_RANK": "0"}, False, True),
        ({"PMI_SIZE": "4", "PMI_RANK": "0"}, True, True),
        ({"PMI_SIZE": "4", "PMI_RANK": "3"}, True, False),
        ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}, True, False),
        ({"SLURM_STEP_NUM_TASKS": "8"}, False, True),
        ({"SLURM_STEP_NUM_TASKS": "8", "PMIX_RANK": "3"}, True, False),
        ({"PMI_SIZE": "many", "PMI_RANK": "0"}, False, True),
    ],
)
def test_knows_whether_it_is_one_of_several_ranks(
    variables: dict[str, str], several: bool, first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (name for names in LAUNCHERS for name in names):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert launched() is several
    assert leads() is first


@pytest.mark.slow
def test_the_command_has_one_answer_and_one_error(tmp_path: Path) -> None:
    """Rank 0 prints the answer or the error for all ranks."""
    graph = Path(__file__).parents[2] / "examples" / "search" / "johnson8-4-4.clq"

    def say(*arguments: str) -> subprocess.CompletedProcess[str]:
        start = "from collir.tools.collir import script; script()"
        command = [sys.executable, "-c", start, "search", "clique", *arguments]
        command = [find("mpiexec"), "-n", "3", *command]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=HANG, stdin=subprocess.DEVNULL
        )

    completed = say(str(graph))
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.count("optimal: 14") == completed.stdout.count("(mpi, 2 workers)") == 1
    missing = say(str(tmp_path / "none.clq"))
    assert missing.returncode == 1
    assert missing.stderr.count("error: cannot read") == 1
