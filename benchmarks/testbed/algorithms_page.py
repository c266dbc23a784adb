"""The page of ``algorithms.py``: measured times beside predictions and beside MPICH."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

import trees
from algorithm_cases import (
    APART,
    AS_BLOCKS,
    FILE,
    IN_ROUNDS,
    IRREGULAR,
    SIZES,
    Case,
    costs,
)
from metrics import errors, middle_and_worst, pairs
from programs import machine
from results import Measured, checked_of, fitted
from tables import percent, signed, table

from collir.cost.model import StepCost
from collir.machine import Machine

PAGE = Path(__file__).parents[2] / "docs" / "testbed-algorithms.md"
SMALL = 2**14
"""Buffers with fewer bytes are small."""


@dataclass(frozen=True)
class Ran:
    """An algorithm that ran.

    Attributes:
        cost: its price on the machine with fitted numbers; None for trees.
        given: its predicted seconds with the numbers of the machine's file.
    """

    case: Case
    measured: Measured
    cost: StepCost | None
    given: float

    @property
    def predicted(self) -> float:
        """Predicted seconds."""
        return self.cost.time if self.cost else self.given

    @property
    def excess(self) -> list[float]:
        """The relative excess of the bytes through the busiest port of each level that has some;
        none for small buffers, whose packets are mostly headers."""
        if self.cost is None or self.case.size < SMALL:
            return []
        both = zip(self.cost.port_bytes, self.measured.sent, strict=True)
        return [did / should - 1 for should, did in both if should]


@dataclass(frozen=True)
class Group:
    """What ran of a collective with a size on a machine.

    Attributes:
        default: MPICH's own choice.
        library: the algorithms that MPICH's settings know.
        ran: the algorithms of `using`.
        trees: the trees of `collir synthesize`.
    """

    machine: str
    kind: str
    size: int
    default: Measured
    library: dict[str, Measured]
    ran: tuple[Ran, ...]
    trees: tuple[Ran, ...]

    @property
    def title(self) -> str:
        """The collective and its size."""
        size = f"{self.size // 2**20} MiB" if self.size >= 2**20 else f"{self.size // 2**10} KiB"
        return f"{self.kind}, {size}"

    @cached_property
    def best_of_library(self) -> tuple[str, float]:
        """MPICH's fastest algorithm and its seconds."""
        every = {"its choice": self.default} | self.library
        name = min(every, key=lambda each: every[each].seconds)
        return name, every[name].seconds

    @cached_property
    def best(self) -> Ran:
        """The fastest algorithm of `using`."""
        return min(self.ran, key=lambda each: each.measured.seconds)

    @cached_property
    def chosen(self) -> Ran:
        """The algorithm of `using` that is predicted to be the fastest."""
        return min(self.ran, key=lambda each: (round(each.predicted, 9), each.case.algorithm))


def is_whole(results: Path, name: str) -> bool:
    """Return whether all of a machine is measured."""
    path = results / name / FILE
    if not path.exists():
        return False
    entry = json.loads(path.read_text(encoding="utf-8"))
    return (name not in IRREGULAR or "trees" in entry) and (
        entry["protocol"] == "eager" or "other" in entry
    )


def groups(results: Path, name: str) -> list[Group]:
    """Return what ran on a machine."""
    entry = json.loads((results / name / FILE).read_text(encoding="utf-8"))
    given, fit = machine(name), fit_of(results, name, entry["protocol"])
    others = entry["trees"] if name in IRREGULAR else []
    of_trees = [x for x in others if x["protocol"] == entry["protocol"]]
    return list(_groups(given, fit, entry["collectives"], entry["library"], of_trees))


def other_groups(results: Path, name: str) -> list[Group]:
    """Return what ran on a machine by the other protocol; the same again if nothing did."""
    entry = json.loads((results / name / FILE).read_text(encoding="utf-8"))
    if "other" not in entry:
        return groups(results, name)
    given, other = machine(name), entry["other"]
    fit = fit_of(results, name, other["protocol"])
    of_trees = [x for x in entry["trees"] if x["protocol"] == other["protocol"]]
    return list(_groups(given, fit, other["collectives"], [], of_trees))


@cache
def fit_of(results: Path, name: str, protocol: str) -> Machine:
    """Return the machine that explains the times of single collectives by a protocol."""
    path = results / name / "singles.json"
    given, singles = machine(name), json.loads(path.read_text(encoding="utf-8"))
    return fitted(given, checked_of(singles["collectives"][protocol], given)).machine


