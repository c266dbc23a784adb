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
from typing import NamedTuple

import portable
from programs import Level, Machine, layered_program, random_program, step_of
from run import EXAMPLES, alone
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import collir
from collir.syntax.parsing import no_gc
from collir.synthesis.propagation.graph import TensorGraph
from collir.synthesis.propagation.propagate import lay_out
from collir.synthesis.sharding.descent.descent import Descent
from collir.synthesis.sharding.solver import least_sum
from collir.synthesis.sharding.symbolic.amounts import by_amounts, sent_bytes

PAGE = Path(__file__).parents[2] / "docs" / "symbolic-sharding.md"
SECONDS = 60.0
"""The limit of an exact search."""

RANDOM, OPERATIONS = {1: 150, 2: 150, 3: 50}, (1_000, 10_000, 100_000)
"""The number of random graphs for each number of axes, and the operations of long programs."""

Cells = list[list[str]]


class Compared(NamedTuple):
    """The plans of a program.

    Attributes:
        steps: its steps.
        sent, least: the bytes of the greedy plan, and the least that were found.
        gap: the part of the least that is not proven.
        seconds: CPU seconds of pricing all choices, of the greedy plan and of the exact search.
    """

    steps: int
    sent: int
    least: int
    gap: float
    seconds: list[float]


def compared(module: ModuleOp) -> Compared:
    """Return the greedy plan of a program beside the exact one."""
    function, graph = step_of(module)
    clock = [time.process_time()]
    sharding = by_amounts(function, graph)
    clock.append(time.process_time())
    values = Descent(graph, sharding, list(graph.mesh.by_name)).run()
    clock.append(time.process_time())
    found = least_sum(sharding.sum, SECONDS)
    clock.append(time.process_time())
    seconds = [after - before for before, after in pairwise(clock)]
    sent, least = (sent_bytes(graph, sharding, x) for x in (values, found.values))
    open_part = 1 - found.bound / found.sum if found.ended else 0.0
    return Compared(len(graph.relations), sent, least, open_part, seconds)


def gap() -> Cells:
    """Return the rows of the example models."""
    rows = [["model", "steps", "greedy MB", "exact MB", "ratio", *CLOCKS]]
    _ = compared(alone("mlp"))  # what is imported or made once is not measured
    modules = {name: alone(name) for name in EXAMPLES}
    modules |= {f"{name}, 4 x 4 x 4": _on_three_axes(name) for name in ("switch", "llama")}
    for name, module in modules.items():
        found = compared(module)
        amounts = [f"{x / 1e6:,.2f}" for x in (found.sent, found.least)]
        times = [f"{x:.2f}" for x in found.seconds]
        times[-1] += f", a gap of {100 * found.gap:.2g} %" * bool(found.gap)
        ratio = f"{found.sent / found.least:.3f}"
        rows.append([name, f"{found.steps:,}", *amounts, ratio, *times])
    return rows


def _on_three_axes(name: str) -> ModuleOp:
    """Return the training step of a model on three axes."""
    text = collir.emit(alone(name), "coll")
    text = re.sub(r"on @\w+ auto", "on @m auto", text[text.index("func ") :])
    return Machine((Level(4, 100, 5),) * 3).module(text)


CLOCKS = ("pricing s", "greedy s", "exact s")


# --- random graphs -------------------------------------------------------------------------------


def random_graphs() -> Cells:
    """Return the rows of random graphs."""
    heads = ["axes", "graphs", "least is sent", "within 5 %", "median", "90 %", "worst"]
    rows = [[*heads, "least is 0, greedy not", "all bytes", *CLOCKS]]
    for axes, count in RANDOM.items():
        found = [compared(random_program(seed, axes)) for seed in range(count)]
        assert not any(x.gap for x in found)
        pairs = [(x.sent, x.least) for x in found]
        ratios = [sent / least if least else math.inf if sent else 1.0 for sent, least in pairs]
        finite = [x for x in ratios if x < math.inf]
        high = quantiles(ratios, n=10, method="inclusive")[-1]
        cells = [f"{x:.2f}" for x in (median(ratios), high, max(finite))]
        total = sum(sent for sent, _ in pairs) / sum(least for _, least in pairs)
        counts = [str(sum(x <= most for x in ratios)) for most in (1.0001, 1.05)]
        seconds = [sum(own) for own in zip(*(x.seconds for x in found), strict=True)]
        cells += [str(len(ratios) - len(finite)), f"{total:.2f}", *(f"{x:.1f}" for x in seconds)]
        rows.append([str(axes), str(count), *counts, *cells])
    return rows


