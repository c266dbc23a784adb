"""Measurements of benchmarks: CPU seconds, peers in turns, best or median of several runs."""

import gc
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """A line that a benchmark prints."""

    name: str
    value: str
    aim: str = ""
    met: bool | None = None
    note: str = ""

    def __str__(self) -> str:
        aim = ""
        if self.aim:
            aim = f" (aim {self.aim}{'' if self.met is None or self.met else ': MISSED'})"
        return f"{self.name}: {self.value}{aim}{'; ' if self.note else ''}{self.note}"


def ratio(name: str, value: float, aim: float, note: str = "", unit: str = "x") -> Figure:
    """Return a figure that should be ``aim`` or less."""
    return Figure(name, f"{value:.2f}{unit}", f"<= {aim:g}{unit}", value <= aim, note)


def skipped(name: str, why: str) -> Figure:
    """Return a figure that cannot be measured here."""
    return Figure(name, "skipped", note=why)


def used() -> float:
    """Return the CPU seconds, user and system, of this process and its ended children."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def own() -> float:
    """Return the CPU seconds of all threads of this process."""
    return time.process_time()


def cpu(work: Callable[[], object], clock: Callable[[], float] = used) -> float:
    """Call ``work`` and return its CPU seconds."""
    gc.collect()
    start = clock()
    work()
    return clock() - start


def best(
    works: Sequence[Callable[[], object]], rounds: int, clock: Callable[[], float] = used
) -> list[float]:
    """Call several works in turns; return the least CPU seconds of each."""
    runs = [[cpu(work, clock) for work in works] for _ in range(rounds)]
    return [min(times) for times in zip(*runs, strict=True)]


def slope(work: Callable[[int], object], few: int, many: int, rounds: int = 3) -> float:
    """Return the CPU seconds of one task: starting and ending, which ``few`` tasks take too, are
    left out.

    The median of several rounds.
    """
    runs = [
        (cpu(lambda: work(many)) - cpu(lambda: work(few))) / (many - few) for _ in range(rounds)
    ]
    return statistics.median(runs)


def text(seconds: float) -> str:
    """Format seconds for people."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} us"
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{seconds * 1e3:.1f} ms"
