"""The CPU seconds of two workers together, including their start and end, against one worker."""

from collections.abc import Callable, Iterator
from multiprocessing import get_context
from typing import Any

from measure import Figure, cpu, ratio

from collir.problems import graphs
from collir.problems.clique import MaxClique
from collir.problems.uts import UTS
from collir.search import (
    Budget,
    Coordination,
    DepthBounded,
    Problem,
    StackStealing,
    enumerate,
    optimise,
)
from collir.search.running.results import SearchOutcome

AIM = 1.2
ROUNDS = 3
SHORTEST = 0.005
TASKS = 100

Search = Callable[..., SearchOutcome]


def figures() -> Iterator[Figure]:
    """Compare searches of 100 tasks or more, of 5 ms or more in the mean; best of a few runs.

    The last figure says what the machine itself takes for working on both cores: two searches that
    know nothing of each other, against one.
    """
    tree, graph = UTS(depth=9, b0=4, seed=19), graphs.random(200, 0.7, 1)
    cases: list[tuple[str, Search, Problem[Any], Coordination]] = [
        ("uts.depth-bounded", enumerate, tree, DepthBounded(3)),
        ("uts.budget", enumerate, tree, Budget()),
        ("uts.stack-stealing", enumerate, tree, StackStealing()),
        (f"{graph.name}.depth-bounded", optimise, MaxClique(graph), DepthBounded(1)),
        (f"{graph.name}.budget", optimise, MaxClique(graph), Budget()),
    ]
    for name, search, problem, coordination in cases:
        yield _figure(name, search, problem, coordination)
    alone, both = _times(lambda: enumerate(tree), lambda: _side_by_side(tree))
    yield Figure(
        "total.two-strangers", f"{both / 2 / alone:.2f}x", note="two searches at once against one"
    )


def _times(first: Callable[[], object], second: Callable[[], object]) -> tuple[float, float]:
    runs = [(cpu(first), cpu(second)) for _ in range(ROUNDS)]
    return min(run[0] for run in runs), min(run[1] for run in runs)


def _figure(name: str, search: Search, problem: Problem[Any], coordination: Coordination) -> Figure:
    tasks: list[int] = []

    def together() -> None:
        outcome = search(problem, workers=2, engine="processes", coordination=coordination)
        tasks.append(outcome.statistics.tasks)

    alone, both = _times(lambda: search(problem), together)
    count = sorted(tasks)[ROUNDS // 2]
    note = f"{both:.2f} s against {alone:.2f} s; {count} tasks of {alone / count * 1e3:.1f} ms"
    if isinstance(coordination, DepthBounded):
        assert count >= TASKS and alone / count >= SHORTEST, note
    return ratio(f"total.{name}", both / alone, AIM, note)


def _side_by_side(problem: Problem[Any]) -> None:
    context = get_context("fork")
    processes = [context.Process(target=enumerate, args=(problem,)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