Entries = Sequence[dict[str, Any]]
"""Entries of a file of results."""


def _groups(
    given: Machine, fit: Machine, collectives: Entries, library: Entries, of_trees: Entries
) -> Iterator[Group]:
    listed = [Case(x["kind"], x["algorithm"], x["size"]) for x in collectives]
    prices = costs(listed, given, fit)
    plain = [cost.time for cost in costs(listed, given, given)]
    measured = map(Measured.of, collectives)
    ran = [Ran(*each) for each in zip(listed, measured, prices, plain, strict=True)]
    for (kind, size), own in groupby(ran, key=lambda each: (each.case.kind, each.case.size)):
        default, *using = own
        known = {x["algorithm"]: Measured.of(x) for x in library if _is(x, kind, size)}
        found = tuple(_tree(x, given) for x in of_trees if _is(x, kind, size))
        yield Group(given.name, kind, size, default.measured, known, tuple(using), found)


def _is(entry: dict[str, Any], kind: str, size: int) -> bool:
    return (entry["kind"], entry["size"]) == (kind, size)


def _tree(entry: dict[str, Any], given: Machine) -> Ran:
    made = trees.trees_of(given, entry["kind"], entry["size"])
    case = Case(entry["kind"], entry["algorithm"], entry["size"])
    return Ran(case, Measured.of(entry), None, made.predicted)


# --- the page -----------------------------------------------------------------------------------


def ordered(listed: Sequence[Group]) -> tuple[float, int]:
    """Return how many pairs of algorithms of a collective are ordered right, and their number."""
    right, count = 0.0, 0
    for group in listed:
        predicted = [each.predicted for each in group.ran]
        own = pairs(predicted, [each.measured.seconds for each in group.ran])
        right, count = right + own[0], count + own[1]
    return right, count


def summary_row(name: str, listed: Sequence[Group]) -> list[str]:
    """Return the row of a table: errors, order, and the choice beside MPICH's."""
    ran = [each for group in listed for each in group.ran]
    measured = [each.measured.seconds for each in ran]
    middle, worst = middle_and_worst(errors([each.predicted for each in ran], measured))
    plain, _ = middle_and_worst(errors([each.given for each in ran], measured))
    right, count = ordered(listed)
    default = [group.default.seconds / group.chosen.measured.seconds for group in listed]
    best = [group.best_of_library[1] / group.chosen.measured.seconds for group in listed]
    are_known = all(group.library for group in listed)
    return [
        name,
        str(len(ran)),
        percent(middle),
        signed(worst),
        percent(plain),
        f"{right:g} of {count}",
        f"{median(default):.2f} ({min(default):.2f} to {max(default):.2f})",
        f"{median(best):.2f} ({min(best):.2f} to {max(best):.2f})" if are_known else "",
    ]


HEAD = [
    "",
    "algorithms",
    "median error",
    "worst",
    "as given",
    "pairs right",
    "over MPICH's choice",
    "over MPICH's best",
]


def summary(listed: Sequence[Group], others: Mapping[str, Sequence[Group]]) -> str:
    """Return the table of all machines, by size and by collective.

    Args:
        others: what ran on machines by the other protocol.
    """
    rows = [
        summary_row(f"`@{name}`", [group for group in listed if group.machine == name])
        for name in SIZES
    ]
    small = [group for group in listed if group.size < SMALL]
    large = [group for group in listed if group.size >= SMALL]
    rows.append(summary_row("8 KiB", small))
    rows.append(summary_row("256 KiB and 1 MiB", large))
    for kind in dict.fromkeys(group.kind for group in listed):
        rows.append(summary_row(kind, [group for group in large if group.kind == kind]))
    rows.append(summary_row("all", listed))
    rows += [summary_row(f"`@{name}`, eager", own) for name, own in others.items()]
    return table(HEAD, rows)


def of_machine(listed: Sequence[Group]) -> str:
    """Return the table of a machine: predicted, measured, and MPICH's times."""
    rows: list[list[str]] = []
    for group in listed:
        name, best = group.best_of_library
        first = [group.title, ms(group.default.seconds), f"{ms(best)} ({name})"]
        for each in (*group.ran, *group.trees):
            mark = "**" if each in (group.best,) else ""
            excess = max(each.excess, default=None)
            rows.append(
                [
                    *(first or ["", "", ""]),
                    each.case.algorithm,
                    ms(each.predicted),
                    f"{mark}{ms(each.measured.seconds)}{mark}",
                    f"{each.predicted / each.measured.seconds:.2f}",
                    "" if excess is None else signed(excess),
                ]
            )
            first = []
    head = ["", "MPICH's choice", "MPICH's best", "algorithm", "predicted", "measured", "ratio"]
    return table([*head, "bytes"], rows)


