"""Nodes visited by two workers against one worker: the cost of stale bounds."""

from collections.abc import Iterator
from typing import Any

from instances import narrow, plane
from measure import Figure

from collir.problems import graphs
from collir.problems.clique import MaxClique
from collir.search import Budget, Coordination, DepthBounded, Problem, StackStealing, optimise
from collir.search.engines.processes import Processes

AIM = 0.01
ROUNDS = 3

COORDINATIONS: dict[str, Coordination] = {
    "stack-stealing": StackStealing(),
    "budget": Budget(),
    "depth-bounded": DepthBounded(2),
}


def problems() -> dict[str, Problem[Any]]:
    """Return searches that take some tenths of a second or more."""
    cliques = (
        graphs.hamming(8, 4),
        graphs.random(200, 0.7, 1),
        graphs.random(150, 0.8, 2),
        graphs.random(300, 0.5, 3),
    )
    return {
        **{graph.name: MaxClique(graph) for graph in cliques},
        "knapsack20": narrow(20, 1),
        "knapsack24": narrow(24, 2),
        "plane18-0": plane(18, 0),
        "plane20-31": plane(20, 31),
    }


def figures() -> Iterator[Figure]:
    """Yield for each coordination the growth of the searches, in the mean and each.

    A search is run a few times and the median counts. One that shrinks, because a worker comes to a
    good solution sooner, counts as zero growth: luck must not hide waste.
    """
    cases = problems()
    alone = {name: optimise(problem) for name, problem in cases.items()}
    with Processes(2) as engine:
        for what, coordination in COORDINATIONS.items():
            nodes: dict[str, int] = {}
            for name, problem in cases.items():
                runs: list[int] = []
                for _ in range(ROUNDS):
                    outcome = optimise(problem, engine=engine, coordination=coordination)
                    assert outcome.bound == alone[name].bound
                    runs.append(outcome.statistics.nodes)
                nodes[name] = sorted(runs)[ROUNDS // 2]
            grown = {
                name: nodes[name] / outcome.statistics.nodes - 1 for name, outcome in alone.items()
            }
            mean = sum(max(0.0, growth) for growth in grown.values()) / len(grown)
            listed = ", ".join(f"{name} {growth:+.2%}" for name, growth in grown.items())
            note = f"2 processes against 1, mean of {len(cases)} searches; {listed}"
            yield Figure(f"inflation.{what}", f"{mean:.2%}", f"<= {AIM:.0%}", mean <= AIM, note)
