"""The cost of an empty task: 20,000 leaves below a root, each a task."""

import statistics
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor

from measure import Figure, cpu, skipped
from mpi import missing, ranks
from trees import Flat, leaf

from collir.search import DepthBounded, Futures, Local, Processes, SearchEngine, Threads, enumerate

FEW, MANY = 2_000, 20_000
ROUNDS = 3
AIM = 3.0

MakeEngine = Callable[[], tuple[SearchEngine, Callable[[], None]]]


def _processes() -> tuple[SearchEngine, Callable[[], None]]:
    engine = Processes(2)
    return engine, engine.close


def _threads() -> tuple[SearchEngine, Callable[[], None]]:
    engine = Threads(2)
    return engine, engine.close


def _local() -> tuple[SearchEngine, Callable[[], None]]:
    return Local(2), lambda: None


def _passed() -> tuple[SearchEngine, Callable[[], None]]:
    executor = ProcessPoolExecutor(2)
    return Futures(executor), executor.shutdown


ENGINES: dict[str, MakeEngine] = {
    "processes": _processes,
    "executor": _passed,
    "threads": _threads,
    "local": _local,
}


def search(leaves: int, engine: SearchEngine) -> None:
    """Count the leaves of a flat tree, a task each."""
    outcome = enumerate(Flat(leaves), engine=engine, coordination=DepthBounded(1))
    assert (outcome.total, outcome.statistics.tasks) == (leaves, leaves + 1)


def figures() -> Iterator[Figure]:
    """Yield the CPU time per task, relative to the executors of Python and mpi4py.

    What starting and ending takes is left out, as the difference between many tasks and few. Peers
    take turns; the median of the rounds.
    """
    peers: dict[str, Callable[[int], None]] = {"pool": _pool}
    for name, make in ENGINES.items():
        peers[name] = lambda leaves, make=make: _searched(leaves, make)
    rounds = [
        {
            name: (cpu(lambda w=work: w(MANY)) - cpu(lambda w=work: w(FEW)))
            for name, work in peers.items()
        }
        for _ in range(ROUNDS)
    ]
    per_task = {name: statistics.median(r[name] for r in rounds) / (MANY - FEW) for name in peers}
    for name in ENGINES:
        yield _figure(name, per_task[name], "ProcessPoolExecutor", per_task["pool"])
    if why := missing():
        yield skipped("tiny.mpi", why)
        return
    times: dict[str, list[float]] = {"engine": [], "futures": []}
    for _ in range(ROUNDS):
        for what, seconds in times.items():
            many, few = (ranks(3, f"tiny-{what}", str(leaves)) for leaves in (MANY, FEW))
            seconds.append((many["cpu"] - few["cpu"]) / (MANY - FEW))
    engine, futures = map(statistics.median, times.values())
    yield _figure("mpi", engine, "MPIPoolExecutor", futures)


def _figure(name: str, seconds: float, peer: str, peer_seconds: float) -> Figure:
    times = peer_seconds / seconds
    note = f"{seconds * 1e6:.1f} us of CPU a task against {peer_seconds * 1e6:.1f} us of {peer}"
    return Figure(f"tiny.{name}", f"{times:.1f}x better", f">= {AIM:g}x", times >= AIM, note)


def _searched(leaves: int, make: MakeEngine) -> None:
    engine, close = make()
    try:
        search(leaves, engine)
    finally:
        close()


def _pool(leaves: int) -> None:
    with ProcessPoolExecutor(2) as executor:
        futures = [executor.submit(leaf, node) for node in range(leaves)]
        assert sum(future.result() or 0 for future in futures) == leaves
