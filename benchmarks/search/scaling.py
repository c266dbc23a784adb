"""The scaling of a search, simulated: ``python benchmarks/search/scaling.py`` writes a docs page.

The coordinator, the workers, the trees, the bounds and the solutions are real; only the time is
simulated, with a fixed time for each node.
"""

import argparse
import gc
import pickle
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from instances import narrow
from measure import own
from simulated import LATENCY, Clock, Costs, Line, Simulated, Timed, TimedWithBound, simulated_time
from trees import Flat

import collir
from collir.problems import graphs
from collir.problems.clique import MaxClique
from collir.problems.clique_node import CliqueNode
from collir.problems.uts import UTS
from collir.search import Budget, Coordination, DepthBounded, Solutions, decide, optimise
from collir.search import enumerate as count
from collir.search.core.board import Board
from collir.search.core.goals import Nodes
from collir.search.core.plan import SearchPlan
from collir.search.core.problem import overrides, sign
from collir.search.core.tasks import Report, SearchTask
from collir.search.core.worker import Worker
from collir.search.running.coordinator import Coordinator, SearchState, first_task
from collir.search.running.limits import Interrupt, Limits, Watch

PAGE = Path(__file__).parents[2] / "docs" / "search-scaling.md"
WORKERS = (2240, 4480, 6825)
"""The numbers of workers that YewPar was measured with: 64, 128 and 195 machines of 35 each."""

NODE = 16e-3
"""Seconds that a node takes: about as long as a kernel searches at once."""


