"""How far a search would scale: ``python benchmarks/search/scaling.py`` writes a page of docs.

The coordinator is the real one, on an engine whose workers exist in simulated time only: they take
for a task what it took in a real search. The coordinator's time is what its code takes here, on
this machine, while it serves so many workers; that of messages is measured before.
"""

import argparse
import gc
import heapq
import pickle
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from measure import own
from trees import Flat

import collir
from collir.search import DepthBounded, Outcome, Problem, Solutions, enumerate, optimise
from collir.search.board import WANTED, Board
from collir.search.coordinator import Coordinator, State
from collir.search.engines.base import Event
from collir.search.limits import Interrupt, Limits, Watch
from collir.search.plan import Plan
from collir.search.problems import graphs
from collir.search.problems.clique import CliqueNode, MaxClique
from collir.search.problems.semigroups import NumericalSemigroups
from collir.search.problems.uts import UTS
from collir.search.tasks import Report, Task
from collir.search.worker import SLICE, Worker

PAGE = Path(__file__).parents[2] / "docs" / "search-scaling.md"
WORKERS = (1, 2, 4, 16, 64, 256, 1024)
LATENCY = 20e-6
BURST = 0.001
"""Seconds for which a worker collects reports of short tasks, as those of ``Processes`` do."""


@dataclass(frozen=True)
class Line:
    """What a message costs: seconds for itself, and for each task or report in it."""

    message: float
    each: float

    def seconds(self, number: int) -> float:
        """For a message with so many."""
        return self.message + number * self.each


@dataclass(frozen=True)
class Costs:
    """Seconds of CPU: to send tasks, to receive and send reports, and to run a task of one leaf."""

    tasks_out: Line
    tasks_in: Line
    reports_out: Line
    reports_in: Line
    leaf: float


