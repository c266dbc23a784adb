"""Layouts by amounts of data alone, beside exact search.

    python benchmarks/sharding/symbolic.py [--tables gap,random,speed,portability,changed] [--page]

    gap          the bytes that the greedy plan sends, beside the least, for the example models
    random       the same for random graphs of products, maps and reductions
    speed        the CPU time of the greedy plan for more and more operations
    portability  the time of plans on random machines (portable.py)
    changed      that of plans after sizes have changed (portable.py)

`--page` writes the tables that were made into docs/symbolic-sharding.md, and keeps the others.
"""

import argparse
import math
import re
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles

import portable
from programs import layered_program, random_program, step_of
from run import EXAMPLES, alone
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.syntax.parsing import no_gc
from collir.synthesis.propagation.graph import Graph
from collir.synthesis.propagation.propagate import lay_out
from collir.synthesis.sharding.solver import least_sum
from collir.synthesis.sharding.symbolic.amounts import by_amounts, sent_bytes
from collir.synthesis.sharding.symbolic.descent import Descent

PAGE = Path(__file__).parents[2] / "docs" / "symbolic-sharding.md"
SECONDS = 60.0
"""The limit of an exact search."""

RANDOM, OPERATIONS = {1: 150, 2: 150, 3: 50}, (1_000, 10_000, 100_000)
"""The number of random graphs for each number of axes, and the operations of long programs."""

Cells = list[list[str]]


def compared(module: ModuleOp) -> tuple[int, float, float, list[float]]:
    """Return the steps of a program, the bytes of the greedy plan, the least, and the CPU seconds
    of pricing all choices, of the greedy plan and of the exact search."""
    function, graph = step_of(module)
    clock = [time.process_time()]
    sharding = by_amounts(function, graph)
    clock.append(time.process_time())
    values = Descent(graph, sharding, list(graph.mesh.by_name)).run()
    clock.append(time.process_time())
    found = least_sum(sharding.sum, SECONDS)
    clock.append(time.process_time())
    assert not found.ended, found.ended
    seconds = [after - before for before, after in pairwise(clock)]
    sent, least = (sent_bytes(graph, sharding, x) for x in (values, found.values))
    return len(graph.relations), sent, least, seconds


def gap() -> Cells:
    """Return the rows of the example models."""
    rows = [["model", "steps", "greedy MB", "least MB", "ratio", *CLOCKS]]
    _ = compared(alone("mlp"))  # what is imported or made once is not measured
    for name in EXAMPLES:
        steps, sent, least, seconds = compared(alone(name))
        first = [name, f"{steps:,}", f"{sent / 1e6:,.2f}", f"{least / 1e6:,.2f}"]
        rows.append([*first, f"{sent / least:.3f}", *(f"{x:.2f}" for x in seconds)])
    return rows


CLOCKS = ("pricing s", "greedy s", "exact s")


# --- random graphs -------------------------------------------------------------------------------


def random_graphs() -> Cells:
    """Return the rows of random graphs."""
    heads = ["axes", "graphs", "least is sent", "within 5 %", "median", "90 %", "worst"]
    rows = [[*heads, "least is 0, greedy not", "all bytes", *CLOCKS]]
    for axes, count in RANDOM.items():
        found = [compared(random_program(seed, axes)) for seed in range(count)]
        pairs = [(sent, least) for _, sent, least, _ in found]
        ratios = [sent / least if least else math.inf if sent else 1.0 for sent, least in pairs]
        finite = [x for x in ratios if x < math.inf]
        high = quantiles(ratios, n=10, method="inclusive")[-1]
        cells = [f"{x:.2f}" for x in (median(ratios), high, max(finite))]
        total = sum(sent for sent, _ in pairs) / sum(least for _, least in pairs)
        counts = [str(sum(x <= most for x in ratios)) for most in (1.0001, 1.05)]
        seconds = [sum(own) for own in zip(*(x for *_, x in found), strict=True)]
        cells += [str(len(ratios) - len(finite)), f"{total:.2f}", *(f"{x:.1f}" for x in seconds)]
        rows.append([str(axes), str(count), *counts, *cells])
    return rows


# --- speed ---------------------------------------------------------------------------------------


