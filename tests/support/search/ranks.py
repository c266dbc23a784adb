"""The tests of searches on MPI that every rank runs: ``mpiexec -n N python -m mpi4py this``.

The arguments are the name of a test and a folder that all ranks share. A failure is an exception,
which ends the job.
"""

import os
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, Literal

from mpi4py import MPI
from support.search.plain_search import plain_decide, plain_enumerate, plain_optimise
from support.search.problems import BoundedTree, Endless, Heap, seen_in_time
from support.search.slow import LASTING, Slow

from collir.problems.knapsack import Knapsack
from collir.problems.queens import Queens
from collir.search import (
    Budget,
    Coordination,
    DepthBounded,
    NodesByDepth,
    Ordered,
    SearchError,
    Sequential,
    StackStealing,
    decide,
    enumerate,
    k_best,
    optimise,
)
from collir.search.core.problem import Number, Problem
from collir.search.engines.mpi import Mpi

WORLD = MPI.COMM_WORLD

COORDINATIONS: list[Coordination] = [
    Sequential(),
    *(DepthBounded(depth) for depth in (0, 2, 50)),
    StackStealing(),
    StackStealing(chunked=False),
    *(Budget(backtracks) for backtracks in (1, 3, None)),
    *(Ordered(depth) for depth in (0, 2, 50)),
]


HEAVY = [1, *range(4, 8), *range(16, 32), *range(64, 128), *range(256, 300)]
"""The numbers of the nodes of ``Heavy``."""


class Heavy(Problem[tuple[int, bytes]]):
    """A tree whose nodes are a megabyte each."""

    def root(self) -> tuple[int, bytes]:
        return (1, bytes(2**20))

    def children(self, node: tuple[int, bytes]) -> Iterator[tuple[int, bytes]]:
        for i in range(4):
            if (number := 4 * node[0] + i) < 300:
                yield number, number.to_bytes(2, "big") * 2**19

    def objective(self, node: tuple[int, bytes]) -> int:
        return node[0] % 101


class Faulty(Heap):
    """A tree that raises an exception at one node."""

    at = 777

    def children(self, node: int) -> range:
        if node == self.at:
            raise ValueError(f"no children of {node}")
        return range(2 * node + 1, min(2 * node + 3, self.size))

    def objective(self, node: int) -> int:
        return 1


class Rootless(Heap):
    """A tree that raises an exception at its root."""

    def root(self) -> int:
        raise ValueError("no root")


def equal(actual: object, expected: object, *what: object) -> None:
    """Check that two values are equal; ``what`` is printed if they are not."""
    if actual != expected:
        raise AssertionError(f"rank {WORLD.rank}: {actual} is not {expected}: {what}")


def error_of(problem: Problem[Any], engine: Mpi, **options: Any) -> str:
    """Return the message of a search's error."""
    try:
        optimise(problem, engine=engine, **options)
    except SearchError as error:
        return str(error)
    except ValueError as error:  # rank 0 raises the original error
        equal(WORLD.rank, 0)
        return str(error)
    raise AssertionError("no error")


def tree(rng: Random, size: int) -> BoundedTree:
    """Return a random tree."""
    parents = [rng.randint(max(0, i - rng.choice((1, 4, 99))), i) for i in range(size - 1)]
    values: list[Number | None] = [rng.choice((None, rng.randint(-9, 9))) for _ in range(size)]
    slack = [rng.choice((0, 0, 1, 3, None)) for _ in range(size)]
    return BoundedTree(parents, values, rng.choice(("min", "max")), slack, rng.random() < 0.5)