def ms(seconds: float) -> str:
    """Return a time such as ``12.3 ms``."""
    digits = 1 if seconds < 0.1 else 0
    return f"{1e3 * seconds:.{digits}f} ms"


def tree_rows(own: Sequence[Group], other: Sequence[Group]) -> list[list[str]]:
    """Return the rows of trees beside MPICH and the fastest algorithm of `using`.

    All times are those of the protocol that is faster for them.
    """
    rows: list[list[str]] = []
    for group, again in zip(own, other, strict=True):
        if not group.trees:
            continue
        best = min(group.best_of_library, (again.best_of_library), key=lambda each: each[1])
        using = min((group.best, again.best), key=lambda each: each.measured.seconds)
        ways: dict[str, float] = {}
        for each in (*group.trees, *again.trees):
            known = ways.get(each.case.algorithm, each.measured.seconds)
            ways[each.case.algorithm] = min(known, each.measured.seconds)
        fastest = min(ways.values())
        default = min(group.default.seconds, again.default.seconds)
        rows.append(
            [
                f"`@{group.machine}`, {group.kind}",
                ms(group.trees[0].predicted),
                *(ms(ways[way]) if way in ways else "" for way in (AS_BLOCKS, APART, IN_ROUNDS)),
                f"{ms(using.measured.seconds)} ({using.case.algorithm})",
                ms(default),
                f"{ms(best[1])} ({best[0]})",
                f"{default / fastest:.2f}",
                f"{best[1] / fastest:.2f}",
            ]
        )
    return rows


TEXT = """\
# Algorithms beside a real network

See whether the code of [`using NAME`](algorithms.md) takes the predicted time, and is as fast as
MPICH's own algorithms. Every collective runs by each of its algorithms over all
ranks of six networks of [the testbed](testbed.md), as the C that `-t mpi` prints, and by MPICH
{mpich} itself: as it chooses, and by each algorithm that its settings know. All results are equal,
bit by bit.

Written by `python benchmarks/testbed/algorithms.py --page` from the measurements of {date};
do not edit.

- **Networks**: `@two_nodes`, `@four_nodes` and `@two_racks` of that page; and three irregular ones:
  `@uneven` of that page, `@ports` (eight ranks on a switch, links of 200, 100 and 50 Mbit/s) and
  `@lanes` (eight ranks with a link for each pair: 24, 12 or 6 Mbit/s, as two, one or no NVLink of a
  DGX-1). Their full buffers have 1 MiB.
- **Predictions** are prices of `alpha-beta` for the algorithm, on the machine calibrated with
  single collectives of MPICH. Nothing is fitted to what is reported. *As given* is the median error
  with the numbers of the machine's file, which has a latency of 10 us.
- **Times** are medians of 2 to 7 runs of the slowest rank, after one run. MPICH and the code send
  by the same protocol: the one by which single collectives were faster on a network, which is
  rendezvous on `@uneven` and `@ports`. The last rows are by the other one.
- *Pairs* are two algorithms of a collective, a size and a network that differ by more than 5 %;
  *right* are those predicted in that order.
- *Over MPICH's choice* is its time divided by that of the algorithm with the least predicted time:
  the median, and the range. *Over MPICH's best* compares with the fastest of its algorithms.

{summary}

{notes}

## Trees

On the irregular networks, the trees of [`collir synthesize`](synthesize.md) run in three ways:

- *blocks*: the thread blocks of the file that is written for runtimes. Each runs its steps in their
  order, on one piece of the buffer after the other, and holds 8 messages;
- *apart*: the same messages, each sent as soon as its data are there;
- *rounds*: `-o FILE.coll`, as the C that `-t mpi` prints; left out where it has too many sends.

Chunks are cut into {pieces} pieces at most, of at least 8 KiB. All times of this table are the
better ones of both protocols of MPICH, where both were measured; its algorithms other than its
choice were measured by the first one only.

{trees}

{tree_notes}

## By network

*Bytes* says how many more went through the busiest port of a level than predicted, at most; a
packet has 0.7 % of headers. The fastest algorithm of `using` is bold.

{machines}
"""