# --- speed ---------------------------------------------------------------------------------------


def speed() -> Cells:
    """Return the rows of more and more operations."""
    rows = [["operations", "kind", "graph s", *CLOCKS[:2], "us each", "exact s", "greedy / exact"]]
    for count in OPERATIONS:
        layered = _speed(layered_program(count // 5), count, exact=True)
        rows.append([f"{count:,}", "equal layers", *layered])
    for count in OPERATIONS:
        row = _speed(random_program(0, 2, count), count, exact=count < OPERATIONS[-1])
        rows.append([f"{count:,}", "random", *row])
    return rows


def _speed(module: ModuleOp, count: int, exact: bool) -> list[str]:
    """Return the CPU seconds for a program of some operations.

    Args:
        exact: whether the exact search is run too.
    """
    functions: list[FuncOp] = []
    lay_out(module, lambda f, _: functions.append(f))
    clock = [time.process_time()]
    with no_gc():
        graph = TensorGraph.build(functions[0])
        clock.append(time.process_time())
        sharding = by_amounts(functions[0], graph)
        clock.append(time.process_time())
        sent = sharding.sum.value(Descent(graph, sharding, list(graph.mesh.by_name)).run())
        clock.append(time.process_time())
        found = least_sum(sharding.sum, SECONDS, branch=False) if exact else None
        clock.append(time.process_time())
    seconds = [after - before for before, after in pairwise(clock)]
    cells = [*(f"{x:.1f}" for x in seconds[:3]), f"{1e6 * sum(seconds[1:3]) / count:.0f}"]
    if found is None:
        return [*cells, "-", "-"]
    return [*cells, f"{seconds[3]:.1f}" + ", a gap" * bool(found.ended), f"{sent / found.sum:.2f}"]


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

Decide whether you can [shard](sharding.md) a model without rates of your machine, as
[SMSG](https://hal.science/hal-04551101) (Wang et al., IJPP 2023) claims, and what that costs:
`shard{method=symbolic}` (`greedy` here) and `shard{method=amounts}` count bytes alone. `python
benchmarks/sharding/symbolic.py --page` writes this page. Times of plans are predictions; seconds
are CPU seconds of a core that others shared.

## The greedy plan and the least

The bytes that a device receives, beside the least that exact search finds, for the example models
and for random graphs of 5 to 30 products, maps and reductions. Both start from the same prices of
all choices: <!-- gap -->

<!-- random -->

Models on two axes are 0 to 8 % above the least, random graphs 1 to 4 % in all; the worst of these
send next to nothing. Exact search is as fast for most: the greedy plan is for three axes, where
that of Llama sends less than what the exact search has found at its limit, and for long programs.
Where a search ends without a proof, both `amounts` and `exact` take the layouts of descents if they
are better.

## Speed on two axes <!-- speed -->

Layers of five operations in a row, or random steps that take values of the last 36. Equal layers
become one, so hardly anything is left to search; random programs are the worst for both, and for
100,000 steps there are two starts. D-Rec (not measured) sorts all V operators in every halving:
O(levels * V log V).

## Other machines

200 random machines: one to three levels of 2, 4 or 8 parts, 2 to 200 GB/s for a device on each
level (an inner one is not slower), 1 to 100 TFLOP/s, 1 to 30 us, all log uniform. Ratios are times
of plans by the least, under the machine's own costs. `amounts` sends the fewest bytes.
`bandwidths` takes the least time to send, if all steps are divided. `computing` is the exact plan
of a machine with the same mean of bandwidths on all levels and no latency, and `proportions` that
of one that has no latency: they are there for every second machine. With three levels only the MLP
is searched. <!-- portability -->

Most plans by amounts are near the best, but the worst takes 8 times as long: the MLP had better
leave a slow level unused. The ratios of the bandwidths and of computing together mend this, and
neither does alone; latencies hardly matter. So describe a machine by its proportions, in any unit,
and take `method=exact`.

## Other sizes

One size is an eighth to 8 times as large, on three machines of 8 nodes of 8 devices. `kept` is the
exact plan of the sizes before, or what divides of it (the last column). <!-- changed -->

In most cases, a new plan by amounts is worse than the kept exact plan of other sizes. Its worst
case is better where the batch or the number of devices changes.

Limits: three small models, one cost model, no limit of memory; nothing ran on such machines. The
least is proven but for three programs (21 % at worst), and may expand softmax and losses.
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