def agree(problem: Problem[Any], engine: Mpi, coordination: Coordination, **options: Any) -> None:
    """Check that searches of all kinds give the results of plain searches."""
    arguments: dict[str, Any] = {"engine": engine, "coordination": coordination, **options}
    what = problem, coordination, options
    plain = plain_optimise(problem)
    best = optimise(problem, **arguments)
    equal(best.best and best.best.value, plain.value, *what)
    equal(best.status, "optimal" if best.best else "infeasible", *what)
    equal(best.statistics.workers, engine.workers)
    visited = plain_enumerate(problem)
    values = sorted(visited.values.elements(), reverse=problem.sense == "max")
    if not getattr(problem, "dominance", False):
        several = k_best(problem, 3, **arguments)
        equal([solution.value for solution in several.solutions], values[:3], *what)
    for target in (values[0], values[-1]) if values else (0,):
        solution = decide(problem, target=target, **arguments).solution
        first = plain_decide(problem, target)
        equal(solution is None, first.value is None, target, *what)
        if isinstance(coordination, Ordered) and solution is not None and not options:
            equal(solution.node, first.node, target, *what)
    if isinstance(coordination, Ordered) and best.best is not None and not options:
        equal(best.best.node, plain.node, *what)
    if "order" not in options:
        counts = enumerate(problem, NodesByDepth(), **arguments)
        equal(counts.total, [visited.by_depth[i] for i in range(len(counts.total))], *what)
        equal(counts.statistics.nodes, visited.nodes, *what)


def coordinations(engine: Mpi) -> None:
    """Test every coordination on random problems, some small or of a single node."""
    rng = Random(5)
    for coordination in COORDINATIONS:
        for size in (1, 2, 40, 120):
            agree(tree(rng, size), engine, coordination)
        agree(tree(rng, 60), engine, coordination, slice=1)
        agree(tree(rng, 60), engine, coordination, order="best-first")
        weights = [rng.randint(3, 20) for _ in range(9)]
        items = [weight + rng.randint(0, 3) for weight in weights], weights, sum(weights) // 2
        agree(Knapsack(*items, dominance=True), engine, coordination, order="best-first")
        agree(Knapsack(*items, dominance=True), engine, coordination, profile=True)


def sequences(engine: Mpi) -> None:
    """Test that bounds which arrive while a search stops do not prune the next search."""
    rng = Random(9)
    for _ in range(25):
        problem = tree(rng, 100)
        values = [value for value in problem.values if value is not None]
        best = min(values) if problem.sense == "min" else max(values)
        arguments: dict[str, Any] = {"engine": engine, "coordination": Budget(1), "slice": 1}
        equal(decide(problem, target=best, **arguments).status, "feasible")
        optimise(problem, **arguments, node_limit=40)
        equal(sum(enumerate(problem, NodesByDepth(), **arguments).total), 100, problem)
        outcome = optimise(tree(rng, 1), engine=engine)
        equal(outcome.statistics.nodes + outcome.statistics.pruned, 1)


def heavy(engine: Mpi) -> None:
    """Test messages of megabytes in both directions at once, and a result of megabytes."""
    for coordination in (DepthBounded(3), Budget(1), StackStealing(), Ordered(2)):
        solutions = k_best(Heavy(), 9, engine=engine, coordination=coordination).solutions
        values = [number % 101 for number in HEAVY]
        equal([solution.value for solution in solutions], sorted(values, reverse=True)[:9])
        for number, data in (solution.node for solution in solutions):
            equal(data[:2], number.to_bytes(2, "big"))


def errors(engine: Mpi, folder: Path) -> None:
    """Test that an error on one rank is raised on all, and that the next search works."""
    problem = Queens(6)
    checks: list[tuple[str, Problem[Any], dict[str, Any]]] = [
        ("no children of 777", Faulty(3000), {"coordination": Budget(1)}),
        ("no root", Rootless(10), {}),
        ("cannot read", problem, {"resume": folder / "none"}),
        ("there is no folder", problem, {"checkpoint": folder / "none" / "here"}),
        ("the order is one of", problem, {"order": "worst-first"}),
    ]
    if engine.workers > 1:
        lasting = Heap(10)
        lasting.seconds = lambda: None  # pyright: ignore[reportAttributeAccessIssue]
        checks.append(("cannot be sent to other processes", lasting, {}))
    for text, problem, options in checks:
        said = error_of(problem, engine, **options)
        if text not in said:
            raise AssertionError(f"{said} does not say {text}")
        equal(enumerate(Queens(6), engine=engine, coordination=Budget(2)).total, 4)