NOTES = """\
## Where the code is faster, and where not

- **MPICH's choice does not know the network.** Its reduce_scatter (recursive halving) and its
  all_gather (recursive doubling) send half of the buffer between the most distant nodes; the
  hierarchical ones send only the reduced blocks: 3.0 to 4.8 times as fast with 256 KiB on two and
  three levels. Its broadcast of that size has the same all_gather in it. Its all_reduce is as good
  as ours.
- **MPICH's best** is as fast, as it has such algorithms too, in other order or under other names: a
  ring, `noncommutative` and `recexch_halving`, which begin with neighbours.
- On `@lanes`, all ranks send to all others at once (`direct`), which MPICH has for all_to_all only.

## What is off, and why

- **Bytes are right.** All algorithms send what is predicted, and 0.8 to 5.1 % more, which
  are headers and acknowledgements. So large errors are errors of time.
- **8 KiB.** A rank of the code waits for a round before it begins the next one, so rings (and the
  rings of hierarchical ones) pay a latency in each round; the price has that of one journey around
  the ring ([decision 18](decisions/0018-latency-of-a-pipeline-is-a-journey.md)): they take up to
  1.7 times as long. Messages of `direct` are under way together, and the price adds up their
  latencies: it takes down to 0.6 of the price. A binomial broadcast is one packet, which the
  shapers of the test bed let through at once.
- **Rendezvous on uneven links.** A ring takes 1007 ms on `@uneven` where 590 ms are predicted; with
  eager messages it takes 595 ms. A message that waits for its receiver asks for it by small
  messages, and these wait in the queues of slow links behind the data that go the other way. Eager
  messages have the opposite fault: those of the next round queue before late ones of this round,
  so that a recursive_doubling all_reduce takes 1866 ms, and 1442 ms by rendezvous.
- **The price of a ring on a matrix of links** was that of the best rings through its links, as NCCL
  makes them, when this was measured. The code has one ring in the order of the ranks, in both
  directions: over `@lanes` its slowest link has a fifteenth of a port, which explains the measured
  time to 2 %. So the prediction was 8 times too low. A ring that code has is priced as such since.
- **Rounds overlap on irregular networks.** In MPICH's recursive algorithms, with which machines are
  calibrated, some pairs end a round before others, and go on; the price ends a round for all ranks
  at once. So the fitted port of `@lanes` is 13 % too large. With the given one, `direct`, `pat` and
  the hierarchical ones are within 2 %, and recursive ones are 10 to 23 % faster than predicted. By
  eager messages the fitted port of `@ports` is 20 % too small, because of the queues above, and the
  median error with the given ones is 3.2 %."""

TREE_NOTES = """\
With k pieces, trees of depth d take (k + d - 1) / k of the predicted time, which is that of small
pieces. This explains the times *apart* on `@uneven` and `@ports` to 10 %, but for the all_reduce
and the broadcast of `@ports` (18 and 14 %, not explained). The trees of `@lanes` have chunks of
9 KB, which take 12 ms over its slowest links, up to four times on their way. A round of the code
ends when all sends of a rank are done, which costs the all_gather and the reduce_scatter of
`@uneven` a fifth.

Thread blocks are up to 2.2 times slower than the same trees apart: in an all_reduce a connection is
used on the way up and on the way down, and as a block runs its steps in their order, the next piece
does not go up before this one has come down. A runtime that loops over a large buffer has the same
order; the predicted time does not know of it."""


def text_of(results: Path) -> str:
    """Return the text of the page."""
    own = {name: groups(results, name) for name in SIZES}
    others = {name: other_groups(results, name) for name in IRREGULAR}
    entries = [json.loads((results / name / FILE).read_text(encoding="utf-8")) for name in SIZES]
    rows = [row for name in IRREGULAR for row in tree_rows(own[name], others[name])]
    by_other = {
        name: others[name] for name, entry in zip(SIZES, entries, strict=True) if "other" in entry
    }
    head = ["", "predicted", "blocks", "apart", "rounds", "best of `using`", "MPICH's choice"]
    head += ["MPICH's best", "over its choice", "over its best"]
    return TEXT.format(
        date=max(entry["date"] for entry in entries).split()[0],
        mpich=entries[0]["mpich"],
        summary=summary([group for listed in own.values() for group in listed], by_other),
        notes=NOTES,
        pieces=trees.MOST_PIECES,
        trees=table(head, rows),
        tree_notes=TREE_NOTES,
        machines="\n\n".join(
            f"### `@{name}`\n\n{of_machine(listed)}" for name, listed in own.items()
        ),
    )
