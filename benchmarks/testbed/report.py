"""Write docs/testbed.md from ``results/`` alone: ``python benchmarks/testbed/report.py``."""

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

import before_after
import overlap
import singles
from library import chosen_algorithms
from metrics import pairs
from results import Machined, read
from run import RESULTS, WEIGHTS
from shaping import FRAME, SEGMENT
from tables import (
    CHOSEN_HEAD,
    ORDER_HEAD,
    case_tables,
    chosen_parts,
    chosen_row,
    error_rows,
    fit_rows,
    link_rows,
    machine_parts,
    order_row,
    outlier_rows,
    percent,
    placement_rows,
    predictor_rows,
    protocol_rows,
    spread,
    table,
    ties,
)

import collir
from collir.cost.calibration.values import median_error

PAGE = Path(__file__).parents[2] / "docs" / "testbed.md"

TEXT = """\
# Predictions beside a real network

See whether programs are as fast as `-t cost` predicts, and whether `decompose` chooses the fastest
one; `make testbed` measures it anew in 70 minutes. All placements of {cases} reductions were run on
real networks of {ranks} ranks. Every MPI rank was in a network name space of its own, on a tree of
shaped links. {programs} programs were measured, with {size} KiB on every rank, with MPICH {mpich}
from pip, over TCP.

Written by `python benchmarks/testbed/report.py` (collir {version}) from the measurements of
`make testbed` on {dates}; do not edit.

```coll
{machines}```

- **Programs** of a placement are those of [P²](../benchmarks/papers/p2/README.md) with at most
  five steps, and the 100 best that the search finds ([strategies](placement.md#strategies)).
  If there was no time to measure all of them, half of the measured programs are the best predicted
  ones, and half were drawn at random from the others. The programs run as the C that `-t mpi`
  prints.
- **Times** are those of the slowest rank after a barrier: the median of 2 to 5 runs, after one run
  to warm up. Runs of one program differ by {spread} (the median of longest over shortest).
- **Algorithms** of MPICH are fixed by its settings, and the model costs the same ones:
  {algorithms}. MPICH sends messages by one of two protocols, eager or rendezvous. Each
  machine uses the protocol with which single collectives were faster.
- **Predictions** come from the cost model [alpha-beta](costs.md), on the machine
  [calibrated](#calibration) with single collectives on one placement. Nothing is fitted to the
  programs that are reported.

[Training steps of models](testbed-models.md) in ten shardings each have a page of their own.

## Summary

*top 1*, *top 3*, *top 5* and *top 10* say how often the measured best program of a placement is
among the first 1, 3, 5 or 10 predicted ones. *Pairs* are two programs of one placement whose
measured times differ by more than 5 %, and *right* is the share of them that are predicted in that
order (programs with equal predictions count half). *tau* is Kendall's tau-b over all pairs, the
mean over placements.

{order}

In {missed} placements the measured best is not the predicted best. In {missed_close} of them the
two are within 3 % of each other: several programs send the same bytes in the same rounds, and
chance decides between them.

## The chosen programs

*within 3 %* says how often the predicted best program takes at most 3 % more than the measured
best, and *worst* how much more it takes at most. The other columns compare it with one all_reduce
of the library, in the same placement with its ranks in hardware order: by a ring (*over ring*), and
as MPICH chooses (*over MPICH's*). They give the time of the all_reduce divided by the time of the
program: the mean (and the median), the least value (*worst*), and how often it is above 1 (*wins*).

{chosen}

## Simpler predictors

Here simpler predictors order the same pairs: the sum over steps of their
[bounds](costs.md#bounds) (lower bounds for any algorithm, from the busiest port), the bytes through
the outermost ports, and the number of steps. The last two columns cover all machines: how often the
program that a predictor puts first is within 3 % of the measured best, and how far it is at worst.

{predictors}

## Placements

The first two columns count pairs of placements of one reduction that are more than 5 % apart, and
those in the right order: by their best programs, and by the flat all_reduce. *chosen is best*
counts the reductions for which the chosen placement is within 3 % of the best one. *worst over
best* is the largest ratio of the times of two placements.

{placements}

## Steps that overlap

This is an all_reduce of {overlap_size} KiB over all ranks, as one step, and as a program that takes
the levels one by one. The program runs on several chunks, and no chunk waits for another (`async`;
MPICH's own non-blocking collectives). *Gain* is the time of the one step divided by the time of the
program. Predictions come from [`-t simulate`](simulation.md).

{overlap}

{overlap_reasons}
## Passes

These are programs of {overlap_size} KiB on every rank, as they are written and after passes:

- gradients of 32 layers, with two small ones in each layer; they become ready one after the other
  and are summed over all ranks;
- 12 layers whose weights are gathered for each layer (ZeRO-3);
- 4 layers with steps that undo each other, as in a program that is assembled from parts.

The computation on devices is a wait here, while MPI continues. DDP and XLA pack gradients by their
rules, with sizes that are scaled down as the model is.

{passes}

{passes_reasons}
## Bytes on the links

This table compares the bytes counted on the links with the cost model: how many more bytes went
through the busiest port of a level than predicted. A packet of {frame} bytes carries {segment} of
data, so {header} is headers; the rest is acknowledgements and MPICH's own messages. The collectives
are of all kinds, over all sets of levels, at full size. The programs are those without roots, where
at least 64 KiB go through a port.

{links}

## Calibration

These are the ports and latencies that best explain the times of {fit_count} single collectives.
They were measured on one placement of each machine, over all sets of levels: each collective with
{size} KiB, and reduce_scatters also with sizes down to an eighth of that. A part of them is held
back from the fit. The median error of the held back times is {held}.

{fit}

The first plan was to use only the reduce_scatters. Inside nodes they are slower than the other
collectives, for an unknown reason. So predictions from them are too slow, but their order is the
same:

{others}

## What the model does not explain

Errors of single programs, by the links that they use, and by whether steps have roots:

{kinds}

{reasons}
The next table has single collectives at full size by both protocols. The predictions use the
numbers of the machine's file, which are not fitted:

{protocols}

The largest errors, one of each placement:

{outliers}

## By reduction

{by_case}
"""