def limits(engine: Mpi, folder: Path) -> None:
    """Test that a search which ends early gives a bound and can be resumed."""
    outcome = seen_in_time(engine=engine)
    equal(
        (outcome.status, outcome.statistics.reason, outcome.bound),
        ("feasible", "time limit", 20000),
    )
    outcome = optimise(Endless(padding=1000), engine=engine, node_limit=3000)
    equal((outcome.status, outcome.statistics.reason), ("feasible", "node limit"))
    if outcome.statistics.nodes > 3000 * (engine.workers + 1):
        raise AssertionError(f"{outcome.statistics.nodes} nodes")
    outcome = optimise(Endless(), engine=engine, memory_limit=1)
    equal(outcome.statistics.reason, "memory limit")
    equal(decide(Endless(), target=1, engine=engine).status, "feasible")
    problem, path = Heap(9000), folder / f"limits-{WORLD.size}"
    for coordination in (Budget(3), DepthBounded(4), Ordered(3)):
        arguments: dict[str, Any] = {"engine": engine, "coordination": coordination}
        outcome = optimise(problem, **arguments, node_limit=2500, checkpoint=path)
        equal(outcome.statistics.reason, "node limit")
        if outcome.bound is None or outcome.bound < max(problem.most()):
            raise AssertionError(f"a bound of {outcome.bound}")
        outcome = optimise(problem, **arguments, resume=path)
        equal((outcome.status, outcome.statistics.nodes), ("optimal", 9000))
        equal(outcome.best and outcome.best.value, max(problem.most()))


def halves() -> None:
    """Test two searches at once on the two halves of the job, and several engines in turn."""
    half = WORLD.Split(WORLD.rank % 2)
    with Mpi(half) as engine:
        total = enumerate(Queens(5 + WORLD.rank % 2), engine=engine, coordination=Budget(3)).total
        equal(total, (10, 4)[WORLD.rank % 2])
    half.Free()
    for size in range(4, 7):
        equal(enumerate(Queens(size), engine="mpi").total, {4: 2, 5: 10, 6: 4}[size])


def lasting(folder: Path, engine: Mpi | Literal["mpi"] = "mpi") -> None:
    """Run a search that writes checkpoints, during which a rank is killed from outside."""
    Slow.pause = 5e-3  # most ranks are killed long before its end
    (folder / f"pid-{WORLD.rank}").write_text(str(os.getpid()), encoding="utf-8")
    path = folder / "checkpoint"
    enumerate(LASTING, NodesByDepth(), engine=engine, checkpoint=path, checkpoint_every=0.1)


def losing(folder: Path, patience: float, process: int | None = None) -> None:
    """Run searches that lose rank 2: it falls silent as on another machine, or its process ends.

    Args:
        patience: seconds of silence after which a rank counts as lost.
        process: the process that all ranks take for that of rank 2. (If rank 2 itself were killed,
            most launchers would kill all other ranks too.)
    """
    sys.stderr = (folder / f"errors-{WORLD.rank}").open("w", encoding="utf-8", buffering=1)
    with Mpi(patience=patience) as engine:
        link = engine._link  # pyright: ignore[reportPrivateUsage]
        assert link is not None
        if process is None:
            link.pids.clear()
            link.listen()
        else:
            link.pids[2] = process
        while True:
            lasting(folder, engine)


def interrupted(folder: Path) -> None:
    """Run a search that the user interrupts; ranks that are at work leave a file."""
    outcome = optimise(Endless(folder), engine="mpi")
    equal((outcome.status, outcome.statistics.reason), ("feasible", "interrupted"))
    time.sleep(0.1)
    WORLD.Barrier()


def main(what: str, folder: Path) -> None:
    """Run the named test, or all tests."""
    if what == "lasting":
        lasting(folder)
    elif what == "losing":
        losing(folder, float(sys.argv[3]), *map(int, sys.argv[4:]))
    elif what == "interrupted":
        interrupted(folder)
    else:
        with Mpi() as engine:
            times = [time.monotonic()]
            for part in (coordinations, sequences, heavy):
                part(engine)
                times.append(time.monotonic())
            for part in (errors, limits):
                part(engine, folder)
                times.append(time.monotonic())
        halves()
        times.append(time.monotonic())
        spent = [f"{b - a:.2f}" for a, b in pairwise(times)]
        (folder / f"done-{WORLD.rank}").write_text(" ".join(spent), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
