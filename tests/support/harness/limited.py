"""Runs many command lines in processes with limits of time and memory, and judges each of them.

A command may do one of two things with any input: its work, or say what is wrong with it. All else
is a fault: a traceback, an internal error, no message, output beside an error, a file that was
touched by a run that failed, more time or memory than the limits, or the end of the process.
"""

import io
import json
import os
import re
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import NoReturn

from collir.tools import collir, collopt, collrun

TOOLS: dict[str, Callable[[Sequence[str]], int]] = {
    "collir": collir.main,
    "collopt": collopt.main,
    "collrun": collrun.main,
}

SECONDS = 20
"""The most CPU time of a run."""

ASLEEP = 60
"""The seconds in which a process that works has had a core, or waits for one."""

BYTES = 2 * 2**30
"""The most memory of a run beside what the process had before."""


@dataclass(frozen=True)
class Case:
    """A command line and the files it may read, in a folder of its own.

    Attributes:
        kind: what was done to the input, for the table.
        words: the command; a word may name a file of ``files``, or ``out``.
        files: contents by name; None is a folder.
    """

    kind: str
    words: tuple[str, ...]
    files: tuple[tuple[str, bytes | None], ...] = ()
    stdin: bytes = b""


@dataclass(frozen=True)
class Verdict:
    """What a run did.

    Attributes:
        fault: the kind of its fault; empty if it has none.
        megabytes: the most memory of the process.
    """

    status: int
    out: str
    err: str
    fault: str = ""
    seconds: float = 0.0
    megabytes: float = 0.0
    trace: tuple[str, ...] = field(default=())


class _TooLong(BaseException):
    """The end of a run that takes too long."""


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    raise _TooLong


def _prepare(folder: Path, case: Case) -> None:
    """Fill an empty folder with the files of a case."""
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    for name, data in case.files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir() if data is None else path.write_bytes(data)
    (folder / "out").write_text("old", encoding="utf-8")