def speed() -> Cells:
    """Return the rows of more and more operations."""
    rows = [["operations", "kind", "graph s", *CLOCKS[:2], "us each", "exact s"]]
    for count in OPERATIONS:
        rows.append([f"{count:,}", "equal layers", *_speed(layered_program(count // 5), count)])
    for count in OPERATIONS:
        rows.append([f"{count:,}", "random", *_speed(random_program(0, 2, count), count)])
    return rows


def _speed(module: ModuleOp, count: int) -> list[str]:
    """Return the CPU seconds for a program of some operations."""
    functions: list[FuncOp] = []
    lay_out(module, lambda f, _: functions.append(f))
    clock = [time.process_time()]
    with no_gc():
        graph = Graph.build(functions[0])
        clock.append(time.process_time())
        sharding = by_amounts(functions[0], graph)
        clock.append(time.process_time())
        sent = sharding.sum.value(Descent(graph, sharding, list(graph.mesh.by_name)).run())
        clock.append(time.process_time())
        found = least_sum(sharding.sum, SECONDS, branch=False)
        clock.append(time.process_time())
    seconds = [after - before for before, after in pairwise(clock)]
    each = f"{1e6 * sum(seconds[1:3]) / count:.0f}"
    exact = f"{seconds[3]:.1f}" + f" ({sent / found.sum:.2f}, gap)" * bool(found.ended)
    return [*(f"{x:.1f}" for x in seconds[:3]), each, exact]


# --- the page ------------------------------------------------------------------------------------

TABLES = {
    "gap": gap,
    "random": random_graphs,
    "speed": speed,
    "portability": lambda: portable.portability(portable.measured()),
    "changed": portable.changed,
}


TEXT = """\
# Layouts without a profile, measured

[SMSG](https://hal.science/hal-04551101) (Wang et al., IJPP 2023) claims that amounts of data are
enough to choose layouts, on all machines and for all sizes. `shard{method=symbolic}`
([sharding](sharding.md)) chooses so. `python benchmarks/sharding/symbolic.py --page` writes this
page. Times of plans are predictions; seconds are CPU seconds of a core that others shared.

## The greedy plan and the least

The bytes that a device receives, beside the least that exact search finds under the same costs, for
the example models and for random graphs of 5 to 30 products, maps and reductions: <!-- gap -->

<!-- random -->

Models are 0 to 11 % above the least, random graphs on two axes 18 % in the median and 30 % in all.
On one axis they are 3 % above it, so most is lost by taking one axis after the other.

## Speed for layers of five operations in a row, on two axes <!-- speed -->

Both are linear here, as such a graph is narrow. For the models above the greedy plan is 1.5 to 7
times as fast. D-Rec (not measured) sorts all V operators in every halving: O(levels * V log V).

## Other machines

Random machines: 2, 4 or 8 nodes of 2, 4 or 8 devices, 2 to 200 GB/s for a device on each level (the
inner one is not slower), 1 to 100 TFLOP/s, 1 to 30 us, all log uniform. Ratios are times of plans
by the least, under the machine's own costs. `amounts` sends the fewest bytes. `one ratio` weighs
them by the bandwidths of the levels; `two ratios` also knows computing by sending, and may leave
axes unused; `best axes` is the best of its choices. `no latency` is the exact plan under all
rates but latencies. Those with ratios are for every third machine, `there`. <!-- portability -->

Most plans by amounts are near the best, but the worst takes 5 times as long: the MLP had better
leave a slow level unused. The ratio of bandwidths alone does not help: a collective over both
levels counts as if all its bytes went over the slow one. A second number does, and chooses axes as
well as the costs would. With collectives counted level by level, on 20 of these machines, 90 % are
within 5 % and all within 20 % (a trial that the script does not repeat). Latencies hardly matter.

## Other sizes

One size is an eighth or 8 times as large, on three machines of 8 nodes of 8 devices. `kept` is the
exact plan of the sizes before, or what divides of it (the last column). <!-- changed -->

A plan made anew by amounts is hardly better than one kept from another profile, and the greedy one
is worse in each row: sizes that change what to do change it through rates too.

Limits: three small models, two levels, one cost model, no limit of memory; nothing ran on such
machines. The least is proven but for one program (5.6 %), and may expand softmax and losses.
"""


def markdown(rows: Cells) -> str:
    """Return tables in Markdown; an empty row ends one."""
    lines: list[str] = []
    is_head = True
    for row in rows:
        lines.append("| " + " | ".join(row) + " |" if row else "")
        if is_head and row:
            lines.append("|---" * len(row) + "|")
        is_head = not row
    return "\n".join(lines)


def kept(name: str) -> Iterator[str]:
    """Yield the table that the page has."""
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    yield from map(str.rstrip, re.findall(rf"<!-- {name} -->\n\n((?:\|.*\n|\n(?=\|))+)", text))


def main() -> None:
    """Print the tables, and write them into the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--page", action="store_true", help=f"write docs/{PAGE.name}")
    arguments = parser.parse_args()
    made: dict[str, str] = {}
    for name in filter(None, arguments.tables.split(",")):
        made[name] = markdown(TABLES[name]())
        print(f"\n{name}\n{made[name]}", flush=True)
    if arguments.page:
        text = TEXT
        for name in TABLES:
            table = made.get(name) or next(kept(name), "not measured")
            text = text.replace(f"<!-- {name} -->\n", f"<!-- {name} -->\n\n{table}\n")
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