def measured() -> Costs:
    """Measure the costs on this machine, each as the least of many runs."""
    full = (1 << 200) - 1
    node = CliqueNode(full // 3, full // 7, 10, 20)
    tasks = [(i, SearchTask(2, ([node],))) for i in range(64)]
    worker = Worker(SearchPlan(Flat(0), "enumerate", fold=Solutions()), Board(1))
    seconds: list[float] = []
    reports: list[Report] = []
    for _ in range(50):
        worker.add([(i, SearchTask(1, ([i],))) for i in range(64)])
        start = own()
        reports = []
        while worker.busy:
            reports += worker.step()
        seconds.append((own() - start) / len(reports))
    tasks_lines = _lines("tasks", tasks)
    report_lines = _lines("reports", reports)
    return Costs(*tasks_lines, *report_lines, min(seconds))


def _lines(kind: str, content: Sequence[object]) -> tuple[Line, Line]:
    """Measure the costs of sending and of receiving messages."""
    short, long = _message(kind, content[:1]), _message(kind, content)
    lines: list[Line] = []
    for small, large in zip(short, long, strict=True):
        per_item = max(0.0, (large - small) / (len(content) - 1))
        lines.append(Line(max(0.0, small - per_item), per_item))
    return lines[0], lines[1]


def _message(kind: str, content: Sequence[object]) -> tuple[float, float]:
    """Return the CPU seconds to pack and send a message, and to receive and unpack it."""
    ours, theirs = Pipe()
    send: list[float] = []
    receive: list[float] = []
    for _ in range(300):
        start = own()
        ours.send_bytes(pickle.dumps((kind, 1, content), pickle.HIGHEST_PROTOCOL))
        middle = own()
        pickle.loads(theirs.recv_bytes())
        send.append(middle - start)
        receive.append(own() - middle)
    ours.close()
    theirs.close()
    return sorted(send)[75], sorted(receive)[75]  # the lower quartile


@dataclass(frozen=True)
class Search:
    """A search to simulate.

    Attributes:
        alone: the number of nodes that a single worker visits.
        answer: what it finds.
    """

    name: str
    plan: SearchPlan
    alone: int
    answer: Any
    node: float = NODE


@dataclass(frozen=True)
class Simulation:
    """The outcome of a search with a number of workers."""

    workers: int
    nodes: int
    tasks: int
    seconds: float
    busy: float

    def speedup(self, search: Search) -> float:
        """Return the speed-up over a single worker without overhead."""
        return search.alone * search.node / self.seconds


def simulate(search: Search, workers: int, costs: Costs, shared: bool = True) -> Simulation:
    """Simulate a search with many workers, and check its answer against that of one worker."""
    clock = Clock()
    problem, plan = search.plan.problem, search.plan
    kind = TimedWithBound if overrides(problem, "bound") and plan.kind != "enumerate" else Timed
    plan = SearchPlan(
        kind(problem, clock, search.node),
        plan.kind,
        coordination=plan.coordination,
        target=plan.target,
        fold=plan.fold,
    )
    engine = Simulated(workers, clock, costs, shared)
    state = SearchState([first_task(plan)], total=plan.fold.empty() if plan.fold else None)
    before = simulated_time(clock)
    gc.collect()
    try:
        Coordinator(plan, engine, Watch(Limits(), Interrupt()), state).run()
    finally:
        simulated_time(before)
    values = [sign(problem) * solution.rank for solution in state.solutions]
    assert (state.total if plan.fold else values) == search.answer, (search.name, workers)
    busy = engine.busy / engine.now
    return Simulation(workers, state.counts.nodes, state.tasks, engine.now, busy)


SIZES = {
    "quick": (6, (100, 0.7), (12, 1)),
    "medium": (8, (200, 0.7), (20, 1)),
    "large": (10, (200, 0.8), (25, 1)),
}
"""The depth of the tree, the graph, and the items of the knapsack, by the option."""


def searches(size: str) -> list[Search]:
    """Return an enumeration, an optimisation and a decision, with the default coordination."""
    depth, (vertices, density), (number, seed) = SIZES[size]
    tree = UTS(depth=depth, b0=4, seed=19)
    graph = MaxClique(graphs.random(vertices, density, 1))
    items = narrow(number, seed)
    nodes = count(tree, Nodes())
    clique = optimise(graph)
    most = optimise(items).bound
    assert most is not None and clique.best is not None
    better = decide(items, target=most + 1)
    budget = Budget()
    return [
        Search(
            f"enumeration: UTS, depth {tree.depth}",
            SearchPlan(tree, "enumerate", coordination=budget, fold=Nodes()),
            nodes.statistics.nodes,
            nodes.total,
        ),
        Search(
            f"optimisation: clique of {graph.graph.name}",
            SearchPlan(graph, "optimise", coordination=budget),
            clique.statistics.nodes,
            [clique.best.value],
        ),
        Search(
            f"decision: knapsack of {len(items.values)}, one more than the best (there is none)",
            SearchPlan(items, "decide", coordination=budget, target=most + 1),
            better.statistics.nodes,
            [],
        ),
    ]


def flat(tasks: int, seconds: float) -> Search:
    """Return a root whose children are tasks of equal seconds."""
    coordination: Coordination = DepthBounded(1)
    plan = SearchPlan(Flat(tasks), "enumerate", coordination=coordination, fold=Solutions())
    return Search(f"{tasks:,} equal tasks of {_text(seconds)}", plan, tasks + 1, tasks, seconds)


def _number(up: float) -> str:
    return f"{up:.0f}" if up >= 9.95 else f"{up:.2f}" if up < 1 else f"{up:.1f}"


def _text(seconds: float) -> str:
    if seconds < 9.995e-4:
        return f"{seconds * 1e6:.3g} us"
    return f"{seconds:.3g} s" if seconds >= 0.9995 else f"{seconds * 1e3:.3g} ms"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


HEAD = ("search", "workers", "nodes against one worker", "tasks", "speed-up", "efficiency")


def row(search: Search, run: Simulation) -> str:
    """Return a line of the table."""
    up = run.speedup(search)
    cells = [search.name, f"{run.workers:,}", f"{run.nodes / search.alone:.1%}", f"{run.tasks:,}"]
    cells += [_number(up), f"{up / run.workers:.0%}", f"{run.busy:.0%}", _rate(run)]
    return _row(cells)


def _rate(run: Simulation) -> str:
    """Return the tasks per second of a coordinator that does nothing else."""
    return f"{run.tasks / (run.busy * run.seconds):,.0f}"


def table(rows: Sequence[str]) -> str:
    """Return rows under their head as a table."""
    cells = [*HEAD, "coordinator busy", "tasks/s it can serve"]
    return "\n".join([_row(cells), _row(["---", *["--:"] * (len(cells) - 1)]), *rows])


def page(size: str) -> str:
    """Return the page."""
    costs = measured()
    workers = (22, 45, 68) if size == "quick" else WORKERS
    rows: list[str] = []
    rates: dict[int, list[float]] = {number: [] for number in workers}
    for search in searches(size):
        for number in workers:
            run = simulate(search, number, costs)
            print(row(search, run), flush=True)
            rows.append(row(search, run))
            rates[number].append(run.tasks / (run.busy * run.seconds))
        if search.plan.kind == "optimise":
            run = simulate(search, workers[-1], costs, shared=False)
            rows.append(row(search, run).replace(search.name, f"{search.name}, own core"))
    many = flat(10_000 if size == "quick" else 1_000_000, 0.1)
    run = simulate(many, workers[-1], costs)
    rows.append(row(many, run))
    grains = [
        _row([f"{number:,}", f"{min(all_):,.0f}", _text(number / min(all_))])
        for number, all_ in rates.items()
    ]
    head = ["workers", "tasks/s that it serves, at least", "a task must take, at least"]
    return TEXT.format(
        version=collir.__version__,
        latency=_text(LATENCY),
        node=_text(NODE),
        tasks_out=_line(costs.tasks_out),
        tasks_in=_line(costs.tasks_in),
        reports_out=_line(costs.reports_out),
        reports_in=_line(costs.reports_in),
        step=_text(costs.step),
        rows=table(rows),
        grains="\n".join([_row(head), "| --: | --: | --: |", *grains]),
    )


def _line(line: Line) -> str:
    return f"{_text(line.message)} | {_text(line.each)}"


TEXT = """\
# How far a search scales: a model

Read off how many cores a search can use before its coordinator is busy. The coordinator and the
workers are those of `collir.search` on real trees; only the time is simulated. A speed-up compares
with one worker that has no overhead and visits the nodes of the sequential search.

Written by `python benchmarks/search/scaling.py` (collir {version}); do not edit.

## What is assumed

- The coordination is the default, `Budget()`. (The equal tasks are children of one root.)
- Visiting a node takes {node}. A node here stands for a small subtree of a larger tree, which a
  kernel would search as a whole. One worker needs hours for such a tree, thousands need seconds.
- The coordinator takes the CPU seconds that its own code needs to serve that many workers. It
  shares the core of a worker: while both are busy, each runs at half speed. In rows marked "own
  core" it has a core for itself, as rank 0 has on MPI.
- All workers see at once what the coordinator writes into the board.
- A message arrives after {latency} (an assumption: the networks of clusters are faster, Ethernet is
  slower). A worker spends {step} on a task beside its nodes. This time and the times to pack and
  send, and to receive and unpack, were measured:

  | messages | per message | per task or report in it |
  | --- | --: | --: |
  | tasks, sent by the coordinator | {tasks_out} |
  | tasks, received by a worker | {tasks_in} |
  | reports, sent by a worker | {reports_out} |
  | reports, received by the coordinator | {reports_in} |

- The default coordination makes about ten thousand tasks of each search; there are a million equal
  tasks. `--size large` simulates searches of millions of nodes, which takes hours.
- No worker is lost, starting takes no time, and workers do not slow each other down.

## Searches

{rows}

Nodes below 100% are the luck of branch and bound: a worker finds a solution early that prunes nodes
which the sequential search has to visit.

## Where one coordinator must become a tree

One coordinator serves all tasks. It keeps all workers busy if the mean time of a task is at least
the number of workers divided by the tasks per second that it can serve:

{grains}

With shorter tasks, more workers do not help. A search that cannot be cut into longer tasks would
need a tree of coordinators, which `collir.search` does not have.
"""


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--size",
        choices=SIZES,
        default="medium",
        help="of the searches; large ones have millions of nodes each, and take hours",
    )
    parser.add_argument("-o", "--output", type=Path, default=PAGE, help="default: %(default)s")
    options = parser.parse_args()
    start = time.perf_counter()
    options.output.write_text(page(options.size), encoding="utf-8")
    print(f"{options.output}: {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
