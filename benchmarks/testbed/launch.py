"""Compile and run emitted programs on the ranks of a network, and read their reports."""

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from library import NETWORK, SETTINGS
from network import FOLDER, LAUNCHER

from collir.tools.mpi_run import compile_c, find

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Measured:
    """The measurement of a function.

    Attributes:
        seconds: Times of the slowest rank, for each run except the first.
        sent: For every level, the bytes through its busiest port in the busier direction.
        total: For every level, the bytes through all its ports in both directions.
    """

    seconds: list[float]
    sent: list[int]
    total: list[int]


def run(
    code: str,
    functions: int,
    ranks: int,
    levels: int,
    setting: str | Mapping[str, str],
    timeout: float,
) -> list[Measured]:
    """Compile and run code of ``timer`` under settings of MPICH, or those of a name.

    Raises:
        RuntimeError: The code fails, or functions that should give the same result do not.
        TimeoutExpired: The code takes longer than ``timeout`` seconds.
    """
    source, program, report = (FOLDER / name for name in ("program.c", "program", "report"))
    source.write_text(code, encoding="utf-8")
    compile_c(source, program, ("-O1",))
    settings = SETTINGS[setting] if isinstance(setting, str) else setting
    done = start([str(program), str(report)], ranks, settings, timeout)
    lines = report.read_text().splitlines() if report.exists() else []
    if done.returncode or lines[-1:] != ["right"]:
        print(done.stdout, done.stderr, file=sys.stderr)
        raise RuntimeError(f"the programs failed: {lines[-1:] or done.stderr}")
    return _read(lines, functions, levels)


def start(
    command: Sequence[str], ranks: int, settings: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run a command on the ranks of the network under settings of MPICH, and return how it ended.

    Raises:
        TimeoutExpired: It takes longer than ``timeout`` seconds.
    """
    launcher = [
        *(find("mpiexec"), "-localhost", LAUNCHER, "-launcher", "ssh"),
        *("-launcher-exec", str(HERE / "enter-namespace.sh")),
        *("-hosts", ",".join(f"r{rank}" for rank in range(ranks)), "-ppn", "1", "-n", str(ranks)),
    ]
    for name, value in ({**NETWORK, **settings, "LD_PRELOAD": str(_patience())}).items():
        launcher += ["-genv", name, value]
    return subprocess.run(
        [*launcher, *command],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def _patience() -> Path:
    """Return the library whose sched_yield sleeps."""
    library = FOLDER / "patient_yield.so"
    if not library.exists():
        flags = ["-O2", "-shared", "-fPIC"]
        subprocess.run(
            ["cc", *flags, str(HERE / "patient_yield.c"), "-o", str(library)], check=True
        )
    return library


def _read(lines: Sequence[str], functions: int, levels: int) -> list[Measured]:
    """Read the lines of a report.

    They are ``time FUNCTION RUN SECONDS`` and ``link FUNCTION <|> outLEVEL-CHILD RECEIVED SENT``.
    """
    seconds: list[list[float]] = [[] for _ in range(functions)]
    counts: list[dict[tuple[str, int], int]] = [{} for _ in range(functions)]
    for what, function, when, *rest in (line.split() for line in lines[:-1]):
        number = int(function)
        if what == "time" and int(when) >= 0:
            seconds[number].append(float(rest[0]))
        elif what == "link":
            for direction, value in enumerate(map(int, rest[1:])):
                key = (rest[0], direction)
                sign = 1 if when == ">" else -1
                counts[number][key] = counts[number].get(key, 0) + sign * value
    return [
        Measured(times, _on_levels(count, levels, max), _on_levels(count, levels, sum))
        for times, count in zip(seconds, counts, strict=True)
    ]


def _on_levels(
    counts: Mapping[tuple[str, int], int], levels: int, together: Callable[[list[int]], int]
) -> list[int]:
    return [
        together([value for (name, _), value in counts.items() if name.startswith(f"out{level}-")])
        for level in range(levels)
    ]