OVERLAP_REASONS = """\
Chunks do gain. With more chunks, programs take longer than predicted. There are three likely
reasons: MPICH makes progress on a collective only while some call of MPICH runs, its ranks sleep in
between, and they do not agree on which of two chunks goes first on a link.

"""

PASSES_REASONS = """\
Many small all_reduces at the same time take less than predicted if latency dominates: the model
runs those of one level one after the other, as streams do, and MPI does not.

"""

REASONS = """\
These are likely reasons. Only the first was isolated by an experiment of its own:

- **Messages that do not wait for their receiver.** By default MPICH hands a message to TCP at
  once (eager). Ranks that are ahead, such as those behind the fast uplinks of the uneven machine,
  send for the next round while other ranks still receive for this one. In the same port, these
  early messages then queue before the late ones. The model takes rounds one after the other. With
  MPICH's rendezvous, messages of more than 8 KiB wait until their receiver asks for them, which
  takes time, too. The table below has both protocols.
- **Inside nodes the computer is a part of the network.** Up to 1.6 Gbit/s go through {cores} cores,
  and a rank that waits sleeps for 200 us at a time, which explains the fitted latency of the rank
  links.
- **Steps overlap a little.** The model adds up steps, each as long as its slowest rank takes.
  Ranks that have finished a reduce begin the next step, so programs with roots take less time than
  predicted.
- **A link lets its first packets through at once.** A shaper counts a packet when it is sent, and
  allows a burst; a wire needs time before the packet arrives.
"""


def _algorithms() -> str:
    return ",\n  ".join(f"{kind} by `{name}`" for kind, name in chosen_algorithms().items())


def _only(all_: Sequence[Machined], results: Path) -> list[Machined]:
    """Return the same machines, calibrated with only one kind of collective."""
    again = (read(results / machined.given.name, (singles.SIZED,)) for machined in all_)
    return [machined for machined in again if machined is not None]


