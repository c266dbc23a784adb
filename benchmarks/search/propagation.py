"""The time that a busy worker goes on after a solution has made its work needless."""

import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from measure import Figure, skipped
from mpi import missing, ranks
from trees import Race, stamps

from collir.search import DepthBounded, Processes, optimise

ROUNDS = 21


def figures() -> Iterator[Figure]:
    """Yield the wall clock from the solution's objective to the busy worker's last bound.

    In between, the finder reports the solution and publishes its value. The median of some rounds;
    those are left out in which the busy worker had no core at the time, and so saw nothing.
    """
    with tempfile.TemporaryDirectory(prefix="race-") as folder:
        file = str(Path(folder) / "stamps")
        Path(file).write_bytes(bytes(16))
        delays: list[float] = []
        with Processes(2) as engine:
            for _ in range(ROUNDS):
                optimise(Race(file), engine=engine, coordination=DepthBounded(1))
                begin, end = stamps(file)
                delays.append(float(end - begin))
        yield _figure("processes", delays)
        if why := missing():
            yield skipped("propagation.mpi", why)
        else:
            yield _figure("mpi", ranks(3, "race", file, str(ROUNDS))["seconds"])


def _figure(name: str, seconds: list[float]) -> Figure:
    seen = [delay for delay in seconds if delay > 0]
    if not seen:
        return skipped(f"propagation.{name}", "the busy worker never had a core when it mattered")
    low, middle, high = min(seen), statistics.median(seen), max(seen)
    note = f"median of {len(seen)} of {len(seconds)}; {low * 1e6:.0f} us to {high * 1e6:.0f} us"
    return Figure(f"propagation.{name}", f"{middle * 1e6:.0f} us", note=note)