def measured() -> Costs:
    """The costs on this machine, the least of many times each."""
    full = (1 << 200) - 1
    node = CliqueNode(full // 3, full // 7, 10, 20)
    tasks = [(i, Task(2, ([node],))) for i in range(64)]
    worker = Worker(Plan(Flat(0), "enumerate", fold=Solutions()), Board(1))
    seconds: list[float] = []
    reports: list[Report] = []
    for _ in range(50):
        worker.add([(i, Task(1, ([i],))) for i in range(64)])
        start = own()
        reports = []
        while worker.busy:
            reports += worker.step()
        seconds.append((own() - start) / len(reports))
    tasks_lines = _lines("tasks", tasks)
    report_lines = _lines("reports", reports)
    return Costs(*tasks_lines, *report_lines, min(seconds))


def _lines(kind: str, content: Sequence[object]) -> tuple[Line, Line]:
    """The costs of sending and of receiving messages with some of these."""
    one, many = _message(kind, content[:1]), _message(kind, content)
    lines: list[Line] = []
    for small, large in zip(one, many, strict=True):
        each = max(0.0, (large - small) / (len(content) - 1))
        lines.append(Line(max(0.0, small - each), each))
    return lines[0], lines[1]


def _message(kind: str, content: Sequence[object]) -> tuple[float, float]:
    """CPU seconds to pack and send a message, and to receive and unpack it."""
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


class Simulated:
    """An engine in simulated time.

    Args:
        workers: how many.
        seconds: what each task takes; node i is task i, and node -1 gives all of them.
        first: what giving them takes.
    """

    durable = False

    def __init__(self, workers: int, seconds: Sequence[float], first: float, costs: Costs):
        self.workers = workers
        self.board = _Asking(workers, self)
        self._seconds, self._first, self._costs = seconds, first, costs
        self._queues = [deque[tuple[float, int, int]]() for _ in range(workers)]  # with arrivals
        self._free = [0.0] * workers  # when it has done what it has begun
        self._looking = [False] * workers  # whether there is a time when it looks into its queue
        self._asked = [False] * workers  # whether it is about to give tasks back
        self._arrivals: list[tuple[float, int, int, list[Report]]] = []  # reports on their way
        self._looks: list[tuple[float, int, bool]] = []  # to begin a task, or to give back (True)
        self._sent = 0
        self.now = 0.0
        self.idle = 0.0
        """Seconds in which the coordinator had nothing to do."""

    def start(self, plan: Plan) -> None:
        """The time begins."""
        self._mark = own()

    def _charge(self) -> None:
        """What the coordinator has done since it was last looked at has taken time."""
        self.now += own() - self._mark

    def submit(self, worker: int, tasks: list[tuple[int, Task]]) -> None:
        """Tasks go to a worker."""
        self._charge()
        self.now += self._costs.tasks_out.seconds(len(tasks))
        arrived = self.now + LATENCY + self._costs.tasks_in.seconds(len(tasks))
        self._queues[worker].extend((arrived, ident, task.levels[0][0]) for ident, task in tasks)
        if not self._looking[worker]:
            self._look(worker, max(arrived, self._free[worker]))
        self._mark = own()

    def _look(self, worker: int, at: float) -> None:
        self._looking[worker] = True
        heapq.heappush(self._looks, (at, worker, False))

    def ask(self) -> None:
        """Workers with tasks that they have not begun will see that others have none."""
        self._charge()
        for worker in range(self.workers):
            if self._queues[worker] and not self._asked[worker]:
                self._asked[worker] = True
                heapq.heappush(self._looks, (self.now + SLICE, worker, True))
        self._mark = own()

    def _send(self, at: float, worker: int, reports: list[Report]) -> None:
        self._sent += 1
        at += LATENCY + self._costs.reports_out.seconds(len(reports))
        heapq.heappush(self._arrivals, (at, self._sent, worker, reports))

    def _return(self, at: float, worker: int) -> None:
        """A worker gives back what it has not begun, if that is still wanted."""
        self._asked[worker] = False
        queue = self._queues[worker]
        if queue and self.board.cells[WANTED]:
            self._send(at, worker, [Report(ident, "returned") for _, ident, _ in queue])
            queue.clear()

    def _burst(self, start: float, worker: int) -> None:
        """A worker runs tasks until it has something to say."""
        queue, reports, now = self._queues[worker], list[Report](), start
        self._looking[worker] = False
        while queue and queue[0][0] <= now and now - start < BURST:
            _, ident, node = queue.popleft()
            report = Report(ident, "done")
            if node < 0:
                report.given = [(1, i) for i in range(len(self._seconds))]
            report.seconds = self._first if node < 0 else self._seconds[node]
            now += report.seconds + self._costs.leaf
            reports.append(report)
        if reports:
            self._send(now, worker, reports)
            now += self._costs.reports_out.seconds(len(reports))
            self._free[worker] = now
        if queue:
            self._look(worker, max(now, queue[0][0]))

    def wait(self, seconds: float) -> list[Event]:
        """All that has come by now, or else the next that comes."""
        self._charge()
        while self._looks and (
            self._looks[0][0] <= self.now
            or not self._arrivals
            or self._looks[0][0] < self._arrivals[0][0]
        ):
            at, worker, back = heapq.heappop(self._looks)
            (self._return if back else self._burst)(at, worker)
        if self._arrivals[0][0] > self.now:
            self.idle += self._arrivals[0][0] - self.now
            self.now = self._arrivals[0][0]
        events: list[Event] = []
        while self._arrivals and self._arrivals[0][0] <= self.now and len(events) < self.workers:
            _, _, worker, reports = heapq.heappop(self._arrivals)
            given = sum(len(report.given) for report in reports)
            self.now += self._costs.reports_in.seconds(len(reports) + given)
            events.append(Event(worker, reports))
        self._mark = own()
        return events

    def stop(self) -> list[Event]:
        """Nothing is left."""
        self._charge()
        return []

    def close(self) -> None:
        """Nothing is held."""

    def memory(self) -> int:
        """None of its own."""
        return 0


class _Asking(Board):
    """A board that tells the simulated workers when others have nothing to do."""

    def __init__(self, workers: int, engine: Simulated):
        self._engine = engine
        super().__init__(workers)

    def set(self, cell: int, value: float) -> None:
        """As ever; and the workers see it."""
        super().set(cell, value)
        if cell == WANTED and value:
            self._engine.ask()


def simulate(
    workers: int, seconds: Sequence[float], first: float, costs: Costs
) -> tuple[float, float]:
    """The simulated seconds of a search, and the part of them in which the coordinator works."""
    engine = Simulated(workers, seconds, first, costs)
    plan = Plan(Flat(0), "enumerate", coordination=DepthBounded(1), fold=Solutions())
    state = State([Task(0, ([-1],))], total=0)
    gc.collect()
    Coordinator(plan, engine, Watch(Limits(), Interrupt()), state).run()
    assert state.tasks == len(seconds) + 1 and not state.open
    return engine.now, 1 - engine.idle / engine.now


@dataclass
class Divided:
    """The tasks of a search, in order: what each takes, and what those took that made them."""

    name: str
    seconds: list[float]
    first: float = 0.0
    times: int = 1
    busy: list[float] = field(default_factory=list[float])
    ups: list[float] = field(default_factory=list[float])

    @property
    def total(self) -> float:
        """Without any overhead."""
        return sum(self.seconds) + self.first

    def repeated(self, times: int) -> "Divided":
        """A search of so many times as many tasks."""
        return Divided(self.name, self.seconds * times, self.first, times)

    def run(self, costs: Costs) -> None:
        """Simulates the search with all numbers of workers."""
        for workers in WORKERS:
            seconds, busy = simulate(workers, self.seconds, self.first, costs)
            self.ups.append(self.total / seconds)
            self.busy.append(busy)

    def row(self) -> str:
        """A line of the table."""
        mean, longest = sum(self.seconds) / len(self.seconds), max(self.seconds)
        ups = [_number(up) for up in self.ups]
        name = f"{self.name}, {self.times} times" if self.times > 1 else self.name
        cells = [name, f"{len(self.seconds):,}", _text(mean), _text(longest), *ups]
        return _row([*cells, f"{self.ups[-1] / WORKERS[-1]:.0%}", f"{self.busy[-1]:.0%}"])


def tasks_of(
    name: str, search: Callable[..., Outcome], problem: Problem[Any], depth: int
) -> Divided:
    """The tasks of a real search that is divided at a depth.

    What a task takes is its nodes times the CPU seconds of a node of this search: its own seconds,
    which are wall clock time, tell of other programs of this machine too.
    """
    start = own()
    outcome = search(problem, coordination=DepthBounded(depth), profile=True)
    seconds = own() - start
    assert outcome.profile is not None
    tasks, rate = outcome.profile.tasks, seconds / outcome.statistics.nodes
    last = [nodes * rate for at, _, nodes in tasks if at == depth]
    first = sum(nodes * rate for at, _, nodes in tasks if at < depth)
    return Divided(f"{name}, depth {depth}", last, first)


def searches(quick: bool) -> list[Divided]:
    """Real searches, divided finely and coarsely."""
    tree = UTS(depth=8 if quick else 10, b0=4, seed=19)
    groups = NumericalSemigroups(16 if quick else 23)
    graph = graphs.random(200, 0.7 if quick else 0.75, 1)
    cases: list[tuple[str, Callable[..., Outcome], Problem[Any], tuple[int, ...]]] = [
        ("UTS T1" if not quick else "UTS", enumerate, tree, (4, 6)),
        (f"semigroups of genus {groups.genus}", enumerate, groups, (8, 12)),
        (f"clique {graph.name}", optimise, MaxClique(graph), (1, 2)),
    ]
    return [
        tasks_of(name, search, problem, depth)
        for name, search, problem, depths in cases
        for depth in depths
    ]


def _number(up: float) -> str:
    return f"{up:.0f}" if up >= 9.95 else f"{up:.2f}" if up < 1 else f"{up:.1f}"


def _text(seconds: float) -> str:
    if seconds < 9.995e-4:
        return f"{seconds * 1e6:.3g} us"
    return f"{seconds:.3g} s" if seconds >= 0.9995 else f"{seconds * 1e3:.3g} ms"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _head() -> list[str]:
    cells = ["search", "tasks", "mean", "longest", *map(str, WORKERS)]
    cells += [f"efficiency at {WORKERS[-1]}", f"coordinator busy at {WORKERS[-1]}"]
    return [_row(cells), _row(["---", *["--:"] * (len(cells) - 1)])]


def page(quick: bool) -> str:
    """The page."""
    costs = measured()
    real = searches(quick)
    again = [one.repeated(max(1, (4_000 if quick else 60_000) // len(one.seconds))) for one in real]
    number = 2_000 if quick else 20_000
    equal = [Divided(f"equal tasks of {_text(g)}", [g] * number) for g in GRAINS]
    for one in (*real, *again, *equal):
        one.run(costs)
    return TEXT.format(
        version=collir.__version__,
        latency=_text(LATENCY),
        burst=_text(BURST),
        slice=_text(SLICE),
        tasks_out=_line(costs.tasks_out),
        tasks_in=_line(costs.tasks_in),
        reports_out=_line(costs.reports_out),
        reports_in=_line(costs.reports_in),
        leaf=_text(costs.leaf),
        searches="\n".join([*_head(), *(one.row() for one in real)]),
        again="\n".join([*_head(), *(one.row() for one in again)]),
        equal="\n".join([*_head(), *(one.row() for one in equal)]),
        saturated="\n".join(_saturated(equal)),
    )


def _line(line: Line) -> str:
    return f"{_text(line.message)} | {_text(line.each)}"


def _saturated(equal: Sequence[Divided]) -> list[str]:
    """For tasks of each grain, the tasks a second when the coordinator is busiest."""
    lines = [_row(["tasks of", "tasks/s, at most", "workers kept busy"]), "| --: | --: | --: |"]
    for one in equal:
        grain = one.seconds[0]
        rate = max(one.ups) / grain
        full = max(one.busy) > 0.9
        kept = f"{max(one.ups):.0f}" if full else f"more than {max(one.ups):.0f}"
        lines.append(_row([_text(grain), f"{'' if full else 'more than '}{rate:,.0f}", kept]))
    return lines


GRAINS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)

TEXT = """\
# How far a search scales: a model

Written by `python benchmarks/search/scaling.py` (collir {version}); do not edit.

Two cores do not show what a thousand do. This page simulates: the coordinator is the one of
`collir.search`, but its workers live in simulated time, and take for a task what it took in a real
search in one process. Numbers under 1, 2, ... are speed-ups against that process with no overhead.

## What is assumed

- Real searches are divided with `DepthBounded`: the tasks are the subtrees at that depth. One
  worker first makes all of them (it does what is above); the others wait meanwhile.
- A task takes its nodes times the mean CPU seconds of a node in its search. The tasks and their
  order are those of the search in one process. That workers prune by stale bounds, or find good
  solutions sooner, is not modelled (`run.py inflation` measures it on two workers), nor is the
  contention of workers for caches, memory or cores: each worker has a core, the coordinator too.
- The coordinator takes the CPU seconds that its own code takes while it is simulated: merging
  reports, choosing tasks, looking at as many workers as there are.
- Messages take {latency} on their way (an assumption; the networks of clusters take less, Ethernet
  takes more). Packing and sending them, receiving and unpacking them, and what a worker does for a
  task beside its nodes ({leaf}) take what was measured here:

  | messages | each | and for each in it |
  | --- | --: | --: |
  | tasks, sent by the coordinator | {tasks_out} |
  | tasks, received by a worker | {tasks_in} |
  | reports, sent by a worker | {reports_out} |
  | reports, received by the coordinator | {reports_in} |

  The nodes sent are those of a clique search on 200 vertices. A worker collects reports of short
  tasks for {burst}. Tasks that it has not begun it gives back {slice} after others ran out of them.
- A task that was begun is not divided, no worker is lost, no time is taken to start.

## Searches as they are

{searches}

Of few tasks, the longest decides (which is what budgets and stealing divide); of many short ones,
the coordinator does.

## Searches of many more tasks

The same tasks again and again, as if trees were so many times as wide.

{again}

## Tasks that all take the same

{equal}

## Where the coordinator is full

The greatest rate that it serves tasks of a grain at, and how many workers that keeps at work.
`more than` is where {{last}} workers did not fill it.

{saturated}
""".replace("{{last}}", str(WORKERS[-1]))


def main() -> None:
    """Writes the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small searches, to try it out")
    parser.add_argument("-o", "--output", type=Path, default=PAGE, help="default: %(default)s")
    options = parser.parse_args()
    start = time.perf_counter()
    options.output.write_text(page(options.quick), encoding="utf-8")
    print(f"{options.output}: {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