def _peak() -> float:
    """Return the most megabytes this process had since ``_forget_peak``."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")


def run(case: Case, folder: Path) -> Verdict:
    """Return the verdict of a case, which runs in this process and in a folder that is emptied."""
    _prepare(folder, case)
    os.chdir(folder)
    tool, *words = case.words
    out, err = io.StringIO(), io.StringIO()
    old, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(case.stdin), encoding="utf-8")
    trace: list[str] = []
    fault = ""
    _forget_peak()
    start = time.process_time()
    signal.signal(signal.SIGPROF, _stop)
    try:
        try:
            # Python swallows what is raised in a finalizer or a callback of the collector: raise it
            # again.
            signal.setitimer(signal.ITIMER_PROF, SECONDS, 1)
            with redirect_stdout(out), redirect_stderr(err):
                status = TOOLS[tool]([*words, "--debug"])
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    except SystemExit as stop:  # --help, --version
        status = stop.code if isinstance(stop.code, int) else 1
    except BaseException as error:
        signal.setitimer(signal.ITIMER_PROF, 0)
        fault = "hang" if isinstance(error, _TooLong) else f"escaped {type(error).__name__}"
        status = -1
        trace = [
            f"{f.filename}:{f.lineno} {f.name}" for f in traceback.extract_tb(error.__traceback__)
        ]
    finally:
        sys.stdin = old
    seconds = time.process_time() - start
    verdict = Verdict(status, out.getvalue(), err.getvalue(), fault, seconds, _peak(), tuple(trace))
    return verdict if fault else replace(verdict, fault=judge(case, verdict, folder))


def judge(case: Case, verdict: Verdict, folder: Path) -> str:
    """Return the kind of the fault of a run that has ended; empty if there is none."""
    status, out, err = verdict.status, verdict.out, verdict.err
    if status not in (0, 1, 2):
        last = re.findall(r"internal error: (\w+)", err)
        return f"internal {last[-1]}" if last else f"status {status}"
    if "Traceback" in err and "nested too deeply" not in err and status != 1:
        return "traceback"
    if "WRONG" in out and case.words[0] == "collrun":
        return "wrong result"
    if status and "error: " not in err:
        return "no message"
    if status == 0 and "error: " in err:
        return "error with status 0"
    if status == 2 and (err.count("\n") != 1 or not re.match(r"coll\w+: error: ", err)):
        return "usage in several lines"
    in_parts = "--split-input-file" in case.words  # other parts may be right
    if status and out and case.words[0] == "collopt" and not in_parts:
        return "output beside an error"
    if status and (folder / "out").read_text(encoding="utf-8", errors="replace") != "old":
        return "file touched"
    known = {name.partition("/")[0] for name, _ in case.files} | {"out"}
    extra = {path.name for path in folder.iterdir()} - known
    if extra and status:
        return f"file left: {sorted(extra)[0]}"
    if found := re.search(_PYTHON, err):
        return f"python in message: {found[0]}"
    return ""


_PYTHON = re.compile(
    r"<class '|<\w+(\.\w+)* object at|object has no attribute|NoneType|list index out|"
    r"unsupported operand|KeyError|\[Errno|unhashable|missing \d+ required|DiagnosticError"
)


def _work(cases: Sequence[tuple[int, Case]], folder: Path, pipe: int) -> NoReturn:
    """Run cases one after the other and write their verdicts to a pipe; the process ends then."""
    os.setpgid(0, 0)
    used = 0
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmData:"):
            used = int(line.split()[1]) * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (used + BYTES, used + BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    with os.fdopen(pipe, "w", encoding="utf-8") as stream:
        for index, case in cases:
            cpu = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
            resource.setrlimit(resource.RLIMIT_CPU, (int(cpu + 2 * SECONDS) + 10, most))
            stream.write(json.dumps([index, None]) + "\n")
            stream.flush()
            verdict = run(case, folder)
            stream.write(json.dumps([index, asdict(verdict)], default=str) + "\n")
            stream.flush()
    os._exit(0)


def run_all(cases: Iterable[Case], folder: Path, batch: int = 40) -> Iterable[tuple[Case, Verdict]]:
    """Yield the verdicts of cases, which run in processes of their own, some in each."""
    left = list(enumerate(cases))
    everything = dict(left)
    while left:
        verdicts = _batch(left[:batch], folder)
        for index, verdict in verdicts:
            yield everything[index], verdict
        left = left[len(verdicts) :]


def _batch(cases: Sequence[tuple[int, Case]], folder: Path) -> list[tuple[int, Verdict]]:
    """Return the verdicts of the first cases, up to one that ended the process."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            _work(cases, folder, writer)
        finally:
            os._exit(1)
    os.close(writer)
    verdicts: list[tuple[int, Verdict]] = []
    running = cases[0][0]
    asleep = False
    with os.fdopen(reader, encoding="utf-8") as stream:
        while not asleep:
            before = _cpu_time(child)
            if not select.select([stream], [], [], ASLEEP)[0]:
                asleep = _sleeps(child) and _cpu_time(child) == before
                continue
            line = stream.readline()
            if not line:
                break
            index, verdict = json.loads(line)
            running = index
            if verdict is not None:
                verdicts.append((index, Verdict(**verdict)))
    if asleep:
        os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if len(verdicts) < len(cases):
        verdicts.append((running, Verdict(-1, "", "", _end(status, asleep))))
    return verdicts


def _stat(process: int) -> list[str]:
    """Return the fields of a process from its state on."""
    return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()


def _cpu_time(process: int) -> int:
    """Return the CPU time that a process has had, in ticks of the system's clock."""
    return sum(map(int, _stat(process)[11:13]))


def _sleeps(process: int) -> bool:
    """Return whether a process waits for something else than a core or a disk."""
    return _stat(process)[0] == "S"


def _end(status: int, asleep: bool) -> str:
    """Return the fault of a process that has ended before its cases were through."""
    if asleep or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU):
        return "hang"
    how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit {status >> 8}"
    return f"process ended: {how}"
