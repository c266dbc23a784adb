"""No search leaves a process behind; an interrupt ends it with the best solution so far."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from support.harness.hanging import HANG

START = """
import signal
import sys
from pathlib import Path
from collir.search import *
from collir.search import enumerate
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a job in the background ignores
from support.search.problems import *
folder = Path(sys.argv[1])
"""
TELL = """
print(found.status, found.statistics.reason, found.best.value, found.bound, flush=True)
"""


def alive(pid: int) -> bool:
    """Return whether a process runs and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def processes(folder: Path) -> set[int]:
    """Return the processes that have expanded a node, by the files that they leave."""
    return {int(mark.name) for mark in folder.iterdir()}


def until(condition: Callable[[], object]) -> bool:
    """Wait for a condition; return whether it became true."""
    end = time.monotonic() + HANG
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return bool(condition())


@contextmanager
def running(script: str, folder: Path) -> Generator[subprocess.Popen[str]]:
    """A Python process that runs a script in its own process group, which is killed at the end."""
    command = [sys.executable, "-c", START + script, str(folder)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        for pid in {process.pid, *processes(folder)}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def gone(process: subprocess.Popen[str], folder: Path) -> None:
    """Check that no searching process is left."""
    workers = processes(folder) - {process.pid}
    assert until(lambda: not any(map(alive, workers))), "workers are left behind"


def start_of_search(process: subprocess.Popen[str], folder: Path, least: int) -> None:
    """Wait until ``least`` processes search."""
    searching = until(lambda: len(processes(folder)) >= least or process.poll() is not None)
    assert searching and process.poll() is None
    time.sleep(0.3)


ALONE = "found = optimise(Endless(folder))"
MANY = "found = optimise(Endless(folder), workers=2, engine='processes')"
AUTO = "found = optimise(Endless(folder), workers=2)"
BEST_FIRST = "found = optimise(Endless(folder), workers=2, engine='processes', order='best-first')"


@pytest.mark.turns
@pytest.mark.parametrize(
    ("script", "searching", "group"),
    [(ALONE, 1, False), (MANY, 2, True), (MANY, 2, False), (AUTO, 3, True), (BEST_FIRST, 2, True)],
    ids=["alone", "at the terminal", "processes", "auto", "best-first"],
)
def test_an_interrupt_returns_the_best_so_far(
    tmp_path: Path, script: str, searching: int, group: bool
) -> None:
    """The outcome has its status, reason and bound, and no worker is left."""
    with running(script + TELL, tmp_path) as process:
        start_of_search(process, tmp_path, searching)
        if group:
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=HANG)
        status, reason, value, bound = output.split()
        assert (status, reason) == ("feasible", "interrupted"), errors
        assert 0 <= int(value) <= int(bound) == 20000
        assert process.returncode == 0
        gone(process, tmp_path)


def test_an_interrupt_of_an_enumeration_returns_what_was_counted(tmp_path: Path) -> None:
    script = """
found = enumerate(Endless(folder), Nodes(), workers=2, engine='processes')
print(found.status, found.statistics.reason, found.total == found.statistics.nodes > 0)
"""
    with running(script, tmp_path) as process:
        start_of_search(process, tmp_path, 2)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=HANG)[0].split() == [
            "interrupted",
            "interrupted",
            "True",
        ]
        gone(process, tmp_path)


def test_the_signal_means_what_it_did_before_once_the_search_has_ended(tmp_path: Path) -> None:
    script = """
optimise(Heap(10))
try:
    (folder / "1").touch()
    time.sleep(60)
except KeyboardInterrupt:
    print("as ever")
"""
    with running("import time\n" + script, tmp_path) as process:
        assert until(lambda: processes(tmp_path))
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=HANG)[0].split() == ["as", "ever"]
        (tmp_path / "1").unlink()


