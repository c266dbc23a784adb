"""One worker of the generic search against the same search written by hand."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import hand
from instances import narrow
from measure import Figure, best, own, ratio, skipped, text

from collir.problems import graphs
from collir.problems.clique import MaxClique
from collir.problems.graphs import UndirectedGraph
from collir.search import optimise

PYTHON_AIM = 1.15
KERNEL_AIM = 1.2


def python() -> Iterator[Figure]:
    """Compare with Python by hand, which visits the same nodes in the same order."""
    cliques = [
        (graphs.keller(4), 15),
        (graphs.hamming(8, 4), 9),
        (graphs.random(200, 0.7, 1), 5),
    ]
    for graph, rounds in cliques:
        problem = MaxClique(graph)
        by_hand = hand.max_clique(problem)
        outcome = optimise(problem)
        assert outcome.best is not None
        assert (outcome.best.value, outcome.statistics.nodes) == (by_hand[0], by_hand[2])
        assert hand.max_clique_with_incumbent(problem) == by_hand
        ours, theirs, sharper = best(
            [
                lambda p=problem: optimise(p),
                lambda p=problem: hand.max_clique(p),
                lambda p=problem: hand.max_clique_with_incumbent(p),
            ],
            rounds,
            own,
        )
        note = (
            f"{text(ours)} against {text(theirs)} by hand, {by_hand[2]:,} nodes each; "
            f"{ours / sharper:.2f}x of one that colours by what it has found"
        )
        yield ratio(f"sequential.python.{graph.name}", ours / theirs, PYTHON_AIM, note)
    for items, seed in ((20, 1), (24, 2)):
        knapsack = narrow(items, seed)
        by_hand = hand.knapsack(knapsack)
        outcome = optimise(knapsack)
        assert outcome.best is not None
        assert (outcome.best.value, outcome.statistics.nodes) == (by_hand[0], by_hand[2])
        ours, theirs = best(
            [lambda p=knapsack: optimise(p), lambda p=knapsack: hand.knapsack(p)], 5, own
        )
        note = f"{text(ours)} against {text(theirs)} by hand, {by_hand[2]:,} nodes each"
        yield ratio(f"sequential.python.knapsack{items}", ours / theirs, PYTHON_AIM, note)


def compiled(folder: Path) -> Path | None:
    """Compile ``clique.cpp`` with OpenMP; return the program, or None without a compiler."""
    compiler = shutil.which("g++")
    if compiler is None:
        return None
    program = folder / "clique"
    source = Path(__file__).with_name("clique.cpp")
    options = ["-std=c++17", "-O3", "-march=native", "-fopenmp"]
    command = [compiler, *options, str(source), "-o", str(program)]
    subprocess.run(command, check=True, timeout=120)
    return program


def written(problem: MaxClique) -> str:
    """Return a graph as ``clique.cpp`` reads it."""
    n = problem.graph.n
    words, mask = (n + 63) // 64, (1 << 64) - 1
    rows = (" ".join(f"{row >> 64 * w & mask:x}" for w in range(words)) for row in problem.adjacent)
    return "\n".join([str(n), *rows, ""])


def kernel() -> Iterator[Figure]:
    """Compare the engine with the compiled search of subtrees against C++."""
    if find_spec("numba") is None:
        yield skipped("sequential.kernel", "numba is not installed")
        return
    with tempfile.TemporaryDirectory(prefix="clique-") as folder:
        program = compiled(Path(folder))
        if program is None:
            yield skipped("sequential.kernel", "there is no g++")
            return
        cases: list[tuple[UndirectedGraph, int]] = [
            (graphs.random(200, 0.8, 1), 5),
            (graphs.random(300, 0.7, 1), 5),
            (graphs.random(500, 0.5, 1), 5),
        ]
        for graph, rounds in cases:
            yield _against(program, graph, rounds)


def _against(program: Path, graph: UndirectedGraph, rounds: int) -> Figure:
    problem = MaxClique(graph, kernel=True)
    graph_text = written(problem)
    outcome = optimise(problem)
    assert outcome.best is not None
    expected = outcome.best.value, outcome.statistics.nodes
    ours, theirs = float("inf"), float("inf")
    for _ in range(rounds):
        ours = min(ours, *best([lambda: optimise(problem)], 1, own))
        answer = subprocess.run(
            [str(program), "1"], input=graph_text, capture_output=True, text=True, check=True
        )
        size, nodes, seconds, _ = answer.stdout.split()
        assert (int(size), int(nodes)) == expected, (answer.stdout, expected)
        theirs = min(theirs, float(seconds))
    note = f"{text(ours)} against {text(theirs)} in C++, {expected[1]:,} nodes each"
    return ratio(f"sequential.kernel.{graph.name}", ours / theirs, KERNEL_AIM, note)
