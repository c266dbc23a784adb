"""Two workers with the compiled search of subtrees, against two threads of OpenMP in C++."""

import subprocess
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from measure import Figure, own, ratio, skipped, text
from sequential import compiled, written

from collir.problems import graphs
from collir.problems.clique import MaxClique
from collir.problems.graphs import UndirectedGraph
from collir.search import Threads, optimise

AIM = 1.5
ROUNDS = 5


def figures() -> Iterator[Figure]:
    """Yield the greatest clique: CPU seconds of both together, the least of a few runs."""
    if find_spec("numba") is None:
        yield skipped("parallel.clique", "numba is not installed")
        return
    with tempfile.TemporaryDirectory(prefix="clique-") as folder:
        program = compiled(Path(folder))
        if program is None:
            yield skipped("parallel.clique", "there is no g++")
            return
        for graph in (graphs.random(200, 0.8, 1), graphs.random(500, 0.5, 1)):
            yield _against(program, graph)


def _against(program: Path, graph: UndirectedGraph) -> Figure:
    problem, engine = MaxClique(graph, kernel=True), Threads(2)
    graph_text = written(problem)
    runs: list[tuple[float, float, int]] = []
    peers: list[tuple[float, float, int]] = []
    for _ in range(ROUNDS):
        begin, before = time.perf_counter(), own()
        outcome = optimise(problem, engine=engine)
        seconds = own() - before
        assert outcome.best is not None
        runs.append((seconds, time.perf_counter() - begin, outcome.statistics.nodes))
        answer = subprocess.run(
            [str(program), "1", "2"], input=graph_text, capture_output=True, text=True, check=True
        )
        size, visited, used, wall = answer.stdout.split()
        assert int(size) == outcome.best.value
        peers.append((float(used), float(wall), int(visited)))
    run, peer = min(runs), min(peers)
    note = (
        f"{text(run[0])} and {run[2]:,} nodes against {text(peer[0])} and {peer[2]:,} in C++; "
        f"{text(min(wall for _, wall, _ in runs))} against "
        f"{text(min(wall for _, wall, _ in peers))} of wall clock time"
    )
    return ratio(f"parallel.clique.{graph.name}", run[0] / peer[0], AIM, note)