@pytest.mark.turns
@pytest.mark.parametrize(
    ("script", "ending"),
    [(MANY, signal.SIGKILL), (AUTO, signal.SIGKILL), (MANY, signal.SIGTERM)],
    ids=["processes", "auto", "terminated"],
)
def test_workers_end_when_their_parent_is_killed(
    tmp_path: Path, script: str, ending: signal.Signals
) -> None:
    with running(script, tmp_path) as process:
        start_of_search(process, tmp_path, 2 if script is MANY else 3)
        process.send_signal(ending)
        process.wait(HANG)
        gone(process, tmp_path)


@pytest.mark.slow
def test_workers_that_wait_for_their_parent_to_read_end_when_it_is_killed(tmp_path: Path) -> None:
    """A stopped parent reads nothing, so its workers are in the middle of long messages."""
    script = """
optimise(
    Endless(folder, padding=300_000), engine='processes', workers=3, coordination=Budget(1),
    order='best-first',
)
"""
    with running(script, tmp_path) as process:
        start_of_search(process, tmp_path, 1)
        process.send_signal(signal.SIGSTOP)
        time.sleep(1.5)
        process.send_signal(signal.SIGKILL)
        process.wait(HANG)
        gone(process, tmp_path)


def test_workers_that_have_nothing_to_do_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    script = """
import time
engine = Processes(3)
optimise(Heap(10), engine=engine)
for pid in engine.pids:
    (folder / str(pid)).touch()
time.sleep(60)
"""
    with running(script, tmp_path) as process:
        start_of_search(process, tmp_path, 3)
        process.send_signal(signal.SIGKILL)
        process.wait(HANG)
        gone(process, tmp_path)


FAILING = """
class Failing(Endless):
    def children(self, node):
        if node[0] == 30:
            raise ValueError("no children at depth 30")
        return super().children(node)
"""


@pytest.mark.turns
@pytest.mark.parametrize("engine", ["processes", "local", "threads"])
def test_an_exception_of_the_problem_ends_all_and_is_named(tmp_path: Path, engine: str) -> None:
    script = f"{FAILING}optimise(Failing(folder), workers=2, engine={engine!r})"
    with running(script, tmp_path) as process:
        errors = process.communicate(timeout=HANG)[1]
        assert process.returncode == 1
        assert "ValueError: no children at depth 30" in errors
        gone(process, tmp_path)


@pytest.mark.turns
def test_an_engine_that_is_never_closed_ends_with_its_program(tmp_path: Path) -> None:
    script = """
engine = Processes(2)
found = enumerate(Heap(3000, seconds=0.0001), engine=engine, coordination=Budget(1))
for pid in engine.pids:
    (folder / str(pid)).touch()
"""
    with running(script, tmp_path) as process:
        errors = process.communicate(timeout=HANG)[1]
        assert (process.returncode, errors) == (0, "")
        assert len(processes(tmp_path)) == 2
        gone(process, tmp_path)


@pytest.mark.slow
def test_a_second_interrupt_is_an_exception_and_leaves_nobody(tmp_path: Path) -> None:
    """A second interrupt arrives while the first waits for a slow node."""
    script = """
class Slow(Endless):
    def children(self, node):
        list(super().children(node))
        time.sleep(30)
        return super().children(node)
import time
optimise(Slow(folder), workers=2, engine='processes', coordination=DepthBounded(3))
"""
    with running(script, tmp_path) as process:
        start_of_search(process, tmp_path, 1)
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            time.sleep(0.5)
        errors = process.communicate(timeout=HANG)[1]
        assert "KeyboardInterrupt" in errors
        gone(process, tmp_path)


def test_a_search_in_a_process_that_ignores_interrupts_is_not_interrupted(tmp_path: Path) -> None:
    """An ignored signal stays ignored, as under nohup."""
    script = """
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
class Ended(Endless):
    def children(self, node):
        return () if folder.with_suffix(".end").exists() else super().children(node)
found = optimise(Ended(folder))
"""
    with running(script + TELL, tmp_path) as process:
        start_of_search(process, tmp_path, 1)
        process.send_signal(signal.SIGINT)
        tmp_path.with_suffix(".end").touch()
        assert process.communicate(timeout=HANG)[0].startswith("optimal ")