def _fit_row(name: str, all_: Sequence[Machined]) -> list[object]:
    placements = [placement for machined in all_ for placement in machined.placements]
    errors = sorted(
        (
            abs(predicted / measured - 1)
            for placement in placements
            for predicted, measured in zip(placement.predicted, placement.seconds, strict=True)
        )
    )
    ordered = [pairs(placement.predicted, placement.seconds) for placement in placements]
    right, count = (sum(column) for column in zip(*ordered, strict=True))
    return [
        name,
        percent(errors[len(errors) // 2]),
        percent(errors[-1]),
        percent(errors[int(0.95 * len(errors))]),
        percent(right / count, 2),
    ]


def _overlap(all_: Sequence[Machined], results: Path) -> str:
    rows: list[list[str]] = []
    for machined in all_:
        name = machined.given.name
        if not (results / name / overlap.FILE).exists():
            continue
        programs = list(overlap.overlaps(results / name, machined.calibration.machine))
        for program in programs:
            rows.append(
                [
                    name if program is programs[0] else "",
                    str(program.chunks) if program.chunks else "one step",
                    f"{1e3 * program.predicted:.0f} ms",
                    f"{1e3 * program.measured:.0f} ms",
                    f"{100 * (program.predicted / program.measured - 1):+.1f} %",
                    f"{programs[0].predicted / program.predicted:.2f}",
                    f"{programs[0].measured / program.measured:.2f}",
                ]
            )
    head = ["", "chunks", "predicted", "measured", "error", "gain, predicted", "gain"]
    return table(head, rows, left=2)


def _passes(all_: Sequence[Machined], results: Path) -> str:
    rows: list[list[str]] = []
    for machined in all_:
        name = machined.given.name
        if not (results / name / before_after.FILE).exists():
            continue
        first: before_after.Entry | None = None
        for entry in before_after.entries(results / name):
            new = first is None or first.program != entry.program
            shown = "" if first else name
            first = entry if new or first is None else first
            rows.append(
                [
                    shown,
                    entry.program if new else "",
                    entry.variant,
                    f"{1e3 * entry.predicted:.0f} ms",
                    f"{1e3 * entry.measured:.0f} ms",
                    f"{100 * (entry.predicted / entry.measured - 1):+.1f} %",
                    f"{first.predicted / entry.predicted:.2f}",
                    f"{first.measured / entry.measured:.2f}",
                ]
            )
    head = ["", "", "", "predicted", "measured", "error", "gain, predicted", "gain"]
    return table(head, rows, left=3)


def page(all_: Sequence[Machined], results: Path) -> str:
    """Return the text of the page."""
    every = [placement for machined in all_ for placement in machined.placements]
    held = [residual for machined in all_ for residual in machined.calibration.held_back]
    used = [residual for machined in all_ for residual in machined.calibration.fitted]
    parts = machine_parts(all_)
    missed, close = ties(all_)
    return TEXT.format(
        version=collir.__version__,
        dates=_one_or_more(machined.about["date"].split()[0] for machined in all_),
        mpich=_one_or_more(machined.about["mpich"] for machined in all_),
        cases=len({(id(machined), p.case) for machined in all_ for p in machined.placements}),
        ranks=" and ".join(map(str, sorted({machined.given.devices for machined in all_}))),
        programs=sum(len(placement.programs) for placement in every),
        size=all_[0].about["elements"] * 4 // 1024,
        machines="\n".join(_source(machined.given.name) for machined in all_),
        spread=percent(spread(all_)),
        algorithms=_algorithms(),
        order=table(ORDER_HEAD, map(order_row, parts)),
        missed=missed,
        missed_close=close,
        chosen=table(CHOSEN_HEAD, map(chosen_row, chosen_parts(all_))),
        predictors=table(
            ["", *(part.name for part in parts), "within 3 %", "worst"], predictor_rows(all_)
        ),
        placements=table(
            ["", "by the best", "by the flat", "chosen is best", "worst over best"],
            placement_rows(all_),
        ),
        overlap_size=overlap.ELEMENTS * 4 // 1024,
        overlap=_overlap(all_, results),
        overlap_reasons=OVERLAP_REASONS,
        passes=_passes(all_, results),
        passes_reasons=PASSES_REASONS,
        frame=FRAME,
        segment=SEGMENT,
        header=percent(FRAME / SEGMENT - 1),
        links=table(
            ["", "collectives", "median", "range", "links of programs", "median", "range"],
            link_rows(all_),
        ),
        fit_count=len(used) + len(held),
        held=percent(median_error(held)),
        fit=table(["", "", "as given", "fitted", ""], fit_rows(all_), left=2),
        others=table(
            ["calibrated with", "median error", "worst", "95 % are below", "pairs right"],
            [_fit_row("all kinds", all_), _fit_row("reduce_scatter only", _only(all_, results))],
        ),
        kinds=table(
            ["", "programs", "median", "median size", "95 % are below", "range"], error_rows(all_)
        ),
        reasons=REASONS.format(
            cores=_one_or_more(str(machined.about["cores"]) for machined in all_)
        ),
        protocols=table(
            ["", "protocol", "all together", "median size", "worst error", "of"],
            protocol_rows(all_),
            left=2,
        ),
        outliers=table(
            ["", "reduction", "placement", "program", "measured", "error"],
            outlier_rows(all_),
            left=4,
        ),
        by_case=case_tables(all_),
    )


def _source(name: str) -> str:
    return (Path(__file__).parent / "machines" / f"{name}.coll").read_text(encoding="utf-8")


def _one_or_more(values: Iterable[str]) -> str:
    return ", ".join(sorted(set(values)))


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description="Writes docs/testbed.md.")
    parser.add_argument("--results", type=Path, default=RESULTS, help="default: %(default)s")
    parser.add_argument("-o", "--output", type=Path, default=PAGE, help="default: %(default)s")
    options = parser.parse_args()
    results = [read(options.results / name) for name in WEIGHTS]
    all_ = [machined for machined in results if machined is not None and machined.placements]
    if not all_:
        parser.error(f"there are no results in {options.results}: make testbed measures")
    options.output.write_text(page(all_, options.results), encoding="utf-8")
    print(options.output)


if __name__ == "__main__":
    main()
